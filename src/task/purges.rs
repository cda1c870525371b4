//! What other processes on the store have purged, and what they shall hear of us.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::{Next, Task};
use crate::cache::purge::Purged;
use crate::store::{AnyStore, StoreError};

/// How often the store is asked, told of a purge or not.
const EVERY: Duration = Duration::from_millis(250);

/// Keeps this process's table of purges complete.
#[derive(Debug)]
pub struct Purges {
    /// The store.
    pub store: AnyStore,
    /// The table.
    pub purged: Arc<Purged>,
    /// Whether it was said that the store does not tell.
    pub said: Cell<bool>,
    /// Whether it was said that it does not take what this process purges.
    pub said_waiting: Cell<bool>,
}

impl Purges {
    /// Says when the store begins not to take purges, and when it has them all.
    fn say_waiting(&self, failure: Option<&StoreError>) {
        let (waiting, _) = self.purged.waiting();
        match failure {
            Some(error) if waiting > 0 && !self.said_waiting.replace(true) => {
                tracing::warn!(%error, waiting, "purges do not reach the store: they hold in this process, and are sent again");
            }
            None if waiting == 0 && self.said_waiting.take() => {
                tracing::info!("all purges have reached the store");
            }
            Some(_) | None => {}
        }
    }
}

impl Task for Purges {
    const NAME: &'static str = "purges";
    /// What was not sent is sent at the end.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<Next, StoreError> {
        let kept_up = self.purged.keep_up(&self.store).await;
        self.say_waiting(kept_up.as_ref().err());
        if let Ok(true) = kept_up {
            return Ok(Next::Again);
        }
        // The next look comes sooner than the rest after a failure, and until then no page is fresh
        // for long.
        let is_cut_off = self.purged.is_cut_off();
        match kept_up {
            Err(error) if is_cut_off && !self.said.replace(true) => {
                tracing::warn!(%error, "the store does not tell of purges: pages are fresh for a second");
            }
            Ok(_) if !is_cut_off && self.said.take() => {
                tracing::info!("the store tells of purges again");
            }
            Ok(_) | Err(_) => {}
        }
        Ok(Next::Idle)
    }

    async fn rest(&self) {
        tokio::select! {
            () = self.purged.nudged() => {}
            () = self.store.purge_told() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
