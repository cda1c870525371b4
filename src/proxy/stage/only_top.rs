//! `[[route]] only_top`: only pages of the most viewed items are kept.

use anteroom_cache::LookupMode;
use anteroom_http::ident::Item;
use anteroom_telemetry::metrics::Count;

use crate::proxy::context::RequestContext;

/// Whether the item is among the most viewed, if the route requires that. If the store is away, the item
/// counts as such.
pub(super) async fn is_popular(
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    look: LookupMode,
) -> bool {
    let Some(top) = cx.route.only_top else { return true };
    let Some(item) = item else { return false };
    let worker = cx.worker;
    let is_under = match look {
        LookupMode::Use => worker.ranks.is_in_top(&worker.store, item, top, cx.now).await,
        LookupMode::Peek => worker.ranks.peek(&worker.store, item, top, cx.now).await,
    };
    is_under.unwrap_or_else(|error| {
        tracing::debug!(%error, "an item's rank could not be looked up");
        worker.thread_metrics.count(Count::StoreReadErrors);
        true
    })
}
