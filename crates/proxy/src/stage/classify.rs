//! The class of a request: how soon the origin gets it where others wait, and what operators are told of the origin's time.
//! Only what is proven counts.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use ::http::header::AUTHORIZATION;
use ::http::{HeaderValue, StatusCode};
use ahash::RandomState;
use anteroom_cache::url_patterns::network;
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::{PageKey, StoredToken};
use anteroom_http::media;
use anteroom_http::path::PathPattern;
use anteroom_http::segments::pattern_segments;
use anteroom_origin::Requester;
use anteroom_policy::error_page::CrowdPage;
use anteroom_policy::priority::{Priority, RequestClass, RouteLimit};
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::origin_use::{OriginUse, UserAgent, UsingVisitor};

use crate::context::RequestContext;
use crate::error::Error;

/// Hashes kinds of pages and routes, alike in all threads, after a reload and in the next process: the seeds are fixed.
const SEEDS: RandomState = RandomState::with_seeds(1, 2, 3, 4);

/// The requester of the visitor's own request, as its origin is told, and its use of the origin.
pub(crate) struct OwnRequest<'a> {
    session: Option<&'a str>,
    priority: Priority,
    origin_use: OriginUse<'a>,
}

impl<'a> OwnRequest<'a> {
    pub(crate) fn new(cx: &'a RequestContext<'_>) -> Self {
        let priority = priority(cx, None);
        Self {
            session: cx.visitor.token.as_ref().map(StoredToken::as_str),
            priority,
            origin_use: origin_use(cx, priority.class),
        }
    }

    /// As its origin is told.
    pub(crate) fn requester(&self) -> Requester<'_> {
        let Self { session, priority, ref origin_use } = *self;
        Requester { session, priority, origin_use: Some(origin_use) }
    }
}

/// What measures what a request of this class takes of its origin's time.
pub(crate) fn origin_use<'a>(cx: &'a RequestContext<'_>, class: RequestClass) -> OriginUse<'a> {
    let visitor = (class != RequestClass::Background).then_some(UsingVisitor {
        address: cx.admitted.address,
        agent: UserAgent::In(&cx.head.headers),
    });
    let origin = cx.upstream().shared_name();
    OriginUse::new(&cx.worker.telemetry, origin, class, &cx.head.uri, visitor)
}

/// When the request is served where others wait. `page`: the key of the page that is fetched for the cache.
pub(crate) fn priority(cx: &RequestContext<'_>, page: Option<&PageKey>) -> Priority {
    let memory = &cx.worker.class_memory;
    let network = network(cx.admitted.address);
    let class = Standing::of(cx, network, page).class();
    note_request(cx, network, page, class);
    // PERF: where requests are put in no order, only operators are told the class.
    if !cx.upstream().keeps_order() {
        return Priority { class, ..Priority::BACKGROUND };
    }
    let user = cx.visitor.user().map(|user| user.as_bytes());
    let flow = match (class, user, &cx.visitor.token) {
        (RequestClass::Known, Some(user), _) => memory.flow(user),
        (RequestClass::Known, None, Some(token)) => memory.flow(token.as_str()),
        _ => memory.flow(&network),
    };
    Priority {
        class,
        is_change: !cx.head.method.is_safe(),
        flow,
        page_kind: page_kind(cx),
        route_limit: route_limit(cx.route),
        is_over_quota: false,
    }
}

/// What is known of the visitor and the page, of which the first that holds decides on the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    User,
    Certificate,
    WasUser,
    Route(RequestClass),
    Change,
    LogInPage,
    Served,
    VisitorToken,
    ReadByOthers,
    NetworkOfUsers,
    Unproven,
}

impl Standing {
    /// The standing of a request. Nothing is noted.
    pub(crate) fn of(cx: &RequestContext<'_>, network: u32, page: Option<&PageKey>) -> Self {
        let (memory, visitor) = (&cx.worker.class_memory, cx.visitor);
        if visitor.class == VisitorClass::Known {
            return Self::User;
        }
        // It proves its bearer, and nothing of a token that comes with it.
        if cx.certificate().is_some() {
            return Self::Certificate;
        }
        // What cannot be found out now is as it was.
        let was_known = |token| visitor.is_unsure() && memory.was_known(token);
        if visitor.token.as_ref().is_some_and(was_known) {
            return Self::WasUser;
        }
        if let Some(class) = cx.route.class {
            return Self::Route(class);
        }
        // What the route limits is not served with logins for a method or a field that any client can send.
        let is_limited = cx.route.max_strangers.is_some();
        if !cx.head.method.is_safe() && !is_limited {
            return Self::Change;
        }
        Self::of_stranger(cx, network, page)
    }

