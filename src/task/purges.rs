//! What other processes on the store have purged, and what they shall hear of us.

use std::sync::Arc;
use std::time::Duration;

use super::{Next, Task};
use crate::page::purge::Purged;
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
}

impl Task for Purges {
    const NAME: &'static str = "purges";
    /// What was not sent is lost with the pages that this process had.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<Next, StoreError> {
        let learnt = match self.purged.learn(&self.store).await {
            Ok(true) => return Ok(Next::Again),
            Ok(false) => self.purged.send_left(&self.store).await,
            Err(error) => Err(error),
        };
        // The next look comes sooner than the rest after a failure, and until then no page is fresh
        // for long.
        if let Err(error) = learnt {
            tracing::debug!(%error, "the store does not tell of purges");
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
