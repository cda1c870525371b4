//! A connection of HTTP/1.1 or HTTP/1.0: hyper's http1, until either side ends it.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use ::http::header::CONNECTION;
use ::http::{HeaderValue, Request};
use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::door::{Door, Line, Settings};
use super::io::Watched;
use super::stream::Stream;
use crate::proxy::connection::client::Client;
use crate::proxy::pulse::{Phase, Pulse};
use crate::proxy::{Tunnel, respond};
use crate::telemetry::metrics::{Count, Sheet};

/// hyper's buffer for a client connection: what it reads ahead.
const BUFFER: usize = 64 * 1024;

/// For how long a client on a Unix socket is waited for whose body broke off: longer than clients wait
/// for the next byte, as a rule.
const UNIX_PATIENCE: Duration = Duration::from_secs(600);

/// For how long a connection is idle before it is laid aside.
const AWAKE: Duration = Duration::from_secs(3);

/// Serves a connection until it ends; after `drain`, until the request in work is answered.
///
/// One that is idle for a moment is taken out of hyper's hands and laid aside: its socket is all that is
/// left of it until more comes. With hyper's buffers it would hold 19 KiB.
pub(super) async fn serve(line: Line<'_>) {
    let Line { mut io, client, settings, door } = line;
    // In a box, which is given back meanwhile.
    while let Some(rest) = Box::pin(converse(io, &client, settings, door)).await {
        let Some((socket, ahead)) = rest.over(&client, door).await else { return };
        io = Watched::new(socket, Rc::clone(&client.pulse), settings.deadlines);
        io.unread(ahead);
    }
}

/// An idle connection that is laid aside.
struct Rest {
    socket: Stream,
    /// What came in the last instant.
    ahead: Bytes,
    deadline: Instant,
}

impl Rest {
    /// Lays a connection aside.
    fn of(io: Watched<Stream>, read: Bytes, pulse: &Pulse, idle: Duration) -> Self {
        let (_, since) = pulse.waits();
        let (socket, ahead) = io.into_parts();
        let ahead = if read.is_empty() { ahead } else { [read, ahead].concat().into() };
        Self { socket, ahead, deadline: since + idle }
    }

    /// The socket when there is something to be read, and what was; `None`: the connection is over.
    async fn over(self, client: &Client, door: &Door) -> Option<(Stream, Bytes)> {
        let Self { socket, ahead, deadline } = self;
        if !ahead.is_empty() {
            return Some((socket, ahead));
        }
        tokio::select! {
            biased;
            // What has come already is answered, even when we are about to stop.
            readable = socket.readable() => match readable {
                Ok(()) => return Some((socket, ahead)),
                Err(error) => tracing::debug!(client = %client.peer, %error, "a connection broke"),
            },
            () = tokio::time::sleep_until(deadline) => {
                door.sheet.count(Count::ConnectionsTimedOut);
                tracing::debug!(client = %client.peer, "a connection reached its deadline");
            }
            () = door.drain.cancelled() => {}
            () = client.lapses() => {}
        }
        None
    }
}

/// Ends when a connection has been idle for a moment, and all that it was sent is on its way.
async fn idle(pulse: &Pulse) {
    loop {
        let wake = match pulse.waits() {
            (Phase::Idle, since) if pulse.may_rest() => since + AWAKE,
            _ => Instant::now() + AWAKE,
        };
        if wake <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(wake).await;
    }
}

/// Serves a connection until it ends, or is idle: then it comes back.
async fn converse(
    io: Watched<Stream>,
    client: &Rc<Client>,
    settings: Settings,
    door: &Rc<Door>,
) -> Option<Rest> {
    let head_max = settings.request_head;
    let tunnel = client.tunnel_slot();
    let (asker, house) = (Rc::clone(client), Rc::clone(door));
    let service = service_fn(move |request: Request<Incoming>| {
        let body = request.body();
        let has_body = !body.is_end_stream();
        asker.pulse.takes_body(has_body, has_body && body.size_hint().exact().is_none());
        let (room, client) = (house.inside.room(), Rc::clone(&asker));
        async move {
            let mut response = respond(room, Rc::clone(&client), request).await;
            if client.pulse.may_have_trailers() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let mut connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_header_size(head_max)
        .max_buf_size(BUFFER.max(head_max))
        .serve_connection(TokioIo::new(io), service);
    let ended = tokio::select! {
        // First, so that what has come is read before anybody asks whether it is idle.
        biased;
        result = &mut connection => Some(result),
        () = door.drain.cancelled() => None,
        () = client.lapses() => None,
        () = idle(&client.pulse) => {
            door.sheet.count(Count::ConnectionsLaidAside);
            let parts = connection.into_parts();
            let io = parts.io.into_inner();
            return Some(Rest::of(io, parts.read_buf, &client.pulse, settings.deadlines.idle));
        }
    };
    let result = match ended {
        Some(result) => result,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = result {
        count_end(&error, client, &door.sheet);
        // Its client has not been told of it.
        drop(tunnel.take());
    }
    if let Some(tunnel) = tunnel.take() {
        // Apart, so that other connections need no room for it.
        Box::pin(carry(*tunnel, connection.into_parts())).await;
        return None;
    }
    if client.pulse.looks_whole() {
        break_off(connection.into_parts().io.into_inner().into_socket()).await;
    }
    None
}

/// Carries a tunnel on what was an HTTP connection: under its own deadline, and none of HTTP's.
async fn carry<T>(tunnel: Tunnel, parts: http1::Parts<TokioIo<Watched<Stream>>, T>) {
    let (mut socket, ahead) = parts.io.into_inner().into_parts();
    // A copy, for what hyper has read holds on to a buffer of its own.
    let early = Bytes::from([parts.read_buf, ahead].concat());
    if !tunnel.carry(&mut socket, early).await {
        break_off(socket).await;
    }
}

/// Ends the connection so that no client takes its end for the end of a body: by a reset. A Unix socket
/// knows none, so that its client has to lose patience with us, and goes first.
async fn break_off(mut socket: Stream) {
    if socket.is_tcp() {
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
fn count_end(error: &hyper::Error, client: &Client, sheet: &Sheet) {
    if error.is_parse() {
        sheet.count(Count::ParseErrors);
        tracing::info!(client = %client.peer, %error, "a request could not be parsed");
    } else if client.pulse.timed_out() {
        sheet.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %client.peer, "a connection reached its deadline");
    } else {
        tracing::debug!(client = %client.peer, %error, "a connection broke");
    }
}
