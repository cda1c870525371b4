//! `can_cache` and its other half, `may_store`: who may share which page, and for how long.
//!
//! Pure: header fields in, a verdict with its reason out. No clock, no store, no socket.

use std::time::Duration;

use ::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION, CACHE_CONTROL, CONTENT_DISPOSITION,
    CONTENT_ENCODING, COOKIE, ETAG, FORWARDED, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED,
    ORIGIN, PRAGMA, REFRESH, SET_COOKIE, WWW_AUTHENTICATE,
};
use ::http::{HeaderMap, HeaderName, Method, StatusCode};

use super::key::ShareClass;
use crate::cache::entry::{LifetimeSource, Stale};
use crate::http::cache_control::CacheControl;
use crate::http::forwarded::{TRACEPARENT, X_FORWARDED_FOR};
use crate::http::freshness::{self, Source};
use crate::http::media::{self, Kind};
use crate::http::set_cookie::CLEAR_SITE_DATA;
use crate::http::signature::SIGNATURE;
use crate::http::tags::holds_tags;
use crate::http::targeted::{CDN_CACHE_CONTROL, cdn_cache_control};
use crate::http::vary::{self, Vary};
use crate::http::{forwarded, path, query, set_cookie};
use crate::policy::route::{LeakGuard, Route, SetCookie, Share};
use crate::telemetry::reason::Reason;

/// How long a 404 or 410 is kept at most on a route with a `ttl`.
const GONE_TTL: Duration = Duration::from_secs(10);

/// The longest lifetime that is guessed from `Last-Modified`, in seconds: a page that is a year old is
/// no more likely to stay than one of an hour.
const GUESSED_MAX: u64 = 300;

/// The most bytes of fields that are stored with a page.
pub const FIELDS_BYTES_MAX: usize = 16 << 10;

/// Fields with which scripts ask for a fragment of a page instead of the page.
static FRAGMENT: [HeaderName; 6] = [
    HeaderName::from_static("x-requested-with"),
    HeaderName::from_static("x-pjax"),
    HeaderName::from_static("hx-request"),
    HeaderName::from_static("x-inertia"),
    HeaderName::from_static("turbo-frame"),
    HeaderName::from_static("rsc"),
];

/// Response fields in which frameworks tell scripts a CSRF token.
const CSRF_FIELDS: [&str; 5] =
    ["csrf-token", "x-csrf-token", "x-xsrf-token", "x-csrftoken", "x-wp-nonce"];

/// Who asks, as far as sharing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Logged in.
    Known,
    /// Logged in, and for this reason like nobody else of his segment.
    Apart(Reason),
    /// Surely nobody.
    Anonymous,
    /// It cannot be told, and why.
    Unknown(Reason),
}

/// A request, as far as the page cache looks at it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Method.
    pub method: &'a Method,
    /// Path as it came.
    pub path: &'a str,
    /// Query as it came.
    pub query: &'a str,
    /// Fields as they came.
    pub headers: &'a HeaderMap,
    /// Whether it has a body.
    pub has_body: bool,
    /// Whether its connection is bound to a log-in.
    pub bound: bool,
    /// Who asks.
    pub who: Who,
    /// Whether its item is among the most viewed that `only_top` of its route lets in; true where
    /// the route does not ask.
    pub ranks: bool,
}

/// The settings of the whole cache.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What a page gets when the origin says nothing; zero: the origin's word only.
    pub default_ttl: Duration,
    /// How long a stale page may be served while it is fetched anew, where the origin does not say.
    pub stale_while_revalidate: Duration,
    /// How long it may be served while the origin fails, where that does not say.
    pub stale_if_error: Duration,
    /// Whether visitors with a login may be given what is static by proof.
    pub static_for_all: bool,
    /// The largest body that is stored, in bytes.
    pub max_object: u64,
    /// Whether a request's directives make the origin be asked for a page that is fresh.
    pub client_directives: bool,
}

/// How far the cache may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Answered from the class's pages, and filling them.
    Shared(ShareClass),
    /// Answered from anonymous pages that are static by proof; else forwarded for this reason.
    StaticOnly(Reason),
    /// Forwarded.
    Bypass(Reason),
}

