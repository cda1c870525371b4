//! One client connection: its client, and its version of HTTP. The versions are served in `http1` and
//! `http2`.

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;

use anteroom_http::peer::Peer;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use arc_swap::ArcSwap;
use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use super::caps::CappedConnection;
use super::context::{ConnectionContext, KnownConnection};
use super::io::TimedSocket;
use super::listen::ConnectionRules;
use super::proxy_protocol::{self, Header, ProxiedClient};
use super::stream::ClientStream;
use super::tls::{self, ClientTls, Protocol};
use super::{http1, http2};
use crate::connection::client::{Client, HandshakeResult};
use crate::connection_state::ConnectionState;

/// The preface of HTTP/2 (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read to determine the version: usually a whole HTTP/1.1 request.
const FIRST_READ: usize = 2 * 1024;

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: ClientStream,
    pub(super) peer: Peer,
    /// The terms of its listener.
    pub(super) terms: Arc<ConnectionRules>,
}

impl Arrival {
    /// A connection of `peer`, on the current terms.
    pub(super) fn new(socket: ClientStream, peer: Peer, terms: &ArcSwap<ConnectionRules>) -> Self {
        Self { socket, peer, terms: terms.load_full() }
    }

    /// Whether it begins with a header of the PROXY protocol.
    pub(super) fn is_from_balancer(&self) -> bool {
        self.peer.is_among(&self.terms.balancers)
    }
}

/// The version of HTTP that a connection in clear text speaks, by its first bytes: whatever differs from
/// the preface of HTTP/2 is HTTP/1.1. All are left to be read. The deadline of the first request's head
/// runs already.
async fn version_by_first_bytes(io: &mut TimedSocket<ClientStream>) -> io::Result<Protocol> {
    let mut bytes = BytesMut::with_capacity(FIRST_READ);
    loop {
        let came = io.read_buf(&mut bytes).await?;
        let known = bytes.len().min(PREFACE.len());
        let version = match bytes[..known] == PREFACE[..known] {
            true if known == PREFACE.len() => Protocol::Http2,
            true if came > 0 => continue,
            _ => Protocol::Http1,
        };
        io.unread(bytes.freeze());
        return Ok(version);
    }
}

/// Serves a connection until it ends; after `drain`, until the request in work is answered.
pub(super) async fn run(
    arrival: Arrival,
    mut place: CappedConnection,
    context: &Rc<ConnectionContext>,
) {
    // Boxed, so that a connection in use needs no room for it.
    let Some((line, version)) = Box::pin(begin(arrival, &mut place, context)).await else { return };
    match version {
        Protocol::Http1 => http1::serve(line).await,
        // Boxed, so that its size does not burden the other futures.
        Protocol::Http2 => Box::pin(http2::serve(line)).await,
    }
}

/// What precedes the first request: the header of a load balancer, and the handshake. `None`: the connection is
/// over.
async fn begin<'c>(
    arrival: Arrival,
    place: &mut CappedConnection,
    context: &'c Rc<ConnectionContext>,
) -> Option<(KnownConnection<'c>, Protocol)> {
    let is_balancer = arrival.is_from_balancer();
    let Arrival { socket, peer, terms } = arrival;
    let (settings, thread_metrics) = (context.inside.settings(), &context.thread_metrics);
    let local = socket.local().ok()?;
    let connection_state = ConnectionState::new();
    let mut io = TimedSocket::new(socket, Rc::clone(&connection_state), settings.deadlines);
    let peer = match is_balancer {
        true => named_client(&mut io, peer, &connection_state, place, context).await?,
        false => peer,
    };
    let (io, secured, version, outdated) = match &terms.tls {
        Some(tls) => {
            // Boxed, so that its size does not burden the other futures.
            let handshake = Box::pin(secure(tls, io, &connection_state, context));
            let secured = tokio::select! {
                secured = handshake => secured,
                () = context.takes_no_more() => return None,
            };
            match secured {
                Ok(secured) => {
                    thread_metrics.count(Count::TlsHandshakes);
                    secured
                }
                Err(refusal) => {
                    count_failed_handshake(&refusal, peer, thread_metrics);
                    return None;
                }
            }
        }
        None if terms.h2 => {
            // A request that has already arrived is answered, even during a drain.
            let version = tokio::select! {
                biased;
                version = version_by_first_bytes(&mut io) => version,
                () = context.takes_no_more() => return None,
            };
            match version {
                Ok(version) => (io, None, version, None),
                Err(error) => {
                    count_silence(&error, &connection_state, peer, thread_metrics);
                    return None;
                }
            }
        }
        None => (io, None, Protocol::Http1, None),
    };
    let outdated = outdated.unwrap_or_else(|| terms.outdated.clone());
    let entry = Arc::clone(&terms.entry);
    let client = Client::entering(peer, local, connection_state, entry, outdated, secured);
    if let Protocol::Http2 = version {
        client.multiplexes(is_balancer);
    }
    Some((KnownConnection { io, client, settings, context }, version))
}

