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

/// Decides how far the cache may serve a request.
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
    let asked = verdict::Asked {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &head.headers,
        has_body,
        bound: cx.client.is_bound() || logs_connection_in(&head.headers),
        who: cx.visitor.sharing,
        ranks: !is_read || ranks(cx, item, look).await,
    };
    match can_cache(&asked, cx.route, &cx.worker.filler.policy) {
        // SECURITY: without a known user, a personal page would have no owner.
        Access::Shared(class) if class.is_personal() && cx.visitor.known().is_none() => {
            Access::Bypass(Reason::UnknownToken)
        }
        // A page that is static by proof needs no proof of a segment, unless the route names attributes
        // that select the page.
        Access::Shared(ShareClass::Segment)
            if cx.route.segment.attributes.is_empty()
                && cache_lookup::is_kept_for_strangers(cx, look).await =>
        {
            Access::StaticOnly(Reason::Login)
        }
        access => access,
    }
}

/// Whether the request accepts only a stored page.
pub(in crate::proxy) fn takes_stored_only(head: &Parts) -> bool {
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    is_read && Wish::of(&head.headers, false).only_if_cached
}

/// Whether the item is among the most viewed, if the route requires that. The cache stays in use when
/// the store fails.
async fn ranks(cx: &RequestContext<'_>, item: Option<&Item>, look: Look) -> bool {
    let Some(top) = cx.route.only_top else { return true };
    let Some(item) = item else { return false };
    let worker = cx.worker;
    let is_under = match look {
        Look::Use => worker.ranks.is_under(&worker.store, item, top, cx.now).await,
        Look::Peek => worker.ranks.peek(&worker.store, item, top, cx.now).await,
    };
    is_under.unwrap_or_else(|error| {
        tracing::debug!(%error, "looking up an item's rank failed");
        worker.sheet.count(Count::StoreReadErrors);
        true
    })
}
