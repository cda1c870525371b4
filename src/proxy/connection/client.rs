//! The client connection, as far as a request may know it.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ::http::HeaderValue;
use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::interim::{self, Line};
use crate::clock::unix_now;
use crate::http::client_cert::ClientCertificate;
use crate::http::host::{Host, Scheme};
use crate::http::path::PathPattern;
use crate::http::peer::Peer;
use crate::origin::{BoundSlot, Read};
use crate::proxy::connection::tunnel::{Tunnel, TunnelSlot};

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
    /// Where the tunnel goes that the connection becomes. VisitorTokenState by whoever runs the connection, so that a
    /// tunnel never outlives it.
    tunnel: RefCell<Weak<RefCell<Option<Box<Tunnel>>>>>,
    /// Whether requests stand side by side on it, as in HTTP/2: none of them can have it alone.
    is_multiplexed: Cell<bool>,
    /// Whether a load balancer stands before the client, who may speak another scheme to it.
    is_balanced: Cell<bool>,
    /// What goes for all requests that come in where it did.
    pub entry: Arc<Entry>,
    /// What its handshake came to; `None`: it is in clear text.
    secured: Option<Rc<Secured>>,
    /// Cancelled when clients are asked for other certificates there than when it came.
    outdated: CancellationToken,
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
    /// Unix time until which that certificate is valid.
    pub expires: Option<i64>,
    /// Whether it was asked for one.
    pub asks_clients: bool,
}

impl Client {
    /// The connection of `peer` to us at `local`.
    #[must_use]
    pub fn new(peer: Peer, local: IpAddr, pulse: Rc<Pulse>) -> Rc<Self> {
        Self::entering(peer, local, pulse, (Arc::default(), CancellationToken::new()), None)
    }

    /// The same, of one that came in at `entry`, until that is `outdated`, and was secured.
    #[must_use]
    pub fn entering(
        peer: Peer,
        local: IpAddr,
        pulse: Rc<Pulse>,
        (entry, outdated): (Arc<Entry>, CancellationToken),
        secured: Option<Secured>,
    ) -> Rc<Self> {
        Rc::new(Self {
            peer,
            local: local.to_canonical(),
            pulse,
            bound: BoundSlot::default(),
            is_bound: Cell::new(false),
            tunnel: RefCell::default(),
            is_multiplexed: Cell::new(false),
            is_balanced: Cell::new(false),
            entry,
            secured: secured.map(Rc::new),
            outdated,
        })
    }

