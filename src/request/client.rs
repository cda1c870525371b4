//! The client connection, as far as a request may know it.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use tokio::time::Instant;

use crate::http::peer::Peer;
use crate::origin::BoundSlot;

/// A client connection.
#[derive(Debug)]
pub struct Client {
    /// The peer of the socket, or whom a load balancer told.
    pub peer: Peer,
    /// The address of our side of the socket; of a Unix socket, this machine's.
    pub local: IpAddr,
    /// The connection's state: whoever answers says when a request begins and ends.
    pub pulse: Rc<Pulse>,
    /// The origin connection that a log-in by NTLM or Negotiate bound to this one.
    pub bound: BoundSlot,
    /// Whether such a log-in was ever seen here: then nothing is pooled, stored or shared.
    is_bound: Cell<bool>,
    /// Whether requests stand side by side on it, as in HTTP/2: none of them can have it alone.
    is_multiplexed: Cell<bool>,
    /// Whether a load balancer stands before the client, who may speak another scheme to it.
    is_balanced: Cell<bool>,
}

impl Client {
    /// The connection of `peer` to us at `local`.
    #[must_use]
    pub fn new(peer: Peer, local: IpAddr, pulse: Rc<Pulse>) -> Rc<Self> {
        Rc::new(Self {
            peer,
            local: local.to_canonical(),
            pulse,
            bound: BoundSlot::default(),
            is_bound: Cell::new(false),
            is_multiplexed: Cell::new(false),
            is_balanced: Cell::new(false),
        })
    }

    /// It speaks HTTP/2; `is_balanced`: through a load balancer.
    pub fn multiplexes(&self, is_balanced: bool) {
        self.is_multiplexed.set(true);
        self.is_balanced.set(is_balanced);
        self.pulse.heads_are_told();
    }

    /// Whether requests stand side by side on it.
    #[must_use]
    pub fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.get()
    }

    /// Whether a load balancer stands before a client that speaks HTTP/2.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.is_balanced.get()
    }

    /// Whether a log-in by NTLM or Negotiate was ever seen here.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.is_bound.get()
    }

    /// A log-in by NTLM or Negotiate was seen here.
    pub fn bind(&self) {
        self.is_bound.set(true);
    }
}

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For the rest of a head, or for the very first one.
    Head,
    /// For another request.
    Idle,
    /// For us: a request is being answered.
    Answer,
}

/// The connection's state, shared by its socket and by whoever answers on it.
#[derive(Debug)]
pub struct Pulse {
    /// Requests that are being answered.
    open: Cell<usize>,
    /// Since when the rest of a head is waited for.
    head_since: Cell<Option<Instant>>,
    /// Since when nothing is.
    idle_since: Cell<Instant>,
    /// Whether we are told of heads, and need not guess by the bytes that come.
    is_told: Cell<bool>,
    timed_out: Cell<bool>,
    looks_whole: Cell<bool>,
    /// Whether a write does not move.
    stalled: Cell<bool>,
    /// Whether the last request has a body, which may be on its way still when that was answered.
    body_came: Cell<bool>,
}

impl Pulse {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new() -> Rc<Self> {
        let now = Instant::now();
        Rc::new(Self {
            open: Cell::new(0),
            head_since: Cell::new(Some(now)),
            idle_since: Cell::new(now),
            is_told: Cell::new(false),
            timed_out: Cell::new(false),
            looks_whole: Cell::new(false),
            stalled: Cell::new(false),
            body_came: Cell::new(false),
        })
    }

    /// A request's head is there: the client waits for us.
    pub fn request_begins(&self) {
        self.open.update(|open| open + 1);
        if !self.is_told.get() {
            self.head_since.set(None);
        }
    }

    /// The response has been handed over: unless others are being answered, we wait for the client.
    pub fn request_ends(&self) {
        self.open.update(|open| open.saturating_sub(1));
        self.idle_since.set(Instant::now());
    }

    /// Whether a deadline ended the connection.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.timed_out.get()
    }

    /// A response broke off whose end the client knows by the end of the connection only.
    pub fn response_broke_off(&self) {
        self.looks_whole.set(true);
    }

    /// Whether the connection must not end in the usual way: what came would pass for all.
    #[must_use]
    pub fn looks_whole(&self) -> bool {
        self.looks_whole.get()
    }

    /// Bytes came from the client: between requests, another's.
    pub fn bytes_came(&self) {
        if !self.is_told.get() && self.open.get() == 0 && self.head_since.get().is_none() {
            self.head_since.set(Some(Instant::now()));
        }
    }

    /// From now on somebody reads along and tells of heads.
    pub fn heads_are_told(&self) {
        self.is_told.set(true);
    }

    /// The client is in the middle of a head, or of what must come before, and was in that of another
    /// when bytes came the last time.
    pub fn head_begins(&self) {
        self.head_since.set(Some(Instant::now()));
    }

    /// The client is in the middle of a head, maybe the same as before.
    pub fn head_goes_on(&self) {
        if self.head_since.get().is_none() {
            self.head_begins();
        }
    }

    /// The client is in the middle of nothing. The first time is the beginning of its being idle.
    pub fn head_ends(&self) {
        let first = self.head_since.take();
        if first == Some(self.idle_since.get()) {
            self.idle_since.set(Instant::now());
        }
    }

    /// A write does not move, or does again.
    pub fn stalls(&self, stalls: bool) {
        self.stalled.set(stalls);
    }

    /// The request that begins has a body, or none.
    pub fn takes_body(&self, takes: bool) {
        self.body_came.set(takes);
    }

    /// Whether nothing is on its way either way, when no request is being answered.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        !self.stalled.get() && !self.body_came.get()
    }

    /// What the connection waits for, and since when.
    #[must_use]
    pub fn waits(&self) -> (Phase, Instant) {
        match self.head_since.get() {
            Some(since) => (Phase::Head, since),
            None if self.open.get() > 0 => (Phase::Answer, self.idle_since.get()),
            None => (Phase::Idle, self.idle_since.get()),
        }
    }

    /// A deadline ended the connection.
    pub fn ran_out_of_time(&self) {
        self.timed_out.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_when_its_last_request_has_ended() {
        let pulse = Pulse::new();
        assert_eq!(pulse.waits().0, Phase::Head);
        pulse.request_begins();
        pulse.request_begins();
        pulse.request_ends();
        pulse.bytes_came();
        assert_eq!(pulse.waits().0, Phase::Answer);
        pulse.request_ends();
        assert_eq!(pulse.waits().0, Phase::Idle);
        pulse.bytes_came();
        assert_eq!(pulse.waits().0, Phase::Head);
    }

    #[test]
    fn a_head_that_is_told_of_has_its_deadline_beside_other_requests() {
        let pulse = Pulse::new();
        pulse.heads_are_told();
        pulse.bytes_came();
        assert_eq!(pulse.waits().0, Phase::Head, "before the first head, or the preface");
        pulse.head_ends();
        assert_eq!(pulse.waits().0, Phase::Idle);
        pulse.request_begins();
        pulse.bytes_came();
        assert_eq!(pulse.waits().0, Phase::Answer);
        pulse.head_goes_on();
        let (phase, since) = pulse.waits();
        assert_eq!(phase, Phase::Head);
        pulse.head_goes_on();
        assert_eq!(pulse.waits(), (Phase::Head, since));
        pulse.head_ends();
        assert_eq!(pulse.waits().0, Phase::Answer);
        pulse.request_ends();
        assert_eq!(pulse.waits().0, Phase::Idle);
    }
}
