//! The only reader of the system clock. Below the edge, time is an argument.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in seconds. A clock before 1970 reads as 0.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that asks")]
pub fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
