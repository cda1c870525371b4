//! A bound on how often something may happen in a minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Counts events over the last minute, up to a bound.
#[derive(Debug)]
pub(super) struct PerMinute {
    most: usize,
    times: VecDeque<Instant>,
}

impl PerMinute {
    pub(super) fn new(most: usize) -> Self {
        Self { most, times: VecDeque::with_capacity(most) }
    }

    /// How long until a further event fits; `None`: it fits now.
    pub(super) fn wait(&mut self, now: Instant) -> Option<Duration> {
        while self.times.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.times.pop_front();
        }
        let first = self.times.front().filter(|_| self.times.len() >= self.most)?;
        Some(MINUTE.saturating_sub(now.duration_since(*first)))
    }

    /// Counts an event, if it fits.
    pub(super) fn count(&mut self, now: Instant) -> bool {
        let fits = self.wait(now).is_none();
        if fits {
            self.times.push_back(now);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_event_fits_a_minute_after_the_first_of_the_most() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut events = PerMinute::new(2);
        assert!(events.count(start) && events.count(start + 10 * second));
        assert!(!events.count(start + 20 * second));
        assert_eq!(events.wait(start + 20 * second), Some(40 * second));
        assert!(events.count(start + 60 * second));
        assert_eq!(events.wait(start + 60 * second), Some(10 * second));
    }
}
