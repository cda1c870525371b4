//! The only reader of the system clock. Below the edge, time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far this process is ahead of the system, in milliseconds: 0 but in tests.
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// Unix time in seconds. A clock before 1970 reads as 0.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn unix_now() -> f64 {
    let ahead = Duration::from_millis(AHEAD.load(Ordering::Relaxed));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since + ahead).as_secs_f64()
}

/// Sets this process's clock forward. For tests that run a proxy in their own process: hours cost
/// them nothing.
pub fn advance(by: Duration) {
    let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
    AHEAD.fetch_add(millis, Ordering::Relaxed);
}
