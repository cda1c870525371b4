//! Keeps what is known of the servers of origins in the store, so that the next process does not find it again.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_origin::ServerList;
use anteroom_policy::priority::PAGE_KIND_VERSION;
use anteroom_store::{AnyStore, KNOWN_SERVERS_MAX, OverloadStore as _, StoreError};

use super::{NextStep, Task};

/// The time between two writes: a killed process loses no more than what it has learned since the last.
const EVERY: Duration = Duration::from_secs(60);
/// How long a value stays in the store: over a quiet weekend, and not for as long as an app becomes another one.
const TTL: Duration = Duration::from_secs(7 * 86_400);

/// Reads what is known of servers at the start, and writes what has changed.
#[derive(Debug)]
pub struct KeepLimits {
    /// The store; use that of [`AnyStore::background`].
    pub store: AnyStore,
    /// The servers of the origins that learn limits.
    pub server_lists: Vec<Arc<ServerList>>,
    /// Whether the task has rested once: right after the start there is little to write.
    pub has_rested: Cell<bool>,
}

impl KeepLimits {
    /// Reads the values that were not read yet. Where the store has failed, the limits go on as they began, and the next
    /// step tries again: what was learned until then goes before what is read.
    async fn recall(&self) {
        for list in self.server_lists.iter().filter(|list| !list.has_recalled()) {
            let origin = list.name();
            match self.store.known_servers(PAGE_KIND_VERSION, origin).await {
                Ok(kept) => list.recall(kept),
                Err(error) => {
                    tracing::debug!(%error, origin, "what is known of the servers was not read");
                    return;
                }
            }
        }
    }

    /// Writes what has changed. Other proxies on the store write the same values, and the last one stays: all of them see
    /// the same app. A store that fails is not asked for the other origins.
    pub async fn write(&self) {
        for list in &self.server_lists {
            let Some(known) = list.to_keep(KNOWN_SERVERS_MAX) else { continue };
            let (version, origin) = (PAGE_KIND_VERSION, list.name());
            match self.store.put_known_servers(version, origin, known.clone(), TTL).await {
                Ok(()) => list.note_kept(known),
                Err(error) => {
                    tracing::debug!(%error, origin, "what is known of the servers was not kept");
                    return;
                }
            }
        }
    }
}

impl Task for KeepLimits {
    const NAME: &'static str = "keep_limits";
    /// The end writes once more.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.store.connected().await;
        self.recall().await;
        if self.has_rested.get() {
            self.write().await;
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
        self.has_rested.set(true);
    }
}
