//! Logs the cookies that keep pages out of the cache: once after many requests, and again for each new
//! cookie.

use std::collections::btree_map::Entry;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anteroom_proxy::{CookieKinds, cookie_hints, cookie_report};
use anteroom_store::StoreError;
use anteroom_telemetry::metrics::Metrics;

use crate::admin::FoundHints;
use crate::task::{NextStep, Task};

/// How often the counts are checked.
const EVERY: Duration = Duration::from_secs(2);

/// Checks the counts of cookies.
#[derive(Debug)]
pub(super) struct Hints {
    pub(super) kinds: CookieKinds,
    pub(super) metrics: Arc<Metrics>,
    /// The cookies that have been logged since the start, with what was said.
    pub(super) found: Arc<FoundHints>,
}

impl Task for Hints {
    const NAME: &'static str = "hints";

    async fn step(&self) -> Result<NextStep, StoreError> {
        let report = cookie_report(&self.kinds, &self.metrics.cookies());
        // A cookie with a share around the limit is logged only once.
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for cookie in cookie_hints(&report) {
            if let Entry::Vacant(place) = found.entry(format!("{} {}", cookie.class, cookie.name)) {
                let hint = cookie.hint.as_deref().unwrap_or_default();
                place.insert(hint.to_owned());
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
