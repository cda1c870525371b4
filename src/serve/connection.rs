//! One client connection: hyper's http1 on a watched socket, until either side ends it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;

use super::accept::{Door, Place};
use super::io::{Deadlines, Watched};
use super::listen::Terms;
use super::proxy_protocol::{self, Header, Told};
use super::stream::Stream;
use crate::http::peer::Peer;
use crate::metrics::{Count, Sheet};
use crate::request::client::{Client, Pulse};
use crate::request::respond;

/// hyper's buffer for a client connection: what it reads ahead.
const BUFFER: usize = 64 * 1024;

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Its deadlines.
    pub deadlines: Deadlines,
    /// The largest request head, in bytes.
    pub request_head: usize,
}

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

/// Serves a connection until it ends; after `drain`, until the request in work is answered.
pub(super) async fn run(arrival: Arrival, mut place: Place, door: &Rc<Door>) {
    let is_balancer = arrival.is_from_balancer();
    let Arrival { socket, peer, .. } = arrival;
    let (settings, sheet) = (door.inside.settings(), &door.sheet);
    let Ok(local) = socket.local() else { return };
    let pulse = Pulse::new();
    let mut watched = Watched::new(socket, Rc::clone(&pulse), settings.deadlines);
    let peer = if is_balancer {
        let told = tokio::select! {
            told = who_is_carried(&mut watched, peer) => told,
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
    let client = Client::new(peer, local, Rc::clone(&pulse));
    let inside = Rc::clone(door);
    let service = service_fn(move |request| {
        let (room, client) = (inside.inside.room(), Rc::clone(&client));
        async move { Ok::<_, std::convert::Infallible>(respond(room, client, request).await) }
    });
    let mut connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_header_size(settings.request_head)
        .max_buf_size(BUFFER.max(settings.request_head))
        .serve_connection(TokioIo::new(watched), service);
    let ended = tokio::select! {
        result = &mut connection => Some(result),
        () = door.drain.cancelled() => None,
    };
    let result = match ended {
        Some(result) => result,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = result {
        count_end(&error, &pulse, peer, sheet);
    }
    if pulse.looks_whole() {
        break_off(connection.into_parts().io.into_inner().into_socket()).await;
    }
}

/// For how long a client on a Unix socket is waited for whose body broke off: longer than clients wait
/// for the next byte, as a rule.
const UNIX_PATIENCE: Duration = Duration::from_secs(600);

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

/// Ends the connection so that no client takes its end for the end of a body: by a reset. A Unix socket
/// knows none, so that its client has to lose patience with us, and goes first.
async fn break_off(mut socket: Stream) {
    if let Stream::Tcp(_) = socket {
        if let Err(error) = socket.options().set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "a connection could not be reset");
        }
        return;
    }
    let leaving = async {
        let mut rest = [0; 1_024];
        while socket.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    };
    if tokio::time::timeout(UNIX_PATIENCE, leaving).await.is_err() {
        tracing::warn!("a client on a Unix socket waits for a body that broke off, and is let go");
    }
}

/// hyper answers what it cannot parse by itself, bare; here it is counted and logged.
fn count_end(error: &hyper::Error, pulse: &Pulse, peer: Peer, sheet: &Sheet) {
    if error.is_parse() {
        sheet.count(Count::ParseErrors);
        tracing::info!(client = %peer, %error, "a request could not be parsed");
    } else if pulse.timed_out() {
        sheet.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %peer, "a connection reached its deadline");
    } else {
        tracing::debug!(client = %peer, %error, "a connection broke");
    }
}
