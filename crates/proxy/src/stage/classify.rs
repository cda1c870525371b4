//! The class of a request: how soon the origin gets it where others wait. Only what is proven counts.

use std::hash::{BuildHasher, Hasher};

use ahash::RandomState;
use anteroom_cache::url_patterns::network;
use anteroom_http::ident::{PageKey, StoredToken};
use anteroom_http::segments::pattern_segments;
use anteroom_origin::Requester;
use anteroom_policy::priority::{Priority, RequestClass};
use anteroom_telemetry::access_log::VisitorClass;

use crate::context::RequestContext;

/// Of whom a request is, as its origin is told. `page`: the key of the page that is fetched for the cache.
pub(crate) fn requester<'a>(cx: &'a RequestContext<'_>, page: Option<&PageKey>) -> Requester<'a> {
    let session = cx.visitor.token.as_ref().map(StoredToken::as_str);
    // PERF: an origin that puts requests in no order is told nothing.
    if !cx.upstream().keeps_order() {
        return Requester { session, priority: Priority::BACKGROUND };
    }
    Requester { session, priority: priority(cx, page) }
}

/// When the request is served where others wait.
pub(crate) fn priority(cx: &RequestContext<'_>, page: Option<&PageKey>) -> Priority {
    let memory = &cx.worker.class_memory;
    let network = network(cx.admitted.address);
    let class = class(cx, network, page);
    let user = cx.visitor.user().map(|user| user.as_bytes());
    let flow = match (class, user, &cx.visitor.token) {
        (RequestClass::Known, Some(user), _) => memory.flow(user),
        (RequestClass::Known, None, Some(token)) => memory.flow(token.as_str()),
        _ => memory.flow(&network),
    };
    Priority { class, is_change: !cx.head.method.is_safe(), flow, page_kind: page_kind(cx) }
}

fn class(cx: &RequestContext<'_>, network: u32, page: Option<&PageKey>) -> RequestClass {
    let (memory, now) = (&cx.worker.class_memory, cx.now as u64);
    if cx.visitor.class == VisitorClass::Known {
        memory.note_known(network, cx.visitor.token.as_ref(), now);
        return RequestClass::Known;
    }
    // It proves its bearer, and nothing of a token that comes with it.
    if cx.certificate().is_some() {
        return RequestClass::Known;
    }
    // What cannot be found out now is as it was.
    let was_known = |token| cx.visitor.is_unsure() && memory.was_known(token);
    if cx.visitor.token.as_ref().is_some_and(was_known) {
        return RequestClass::Known;
    }
    if !cx.head.method.is_safe() || is_log_in_page(cx) {
        return RequestClass::LogIn;
    }
    let is_read = page.is_some_and(|key| memory.is_read_by_others(key, network));
    match is_read || memory.has_known(network, now) {
        true => RequestClass::Seen,
        false => RequestClass::New,
    }
}

/// Whether the request is for a page that shows the form of a log-in.
fn is_log_in_page(cx: &RequestContext<'_>) -> bool {
    let rules = cx.worker.settings.watched.login.as_ref();
    let is_of_rule = rules.is_some_and(|rule| {
        rule.matching.paths.iter().any(|path| path.matches(&cx.admitted.path).is_some())
    });
    is_of_rule || cx.worker.class_memory.logs_in(&cx.admitted.site, &cx.admitted.path)
}

/// The kind of page, by which it is known how long the origin takes for it.
fn page_kind(cx: &RequestContext<'_>) -> u64 {
    // The same kinds in all threads, and after a reload.
    const SEEDS: RandomState = RandomState::with_seeds(1, 2, 3, 4);
    let mut hasher = SEEDS.build_hasher();
    hasher.write(cx.route.name.as_bytes());
    hasher.write_u8(u8::from(cx.head.method.is_safe()));
    hasher.write_u8(u8::from(cx.head.uri.query().is_some()));
    for (segment, rest) in pattern_segments(cx.head.uri.path()) {
        hasher.write(segment.as_bytes());
        hasher.write(rest.as_bytes());
        hasher.write_u8(b'/');
    }
    hasher.finish()
}
