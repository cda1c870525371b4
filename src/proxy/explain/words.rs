//! Reasons as sentences, and configuration that would help against them.

use super::explanation::Hint;
use crate::telemetry::reason::Reason;

/// A reason as a sentence.
pub(super) fn why(reason: Reason) -> &'static str {
    of_the_request(reason).unwrap_or_else(|| of_the_response(reason))
}

fn of_the_request(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Method => "only GET and HEAD are answered from the cache",
        Reason::RequestBody => "a request with a body is not shared",
        Reason::Route => "its route says share = \"none\"",
        Reason::Rank => "its item is not among the most viewed (only_top)",
        Reason::Login => {
            "the visitor is logged in, and the route shares among visitors without a login"
        }
        Reason::NotLoggedIn => {
            "the visitor is not logged in, and the route keeps pages for one user each"
        }
        Reason::Unconfirmed => "nobody has confirmed who the visitor is",
        Reason::UnknownToken => "the session cookie's token is not known",
        Reason::Unverified => {
            "the app has not said who the visitor is: it is asked by his next request"
        }
        Reason::StoreAway => "the store could not say who the visitor is",
        Reason::BadSessionCookie => "the session cookie is malformed, or came twice",
        Reason::SessionInUrl => "there is a session id in the URL",
        Reason::UnknownCookie => "a cookie is neither the session's nor known to be harmless",
        Reason::Authorization => "the request carries Authorization",
        Reason::ClientCertificate => "the client showed a certificate",
        Reason::BoundConnection => "NTLM and Negotiate log a connection in, which is not shared",
        Reason::Condition => "If-Match and If-Unmodified-Since are for the app to judge",
        Reason::RequestNoStore => "the request says Cache-Control: no-store",
        Reason::RequestDirective => "the request asks for a page as the app has it now",
        Reason::Fragment => "a fragment of a page is asked for, by X-Requested-With or its like",
        Reason::Accept => "Accept names no kind of page, and this has the default lifetime only",
        Reason::OddPath => "the path could mean another one to the app",
        Reason::Vary => {
            "the page depends on a field that a fill does not send as this request does"
        }
        Reason::Miss => "it is not stored",
        Reason::Head => "a HEAD fills nothing, and the page is not stored",
        Reason::Crowded => {
            "too many requests wait already, or there is no room for bodies in flight"
        }
        Reason::Invalidated => "the page was changed while it was fetched",
        Reason::Endpoint => "Anteroom answers it by itself",
        Reason::Refused => "Anteroom refuses it",
        Reason::Upgrade => "another protocol than HTTP is asked for",
        Reason::Denied => "it is not for this address",
        Reason::RateLimited => "its address or session has sent too many",
        Reason::Elsewhere => "another proxy has just found the page to be for nobody else",
        _ => return None,
    })
}

fn of_the_response(reason: Reason) -> &'static str {
    match reason {
        Reason::SetCookie => "the response sets a cookie",
        Reason::Twin => {
            "it waits for a user of the segment at another address who is answered the same"
        }
        Reason::NoStore => "the response says no-store",
        Reason::NoCache => "the response says no-cache, and has no validator",
        Reason::Private => "the response says private",
        Reason::Stale => "the response was stale when it came, and has no validator",
        Reason::VaryAny => "the response says Vary: *",
        Reason::Status => "its status gets no lifetime by default",
        Reason::ContentType => "its content type gets no lifetime by default",
        Reason::NoValidator => {
            "a picture or the like without validator gets no lifetime by default"
        }
        Reason::ResponseField => {
            "Pragma, Refresh, WWW-Authenticate or an attachment: no lifetime by default"
        }
        Reason::QueryParameter => "a query parameter looks like a secret: no lifetime by default",
        Reason::Deception => "html or JSON under a name of a static file: no lifetime by default",
        Reason::NoLifetime => "the app says nothing of freshness, and no default applies",
        Reason::CsrfField => "the page has a CSRF field in a form",
        Reason::SessionInLink => "the page has a session id in a link",
        Reason::Undecodable => "the page could not be decoded to look for secrets in it",
        Reason::PasswordField => {
            "the page asks for a password, and sets a cookie or is for users with a login"
        }
        Reason::PostForm => "the page sets a cookie and has a form that is posted",
        Reason::LeakUser => "the page has the name of the user for whom it was fetched",
        Reason::LeakAttribute => "the page has an attribute of the user for whom it was fetched",
        Reason::LeakToken => "the page has a token of its visitor's, or the value of its cookie",
        Reason::TooLarge => "the page is larger than [cache] max_object",
        Reason::Slow => "the page, or another user's answer that was waited for, took too long",
        Reason::Unframed => "the body ends with the connection, so that a cut could not be told",
        Reason::Anteroom => "the response logs the visitor in or out, or says something of him",
        Reason::Variants => "the page has too many variants",
        Reason::Tags => "the page has too many tags",
        Reason::Fields => "the page has too many bytes of fields",
        Reason::Origin => "the app failed",
        Reason::ServerError => "the app answered with an error",
        _ => reason.as_str(),
    }
}

