//! Requests that the proxy sends to an origin of its own accord, such as those that refresh pages ahead of
//! their expiry. They get a small share of an origin, and none while it is slow or fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most such requests at an origin at a time, from all threads.
const AT_ONCE: u32 = 2;
/// An origin is slow if such a request takes longer than this, body included.
const SLOW: Duration = Duration::from_secs(2);
/// How long a slow or failing origin gets no such requests.
const REST: Duration = Duration::from_secs(5);

/// The requests of this kind at one origin, as all threads see them.
#[derive(Debug, Default)]
pub(super) struct BackgroundRequests(Mutex<BackgroundState>);

#[derive(Debug, Default)]
struct BackgroundState {
    busy: u32,
    rests_until: Option<Instant>,
}

/// A place for one such request, until it is dropped.
#[derive(Debug)]
pub struct BackgroundSlot {
    requests: Arc<BackgroundRequests>,
    begun: Instant,
    has_failed: bool,
}

impl BackgroundRequests {
    /// A place, unless all are taken or the origin rests.
    pub(super) fn take(self: &Arc<Self>, now: Instant) -> Option<BackgroundSlot> {
        let mut state = self.lock();
        if state.busy >= AT_ONCE || state.rests_until.is_some_and(|until| now < until) {
            return None;
        }
        state.busy += 1;
        Some(BackgroundSlot { requests: Arc::clone(self), begun: now, has_failed: false })
    }

    fn give_back(&self, has_failed: bool, begun: Instant, now: Instant) {
        let mut state = self.lock();
        state.busy = state.busy.saturating_sub(1);
        if has_failed || now.duration_since(begun) > SLOW {
            state.rests_until = Some(now + REST);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BackgroundState> {
        // No code that holds this lock panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackgroundSlot {
    /// The origin has failed the request.
    pub fn fail(&mut self) {
        self.has_failed = true;
    }
}

impl Drop for BackgroundSlot {
    fn drop(&mut self) {
        self.requests.give_back(self.has_failed, self.begun, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_origin_gets_two_at_a_time() {
        let requests = Arc::new(BackgroundRequests::default());
        let take = || requests.take(Instant::now());
        let (first, _second) = (take().unwrap(), take().unwrap());
        assert!(take().is_none());
        drop(first);
        assert!(take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_origin_that_fails_or_is_slow_rests() {
        let requests = Arc::new(BackgroundRequests::default());
        let take = || requests.take(Instant::now());
        take().unwrap().fail();
        assert!(take().is_none(), "it has failed");
        tokio::time::advance(REST).await;
        let slow = take().unwrap();
        tokio::time::advance(SLOW + Duration::from_millis(1)).await;
        drop(slow);
        assert!(take().is_none(), "it is slow");
        tokio::time::advance(REST).await;
        assert!(take().is_some());
    }
}