/// May this request be answered from the page cache, or fill it?
#[must_use]
pub fn can_cache(asked: &Asked<'_>, route: &Route, policy: &Policy) -> Access {
    if let Some(reason) = obstacles(asked, route).next() {
        return Access::Bypass(reason);
    }
    if !asked.ranks {
        return Access::Bypass(Reason::Rank);
    }
    let class = match route.share {
        Share::None => return Access::Bypass(Reason::Route),
        Share::Everyone => return Access::Shared(ShareClass::Everyone),
        Share::User => return of_user(asked).map_or_else(Access::Bypass, Access::Shared),
        Share::Segment => ShareClass::Segment,
        Share::Anonymous if route.trust_public => ShareClass::Public,
        Share::Anonymous => ShareClass::Anonymous,
    };
    let has_authorization = asked.headers.contains_key(AUTHORIZATION);
    let reason = match (asked.who, class) {
        (Who::Anonymous, _) if has_authorization => Reason::Authorization,
        (Who::Anonymous, _) => return Access::Shared(ShareClass::Anonymous),
        (Who::Known, ShareClass::Segment) if has_authorization => Reason::Authorization,
        (Who::Known, ShareClass::Segment) => return Access::Shared(ShareClass::Segment),
        (Who::Apart(reason), ShareClass::Segment) => reason,
        (Who::Known | Who::Apart(_), _) => Reason::Login,
        (Who::Unknown(reason), _) => reason,
    };
    match class {
        ShareClass::Public => Access::Shared(ShareClass::Public),
        _ if policy.static_for_all => Access::StaticOnly(reason),
        _ => Access::Bypass(reason),
    }
}

/// Whose pages of his own a request is answered from. A cookie that nobody has named stands in their key
/// like all the others.
fn of_user(asked: &Asked<'_>) -> Result<ShareClass, Reason> {
    match asked.who {
        Who::Known | Who::Apart(_) if asked.headers.contains_key(AUTHORIZATION) => {
            Err(Reason::Authorization)
        }
        Who::Apart(reason @ Reason::ClientCertificate) => Err(reason),
        Who::Known | Who::Apart(_) => Ok(ShareClass::User),
        Who::Anonymous => Err(Reason::NotLoggedIn),
        Who::Unknown(reason) => Err(reason),
    }
}

/// The fields by which a request asks for a fragment, and that its route does not key.
pub fn fragment_fields<'h>(
    headers: &'h HeaderMap,
    route: &'h Route,
) -> impl Iterator<Item = &'static HeaderName> + 'h {
    let is_fragment =
        move |name: &&HeaderName| headers.contains_key(*name) && !route.key_headers.contains(name);
    FRAGMENT.iter().filter(is_fragment)
}

/// A test of a request, and the reason for which it keeps the request from the cache.
type Obstacle = (fn(&Asked<'_>, &Route) -> bool, Reason);

/// What keeps a request from the cache on every route, the first to be named in front.
static OBSTACLES: [Obstacle; 8] = [
    (|asked, _| !matches!(*asked.method, Method::GET | Method::HEAD), Reason::Method),
    (|asked, _| asked.has_body, Reason::RequestBody),
    (|asked, _| asked.bound, Reason::BoundConnection),
    (|asked, _| path::is_odd(asked.path), Reason::OddPath),
    (|asked, _| asked.who == Who::Unknown(Reason::SessionInUrl), Reason::SessionInUrl),
    // RFC 9111 §4.3.2: only the origin can judge them.
    (
        |asked, _| {
            [IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| asked.headers.contains_key(name))
        },
        Reason::Condition,
    ),
    // RFC 9111 §5.2.1.5: nothing of this exchange may be stored.
    (
        |asked, _| CacheControl::parse(asked.headers, &CACHE_CONTROL).no_store,
        Reason::RequestNoStore,
    ),
    (|asked, route| fragment_fields(asked.headers, route).next().is_some(), Reason::Fragment),
];

/// All that keeps a request from the cache on every route, in order. A request acts on the first; what
/// follows is not evaluated then.
pub fn obstacles<'a>(asked: &'a Asked<'_>, route: &'a Route) -> impl Iterator<Item = Reason> + 'a {
    OBSTACLES.iter().filter(|(applies, _)| applies(asked, route)).map(|(_, reason)| *reason)
}

/// The head of a response to a fill.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Status.
    pub status: StatusCode,
    /// Fields as they came.
    pub headers: &'a HeaderMap,
    /// Length of the body, where it was announced.
    pub length: Option<u64>,
    /// Whether the body ends only with the connection.
    pub unframed: bool,
    /// How old it is, in seconds (RFC 9111 §4.2.3).
    pub age: u64,
    /// Unix time in seconds.
    pub now: u64,
}

