//! A connection of HTTP/2: hyper's http2 within bounds of ours, until either side ends it.
//!
//! What one connection may hold of our memory, at worst: two MiB of bodies that nobody has read yet
//! ([`CONNECTION_WINDOW`]); and for each of its hundred requests ([`STREAMS`]) a head of 16 KiB
//! ([`HEADER_LIST`]), 48 KiB of its response that the client does not take ([`SEND_BUFFER`] and a frame),
//! and what is left of the part that came from the origin last, 64 KiB. Together 15 MiB. It is more where
//! parts of bodies are small that nobody reads: the library keeps each in the buffer into which it was
//! read, with what came beside it. A page from memory is not copied. How many requests one address has, on
//! all its connections, is counted ([`Caps`](super::caps::Caps)).

mod meter;
mod pace;
mod wire;

use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::meter::Meter;
use self::pace::{BACKLOG, Paced, Streams};
use self::wire::{FRAME, Flow, Wire};
use super::door::Line;
use crate::proxy::connection::client::Client;
use crate::proxy::pulse::{Phase, Pulse};
use crate::proxy::respond;
use crate::telemetry::metrics::{Count, Cut, Sheet};

/// Requests that one connection may have open at a time.
const STREAMS: u32 = 100;

/// The largest list of a request's fields, in bytes (RFC 9113 §10.5.1).
const HEADER_LIST: u32 = 16 * 1024;

/// What a client may send of one body before we have read it.
const STREAM_WINDOW: u32 = 128 * 1024;

/// What it may send of all bodies. The library takes half of it for a bound on the overhead of small
/// frames that nobody has read: so large that a stream of messages of 32 bytes fits, and no larger.
const CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;

/// What is held of one response that the client is slow to take.
const SEND_BUFFER: usize = 32 * 1024;

/// Requests that may be taken back before we have looked at them (CVE-2023-44487).
const UNSEEN_RESETS: usize = 20;

/// The same of a proxy or a load balancer, which may pass on many such requests at once.
const UNSEEN_RESETS_OF_MANY: usize = 200;

/// Requests that a client may make us take back, by frames that make no sense (CVE-2025-8671).
const ERROR_RESETS: usize = 256;

/// How often a client is asked whether it is there. The question waits behind all that the system holds for
/// a client that takes a response slowly, and nothing but the answer counts: so it has as long as a response
/// may take that is half taken. Who is not there any more is found by the deadline of writes, mostly.
const PING_EVERY: Duration = Duration::from_secs(20);

/// How long an idle client may take to answer a farewell.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves a connection until it ends; after `drain`, or when it was idle for too long, until the requests
/// in work are answered.
pub(super) async fn serve(line: Line<'_>) {
    let Line { mut io, client, settings, door } = line;
    io.put_off_idle(FAREWELL);
    let flow = Rc::<Flow>::default();
    // It may be the connection of many, of whom each is free to leave.
    let carries_many = door.inside.room().settings.carries_many(client.peer);
    let (meter, unseen_resets) = match carries_many {
        true => (Meter::of_many(), UNSEEN_RESETS_OF_MANY),
        false => (Meter::default(), UNSEEN_RESETS),
    };
    let io = Wire::new(io, meter, Rc::clone(&client.pulse), Rc::clone(&flow));
    let stall = settings.deadlines.stall;
    let streams = Streams::new(stall, Rc::clone(&flow), Arc::clone(&door.sheet));
    let (asker, house, paces) = (Rc::clone(&client), Rc::clone(door), streams.clone());
    let is_another = Rc::<Notify>::default();
    let another = Rc::clone(&is_another);
    let service = service_fn(move |request| {
        let (room, client) = (house.inside.room(), Rc::clone(&asker));
        if room.settings.carries_many(client.peer) != carries_many {
            // The operator has changed his mind about the peer, and it is metered by the old one.
            another.notify_one();
        }
        let pace = house.caps.enter_request(client.peer).map(|place| paces.pace(place));
        async move {
            let Some(pace) = pace else {
                room.sheet.count(Count::StreamsRefused);
                // It was not looked at, and may be sent again (RFC 9113 §8.7).
                return Err(h2::Error::from(h2::Reason::REFUSED_STREAM));
            };
            let response = respond(room, client, request).await;
            Ok(response.map(|body| Paced::new(body, pace)))
        }
    });
    let header_list = u32::try_from(settings.request_head).unwrap_or(HEADER_LIST).min(HEADER_LIST);
    let mut connection = http2::Builder::new(streams.clone())
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
        .keep_alive_timeout(stall + BACKLOG)
        .enable_connect_protocol()
        .serve_connection(TokioIo::new(io), service);
    let ended = tokio::select! {
        result = &mut connection => Some(result),
        () = door.drain.cancelled() => None,
        () = client.lapses() => None,
        () = is_another.notified() => None,
        () = has_idled(&client.pulse, settings.deadlines.idle) => None,
    };
    let result = match ended {
        Some(result) => result,
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    // Its requests learn from this that nobody waits for them.
    drop(connection);
    if let Err(error) = result {
        count_end(&error, &flow, &client, &door.sheet);
    }
    streams.tasks.close();
    streams.tasks.wait().await;
}

/// Returns when the connection has been idle for so long. A client that has begun a request just then
/// learns from the farewell that it was not taken, and may send it again elsewhere (RFC 9113 §6.8).
async fn has_idled(pulse: &Pulse, idle: Duration) {
    loop {
        let (phase, since) = pulse.waits();
        let end = since + idle;
        let now = Instant::now();
        if phase == Phase::Idle && end <= now {
            return;
        }
        let next = if phase == Phase::Idle { end } else { now + idle };
        tokio::time::sleep_until(next).await;
    }
}

fn count_end(error: &hyper::Error, flow: &Flow, client: &Client, sheet: &Sheet) {
    if client.pulse.timed_out() {
        sheet.count(Count::ConnectionsTimedOut);
        tracing::debug!(client = %client.peer, "a connection reached its deadline");
        return;
    }
    let Some(cut) = flow.flood().or_else(|| refusal(error)) else {
        tracing::debug!(client = %client.peer, %error, "a connection broke");
        return;
    };
    sheet.cut(cut);
    let cause = cut.as_str();
    tracing::info!(client = %client.peer, cause, "a connection of HTTP/2 was cut");
}

/// What the library has ended the connection for.
fn refusal(error: &hyper::Error) -> Option<Cut> {
    let error = error.source()?.downcast_ref::<h2::Error>()?;
    if !error.is_library() {
        return None;
    }
    match error.reason()? {
        h2::Reason::NO_ERROR => None,
        h2::Reason::ENHANCE_YOUR_CALM => Some(Cut::Calm),
        _ => Some(Cut::Protocol),
    }
}
