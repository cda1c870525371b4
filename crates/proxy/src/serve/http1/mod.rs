//! HTTP/1.1 and HTTP/1.0 connections, until either side closes.
//!
//! [`direct`] answers requests without a body; hyper answers all others ([`hyper`]), and everything faulty. A
//! connection changes between the two from request to request.

mod direct;
mod head;
mod hyper;
mod queue;
mod response;

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use anteroom_telemetry::metrics::Count;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use self::direct::{ConnectionError, ConversationEnd, DirectConnection};
use super::context::{ConnectionContext, ConnectionSettings, KnownConnection};
use super::io::TimedSocket;
use super::stream::ClientStream;
use crate::connection::client::Client;
use crate::connection_state::{ConnectionPhase, ConnectionState};

/// How long the server waits for a client on a Unix socket to close after a truncated body: longer than
/// clients usually wait for the next byte.
const UNIX_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a connection is idle before it is laid aside.
const AWAKE: Duration = Duration::from_secs(3);

/// Serves a connection until it ends; after `drain`, until the request in progress is answered.
///
/// A connection that is idle for a moment is laid aside: only its socket remains until more arrives. With its
/// buffers it would hold some 7 KiB.
pub(super) async fn serve(line: KnownConnection<'_>) {
    let KnownConnection { mut io, client, settings, context } = line;
    loop {
        // Boxed, so that the memory is freed while the connection is laid aside.
        let Some(next) = Box::pin(converse(io, &client, settings, context)).await else { return };
        io = match next {
            Next::Idle(connection) => {
                // Boxed, so that a connection in use needs no room for it.
                let over = Box::pin(connection.over(&client, context));
                let Some((socket, ahead)) = over.await else { return };
                let mut io = TimedSocket::new(socket, Rc::clone(&client.state), settings.deadlines);
                io.unread(ahead);
                io
            }
            Next::ForHyper(io) => {
                let conversing = Box::pin(hyper::converse(io, &client, settings, context));
                let Some(io) = conversing.await else { return };
                io
            }
        };
    }
}

/// What follows for a connection.
enum Next {
    /// It is laid aside.
    Idle(IdleConnection),
    /// hyper answers its next request.
    ForHyper(TimedSocket<ClientStream>),
}

/// Serves requests without a body until another request comes, the connection is idle, or it ends (`None`).
async fn converse(
    io: TimedSocket<ClientStream>,
    client: &Rc<Client>,
    settings: ConnectionSettings,
    context: &Rc<ConnectionContext>,
) -> Option<Next> {
    let mut connection = DirectConnection::new(io);
    let is_stopping = Cell::new(false);
    let ended = {
        let head_max = settings.request_head;
        let mut conversing = pin!(connection.converse(client, context, head_max, &is_stopping));
        // PERF: polled when it was woken, and not for each request.
        let mut interrupting = FuturesUnordered::from_iter([interruption(client, context)]);
        let ended = tokio::select! {
            // First, so that bytes that have arrived are read before the idle check.
            biased;
            ended = &mut conversing => Ok(ended),
            Some(interruption) = interrupting.next() => Err(interruption),
        };
        match ended {
            Ok(ended) => ended,
            Err(Interruption::Idle) => Ok(ConversationEnd::Idle),
            Err(Interruption::Stop) => {
                is_stopping.set(true);
                conversing.await
            }
        }
    };
    match ended {
        Ok(ConversationEnd::Idle) => {
            context.thread_metrics.count(Count::ConnectionsLaidAside);
            let (io, read) = connection.into_parts();
            Some(Next::Idle(IdleConnection::of(io, read, &client.state, settings.deadlines.idle)))
        }
        Ok(ConversationEnd::ForHyper) => {
            let (mut io, read) = connection.into_parts();
            io.unread(read);
            Some(Next::ForHyper(io))
        }
        Ok(ConversationEnd::Over) => None,
        Err(error) => {
            count_end(&error, client, context);
            None
        }
    }
}

/// Counts and logs the end of a connection.
fn count_end(error: &ConnectionError, client: &Client, context: &ConnectionContext) {
    if client.state.timed_out() {
        context.thread_metrics.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %client.peer, "a connection reached its deadline");
    } else {
        tracing::debug!(client = %client.peer, %error, "a connection broke");
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
        // Copied, because what was read holds the whole buffer.
        let ahead = Bytes::from([read, ahead].concat());
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
            () = context.takes_no_more() => {}
            () = client.lapses() => {}
        }
        None
    }
}

/// What ends a conversation from outside.
enum Interruption {
    /// No request came for a moment.
    Idle,
    /// The proxy stops, or the connection's certificate is no longer valid.
    Stop,
}

async fn interruption(client: &Client, context: &ConnectionContext) -> Interruption {
    tokio::select! {
        () = context.takes_no_more() => Interruption::Stop,
        () = client.lapses() => Interruption::Stop,
        () = idle(&client.state) => Interruption::Idle,
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
