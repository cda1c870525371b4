//! Converts a plan's `[store]` into the open store, and watches its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::{Plan, StoreLayout, StoreUrl};
use crate::store::{self, AnyStore, OpenError, OpenStore, StoreState};

/// How often the store's state is checked for `/readyz` and the metrics.
const LOOK: Duration = Duration::from_millis(500);
/// How long a step may take that no request waits for.
const UNHURRIED: Duration = Duration::from_secs(30);

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// As `[store] url`.
    pub url: StoreUrl,
    /// As `[store] layout`.
    pub layout: StoreLayout,
    /// As `[store] prefix`.
    pub prefix: String,
}

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

/// Opens a store that no proxy uses, to read or write all of it. No page is kept there, and nothing waits for a step.
pub(super) async fn unused_store(place: &StorePlace) -> Result<OpenStore, OpenError> {
    let limits = store::StoreLimits {
        read_timeout: UNHURRIED,
        write_timeout: UNHURRIED,
        // What is there is kept.
        viewed_items: 1_000,
        pages: 0,
        max_page: 0,
    };
    let (url, layout) = (url_of(&place.url), layout_of(place.layout));
    let prefix = place.prefix.clone();
    OpenStore::open(&store::StoreSettings { url, prefix, layout, limits }).await
}

fn url_of(url: &StoreUrl) -> store::Url {
    match url {
        StoreUrl::Embedded(folder) => store::Url::Embedded(folder.clone()),
        StoreUrl::Redis(url) => store::Url::Redis(url.expose().to_owned()),
    }
}

fn layout_of(layout: StoreLayout) -> store::Layout {
    match layout {
        StoreLayout::Chapter => store::Layout::Chapter,
        StoreLayout::Sharded => store::Layout::Sharded,
    }
}

fn settings(plan: &Plan) -> store::StoreSettings {
    let (url, layout) = (url_of(&plan.store.url), layout_of(plan.store.layout));
    let limits = store::StoreLimits {
        read_timeout: plan.store.timeout,
        write_timeout: Duration::from_secs(2),
        viewed_items: plan.session.viewed_items,
        pages: plan.store.pages,
        max_page: plan.store.max_page,
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
