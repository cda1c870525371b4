//! Reasons as sentences, and configuration that would help against them.

use anteroom_policy::route::{LeakGuard, SetCookie, Ttl};
use anteroom_telemetry::reason::Reason;

use super::explanation::ConfigHint;
use crate::proxy::context::RequestContext;
use crate::proxy::cookie_report::means_session;

/// A reason as a sentence.
pub(in crate::proxy) fn why(reason: Reason) -> &'static str {
    of_the_request(reason).unwrap_or_else(|| of_the_response(reason))
}

fn of_the_request(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Method => "the cache answers only GET and HEAD",
        Reason::RequestBody => "the request has a body",
        Reason::Route => "its route has share = \"none\"",
        Reason::Learn => {
            "the route learns: everything is forwarded, and nothing is served from the cache"
        }
        Reason::BypassSwitch => "the operator has switched the cache off (anteroom bypass)",
        Reason::Rank => "its item is not among the most viewed (only_top)",
        Reason::Login => {
            "the visitor is logged in, and this page is stored for visitors without a login only"
        }
        Reason::NotLoggedIn => {
            "the route keeps pages for each user, and the visitor is not logged in"
        }
        Reason::Unconfirmed => "the visitor's login is not confirmed",
        Reason::UnknownToken => "the session token is unknown",
        Reason::Unverified => {
            "the app has not identified the visitor: it was not asked yet, or its answer was unclear; the \
             visitor's next request asks it"
        }
        Reason::StoreAway => "the store is unavailable, so the visitor is unknown",
        Reason::BadSessionCookie => "the session cookie is malformed, or was sent twice",
        Reason::SessionInUrl => "the URL contains a session id",
        Reason::UnknownCookie => "a cookie matches no rule (session, harmless or keyed)",
        Reason::Authorization => "the request has an Authorization field",
        Reason::IdentityField => "the request has a field that names its sender",
        Reason::ClientCertificate => "the client presented a certificate",
        Reason::BoundConnection => {
            "NTLM and Negotiate authenticate the connection, which must not be shared"
        }
        Reason::Condition => "only the app can evaluate If-Match and If-Unmodified-Since",
        Reason::RequestNoStore => "the request has Cache-Control: no-store",
        Reason::RequestDirective => "the request asks for the app's current page",
        Reason::Fragment => {
            "the request asks for a part of a page, by X-Requested-With or a similar field"
        }
        Reason::Accept => "Accept lists no page type, and the page has only the default lifetime",
        Reason::OddPath => "the app could read the path as another path",
        Reason::Vary => {
            "the stored page depends on a request field (Vary), which Anteroom's own request for the page does \
             not send as this request does"
        }
        Reason::Miss => "the page is not stored",
        Reason::MinUses => {
            "the page is not stored, and was requested fewer times than min_uses of its route"
        }
        Reason::Unproven => {
            "the page is not stored, and its URL may be a secret, or Anteroom's own request would leave out a field: \
             until a response to a similar URL may be shared, such requests are sent as they came"
        }
        Reason::Pattern => {
            "the page is not stored, and recent responses to similar URLs could not be shared"
        }
        Reason::Head => "the page is not stored, and HEAD requests do not fill the cache",
        Reason::Crowded => {
            "too many requests are waiting, or the memory for bodies in flight is full"
        }
        Reason::Invalidated => "the page was purged or changed while it was fetched",
        Reason::Endpoint => "Anteroom answers the request itself",
        Reason::Refused | Reason::Defect => "Anteroom refuses the request",
        Reason::Upgrade => "the request upgrades to another protocol",
        Reason::Denied => "the client's address is not allowed",
        Reason::Loop => "the origin's address leads back to Anteroom",
        Reason::LoginRequired => "the route requires a login, and the visitor has none",
        Reason::Maintenance => "the route is under maintenance",
        Reason::RateLimited => "the client's address or session has exceeded its rate limit",
        Reason::Elsewhere => "another proxy has just found the page to be personal",
        _ => return None,
    })
}

