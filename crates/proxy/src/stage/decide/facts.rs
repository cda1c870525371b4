//! What a request and its route say, for the decision.

use ::http::header::{IF_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use ::http::{HeaderName, Method};
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::request_directives::RequestDirectives;
use anteroom_cache::rules::verdict::{self, Access, can_cache};
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::{Item, Row};
use anteroom_http::media;
use anteroom_policy::learn::CacheMode;
use anteroom_telemetry::reason::Reason;

use crate::context::{RequestContext, logs_connection_in};
use crate::plan::Facts;
use crate::stage::detect_upgrade;
use crate::stage::url_pattern::path_digests;

/// Conditions and ranges that only the app can answer for a row.
const BY_THE_APP: [HeaderName; 3] = [IF_MATCH, IF_UNMODIFIED_SINCE, RANGE];

/// What a request and its route say. `item`: the item that the request names on its route.
pub(crate) fn facts<'c>(
    cx: &RequestContext<'_>,
    item: Option<&'c Item>,
    has_body: bool,
) -> Facts<'c> {
    let (head, route, policy) = (cx.head, cx.route, &cx.worker.filler.policy);
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let is_upgrade = detect_upgrade::requested_protocol(head, has_body).is_some();
    let asked = request_view(cx, has_body);
    let access = can_cache(&asked, route, policy);
    Facts {
        item,
        row: row(cx, item, has_body || is_upgrade),
        is_upgrade,
        switched_off: if is_read { switched_off(cx) } else { None },
        needs_rank: route.only_top.is_some() && verdict::obstacles(&asked, route).next().is_none(),
        access,
        is_known_user: cx.visitor.known().is_some(),
        may_be_static: access == Access::Shared(ShareClass::Segment)
            && route.segment.attributes.is_empty()
            && policy.static_for_all
            && media::asks_for_static(&head.headers, head.uri.path()),
        learns: route.mode == CacheMode::Learn,
        only_if_cached: is_read
            && cx.admitted.fields.has(FieldSet::DIRECTIVES)
            && RequestDirectives::of(&head.headers, false).only_if_cached,
        is_head: head.method == Method::HEAD,
        trusts_public: route.trust_public,
        counts_uses: route.min_uses > 1,
    }
}

/// Why the cache is switched off for a request, if it is.
fn switched_off(cx: &RequestContext<'_>) -> Option<Reason> {
    let (bypass, route) = (&cx.worker.pages.purged.bypass, cx.route);
    if bypass.covers(&route.name) {
        return Some(Reason::BypassSwitch);
    }
    // A route that learns serves nothing, and learns of these pages, too.
    let is_stopped = route.mode == CacheMode::Serve
        && bypass.stops(&route.rules, &cx.admitted.site, || path_digests(cx));
    is_stopped.then_some(Reason::AuditStopped)
}

/// The row that would answer a request.
fn row(cx: &RequestContext<'_>, item: Option<&Item>, is_no_read: bool) -> Option<Row> {
    cx.route.rows.as_ref()?;
    let is_read = !is_no_read && matches!(cx.head.method, Method::GET | Method::HEAD);
    // Rare for rows, and the app can answer them.
    let is_for_app = || BY_THE_APP.iter().any(|name| cx.head.headers.contains_key(name));
    if !is_read || is_for_app() {
        return None;
    }
    cx.worker.row_named(cx.route, item)
}

/// The request as the rules of the cache look at it.
fn request_view<'c>(cx: &'c RequestContext<'_>, has_body: bool) -> verdict::RequestView<'c> {
    let head = cx.head;
    verdict::RequestView {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        fields: cx.admitted.fields,
        has_body,
        bound: cx.client.is_pinned() || logs_connection_in(cx.admitted.fields, &head.headers),
        who: cx.visitor.sharing,
    }
}

/// All reasons to bypass the cache on every route.
pub(crate) fn obstacles(cx: &RequestContext<'_>, has_body: bool) -> Vec<Reason> {
    verdict::obstacles(&request_view(cx, has_body), cx.route).collect()
}
