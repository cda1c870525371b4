//! The retry budget: in an outage, retries must not multiply the load. Pure.

use tokio::time::Instant;

/// Retries that are always allowed per second.
const A_SECOND: f64 = 10.0;
/// The most that is saved up.
const SAVED_MAX: f64 = 100.0;

/// How many requests may be sent again.
#[derive(Debug)]
pub(super) struct Budget {
    /// The fraction of a retry that each request allows.
    part: f64,
    saved: f64,
    at: Instant,
}

impl Budget {
    /// A budget of `percent` retries per hundred requests; 0 allows none at all.
    pub(super) fn new(percent: u32, now: Instant) -> Self {
        let part = f64::from(percent) / 100.0;
        Self { part, saved: if percent == 0 { 0.0 } else { A_SECOND }, at: now }
    }

    /// A request is sent for the first time.
    pub(super) fn request(&mut self) {
        self.saved = (self.saved + self.part).min(SAVED_MAX);
    }

    /// Whether one may be sent again.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.part == 0.0 {
            return false;
        }
        let since = now.saturating_duration_since(self.at);
        self.at = now;
        self.saved = (self.saved + since.as_secs_f64() * A_SECOND).min(SAVED_MAX);
        let is_enough = self.saved >= 1.0;
        if is_enough {
            self.saved -= 1.0;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_part_of_the_requests_and_some_a_second_are_sent_again() {
        let now = Instant::now();
        let mut budget = Budget::new(10, now);
        let taken = |budget: &mut Budget, now| (0..10_000).filter(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, now), 10);
        (0..505).for_each(|_| budget.request());
        assert_eq!(taken(&mut budget, now), 50);
        assert_eq!(taken(&mut budget, now + Duration::from_secs(2)), 20);
        (0..100_000).for_each(|_| budget.request());
        assert_eq!(taken(&mut budget, now + Duration::from_secs(99)), 100);
    }

    #[test]
    fn none_is_none() {
        let now = Instant::now();
        let mut budget = Budget::new(0, now);
        (0..1_000).for_each(|_| budget.request());
        assert!(!budget.take(now + Duration::from_secs(9)));
    }
}