    fn of_stranger(cx: &RequestContext<'_>, network: u32, page: Option<&PageKey>) -> Self {
        let (memory, now) = (&cx.worker.class_memory, cx.now as u64);
        if is_log_in_page(cx) {
            Self::LogInPage
        } else if cx.route.max_strangers.is_none() && was_served(cx) {
            Self::Served
        } else if page.is_some_and(|key| memory.is_read_by_others(key, network)) {
            Self::ReadByOthers
        } else if memory.has_known(network, now) {
            Self::NetworkOfUsers
        } else if cx.visitor_token.token(cx.visitor).is_some() {
            Self::VisitorToken
        } else {
            Self::Unproven
        }
    }

    pub(crate) fn class(self) -> RequestClass {
        match self {
            Self::User | Self::Certificate | Self::WasUser => RequestClass::Known,
            Self::Route(class) => class,
            Self::Change | Self::LogInPage | Self::Served => RequestClass::LogIn,
            Self::ReadByOthers | Self::NetworkOfUsers | Self::VisitorToken => RequestClass::Seen,
            Self::Unproven => RequestClass::New,
        }
    }

    /// Why the request has its class, as `anteroom explain` says it.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::User => "the session is a user's",
            Self::Certificate => "the client has shown a certificate",
            Self::WasUser => "the session was a user's, and cannot be checked now",
            Self::Route(_) => "the route says so",
            Self::Change => "the request changes something",
            Self::LogInPage => "the page logs visitors in",
            Self::Served => "the app has lately done what this client asked for",
            Self::ReadByOthers => "another network has asked for the page, too",
            Self::NetworkOfUsers => "a user was in this network in the last day",
            Self::VisitorToken => "the visitor has a token of Anteroom's",
            Self::Unproven => "nothing is proven of the visitor",
        }
    }
}

/// Remembers of a request what tells the class of others.
fn note_request(
    cx: &RequestContext<'_>,
    network: u32,
    page: Option<&PageKey>,
    class: RequestClass,
) {
    let memory = &cx.worker.class_memory;
    if cx.visitor.class == VisitorClass::Known {
        memory.note_known(network, cx.visitor.token.as_ref(), cx.now as u64);
    }
    if let Some(page) = page.filter(|_| class.is_stranger()) {
        memory.note_read(page, network);
    }
}

/// Remembers a client without a user for which the app has done what it asked for: one with credentials, or with a session
/// that changes something, such as a cart.
pub(crate) fn note_answer(cx: &RequestContext<'_>, status: StatusCode) {
    let is_done = status.is_success() || status.is_redirection();
    if !is_done || !cx.upstream().keeps_order() || cx.visitor.class == VisitorClass::Known {
        return;
    }
    let token = cx.visitor.token.as_ref().filter(|_| !cx.head.method.is_safe());
    let bearer = credentials(cx).or_else(|| token.map(|token| token.as_str().as_bytes()));
    if let Some(bearer) = bearer {
        cx.worker.class_memory.note_served(bearer, cx.now as u64);
    }
}

/// Whether the app has lately done what was asked with the credentials or the session token of the request.
fn was_served(cx: &RequestContext<'_>) -> bool {
    let was = |bearer: &[u8]| cx.worker.class_memory.was_served(bearer, cx.now as u64);
    let token = cx.visitor.token.as_ref().map(|token| token.as_str().as_bytes());
    token.is_some_and(was) || credentials(cx).is_some_and(was)
}

/// The credentials of the request. PERF: most have none, which is known without a search.
fn credentials<'a>(cx: &'a RequestContext<'_>) -> Option<&'a [u8]> {
    let has_some = cx.admitted.fields.has(FieldSet::AUTHORIZATION);
    let line = has_some.then(|| cx.head.headers.get(AUTHORIZATION)).flatten();
    line.map(HeaderValue::as_bytes)
}

