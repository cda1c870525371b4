//! `[session] app`: defaults for the sessions of well-known apps. A key in the configuration takes
//! precedence.
//!
//! How their logins look on the wire is described in `tests/apps/README.md`.

use ::http::Method;

use super::plan::{AppPreset, Cache, Login, Logout, SessionConfig, Verify};
use crate::http::extract::{ExpectedValue, Expression, Extractor, ResponseMatcher};
use crate::http::path::PathPattern;
use crate::http::pattern::Pattern;
use crate::policy::login::{LoginUser, Matching, Success};

/// Their names in the configuration.
pub(super) const APPS: [(&str, Option<AppPreset>); 6] = [
    ("none", None),
    ("wordpress", Some(AppPreset::WordPress)),
    ("mediawiki", Some(AppPreset::MediaWiki)),
    ("django", Some(AppPreset::Django)),
    ("tomcat", Some(AppPreset::Tomcat)),
    ("php", Some(AppPreset::Php)),
];

impl AppPreset {
    /// What is missing without `[session.verify]`, for apps that have no standard page naming the visitor
    /// and no login response with the user's name.
    pub(super) fn lacks(self) -> Option<&'static str> {
        match self {
            Self::WordPress | Self::MediaWiki => None,
            Self::Php => Some(
                "PHP's session cookie alone does not prove a login: visitors with one are unknown, \
                 and their requests are forwarded; set [session.verify] path, user and nobody to a \
                 page that names the logged-in user",
            ),
            Self::Django | Self::Tomcat => Some(
                "the name entered at login is only a label, and visitors with an older session are \
                 unknown; if a page names the logged-in user, set [session.verify] path, user and \
                 nobody",
            ),
        }
    }

    /// Sets the app's session settings.
    pub(super) fn set(self, session: &mut SessionConfig) {
        match self {
            Self::WordPress => wordpress(session),
            Self::MediaWiki => mediawiki(session),
            Self::Django => django(session),
            Self::Tomcat => tomcat(session),
            Self::Php => session.cookies = patterns(&["PHPSESSID"]),
        }
    }

    /// Sets the app's cookies that pages for other visitors do not depend on.
    pub(super) fn ignore(self, cache: &mut Cache) {
        cache.ignore_cookies = match self {
            // These stay for a year after logout. The cookies of commenters and of password-protected
            // posts are not listed, because pages show their content.
            Self::WordPress => patterns(&["wordpress_test_cookie", "wp-settings-*"]),
            Self::MediaWiki => {
                patterns(&["*UserName", "*LoggedOut", "*mwuser-sessionId", "mwuser-sessionId"])
            }
            // Pages with a form that needs this cookie are never shared.
            Self::Django => patterns(&["csrftoken"]),
            Self::Tomcat | Self::Php => Vec::new(),
        };
    }
}

/// No page names the logged-in user to requests with all paths' cookies. The cookie itself names the user,
/// who has proved the login when it is set.
fn wordpress(session: &mut SessionConfig) {
    session.cookies = patterns(&["wordpress_logged_in_*", "wordpress_sec_*"]);
    // user%7Cexpiration%7Ctoken%7Chmac is over 256 bytes for a long name.
    session.token_is_digest = true;
    let cookie = || pattern("wordpress_logged_in_*");
    session.login = Login {
        matching: matching(&[Method::POST], &["/**/wp-login.php"], &[]),
        success: Success { status: vec![302], set_cookie: Some(cookie()), ..Success::default() },
        verify: false,
        // A name such as ann@example.org appears as ann%40example.org.
        user: Some(LoginUser::Answer(Extractor::SetCookie {
            name: cookie(),
            part: Some(expression("^(.+?)(?:%7[Cc]|\\|)")),
            decode: true,
        })),
    };
    session.logout = Logout {
        matching: matching(
            &[Method::GET, Method::POST],
            &["/**/wp-login.php"],
            &[("action", "logout")],
        ),
        success: Success { status: vec![302], clears_cookie: Some(cookie()), ..Success::default() },
    };
}

/// The API names the logged-in user; for an anonymous visitor it returns the address.
fn mediawiki(session: &mut SessionConfig) {
    session.cookies = patterns(&["*_session", "*Token", "*UserID"]);
    session.verify = Verify {
        path: Some("/api.php?action=query&meta=userinfo&format=json&formatversion=2".to_owned()),
        user: Some(Extractor::Json("/query/userinfo/name".to_owned())),
        anonymous: Some(ResponseMatcher::Json(
            "/query/userinfo/id".to_owned(),
            ExpectedValue::Number(0),
        )),
        ..Verify::default()
    };
}

fn django(session: &mut SessionConfig) {
    session.cookies = patterns(&["sessionid"]);
    let success = Success { status: vec![302], ..Success::default() };
    let cookie = || Some(pattern("sessionid"));
    session.login = Login {
        matching: matching(&[Method::POST], &["/accounts/login/", "/admin/login/"], &[]),
        success: Success { set_cookie: cookie(), ..success },
        verify: false,
        user: Some(LoginUser::Form("username".to_owned())),
    };
    session.logout = Logout {
        matching: matching(
            &[Method::GET, Method::POST],
            &["/accounts/logout/", "/admin/logout/"],
            &[],
        ),
        success: Success { clears_cookie: cookie(), ..Success::default() },
    };
}

/// The id changes at login; the route after the dot changes with the server.
fn tomcat(session: &mut SessionConfig) {
    session.cookies = patterns(&["JSESSIONID", "JSESSIONIDSSO"]);
    session.part = Some(expression("^([^.]+)"));
    session.login = Login {
        matching: matching(&[Method::POST], &["/**/j_security_check"], &[]),
        success: Success {
            status: vec![302, 303],
            set_cookie: Some(pattern("JSESSIONID")),
            ..Success::default()
        },
        verify: false,
        user: Some(LoginUser::Form("j_username".to_owned())),
    };
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| pattern(text)).collect()
}

// The texts below are constants of this file, and a test parses all of them.

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern of our own")
}

fn expression(text: &str) -> Expression {
    Expression::new(text).expect("an expression of our own")
}

fn matching(methods: &[Method], paths: &[&str], query: &[(&str, &str)]) -> Option<Matching> {
    let path = |text: &&str| PathPattern::parse(text).expect("a path of our own");
    Some(Matching {
        methods: methods.to_vec(),
        paths: paths.iter().map(path).collect(),
        query: query.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preset_of_each_app_can_be_read() {
        for (name, app) in APPS.iter().filter_map(|(name, app)| Some((name, (*app)?))) {
            let (mut session, mut cache) = (SessionConfig::default(), Cache::default());
            app.set(&mut session);
            app.ignore(&mut cache);
            assert_ne!(session, SessionConfig::default(), "{name}");
        }
    }
}