/// The properties of a request that hints depend on.
pub(super) struct Circumstances<'a> {
    /// The cookies that are missing from the configuration, each once.
    pub(super) unknown_cookies: &'a [String],
    /// The fields by which the request asks for a fragment.
    pub(super) fragments: &'a [String],
    /// The fields of `Vary` that prevent a hit.
    pub(super) unsent: &'a [String],
}

/// The hints against a reason.
pub(super) fn hints(reason: Reason, about: &Circumstances<'_>) -> Vec<Hint> {
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
                "key_headers = [{list}] keeps fragments beside whole pages; they must hold nothing \
                 personal, either"
            );
            vec![hint("[[route]] key_headers", &text)]
        }
        _ => one_key(reason).map(|(key, text)| hint(key, text)).into_iter().collect(),
    }
}

/// The single setting that helps against a reason, whatever the request is.
fn one_key(reason: Reason) -> Option<(&'static str, &'static str)> {
    Some(match reason {
        Reason::Route => ("[[route]] share", "share = \"anonymous\" where it may be shared"),
        Reason::RequestDirective => (
            "[cache] client_directives",
            "client_directives = \"ignore\" where visitors may not have the app asked anew",
        ),
        Reason::Rank => ("[[route]] only_top", "a larger number lets more items in"),
        Reason::Twin => (
            "[[route]] segment",
            "name all that the page differs by; what differs for each user is for share = \"user\"",
        ),
        Reason::Login | Reason::Authorization | Reason::ClientCertificate => (
            "[[route]] share",
            "share = \"everyone\" where the page is the same for all and holds nothing personal",
        ),
        Reason::Unverified => (
            "[session.verify] path",
            "the app's answer has to bear nobody, or be 200 to 299 and hold user, within timeout; it is \
             counted by anteroom_verify_unclear_total where it does neither",
        ),
        Reason::BadSessionCookie => (
            "[session] token_from",
            "token_from = \"sha256\" where the cookie is longer than 256 bytes, shorter than 8, or holds \
             more than visible ASCII; of two of one name that came, none is believed",
        ),
        Reason::StoreAway => ("[store] url", "the store is away, or slower than [store] timeout"),
        Reason::Status => (
            "[[route]] ttl",
            "ttl = \"300s\" where it is a 404 or 410, which are kept for 10 s then; else max-age \
             from the app",
        ),
        Reason::ContentType | Reason::NoValidator | Reason::Accept | Reason::NoLifetime => {
            ("[[route]] ttl", "ttl = \"300s\" on a route for this path")
        }
        Reason::LeakUser | Reason::LeakAttribute | Reason::LeakToken => (
            "[[route]] leak_guard",
            "share = \"none\" if it is personal; leak_guard = \"marks\" if that is a word of every page",
        ),
        Reason::TooLarge => ("[cache] max_object", "a larger size"),
        Reason::Variants => ("[limits] variants", "a larger number; or the app varies by less"),
        Reason::Crowded => ("[limits] in_flight", "a larger size, or larger waiters"),
        _ => return None,
    })
}