fn of_the_response(reason: Reason) -> &'static str {
    match reason {
        Reason::SetCookie => "the response sets a cookie",
        Reason::AwaitingSecondUser => {
            "the page is not shared yet: a second user of the segment, at another address, must \
             receive the same"
        }
        Reason::NoStore => "the response has no-store",
        Reason::NoCache => "the response has no-cache and lacks a validator",
        Reason::Private => "the response has private",
        Reason::Stale => "the response was stale on arrival and lacks a validator",
        Reason::VaryAny => "the response has Vary: *",
        Reason::Status => "its status has no default lifetime",
        Reason::ContentType => "its content type has no default lifetime",
        Reason::NoValidator => "static content without a validator has no default lifetime",
        Reason::ResponseField => {
            "a response with Pragma, Refresh, WWW-Authenticate or an attachment has no default lifetime"
        }
        Reason::QueryParameter => {
            "a query parameter looks like a secret, so there is no default lifetime"
        }
        Reason::Deception => "HTML or JSON under the name of a static file has no default lifetime",
        Reason::NoLifetime => "the response names no lifetime, and no default applies",
        Reason::CsrfField => "a form in the page has a CSRF field",
        Reason::SessionInLink => "a link in the page has a session id",
        Reason::Undecodable => "the page could not be decoded for the search for secrets",
        Reason::PasswordField => {
            "the page has a password field, and sets a cookie or is for logged-in users"
        }
        Reason::PostForm => "the page sets a cookie and has a POST form",
        Reason::LeakUser => "the page contains the name of the user that it was fetched for",
        Reason::LeakAttribute => {
            "the page contains an attribute of the user that it was fetched for"
        }
        Reason::LeakToken => "the page contains the visitor's token or cookie value",
        Reason::Reflected => {
            "the page contains the value of a field of the request, on which its key does not depend"
        }
        Reason::TooLarge => "the page is larger than [cache] max_object",
        Reason::Slow => "the page took too long, or the second user's response that confirms it",
        Reason::Unframed => "the body ends with the connection, so a truncated one looks complete",
        Reason::Anteroom => "the response logs the visitor in or out, or carries visitor data",
        Reason::Variants => "the page has too many variants",
        Reason::Tags => "the page has too many tags",
        Reason::Fields => "the page's fields are too large",
        Reason::Origin => "the app did not answer",
        Reason::ServerError => "the app answered with an error",
        _ => reason.as_str(),
    }
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
        Reason::UnknownToken => against_sessions_of_the_app(),
        Reason::Vary => against_vary(about),
        Reason::SetCookie
        | Reason::NoStore
        | Reason::NoCache
        | Reason::Stale
        | Reason::Private
        | Reason::ResponseField => against_the_app(reason),
        Reason::Fragment => {
            let list = list(about.fragments.iter());
            let text = format!(
                "key_headers = [{list}] stores fragments apart from whole pages; fragments, too, \
                 must be free of personal data"
            );
            vec![hint("[[route]] key_headers", &text)]
        }
        _ => one_key(reason).map(|(key, text)| hint(key, text)).into_iter().collect(),
    }
}

