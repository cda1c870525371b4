//! `can_cache` decides which requests the page cache may serve, and `may_store` which responses it may store
//! and share, and for how long.
//!
//! Pure functions: header fields in, a verdict with its reason out. They use no clock, store or socket.

use std::time::Duration;

use anteroom_fault::fault;

use ::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CACHE_CONTROL, CONTENT_DISPOSITION,
    CONTENT_ENCODING, COOKIE, ETAG, FORWARDED, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    ORIGIN, PRAGMA, REFRESH, SET_COOKIE, WWW_AUTHENTICATE,
};
use ::http::{HeaderMap, HeaderName, Method, StatusCode};
use anteroom_http::cache_control::CacheControl;
use anteroom_http::field_set::FieldSet;
use anteroom_http::forwarded::X_FORWARDED_FOR;
use anteroom_http::freshness::{self, FreshnessSource};
use anteroom_http::media::{self, MediaKind};
use anteroom_http::set_cookie::CLEAR_SITE_DATA;
use anteroom_http::signature::SIGNATURE;
use anteroom_http::tags::holds_tags;
use anteroom_http::targeted::{CDN_CACHE_CONTROL, cdn_cache_control};
use anteroom_http::trace_context::TRACEPARENT;
use anteroom_http::vary::{self, Vary};
use anteroom_http::{forwarded, list, path, query, set_cookie};
use anteroom_policy::route::{LeakGuard, Route, SetCookie, Share};
use anteroom_telemetry::reason::Reason;

use super::key::ShareClass;
use crate::entry::{LifetimeSource, StaleLifetimes};

/// The longest lifetime of a 404 or 410 on a route with a `ttl`.
const GONE_TTL: Duration = Duration::from_secs(10);

/// The longest lifetime that is estimated from `Last-Modified`, in seconds. A page that has not changed for a
/// year is no more likely to stay unchanged than one that has not changed for an hour.
const GUESSED_MAX: u64 = 300;

/// The most bytes of header fields that are stored with a page.
pub const FIELDS_BYTES_MAX: usize = 16 << 10;

/// Request fields with which scripts ask for a fragment instead of the whole page.
static FRAGMENT: [HeaderName; 6] = [
    HeaderName::from_static("x-requested-with"),
    HeaderName::from_static("x-pjax"),
    HeaderName::from_static("hx-request"),
    HeaderName::from_static("x-inertia"),
    HeaderName::from_static("turbo-frame"),
    HeaderName::from_static("rsc"),
];

/// Response fields in which frameworks pass a CSRF token to scripts.
const CSRF_FIELDS: [&str; 5] =
    ["csrf-token", "x-csrf-token", "x-xsrf-token", "x-csrftoken", "x-wp-nonce"];

/// The visitor of a request, for the purpose of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Logged in.
    Known,
    /// Logged in, but for this reason excluded from the pages of the segment.
    Apart(Reason),
    /// Certainly anonymous.
    Anonymous,
    /// Neither is certain, for this reason.
    Unknown(Reason),
}

/// A request as the page cache sees it.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Method.
    pub method: &'a Method,
    /// The raw path.
    pub path: &'a str,
    /// The raw query.
    pub query: &'a str,
    /// The fields as received.
    pub headers: &'a HeaderMap,
    /// Which fields `headers` has, or had.
    pub fields: FieldSet,
    /// Whether the request has a body.
    pub has_body: bool,
    /// Whether its connection is bound to a login.
    pub bound: bool,
    /// The visitor of the request.
    pub who: Sharing,
}

impl RequestView<'_> {
    fn has_authorization(&self) -> bool {
        self.fields.has(FieldSet::AUTHORIZATION) && self.headers.contains_key(AUTHORIZATION)
    }
}

/// The settings of the cache as a whole.
#[derive(Clone, Copy, Debug)]
pub struct CacheSettings {
    /// The lifetime of a page if the origin states none. Zero means no default.
    pub default_ttl: Duration,
    /// How long a stale page may be served while it is fetched again, if the origin does not state it.
    pub stale_while_revalidate: Duration,
    /// How long a stale page may be served while the origin fails, if the origin does not state it.
    pub stale_if_error: Duration,
    /// Whether visitors with a login may get pages that are static by proof.
    pub static_for_all: bool,
    /// The largest body that is stored, in bytes.
    pub max_object: u64,
    /// Whether a request's directives make the proxy ask the origin for a page that is still fresh.
    pub client_directives: bool,
}

