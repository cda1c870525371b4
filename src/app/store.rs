//! Converts a plan's `[store]` into the open store, and watches its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{Plan, StoreLayout, StoreUrl};
use crate::store::{self, AnyStore, OpenError, OpenStore, StoreState};

/// How often the store's state is checked for `/readyz` and the metrics.
const LOOK: Duration = Duration::from_millis(500);

/// Opens the store, and the store of pages if that is another.
pub(super) async fn open(plan: &Plan) -> Result<OpenStore, OpenError> {
    let settings = settings(plan);
    let store = OpenStore::open(&settings).await?;
    match (&plan.store.url, &plan.store.pages_url) {
        (StoreUrl::Redis(_), Some(StoreUrl::Redis(url))) => {
            store.with_pages_in(url.expose(), &settings)
        }
        _ => Ok(store),
    }
}

fn settings(plan: &Plan) -> store::StoreSettings {
    let url = match &plan.store.url {
        StoreUrl::Embedded(folder) => store::Url::Embedded(folder.clone()),
        StoreUrl::Redis(url) => store::Url::Redis(url.expose().to_owned()),
    };
    let limits = store::StoreLimits {
        read_timeout: plan.store.timeout,
        write_timeout: Duration::from_secs(2),
        viewed_items: plan.session.viewed_items,
        pages: plan.store.pages,
        max_page: plan.store.max_page,
    };
    let layout = match plan.store.layout {
        StoreLayout::Chapter => store::Layout::Chapter,
        StoreLayout::Sharded => store::Layout::Sharded,
    };
    store::StoreSettings { url, prefix: plan.store.prefix.clone(), layout, limits }
}

/// Keeps the store's state in `connected`, which every thread can read.
pub(super) async fn watch(handle: AnyStore, connected: Arc<AtomicBool>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        connected.store(handle.state() == StoreState::Connected, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
    }
}

/// Warns if Redis may evict sessions when its memory is full.
pub(super) async fn warn_of_eviction(store: OpenStore, handle: AnyStore) {
    handle.connected().await;
    match store.drops_sessions().await {
        Ok(None) => {}
        Ok(Some(policy)) => tracing::warn!(
            policy,
            "Redis evicts any key when its memory is full, sessions included: set maxmemory-policy to \
             volatile-lru, which evicts only pages"
        ),
        Err(error) => tracing::debug!(%error, "cannot read the eviction policy of Redis"),
    }
}