/// The client that a load balancer names; `None`: it names none that may connect.
async fn named_client(
    io: &mut TimedSocket<ClientStream>,
    balancer: Peer,
    connection_state: &ConnectionState,
    place: &mut CappedConnection,
    context: &ConnectionContext,
) -> Option<Peer> {
    let thread_metrics = &context.thread_metrics;
    let source = tokio::select! {
        source = read_proxy_header(io, balancer) => source,
        () = context.takes_no_more() => return None,
    };
    match source {
        Ok(peer) if !context.inside.worker().settings.may_connect(peer) => {
            thread_metrics.count(Count::ConnectionsDenied);
            None
        }
        Ok(peer) if place.count_for(peer) => Some(peer),
        Ok(_) => {
            thread_metrics.count(Count::ConnectionsRefused);
            None
        }
        Err(refusal) => {
            count_refusal(&refusal, connection_state, balancer, thread_metrics);
            None
        }
    }
}

/// The version of HTTP is unknown here.
fn count_silence(
    error: &io::Error,
    connection_state: &ConnectionState,
    peer: Peer,
    thread_metrics: &ThreadMetrics,
) {
    if connection_state.timed_out() {
        thread_metrics.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %peer, "a connection reached its deadline");
    } else {
        tracing::debug!(client = %peer, %error, "a connection broke");
    }
}

/// Why a load balancer's connection is refused.
#[derive(Debug)]
enum BalancerRefusal {
    /// It does not begin with a header.
    Malformed,
    /// It ended within or before the header, or timed out.
    Broken(io::Error),
}

/// Reads the header of the PROXY protocol, and leaves the bytes after it unread. The deadline of the first
/// request's head is already running.
async fn read_proxy_header(
    socket: &mut TimedSocket<ClientStream>,
    by: Peer,
) -> Result<Peer, BalancerRefusal> {
    let mut bytes = BytesMut::with_capacity(proxy_protocol::HEADER_MAX);
    loop {
        let room = proxy_protocol::HEADER_MAX.saturating_sub(bytes.len()) as u64;
        let read = socket.take(room).read_buf(&mut bytes).await.map_err(BalancerRefusal::Broken)?;
        if read == 0 {
            let nothing = bytes.is_empty();
            return Err(if nothing {
                BalancerRefusal::Broken(ErrorKind::UnexpectedEof.into())
            } else {
                BalancerRefusal::Malformed
            });
        }
        match proxy_protocol::read(&bytes) {
            Header::Whole(source, length) => {
                socket.unread(bytes.split_off(length).freeze());
                return Ok(match source {
                    ProxiedClient::LoadBalancer => by,
                    ProxiedClient::Client(address) => Peer::at(address),
                    ProxiedClient::Unknown => Peer::Carried(by.address()),
                });
            }
            Header::Partial => {}
            Header::Malformed => return Err(BalancerRefusal::Malformed),
        }
    }
}

/// A socket, the result of its handshake, its version, and the token that is cancelled when clients are
/// asked for other certificates.
type HandshakenSocket =
    (TimedSocket<ClientStream>, Option<HandshakeResult>, Protocol, Option<CancellationToken>);

/// Performs the handshake. The deadline of the first request's head is already running.
async fn secure(
    tls: &ClientTls,
    watched: TimedSocket<ClientStream>,
    connection_state: &Rc<ConnectionState>,
    context: &ConnectionContext,
) -> Result<HandshakenSocket, tls::HandshakeError> {
    let deadlines = context.inside.settings().deadlines;
    let (socket, ahead) = watched.into_parts();
    let (_, since) = connection_state.waits();
    let worker = context.inside.worker();
    let challenges = worker.settings.challenges.as_ref();
    let challenges =
        challenges.map(|lookup| tls::StoredChallenges { lookup, store: &worker.store });
    let entered = tls::enter(tls, socket, ahead, since + deadlines.head, challenges).await?;
    let stream = ClientStream::Tls(Box::new(entered.stream));
    let watched = TimedSocket::new(stream, Rc::clone(connection_state), deadlines);
    Ok((watched, Some(entered.secured), entered.protocol, entered.outdated))
}

fn count_failed_handshake(
    refusal: &tls::HandshakeError,
    peer: Peer,
    thread_metrics: &ThreadMetrics,
) {
    match refusal {
        tls::HandshakeError::ClosedEarly => {
            tracing::debug!(client = %peer, "a connection closed before its handshake")
        }
        tls::HandshakeError::TimedOut => {
            thread_metrics.count(Count::ConnectionsTimedOut);
            tracing::debug!(client = %peer, "a handshake timed out");
        }
        tls::HandshakeError::Plain => {
            thread_metrics.count(Count::TlsHandshakesFailed);
            tracing::debug!(client = %peer, "a client spoke http to an https port");
        }
        tls::HandshakeError::Challenge => {
            tracing::info!(client = %peer, "an authority checks whether a name is ours");
        }
        tls::HandshakeError::Failed(error) => {
            thread_metrics.count(Count::TlsHandshakesFailed);
            tracing::debug!(client = %peer, %error, "a handshake failed");
        }
    }
}

fn count_refusal(
    refusal: &BalancerRefusal,
    connection_state: &ConnectionState,
    peer: Peer,
    thread_metrics: &ThreadMetrics,
) {
    match refusal {
        BalancerRefusal::Malformed => {
            thread_metrics.count(Count::ProxyHeadersRefused);
            tracing::info!(%peer, "a connection did not begin with a header of the PROXY protocol");
        }
        BalancerRefusal::Broken(_) if connection_state.timed_out() => {
            thread_metrics.count(Count::ConnectionsTimedOut);
            tracing::debug!(%peer, "a header of the PROXY protocol timed out");
        }
        BalancerRefusal::Broken(error) => tracing::debug!(%peer, %error, "a connection broke"),
    }
}