/// How far the cache may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Served from the pages of this class, and may fill them.
    Shared(ShareClass),
    /// Served from anonymous pages that are static by proof. Any other request is forwarded, for this reason.
    StaticOnly(Reason),
    /// Forwarded, for this reason.
    Bypass(Reason),
}

/// Decides whether the page cache may serve this request, and whether the response may fill the cache.
#[must_use]
pub fn can_cache(request: &RequestView<'_>, route: &Route, policy: &CacheSettings) -> Access {
    if let Some(reason) = obstacles(request, route).next() {
        return Access::Bypass(reason);
    }
    let class = match route.share {
        Share::None => return Access::Bypass(Reason::Route),
        Share::Everyone => return Access::Shared(ShareClass::Everyone),
        Share::User => return of_user(request).map_or_else(Access::Bypass, Access::Shared),
        Share::Segment => ShareClass::Segment,
        Share::Anonymous if route.trust_public => ShareClass::Public,
        Share::Anonymous => ShareClass::Anonymous,
    };
    let has_authorization = request.has_authorization();
    let reason = match (request.who, class) {
        (Sharing::Anonymous, _) if has_authorization => Reason::Authorization,
        (Sharing::Anonymous, _) => return Access::Shared(ShareClass::Anonymous),
        (Sharing::Known, ShareClass::Segment) if has_authorization => Reason::Authorization,
        (Sharing::Known, ShareClass::Segment) => return Access::Shared(ShareClass::Segment),
        (Sharing::Apart(reason), ShareClass::Segment) => reason,
        (Sharing::Known, _) if fault!("share") => return Access::Shared(ShareClass::Anonymous),
        (Sharing::Known | Sharing::Apart(_), _) => Reason::Login,
        (Sharing::Unknown(reason), _) => reason,
    };
    match class {
        ShareClass::Public => Access::Shared(ShareClass::Public),
        _ if policy.static_for_all => Access::StaticOnly(reason),
        _ => Access::Bypass(reason),
    }
}

/// The share class of the user's own pages, if they may serve the request. Cookies that are missing from the
/// configuration are part of the key like all others.
fn of_user(request: &RequestView<'_>) -> Result<ShareClass, Reason> {
    match request.who {
        Sharing::Known | Sharing::Apart(_) if request.has_authorization() => {
            Err(Reason::Authorization)
        }
        Sharing::Apart(reason @ Reason::ClientCertificate) => Err(reason),
        Sharing::Known | Sharing::Apart(_) => Ok(ShareClass::User),
        Sharing::Anonymous => Err(Reason::NotLoggedIn),
        Sharing::Unknown(reason) => Err(reason),
    }
}

/// The fields with which the request asks for a fragment and that are missing from the route's key.
pub fn fragment_fields<'h>(
    headers: &'h HeaderMap,
    route: &'h Route,
) -> impl Iterator<Item = &'static HeaderName> + 'h {
    let is_fragment = move |name: &&HeaderName| {
        list::has_line(headers, name) && !route.key_headers.contains(name)
    };
    FRAGMENT.iter().filter(is_fragment)
}

/// A check of a request, and the reason to bypass the cache if it applies.
type Obstacle = (fn(&RequestView<'_>, &Route) -> bool, Reason);

/// The checks that apply on every route, in the order in which their reasons are reported.
static OBSTACLES: [Obstacle; 9] = [
    (|request, _| !matches!(*request.method, Method::GET | Method::HEAD), Reason::Method),
    (|request, _| request.has_body, Reason::RequestBody),
    (|request, _| request.bound, Reason::BoundConnection),
    (|request, _| path::is_odd(request.path), Reason::OddPath),
    (|request, _| request.who == Sharing::Unknown(Reason::SessionInUrl), Reason::SessionInUrl),
    // RFC 9111 §4.3.2: only the origin can evaluate these conditions.
    (
        |request, _| {
            request.fields.has(FieldSet::GUARDS)
                && [IF_MATCH, IF_UNMODIFIED_SINCE]
                    .iter()
                    .any(|name| request.headers.contains_key(name))
        },
        Reason::Condition,
    ),
    // RFC 9111 §5.2.1.5: neither this request nor its response may be stored.
    (
        |request, _| {
            request.fields.has(FieldSet::CACHE_CONTROL)
                && CacheControl::parse(request.headers, &CACHE_CONTROL).no_store
        },
        Reason::RequestNoStore,
    ),
    (|request, route| fragment_fields(request.headers, route).next().is_some(), Reason::Fragment),
    // Pages differ by who the field says it is, unless it is part of the key.
    (
        |request, route| {
            let mut named = route.identity_headers.of(request.headers);
            !fault!("identity-field") && named.any(|name| !route.key_headers.contains(name))
        },
        Reason::IdentityField,
    ),
];

/// All reasons to bypass the cache on every route, in order. A request acts on the first one; later checks
/// are then not evaluated.
pub fn obstacles<'a>(
    request: &'a RequestView<'_>,
    route: &'a Route,
) -> impl Iterator<Item = Reason> + 'a {
    OBSTACLES.iter().filter(|(applies, _)| applies(request, route)).map(|(_, reason)| *reason)
}

