//! The client connection, as far as a request may know it.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderValue;
use tokio_util::sync::CancellationToken;

use crate::clock::unix_now;
use crate::http::client_cert::ClientCertificate;
use crate::http::host::{Host, Scheme};
use crate::http::path::PathPattern;
use crate::http::peer::Peer;
use crate::origin::BoundSlot;
use crate::proxy::connection::tunnel::{Tunnel, TunnelSlot};
use crate::proxy::pulse::Pulse;

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
    /// Where the tunnel goes that the connection becomes. Held by whoever runs the connection, so that a
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
