//! Requests that need more than a head in and a response out, over hyper's http1: those with a body, over
//! HTTP/1.0, for another protocol, and those that are faulty.

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use ::http::header::CONNECTION;
use ::http::{HeaderValue, Request, StatusCode};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::break_off;
use crate::connection::client::Client;
use crate::connection_state::{ConnectionPhase, ConnectionState};
use crate::serve::context::{ConnectionContext, ConnectionSettings};
use crate::serve::io::{TimedSocket, linger};
use crate::serve::stream::ClientStream;
use crate::{Tunnel, from_hyper, respond};

/// hyper's buffer for a client connection: how much it reads ahead.
const BUFFER: usize = 64 * 1024;

/// Serves the next requests of a connection. Returns its socket once nothing is in progress, with the bytes
/// read ahead; `None`: the connection is over.
pub(super) async fn converse(
    io: TimedSocket<ClientStream>,
    client: &Rc<Client>,
    settings: ConnectionSettings,
    context: &Rc<ConnectionContext>,
) -> Option<TimedSocket<ClientStream>> {
    let head_max = settings.request_head;
    let tunnel = client.tunnel_slot();
    let (own_client, request_context) = (Rc::clone(client), Rc::clone(context));
    // A request may be hyper's for a while before the connection's state knows of it.
    let is_responding = Rc::new(Cell::new(false));
    let responds = Rc::clone(&is_responding);
    let service = service_fn(move |request: Request<Incoming>| {
        let (head, body) = from_hyper(request);
        let is_chunked = body.as_ref().is_some_and(|body| body.size_hint().exact().is_none());
        own_client.state.takes_body(body.is_some(), is_chunked);
        let (worker, client) = (request_context.inside.worker(), Rc::clone(&own_client));
        let responds = Rc::clone(&responds);
        responds.set(true);
        let leaving = request_context.leaving.clone();
        // PERF: boxed. hyper moves the future into the connection, where it would be cold memory at each request;
        // the allocator hands out what the thread has just used.
        Box::pin(async move {
            let mut response = respond(worker, Rc::clone(&client), (head, body)).await.into_http();
            let ends = client.state.may_have_trailers() || leaving.is_cancelled();
            if ends && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            responds.set(false);
            Ok::<_, std::convert::Infallible>(response)
        })
    });
    let mut connection = http1::Builder::new()
        .half_close(false)
        .header_read_timeout(None)
        .max_header_size(head_max)
        .max_buf_size(BUFFER.max(head_max))
        .serve_connection(TokioIo::new(io), service);
    let answered = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        // A write that is stalled is not answered.
        Poll::Pending if !is_responding.get() && is_answered(&client.state) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let ended = tokio::select! {
        biased;
        ended = answered => Some(ended),
        () = context.takes_no_more() => None,
        () = client.lapses() => None,
    };
    let result = match ended {
        Some(Some(result)) => result,
        Some(None) => {
            let parts = connection.into_parts();
            let mut io = parts.io.into_inner();
            io.unread(parts.read_buf);
            return Some(io);
        }
        None => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
    };
    if let Err(error) = &result {
        count_end(error, client, &context.thread_metrics);
        // The client has not received the 101.
        drop(tunnel.take());
    }
    if let Some(tunnel) = tunnel.take() {
        // Boxed, so that other connections need no room for it.
        Box::pin(carry(*tunnel, connection.into_parts())).await;
        return None;
    }
    let mut io = connection.into_parts().io.into_inner();
    if client.state.must_reset() {
        break_off(io.into_socket()).await;
    } else if result.is_ok() && context.leaving.is_cancelled() {
        Box::pin(linger(&mut io)).await;
    }
    None
}

/// Whether every request that hyper has read is answered, and all of its body was read.
fn is_answered(connection_state: &ConnectionState) -> bool {
    let (phase, _) = connection_state.waits();
    phase == ConnectionPhase::Idle && connection_state.may_rest()
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
