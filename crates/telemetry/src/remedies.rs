//! What operators are told about each reason: what it means, and what helps.
//!
//! `anteroom explain`, the advice of the dashboard, the hints at cookies and docs/reference/reasons.md read this
//! table, so that they say the same.

use super::reason::Reason;

/// What a reason means, and what helps.
#[derive(Clone, Copy, Debug)]
pub struct ReasonText {
    /// What it means: a part of a sentence.
    pub meaning: &'static str,
    /// The settings that help, the best first.
    pub remedies: &'static [Remedy],
    /// The change that the dashboard advises.
    pub change: Option<Change>,
}

/// A setting that helps against a reason.
#[derive(Clone, Copy, Debug)]
pub struct Remedy {
    /// The setting, such as `[[route]] ttl`.
    pub key: &'static str,
    /// What to write there, and when that is right. [`NAMES`] stands for the names of what stands in the way.
    pub text: &'static str,
}

/// What stands in a remedy for the names of the cookies or fields that stand in the way. Without names the remedy
/// helps nothing.
pub const NAMES: &str = "{names}";

/// A change of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When the change is right: a sentence without a full stop.
    pub when: &'static str,
    /// What to write into `proxy.toml`.
    pub lines: Lines,
}

/// Lines of `proxy.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Of a route.
    OfRoute(&'static str),
    /// Of the whole, with the name of their table.
    Whole(&'static str),
    /// They depend on the cookies that stand in the way.
    OfCookies,
    /// None: the app or its page has to change.
    Nothing,
}

/// The remedy where a cookie that no rule names looks like a session.
pub const SESSION_COOKIE: Remedy = Remedy {
    key: "[session] cookie",
    text: "add {names}, which looks like a session; or [session] app, if it knows the app",
};

/// How the proxy finds out whose session it is.
pub const VERIFY_LINES: &str = "[session.verify]\npath = \"/whoami\"\nuser = { json = \"/user\" }\nnobody = { json = \"/user\", equals = \"null\" }";

/// The change against a cookie that looks like a session.
pub const NAME_THE_SESSION: &str = "The cookie looks like the app's session: name it, beside those that [session] cookie names already. A \
     page of the app that names the user tells who is logged in: write its path";

/// What helps against a cookie that keeps requests from the cache, by what it is like.
pub mod of_cookie {
    /// It looks like a session.
    pub const SESSION: &str = "add it to [session] cookie, and configure [session.verify]";
    /// It does not.
    pub const UNKNOWN: &str = "add it to [cache] ignore_cookies if no page depends on it, to [[route]] key_cookies if one \
         does, or to [session] cookie if it marks a logged-in user";
    /// Pages set it habitually, and it marks a visitor.
    pub const SET_BY_PAGES: &str = "[[route]] set_cookie = \"strip_for_anonymous\" removes it from responses to anonymous visitors";
}

const fn means(meaning: &'static str) -> ReasonText {
    ReasonText { meaning, remedies: &[], change: None }
}

/// A remedy. It is no function, because what a function returns does not live for ever.
macro_rules! set {
    ($key:expr, $text:expr $(,)?) => {
        Remedy { key: $key, text: $text }
    };
}

impl ReasonText {
    const fn helps(self, remedies: &'static [Remedy]) -> Self {
        Self { remedies, ..self }
    }

    const fn change(self, when: &'static str, lines: Lines) -> Self {
        Self { change: Some(Change { when, lines }), ..self }
    }
}

/// The line by which all visitors share the pages of a route.
pub const TO_EVERYONE: &str = "share = \"everyone\"";

const OVERRIDE: &str = "[[route]] override_ttl";
const TTL: &[Remedy] = &[set!("[[route]] ttl", "ttl = \"300s\" on a route for this path")];
const SHARED_BY_ALL: &[Remedy] = &[set!(
    "[[route]] share",
    "share = \"everyone\" if the page is the same for everyone and free of personal data",
)];
const SESSION_IN_COOKIE: &[Remedy] = &[set!(
    "[session] cookie",
    "let the app keep its session id in a cookie only (PHP: session.use_only_cookies = 1)",
)];
const NOT_STRIPPED: &[Remedy] = &[set!(
    "[[route]] strip_set_cookie",
    "name the cookies that this page can do without, in place of set_cookie = \"strip_for_anonymous\"",
)];
const PERSONAL: &[Remedy] = &[set!(
    "[[route]] leak_guard",
    "share = \"none\" if the page is personal; leak_guard = \"marks\" if the finding is a word of every page",
)];
const REPLACED: &[Remedy] = &[set!(
    OVERRIDE,
    "override_ttl = \"60s\" on a route for this path, if the app sends this with every page",
)];
const ON_ERROR: &[Remedy] = &[set!(
    "[[route]] stale_if_error",
    "a stored page is served for this time while the app fails"
)];

const fn shared_by_all(text: ReasonText) -> ReasonText {
    text.helps(SHARED_BY_ALL).change(
        "If these pages are the same for everyone and hold nothing personal, all visitors may share them",
        Lines::OfRoute(TO_EVERYONE),
    )
}

const fn without_lifetime(text: ReasonText) -> ReasonText {
    text.change(
        "If these pages may be stored, this is their lifetime where the app sets none",
        Lines::OfRoute("ttl = \"300s\""),
    )
}

const fn said_on_every_page(text: ReasonText) -> ReasonText {
    text.change(
        "If the app says so on every page, as PHP does, and these pages are the same for all visitors without \
         a login, this lifetime replaces it",
        Lines::OfRoute("override_ttl = \"60s\""),
    )
}

const fn of_an_unknown_session(text: ReasonText) -> ReasonText {
    text.change(
        "A page of the app that names the user of a session tells Anteroom who is logged in, and who is not: write \
         its path. Where Anteroom alone creates the cookie, mint = true is the line",
        Lines::Whole(VERIFY_LINES),
    )
}

const fn with_a_session_id(text: ReasonText) -> ReasonText {
    text.helps(SESSION_IN_COOKIE).change(
        "Let the app keep its session id in a cookie only (PHP: session.use_only_cookies = 1)",
        Lines::Nothing,
    )
}

const fn personal(text: ReasonText) -> ReasonText {
    text.helps(PERSONAL).change(
        "If these pages are personal, they must not be shared",
        Lines::OfRoute("share = \"none\""),
    )
}

/// What a reason means, and what helps.
#[must_use]
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub const fn text_of(reason: Reason) -> ReasonText {
    match reason {
        Reason::Method => means("the cache answers only GET and HEAD"),
        Reason::RequestBody => means("the request has a body"),
        Reason::Route => means(
            "its route has share = \"none\"; or it has override_ttl, and a route before it with share = \"none\" is for another spelling of the path",
        )
        .helps(&[set!(
            "[[route]] share",
            "write share = \"anonymous\" in the route with share = \"none\" if the page may be shared",
        )]),
        Reason::BypassSwitch => {
            means("the operator has switched the cache off (anteroom bypass)")
        }
        Reason::Learn => means(
            "the route learns: everything is forwarded, and nothing is served from the cache",
        ),
        Reason::Audited => means(
            "a stored page would answer it, and it is held against the app (audit)",
        ),
        Reason::AuditStopped => means(
            "visitors see different things in this page, so it is not shared any more (anteroom audit)",
        ),
        Reason::Rank => means("its item is not among the most viewed (only_top)")
            .helps(&[set!("[[route]] only_top", "a larger number covers more items")]),
        Reason::Login => shared_by_all(means(
            "the visitor is logged in, and this page is stored for visitors without a login only",
        )),
        Reason::NotLoggedIn => {
            means("the route keeps pages for each user, and the visitor is not logged in").helps(&[
                set!(
                    "[[route]] share",
                    "share = \"anonymous\" or \"segment\" if visitors without a login may share the page",
                ),
            ])
        }
        Reason::Unconfirmed => means("the visitor's login is not confirmed")
            .helps(&[set!(
                "[session.login] verify",
                "verify = true confirms the name that the visitor typed, by [session.verify]",
            )]),
        Reason::UnknownToken => of_an_unknown_session(means("the session token is unknown")).helps(&[
            set!(
                "[session.verify] path",
                "with user and nobody, if a page of the app names the logged-in user; for PHP, Java and other apps \
                 that give anonymous visitors a session",
            ),
            set!(
                "[session] app",
                "app = \"wordpress\", \"mediawiki\", \"django\", \"tomcat\" or \"php\" if the app is one of these; for \
                 others, describe the login in [session.login]",
            ),
            set!(
                "[session] mint",
                "mint = true if only Anteroom sets this cookie; otherwise the app must maintain login: \
                 in Redis",
            ),
        ]),
        Reason::Unverified => of_an_unknown_session(means(
            "the app has not identified the visitor: it was not asked yet, or its answer was unclear; the \
             visitor's next request asks it",
        ))
        .helps(&[set!(
            "[session.verify] path",
            "within timeout, the app's response must match nobody, or have a 2xx status and contain user; other \
             responses count in anteroom_verify_unclear_total",
        )]),
        Reason::StoreAway => means("the store is unavailable, so the visitor is unknown").helps(&[
            set!("[store] url", "the store is unavailable, or slower than [store] timeout"),
        ]),
        Reason::BadSessionCookie => {
            means("the session cookie is malformed, or was sent twice").helps(&[set!(
                "[session] token_from",
                "token_from = \"sha256\" if the value is shorter than 8 bytes, longer than 256, or more than visible \
                 ASCII; a cookie that is sent twice is always rejected",
            )])
        }
        Reason::SessionInUrl => {
            with_a_session_id(means("the URL contains a session id"))
        }
        Reason::UnknownCookie => {
            means("a cookie matches no rule (session, harmless or keyed)").helps(&[
                set!("[cache] ignore_cookies", "add {names} if no page of the app depends on it"),
                set!(
                    "[[route]] key_cookies",
                    "key_cookies = [{names}] if pages depend on it; stores one page for each value",
                ),
                set!("[session] cookie", "add {names} if it marks a logged-in user"),
            ])
            .change(
                "If no page of the app depends on the cookie, it may be ignored; if some do, name it in key_cookies \
                 of their route",
                Lines::OfCookies,
            )
        }
        Reason::Authorization => shared_by_all(means("the request has an Authorization field")),
        Reason::IdentityField => means("the request has a field that names its sender")
            .helps(&[set!(
                "[cache] identity_headers",
                "without the field's name if it says nothing of the visitor; key_headers keeps a page for each value",
            )]),
        Reason::ClientCertificate => shared_by_all(means("the client presented a certificate")),
        Reason::BoundConnection => means(
            "NTLM and Negotiate authenticate the connection, which must not be shared",
        ),
        Reason::Condition => {
            means("only the app can evaluate If-Match and If-Unmodified-Since")
        }
        Reason::RequestNoStore => means("the request has Cache-Control: no-store"),
        Reason::RequestDirective => means("the request asks for the app's current page")
            .helps(&[set!(
                "[cache] client_directives",
                "client_directives = \"ignore\" stops visitors from forcing a new fetch",
            )])
            .change(
                "Visitors who reload a page force a new fetch; this stops it",
                Lines::Whole("[cache]\nclient_directives = \"ignore\""),
            ),
        Reason::Fragment => {
            means("the request asks for a part of a page, by X-Requested-With or a similar field")
                .helps(&[set!(
                    "[[route]] key_headers",
                    "key_headers = [{names}] stores fragments apart from whole pages; fragments, too, must be free \
                     of personal data",
                )])
        }
        Reason::Accept => without_lifetime(means(
            "Accept lists no page type, and the page has only the default lifetime",
        ))
        .helps(TTL),
        Reason::OddPath => means("the app could read the path as another path"),
        Reason::Vary => means(
            "the stored page depends on a request field (Vary), which Anteroom's own request for the page does \
             not send as this request does",
        )
        .helps(&[set!(
            "[[route]] send_headers",
            "send_headers = [{names}] makes fills send what this page depends on",
        )]),
        Reason::Miss => means("the page is not stored"),
        Reason::MinUses => means(
            "the page is not stored, and was requested fewer times than min_uses of its route",
        )
        .helps(&[set!("[[route]] min_uses", "a smaller number stores pages earlier")]),
        Reason::Unproven => means(
            "the page is not stored, and its URL may be a secret, or Anteroom's own request would leave out a field: \
             until a response to a similar URL may be shared, such requests are sent as they came",
        ),
        Reason::Pattern => means(
            "the page is not stored, and recent responses to similar URLs could not be shared",
        ),
        Reason::Head => means("the page is not stored, and HEAD requests do not fill the cache"),
        Reason::Crowded => {
            means("the app has more to do than it can, too many requests are waiting, or the memory for bodies in flight is full").helps(
                &[set!("[limits] in_flight", "set a larger size, or larger waiters")],
            )
        }
        Reason::Invalidated => means("the page was purged or changed while it was fetched"),
        Reason::Endpoint => means("Anteroom answers the request itself"),
        Reason::Refused => means("Anteroom refuses the request"),
        Reason::Defect => means("Anteroom refuses the request"),
        Reason::Upgrade => means("the request upgrades to another protocol"),
        Reason::Denied => {
            means("the client's address is not allowed, or the route denies its requests")
        }
        Reason::Loop => means("the origin's address leads back to Anteroom"),
        Reason::LoginRequired => {
            means("the route requires a login, and the visitor has none")
        }
        Reason::Maintenance => means("the route is under maintenance")
            .helps(&[set!("[[route]] maintenance", "maintenance = false ends it")]),
        Reason::RateLimited => {
            means("the client's address or session has exceeded its rate limit").helps(&[set!(
                "[limits] requests_per_address",
                "a higher rate; list proxies in front of Anteroom in [client] trusted_proxies",
            )])
        }
        Reason::Elsewhere => means("another proxy has just found the page to be personal"),
        Reason::SetCookie => means("the response sets a cookie")
            .helps(&[
                set!(
                    "[[route]] strip_set_cookie",
                    "strip_set_cookie = [\"…\"] with the names of the cookies that the page sets, if anonymous \
                     visitors can do without them; `anteroom top cookies` lists the cookies that pages set",
                ),
                set!(
                    "[[route]] set_cookie",
                    "set_cookie = \"strip_for_anonymous\" if the app sets cookies on every page, with share = \
                     \"anonymous\"",
                ),
            ])
            .change(
                "If visitors without a login can do without the cookie, the page is stored without it",
                Lines::OfRoute("set_cookie = \"strip_for_anonymous\""),
            ),
        Reason::AwaitingSecondUser => means(
            "the page is not shared yet: a second user of the segment, at another address, must \
             receive the same",
        )
        .helps(&[set!(
            "[[route]] segment",
            "list everything that the page differs by; use share = \"user\" for a page that differs for each user",
        )]),
        Reason::NoStore => said_on_every_page(means("the response has no-store")).helps(REPLACED),
        Reason::NoCache => {
            said_on_every_page(means("the response has no-cache and lacks a validator"))
                .helps(REPLACED)
        }
        Reason::Private => means("the response has private")
            .helps(&[
                set!(OVERRIDE, "override_ttl = \"60s\" on a named route for this path, with override_private"),
                set!(
                    "[[route]] override_private",
                    "override_private = true if the app sends private with pages that are for everyone; requires \
                     share = \"anonymous\" and [session] cookie",
                ),
            ])
            .change(
                "If these pages are the same for all visitors without a login, this lifetime replaces it",
                Lines::OfRoute("override_ttl = \"60s\"\noverride_private = true"),
            ),
        Reason::Stale => {
            said_on_every_page(means(
                "the response was older than its lifetime when it came, by its Age or Date, and lacks a validator: \
                 where Date is behind, the clock of the app may be slow",
            ))
            .helps(REPLACED)
        }
        Reason::VaryAny => means("the response has Vary: *"),
        Reason::Status => without_lifetime(means("its status has no default lifetime")).helps(&[set!(
            "[[route]] ttl",
            "ttl = \"300s\" if it is a 404 or 410, which are then kept for 10 s; otherwise let the app send max-age",
        )]),
        Reason::ContentType => {
            without_lifetime(means("its content type has no default lifetime")).helps(TTL)
        }
        Reason::NoValidator => {
            without_lifetime(means("static content without a validator has no default lifetime"))
                .helps(TTL)
        }
        Reason::ResponseField => said_on_every_page(means(
            "a response with Pragma, Refresh, WWW-Authenticate or an attachment has no default lifetime",
        ))
        .helps(&[set!(
            OVERRIDE,
            "override_ttl = \"60s\" on a route for this path overrides Pragma, but none of the other fields",
        )]),
        Reason::QueryParameter => {
            means("a query parameter looks like a secret, so there is no default lifetime")
                .helps(&[set!(
                    "[[route]] ignore_query",
                    "add the parameter, if the page does not depend on it",
                )])
        }
        Reason::Deception => {
            means("HTML or JSON under the name of a static file has no default lifetime")
        }
        Reason::NoLifetime => without_lifetime(means(
            "the response names no lifetime, and no default applies",
        ))
        .helps(TTL),
        Reason::CsrfField => means("a form in the page has a CSRF field")
            .helps(&[set!(
                "[[route]] fragments",
                "with share = \"everyone\", the form is filled in for each visitor from a path of its own",
            )])
            .change(
                "With share = \"everyone\" and fragments, the form is filled in for each visitor from a path of its \
                 own",
                Lines::Nothing,
            ),
        Reason::SessionInLink => with_a_session_id(means("a link in the page has a session id")),
        Reason::Undecodable => means("the page could not be decoded for the search for secrets"),
        Reason::PasswordField => means(
            "the page has a password field, and sets a cookie or is for logged-in users",
        )
        .helps(NOT_STRIPPED),
        Reason::PostForm => means("the page sets a cookie and has a POST form").helps(NOT_STRIPPED),
        Reason::LeakUser => personal(means(
            "the page contains the name of the user that it was fetched for",
        )),
        Reason::LeakAttribute => personal(means(
            "the page contains an attribute of the user that it was fetched for",
        )),
        Reason::LeakToken => {
            personal(means("the page contains the visitor's token or cookie value"))
        }
        Reason::Reflected => means(
            "the page contains the value of a field of the request, on which its key does not depend",
        )
        .helps(&[set!(
            "[[route]] key_headers",
            "let the app send Vary with the field's name, or keep a page for each value",
        )]),
        Reason::TooLarge => means("the page is larger than [cache] max_object")
            .helps(&[set!("[cache] max_object", "set a larger size")])
            .change(
                "Larger pages are stored with a larger bound",
                Lines::Whole("[cache]\nmax_object = \"32MiB\""),
            ),
        Reason::Slow => {
            means("the page took too long, or the second user's response that confirms it")
        }
        Reason::Unframed => {
            means("the body ends with the connection, so a truncated one looks complete")
                .helps(&[set!(
                    "[origin] url",
                    "the app's server ends bodies by closing the connection, as `php -S` does: put a server in \
                     between that sends Content-Length or chunks, such as nginx with PHP-FPM",
                )])
                .change(
                    "The app's server ends bodies by closing the connection, as `php -S` does: put a server in \
                     between that sends Content-Length or chunks",
                    Lines::Nothing,
                )
        }
        Reason::Anteroom => {
            means("the response logs the visitor in or out, or carries visitor data")
        }
        Reason::Variants => means("the page has too many variants").helps(&[set!(
            "[limits] variants",
            "set a larger number, or let the app vary on less",
        )]),
        Reason::Tags => means("the page has too many tags"),
        Reason::Fields => means("the page's fields are too large"),
        Reason::Origin => means("the app did not answer").helps(ON_ERROR),
        Reason::ServerError => {
            means("the app answered with an error").helps(ON_ERROR)
        }
    }
}

/// What the page of reasons says of a reason, in Markdown: what it means, and what helps. It has room for more than a
/// line of a terminal.
#[must_use]
#[expect(clippy::too_many_lines, reason = "it is a table")]
pub const fn page_of(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::Login => (
            "the visitor is logged in; the page is for visitors without a login",
            "a route with `share = \"everyone\"` and `fragments`, `share = \"segment\"` or `share = \"user\"`",
        ),
        Reason::NotLoggedIn => {
            ("the visitor is not logged in; the route keeps a page for each user", "nothing")
        }
        Reason::Unconfirmed => (
            "the user's name is only what the visitor typed; it gives no segment and no pages",
            "`[session.verify]`, or a `user` of `[session.login]` from the app's answer",
        ),
        Reason::UnknownToken => (
            "Anteroom does not know the user of the session cookie",
            "`[session.verify]`, `[session] app`, or `mint = true` if only Anteroom creates the cookie",
        ),
        Reason::Unverified => (
            "the app's answer matched neither `user` nor `nobody`, or came after `timeout`",
            "compare `user` and `nobody` of `[session.verify]` with it; `anteroom_verify_unclear_total` counts",
        ),
        Reason::StoreAway => {
            ("the store did not answer in time", "`[store] url` and `timeout`; it is temporary")
        }
        Reason::BadSessionCookie => (
            "the session cookie is no token (8 to 256 bytes of visible ASCII), or came twice",
            "`token_from = \"sha256\"`; one `Domain` and `Path` in the app",
        ),
        Reason::SessionInUrl => (
            "the path or the query has a session id",
            "keep it in the cookie only (`session.use_only_cookies`, `tracking-mode`)",
        ),
        Reason::UnknownCookie => (
            "the configuration does not name a cookie of the request",
            "`[cache] ignore_cookies` if no page depends on it, `key_cookies` if some do, `[session] cookie` if it may mean a login",
        ),
        Reason::Authorization => (
            "the request has `Authorization`",
            "`share = \"everyone\"` if the page holds nothing personal",
        ),
        Reason::IdentityField => (
            "a field names the sender, such as `X-Api-Key` or `X-Auth-Request-User`",
            "`[cache] identity_headers` without that field, if it says nothing of the visitor; `key_headers` with it",
        ),
        Reason::ClientCertificate => (
            "the client showed a certificate",
            "`share = \"everyone\"` if the page holds nothing personal; otherwise nothing",
        ),
        Reason::BoundConnection => ("NTLM or Negotiate has logged the connection in", "nothing"),
        Reason::Method => ("the method is neither GET nor HEAD", "nothing"),
        Reason::RequestBody => ("a GET with a body", "nothing"),
        Reason::Head => ("a HEAD for a page that is not stored", "nothing: a GET stores it"),
        Reason::Miss => ("the page is not stored yet, or no longer", "nothing"),
        Reason::MinUses => ("fewer requests for the page than `min_uses`", "a smaller `min_uses`"),
        Reason::Unproven => (
            "not stored; the URL may be a secret (a parameter such as `token`, a random segment), or a fill would leave out a field. Sent as it came until a response to it (a secret) or to a similar URL (a field) may be shared",
            "nothing; `send_headers` for a field on which pages depend",
        ),
        Reason::Pattern => (
            "not stored; recent responses to similar URLs could not be shared; tried again within two minutes",
            "what helps those responses: `anteroom_pages_refused_total`",
        ),
        Reason::Route => (
            "the route has `share = \"none\"`; or it has `override_ttl`, and an earlier route with `share = \"none\"` is for another spelling of the path",
            "another `share` in the route with `share = \"none\"`",
        ),
        Reason::Learn => (
            "the route has `mode = \"learn\"`; the cache would have been asked",
            "`anteroom learn report`: [learn mode](../guides/learn-mode.md)",
        ),
        Reason::Audited => (
            "a stored page is compared with the app's answer",
            "`[cache] audit = \"off\"`, or a rarer one; `anteroom audit` says what differed",
        ),
        Reason::AuditStopped => (
            "the audit has found that visitors see different things in the page",
            "`anteroom audit` says what differs, and which lines of `proxy.toml` help; `anteroom audit resume` shares it again: [the audit](../guides/learn-mode.md#hold-it-against-the-app-afterwards)",
        ),
        Reason::BypassSwitch => (
            "the cache is switched off for this route, or for all",
            "`anteroom bypass` shows it, `anteroom bypass off` ends it: [emergency switch](../guides/operating.md#emergency-switch)",
        ),
        Reason::Rank => ("the item is not among the most viewed", "a larger `only_top`"),
        Reason::Condition => {
            ("`If-Match` or `If-Unmodified-Since`, which only the app can decide", "nothing")
        }
        Reason::RequestNoStore => ("the request has `no-store`", "nothing"),
        Reason::RequestDirective => (
            "the client wants a fresh page, or only a stored one",
            "`[cache] client_directives = \"ignore\"`",
        ),
        Reason::Fragment => (
            "a part of a page is requested (`X-Requested-With`, `HX-Request`, …)",
            "`key_headers` with that field",
        ),
        Reason::Accept => (
            "`Accept` names no kind of page, and the lifetime is the default",
            "a `ttl` on its route",
        ),
        Reason::OddPath => (
            "the app could read the path as another path",
            "links without `//`, `/../` and encoded slashes",
        ),
        Reason::Vary => (
            "the page depends on a field that a fill sends differently",
            "`send_headers`; for cookies see `unknown-cookie`, for a login with `Vary: Cookie` see `login`",
        ),
        Reason::Upgrade => ("another protocol is requested, such as WebSocket", "nothing"),
        Reason::Endpoint => ("Anteroom answers it, under `/_anteroom/`", "nothing"),
        Reason::Refused => ("Anteroom refused it; the status says why", "the log"),
        Reason::Denied => (
            "the address is not served, or the route has `deny = true`",
            "`[client] allow` and `deny`; `allow_from` and `deny` of a route",
        ),
        Reason::Loop => (
            "the request came back to the proxy that sent it; the answer is 508",
            "the app's own address in `[origin] url`",
        ),
        Reason::Defect => (
            "a defect of Anteroom ended this request; the answer is 500",
            "report the log's line with `panicked`",
        ),
        Reason::LoginRequired => ("the route has `require = \"login\"`", "a login"),
        Reason::Maintenance => (
            "the route has `maintenance = true`, and no page is stored",
            "the end of the maintenance",
        ),
        Reason::RateLimited => (
            "too many requests of the address or session",
            "`requests_per_address`, `requests_per_session`; `trusted_proxies` for proxies in front",
        ),
        Reason::SetCookie => (
            "the page sets a cookie",
            "`strip_set_cookie` with its name, or `set_cookie = \"strip_for_anonymous\"`",
        ),
        Reason::NoStore => (
            "the app says `no-store`, as PHP does with a session",
            "`override_ttl` on a route by path",
        ),
        Reason::NoCache => (
            "the app says `no-cache` without a validator",
            "`override_ttl`, or a validator from the app",
        ),
        Reason::Private => (
            "the app says `private`",
            "`override_ttl` with `override_private`, if visitors without a login get it, too",
        ),
        Reason::Stale => (
            "the response came older than its lifetime, by `Age` or `Date`",
            "`override_ttl`, or a lifetime from the app; the app's clock, if `Date` is behind",
        ),
        Reason::VaryAny => (
            "`Vary: *`, or a field in it that Anteroom sends differently each time",
            "the fields on which the page depends in `Vary`",
        ),
        Reason::Status => (
            "the status has no default lifetime",
            "`max-age` from the app; a `ttl` for 404 and 410",
        ),
        Reason::ContentType => ("the type has no default lifetime", "a `ttl` on its route"),
        Reason::NoValidator => {
            ("an image, … without `ETag` and `Last-Modified`", "a `ttl` on its route")
        }
        Reason::ResponseField => (
            "`Pragma`, `Refresh`, `WWW-Authenticate`, `Clear-Site-Data`, an attachment, or a malformed `CDN-Cache-Control`",
            "`override_ttl` against `Pragma`; otherwise a lifetime from the app",
        ),
        Reason::QueryParameter => (
            "a query parameter looks like a secret or a nonce",
            "a lifetime from the app; `ignore_query` if the page does not depend on it",
        ),
        Reason::Deception => (
            "html or JSON under the name of a static file",
            "a lifetime from the app, if this is intended",
        ),
        Reason::NoLifetime => (
            "no lifetime from the app and no default: `default_ttl = \"0s\"`, or `share = \"user\"`",
            "`default_ttl`, or a `ttl` on its route",
        ),
        Reason::Anteroom => {
            ("the response logs in or out, or describes the visitor (`Anteroom-…`)", "nothing")
        }
        Reason::Invalidated => ("it was changed while it was fetched", "nothing"),
        Reason::Origin => ("the app failed", "the log has details"),
        Reason::ServerError => ("the app answered 5xx", "the app's own log"),
        Reason::Unframed => (
            "the body ends with the connection: a truncated one looks complete",
            "a length or chunks from the app",
        ),
        Reason::TooLarge => {
            ("the page is larger than `[cache] max_object`", "a larger `[cache] max_object`")
        }
        Reason::Variants => {
            ("one URL has too many variants", "`[limits] variants`, or fewer fields in `Vary`")
        }
        Reason::Tags => ("too many tags, or one that is too long", "at most 500 tags of 256 bytes"),
        Reason::Fields => ("the header fields have over 16 KiB", "fewer or shorter fields"),
        Reason::CsrfField => {
            ("a form has a CSRF field of one visitor", "a fragment around the form")
        }
        Reason::SessionInLink => ("a link has a session id", "as for `session-in-url`"),
        Reason::Undecodable => {
            ("the page could not be decoded", "gzip, brotli, zstd or plain from the app")
        }
        Reason::PasswordField => {
            ("a password field on a segment's page, or on one without its cookie", "nothing")
        }
        Reason::PostForm => (
            "a form with POST on a page without its cookie",
            "`strip_set_cookie` with its name, if the form does not need it",
        ),
        Reason::LeakUser => (
            "the name of the user behind the fetch",
            "`share = \"none\"` if it is personal; `leak_guard = \"marks\"` if the name is a common word",
        ),
        Reason::LeakAttribute => ("an attribute of that user", "the same"),
        Reason::LeakToken => ("a token of that user, or a cookie that the page sets", "the same"),
        Reason::Reflected => (
            "the value of a field that the fill sent, such as `User-Agent`",
            "`Vary` with that field from the app, or `key_headers`",
        ),
        Reason::AwaitingSecondUser => (
            "a segment's page is shared when a second user, at another address, gets the same",
            "nothing; if it stays, the page differs by more than `segment` names",
        ),
        Reason::Slow => (
            "inspecting the page, or waiting for a second user, took too long",
            "a faster page; `leak_guard = \"off\"` for large pages for everyone",
        ),
        Reason::Elsewhere => (
            "another proxy on the store has found that the page cannot be shared",
            "see the reason in that proxy's log",
        ),
        Reason::Crowded => (
            "the app has too much to do, too many requests wait, or bodies in flight have no room",
            "[what crawls the app](../guides/crawlers.md); `[limits] waiters` and `in_flight`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_reason_has_a_meaning() {
        for reason in Reason::ALL {
            let text = text_of(reason);
            assert!(text.meaning.contains(' '), "{reason:?}: {:?}", text.meaning);
        }
    }

    #[test]
    fn remedies_name_existing_keys() {
        let known = include_str!("../../../proxy.toml");
        for reason in Reason::ALL {
            for remedy in text_of(reason).remedies.iter().chain([&SESSION_COOKIE]) {
                let (section, key) = remedy.key.split_once("] ").unwrap();
                let section = known.find(&format!("{section}]")).unwrap();
                assert!(known[section..].contains(&format!("{key} =")), "{reason:?}: {remedy:?}");
            }
        }
    }

    #[test]
    fn the_same_helps_only_where_the_row_above_has_the_same_remedies() {
        let page = include_str!("../../../docs/reference/reasons.md");
        let word = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
        let words: Vec<String> = page.lines().filter_map(word).collect();
        let rows = words.iter().filter_map(|word| {
            Reason::ALL.into_iter().find(|reason| reason.as_str() == word.as_str())
        });
        let rows: Vec<Reason> = rows.collect();
        let keys = |reason: Reason| -> Vec<&str> {
            text_of(reason).remedies.iter().map(|remedy| remedy.key).collect()
        };
        assert!(rows.len() > 1, "{rows:?}");
        for pair in rows.windows(2) {
            if page_of(pair[1]).1 == "the same" {
                assert_eq!(keys(pair[1]), keys(pair[0]), "{:?} after {:?}", pair[1], pair[0]);
            }
        }
        assert!(page_of(Reason::ClientCertificate).1.contains("`share = \"everyone\"`"));
    }

    /// The rows of the page of reasons; the order and the sections are the page's.
    #[test]
    fn the_page_of_reasons_has_what_the_table_has() {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/reasons.md");
        let page = std::fs::read_to_string(&place).unwrap();
        let row = |line: &str| {
            let word = line.strip_prefix("| `")?.split_once('`')?.0;
            let reason = Reason::ALL.into_iter().find(|reason| reason.as_str() == word)?;
            let (means, helps) = page_of(reason);
            Some(format!("| `{word}` | {means} | {helps} |"))
        };
        let lines = page.lines().map(|line| row(line).unwrap_or_else(|| line.to_owned()) + "\n");
        let expected: String = lines.collect();
        if std::env::var("ANTEROOM_DOCS").is_ok_and(|word| word == "record") {
            return std::fs::write(place, expected).unwrap();
        }
        assert!(page == expected, "run this test with ANTEROOM_DOCS=record");
        for reason in Reason::ALL {
            let start = format!("| `{}` |", reason.as_str());
            assert_eq!(
                page.lines().filter(|line| line.starts_with(&start)).count(),
                1,
                "{reason:?}"
            );
        }
    }
}
