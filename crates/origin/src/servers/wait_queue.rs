//! The queue of requests that wait for a server: first come, first served. A request that waits for one
//! server is overtaken by requests that accept any.

use std::collections::VecDeque;

/// A waiting request, and the channel that notifies it.
#[derive(Debug)]
struct Waiter<T> {
    number: u64,
    wants: WaitsFor,
    tell: T,
}

/// Which server a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// Any.
    Any,
    /// Any but the one that has failed it.
    Not(usize),
    /// This one.
    Only(usize),
}

impl WaitsFor {
    pub(super) fn takes(self, server: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Not(other) => other != server,
            Self::Only(wanted) => wanted == server,
        }
    }
}

/// A bounded queue.
#[derive(Debug)]
pub(super) struct WaitQueue<T> {
    waiters: VecDeque<Waiter<T>>,
    max: usize,
    next: u64,
}

impl<T> WaitQueue<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { waiters: VecDeque::new(), max, next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Appends to the queue and returns a ticket number; `None` if the queue is full.
    pub(super) fn join(&mut self, wants: WaitsFor, tell: T) -> Option<u64> {
        if self.waiters.len() >= self.max {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.waiters.push_back(Waiter { number, wants, tell });
        Some(number)
    }

    /// Removes the first request that accepts this server.
    pub(super) fn first_for(&mut self, server: usize) -> Option<T> {
        let at = self.waiters.iter().position(|waiter| waiter.wants.takes(server))?;
        self.waiters.remove(at).map(|waiter| waiter.tell)
    }

    /// Removes the requests that wait for none of the servers that are up, so that they look again or fail.
    pub(super) fn dismiss(&mut self, is_up: impl Fn(usize) -> bool, servers: usize) {
        let can_hope =
            |wants: WaitsFor| (0..servers).any(|server| wants.takes(server) && is_up(server));
        self.waiters.retain(|waiter| can_hope(waiter.wants));
    }

    /// The request no longer waits.
    pub(super) fn leave(&mut self, number: u64) {
        self.waiters.retain(|waiter| waiter.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_served_in_order() {
        let mut line = WaitQueue::new(4);
        for (wants, name) in [
            (WaitsFor::Only(1), "for 1"),
            (WaitsFor::Not(0), "not 0"),
            (WaitsFor::Any, "any"),
            (WaitsFor::Any, "later"),
        ] {
            assert!(line.join(wants, name).is_some());
        }
        assert_eq!(line.join(WaitsFor::Any, "too many"), None);
        assert_eq!(line.first_for(0), Some("any"));
        assert_eq!(line.first_for(1), Some("for 1"));
        assert_eq!(line.first_for(1), Some("not 0"));
        assert_eq!(line.first_for(2), Some("later"));
        assert_eq!(line.first_for(2), None);
    }

    #[test]
    fn a_departed_or_dismissed_waiter_makes_room() {
        let mut line = WaitQueue::new(2);
        let first = line.join(WaitsFor::Any, 'a').unwrap();
        line.join(WaitsFor::Only(3), 'b').unwrap();
        line.leave(first);
        line.dismiss(|server| server != 3, 4);
        assert_eq!((line.len(), line.first_for(3)), (0, None));
        line.join(WaitsFor::Any, 'c').unwrap();
        line.join(WaitsFor::Not(1), 'd').unwrap();
        line.dismiss(|server| server == 1, 4);
        assert_eq!(line.len(), 1);
        line.dismiss(|_| false, 4);
        assert_eq!(line.len(), 0);
    }
}
