//! The line of requests that wait for a server. It is first come, first served; who waits for one server
//! lets those go past who take any.

use std::collections::VecDeque;

/// Who waits, and how he is told.
#[derive(Debug)]
struct Waiter<T> {
    number: u64,
    wants: Wants,
    tell: T,
}

/// For which server somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Any.
    Any,
    /// Any but the one that has failed him.
    Not(usize),
    /// This one.
    Only(usize),
}

impl Wants {
    pub(super) fn takes(self, server: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Not(other) => other != server,
            Self::Only(wanted) => wanted == server,
        }
    }
}

/// A bounded line.
#[derive(Debug)]
pub(super) struct Line<T> {
    waiters: VecDeque<Waiter<T>>,
    max: usize,
    next: u64,
}

impl<T> Line<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { waiters: VecDeque::new(), max, next: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Stands at the end of the line, and returns his number; `None` where it is full.
    pub(super) fn join(&mut self, wants: Wants, tell: T) -> Option<u64> {
        if self.waiters.len() >= self.max {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.waiters.push_back(Waiter { number, wants, tell });
        Some(number)
    }

    /// The first who takes a place at this server.
    pub(super) fn first_for(&mut self, server: usize) -> Option<T> {
        let at = self.waiters.iter().position(|waiter| waiter.wants.takes(server))?;
        self.waiters.remove(at).map(|waiter| waiter.tell)
    }

    /// Those who wait for none of the servers that are up go, to look for another, or to be told.
    pub(super) fn dismiss(&mut self, is_up: impl Fn(usize) -> bool, servers: usize) {
        let can_hope =
            |wants: Wants| (0..servers).any(|server| wants.takes(server) && is_up(server));
        self.waiters.retain(|waiter| can_hope(waiter.wants));
    }

    /// He waits no longer.
    pub(super) fn leave(&mut self, number: u64) {
        self.waiters.retain(|waiter| waiter.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_served_first() {
        let mut line = Line::new(4);
        for (wants, name) in [
            (Wants::Only(1), "for 1"),
            (Wants::Not(0), "not 0"),
            (Wants::Any, "any"),
            (Wants::Any, "later"),
        ] {
            assert!(line.join(wants, name).is_some());
        }
        assert_eq!(line.join(Wants::Any, "too many"), None);
        assert_eq!(line.first_for(0), Some("any"));
        assert_eq!(line.first_for(1), Some("for 1"));
        assert_eq!(line.first_for(1), Some("not 0"));
        assert_eq!(line.first_for(2), Some("later"));
        assert_eq!(line.first_for(2), None);
    }

    #[test]
    fn who_leaves_or_is_dismissed_makes_room() {
        let mut line = Line::new(2);
        let first = line.join(Wants::Any, 'a').unwrap();
        line.join(Wants::Only(3), 'b').unwrap();
        line.leave(first);
        line.dismiss(|server| server != 3, 4);
        assert_eq!((line.len(), line.first_for(3)), (0, None));
        line.join(Wants::Any, 'c').unwrap();
        line.join(Wants::Not(1), 'd').unwrap();
        line.dismiss(|server| server == 1, 4);
        assert_eq!(line.len(), 1);
        line.dismiss(|_| false, 4);
        assert_eq!(line.len(), 0);
    }
}