/// The head of a response to a fill.
#[derive(Clone, Copy, Debug)]
pub struct ResponseView<'a> {
    /// Status.
    pub status: StatusCode,
    /// The fields as received.
    pub headers: &'a HeaderMap,
    /// The length of the body, if it is known from the head.
    pub length: Option<u64>,
    /// Whether only the end of the connection ends the body.
    pub unframed: bool,
    /// The age of the response, in seconds (RFC 9111 §4.2.3).
    pub age: u64,
    /// Unix time in seconds.
    pub now: u64,
}

/// The `Set-Cookie` fields that are removed from a page when it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostCookies {
    /// The page sets no cookie.
    Nothing,
    /// The cookies that the route names.
    Named,
    /// All cookies.
    All,
}

/// How a response is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storing {
    /// The freshness lifetime in seconds, counted from the time at which the origin generated the response.
    pub lifetime: u64,
    /// Whether the page is fresh now. A stale page is kept for validation, and only the visitor of this
    /// request gets it.
    pub is_fresh: bool,
    /// The source of the lifetime.
    pub source: LifetimeSource,
    /// How long the page may be served stale.
    pub stale: StaleLifetimes,
    /// Whether visitors with a login may get the page, too.
    pub static_proof: bool,
    /// The request fields that select the page.
    pub vary: Vec<HeaderName>,
    /// Whether the leak guard must read the whole body before the page is shared.
    pub guarded: bool,
    /// The cookies that the page loses. If it loses any, even the visitor of this request gets it only after
    /// the leak guard has passed it.
    pub lost_cookies: LostCookies,
}

/// Decides whether the response to a fill may be stored and shared.
///
/// # Errors
/// The reason why it may not.
pub fn may_store(
    request: &RequestView<'_>,
    class: ShareClass,
    answer: &ResponseView<'_>,
    route: &Route,
    policy: &CacheSettings,
) -> Result<Storing, Reason> {
    let lost = refuse_personal(class, answer, route)?;
    // A gRPC call reports its result in trailers, which are not stored.
    if media::is_grpc(answer.headers) {
        return Err(Reason::ContentType);
    }
    if answer.unframed {
        return Err(Reason::Unframed);
    }
    if answer.length.is_some_and(|length| length > policy.max_object) {
        return Err(Reason::TooLarge);
    }
    if kept_bytes(answer.headers) > FIELDS_BYTES_MAX {
        return Err(Reason::Fields);
    }
    let vary = vary_of(answer.headers)?;
    // The cookies identify one user to the app. Only equal responses to other users prove that the app
    // ignored the user.
    if class == ShareClass::Segment && route.segment.is_promised && vary.contains(&COOKIE) {
        return Err(Reason::Vary);
    }
    let kind = media::kind(answer.headers);
    let CachingFields { control, .. } = said(answer.headers);
    // RFC 9111 §5.2.2.4: each use requires validation by the origin.
    let always_revalidates =
        !fault!("no-cache") && control.no_cache && route.override_ttl.is_none();
    let mut why_not = if always_revalidates { Reason::NoCache } else { Reason::Stale };
    let (lifetime, source) = match lifetime(request, class, answer, kind, route, policy) {
        Ok(_) | Err(_) if always_revalidates => (0, LifetimeSource::Explicit),
        Err(Reason::NoLifetime) => {
            why_not = Reason::NoLifetime;
            (0, LifetimeSource::Explicit)
        }
        found => found?,
    };
    // Without a lifetime from the origin or the configuration, the configured time for stale pages does not
    // apply.
    let granted =
        if why_not == Reason::NoLifetime { StaleLifetimes::default() } else { ours(route, policy) };
    let stale = stale(&control, source, always_revalidates, granted);
    let is_fresh = lifetime > answer.age;
    // A 304 to one user's session does not apply to the segment's page, and may set that user's cookie.
    let can_be_validated =
        answer.status == StatusCode::OK && has_validator(answer.headers) && !class.is_personal();
    if !is_fresh && !can_be_validated && !outlives(&control, stale, lifetime, answer.age) {
        return Err(why_not);
    }
    let static_proof = class == ShareClass::Anonymous
        && answer.status == StatusCode::OK
        && kind.is_static()
        && has_validator(answer.headers)
        && !vary.contains(&COOKIE);
    let guarded = !fault!("unguarded")
        && class != ShareClass::User
        && media::may_be_page(answer.headers)
        && route.leak_guard != LeakGuard::Off;
    Ok(Storing {
        lifetime,
        is_fresh,
        source,
        stale,
        static_proof,
        vary,
        guarded,
        lost_cookies: lost,
    })
}

