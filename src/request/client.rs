//! The client connection, as far as a request may know it.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::http::HeaderValue;
use tokio::time::Instant;

use crate::http::client_cert::ClientCertificate;
use crate::http::host::{Host, Scheme};
use crate::http::path::PathPattern;
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
    /// What goes for all requests that come in where it did.
    pub entry: Arc<Entry>,
    /// What its handshake came to; `None`: it is in clear text.
    secured: Option<Secured>,
}

/// What goes for all requests that come in at one place.
#[derive(Debug, Default)]
pub struct Entry {
    /// Where visitors by http are sent.
    pub redirect: Option<Redirect>,
    /// `Strict-Transport-Security` for those by https.
    pub hsts: Option<HeaderValue>,
}

/// That visitors by http are sent to https.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// Its port.
    pub port: u16,
    /// What is served by http all the same.
    pub except: Vec<PathPattern>,
}

/// What a handshake came to.
#[derive(Debug, Default)]
pub struct Secured {
    /// The name that the client asked for, lower-case.
    pub server_name: Option<Box<str>>,
    /// The certificate that it showed, verified.
    pub certificate: Option<ClientCertificate>,
    /// Whether it was asked for one.
    pub asks_clients: bool,
}

impl Client {
    /// The connection of `peer` to us at `local`.
    #[must_use]
    pub fn new(peer: Peer, local: IpAddr, pulse: Rc<Pulse>) -> Rc<Self> {
        Self::entering(peer, local, pulse, Arc::default(), None)
    }

    /// The same, of one that came in at `entry`, and was secured.
    #[must_use]
    pub fn entering(
        peer: Peer,
        local: IpAddr,
        pulse: Rc<Pulse>,
        entry: Arc<Entry>,
        secured: Option<Secured>,
    ) -> Rc<Self> {
        Rc::new(Self {
            peer,
            local: local.to_canonical(),
            pulse,
            bound: BoundSlot::default(),
            is_bound: Cell::new(false),
            entry,
            secured,
        })
    }

    /// The scheme of the connection itself; what a trusted proxy says of the visitor's is another matter.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        if self.secured.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// The certificate that the client showed, verified.
    #[must_use]
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.secured.as_ref()?.certificate.as_ref()
    }

    /// Whether a request for `host` may come over this connection. Where clients are asked for
    /// certificates it must be the name for which the connection was made: else what was shown for one
    /// site would open another.
    #[must_use]
    pub fn is_for(&self, host: &Host) -> bool {
        let Some(secured) = self.secured.as_ref().filter(|secured| secured.asks_clients) else {
            return true;
        };
        let name = host.name().trim_end_matches('.');
        match &secured.server_name {
            Some(asked) => asked.trim_end_matches('.').eq_ignore_ascii_case(name),
            // Clients ask for no address by name (RFC 6066 §3).
            None => name.starts_with('[') || name.parse::<IpAddr>().is_ok(),
        }
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
        })
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
