//! Kept traces that wait for their receiver. Bounded; what does not fit is dropped by the caller, and counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::spans::FinishedRequest;

/// The most requests that wait.
const REQUESTS_MAX: usize = 4_096;
/// The most bytes that they take.
const BYTES_MAX: usize = 8 << 20;
/// So many spans are worth a request to the receiver.
const BATCH: usize = 512;

/// The traces that wait, oldest first. Added to by all threads, and taken from by one task.
#[derive(Debug, Default)]
pub struct TraceQueue {
    waiting: Mutex<WaitingTraces>,
    /// Told when a batch is complete.
    is_full: Notify,
}

#[derive(Debug, Default)]
struct WaitingTraces {
    requests: VecDeque<Arc<FinishedRequest>>,
    bytes: usize,
    spans: usize,
}

impl TraceQueue {
    /// Adds a request, if there is room.
    pub fn add(&self, request: FinishedRequest) -> bool {
        let (bytes, spans) = (request.bytes(), request.span_count());
        let mut waiting = self.lock();
        if waiting.requests.len() >= REQUESTS_MAX || waiting.bytes + bytes > BYTES_MAX {
            return false;
        }
        waiting.requests.push_back(Arc::new(request));
        waiting.bytes += bytes;
        let before = waiting.spans;
        waiting.spans += spans;
        if before < BATCH && waiting.spans >= BATCH {
            self.is_full.notify_one();
        }
        true
    }

    /// The oldest requests, with at most 512 spans, or one that has more; they stay until [`Self::remove`].
    #[must_use]
    pub fn batch(&self) -> Vec<Arc<FinishedRequest>> {
        let (waiting, mut spans) = (self.lock(), 0);
        let fits = |request: &&Arc<FinishedRequest>| {
            // A page with many fragments may have more by itself.
            let is_first = spans == 0;
            spans += request.span_count();
            is_first || spans <= BATCH
        };
        waiting.requests.iter().take_while(fits).cloned().collect()
    }

    /// Removes the oldest `count` requests.
    pub fn remove(&self, count: usize) {
        let mut waiting = self.lock();
        for _ in 0..count {
            let Some(request) = waiting.requests.pop_front() else { return };
            waiting.bytes -= request.bytes();
            waiting.spans -= request.span_count();
        }
    }

    /// Removes all; how many spans they had.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut *self.lock()).spans
    }

    /// Whether there are enough spans for a whole batch.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.lock().spans >= BATCH
    }

    /// Returns when there are.
    pub async fn batch_is_complete(&self) {
        while !self.has_batch() {
            self.is_full.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingTraces> {
        // Nothing that can panic is done between two changes that belong together.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::spans::example;

    #[test]
    fn the_queue_is_bounded_by_requests_and_by_bytes() {
        let queue = TraceQueue::default();
        let added = (0..10_000).filter(|_| queue.add(example())).count();
        assert_eq!(added, REQUESTS_MAX);
        let spans = queue.clear();
        assert_eq!(spans, REQUESTS_MAX * example().span_count());
        let long = || FinishedRequest { path: "x".repeat(1 << 20), ..example() };
        let added = (0..100).filter(|_| queue.add(long())).count();
        assert_eq!(added, 7);
    }

    #[test]
    fn a_batch_stays_until_it_is_removed() {
        let queue = TraceQueue::default();
        assert!(queue.batch().is_empty());
        let each = example().span_count();
        for _ in 0..=BATCH / each {
            assert!(queue.add(example()));
        }
        assert!(queue.has_batch());
        let batch = queue.batch();
        assert_eq!((batch.len(), queue.batch().len()), (BATCH / each, BATCH / each));
        queue.remove(batch.len());
        assert_eq!(queue.batch().len(), 1);
        assert!(!queue.has_batch());
        queue.remove(5);
        assert_eq!(queue.lock().bytes, 0);
    }

    #[test]
    fn a_request_with_more_spans_than_a_batch_is_sent_alone() {
        let queue = TraceQueue::default();
        let parts = vec![example(); BATCH / example().span_count()];
        for _ in 0..2 {
            assert!(queue.add(FinishedRequest { parts: parts.clone(), ..example() }));
        }
        assert_eq!(queue.batch().len(), 1);
    }

    #[tokio::test]
    async fn a_complete_batch_is_told() {
        let queue = Arc::new(TraceQueue::default());
        let other = Arc::clone(&queue);
        let adding = async move {
            for _ in 0..BATCH {
                other.add(example());
            }
        };
        tokio::join!(queue.batch_is_complete(), adding);
        assert!(queue.has_batch());
    }
}
