//! The store of this process on its way to a successor, and back. It is embedded: one that both processes can open has no
//! way to go.

use std::time::Duration;

use anteroom_cache::warm_start;
use anteroom_fault::may_crash;
use anteroom_http::clock::unix_now;
use anteroom_store::remote::{RemoteCall, RemoteStore};
use anteroom_store::{AnyStore, Engine, OpenStore, SuccessorUse};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

use super::live_config::LiveConfig;
use super::reload::RunningProxy;
use super::shared_state::SharedState;
use super::{drain, jobs};
use crate::take_over::channel::{Channel, TakeOverError};
use crate::take_over::message::{Message, Part};

/// How long it may take to write what waits. No request is held up meanwhile.
const FLUSH: Duration = Duration::from_secs(5);
/// How long the successor may take to read a message.
const READ: Duration = Duration::from_secs(5);

/// Why a successor is refused that would not know of logouts.
const LOG_OUTS_WAIT: &str =
    "logouts wait, because the store does not take them: try again when it does";

/// The store on its way.
#[derive(Debug)]
pub(super) struct StorePassage {
    open: OpenStore,
    /// What the successor may have done with the store; `None`: it has not left.
    used: Option<SuccessorUse>,
}

impl StorePassage {
    /// The store of this process, which has not left yet.
    pub(super) fn new(store: &OpenStore) -> Self {
        Self { open: store.clone(), used: None }
    }

    /// Whether it has begun to leave.
    pub(super) fn has_begun(&self) -> bool {
        self.used.is_some()
    }

    /// Prepares for what follows while requests go on: ends the tasks that use the store, and writes what waits.
    pub(super) async fn begin(&mut self, running: &mut RunningProxy) -> Result<(), TakeOverError> {
        self.used = Some(SuccessorUse::Read);
        running.jobs.pause().await;
        write_log_outs(running).await?;
        let live = running.live.load_full();
        let flushed = flush(&running.shared, &live, &running.store);
        if timeout(FLUSH, flushed).await.is_err() {
            tracing::debug!("what waits is written when the successor has the store");
        }
        Ok(())
    }

    /// Holds all calls, closes the store, and gives the successor what was in memory only.
    pub(super) async fn release(
        &mut self,
        shared: &SharedState,
        live: &LiveConfig,
        channel: &mut Channel,
    ) -> Result<(), TakeOverError> {
        let now = unix_now() as u64;
        let keeps_list = !live.plan.cache.warm_start.is_zero();
        let hot_pages = keeps_list.then(|| warm_start::list(&shared.pages, now)).flatten();
        let held = self.open.switch().hold_for_successor().await;
        held.map_err(|error| TakeOverError::Refused(error.to_string()))?;
        let closed = self.open.suspend().await;
        closed.map_err(|error| {
            TakeOverError::Refused(format!("the store cannot be closed: {error}"))
        })?;
        for part in self.open.parts(hot_pages) {
            let part = Part { name: part.name.to_owned(), layout: part.layout, text: part.text };
            channel.say(&Message::Part(part), &[], READ).await?;
        }
        channel.say(&Message::StoreReleased, &[], READ).await?;
        may_crash("given");
        Ok(())
    }

    /// From now on the successor may write.
    pub(super) fn allow_writes(&mut self) {
        self.used = Some(SuccessorUse::Write);
    }

    /// Calls that are held go to the successor, and so do all later ones.
    pub(super) fn hand_over(&self, calls: UnboundedSender<RemoteCall>) {
        self.open.switch().hand_over_to(Engine::Remote(RemoteStore::new(calls)));
    }

    /// The store is used here again, as before. The successor has ended.
    pub(super) async fn take_back(&mut self) {
        let Some(used) = self.used.take() else { return };
        if let Err(error) = self.open.resume(used).await {
            tracing::error!(%error, "the store cannot be opened again so far; retrying");
        }
        self.open.switch().take_back();
    }
}

/// Writes the logouts that wait. Sessions that have ended in this process alone would go on in its successor, and for
/// good if the store takes no logout before this one ends.
pub(super) async fn write_log_outs(running: &RunningProxy) -> Result<(), TakeOverError> {
    let live = running.live.load_full();
    match timeout(FLUSH, live.sessions.flush_log_outs(&running.store)).await {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(TakeOverError::Refused(LOG_OUTS_WAIT.to_owned())),
    }
}

/// Writes what waits in memory.
async fn flush(shared: &SharedState, live: &LiveConfig, store: &AnyStore) {
    if let Err(error) = drain::flush(shared, &live.sessions, store).await {
        tracing::debug!(%error, "visits wait");
    }
    if let Err(error) = shared.pages.purged.flush(store).await {
        tracing::debug!(%error, "purges wait");
    }
    jobs::keep_limits(live, store).write().await;
}
