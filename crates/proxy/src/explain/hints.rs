//! Reasons as sentences, and configuration that would help against them.

use anteroom_policy::route::{LeakGuard, SetCookie, Ttl};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::remedies::{NAMES, SESSION_COOKIE, text_of};

use super::explanation::ConfigHint;
use crate::context::RequestContext;
use crate::cookie_report::means_session;

/// A reason as a sentence.
pub(crate) fn why(reason: Reason) -> &'static str {
    text_of(reason).meaning
}

/// Why a page that varies on `fields` is not for this request.
pub(super) fn why_vary(fields: &[String], has_login: bool) -> String {
    if has_login && fields.iter().any(|name| name == "cookie") {
        return "the stored page is for visitors without a login (it has Vary: Cookie), and this visitor has one".into();
    }
    format!(
        "the stored page depends on {} (Vary), which Anteroom's own request for the page does not send as this \
         request does",
        fields.join(", ")
    )
}

/// The properties of a request that hints depend on.
pub(super) struct HintContext<'a> {
    /// The cookies that are missing from the configuration, each once.
    pub(super) unknown_cookies: &'a [String],
    /// The fields by which the request asks for a fragment.
    pub(super) fragments: &'a [String],
    /// The fields of `Vary` that prevent a hit.
    pub(super) unsent: &'a [String],
}

/// The hints against a reason.
pub(super) fn hints(reason: Reason, about: &HintContext<'_>) -> Vec<ConfigHint> {
    match reason {
        Reason::UnknownCookie => against_cookies(about.unknown_cookies),
        Reason::Vary => against_vary(about),
        Reason::Fragment => named(reason, about.fragments.iter()),
        reason => text_of(reason).remedies.iter().map(|it| hint(it.key, it.text)).collect(),
    }
}

/// The hints against a reason, with the names of what stands in the way.
fn named<'n>(reason: Reason, names: impl Iterator<Item = &'n String>) -> Vec<ConfigHint> {
    let names = list(names);
    let remedies = text_of(reason).remedies.iter();
    remedies.map(|it| hint(it.key, &it.text.replace(NAMES, &names))).collect()
}

/// Whether a setting is in force already, so that a hint at it helps nothing.
pub(super) fn is_in_force(key: &str, cx: &RequestContext<'_>) -> bool {
    let (route, settings) = (cx.route, &cx.worker.settings);
    match key {
        "[[route]] ttl" => route.ttl != Ttl::default(),
        "[[route]] override_ttl" => route.override_ttl.is_some(),
        "[[route]] override_private" => route.override_private,
        "[[route]] set_cookie" => route.set_cookie == SetCookie::StripForAnonymous,
        "[[route]] leak_guard" => route.leak_guard != LeakGuard::Full,
        "[cache] client_directives" => !cx.worker.filler.policy.client_directives,
        "[session] mint" => settings.minted.is_some(),
        _ => false,
    }
}

/// Hints at cookies that no rule names. A cookie with the name of a session is not to be ignored or keyed.
fn against_cookies(names: &[String]) -> Vec<ConfigHint> {
    let (sessions, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| means_session(name));
    let mut hints = Vec::new();
    if !others.is_empty() {
        hints = named(Reason::UnknownCookie, others.into_iter());
    }
    if !sessions.is_empty() {
        let names = list(sessions.into_iter());
        hints.push(hint(SESSION_COOKIE.key, &SESSION_COOKIE.text.replace(NAMES, &names)));
    }
    hints
}

/// Hints against fields that a fill leaves out or changes. Fields with credentials are never suggested.
fn against_vary(about: &HintContext<'_>) -> Vec<ConfigHint> {
    const NEVER: [&str; 3] = ["cookie", "authorization", "accept-encoding"];
    let mut hints = Vec::new();
    if about.unsent.iter().any(|name| name == "cookie") && !about.unknown_cookies.is_empty() {
        hints = against_cookies(about.unknown_cookies);
    }
    let may_be_sent = |name: &&String| !NEVER.contains(&name.as_str());
    if about.unsent.iter().any(|name| may_be_sent(&name)) {
        hints.extend(named(Reason::Vary, about.unsent.iter().filter(may_be_sent)));
    }
    hints
}

/// Names, formatted as a list in the configuration.
fn list<'n>(names: impl Iterator<Item = &'n String>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn hint(key: &str, text: &str) -> ConfigHint {
    ConfigHint { key: key.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: HintContext<'_> =
        HintContext { unknown_cookies: &[], fragments: &[], unsent: &[] };

    #[test]
    fn unrecognised_sessions_get_hints_about_sessions() {
        let keys = |reason| -> Vec<String> {
            hints(reason, &NOTHING).into_iter().map(|hint| hint.key).collect()
        };
        assert_eq!(
            keys(Reason::UnknownToken),
            ["[session.verify] path", "[session] app", "[session] mint"]
        );
        assert_eq!(keys(Reason::Unverified), ["[session.verify] path"]);
        assert_eq!(keys(Reason::BadSessionCookie), ["[session] token_from"]);
    }

    #[test]
    fn a_cookie_with_the_name_of_a_session_is_not_to_be_ignored() {
        let names = ["PHPSESSID", "consent"].map(str::to_owned);
        let about = HintContext { unknown_cookies: &names, ..NOTHING };
        let found = hints(Reason::UnknownCookie, &about);
        let (last, others) = found.split_last().unwrap();
        assert!(last.key == "[session] cookie" && last.text.starts_with("add \"PHPSESSID\", "));
        assert!(others.iter().all(|hint| !hint.text.contains("PHPSESSID")), "{others:?}");
    }

    #[test]
    fn a_field_that_no_fill_may_send_is_not_hinted_at() {
        let unsent = ["cookie", "x-form", "authorization"].map(str::to_owned);
        let found = hints(Reason::Vary, &HintContext { unsent: &unsent, ..NOTHING });
        assert_eq!(found.len(), 1);
        assert!(found[0].text.starts_with("send_headers = [\"x-form\"] "), "{found:?}");
        let cookies = ["a\"b".to_owned()];
        let about = HintContext { unsent: &unsent[..1], unknown_cookies: &cookies, ..NOTHING };
        assert!(hints(Reason::Vary, &about)[0].text.contains(r#""a\"b""#));
    }
}
