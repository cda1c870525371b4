//! Rescales the popularity of items.

use std::time::Duration;

use super::{Next, Task};
use crate::clock::unix_now;
use crate::session::visit::rescale::rescale_viewed;
use crate::store::{AnyStore, Rescaled, Rescaling, StoreError};

/// The longest pause between two looks at whether it is time: the store knows when it was done last,
/// also by another process.
const LOOK: Duration = Duration::from_secs(5);

/// `rescale_viewed`.
#[derive(Debug)]
pub struct Rescale {
    /// The store.
    pub store: AnyStore,
    /// Items that stay.
    pub keep_top: u64,
    /// What is left of each score, 0 to 1.
    pub factor: f64,
    /// How often.
    pub every: Duration,
}

impl Task for Rescale {
    const NAME: &'static str = "rescale_viewed";

    async fn step(&self) -> Result<Next, StoreError> {
        let Self { keep_top, factor, every, .. } = *self;
        let how = Rescaling { keep_top, factor, every, now: unix_now() };
        Ok(match rescale_viewed(&self.store, how).await? {
            Rescaled::Begun => Next::Again,
            Rescaled::NotYet => Next::Idle,
            Rescaled::Done => {
                tracing::debug!("the popularity of items was rescaled");
                Next::Idle
            }
        })
    }

    async fn rest(&self) {
        tokio::time::sleep(self.every.min(LOOK)).await;
    }
}
