//! The start with the pages that were in use before: they come from the store into memory before `/readyz` says ready.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anteroom_cache::warm_start::{self, WarmStart};
use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::Count;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::jobs;
use super::live_config::LiveConfig;
use super::shared_state::SharedState;
use super::worker::CONNECT_TIMEOUT;

/// Sets `ready` when `warming` has ended, unless the process drains by then.
pub(super) async fn make_ready(
    warming: JoinHandle<()>,
    ready: Arc<AtomicBool>,
    drain: CancellationToken,
) {
    tokio::select! {
        biased;
        () = drain.cancelled() => {}
        ended = warming => {
            if let Err(error) = ended {
                tracing::error!(%error, "page memory starts with a part of its pages");
            }
            ready.store(true, Ordering::Release);
        }
    }
}

/// Begins to read the pages, in a task on this thread's runtime.
pub(super) fn begin(
    live: &LiveConfig,
    shared: &Arc<SharedState>,
    store: &AnyStore,
) -> JoinHandle<()> {
    let limit = live.plan.cache.warm_start;
    tokio::task::spawn_local(warm(Arc::clone(shared), store.clone(), limit))
}

/// Reads the pages within `limit`. A store that is away costs no more time than the workers wait for it.
async fn warm(shared: Arc<SharedState>, store: AnyStore, limit: Duration) {
    if limit.is_zero() {
        return;
    }
    if timeout(CONNECT_TIMEOUT, store.connected()).await.is_err() {
        return;
    }
    let known = async {
        // Until then no page of the store counts as fresh.
        shared.pages.purged.complete().await;
        shared.fleet.switch.heard().await;
    };
    if timeout(limit, known).await.is_err() {
        tracing::warn!(
            "page memory starts empty: the store did not tell of purges within [cache] warm_start"
        );
        return;
    }
    let (began, progress) = (Instant::now(), WarmStart::default());
    let store = store.background();
    match timeout(limit, warm_start::run(&shared.pages, &store, &progress)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "page memory starts empty"),
        Err(_) => tracing::warn!("not all pages were read into memory within [cache] warm_start"),
    }
    let (listed, taken) = (progress.listed.get(), progress.taken.get());
    if listed > 0 {
        let milliseconds = began.elapsed().as_millis() as u64;
        tracing::info!(taken, listed, milliseconds, "pages that were in use are in memory");
        shared.metrics.thread_metrics().add(Count::PagesWarmedAtStart, taken as u64);
    }
}

/// Writes the list for the next start, at the end of the process.
pub(super) async fn write_list(shared: &SharedState, store: &AnyStore) {
    if let Err(error) = jobs::hot_pages(shared, store).write().await {
        tracing::debug!(%error, "the next start reads an older list of pages");
    }
}
