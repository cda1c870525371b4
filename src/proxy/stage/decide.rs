//! The decision how far the cache may serve a request.

use ::http::Method;
use ::http::request::Parts;

use super::{cache_lookup, upgrade};
use crate::cache::Look;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::request_directives::Wish;
use crate::cache::rules::verdict::{self, Access, can_cache};
use crate::ident::Item;
use crate::proxy::context::{RequestContext, logs_connection_in};
use crate::telemetry::metrics::Count;
use crate::telemetry::reason::Reason;

/// How far the cache may serve a request.
pub(in crate::proxy) async fn access(
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    has_body: bool,
    look: Look,
) -> Access {
    let head = cx.head;
    if upgrade::asked(head, has_body).is_some() {
        return Access::Bypass(Reason::Upgrade);
    }
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let ranks = !is_read || ranks(cx, item, look).await;
    let asked = asked(cx, has_body, ranks);
    match can_cache(&asked, cx.route, &cx.worker.filler.policy) {
        // SECURITY: without a user such a page would have no owner.
        Access::Shared(class) if class.is_personal() && cx.visitor.known().is_none() => {
            Access::Bypass(Reason::UnknownToken)
        }
        // What is static by proof needs no proof of a segment, unless the route says that attributes choose.
        Access::Shared(ShareClass::Segment)
            if cx.route.segment.attributes.is_empty()
                && cache_lookup::is_kept_for_strangers(cx, look).await =>
        {
            Access::StaticOnly(Reason::Login)
        }
        access => access,
    }
}

/// The request as the rules of the cache look at it.
fn asked<'c>(cx: &'c RequestContext<'_>, has_body: bool, ranks: bool) -> verdict::Asked<'c> {
    let head = cx.head;
    verdict::Asked {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        has_body,
        bound: cx.client.is_bound() || logs_connection_in(&head.headers),
        who: cx.visitor.sharing,
        ranks,
    }
}

/// All that keeps a request from the cache on every route.
pub(in crate::proxy) fn obstacles(cx: &RequestContext<'_>, has_body: bool) -> Vec<Reason> {
    verdict::obstacles(&asked(cx, has_body, true), cx.route).collect()
}

/// Whether a request takes nothing but a stored page.
pub(in crate::proxy) fn takes_stored_only(head: &Parts) -> bool {
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    is_read && Wish::of(&head.headers, false).only_if_cached
}

/// Whether the item is among the most viewed, where the route asks for that. A store that cannot say
/// costs nobody the cache.
async fn ranks(cx: &RequestContext<'_>, item: Option<&Item>, look: Look) -> bool {
    let Some(top) = cx.route.only_top else { return true };
    let Some(item) = item else { return false };
    let worker = cx.worker;
    let is_under = match look {
        Look::Use => worker.ranks.is_under(&worker.store, item, top, cx.now).await,
        Look::Peek => worker.ranks.peek(&worker.store, item, top, cx.now).await,
    };
    is_under.unwrap_or_else(|error| {
        tracing::debug!(%error, "an item's rank could not be looked up");
        worker.sheet.count(Count::StoreReadErrors);
        true
    })
}
