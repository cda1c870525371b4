//! Finishes logins that a process has left half done, in a store where they take more than one step.

use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_store::{AnyStore, LogInStore as _, StoreError};

use super::{NextStep, Task};

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(10);

/// Finishes what others have begun.
#[derive(Debug)]
pub struct Handovers {
    /// The store.
    pub store: AnyStore,
}

impl Task for Handovers {
    const NAME: &'static str = "finish_handovers";

    async fn step(&self) -> Result<NextStep, StoreError> {
        let finished = self.store.finish_handovers(unix_now()).await?;
        if finished > 0 {
            tracing::info!(finished, "logins that were left half done are finished");
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}
