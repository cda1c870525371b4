//! Decides how far the cache may serve a request.

use anteroom_fault::fault;

use ::http::Method;
use ::http::request::Parts;
use anteroom_cache::LookupMode;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::request_directives::RequestDirectives;
use anteroom_cache::rules::verdict::{self, Access, can_cache};
use anteroom_http::ident::Item;
use anteroom_telemetry::reason::Reason;

use super::{cache_lookup, detect_upgrade, only_top};
use crate::proxy::context::{RequestContext, logs_connection_in};

/// Decides how far the cache may serve a request.
pub(in crate::proxy) async fn access(
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    has_body: bool,
    look: LookupMode,
) -> Access {
    let head = cx.head;
    if !fault!("upgrade") && detect_upgrade::requested_protocol(head, has_body).is_some() {
        return Access::Bypass(Reason::Upgrade);
    }
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if is_read && cx.worker.pages.purged.bypass.covers(&cx.route.name) {
        return Access::Bypass(Reason::BypassSwitch);
    }
    let ranks = !is_read || only_top::is_popular(cx, item, look).await;
    let asked = request_view(cx, has_body, ranks);
    match can_cache(&asked, cx.route, &cx.worker.filler.policy) {
        // SECURITY: a personal page needs a known user as its owner.
        Access::Shared(class) if class.is_personal() && cx.visitor.known().is_none() => {
            Access::Bypass(Reason::UnknownToken)
        }
        // A resource already proven static needs no segment proof, unless the route's segment uses
        // attributes.
        Access::Shared(ShareClass::Segment)
            if cx.route.segment.attributes.is_empty()
                && cache_lookup::is_kept_for_anonymous(cx, look).await =>
        {
            Access::StaticOnly(Reason::Login)
        }
        Access::Bypass(_)
            if fault!("upgrade")
                && detect_upgrade::requested_protocol(head, has_body).is_some() =>
        {
            Access::Bypass(Reason::Upgrade)
        }
        access => access,
    }
}

/// The request as the rules of the cache look at it.
fn request_view<'c>(
    cx: &'c RequestContext<'_>,
    has_body: bool,
    ranks: bool,
) -> verdict::RequestView<'c> {
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
        is_ranked: ranks,
    }
}

/// All reasons to bypass the cache on every route.
pub(in crate::proxy) fn obstacles(cx: &RequestContext<'_>, has_body: bool) -> Vec<Reason> {
    verdict::obstacles(&request_view(cx, has_body, true), cx.route).collect()
}

/// Whether the request accepts only a stored page (`only-if-cached`).
pub(in crate::proxy) fn takes_stored_only(head: &Parts) -> bool {
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    is_read && RequestDirectives::of(&head.headers, false).only_if_cached
}
