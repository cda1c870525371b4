//! What the log tells of cookies that keep pages out of the cache: once there have been many requests, and
//! again when it is something else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::proxy::{CookieKinds, cookie_hints, cookie_report};
use crate::store::StoreError;
use crate::task::{Next, Task};
use crate::telemetry::metrics::Metrics;

/// How often the counts are looked at.
const EVERY: Duration = Duration::from_secs(2);

/// The names of which the log has told, from the start to the end.
pub(super) type Told = Mutex<BTreeSet<String>>;

/// Looks at what was counted of cookies.
#[derive(Debug)]
pub(super) struct Hints {
    pub(super) kinds: CookieKinds,
    pub(super) metrics: Arc<Metrics>,
    pub(super) told: Arc<Told>,
}

impl Task for Hints {
    const NAME: &'static str = "hints";

    async fn step(&self) -> Result<Next, StoreError> {
        let report = cookie_report(&self.kinds, &self.metrics.cookies());
        // One whose share wavers about the bound is not told of twice.
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for cookie in cookie_hints(&report) {
            if told.insert(format!("{} {}", cookie.class, cookie.name)) {
                let hint = cookie.hint.as_deref().unwrap_or_default();
                tracing::warn!("few pages come from the cache: {hint}; see anteroom top cookies");
            }
        }
        Ok(Next::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}
