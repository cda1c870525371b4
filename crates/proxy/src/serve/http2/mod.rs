//! HTTP/2 connections: served by hyper's http2, within limits set here, until either side closes.
//!
//! The most memory that one connection may hold: two MiB of unread bodies ([`CONNECTION_WINDOW`]); and for
//! each of its hundred requests ([`STREAMS`]) a head (`request_head`), 48 KiB of its response that the client does
//! not take ([`SEND_BUFFER`] and a frame), and the rest of the part that arrived from the origin last, 64 KiB.
//! With the 16 KiB that wait to be sent together ([`wire`]), 13 MiB and the heads. It is more if the
//! unread parts of bodies are small: the library keeps each in the buffer into which it was read, along with
//! its surroundings. A page from memory is not copied. The requests of one address, on all its connections,
//! are counted ([`Caps`](super::caps::Caps)).

mod flood;
mod pace;
mod wire;

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::Request;
use anteroom_telemetry::metrics::{ConnectionCut, Count, ThreadMetrics};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::flood::FloodBudget;
use self::pace::{BACKLOG, FrameSizedBody, Streams};
use self::wire::{CollectedWrites, FRAME, FrameCounts, MeteredSocket};
use super::context::{ConnectionContext, ConnectionSettings, KnownConnection};
use super::io::linger;
use crate::connection::client::Client;
use crate::connection_state::{ConnectionPhase, ConnectionState};
use crate::{from_hyper, respond};

/// The most requests open on one connection.
const STREAMS: u32 = 100;

/// The library refuses lists of fields of so much more than `request_head`, in bytes (RFC 9113 §10.5.1). It leaves no
/// trace of such a refusal; admission does, from `request_head` on.
const HEADER_LIST_SURPLUS: usize = 96 * 1024;

/// How much a client may send of one body before the server has read it.
const STREAM_WINDOW: u32 = 128 * 1024;

/// The same for all bodies together. The library uses half of it to limit the overhead of small unread
/// frames: it is just large enough for a stream of messages of 32 bytes.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;

/// How much of one response is buffered for a slow client.
const SEND_BUFFER: usize = 32 * 1024;

/// Requests that may be cancelled before the server has processed them (CVE-2023-44487).
const UNSEEN_RESETS: usize = 20;

/// The same for a proxy or a load balancer, which may pass on many such requests at once.
const UNSEEN_RESETS_OF_MANY: usize = 200;

/// Requests that a client may make the server cancel, by invalid frames (CVE-2025-8671).
const ERROR_RESETS: usize = 256;

/// The interval of PINGs to a client. A PING queues behind all that the system holds for a slow client, and
/// only its answer counts; so the client has as long for it as for a response that it has half taken. A
/// client that is gone is mostly detected by the write deadline.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long an idle client may take to answer a GOAWAY.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves a connection until it ends; when the server leaves or drains, or it was idle for too long, until the requests
/// in progress are answered.
pub(super) async fn serve(line: KnownConnection<'_>) {
    let KnownConnection { mut io, client, settings, context } = line;
    io.put_off_idle(FAREWELL);
    let flow = Rc::<FrameCounts>::default();
    // The connection may carry many visitors, and each of them may leave.
    let may_carry_many_clients =
        context.inside.worker().settings.may_carry_many_clients(client.peer);
    let (meter, unseen_resets) = match may_carry_many_clients {
        true => (FloodBudget::of_many(), UNSEEN_RESETS_OF_MANY),
        false => (FloodBudget::default(), UNSEEN_RESETS),
    };
    let io = MeteredSocket::new(io, meter, Rc::clone(&client.state), Rc::clone(&flow));
    let collected = io.collected_writes();
    let stall = settings.deadlines.stall;
    let streams = Streams::new(stall, Rc::clone(&flow), Arc::clone(&context.thread_metrics));
    let (own_client, request_context, paces) =
        (Rc::clone(&client), Rc::clone(context), streams.clone());
    let is_another = Rc::<Notify>::default();
    let another = Rc::clone(&is_another);
    let service = service_fn(move |request: Request<Incoming>| {
        let (worker, client) = (request_context.inside.worker(), Rc::clone(&own_client));
        if worker.settings.may_carry_many_clients(client.peer) != may_carry_many_clients {
            // A reload has changed the settings of this peer, and its meter follows the old ones.
            another.notify_one();
        }
        let pace = request_context.inside.enter_request(client.peer).map(|place| paces.pace(place));
        let answering =
            pace.map(|pace| (respond(Rc::clone(&worker), client, from_hyper(request)), pace));
        async move {
            let Some((responding, pace)) = answering else {
                worker.thread_metrics.count(Count::StreamsRefused);
                // The request was not processed, and may be sent again (RFC 9113 §8.7).
                return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
            };
            Ok(responding.await.into_http().map(|body| FrameSizedBody::new(body, pace)))
        }
    });
    let mut connection = builder(streams.clone(), &settings, unseen_resets)
        .serve_connection(TokioIo::new(io), service);
    let ended = tokio::select! {
        result = turns(&mut connection, &collected) => Some(result),
        () = leaves(context) => None,
        () = context.takes_no_more() => None,
        () = client.lapses() => None,
        () = is_another.notified() => None,
        () = has_idled(&client.state, settings.deadlines.idle) => None,
    };
    let result = match ended {
        Some(result) => result,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            turns(&mut connection, &collected).await
        }
    };
    // Its requests learn from this that they are no longer needed.
    drop(connection);
    match (result, collected.into_socket()) {
        (Ok(()), Some(mut socket)) if context.leaving.is_cancelled() => linger(&mut socket).await,
        (Ok(()), _) => {}
        (Err(error), _) => count_end(&error, &flow, &client, &context.thread_metrics),
    }
    streams.tasks.close();
    streams.tasks.wait().await;
}

