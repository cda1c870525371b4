//! Logouts that the store did not take at once.

use std::sync::Arc;
use std::time::Duration;

use anteroom_session::Sessions;
use anteroom_store::{AnyStore, StoreError};

use super::{NextStep, Task};

/// How often they are retried.
const PAUSE: Duration = Duration::from_millis(250);

/// Retries the waiting logouts.
#[derive(Debug)]
pub struct LogOuts {
    /// The store.
    pub store: AnyStore,
    /// The sessions.
    pub sessions: Arc<Sessions>,
}

impl Task for LogOuts {
    const NAME: &'static str = "log_outs";

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.sessions.flush_log_outs(&self.store).await;
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(PAUSE).await;
    }
}
