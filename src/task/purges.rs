//! Purges by other processes on the store, and sending this process's own. The bypass switch comes with them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use anteroom_cache::purge::PurgeTable;
use anteroom_store::{AnyStore, StoreError};
use tokio::time::Instant;

use super::{NextStep, Task};

/// How often the store is asked, with or without a signal.
const EVERY: Duration = Duration::from_millis(250);

/// How long a store that does not answer after the start is not reported.
const CONNECTING: Duration = Duration::from_secs(2);

/// Keeps this process's table of purges complete.
#[derive(Debug)]
pub struct PurgeTask {
    /// The store.
    pub store: AnyStore,
    /// The table.
    pub purged: Arc<PurgeTable>,
    /// When the task began.
    pub began: Instant,
    /// Whether the log has reported that the store's purges are not received.
    pub refusal_logged: Cell<bool>,
    /// Whether the log has reported that the store does not take this process's purges.
    pub backlog_logged: Cell<bool>,
}

impl PurgeTask {
    /// Logs when the store begins not to take purges, and when it has them all.
    fn say_waiting(&self, failure: Option<&StoreError>) {
        let (waiting, _) = self.purged.waiting();
        match failure {
            Some(error) if waiting > 0 && !self.backlog_logged.replace(true) => {
                tracing::warn!(%error, waiting, "purges cannot be sent to the store: they are in effect in this process, and are retried");
            }
            None if waiting == 0 && self.backlog_logged.take() => {
                tracing::info!("all purges have reached the store");
            }
            Some(_) | None => {}
        }
    }
}

impl Task for PurgeTask {
    const NAME: &'static str = "purges";
    /// Unsent purges are sent at the end.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        let kept_up = self.purged.keep_up(&self.store).await;
        // Also while the store is away.
        self.purged.bypass.drop_ended();
        if kept_up.is_ok() {
            self.purged.bypass.send_left(&self.store).await;
        }
        self.say_waiting(kept_up.as_ref().err());
        if let Ok(true) = kept_up {
            return Ok(NextStep::Again);
        }
        // The next step comes sooner than the rest after a failure, and until then pages are not
        // fresh for long.
        let is_cut_off = self.purged.is_cut_off();
        match kept_up {
            // At the start, the store is still being connected to.
            Err(_) if self.began.elapsed() < CONNECTING => {}
            Err(error) if is_cut_off && !self.refusal_logged.replace(true) => {
                tracing::warn!(%error, "purges cannot be received from the store: pages are fresh for a second only");
            }
            Ok(_) if !is_cut_off && self.refusal_logged.take() => {
                tracing::info!("purges are received from the store again");
            }
            Ok(_) | Err(_) => {}
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::select! {
            () = self.purged.nudged() => {}
            () = self.store.purge_announced() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