/// The library's builder, with the limits of a connection.
fn builder<E: Clone>(
    streams: E,
    settings: &ConnectionSettings,
    unseen_resets: usize,
) -> http2::Builder<E> {
    let header_list =
        u32::try_from(settings.request_head + HEADER_LIST_SURPLUS).unwrap_or(u32::MAX);
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(header_list)
        .max_frame_size(FRAME)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(unseen_resets)
        .max_local_error_reset_streams(ERROR_RESETS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(settings.deadlines.stall + BACKLOG)
        .enable_connect_protocol();
    builder
}

/// Returns when the server begins to leave its load balancers. A connection that begins after that goes on until the
/// server drains: its client has nowhere else to go.
async fn leaves(context: &ConnectionContext) {
    if context.leaving.is_cancelled() {
        return std::future::pending().await;
    }
    context.leaving.cancelled().await;
}

/// Drives a connection to its end, and sends what each turn has written.
async fn turns<T, S: AsyncWrite + Unpin>(
    connection: &mut (impl Future<Output = T> + Unpin),
    collected: &CollectedWrites<S>,
) -> T {
    poll_fn(|cx| {
        let result = Pin::new(&mut *connection).poll(cx);
        collected.send(cx);
        result
    })
    .await
}

/// Returns when the connection has been idle for so long. A client that has just begun a request learns from
/// the GOAWAY that it was not processed, and may send it again elsewhere (RFC 9113 §6.8).
async fn has_idled(connection_state: &ConnectionState, idle: Duration) {
    loop {
        let (phase, since) = connection_state.waits();
        let end = since + idle;
        let now = Instant::now();
        if phase == ConnectionPhase::Idle && end <= now {
            return;
        }
        let next = if phase == ConnectionPhase::Idle { end } else { now + idle };
        tokio::time::sleep_until(next).await;
    }
}

fn count_end(
    error: &hyper::Error,
    flow: &FrameCounts,
    client: &Client,
    thread_metrics: &ThreadMetrics,
) {
    if client.state.timed_out() {
        thread_metrics.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %client.peer, "a connection reached its deadline");
        return;
    }
    let Some(cut) = flow.flood().or_else(|| refusal(error)) else {
        tracing::debug!(client = %client.peer, %error, "a connection broke");
        return;
    };
    thread_metrics.cut(cut);
    let cause = cut.as_str();
    tracing::info!(client = %client.peer, cause, "a connection of HTTP/2 was cut");
}

/// The reason for which the library ended the connection.
fn refusal(error: &hyper::Error) -> Option<ConnectionCut> {
    let error = error.source()?.downcast_ref::<h2::Error>()?;
    if !error.is_library() {
        return None;
    }
    match error.reason()? {
        h2::Reason::NO_ERROR => None,
        h2::Reason::ENHANCE_YOUR_CALM => Some(ConnectionCut::Calm),
        _ => Some(ConnectionCut::Protocol),
    }
}
