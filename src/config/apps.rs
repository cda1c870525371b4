//! `[session] app`: what well-known apps need said of their sessions. Any key that is written counts instead.
//!
//! What their log-ins look like on the wire is written down in `tests/apps/README.md`.

use super::plan::{Cache, Session};
use super::sessions::{Login, LoginUser, Logout, Matching, Success, Verify};
use crate::http::extract::{Expression, Finder, Plain, Sign};
use crate::http::path::PathPattern;
use crate::http::pattern::Pattern;

/// An app whose sessions are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum App {
    /// WordPress
    WordPress,
    /// MediaWiki
    MediaWiki,
    /// Django, with its stock log-in
    Django,
    /// Tomcat and other servlet containers, with a log-in by form
    Tomcat,
    /// PHP's own sessions
    Php,
}

/// Their names in the configuration.
pub(super) const APPS: [(&str, Option<App>); 6] = [
    ("none", None),
    ("wordpress", Some(App::WordPress)),
    ("mediawiki", Some(App::MediaWiki)),
    ("django", Some(App::Django)),
    ("tomcat", Some(App::Tomcat)),
    ("php", Some(App::Php)),
];

impl App {
    /// What is missing while it is not asked who its visitors are: it has no page of its own for that, and its
    /// log-in names nobody.
    pub(super) fn lacks(self) -> Option<&'static str> {
        match self {
            Self::WordPress | Self::MediaWiki => None,
            Self::Php => Some(
                "PHP's session cookie alone says nothing: visitors who have one are unknown, and forwarded; \
                 name the page that says who is logged in, by [session.verify] path, user and nobody",
            ),
            Self::Django | Self::Tomcat => Some(
                "the name that is typed at a log-in is a label only, and visitors with an older session are \
                 unknown; where a page says who is logged in, name it by [session.verify] path, user and \
                 nobody",
            ),
        }
    }

    /// What holds of its sessions.
    pub(super) fn set(self, session: &mut Session) {
        match self {
            Self::WordPress => wordpress(session),
            Self::MediaWiki => mediawiki(session),
            Self::Django => django(session),
            Self::Tomcat => tomcat(session),
            Self::Php => session.cookies = patterns(&["PHPSESSID"]),
        }
    }

    /// Cookies of its that no page depends on which others are shown.
    pub(super) fn ignore(self, cache: &mut Cache) {
        cache.ignore_cookies = match self {
            // They stay for a year behind a log-out. Those of commenters and of posts with a password are not
            // among them: pages show what they hold.
            Self::WordPress => patterns(&["wordpress_test_cookie", "wp-settings-*"]),
            Self::MediaWiki => {
                patterns(&["*UserName", "*LoggedOut", "*mwuser-sessionId", "mwuser-sessionId"])
            }
            // A page with a form that needs it is never shared.
            Self::Django => patterns(&["csrftoken"]),
            Self::Tomcat | Self::Php => Vec::new(),
        };
    }
}

/// No page says who is logged in to all paths' cookies; the cookie names the user, and its keeper has proved
/// himself when it is set.
fn wordpress(session: &mut Session) {
    session.cookies = patterns(&["wordpress_logged_in_*", "wordpress_sec_*"]);
    // user%7Cexpiration%7Ctoken%7Chmac is over 256 bytes for a long name.
    session.token_is_digest = true;
    let cookie = || pattern("wordpress_logged_in_*");
    session.login = Login {
        matching: matching(&["POST"], &["/**/wp-login.php"], &[]),
        success: Success { status: vec![302], set_cookie: Some(cookie()), ..Success::default() },
        verify: false,
        // A name may be ann@example.org, which stands there as ann%40example.org.
        user: Some(LoginUser::Answer(Finder::SetCookie {
            name: cookie(),
            part: Some(expression("^(.+?)(?:%7[Cc]|\\|)")),
            decode: true,
        })),
    };
    session.logout = Logout {
        matching: matching(&["GET", "POST"], &["/**/wp-login.php"], &[("action", "logout")]),
        success: Success { status: vec![302], clears_cookie: Some(cookie()), ..Success::default() },
    };
}

/// Its API says who is logged in, and calls who is not by his address.
fn mediawiki(session: &mut Session) {
    session.cookies = patterns(&["*_session", "*Token", "*UserID"]);
    session.verify = Verify {
        path: Some("/api.php?action=query&meta=userinfo&format=json&formatversion=2".to_owned()),
        user: Some(Finder::Json("/query/userinfo/name".to_owned())),
        nobody: Some(Sign::Json("/query/userinfo/id".to_owned(), Plain::Number(0))),
        ..Verify::default()
    };
}

fn django(session: &mut Session) {
    session.cookies = patterns(&["sessionid"]);
    let success = Success { status: vec![302], ..Success::default() };
    let cookie = || Some(pattern("sessionid"));
    session.login = Login {
        matching: matching(&["POST"], &["/accounts/login/", "/admin/login/"], &[]),
        success: Success { set_cookie: cookie(), ..success },
        verify: false,
        user: Some(LoginUser::Form("username".to_owned())),
    };
    session.logout = Logout {
        matching: matching(&["GET", "POST"], &["/accounts/logout/", "/admin/logout/"], &[]),
        success: Success { clears_cookie: cookie(), ..Success::default() },
    };
}

/// The id changes at log-in; the route behind it changes with the server.
fn tomcat(session: &mut Session) {
    session.cookies = patterns(&["JSESSIONID", "JSESSIONIDSSO"]);
    session.part = Some(expression("^([^.]+)"));
    session.login = Login {
        matching: matching(&["POST"], &["/**/j_security_check"], &[]),
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

// The texts below are this file's own, and a test reads all of them.

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern of our own")
}

fn expression(text: &str) -> Expression {
    Expression::new(text).expect("an expression of our own")
}

fn matching(methods: &[&str], paths: &[&str], query: &[(&str, &str)]) -> Option<Matching> {
    let path = |text: &&str| PathPattern::parse(text).expect("a path of our own");
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Some(Matching {
        methods: texts(methods),
        paths: paths.iter().map(path).collect(),
        query: query.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_each_app_can_be_read() {
        for (name, app) in APPS.iter().filter_map(|(name, app)| Some((name, (*app)?))) {
            let (mut session, mut cache) = (Session::default(), Cache::default());
            app.set(&mut session);
            app.ignore(&mut cache);
            assert_ne!(session, Session::default(), "{name}");
        }
    }
}
