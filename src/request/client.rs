//! The client connection, as far as a request may know it.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Waker;

use bytes::Bytes;
use tokio::time::Instant;

use super::interim::{self, Line};

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
        })
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
    phase: Cell<Phase>,
    since: Cell<Instant>,
    timed_out: Cell<bool>,
    looks_whole: Cell<bool>,
    /// Interim responses to the request in work.
    interims: interim::Receiver,
}

impl Pulse {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            phase: Cell::new(Phase::Head),
            since: Cell::new(Instant::now()),
            timed_out: Cell::new(false),
            looks_whole: Cell::new(false),
            interims: interim::Receiver::default(),
        })
    }

    /// Interim responses to the request in work come on `line`.
    pub(super) fn listen(&self, line: Line) {
        self.interims.set(Some(line));
    }

    /// No more of them come: the response itself is there, or never will be.
    pub(super) fn hang_up(&self) {
        self.interims.set(None);
    }

    /// Interim responses that are to be sent now. Wakes whoever asks when there are more.
    #[must_use]
    pub fn interims(&self, waker: &Waker) -> Bytes {
        self.interims.take(waker)
    }

    /// A request's head is there: the client waits for us.
    pub fn request_begins(&self) {
        self.phase.set(Phase::Answer);
    }

    /// The response has been handed over: we wait for the client.
    pub fn request_ends(&self) {
        self.phase.set(Phase::Idle);
        self.since.set(Instant::now());
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

    /// Bytes came from the client.
    pub fn bytes_came(&self) {
        if self.phase.get() == Phase::Idle {
            self.phase.set(Phase::Head);
            self.since.set(Instant::now());
        }
    }

    /// What the connection waits for, and since when.
    #[must_use]
    pub fn waits(&self) -> (Phase, Instant) {
        (self.phase.get(), self.since.get())
    }

    /// A deadline ended the connection.
    pub fn ran_out_of_time(&self) {
        self.timed_out.set(true);
    }
}
