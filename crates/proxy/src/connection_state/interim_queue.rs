//! Transfers interim responses from a request's origin connection to its client's socket.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::{Bytes, BytesMut};

/// The most bytes of interim responses that wait for a client's socket.
const WAITING_MAX: usize = 16 * 1024;

/// Interim responses that wait for a client's socket.
#[derive(Debug, Default)]
struct QueuedInterim {
    bytes: BytesMut,
    waker: Option<Waker>,
}

/// Transfers the interim responses of one request from the origin connection to the client's socket.
/// Each request has its own line, so that responses to a finished request are dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct InterimQueue(Arc<Mutex<QueuedInterim>>);

impl InterimQueue {
    fn waiting(&self) -> MutexGuard<'_, QueuedInterim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a head for the socket; false if the queue is full.
    pub(crate) fn leave(&self, head: &[u8]) -> bool {
        let mut waiting = self.waiting();
        if waiting.bytes.len() + head.len() > WAITING_MAX {
            return false;
        }
        waiting.bytes.extend_from_slice(head);
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
        true
    }

    /// Takes the bytes to send now. Wakes the caller's task when there are more.
    #[must_use]
    pub(crate) fn take(&self, waker: &Waker) -> Bytes {
        let mut waiting = self.waiting();
        waiting.waker = Some(waker.clone());
        waiting.bytes.split().freeze()
    }
}

/// Gives a connection's socket the line of the request in progress.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    queue: RefCell<Option<InterimQueue>>,
    /// The connection's task. The socket does not notice when another task starts to answer a request.
    socket: RefCell<Option<Waker>>,
}

impl Receiver {
    pub(crate) fn set(&self, line: Option<InterimQueue>) {
        if let (Some(line), Some(socket)) = (&line, &*self.socket.borrow()) {
            line.waiting().waker = Some(socket.clone());
        }
        self.queue.replace(line);
    }

    pub(crate) fn take(&self, waker: &Waker) -> Bytes {
        let mut socket = self.socket.borrow_mut();
        // PERF: it usually is the same task.
        if !socket.as_ref().is_some_and(|socket| socket.will_wake(waker)) {
            *socket = Some(waker.clone());
        }
        self.queue.borrow().as_ref().map_or_else(Bytes::new, |line| line.take(waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded() {
        let line = InterimQueue::default();
        let head = vec![b'x'; WAITING_MAX / 2];
        assert!(line.leave(&head) && line.leave(&head) && !line.leave(&head));
        assert_eq!(line.take(Waker::noop()).len(), WAITING_MAX);
        assert!(line.leave(&head));
    }
}
