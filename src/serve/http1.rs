//! HTTP/1.1 and HTTP/1.0 connections: served by hyper's http1 until either side closes.

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

use super::context::{ConnectionContext, ConnectionSettings, KnownConnection};
use super::io::TimedSocket;
use super::stream::ClientStream;
use crate::proxy::connection::client::Client;
use crate::proxy::connection_state::{ConnectionPhase, ConnectionState};
use crate::proxy::{Tunnel, respond};
use crate::telemetry::metrics::{Count, ThreadMetrics};

/// hyper's buffer for a client connection: how much it reads ahead.
const BUFFER: usize = 64 * 1024;

/// How long the server waits for a client on a Unix socket to close after a truncated body: longer than
/// clients usually wait for the next byte.
const UNIX_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a connection is idle before it is laid aside.
const AWAKE: Duration = Duration::from_secs(3);

/// Serves a connection until it ends; after `drain`, until the request in progress is answered.
///
/// A connection that is idle for a moment is taken back from hyper and laid aside: only its socket remains
/// until more arrives. With hyper's buffers it would hold 19 KiB.
pub(super) async fn serve(line: KnownConnection<'_>) {
    let KnownConnection { mut io, client, settings, context } = line;
    // Boxed, so that the memory is freed while the connection is laid aside.
    while let Some(rest) = Box::pin(converse(io, &client, settings, context)).await {
        let Some((socket, ahead)) = rest.over(&client, context).await else { return };
        io = TimedSocket::new(socket, Rc::clone(&client.state), settings.deadlines);
        io.unread(ahead);
    }
}

/// An idle connection that is laid aside.
struct IdleConnection {
    socket: ClientStream,
    /// Bytes that arrived at the last moment.
    ahead: Bytes,
    deadline: Instant,
}

impl IdleConnection {
    /// Lays a connection aside.
    fn of(
        io: TimedSocket<ClientStream>,
        read: Bytes,
        connection_state: &ConnectionState,
        idle: Duration,
    ) -> Self {
        let (_, since) = connection_state.waits();
        let (socket, ahead) = io.into_parts();
        let ahead = if read.is_empty() { ahead } else { [read, ahead].concat().into() };
        Self { socket, ahead, deadline: since + idle }
    }

    /// Returns the socket and the bytes read, once it is readable; `None`: the connection is over.
    async fn over(
        self,
        client: &Client,
        context: &ConnectionContext,
    ) -> Option<(ClientStream, Bytes)> {
        let Self { socket, ahead, deadline } = self;
        if !ahead.is_empty() {
            return Some((socket, ahead));
        }
        tokio::select! {
            biased;
            // Bytes that have already arrived are answered, even when the server is about to stop.
            readable = socket.readable() => match readable {
                Ok(()) => return Some((socket, ahead)),
                Err(error) => tracing::debug!(client = %client.peer, %error, "a connection broke"),
            },
            () = tokio::time::sleep_until(deadline) => {
                context.thread_metrics.count(Count::ConnectionsTimedOut);
                tracing::debug!(client = %client.peer, "a connection reached its deadline");
            }
            () = context.drain.cancelled() => {}
            () = client.lapses() => {}
        }
        None
    }
}

/// Returns when a connection has been idle for a moment, and all its responses have been written.
async fn idle(connection_state: &ConnectionState) {
    loop {
        let wake = match connection_state.waits() {
            (ConnectionPhase::Idle, since) if connection_state.may_rest() => since + AWAKE,
            _ => Instant::now() + AWAKE,
        };
        if wake <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(wake).await;
    }
}

/// Serves a connection until it ends (`None`), or is idle.
async fn converse(
    io: TimedSocket<ClientStream>,
    client: &Rc<Client>,
    settings: ConnectionSettings,
    context: &Rc<ConnectionContext>,
) -> Option<IdleConnection> {
    let head_max = settings.request_head;
    let tunnel = client.tunnel_slot();
    let (own_client, request_context) = (Rc::clone(client), Rc::clone(context));
    let service = service_fn(move |request: Request<Incoming>| {
        let body = request.body();
        let has_body = !body.is_end_stream();
        own_client.state.takes_body(has_body, has_body && body.size_hint().exact().is_none());
        let (worker, client) = (request_context.inside.worker(), Rc::clone(&own_client));
        // PERF: boxed. hyper moves the future into the connection, where it would be cold memory at each request;
        // the allocator hands out what the thread has just used.
        Box::pin(async move {
            let mut response = respond(worker, Rc::clone(&client), request).await;
            if client.state.may_have_trailers() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, std::convert::Infallible>(response)
        })
    });
    let mut connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_header_size(head_max)
        .max_buf_size(BUFFER.max(head_max))
        .serve_connection(TokioIo::new(io), service);
    let ended = tokio::select! {
        // First, so that bytes that have arrived are read before the idle check.
        biased;
        result = &mut connection => Some(result),
        () = context.drain.cancelled() => None,
        () = client.lapses() => None,
        () = idle(&client.state) => {
            context.thread_metrics.count(Count::ConnectionsLaidAside);
            let parts = connection.into_parts();
            let io = parts.io.into_inner();
            return Some(IdleConnection::of(io, parts.read_buf, &client.state, settings.deadlines.idle));
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
        count_end(&error, client, &context.thread_metrics);
        // The client has not received the 101.
        drop(tunnel.take());
    }
    if let Some(tunnel) = tunnel.take() {
        // Boxed, so that other connections need no room for it.
        Box::pin(carry(*tunnel, connection.into_parts())).await;
        return None;
    }
    if client.state.looks_whole() {
        break_off(connection.into_parts().io.into_inner().into_socket()).await;
    }
    None
}

/// Carries a tunnel on a former HTTP connection, under its own deadline instead of HTTP's.
async fn carry<T>(tunnel: Tunnel, parts: http1::Parts<TokioIo<TimedSocket<ClientStream>>, T>) {
    let (mut socket, ahead) = parts.io.into_inner().into_parts();
    // A copy, because what hyper has read keeps a buffer of its own alive.
    let early = Bytes::from([parts.read_buf, ahead].concat());
    if !tunnel.carry(&mut socket, early).await {
        break_off(socket).await;
    }
}

/// Ends the connection with a reset, so that clients cannot take its end for the end of a body. A Unix socket
/// has no reset: there the server waits until the client times out and closes first.
async fn break_off(mut socket: ClientStream) {
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
    if tokio::time::timeout(UNIX_TIMEOUT, leaving).await.is_err() {
        tracing::warn!("a connection on a Unix socket was closed after a truncated body");
    }
}

/// Counts and logs the end of a connection. hyper itself answers what it cannot parse, without a body.
fn count_end(error: &hyper::Error, client: &Client, thread_metrics: &ThreadMetrics) {
    if error.is_parse() {
        thread_metrics.count(Count::ParseErrors);
        tracing::info!(client = %client.peer, %error, "a request could not be parsed");
    } else if client.state.timed_out() {
        thread_metrics.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %client.peer, "a connection reached its deadline");
    } else {
        tracing::debug!(client = %client.peer, %error, "a connection broke");
    }
}
