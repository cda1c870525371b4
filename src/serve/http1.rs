//! A connection of HTTP/1.1 or HTTP/1.0: hyper's http1, until either side ends it.

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt;

use super::connection::Line;
use super::io::Watched;
use super::stream::Stream;
use crate::metrics::{Count, Sheet};
use crate::request::client::Client;
use crate::request::{Tunnel, respond};

/// hyper's buffer for a client connection: what it reads ahead.
const BUFFER: usize = 64 * 1024;

/// For how long a client on a Unix socket is waited for whose body broke off: longer than clients wait
/// for the next byte, as a rule.
const UNIX_PATIENCE: Duration = Duration::from_secs(600);

/// Serves a connection until it ends; after `drain`, until the request in work is answered.
pub(super) async fn serve(line: Line<'_>) {
    let Line { io, client, settings, door } = line;
    let head_max = settings.request_head;
    let tunnel = client.tunnel_slot();
    let (asker, house) = (Rc::clone(&client), Rc::clone(door));
    let service = service_fn(move |request| {
        let (room, client) = (house.inside.room(), Rc::clone(&asker));
        async move { Ok::<_, std::convert::Infallible>(respond(room, client, request).await) }
    });
    let mut connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_header_size(head_max)
        .max_buf_size(BUFFER.max(head_max))
        .serve_connection(TokioIo::new(io), service);
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
        count_end(&error, &client, &door.sheet);
        // Its client has not been told of it.
        drop(tunnel.take());
    }
    if let Some(tunnel) = tunnel.take() {
        // Apart, so that other connections need no room for it.
        return Box::pin(carry(*tunnel, connection.into_parts())).await;
    }
    if client.pulse.looks_whole() {
        break_off(connection.into_parts().io.into_inner().into_socket()).await;
    }
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
