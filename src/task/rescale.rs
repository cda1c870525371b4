//! Rescales the popularity of items.

use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_session::visit::rescale::rescale_viewed;
use anteroom_store::{AnyStore, RescaleResult, Rescaling, StoreError};

use super::{NextStep, Task};

/// The longest pause between two checks: the store knows when it was last done, also by another
/// process.
const LOOK: Duration = Duration::from_secs(5);

/// `rescale_viewed`.
#[derive(Debug)]
pub struct Rescale {
    /// The store.
    pub store: AnyStore,
    /// The items to keep.
    pub keep_top: u64,
    /// The factor for each score, 0 to 1.
    pub factor: f64,
    /// How often.
    pub every: Duration,
}

impl Task for Rescale {
    const NAME: &'static str = "rescale_viewed";

    async fn step(&self) -> Result<NextStep, StoreError> {
        let Self { keep_top, factor, every, .. } = *self;
        let how = Rescaling { keep_top, factor, every, now: unix_now() };
        Ok(match rescale_viewed(&self.store, how).await? {
            RescaleResult::Begun => NextStep::Again,
            RescaleResult::NotYet => NextStep::Idle,
            RescaleResult::Done => {
                tracing::debug!("the popularity of items was rescaled");
                NextStep::Idle
            }
        })
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every.min(LOOK)).await;
    }
}