/// The cookies that a page sets and loses when it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It sets none.
    Nothing,
    /// Those that its route names.
    Named,
    /// All, whatever they are.
    All,
}

/// How a response is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storing {
    /// Seconds for which it is fresh, counted from its origination.
    pub lifetime: u64,
    /// Whether it is fresh now: else it is kept to be validated, and nobody but the visitor whose
    /// request it answers is given it.
    pub is_fresh: bool,
    /// Who said so.
    pub source: LifetimeSource,
    /// For how long it may be served when it is stale.
    pub stale: Stale,
    /// Whether visitors with a login may be given it, too.
    pub static_proof: bool,
    /// The request fields that it depends on.
    pub vary: Vec<HeaderName>,
    /// Whether the leak guard must read the whole body before anybody shares it.
    pub guarded: bool,
    /// Which cookies it loses. Where there are any it is not the right answer to the visitor whose request
    /// it answers until the guard has let it pass.
    pub lost: Lost,
}

/// May the response to a fill be stored and shared?
///
/// # Errors
/// Why not.
pub fn may_store(
    asked: &Asked<'_>,
    class: ShareClass,
    answer: &Answered<'_>,
    route: &Route,
    policy: &Policy,
) -> Result<Storing, Reason> {
    let lost = refuse_personal(class, answer, route)?;
    // What came of a call is said in trailers, which are not stored.
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
    // By his cookies the app knows one user, and only that others are given the same says that it has not
    // looked who he is.
    if class == ShareClass::Segment && route.segment.is_promised && vary.contains(&COOKIE) {
        return Err(Reason::Vary);
    }
    let kind = media::kind(answer.headers);
    let Said { control, .. } = said(answer.headers);
    // RFC 9111 §5.2.2.4: every use needs the origin's consent.
    let always_asks = control.no_cache && route.override_ttl.is_none();
    let mut why_not = if always_asks { Reason::NoCache } else { Reason::Stale };
    let (lifetime, source) = match lifetime(asked, class, answer, kind, route, policy) {
        Ok(_) | Err(_) if always_asks => (0, LifetimeSource::Explicit),
        Err(Reason::NoLifetime) => {
            why_not = Reason::NoLifetime;
            (0, LifetimeSource::Explicit)
        }
        found => found?,
    };
    // Where neither the origin nor the operator named a lifetime, the operator named no time behind it.
    let granted =
        if why_not == Reason::NoLifetime { Stale::default() } else { ours(route, policy) };
    let stale = stale(&control, source, always_asks, granted);
    let is_fresh = lifetime > answer.age;
    // A 304 to one user's session says nothing of the segment's page, and may set his cookie.
    let can_be_asked =
        answer.status == StatusCode::OK && has_validator(answer.headers) && !class.is_personal();
    if !is_fresh && !can_be_asked && !outlives(&control, stale, lifetime, answer.age) {
        return Err(why_not);
    }
    let static_proof = class == ShareClass::Anonymous
        && answer.status == StatusCode::OK
        && kind.is_static()
        && has_validator(answer.headers)
        && !vary.contains(&COOKIE);
    let guarded = class != ShareClass::User
        && media::may_be_page(answer.headers)
        && route.leak_guard != LeakGuard::Off;
    Ok(Storing { lifetime, is_fresh, source, stale, static_proof, vary, guarded, lost })
}

