//! Sessions of the app: how the app is asked about them, and how logins are recognised.

use anteroom_http::extract::Extractor;
use anteroom_policy::login::{LoginUser, Success};

use super::ConfigCheck;
use crate::plan::{AppPreset, Login, Verify};

/// The cookie in which Flask and Express (cookie-session) keep the signed session itself by default.
const SIGNED: &str = "session";

/// How such cookies end that begin with the app's name: Laravel's (encrypted, and new with every response)
/// and Rails'.
const SIGNED_END: &str = "_session";

/// MediaWiki's cookies beside one with this ending, which then holds an id.
static WITH_AN_ID: [&str; 2] = ["UserID", "Token"];

impl ConfigCheck<'_> {
    /// Checks the settings for the app's own sessions.
    pub(super) fn own_sessions(&mut self) {
        let session = &self.plan.session;
        let (verify, login, logout) = (&session.verify, &session.login, &session.logout);
        let rules = [
            ("session.verify.path", verify.path.is_some()),
            ("session.login.match", login.matching.is_some()),
            ("session.logout.match", logout.matching.is_some()),
            ("session.token_from", session.token_is_digest),
            ("session.part", session.part.is_some()),
        ];
        for (key, _) in rules.iter().filter(|(_, is_said)| *is_said) {
            if session.mint {
                self.problem(
                    key,
                    "is for an app with its own sessions, but mint = true means that it has none",
                );
            }
            if !self.plan.origin.sessions {
                self.problem(key, "needs [origin] sessions = true");
            }
        }
        let times = [
            ("session.idle_timeout", session.idle_timeout.is_some()),
            ("session.absolute_timeout", session.absolute_timeout.is_some()),
        ];
        for (key, _) in times.iter().filter(|(_, is_said)| *is_said && verify.path.is_some()) {
            self.problem(
                key,
                "does not apply to sessions that [session.verify] checks with the app",
            );
        }
        if verify.path.is_none()
            && let Some(text) = session.app.and_then(AppPreset::lacks)
        {
            self.warning("session.app", text);
        }
        self.verification(verify);
        self.log_in_rule(login, verify);
        self.one_user(login, verify);
    }

    fn verification(&mut self, verify: &Verify) {
        let needed = [
            ("path", verify.path.is_some(), r#"path = "/api/whoami""#),
            ("user", verify.user.is_some(), r#"user = { json = "/user/name" }"#),
            ("nobody", verify.anonymous.is_some(), r#"nobody = { status = [401] }"#),
        ];
        let is_begun = needed.iter().any(|(_, is_said, _)| *is_said);
        for (key, _, hint) in needed.iter().filter(|(_, is_said, _)| is_begun && !is_said) {
            self.problem(&format!("session.verify.{key}"), format!("missing; write {hint}"));
        }
        if verify.path.as_deref().is_some_and(|path| path.starts_with("/wp-admin/")) {
            self.warning(
                "session.verify.path",
                "pages below /wp-admin/ do not receive the login cookies of other paths, so every \
                 visitor looks logged out",
            );
        }
        let session = &self.plan.session;
        let names: Vec<String> = session.cookies.iter().map(ToString::to_string).collect();
        if verify.path.is_some()
            && session.part.is_none()
            && session.app.is_none()
            && let Some(cookie) = names.iter().find(|name| is_signed(name, &names))
        {
            let text = format!(
                "{cookie} often contains the session itself, signed or encrypted, and changes with \
                 each response, so the app is asked each time; see token_from and part"
            );
            self.warning("session.cookie", text);
        }
    }

    /// Where all users have one name, each is given the pages of the others.
    fn one_user(&mut self, login: &Login, verify: &Verify) {
        let of_login = match &login.user {
            Some(LoginUser::Answer(extractor)) => Some(extractor),
            Some(LoginUser::Form(_) | LoginUser::Json(_)) | None => None,
        };
        let places =
            [("session.verify.user", verify.user.as_ref()), ("session.login.user", of_login)];
        for (key, extractor) in places {
            if let Some(only) = extractor.and_then(Extractor::only_text) {
                let text = format!(
                    "regex finds no text but {only:?}, so that all logged-in visitors are this one user, and see each \
                     other's pages; write a group for what differs, such as \"user ([0-9]+)\""
                );
                self.grave_warning(key, text);
            }
        }
    }

    fn log_in_rule(&mut self, login: &Login, verify: &Verify) {
        if login.verify && verify.path.is_none() {
            self.problem("session.login.verify", "needs [session.verify] path");
        }
        if login.matching.is_none() {
            if login.user.is_some() || login.success != Success::default() {
                let text = "missing; write match = { method = \"POST\", path = \"/login\" }";
                self.problem("session.login.match", text);
            }
            return;
        }
        if !login.verify && !login.success.has_proof() {
            self.problem(
                "session.login.success",
                "needs set_cookie, location or header, or verify = true: a method, a path and a \
                 status alone do not prove a login",
            );
        }
        if !login.verify && login.user.is_none() {
            let text = "missing; write user = { form = \"username\" }, or verify = true";
            self.problem("session.login.user", text);
        }
    }
}

/// Whether a session cookie of this name, one of `all`, often contains the session itself.
fn is_signed(name: &str, all: &[String]) -> bool {
    let Some(app) = name.strip_suffix(SIGNED_END) else { return name == SIGNED };
    !WITH_AN_ID.iter().any(|end| all.contains(&format!("{app}{end}")))
}