/// The single setting that helps against a reason, whatever the request is.
fn one_key(reason: Reason) -> Option<(&'static str, &'static str)> {
    Some(match reason {
        Reason::Route => {
            ("[[route]] share", "write share = \"anonymous\" if the page may be shared")
        }
        Reason::RequestDirective => (
            "[cache] client_directives",
            "client_directives = \"ignore\" stops visitors from forcing a new fetch",
        ),
        Reason::Rank => ("[[route]] only_top", "a larger number covers more items"),
        Reason::AwaitingSecondUser => (
            "[[route]] segment",
            "list everything that the page differs by; use share = \"user\" for a page that \
             differs for each user",
        ),
        Reason::Login | Reason::Authorization | Reason::ClientCertificate => (
            "[[route]] share",
            "share = \"everyone\" if the page is the same for everyone and free of personal data",
        ),
        Reason::Unverified => (
            "[session.verify] path",
            "within timeout, the app's response must match nobody, or have a 2xx status and contain user; other \
             responses count in anteroom_verify_unclear_total",
        ),
        Reason::BadSessionCookie => (
            "[session] token_from",
            "token_from = \"sha256\" if the value is shorter than 8 bytes, longer than 256, or more than visible \
             ASCII; a cookie that is sent twice is always rejected",
        ),
        Reason::StoreAway => {
            ("[store] url", "the store is unavailable, or slower than [store] timeout")
        }
        Reason::Status => (
            "[[route]] ttl",
            "ttl = \"300s\" if it is a 404 or 410, which are then kept for 10 s; otherwise let the app send \
             max-age",
        ),
        Reason::ContentType | Reason::NoValidator | Reason::Accept | Reason::NoLifetime => {
            ("[[route]] ttl", "ttl = \"300s\" on a route for this path")
        }
        Reason::LeakUser | Reason::LeakAttribute | Reason::LeakToken => (
            "[[route]] leak_guard",
            "share = \"none\" if the page is personal; leak_guard = \"marks\" if the finding is a \
             word of every page",
        ),
        Reason::TooLarge => ("[cache] max_object", "set a larger size"),
        Reason::Variants => {
            ("[limits] variants", "set a larger number, or let the app vary on less")
        }
        Reason::Crowded => ("[limits] in_flight", "set a larger size, or larger waiters"),
        Reason::IdentityField => (
            "[cache] identity_headers",
            "without the field's name if it says nothing of the visitor; key_headers keeps a page for each value",
        ),
        Reason::Reflected => (
            "[[route]] key_headers",
            "let the app send Vary with the field's name, or keep a page for each value",
        ),
        Reason::MinUses => ("[[route]] min_uses", "a smaller number stores pages earlier"),
        reason => return against_the_page(reason),
    })
}