/// The size of the response fields that are kept, in bytes. Tag fields have their own limit, and cookies go
/// to this visitor only.
fn kept_bytes(headers: &HeaderMap) -> usize {
    let kept = headers.iter().filter(|(name, _)| **name != SET_COOKIE && !holds_tags(name));
    kept.map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// How long pages may be served stale according to the configuration.
fn ours(route: &Route, policy: &CacheSettings) -> StaleLifetimes {
    let while_revalidate = route.stale_while_revalidate.unwrap_or(policy.stale_while_revalidate);
    let if_error = route.stale_if_error.unwrap_or(policy.stale_if_error);
    StaleLifetimes { while_revalidate: while_revalidate.as_secs(), if_error: if_error.as_secs() }
}

/// Whether the origin itself allows serving the page stale, for longer than the page's current age.
fn outlives(control: &CacheControl, stale: StaleLifetimes, lifetime: u64, age: u64) -> bool {
    let said = control.stale_while_revalidate.is_some() || control.stale_if_error.is_some();
    said && lifetime.saturating_add(stale.while_revalidate.max(stale.if_error)) > age
}

/// How long a page may be served stale. The origin's value (RFC 5861) outweighs the configured one. Nothing
/// is allowed where the origin forbids it (RFC 9111 §4.2.4). `s-maxage` forbids it (§5.2.2.10), unless the
/// same field allows it explicitly.
fn stale(
    control: &CacheControl,
    source: LifetimeSource,
    always_revalidates: bool,
    ours: StaleLifetimes,
) -> StaleLifetimes {
    if source == LifetimeSource::Override {
        return ours;
    }
    if always_revalidates || control.must_revalidate || control.proxy_revalidate {
        return StaleLifetimes::default();
    }
    let silent = if control.s_maxage.is_some() { StaleLifetimes::default() } else { ours };
    StaleLifetimes {
        while_revalidate: control.stale_while_revalidate.unwrap_or(silent.while_revalidate),
        if_error: control.stale_if_error.unwrap_or(silent.if_error),
    }
}

/// Refuses a response that may not be shared according to its status and fields. Returns the cookies that it
/// loses otherwise.
fn refuse_personal(
    class: ShareClass,
    answer: &ResponseView<'_>,
    route: &Route,
) -> Result<LostCookies, Reason> {
    // First, because it decides whether any client gets the response.
    if answer.headers.keys().any(|name| forwarded::is_set_by_the_proxy(name.as_str())) {
        return Err(Reason::Anteroom);
    }
    // RFC 9111 §3: the proxy's request has no `Range` and no condition, so these statuses are no valid
    // response to it.
    let partial = matches!(answer.status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED);
    if partial || answer.status.is_informational() {
        return Err(Reason::Status);
    }
    let lost = lost(class, answer, route)?;
    let CachingFields { control, .. } = said(answer.headers);
    // The fill carried no data of the visitor, so the operator may know that the app sends `private` by
    // default.
    let private_is_habit = route.override_private && class == ShareClass::Anonymous;
    // The page has a known owner.
    let is_personal = class == ShareClass::User;
    if !fault!("private") && control.private && !private_is_habit && !is_personal {
        return Err(Reason::Private);
    }
    // RFC 9111 §5.2.2.3: if the status is understood, `must-understand` outweighs `no-store`.
    let understood = control.must_understand && is_understood(answer.status);
    // RFC 9111 §3: the cache must understand the final status.
    if control.must_understand && !understood {
        return Err(Reason::Status);
    }
    if !fault!("no-store")
        && control.no_store
        && !understood
        && (route.override_ttl.is_none() || is_personal)
    {
        return Err(Reason::NoStore);
    }
    // RFC 9111 §3.5: the directives that let a shared cache store the response to a request with
    // `Authorization`.
    let public = control.public || control.s_maxage.is_some() || control.must_revalidate;
    if class == ShareClass::Public && !public {
        return Err(Reason::Login);
    }
    Ok(lost)
}

/// The cookies that the response loses. It is refused if it must keep them.
fn lost(
    class: ShareClass,
    answer: &ResponseView<'_>,
    route: &Route,
) -> Result<LostCookies, Reason> {
    if !answer.headers.contains_key(SET_COOKIE) {
        return Ok(LostCookies::Nothing);
    }
    if fault!("set-cookie") || may_lose_cookies(class, answer, route) {
        return Ok(LostCookies::Named);
    }
    strip_all(class, answer, route)?;
    Ok(LostCookies::All)
}

/// Whether a response may lose all cookies that it sets. Many apps set a cookie on every page, and these
/// pages are otherwise the same for every visitor. Responses that need the cookie keep it: a redirect that
/// tests for cookie support, JSON, a captcha image, a CSRF token in a field.
fn strip_all(class: ShareClass, answer: &ResponseView<'_>, route: &Route) -> Result<(), Reason> {
    let is_wanted =
        route.set_cookie == SetCookie::StripForAnonymous && class == ShareClass::Anonymous;
    let is_page = matches!(answer.status.as_u16(), 200 | 203) || is_gone(answer.status);
    let is_plain = match media::kind(answer.headers) {
        MediaKind::Html | MediaKind::Css | MediaKind::JavaScript => true,
        MediaKind::Image | MediaKind::Font | MediaKind::Audio | MediaKind::Video => {
            has_validator(answer.headers)
        }
        MediaKind::Json | MediaKind::Xml | MediaKind::Other => false,
    };
    if !is_wanted || !is_page || !is_plain {
        return Err(Reason::SetCookie);
    }
    if answer.headers.keys().any(|name| CSRF_FIELDS.contains(&name.as_str())) {
        return Err(Reason::CsrfField);
    }
    Ok(())
}

/// Whether a route lets a response lose all of its cookies. These are the cookies that the route names and,
/// if it names any, cookies that are only cleared. Some apps clear cookies on every page, although the
/// request carried no cookies except those in the key. A login sets a cookie, so its response is kept out of
/// the cache unless the route names that cookie.
fn may_lose_cookies(class: ShareClass, answer: &ResponseView<'_>, route: &Route) -> bool {
    let named = |name: &[u8]| route.strip_set_cookie.iter().any(|cut| cut.as_bytes() == name);
    // For a visitor with a login, the cleared cookie may end the session.
    let strips = !route.strip_set_cookie.is_empty() && class == ShareClass::Anonymous;
    set_cookie::lines(answer.headers).all(|(name, line)| {
        named(name) || strips && !route.keys_cookie(name) && set_cookie::clears(line, answer.now)
    })
}

/// The statuses whose caching rules this cache implements (RFC 9110 §15, RFC 9111 §3).
fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 302 | 303 | 307 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Whether the proxy sends a different value of this field with each request or for each visitor, outside the
/// key. A response that varies by it can never be reused.
fn is_never_twice(name: &HeaderName) -> bool {
    [&X_FORWARDED_FOR, &TRACEPARENT, &SIGNATURE, &FORWARDED].contains(&name)
}

/// The request fields that select this response, including those that the origin may have left out of `Vary`.
fn vary_of(headers: &HeaderMap) -> Result<Vec<HeaderName>, Reason> {
    let mut fields = match Vary::parse(headers) {
        Vary::None => Vec::new(),
        Vary::Any => return Err(Reason::VaryAny),
        Vary::Fields(fields) if fields.iter().any(is_never_twice) => return Err(Reason::VaryAny),
        Vary::Fields(_) if fault!("vary") => Vec::new(),
        Vary::Fields(fields) => fields,
    };
    let mut add = |name: HeaderName| {
        if !fields.contains(&name) {
            fields.push(name);
        }
    };
    if headers.contains_key(CONTENT_ENCODING) {
        add(::http::header::ACCEPT_ENCODING);
    }
    if headers.get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter().any(|allowed| allowed != "*") {
        add(ORIGIN);
    }
    if fields.len() > vary::FIELDS_MAX {
        return Err(Reason::VaryAny);
    }
    fields.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    Ok(fields)
}

/// The freshness lifetime. The first of these counts: `override_ttl`, the origin's directives, the route's
/// `ttl`, the default.
fn lifetime(
    request: &RequestView<'_>,
    class: ShareClass,
    answer: &ResponseView<'_>,
    kind: MediaKind,
    route: &Route,
    policy: &CacheSettings,
) -> Result<(u64, LifetimeSource), Reason> {
    if let Some(ttl) = route.override_ttl {
        default_applies(request, answer, kind)?;
        return Ok((granted_ttl(answer, ttl), LifetimeSource::Override));
    }
    let said = said(answer.headers);
    if let Some(seconds) = said.lifetime(answer) {
        return Ok((seconds, LifetimeSource::Explicit));
    }
    // The directive is unreadable, and it may have forbidden caching.
    if said.is_garbled {
        return Err(Reason::ResponseField);
    }
    if answer.headers.get_all(PRAGMA).iter().any(|pragma| {
        pragma.as_bytes().windows(8).any(|part| part.eq_ignore_ascii_case(b"no-cache"))
    }) {
        return Err(Reason::ResponseField);
    }
    if let Some(ttl) = route.ttl.of(answer.status) {
        page_fits(request, answer, kind)?;
        return Ok((ttl_on_arrival(answer, ttl), LifetimeSource::Route));
    }
    if let Some(ttl) = route.ttl.usual {
        default_applies(request, answer, kind)?;
        return Ok((granted_ttl(answer, ttl), LifetimeSource::Route));
    }
    // A user's own page changes with the user's actions. Only the app knows its lifetime.
    if class == ShareClass::User {
        return Err(Reason::NoLifetime);
    }
    if policy.default_ttl.is_zero() {
        return guess(request, class, answer, kind, &said.control);
    }
    default_applies(request, answer, kind)?;
    if is_gone(answer.status) {
        return Err(Reason::Status);
    }
    has_default_type(answer, kind)?;
    if !media::accept_names_pages(request.headers) {
        return Err(Reason::Accept);
    }
    Ok((granted_ttl(answer, policy.default_ttl), LifetimeSource::Default))
}

/// RFC 9111 §4.2.2: a heuristic lifetime, with a short limit. Only for responses to requests without a login.
fn guess(
    request: &RequestView<'_>,
    class: ShareClass,
    answer: &ResponseView<'_>,
    kind: MediaKind,
    control: &CacheControl,
) -> Result<(u64, LifetimeSource), Reason> {
    if query::has_uncacheable_parameter(request.query) {
        return Err(Reason::QueryParameter);
    }
    if media::contradicts(request.path, kind) {
        return Err(Reason::Deception);
    }
    let guessed = freshness::heuristic(answer.status, control, answer.headers, answer.now);
    let carries_login = class == ShareClass::Public || class.is_personal();
    let seconds = guessed.filter(|_| !carries_login).ok_or(Reason::NoLifetime)?;
    Ok((seconds.min(GUESSED_MAX), LifetimeSource::Heuristic))
}

/// The origin's cache directives: those for CDN caches if there are any (RFC 9213), otherwise those for all
/// caches.
struct CachingFields {
    control: CacheControl,
    /// Whether they are the directives for CDN caches. `Expires` is then ignored.
    is_targeted: bool,
    /// Whether there is a field for CDN caches that cannot be parsed.
    is_garbled: bool,
}

fn said(headers: &HeaderMap) -> CachingFields {
    let targeted = cdn_cache_control(headers);
    let is_targeted = targeted.is_some();
    let control = targeted.unwrap_or_else(|| CacheControl::parse(headers, &CACHE_CONTROL));
    let is_garbled = !is_targeted && headers.contains_key(&CDN_CACHE_CONTROL);
    CachingFields { control, is_targeted, is_garbled }
}

impl CachingFields {
    fn lifetime(&self, answer: &ResponseView<'_>) -> Option<u64> {
        if self.is_targeted {
            return self.control.s_maxage.or(self.control.max_age);
        }
        let found = freshness::lifetime(&self.control, answer.headers, answer.now);
        found.map(|lifetime| lifetime.seconds)
    }
}

/// What stated the lifetime that the origin gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifetimeNamedBy {
    /// Whether the directives were in `CDN-Cache-Control`.
    pub is_targeted: bool,
    /// The directive; `None` if there was none.
    pub what: Option<FreshnessDirective>,
}

