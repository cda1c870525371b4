//! The shutdown: waiting visits, logouts and purges are written to the store.

use std::time::Duration;

use anteroom_session::Sessions;
use anteroom_store::{AnyStore, FleetStore as _, PurgeStore as _, StoreError};
use tokio::task::JoinHandle;

use super::jobs::{self, Jobs};
use super::live_config::LiveConfig;
use super::shared_state::SharedState;
use super::warm_start;

/// How often to check for visits that are being written.
const LOOK_FLYING: Duration = Duration::from_millis(10);

/// Waits for the tasks, and writes what they and the workers leave behind. A successor writes what the next start reads.
pub(super) async fn end(
    jobs: Jobs,
    data_commands: Option<JoinHandle<()>>,
    shared: &SharedState,
    live: &LiveConfig,
    store: &AnyStore,
    has_successor: bool,
) {
    let sessions = &*live.sessions;
    // First, because an impatient supervisor may end the process during the slower steps.
    let flushed = flush(shared, sessions, store).await;
    if let Err(error) = shared.pages.purged.flush(store).await {
        tracing::warn!(%error, "purges did not reach the store: other proxies keep the pages until they expire");
    }
    jobs.ended().await;
    if let Some(Err(error)) = async { Some(data_commands?.await) }.await {
        tracing::error!(%error, "the data commands did not shut down cleanly");
    }
    finish(shared, sessions, store, flushed).await;
    if !has_successor {
        keep_for_next_start(shared, live, store).await;
    }
    leave_fleet(shared.pages.purged.process_id, store).await;
}

/// Tells the other proxies on the store that a process is gone.
pub(super) async fn leave_fleet(process_id: u64, store: &AnyStore) {
    if let Err(error) = store.leave(process_id).await {
        tracing::debug!(%error, "other proxies wait briefly for a process to confirm their purges");
    }
    if let Err(error) = store.unregister_proxy(process_id).await {
        tracing::debug!(%error, "other proxies list a process for a minute that is gone");
    }
}

/// Writes what the next start reads. After what must not be lost: the store has all of it as of the last minute already.
async fn keep_for_next_start(shared: &SharedState, live: &LiveConfig, store: &AnyStore) {
    let list_pages = async {
        if !live.plan.cache.warm_start.is_zero() {
            warm_start::write_list(shared, store).await;
        }
    };
    let limits = jobs::keep_limits(live, store);
    // At once: a store that does not answer is waited for once.
    tokio::join!(list_pages, limits.write());
}

/// Writes everything that is waiting. Fails if the store refuses a part; the rest keeps waiting.
pub(super) async fn flush(
    shared: &SharedState,
    sessions: &Sessions,
    store: &AnyStore,
) -> Result<(), StoreError> {
    let log_outs = sessions.flush_log_outs(store).await;
    loop {
        let progress = shared.visits.drain_all(store).await;
        if let Some(error) = progress.failure {
            return Err(error);
        }
        if !progress.more {
            break;
        }
        if progress.visits + progress.items == 0 {
            // The task of visits is still writing earlier entries.
            tokio::time::sleep(LOOK_FLYING).await;
        }
    }
    while shared.visitor_visits.flush(store).await? > 0 {}
    if log_outs { Ok(()) } else { Err(StoreError::Away) }
}

/// Writes what the tasks returned and what the store refused before; logs what is lost.
async fn finish(
    shared: &SharedState,
    sessions: &Sessions,
    store: &AnyStore,
    flushed: Result<(), StoreError>,
) {
    let visits = || shared.visits.backlog() + shared.visitor_visits.backlog();
    if flushed.is_ok() && visits() + sessions.log_outs_waiting() == 0 {
        return;
    }
    if let Err(error) = flush(shared, sessions, store).await {
        tracing::warn!(
            %error,
            visits = visits(),
            log_outs = sessions.log_outs_waiting(),
            "visits and logouts did not reach the store"
        );
    }
}
