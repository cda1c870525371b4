//! The flusher: writes down the visits that wait in the queue.

use std::sync::Arc;

use super::{Next, Task};
use crate::store::{AnyStore, StoreError};
use crate::visit::VisitQueue;

/// Drains the visit queue as it falls due.
#[derive(Debug)]
pub struct Visits {
    /// The store.
    pub store: AnyStore,
    /// The queue.
    pub queue: Arc<VisitQueue>,
}

impl Task for Visits {
    const NAME: &'static str = "visits";

    /// A store that refuses is no failure here: what was refused waits in the queue, which also
    /// keeps the back-off.
    async fn step(&self) -> Result<Next, StoreError> {
        let progress = self.queue.drain(&self.store).await;
        if let Some(error) = &progress.failure {
            tracing::debug!(%error, waiting = self.queue.backlog(), "visits wait for the store");
        }
        Ok(if progress.more && progress.failure.is_none() { Next::Again } else { Next::Idle })
    }

    async fn rest(&self) {
        self.queue.due().await;
    }
}