/// A statement by the origin about freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshnessDirective {
    /// A lifetime.
    By(FreshnessSource),
    /// `no-cache`: no lifetime, whatever the other directives state.
    NoCache,
}

/// What stated the page's lifetime, according to its stored fields. `now` is the time at which the page
/// arrived.
#[must_use]
pub fn named_by(headers: &HeaderMap, now: u64) -> LifetimeNamedBy {
    let CachingFields { control, is_targeted, .. } = said(headers);
    let what = if control.no_cache {
        Some(FreshnessDirective::NoCache)
    } else if is_targeted {
        let seconds = [
            (control.s_maxage, FreshnessSource::SMaxAge),
            (control.max_age, FreshnessSource::MaxAge),
        ];
        let named = seconds.into_iter().find(|(seconds, _)| seconds.is_some());
        named.map(|(_, source)| FreshnessDirective::By(source))
    } else {
        freshness::lifetime(&control, headers, now)
            .map(|lifetime| FreshnessDirective::By(lifetime.source))
    };
    LifetimeNamedBy { is_targeted, what }
}

/// A granted lifetime starts on arrival, minus the response's `Age`. `Date` is ignored, because the origin's
/// clock may be wrong.
fn granted_ttl(answer: &ResponseView<'_>, ttl: Duration) -> u64 {
    let ttl = if is_gone(answer.status) { ttl.min(GONE_TTL) } else { ttl };
    ttl_on_arrival(answer, ttl)
}

