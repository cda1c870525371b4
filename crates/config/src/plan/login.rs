//! `[session.verify]`, `[session.login]`, `[session.logout]`: how the login of an unchanged app is
//! recognised.

use std::time::Duration;

use ::http::uri::PathAndQuery;
use anteroom_http::extract::{Extractor, ResponseMatcher};

use anteroom_policy::login::{
    LoginRule, LoginUser, LogoutRule, RequestPattern, Success, VerifyRule,
};

/// `[session.verify]`: how the app is asked for the user's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// `path`: the target of the request, with its query. `None`: the app is not asked.
    pub path: Option<String>,
    /// `user`: where the response names the user. Required.
    pub user: Option<Extractor>,
    /// `nobody`: the sign of a visitor without a login. Required.
    pub anonymous: Option<ResponseMatcher>,
    /// `attributes`: where the response contains attributes of the user.
    pub attributes: Vec<(String, Extractor)>,
    /// `verify_every`, 60 s: how long a response is valid.
    pub verify_every: Duration,
    /// `timeout`, 5 s: how long a visitor waits for the response.
    pub timeout: Duration,
}

impl Default for Verify {
    fn default() -> Self {
        Self {
            path: None,
            user: None,
            anonymous: None,
            attributes: Vec::new(),
            verify_every: Duration::from_secs(60),
            timeout: Duration::from_secs(5),
        }
    }
}

impl Verify {
    /// The rule, if the app is asked. The check has verified that it is complete.
    #[must_use]
    pub fn rule(&self) -> Option<VerifyRule> {
        Some(VerifyRule {
            target: PathAndQuery::try_from(self.path.as_deref()?).ok()?,
            user: self.user.clone()?,
            anonymous: self.anonymous.clone()?,
            attributes: self.attributes.clone(),
            every: self.verify_every,
            timeout: self.timeout,
        })
    }
}

/// `[session.login]`: the app's own requests that log a visitor in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Login {
    /// `match`: the requests. `None`: there is no rule.
    pub matching: Option<RequestPattern>,
    /// `success`: the conditions on the response to a successful login; all of them must hold.
    pub success: Success,
    /// `verify`, false: whether `[session.verify]` proves the login.
    pub verify: bool,
    /// `user`: where to find the user's name.
    pub user: Option<LoginUser>,
}

impl Login {
    /// The rule, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<LoginRule> {
        Some(LoginRule {
            matching: self.matching.clone()?,
            success: self.success.clone(),
            user: self.user.clone().filter(|_| !self.verify),
        })
    }
}

/// `[session.logout]`: the app's own requests that log a visitor out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logout {
    /// `match`: the requests. `None`: there is no rule.
    pub matching: Option<RequestPattern>,
    /// `success`: the conditions on the response to a successful logout; all of them must hold.
    pub success: Success,
}

impl Logout {
    /// The rule, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<LogoutRule> {
        Some(LogoutRule { matching: self.matching.clone()?, success: self.success.clone() })
    }
}
