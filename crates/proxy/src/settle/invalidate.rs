//! Invalidation: the pages and rows that an unsafe request has changed (RFC 9111 §4.4).

use std::borrow::Cow;

use anteroom_fault::fault;

use ::http::header::{CONTENT_LOCATION, LOCATION};
use ::http::{HeaderMap, Method, StatusCode};
use anteroom_cache::purge::scope::{PurgeTarget, Scope};
use anteroom_cache::rules::key::ShareClass;
use anteroom_http::clock::unix_now;
use anteroom_http::ident::Item;
use anteroom_http::path;
use anteroom_policy::route::{self, Route};

use super::forget::forget;
use super::{purge_rules, user_purge};
use crate::context::RequestContext;

/// What an unsafe request has changed, according to its response.
#[derive(Debug)]
pub(crate) struct Invalidation {
    /// The targets on this site: the request's own, and those that the response names.
    pub(crate) targets: Vec<String>,
    /// What `[purge] after` names.
    by_rule: Vec<PurgeTarget>,
    /// Whether rows have changed.
    pub(crate) changes_rows: bool,
}

impl Invalidation {
    /// Reads from the response what the request has changed. `None`: nothing.
    pub(super) fn read(
        cx: &RequestContext<'_>,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Self> {
        if fault!("write")
            || cx.head.method.is_safe()
            || !(status.is_success() || status.is_redirection() || fault!("error"))
        {
            return None;
        }
        let own = cx.head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut targets = vec![own.to_owned()];
        for name in [LOCATION, CONTENT_LOCATION] {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            targets.extend(value.and_then(|text| cx.admitted.same_site(own, text)));
        }
        let by_rule = purge_rules::targets(cx, status, headers);
        Some(Self { targets, by_rule, changes_rows: has_changed_rows(status) })
    }
}

/// The purge for an unsafe request for `target` that was never answered.
pub(super) fn targets_of_unanswered(cx: &RequestContext<'_>, target: &str) -> Vec<PurgeTarget> {
    let (route, _) = route_of(cx, &cx.head.method, target);
    let mut purge_targets = named(cx, route);
    purge_targets.extend(purge_target(cx, target, false));
    purge_targets.extend(purge_rules::targets_of_unanswered(cx));
    purge_targets
}

/// RFC 9111 §4.4: removes what an unsafe request changed, rows included, before its response goes out.
///
/// Pages are deleted by key. Other forms of a page and other processes learn of it as a purge. The keys
/// of segment and user pages are not known here; the purge of their URL removes them. The visitor's own
/// pages, `owned`, are purged with them.
///
/// A row is shared by all visitors. It is therefore removed only if the response shows that the change
/// was made. A redirect to a login page does not show that.
pub(super) async fn invalidate(
    cx: &RequestContext<'_>,
    changed: &Invalidation,
    owned: Vec<PurgeTarget>,
) {
    let Invalidation { targets, by_rule, changes_rows } = changed;
    let changes_rows = *changes_rows;
    let (mut gone, mut rows, now) = (Vec::new(), Vec::new(), unix_now() as u64);
    // A route for this method alone may name a row, too.
    let (own, item) = route_of(cx, &cx.head.method, &targets[0]);
    rows.extend(cx.worker.row_named(own, item.as_ref()).into_iter().filter(|_| changes_rows));
    let mut purge_targets = purge_targets(cx, targets, own);
    purge_targets.extend(by_rule);
    purge_targets.extend(owned.into_iter().chain(user_purge::purge_targets(cx)));
    purge_targets.dedup();
    for target in targets {
        let (route, item) = route_of(cx, &Method::GET, target);
        let named = cx.worker.row_named(route, item.as_ref());
        rows.extend(named.filter(|row| changes_rows && !rows.contains(row)));
        for class in [ShareClass::Anonymous, ShareClass::Public, ShareClass::Everyone] {
            let key = cx.page_key(target, route, class);
            gone.extend(cx.worker.pages.invalidate(&key, now));
        }
    }
    forget(cx.worker, &gone, &purge_targets, &rows).await;
}

/// Whether an unsafe request with this status has changed rows.
fn has_changed_rows(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::SEE_OTHER || fault!("rows")
}

/// The route and item of a request for a target on this request's site. The keys of pages depend on the
/// route of a GET, which may differ from the route of the unsafe request.
fn route_of<'c>(
    cx: &'c RequestContext<'_>,
    method: &Method,
    target: &str,
) -> (&'c Route, Option<Item>) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let decoded = path::decoded(path);
    let asked = route::RouteInput {
        method,
        host: &cx.admitted.site,
        path: decoded.as_deref().unwrap_or(path),
        query,
        // Pages of routes with other conditions on fields are purged by their URL.
        headers: &cx.head.headers,
    };
    let (route, item) = cx.worker.settings.routes.find(&asked);
    (route, item)
}

/// The purge of what an unsafe request changed: its targets are removed, and what its route names
/// becomes stale.
fn purge_targets(cx: &RequestContext<'_>, targets: &[String], route: &Route) -> Vec<PurgeTarget> {
    let changed = targets.iter().flat_map(|target| purge_target(cx, target, true));
    changed.chain(named(cx, route)).collect()
}

/// The purge of the paths that a route names.
fn named(cx: &RequestContext<'_>, route: &Route) -> Vec<PurgeTarget> {
    route.purges.iter().map(|branch| purge_rules::branch_target(cx, branch)).collect()
}

/// The purge of all forms of the page at a target on this request's site.
fn purge_target(cx: &RequestContext<'_>, target: &str, is_hard: bool) -> Vec<PurgeTarget> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = path::decoded(path).unwrap_or_else(|| path.to_owned());
    let (site, forms) = (&cx.admitted.site, cx.worker.settings.query_rules.forms(query));
    let of_form =
        |query: &Cow<'_, str>| Scope::Url { site, path: &path, query }.purge_target(is_hard);
    forms.iter().map(of_form).collect()
}
