//! One client connection: who is at its other end, and which version of HTTP it speaks. How each is
//! served is told in `http1` and `http2`.

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio_util::sync::CancellationToken;

use super::caps::Place;
use super::door::{Door, Line};
use super::io::{Deadlines, Watched};
use super::listen::Terms;
use super::proxy_protocol::{self, Header, Told};
use super::stream::Stream;
use super::tls::{self, Protocol, Tls};
use super::{http1, http2};
use crate::http::peer::Peer;
use crate::proxy::connection::client::{Client, Secured};
use crate::proxy::pulse::Pulse;
use crate::telemetry::metrics::{Count, Sheet};

/// With what a connection of HTTP/2 begins (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What is read ahead to tell the version: mostly a whole request of HTTP/1.1.
const FIRST_READ: usize = 2 * 1024;

/// A connection that was just accepted.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: Stream,
    pub(super) peer: Peer,
    /// On what terms it is served.
    pub(super) terms: Arc<Terms>,
}

impl Arrival {
    /// The connection of `peer`, on the terms that hold now.
    pub(super) fn new(socket: Stream, peer: Peer, terms: &ArcSwap<Terms>) -> Self {
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
async fn version_by_first_bytes(io: &mut Watched<Stream>) -> io::Result<Protocol> {
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
pub(super) async fn run(arrival: Arrival, mut place: Place, door: &Rc<Door>) {
    let is_balancer = arrival.is_from_balancer();
    let Arrival { socket, peer, terms } = arrival;
    let (settings, sheet) = (door.inside.settings(), &door.sheet);
    let Ok(local) = socket.local() else { return };
    let pulse = Pulse::new();
    let mut io = Watched::new(socket, Rc::clone(&pulse), settings.deadlines);
    let peer = if is_balancer {
        let told = tokio::select! {
            told = who_is_carried(&mut io, peer) => told,
            () = door.drain.cancelled() => return,
        };
        match told {
            Ok(peer) if !door.inside.room().settings.may_connect(peer) => {
                return sheet.count(Count::ConnectionsDenied);
            }
            Ok(peer) if place.count_for(peer) => peer,
            Ok(_) => return sheet.count(Count::ConnectionsRefused),
            Err(refusal) => return count_refusal(&refusal, &pulse, peer, sheet),
        }
    } else {
        peer
    };
    let (io, secured, version, outdated) = match &terms.tls {
        Some(tls) => {
            // In a box, so that it is no burden to others, and none later.
            let handshake = Box::pin(secure(tls, io, &pulse, settings.deadlines));
            let secured = tokio::select! {
                secured = handshake => secured,
                () = door.drain.cancelled() => return,
            };
            match secured {
                Ok(secured) => {
                    sheet.count(Count::TlsHandshakes);
                    secured
                }
                Err(refusal) => return count_failed_handshake(&refusal, peer, sheet),
            }
        }
        None if terms.h2 => {
            // What has come already is answered, even when we are about to stop.
            let version = tokio::select! {
                biased;
                version = version_by_first_bytes(&mut io) => version,
                () = door.drain.cancelled() => return,
            };
            match version {
                Ok(version) => (io, None, version, None),
                Err(error) => return count_silence(&error, &pulse, peer, sheet),
            }
        }
        None => (io, None, Protocol::Http1, None),
    };
    let outdated = outdated.unwrap_or_else(|| terms.outdated.clone());
    let entry = (Arc::clone(&terms.entry), outdated);
    let client = Client::entering(peer, local, pulse, entry, secured);
    match version {
        Protocol::Http1 => http1::serve(Line { io, client, settings, door }).await,
        Protocol::Http2 => {
            client.multiplexes(is_balancer);
            // In a box, so that it is no burden to others.
            Box::pin(http2::serve(Line { io, client, settings, door })).await;
        }
    }
}

/// Nobody can say which version it would have been.
fn count_silence(error: &io::Error, pulse: &Pulse, peer: Peer, sheet: &Sheet) {
    if pulse.timed_out() {
        sheet.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %peer, "a connection reached its deadline");
    } else {
        tracing::debug!(client = %peer, %error, "a connection broke");
    }
}

/// Why a load balancer's connection is not served.
#[derive(Debug)]
enum Refusal {
    /// It did not begin with a header.
    Malformed,
    /// It ended within one, or before; or ran out of time.
    Broken(io::Error),
}

/// Reads the header of the PROXY protocol; what stands behind it is left to be read. The deadline of
/// the first request's head runs already, and goes on running.
async fn who_is_carried(socket: &mut Watched<Stream>, by: Peer) -> Result<Peer, Refusal> {
    let mut bytes = BytesMut::with_capacity(proxy_protocol::HEADER_MAX);
    loop {
        let room = proxy_protocol::HEADER_MAX.saturating_sub(bytes.len()) as u64;
        let read = socket.take(room).read_buf(&mut bytes).await.map_err(Refusal::Broken)?;
        if read == 0 {
            let nothing = bytes.is_empty();
            return Err(if nothing {
                Refusal::Broken(ErrorKind::UnexpectedEof.into())
            } else {
                Refusal::Malformed
            });
        }
        match proxy_protocol::read(&bytes) {
            Header::Whole(told, length) => {
                socket.unread(bytes.split_off(length).freeze());
                return Ok(match told {
                    Told::Own => by,
                    Told::Client(address) => Peer::at(address),
                    Told::Somebody => Peer::Carried(by.address()),
                });
            }
            Header::Partial => {}
            Header::Malformed => return Err(Refusal::Malformed),
        }
    }
}

/// A socket, what its handshake came to, its version, and what tells that clients are asked for other
/// certificates.
type Known = (Watched<Stream>, Option<Secured>, Protocol, Option<CancellationToken>);

/// Carries out the handshake. The deadline of the first request's head runs already, and goes on running.
async fn secure(
    tls: &Tls,
    watched: Watched<Stream>,
    pulse: &Rc<Pulse>,
    deadlines: Deadlines,
) -> Result<Known, tls::Refusal> {
    let (socket, ahead) = watched.into_parts();
    let (_, since) = pulse.waits();
    let entered = tls::enter(tls, socket, ahead, since + deadlines.head).await?;
    let stream = Stream::Tls(Box::new(entered.stream));
    let watched = Watched::new(stream, Rc::clone(pulse), deadlines);
    Ok((watched, Some(entered.secured), entered.protocol, entered.outdated))
}

fn count_failed_handshake(refusal: &tls::Refusal, peer: Peer, sheet: &Sheet) {
    match refusal {
        tls::Refusal::DetachedTasks => tracing::debug!(client = %peer, "a connection said nothing"),
        tls::Refusal::TimedOut => {
            sheet.count(Count::ConnectionsTimedOut);
            tracing::debug!(client = %peer, "no handshake came in time");
        }
        tls::Refusal::Plain => {
            sheet.count(Count::TlsHandshakesFailed);
            tracing::debug!(client = %peer, "http came where https is spoken");
        }
        tls::Refusal::Failed(error) => {
            sheet.count(Count::TlsHandshakesFailed);
            tracing::debug!(client = %peer, %error, "a handshake failed");
        }
    }
}

fn count_refusal(refusal: &Refusal, pulse: &Pulse, peer: Peer, sheet: &Sheet) {
    match refusal {
        Refusal::Malformed => {
            sheet.count(Count::ProxyHeadersRefused);
            tracing::info!(%peer, "a connection did not begin with a header of the PROXY protocol");
        }
        Refusal::Broken(_) if pulse.timed_out() => {
            sheet.count(Count::ConnectionsTimedOut);
            tracing::debug!(%peer, "no header of the PROXY protocol came in time");
        }
        Refusal::Broken(error) => tracing::debug!(%peer, %error, "a connection broke"),
    }
}
