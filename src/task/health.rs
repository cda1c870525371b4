//! Checks of health: the servers of an origin are asked from time to time whether they are well.

use std::rc::Rc;
use std::time::Duration;

use super::{Next, Task};
use crate::origin::{Check, Upstream};
use crate::store::StoreError;

/// The checks of one origin.
#[derive(Debug)]
pub struct Health {
    /// The origin, as this thread reaches it.
    pub upstream: Rc<Upstream>,
    /// What its servers are asked.
    pub check: Check,
    /// How often.
    pub every: Duration,
}

impl Task for Health {
    const NAME: &'static str = "health";
    /// Nobody waits for an answer at the stop.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<Next, StoreError> {
        self.upstream.check(&self.check).await;
        Ok(Next::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every).await;
    }
}
