//! One client connection: hyper's http1 on a watched socket, until either side ends it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::io::{Deadlines, Watched};
use crate::metrics::{Count, Sheet};
use crate::request::client::{Client, Pulse};
use crate::request::{Room, respond};

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

/// Serves `socket` until it ends; after `drain`, until the request in work is answered.
pub(super) async fn run(
    socket: TcpStream,
    peer: SocketAddr,
    room: Rc<Room>,
    settings: Settings,
    sheet: &Sheet,
    drain: CancellationToken,
) {
    let Ok(local) = socket.local_addr() else { return };
    let client = Client::new(peer, local);
    let pulse = Rc::clone(&client.pulse);
    let watched = Watched::new(socket, Rc::clone(&pulse), settings.deadlines);
    let service = service_fn(move |request| {
        let (room, client) = (Rc::clone(&room), Rc::clone(&client));
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
        () = drain.cancelled() => None,
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
        reset(connection.into_parts().io.inner().socket());
    }
}

/// Lets the connection end with a reset, which no client takes for the end of a body.
fn reset(socket: &TcpStream) {
    if let Err(error) = SockRef::from(socket).set_linger(Some(Duration::ZERO)) {
        tracing::debug!(%error, "a connection could not be reset");
    }
}

/// hyper answers what it cannot parse by itself, bare; here it is counted and logged.
fn count_end(error: &hyper::Error, pulse: &Pulse, peer: SocketAddr, sheet: &Sheet) {
    if error.is_parse() {
        sheet.count(Count::ParseErrors);
        tracing::info!(client = %peer.ip(), %error, "a request could not be parsed");
    } else if pulse.timed_out() {
        sheet.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %peer.ip(), "a connection reached its deadline");
    } else {
        tracing::debug!(client = %peer.ip(), %error, "a connection broke");
    }
}