/// Whether the request is for a page that shows the form of a login.
fn is_log_in_page(cx: &RequestContext<'_>) -> bool {
    let rules = cx.worker.settings.watched.login.as_ref();
    let is_of_rule = rules.is_some_and(|rule| {
        rule.matching.paths.iter().any(|path| path.matches(&cx.admitted.path).is_some())
    });
    is_of_rule || cx.worker.class_memory.logs_in(&cx.admitted.site, &cx.admitted.path)
}

/// The refusal of a request that found no place, with the page that a browser shows.
pub(crate) fn crowded(cx: &RequestContext<'_>) -> Error {
    let class = Standing::of(cx, network(cx.admitted.address), None).class();
    let page =
        media::asks_for_page(&cx.head.headers).then(|| CrowdPage { log_in: log_in_path(cx) });
    Error::Crowded { class, page }
}

/// Where a visitor of the site can log in, as far as that is known.
fn log_in_path(cx: &RequestContext<'_>) -> Option<Arc<str>> {
    let of_rule = || {
        let rule = cx.worker.settings.watched.login.as_ref()?;
        let is_literal = |path: &&PathPattern| path.branch() == path.to_string();
        rule.matching.paths.iter().find(is_literal).map(|path| path.branch().into())
    };
    cx.worker.class_memory.log_in_path(&cx.admitted.site).or_else(of_rule)
}

/// The limit of a route for requests of strangers.
fn route_limit(route: &CompiledRoute) -> Option<RouteLimit> {
    let max = route.max_strangers?;
    // Names may be those of several routes.
    Some(RouteLimit { route: SEEDS.hash_one((&*route.name, route.place)), max })
}

/// The kind of page, by which it is known how long the origin takes for it. The store keeps that over restarts, and proxies
/// of a fleet share it, so what changes this hash raises `PAGE_KIND_VERSION`. Where a build hashes otherwise all the same,
/// because of its hash function, its kinds are unknown there and displace the old ones; none is taken for another.
fn page_kind(cx: &RequestContext<'_>) -> u64 {
    let (is_safe, uri) = (cx.head.method.is_safe(), &cx.head.uri);
    kind_of(&cx.route.name, is_safe, uri.path(), uri.query().is_some())
}

/// The hash of a kind of page. PERF: each part counts with its length, so nothing has to stand between them.
fn kind_of(route: &str, is_safe: bool, path: &str, has_query: bool) -> u64 {
    let mut hasher = SEEDS.build_hasher();
    hasher.write(route.as_bytes());
    hasher.write_u8(u8::from(is_safe) + 2 * u8::from(has_query));
    for (segment, rest) in pattern_segments(path) {
        hasher.write(segment.as_bytes());
        if !rest.is_empty() {
            hasher.write(rest.as_bytes());
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn pages_of_one_pattern_are_of_one_kind() {
        let kind = |path| kind_of("route", true, path, false);
        for (one, other) in [
            ("/product/17", "/product/blue-shirt"),
            ("/17/reviews/a", "/18/reviews/b"),
            ("/img/cat.png", "/img/dog.png"),
        ] {
            assert_eq!(kind(one), kind(other), "{one} {other}");
        }
    }

    #[test]
    fn other_patterns_methods_and_queries_are_of_other_kinds() {
        let paths = ["/", "/a", "/a/", "//a", "/ab/c", "/a/bc", "/ab", "/a/b/c", "/a/b/c/"];
        let files = ["/17/.png", "/17/.png/x", "/17/.jpg", "/17/.png/", "/17/18", "/17"];
        let mut kinds: HashSet<u64> =
            paths.iter().chain(&files).map(|path| kind_of("route", true, path, false)).collect();
        assert_eq!(kinds.len(), paths.len() + files.len());
        kinds.insert(kind_of("route", false, "/a", false));
        kinds.insert(kind_of("route", true, "/a", true));
        kinds.insert(kind_of("routes", true, "/a", false));
        assert_eq!(kinds.len(), paths.len() + files.len() + 3);
    }
}