/// Hints against tokens whose user is unknown to the proxy.
fn against_sessions_of_the_app() -> Vec<Hint> {
    vec![
        hint(
            "[session.verify] path",
            "with user and nobody, where a page of the app says who is logged in: so for PHP, Java and \
             whatever gives strangers a session",
        ),
        hint(
            "[session] app",
            "app = \"wordpress\", \"mediawiki\", \"django\", \"tomcat\" or \"php\" where it is one of \
             these; [session.login] watches the log-in of another",
        ),
        hint(
            "[session] mint",
            "mint = true where only Anteroom makes that cookie; else the app has to keep login:",
        ),
    ]
}

fn against_cookies(names: &[String]) -> Vec<Hint> {
    let list = list(names.iter());
    vec![
        hint(
            "[cache] ignore_cookies",
            &format!("add {list} where no page of the app depends on it"),
        ),
        hint(
            "[[route]] key_cookies",
            &format!("key_cookies = [{list}] where pages depend on it: a page for each value"),
        ),
        hint("[session] cookie", &format!("add {list} where it means that somebody is logged in")),
    ]
}

/// Hints against fields that a fill leaves out or changes. Fields with credentials are never suggested.
fn against_vary(about: &Circumstances<'_>) -> Vec<Hint> {
    const NEVER: [&str; 3] = ["cookie", "authorization", "accept-encoding"];
    let mut hints = Vec::new();
    if about.unsent.iter().any(|name| name == "cookie") && !about.unknown_cookies.is_empty() {
        hints = against_cookies(about.unknown_cookies);
    }
    let names = list(about.unsent.iter().filter(|name| !NEVER.contains(&name.as_str())));
    if !names.is_empty() {
        let text = format!("send_headers = [{names}] has a fill send what this page depends on");
        hints.push(hint("[[route]] send_headers", &text));
    }
    hints
}

fn against_the_app(reason: Reason) -> Vec<Hint> {
    const OVERRIDE: &str = "[[route]] override_ttl";
    match reason {
        Reason::SetCookie => vec![
            hint(
                "[[route]] strip_set_cookie",
                "strip_set_cookie = [\"…\"] with the names of the cookies that the page sets, where \
                 a visitor without a login does not need them",
            ),
            hint(
                "[[route]] set_cookie",
                "set_cookie = \"strip_for_anonymous\", where the app sets cookies on every page",
            ),
        ],
        Reason::Private => vec![
            hint(
                OVERRIDE,
                "override_ttl = \"60s\" on a named route for this path, with the next one",
            ),
            hint(
                "[[route]] override_private",
                "override_private = true, where the app says private of what it gives to anybody; \
                 with share = \"anonymous\" and [session] cookie only",
            ),
        ],
        Reason::ResponseField => {
            vec![hint(
                OVERRIDE,
                "override_ttl = \"60s\" on a route for this path, against Pragma only",
            )]
        }
        _ => vec![hint(
            OVERRIDE,
            "override_ttl = \"60s\" on a route for this path, where the app says so of every page",
        )],
    }
}

/// Names, formatted as a list in the configuration.
fn list<'n>(names: impl Iterator<Item = &'n String>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

pub(super) fn hint(key: &str, text: &str) -> Hint {
    Hint { key: key.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Circumstances<'_> =
        Circumstances { unknown_cookies: &[], fragments: &[], unsent: &[] };

    #[test]
    fn every_reason_has_a_sentence() {
        for reason in Reason::ALL {
            let sentence = why(reason);
            assert!(sentence.contains(' '), "{reason:?} is told as {sentence:?}");
        }
    }

    #[test]
    fn hints_name_keys_that_there_are() {
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
    fn who_is_not_recognised_is_told_how_he_would_be() {
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
    fn a_field_that_no_fill_may_send_is_not_hinted_at() {
        let unsent = ["cookie", "x-form", "authorization"].map(str::to_owned);
        let told = hints(Reason::Vary, &Circumstances { unsent: &unsent, ..NOTHING });
        assert_eq!(told.len(), 1);
        assert!(told[0].text.starts_with("send_headers = [\"x-form\"] "), "{told:?}");
        let cookies = ["a\"b".to_owned()];
        let about = Circumstances { unsent: &unsent[..1], unknown_cookies: &cookies, ..NOTHING };
        assert!(hints(Reason::Vary, &about)[0].text.contains(r#""a\"b""#));
    }
}
