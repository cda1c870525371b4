//! Health checks of the servers of an origin.

use std::rc::Rc;
use std::time::Duration;

use anteroom_origin::{HealthCheck, Upstream};
use anteroom_store::StoreError;

use super::{NextStep, Task};

/// The health checks of one origin.
#[derive(Debug)]
pub struct HealthChecks {
    /// The origin, for this thread.
    pub upstream: Rc<Upstream>,
    /// The check's request.
    pub check: HealthCheck,
    /// How often.
    pub every: Duration,
}

impl Task for HealthChecks {
    const NAME: &'static str = "health";
    /// The stop does not wait for an answer.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        self.upstream.check(&self.check).await;
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every).await;
    }
}