/// The bytes of the fields that are kept of a response: those of tags have a bound of their own, and
/// cookies are for nobody else.
fn kept_bytes(headers: &HeaderMap) -> usize {
    let kept = headers.iter().filter(|(name, _)| **name != SET_COOKIE && !holds_tags(name));
    kept.map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// For how long pages may be served stale by the operator's word.
fn ours(route: &Route, policy: &Policy) -> Stale {
    let while_revalidate = route.stale_while_revalidate.unwrap_or(policy.stale_while_revalidate);
    let if_error = route.stale_if_error.unwrap_or(policy.stale_if_error);
    Stale { while_revalidate: while_revalidate.as_secs(), if_error: if_error.as_secs() }
}

/// Whether the origin itself says that a page may be served stale, and for longer than it is by now.
fn outlives(control: &CacheControl, stale: Stale, lifetime: u64, age: u64) -> bool {
    let said = control.stale_while_revalidate.is_some() || control.stale_if_error.is_some();
    said && lifetime.saturating_add(stale.while_revalidate.max(stale.if_error)) > age
}

/// For how long a page may be served stale: by the origin's word (RFC 5861), else by the operator's,
/// and never where the origin forbids it (RFC 9111 §4.2.4). `s-maxage` forbids it (§5.2.2.10), unless
/// the same field says more.
fn stale(control: &CacheControl, source: LifetimeSource, always_asks: bool, ours: Stale) -> Stale {
    if source == LifetimeSource::Override {
        return ours;
    }
    if always_asks || control.must_revalidate || control.proxy_revalidate {
        return Stale::default();
    }
    let silent = if control.s_maxage.is_some() { Stale::default() } else { ours };
    Stale {
        while_revalidate: control.stale_while_revalidate.unwrap_or(silent.while_revalidate),
        if_error: control.stale_if_error.unwrap_or(silent.if_error),
    }
}

/// What the response itself says against sharing it.
fn refuse_personal(
    class: ShareClass,
    answer: &Answered<'_>,
    route: &Route,
) -> Result<Lost, Reason> {
    // First, for it decides whether anybody is given the response at all.
    if answer.headers.keys().any(|name| forwarded::is_own(name.as_str())) {
        return Err(Reason::Anteroom);
    }
    // RFC 9111 §3: a response to our request, which has no Range and no condition.
    let partial = matches!(answer.status, StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED);
    if partial || answer.status.is_informational() {
        return Err(Reason::Status);
    }
    let lost = lost(class, answer, route)?;
    let Said { control, .. } = said(answer.headers);
    // The fill carried nothing of the visitor, so an operator may know `private` to be a habit.
    let private_is_habit = route.override_private && class == ShareClass::Anonymous;
    // It is known whose it is.
    let is_his = class == ShareClass::User;
    if control.private && !private_is_habit && !is_his {
        return Err(Reason::Private);
    }
    // RFC 9111 §5.2.2.3: it outweighs `no-store` where the status is understood.
    let understood = control.must_understand && is_understood(answer.status);
    // RFC 9111 §3: a final status that the cache understands.
    if control.must_understand && !understood {
        return Err(Reason::Status);
    }
    if control.no_store && !understood && (route.override_ttl.is_none() || is_his) {
        return Err(Reason::NoStore);
    }
    // RFC 9111 §3.5: what a shared cache may keep of a response to a request with a login.
    let public = control.public || control.s_maxage.is_some() || control.must_revalidate;
    if class == ShareClass::Public && !public {
        return Err(Reason::Login);
    }
    Ok(lost)
}

/// The cookies that a response would lose, where it may.
fn lost(class: ShareClass, answer: &Answered<'_>, route: &Route) -> Result<Lost, Reason> {
    if !answer.headers.contains_key(SET_COOKIE) {
        return Ok(Lost::Nothing);
    }
    if may_lose_cookies(class, answer, route) {
        return Ok(Lost::Named);
    }
    strip_all(class, answer, route)?;
    Ok(Lost::All)
}

/// Whether a response may lose whatever cookies it sets: a habit of the app's, as long as the page is
/// one that everybody gets. What is about the cookie itself is not: a redirection that looks whether it is
/// sent back, data for a script, a picture to be typed off, or a token in a field of the response.
fn strip_all(class: ShareClass, answer: &Answered<'_>, route: &Route) -> Result<(), Reason> {
    let is_wanted =
        route.set_cookie == SetCookie::StripForAnonymous && class == ShareClass::Anonymous;
    let is_page = matches!(answer.status.as_u16(), 200 | 203) || is_gone(answer.status);
    let is_plain = match media::kind(answer.headers) {
        Kind::Html | Kind::Css | Kind::JavaScript => true,
        Kind::Image | Kind::Font | Kind::Audio | Kind::Video => has_validator(answer.headers),
        Kind::Json | Kind::Xml | Kind::Other => false,
    };
    if !is_wanted || !is_page || !is_plain {
        return Err(Reason::SetCookie);
    }
    if answer.headers.keys().any(|name| CSRF_FIELDS.contains(&name.as_str())) {
        return Err(Reason::CsrfField);
    }
    Ok(())
}

/// Whether a route lets a response lose all that it says of cookies: those it names, and with them what only
/// takes cookies away, as some apps do on every page. The request bore none but those in the key. A log-in
/// gives one, and so is not lost where its cookie is not named.
fn may_lose_cookies(class: ShareClass, answer: &Answered<'_>, route: &Route) -> bool {
    let named = |name: &[u8]| route.strip_set_cookie.iter().any(|cut| cut.as_bytes() == name);
    // Who has a login may have it taken away.
    let strips = !route.strip_set_cookie.is_empty() && class == ShareClass::Anonymous;
    set_cookie::lines(answer.headers).all(|(name, line)| {
        named(name) || strips && !route.keys_cookie(name) && set_cookie::clears(line, answer.now)
    })
}

/// Statuses whose caching rules this cache carries out (RFC 9110 §15, RFC 9111 §3).
fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 300 | 301 | 302 | 303 | 307 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Whether we say something else in a field to the origin with each request, or each visitor's, that no
/// key holds: what is chosen by it is the answer to no other request.
fn is_never_twice(name: &HeaderName) -> bool {
    [&X_FORWARDED_FOR, &TRACEPARENT, &SIGNATURE, &FORWARDED].contains(&name)
}

/// The request fields that choose this response, also where the origin forgets to say so.
fn vary_of(headers: &HeaderMap) -> Result<Vec<HeaderName>, Reason> {
    let mut fields = match Vary::parse(headers) {
        Vary::None => Vec::new(),
        Vary::Any => return Err(Reason::VaryAny),
        Vary::Fields(fields) if fields.iter().any(is_never_twice) => return Err(Reason::VaryAny),
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

/// How long the response is fresh: `override_ttl`, then the origin's word, then the route's `ttl`,
/// then the default.
fn lifetime(
    asked: &Asked<'_>,
    class: ShareClass,
    answer: &Answered<'_>,
    kind: Kind,
    route: &Route,
    policy: &Policy,
) -> Result<(u64, LifetimeSource), Reason> {
    if let Some(ttl) = route.override_ttl {
        default_applies(asked, answer, kind)?;
        return Ok((granted_ttl(answer, ttl), LifetimeSource::Override));
    }
    let said = said(answer.headers);
    if let Some(seconds) = said.lifetime(answer) {
        return Ok((seconds, LifetimeSource::Explicit));
    }
    // What was meant is not known, and may have been "no".
    if said.is_garbled {
        return Err(Reason::ResponseField);
    }
    if answer.headers.get_all(PRAGMA).iter().any(|pragma| {
        pragma.as_bytes().windows(8).any(|part| part.eq_ignore_ascii_case(b"no-cache"))
    }) {
        return Err(Reason::ResponseField);
    }
    if let Some(ttl) = route.ttl {
        default_applies(asked, answer, kind)?;
        return Ok((granted_ttl(answer, ttl), LifetimeSource::Route));
    }
    // What is one user's changes as he does something, of which the app alone can know how often.
    if class == ShareClass::User {
        return Err(Reason::NoLifetime);
    }
    if policy.default_ttl.is_zero() {
        return guess(asked, class, answer, kind, &said.control);
    }
    default_applies(asked, answer, kind)?;
    if is_gone(answer.status) {
        return Err(Reason::Status);
    }
    has_default_type(answer, kind)?;
    if !media::accept_names_pages(asked.headers) {
        return Err(Reason::Accept);
    }
    Ok((granted_ttl(answer, policy.default_ttl), LifetimeSource::Default))
}

/// RFC 9111 §4.2.2, for responses to requests without a login, and not for long.
fn guess(
    asked: &Asked<'_>,
    class: ShareClass,
    answer: &Answered<'_>,
    kind: Kind,
    control: &CacheControl,
) -> Result<(u64, LifetimeSource), Reason> {
    if query::has_uncacheable_parameter(asked.query) {
        return Err(Reason::QueryParameter);
    }
    if media::contradicts(asked.path, kind) {
        return Err(Reason::Deception);
    }
    let guessed = freshness::heuristic(answer.status, control, answer.headers, answer.now);
    let carries_login = class == ShareClass::Public || class.is_personal();
    let seconds = guessed.filter(|_| !carries_login).ok_or(Reason::NoLifetime)?;
    Ok((seconds.min(GUESSED_MAX), LifetimeSource::Heuristic))
}

/// What the origin says of caching: to caches like us alone (RFC 9213), else to all.
struct Said {
    control: CacheControl,
    /// Whether that was for caches like us: then `Expires` does not count, either.
    is_targeted: bool,
    /// Whether there was a field for us that cannot be read.
    is_garbled: bool,
}

fn said(headers: &HeaderMap) -> Said {
    let targeted = cdn_cache_control(headers);
    let is_targeted = targeted.is_some();
    let control = targeted.unwrap_or_else(|| CacheControl::parse(headers, &CACHE_CONTROL));
    let is_garbled = !is_targeted && headers.contains_key(&CDN_CACHE_CONTROL);
    Said { control, is_targeted, is_garbled }
}

impl Said {
    fn lifetime(&self, answer: &Answered<'_>) -> Option<u64> {
        if self.is_targeted {
            return self.control.s_maxage.or(self.control.max_age);
        }
        let found = freshness::lifetime(&self.control, answer.headers, answer.now);
        found.map(|lifetime| lifetime.seconds)
    }
}

/// What named a lifetime that is the origin's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedBy {
    /// Whether it stood in `CDN-Cache-Control`.
    pub is_targeted: bool,
    /// The directive; `None`: nothing named one.
    pub what: Option<Named>,
}

/// A word of the origin's on freshness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A lifetime.
    By(Source),
    /// `no-cache`: none, whatever else is said.
    NoCache,
}

/// What the origin's word on a page's lifetime was, by the fields that are stored; `now` as when it came.
#[must_use]
pub fn named_by(headers: &HeaderMap, now: u64) -> NamedBy {
    let Said { control, is_targeted, .. } = said(headers);
    let what = if control.no_cache {
        Some(Named::NoCache)
    } else if is_targeted {
        let seconds = [(control.s_maxage, Source::SMaxAge), (control.max_age, Source::MaxAge)];
        let named = seconds.into_iter().find(|(seconds, _)| seconds.is_some());
        named.map(|(_, source)| Named::By(source))
    } else {
        freshness::lifetime(&control, headers, now).map(|lifetime| Named::By(lifetime.source))
    };
    NamedBy { is_targeted, what }
}

/// A lifetime that we grant begins when the response arrives, less the time for which it says that it lay in
/// caches before us. By its `Date` it may be older: made ahead, or by a clock that is late.
fn granted_ttl(answer: &Answered<'_>, ttl: Duration) -> u64 {
    let ttl = if is_gone(answer.status) { ttl.min(GONE_TTL) } else { ttl };
    let unsaid = answer.age.saturating_sub(freshness::said_age(answer.headers));
    ttl.as_secs().saturating_add(unsaid)
}

fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Whether a lifetime may be granted at all where the origin is silent (or overridden).
fn default_applies(asked: &Asked<'_>, answer: &Answered<'_>, kind: Kind) -> Result<(), Reason> {
    let fits = matches!(answer.status.as_u16(), 200 | 203 | 301 | 308) || is_gone(answer.status);
    if !fits {
        return Err(Reason::Status);
    }
    let attachment = answer.headers.get_all(CONTENT_DISPOSITION).iter().any(|value| {
        let text = value.as_bytes().trim_ascii_start();
        text.len() >= 10 && text[..10].eq_ignore_ascii_case(b"attachment")
    });
    // What has one browser forget would have all of them forget.
    let spoken = [REFRESH, WWW_AUTHENTICATE, CLEAR_SITE_DATA];
    let spoken = spoken.iter().any(|name| answer.headers.contains_key(name));
    if attachment || spoken {
        return Err(Reason::ResponseField);
    }
    if query::has_uncacheable_parameter(asked.query) {
        return Err(Reason::QueryParameter);
    }
    if media::contradicts(asked.path, kind) {
        return Err(Reason::Deception);
    }
    Ok(())
}

/// The types that the default lifetime is for. A redirect's body is of no interest.
fn has_default_type(answer: &Answered<'_>, kind: Kind) -> Result<(), Reason> {
    if !matches!(answer.status.as_u16(), 200 | 203) {
        return Ok(());
    }
    match kind {
        Kind::Html | Kind::Css | Kind::JavaScript => Ok(()),
        // Without a validator it may be a captcha.
        Kind::Image | Kind::Font | Kind::Audio | Kind::Video if has_validator(answer.headers) => {
            Ok(())
        }
        Kind::Image | Kind::Font | Kind::Audio | Kind::Video => Err(Reason::NoValidator),
        Kind::Json | Kind::Xml | Kind::Other => Err(Reason::ContentType),
    }
}

fn has_validator(headers: &HeaderMap) -> bool {
    headers.contains_key(ETAG) || headers.contains_key(LAST_MODIFIED)
}

#[cfg(test)]
mod tests;