/// The setting that helps where the app or its page stands in the way.
fn against_the_page(reason: Reason) -> Option<(&'static str, &'static str)> {
    Some(match reason {
        Reason::Unframed => (
            "[origin] url",
            "the app's server ends bodies by closing the connection, as `php -S` does: put a server in between that \
             sends Content-Length or chunks, such as nginx with PHP-FPM",
        ),
        Reason::CsrfField => (
            "[[route]] fragments",
            "with share = \"everyone\", the form is filled in for each visitor from a path of its own",
        ),
        Reason::SessionInUrl | Reason::SessionInLink => (
            "[session] cookie",
            "let the app keep its session id in a cookie only (PHP: session.use_only_cookies = 1)",
        ),
        Reason::PasswordField | Reason::PostForm => (
            "[[route]] strip_set_cookie",
            "name the cookies that this page can do without, in place of set_cookie = \"strip_for_anonymous\"",
        ),
        Reason::QueryParameter => {
            ("[[route]] ignore_query", "add the parameter, if the page does not depend on it")
        }
        Reason::NotLoggedIn => (
            "[[route]] share",
            "share = \"anonymous\" or \"segment\" if visitors without a login may share the page",
        ),
        Reason::Unconfirmed => (
            "[session.login] verify",
            "verify = true confirms the name that the visitor typed, by [session.verify]",
        ),
        Reason::Origin | Reason::ServerError => (
            "[[route]] stale_if_error",
            "a stored page is served for this time while the app fails",
        ),
        Reason::Maintenance => ("[[route]] maintenance", "maintenance = false ends it"),
        Reason::RateLimited => (
            "[limits] requests_per_address",
            "a higher rate; list proxies in front of Anteroom in [client] trusted_proxies",
        ),
        _ => return None,
    })
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

/// Hints against tokens whose user is unknown to the proxy.
fn against_sessions_of_the_app() -> Vec<ConfigHint> {
    vec![
        hint(
            "[session.verify] path",
            "with user and nobody, if a page of the app names the logged-in user; for PHP, Java and other apps \
             that give anonymous visitors a session",
        ),
        hint(
            "[session] app",
            "app = \"wordpress\", \"mediawiki\", \"django\", \"tomcat\" or \"php\" if the app is one of these; for \
             others, describe the login in [session.login]",
        ),
        hint(
            "[session] mint",
            "mint = true if only Anteroom sets this cookie; otherwise the app must maintain login: \
             in Redis",
        ),
    ]
}

/// Hints at cookies that no rule names. A cookie with the name of a session is not to be ignored or keyed.
fn against_cookies(names: &[String]) -> Vec<ConfigHint> {
    let (sessions, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| means_session(name));
    let mut hints = Vec::new();
    if !others.is_empty() {
        let list = list(others.into_iter());
        hints = vec![
            hint(
                "[cache] ignore_cookies",
                &format!("add {list} if no page of the app depends on it"),
            ),
            hint(
                "[[route]] key_cookies",
                &format!(
                    "key_cookies = [{list}] if pages depend on it; stores one page for each value"
                ),
            ),
            hint("[session] cookie", &format!("add {list} if it marks a logged-in user")),
        ];
    }
    if !sessions.is_empty() {
        let list = list(sessions.into_iter());
        hints.push(hint(
            "[session] cookie",
            &format!(
                "add {list}, which looks like a session; or [session] app, if it knows the app"
            ),
        ));
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
    let names = list(about.unsent.iter().filter(|name| !NEVER.contains(&name.as_str())));
    if !names.is_empty() {
        let text = format!("send_headers = [{names}] makes fills send what this page depends on");
        hints.push(hint("[[route]] send_headers", &text));
    }
    hints
}

fn against_the_app(reason: Reason) -> Vec<ConfigHint> {
    const OVERRIDE: &str = "[[route]] override_ttl";
    match reason {
        Reason::SetCookie => vec![
            hint(
                "[[route]] strip_set_cookie",
                "strip_set_cookie = [\"…\"] with the names of the cookies that the page sets, if anonymous \
                 visitors can do without them; `anteroom top cookies` lists the cookies that pages set",
            ),
            hint(
                "[[route]] set_cookie",
                "set_cookie = \"strip_for_anonymous\" if the app sets cookies on every page",
            ),
        ],
        Reason::Private => vec![
            hint(
                OVERRIDE,
                "override_ttl = \"60s\" on a named route for this path, with override_private",
            ),
            hint(
                "[[route]] override_private",
                "override_private = true if the app sends private with pages that are for everyone; requires \
                 share = \"anonymous\" and [session] cookie",
            ),
        ],
        Reason::ResponseField => {
            vec![hint(
                OVERRIDE,
                "override_ttl = \"60s\" on a route for this path overrides Pragma, but none of the \
                 other fields",
            )]
        }
        _ => vec![hint(
            OVERRIDE,
            "override_ttl = \"60s\" on a route for this path, if the app sends this with every page",
        )],
    }
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
    fn every_reason_has_a_sentence() {
        for reason in Reason::ALL {
            let sentence = why(reason);
            assert!(sentence.contains(' '), "{reason:?}: {sentence:?}");
        }
    }

    #[test]
    fn hints_name_existing_keys() {
        let known = include_str!("../../../proxy.toml");
        for reason in Reason::ALL {
            for hint in hints(reason, &NOTHING) {
                let (section, key) = hint.key.split_once("] ").unwrap();
                let section = known.find(&format!("{section}]")).unwrap();
                assert!(known[section..].contains(&format!("{key} =")), "{reason:?}: {hint:?}");
            }
        }
    }

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