    /// The same client, asking for something beside the request in work: what becomes of it touches the
    /// connection in nothing, and no origin connection is bound to it.
    #[must_use]
    pub fn beside(&self) -> Rc<Self> {
        Rc::new(Self {
            peer: self.peer,
            local: self.local,
            pulse: Pulse::new(),
            bound: BoundSlot::default(),
            is_bound: self.is_bound.clone(),
            tunnel: RefCell::default(),
            is_multiplexed: Cell::new(true),
            is_balanced: self.is_balanced.clone(),
            entry: Arc::clone(&self.entry),
            secured: self.secured.clone(),
            outdated: self.outdated.clone(),
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

    /// Whether what it showed, or was not asked to show, counts no more: its certificate has expired, or
    /// clients are asked for others since.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.outdated.is_cancelled() || self.expires().is_some_and(|end| unix_now() as i64 > end)
    }

    /// Ends when that is so.
    pub async fn lapses(&self) {
        let expires = async {
            let Some(end) = self.expires() else { return std::future::pending().await };
            // The last second is one in which it is valid.
            let left = (end as f64 + 1.0 - unix_now()).max(0.0);
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            tokio::time::sleep(left).await;
        };
        tokio::select! {
            () = self.outdated.cancelled() => {}
            () = expires => {}
        }
    }

    fn expires(&self) -> Option<i64> {
        self.secured.as_ref()?.expires
    }

    /// Whether a request for `host` may come over this connection. Where clients are asked for
    /// certificates it must be the name for which the connection was made: else what was shown for one
    /// site would open another.
    #[must_use]
    pub fn is_for(&self, host: &Host) -> bool {
        let Some(secured) = self.secured.as_deref().filter(|secured| secured.asks_clients) else {
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

    /// Where the tunnel will be found that the connection becomes: whoever runs it has to look there
    /// when HTTP has ended on it.
    #[must_use]
    pub fn tunnel_slot(&self) -> TunnelSlot {
        let slot = TunnelSlot::default();
        self.tunnel.replace(Rc::downgrade(&slot));
        slot
    }

    /// The connection becomes this tunnel once its answer is through; where nobody runs it any more, the
    /// tunnel ends.
    pub(in crate::proxy) fn become_tunnel(&self, tunnel: Tunnel) {
        if let Some(slot) = self.tunnel.borrow().upgrade() {
            slot.replace(Some(Box::new(tunnel)));
        }
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
    /// Interim responses to the request in work.
    interims: interim::Receiver,
    /// Whether a write does not move.
    stalled: Cell<bool>,
    /// Whether the last request's body was read whole, which may be on its way still when that was
    /// answered; `None`: it has none.
    body: RefCell<Option<Rc<Cell<Read>>>>,
    /// Whether it is chunked.
    is_chunked: Cell<bool>,
    /// Whether no request is taken from it any more.
    is_over: Cell<bool>,
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
            interims: interim::Receiver::default(),
            stalled: Cell::new(false),
            body: RefCell::default(),
            is_chunked: Cell::new(false),
            is_over: Cell::new(false),
        })
    }

    /// Interim responses to the request in work come on `line`.
    pub(in crate::proxy) fn listen(&self, line: Line) {
        self.interims.set(Some(line));
    }

    /// No more of them come: the response itself is there, or never will be.
    pub(in crate::proxy) fn hang_up(&self) {
        self.interims.set(None);
    }

    /// Interim responses that are to be sent now. Wakes whoever asks when there are more.
    #[must_use]
    pub fn interims(&self, waker: &Waker) -> Bytes {
        self.interims.take(waker)
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

    /// A write does not move, or does again: a client that takes long to read is not idle meanwhile.
    pub fn stalls(&self, stalls: bool) {
        self.stalled.set(stalls);
        if !stalls {
            self.idle_since.set(Instant::now());
        }
    }

    /// The request that begins has a body, or none; `is_chunked`: trailers may come behind it.
    pub fn takes_body(&self, takes: bool, is_chunked: bool) {
        // Whoever reads the body may not have looked yet at what came behind it.
        if self.is_chunked.replace(is_chunked) && !self.has_read() {
            self.is_over.set(true);
        }
        self.body.replace(takes.then(Rc::default));
    }

    /// Where whoever reads that body, which came over HTTP/1.1, says how far he is.
    pub(in crate::proxy) fn body_is_read(&self) -> Option<Rc<Cell<Read>>> {
        self.body.borrow().clone()
    }

    /// Whether that body was read whole, where there is one.
    #[must_use]
    pub fn has_read(&self) -> bool {
        self.body.borrow().as_ref().is_none_or(|read| read.get() == Read::Whole)
    }

    /// Whether trailers came behind that body, or may yet.
    ///
    /// SECURITY: a line feed alone in them ends them for some, and not for hyper, which takes what follows
    /// for more of them. So a connection ends behind trailers: what two may read differently must not be
    /// followed by another request.
    #[must_use]
    pub fn may_have_trailers(&self) -> bool {
        self.is_chunked.get() && !self.has_read()
    }

    /// Whether no request is taken from the connection any more, one that came all the same included.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Whether nothing is on its way either way, when no request is being answered.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        !self.stalled.get() && self.has_read()
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
    fn a_client_that_was_long_in_reading_is_idle_from_then_on() {
        let pulse = Pulse::new();
        pulse.request_begins();
        pulse.request_ends();
        let (_, ended) = pulse.waits();
        pulse.stalls(true);
        assert!(!pulse.may_rest());
        pulse.stalls(false);
        let (phase, since) = pulse.waits();
        assert!(phase == Phase::Idle && since > ended && pulse.may_rest());
    }

    #[test]
    fn a_connection_rests_when_the_body_of_its_last_request_was_read_whole() {
        let pulse = Pulse::new();
        pulse.takes_body(true, false);
        let first = pulse.body_is_read().unwrap();
        assert!(!pulse.may_rest());
        first.set(Read::Whole);
        assert!(pulse.may_rest());
        pulse.takes_body(true, false);
        first.set(Read::Whole);
        assert!(!pulse.may_rest(), "it is another's");
        pulse.takes_body(false, false);
        assert!(pulse.may_rest() && pulse.body_is_read().is_none());
    }

    #[test]
    fn no_request_is_taken_behind_trailers() {
        let after = |read: Option<Read>, is_chunked| {
            let pulse = Pulse::new();
            pulse.takes_body(true, is_chunked);
            pulse.body_is_read().unwrap().set(read.unwrap_or_default());
            let may_have_trailers = pulse.may_have_trailers();
            assert!(!pulse.is_over());
            pulse.takes_body(false, false);
            assert!(!pulse.may_have_trailers());
            (may_have_trailers, pulse.is_over())
        };
        assert_eq!(after(Some(Read::Trailers), true), (true, true));
        assert_eq!(after(None, true), (true, true), "they may not have been looked at");
        assert_eq!(after(Some(Read::Whole), true), (false, false));
        assert_eq!(after(None, false), (false, false));
    }

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
    fn a_connection_lapses_with_its_certificate_or_with_what_is_asked_for() {
        let now = unix_now() as i64;
        for (expires, is_outdated, expected) in [
            (None, false, false),
            (Some(now + 60), false, false),
            (Some(now - 1), false, true),
            (Some(now + 60), true, true),
            (None, true, true),
        ] {
            let outdated = CancellationToken::new();
            let entry = (Arc::default(), outdated.clone());
            let peer = Peer::at([192, 0, 2, 1].into());
            let local = [127, 0, 0, 1].into();
            let secured = Secured { expires, ..Secured::default() };
            let client = Client::entering(peer, local, Pulse::new(), entry, Some(secured));
            if is_outdated {
                outdated.cancel();
            }
            assert_eq!(client.has_lapsed(), expected, "{expires:?} {is_outdated}");
        }
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
