//! The way of interim responses from a request's origin connection to its client's socket.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::{Bytes, BytesMut};

/// The most bytes of them that wait for a client's socket.
const WAITING_MAX: usize = 16 * 1024;

/// What waits for a client's socket.
#[derive(Debug, Default)]
struct Waiting {
    bytes: BytesMut,
    waker: Option<Waker>,
}

/// The way from a request's origin connection to its client's socket. One for each request: what comes
/// for one that is over finds nobody.
#[derive(Clone, Debug, Default)]
pub(in crate::proxy) struct Line(Arc<Mutex<Waiting>>);

impl Line {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a head for the socket; false where it has no room.
    pub(in crate::proxy) fn leave(&self, head: &[u8]) -> bool {
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

    /// What is to be sent now. Wakes whoever asks when there is more.
    #[must_use]
    pub(in crate::proxy) fn take(&self, waker: &Waker) -> Bytes {
        let mut waiting = self.waiting();
        waiting.waker = Some(waker.clone());
        waiting.bytes.split().freeze()
    }
}

/// Where a connection's socket finds the line of the request in work.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Receiver {
    line: RefCell<Option<Line>>,
    /// The connection's task: a request that another task answers is not seen to begin by the socket.
    socket: RefCell<Option<Waker>>,
}

impl Receiver {
    pub(in crate::proxy) fn set(&self, line: Option<Line>) {
        if let (Some(line), Some(socket)) = (&line, &*self.socket.borrow()) {
            line.waiting().waker = Some(socket.clone());
        }
        self.line.replace(line);
    }

    pub(in crate::proxy) fn take(&self, waker: &Waker) -> Bytes {
        let mut socket = self.socket.borrow_mut();
        // PERF: it is the same task all along, as a rule.
        if !socket.as_ref().is_some_and(|socket| socket.will_wake(waker)) {
            *socket = Some(waker.clone());
        }
        self.line.borrow().as_ref().map_or_else(Bytes::new, |line| line.take(waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_has_a_bound() {
        let line = Line::default();
        let head = vec![b'x'; WAITING_MAX / 2];
        assert!(line.leave(&head) && line.leave(&head) && !line.leave(&head));
        assert_eq!(line.take(Waker::noop()).len(), WAITING_MAX);
        assert!(line.leave(&head));
    }
}
