//! Logs the cookies that keep pages out of the cache: once after many requests, and again for each new
//! cookie.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::proxy::{CookieKinds, cookie_hints, cookie_report};
use crate::store::StoreError;
use crate::task::{NextStep, Task};
use crate::telemetry::metrics::Metrics;

/// How often the counts are checked.
const EVERY: Duration = Duration::from_secs(2);

/// The cookies that have been logged since the start.
pub(super) type HintedCookies = Mutex<BTreeSet<String>>;

/// Checks the counts of cookies.
#[derive(Debug)]
pub(super) struct Hints {
    pub(super) kinds: CookieKinds,
    pub(super) metrics: Arc<Metrics>,
    pub(super) hinted: Arc<HintedCookies>,
}

impl Task for Hints {
    const NAME: &'static str = "hints";

    async fn step(&self) -> Result<NextStep, StoreError> {
        let report = cookie_report(&self.kinds, &self.metrics.cookies());
        // A cookie with a share around the limit is logged only once.
        let mut hinted = self.hinted.lock().unwrap_or_else(PoisonError::into_inner);
        for cookie in cookie_hints(&report) {
            if hinted.insert(format!("{} {}", cookie.class, cookie.name)) {
                let hint = cookie.hint.as_deref().unwrap_or_default();
                tracing::warn!(
                    "few requests are answered from the cache: {hint}; see anteroom top cookies"
                );
            }
        }
        Ok(NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}
