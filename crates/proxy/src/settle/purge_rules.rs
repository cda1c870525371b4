//! `[purge] after`: the pages that become stale with an unsafe request, whatever its route.

use std::collections::BTreeSet;

use ::http::header::LOCATION;
use ::http::{HeaderMap, StatusCode};
use anteroom_cache::purge::scope::{PurgeTarget, Scope};
use anteroom_http::path::{self, PurgePath};
use anteroom_http::reference::resolve;
use anteroom_policy::purge_rule::PurgeRule;

use crate::context::RequestContext;

/// The purge for an unsafe request that was answered with 2xx or 3xx.
pub(super) fn targets(
    cx: &RequestContext<'_>,
    status: StatusCode,
    headers: &HeaderMap,
) -> Vec<PurgeTarget> {
    // SECURITY: an app redirects a visitor without a login to its login page. Anyone can cause it.
    if leads_to_login(cx, headers) {
        return Vec::new();
    }
    named(cx, |rule| rule.status.is_empty() || rule.status.contains(&status.as_u16()))
}

/// The purge for an unsafe request that was never answered. Only a logged-in user causes it: the origin may
/// have refused the request of another visitor.
pub(super) fn targets_of_unanswered(cx: &RequestContext<'_>) -> Vec<PurgeTarget> {
    match cx.visitor.known() {
        Some(_) => named(cx, |_| true),
        None => Vec::new(),
    }
}

/// What the rules for this request name, if `counts` is true of them.
fn named(cx: &RequestContext<'_>, counts: impl Fn(&PurgeRule) -> bool) -> Vec<PurgeTarget> {
    let rules = cx.worker.settings.purge_rules.iter();
    let rules =
        rules.filter(|rule| cx.matches(&rule.matching) && counts(rule) && has_fields(cx, rule));
    let branches = rules.flat_map(|rule| &rule.purges);
    let targets: BTreeSet<_> = branches.map(|branch| branch_target(cx, branch)).collect();
    targets.into_iter().collect()
}

/// The purge of a path, or of all paths below it, on this request's site.
pub(super) fn branch_target(cx: &RequestContext<'_>, branch: &PurgePath) -> PurgeTarget {
    let site = &cx.admitted.site;
    match branch.is_whole {
        true => Scope::Prefix { site, path: &branch.path }.purge_target(false),
        false => Scope::Url { site, path: &branch.path, query: "" }.purge_target(false),
    }
}

/// Whether the form in the body has the fields of a rule.
fn has_fields(cx: &RequestContext<'_>, rule: &PurgeRule) -> bool {
    rule.form.iter().all(|(name, values)| {
        let sent = cx.kept_body.form_value(name);
        sent.is_some_and(|sent| values.iter().any(|value| value.as_bytes() == sent))
    })
}

/// Whether the response redirects to a login by `[session.login]`, on any host.
fn leads_to_login(cx: &RequestContext<'_>, headers: &HeaderMap) -> bool {
    let Some(rule) = &cx.worker.settings.watched.login else { return false };
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let Some((_, target)) = location.map(|location| resolve(cx.head.uri.path(), location)) else {
        return false;
    };
    let (path, _) = target.split_once('?').unwrap_or((&target, ""));
    let decoded = path::decoded(path);
    let path = decoded.as_deref().unwrap_or(path);
    rule.matching.paths.iter().any(|pattern| pattern.matches(path).is_some())
}
