//! `[session.login]`, `[session.logout]`, `[session.verify]`: how logins of an app that keeps its own sessions
//! are recognised.

use std::time::Duration;

use ::http::uri::PathAndQuery;
use ::http::{HeaderName, Method, Uri};

use anteroom_http::extract::{Extractor, ResponseMatcher};
use anteroom_http::path::PathPattern;
use anteroom_http::pattern::Pattern;
use anteroom_http::query;

/// The app's own requests that log in and out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoginRules {
    /// Logins.
    pub login: Option<LoginRule>,
    /// Logouts.
    pub logout: Option<LogoutRule>,
}

/// By what a login is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRule {
    /// The requests.
    pub matching: RequestPattern,
    /// What their answers must be.
    pub success: Success,
    /// Where the user's name is; `None`: the app is asked.
    pub user: Option<LoginUser>,
}

/// By what a logout is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogoutRule {
    /// The requests.
    pub matching: RequestPattern,
    /// What their answers must be.
    pub success: Success,
}

/// Where a login has the user's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginUser {
    /// In the app's answer.
    Answer(Extractor),
    /// In this field of the form that was sent: what the visitor typed, and so a label only.
    Form(String),
    /// At this pointer into the JSON that was sent: a label, too.
    Json(String),
}

/// Requests of some methods for some paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPattern {
    /// `method`, `["POST"]`: one of these.
    pub methods: Vec<Method>,
    /// `path`: one of these.
    pub paths: Vec<PathPattern>,
    /// `query`: parameters that the query must have, with these values.
    pub query: Vec<(String, String)>,
}

impl RequestPattern {
    /// Whether a request is one of these; `path` is percent-decoded.
    #[must_use]
    pub fn fits(&self, method: &Method, uri: &Uri, path: &str) -> bool {
        let asked = uri.query().unwrap_or_default();
        let has =
            |(name, value): &(String, String)| query::value(asked, name).as_ref() == Some(value);
        self.methods.contains(method)
            && self.paths.iter().any(|pattern| pattern.matches(path).is_some())
            && self.query.iter().all(has)
    }
}

/// What an answer must be; all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// `status`: one of these; empty: any.
    pub status: Vec<u16>,
    /// `set_cookie`: it sets such a cookie, a session's to a new value.
    pub set_cookie: Option<Pattern>,
    /// `location`: it redirects there, by the whole URL or by its path; at most one `*`.
    pub location: Option<Pattern>,
    /// `header`: it has this field.
    pub header: Option<HeaderName>,
    /// `clears_cookie`: it deletes such a cookie.
    pub clears_cookie: Option<Pattern>,
}

impl Success {
    /// Whether anything besides the status is asked for.
    #[must_use]
    pub fn has_proof(&self) -> bool {
        self.set_cookie.is_some()
            || self.location.is_some()
            || self.header.is_some()
            || self.clears_cookie.is_some()
    }
}

/// How the app is asked for the visitor's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyRule {
    /// What is asked for.
    pub target: PathAndQuery,
    /// Where the answer names the user.
    pub user: Extractor,
    /// The sign by which the answer says that no user is logged in.
    pub anonymous: ResponseMatcher,
    /// Where the answer has attributes of the user.
    pub attributes: Vec<(String, Extractor)>,
    /// How long an answer counts.
    pub every: Duration,
    /// How long a visitor waits for it.
    pub timeout: Duration,
}
