//! The client connection, as far as requests may use it.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use anteroom_http::client_cert::ClientCertificate;
use anteroom_http::clock::unix_now;
use anteroom_http::forwarded::ForwardingFields;
use anteroom_http::host::{BadHost, Host, HostMemo, Scheme};
use anteroom_http::peer::Peer;
use anteroom_origin::PinnedSlot;
use anteroom_policy::listener::ListenerRules;
use tokio_util::sync::CancellationToken;

use crate::connection::tunnel::{Tunnel, TunnelSlot};
use crate::connection_state::ConnectionState;

/// A client connection.
#[derive(Debug)]
pub struct Client {
    /// The peer of the socket, or the client that a load balancer named.
    pub peer: Peer,
    /// The local address of the socket; for a Unix socket, this machine's address.
    pub local: IpAddr,
    /// The connection's state. The service marks in it where requests begin and end.
    pub state: Rc<ConnectionState>,
    /// The origin connection that a login by NTLM or Negotiate has pinned to this one.
    pub pinned: PinnedSlot,
    /// Whether such a login was seen on this connection. From then on, nothing is pooled, stored or
    /// shared.
    is_pinned: Cell<bool>,
    /// The slot for the tunnel that the connection becomes. The task that runs the connection owns the
    /// slot, so that a tunnel never outlives the connection.
    tunnel: RefCell<Weak<RefCell<Option<Box<Tunnel>>>>>,
    /// Whether requests run concurrently on the connection, as in HTTP/2. A request then cannot have the
    /// connection for itself.
    is_multiplexed: Cell<bool>,
    /// Whether a load balancer terminates the client's connection. The client may use another scheme to
    /// it.
    is_balanced: Cell<bool>,
    /// The settings of the entry at which the connection came in.
    pub entry: Arc<ListenerRules>,
    /// The result of the TLS handshake; `None`: the connection is in clear text.
    secured: Option<Rc<HandshakeResult>>,
    /// The host of the last request.
    host: RefCell<HostMemo>,
    /// The forwarding fields of the last request.
    forwarding: RefCell<Option<ForwardingFields>>,
    /// Cancelled when the certificates that clients are asked for at this entry change.
    outdated: CancellationToken,
}

/// The result of a TLS handshake.
#[derive(Debug, Default)]
pub struct HandshakeResult {
    /// The server name that the client asked for, in lower case.
    pub server_name: Option<Box<str>>,
    /// The certificate that the client presented, verified.
    pub certificate: Option<ClientCertificate>,
    /// Unix time until which that certificate is valid.
    pub expires: Option<i64>,
    /// Whether the client was asked for a certificate.
    pub requests_client_certs: bool,
}

impl Client {
    /// A connection of `peer` to this server at `local`.
    #[must_use]
    pub fn new(peer: Peer, local: IpAddr, connection_state: Rc<ConnectionState>) -> Rc<Self> {
        Self::entering(
            peer,
            local,
            connection_state,
            Arc::default(),
            CancellationToken::new(),
            None,
        )
    }

    /// A connection that came in at `entry`, with the result of its handshake. It lapses when `outdated`
    /// is cancelled.
    #[must_use]
    pub fn entering(
        peer: Peer,
        local: IpAddr,
        connection_state: Rc<ConnectionState>,
        entry: Arc<ListenerRules>,
        outdated: CancellationToken,
        secured: Option<HandshakeResult>,
    ) -> Rc<Self> {
        Rc::new(Self {
            peer,
            local: local.to_canonical(),
            state: connection_state,
            pinned: PinnedSlot::default(),
            is_pinned: Cell::new(false),
            tunnel: RefCell::default(),
            is_multiplexed: Cell::new(false),
            is_balanced: Cell::new(false),
            entry,
            secured: secured.map(Rc::new),
            host: RefCell::default(),
            forwarding: RefCell::default(),
            outdated,
        })
    }

    /// The same client, for a subrequest next to the request in progress. The subrequest leaves the
    /// connection's state unchanged, and no origin connection is pinned to it.
    #[must_use]
    pub fn beside(&self) -> Rc<Self> {
        Rc::new(Self {
            peer: self.peer,
            local: self.local,
            state: ConnectionState::new(),
            pinned: PinnedSlot::default(),
            is_pinned: self.is_pinned.clone(),
            tunnel: RefCell::default(),
            is_multiplexed: Cell::new(true),
            is_balanced: self.is_balanced.clone(),
            entry: Arc::clone(&self.entry),
            secured: self.secured.clone(),
            host: RefCell::default(),
            forwarding: RefCell::default(),
            outdated: self.outdated.clone(),
        })
    }