fn ttl_on_arrival(answer: &ResponseView<'_>, ttl: Duration) -> u64 {
    let unsaid = answer.age.saturating_sub(freshness::said_age(answer.headers));
    ttl.as_secs().saturating_add(unsaid)
}

fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Whether a configured lifetime may apply to the response.
fn default_applies(
    request: &RequestView<'_>,
    answer: &ResponseView<'_>,
    kind: MediaKind,
) -> Result<(), Reason> {
    let fits = matches!(answer.status.as_u16(), 200 | 203 | 301 | 308) || is_gone(answer.status);
    if !fits {
        return Err(Reason::Status);
    }
    page_fits(request, answer, kind)
}

/// The same, whatever the status.
fn page_fits(
    request: &RequestView<'_>,
    answer: &ResponseView<'_>,
    kind: MediaKind,
) -> Result<(), Reason> {
    let attachment = answer.headers.get_all(CONTENT_DISPOSITION).iter().any(|value| {
        let text = value.as_bytes().trim_ascii_start();
        text.len() >= 10 && text[..10].eq_ignore_ascii_case(b"attachment")
    });
    // A shared `Clear-Site-Data` would clear the data of every browser.
    let spoken = [REFRESH, WWW_AUTHENTICATE, CLEAR_SITE_DATA];
    let spoken = spoken.iter().any(|name| answer.headers.contains_key(name));
    if attachment || spoken {
        return Err(Reason::ResponseField);
    }
    if query::has_uncacheable_parameter(request.query) {
        return Err(Reason::QueryParameter);
    }
    if media::contradicts(request.path, kind) {
        return Err(Reason::Deception);
    }
    Ok(())
}

/// Whether the default lifetime applies to this media type. The body of a redirect does not matter.
fn has_default_type(answer: &ResponseView<'_>, kind: MediaKind) -> Result<(), Reason> {
    if !matches!(answer.status.as_u16(), 200 | 203) {
        return Ok(());
    }
    match kind {
        MediaKind::Html | MediaKind::Css | MediaKind::JavaScript => Ok(()),
        // An image without a validator may be a captcha.
        MediaKind::Image | MediaKind::Font | MediaKind::Audio | MediaKind::Video
            if has_validator(answer.headers) =>
        {
            Ok(())
        }
        MediaKind::Image | MediaKind::Font | MediaKind::Audio | MediaKind::Video => {
            Err(Reason::NoValidator)
        }
        MediaKind::Json | MediaKind::Xml | MediaKind::Other => Err(Reason::ContentType),
    }
}

/// Whether a response can be validated (RFC 9110 §8.8).
pub fn has_validator(headers: &HeaderMap) -> bool {
    headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED)
}

#[cfg(test)]
mod tests;