    /// Marks the connection as HTTP/2. `is_balanced`: it comes through a load balancer.
    pub fn multiplexes(&self, is_balanced: bool) {
        self.is_multiplexed.set(true);
        self.is_balanced.set(is_balanced);
        self.state.report_heads();
    }

    /// The site that a request is for.
    ///
    /// # Errors
    /// As [`host::site`](anteroom_http::host::site).
    pub(crate) fn site(&self, head: &Parts) -> Result<Host, BadHost> {
        self.host.borrow_mut().site(&head.uri, &head.headers)
    }

    /// The forwarding fields of a request. PERF: most requests on a connection have the same.
    pub(crate) fn forwarding_fields(
        &self,
        address: Option<IpAddr>,
        host: &Host,
        scheme: Scheme,
    ) -> ForwardingFields {
        let mut last = self.forwarding.borrow_mut();
        match &*last {
            Some(fields) if fields.are_of(address, host, scheme) => fields.clone(),
            _ => last.insert(ForwardingFields::new(address, host, scheme)).clone(),
        }
    }

    /// Whether requests run concurrently on the connection.
    #[must_use]
    pub fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.get()
    }

    /// Whether the connection is HTTP/2 through a load balancer.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.is_balanced.get()
    }

    /// The scheme of the connection itself. A trusted proxy may state another one for its client.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        if self.secured.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// The server name that the client asked for in the handshake, in lower case.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.secured.as_ref()?.server_name.as_deref()
    }

    /// The certificate that the client presented, verified.
    #[must_use]
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.secured.as_ref()?.certificate.as_ref()
    }

    /// Whether the result of the handshake is no longer valid: the certificate has expired, or clients
    /// are now asked for other certificates.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.outdated.is_cancelled() || self.expires().is_some_and(|end| unix_now() as i64 > end)
    }

    /// Completes when [`Client::has_lapsed`] becomes true.
    pub async fn lapses(&self) {
        let expires = async {
            let Some(end) = self.expires() else { return std::future::pending().await };
            // The certificate is valid through its last second.
            let left = (end as f64 + 1.0 - unix_now()).max(0.0);
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            // Boxed, so that other connections need no room for it.
            Box::pin(tokio::time::sleep(left)).await;
        };
        tokio::select! {
            () = self.outdated.cancelled() => {}
            () = expires => {}
        }
    }

    fn expires(&self) -> Option<i64> {
        self.secured.as_ref()?.expires
    }

    /// Whether a request for `host` may come over this connection. If clients are asked for
    /// certificates, `host` must be the server name of the handshake. Otherwise a certificate presented
    /// for one site would open another.
    #[must_use]
    pub fn is_for(&self, host: &Host) -> bool {
        let Some(secured) = self.secured.as_deref().filter(|secured| secured.requests_client_certs)
        else {
            return true;
        };
        let name = host.name().trim_end_matches('.');
        match &secured.server_name {
            Some(asked) => asked.trim_end_matches('.').eq_ignore_ascii_case(name),
            // The server name is never an IP address (RFC 6066 §3).
            None => name.starts_with('[') || name.parse::<IpAddr>().is_ok(),
        }
    }

    /// Whether a login by NTLM or Negotiate was seen on this connection.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.is_pinned.get()
    }

    /// Records that a login by NTLM or Negotiate was seen on this connection.
    pub fn bind(&self) {
        self.is_pinned.set(true);
    }

    /// The slot in which the tunnel will be found that the connection becomes. The task that runs the
    /// connection checks it when HTTP has ended there.
    #[must_use]
    pub fn tunnel_slot(&self) -> TunnelSlot {
        let slot = TunnelSlot::default();
        self.tunnel.replace(Rc::downgrade(&slot));
        slot
    }

    /// Hands over the tunnel that the connection becomes after its response is sent. If the connection's
    /// task has ended, the tunnel ends at once.
    pub(crate) fn become_tunnel(&self, tunnel: Tunnel) {
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
            let peer = Peer::at([192, 0, 2, 1].into());
            let local = [127, 0, 0, 1].into();
            let secured = HandshakeResult { expires, ..HandshakeResult::default() };
            let client = Client::entering(
                peer,
                local,
                ConnectionState::new(),
                Arc::default(),
                outdated.clone(),
                Some(secured),
            );
            if is_outdated {
                outdated.cancel();
            }
            assert_eq!(client.has_lapsed(), expected, "{expires:?} {is_outdated}");
        }
    }
}
