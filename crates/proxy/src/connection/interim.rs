//! Passes interim responses of the origin (RFC 9110 §15.2) on to the client that sent the request.
//!
//! hyper's server does not send interim responses. They therefore bypass it and are written to the
//! client's socket while hyper has nothing to send: after the previous response, and before the head of
//! this one. An interim response that arrives too late is dropped.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::http::header::{CONTENT_LENGTH, SET_COOKIE};
use ::http::{HeaderMap, Request, StatusCode, Version};
use anteroom_http::set_cookie::CLEAR_SITE_DATA;
use anteroom_http::tags::strip_tags;
use anteroom_http::{forwarded, hop};
use anteroom_origin::{InterimListener, UploadBody};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::BytesMut;

use crate::connection_state::ConnectionState;
use crate::connection_state::interim_queue::InterimQueue;

/// The most interim responses that are passed on for one request.
const EACH_MAX: usize = 8;
/// Passes on interim responses until it is dropped.
#[derive(Debug)]
pub(crate) struct InterimForwarder<'p>(&'p ConnectionState);

impl Drop for InterimForwarder<'_> {
    fn drop(&mut self) {
        self.0.hang_up();
    }
}

/// Passes on the interim responses to the visitor's own `request`, or to the fetch that it began, as long as the
/// returned value is kept. HTTP/1.0 has no interim responses, and they are not implemented for HTTP/2 clients.
pub(crate) fn pass_on<'p>(
    request: &mut Request<UploadBody>,
    connection_state: &'p Rc<ConnectionState>,
    version: Version,
    thread_metrics: &Arc<ThreadMetrics>,
) -> InterimForwarder<'p> {
    let line = (version == Version::HTTP_11).then(InterimQueue::default);
    if let Some(line) = &line {
        connection_state.listen(line.clone());
    }
    let thread_metrics = Arc::clone(thread_metrics);
    let passed = AtomicUsize::new(0);
    let listener = InterimListener::new(move |status, headers| {
        let Some(phrase) = phrase(status) else { return };
        let is_within = passed.fetch_add(1, Ordering::Relaxed) < EACH_MAX;
        let left = line
            .as_ref()
            .filter(|_| is_within)
            .is_some_and(|line| line.leave(&head(status, phrase, headers.clone())));
        if !left {
            thread_metrics.count(Count::InterimDropped);
        }
    });
    request.extensions_mut().insert(listener);
    InterimForwarder(connection_state)
}

/// The reason phrase of a status that is passed on. 100 concerns one connection only, and 101 ends HTTP
/// on it.
fn phrase(status: StatusCode) -> Option<&'static str> {
    match status.as_u16() {
        102 => Some("Processing"),
        103 => Some("Early Hints"),
        _ => None,
    }
}

/// An interim head as it is sent: without fields that concern one connection, and without those that
/// only a final response may carry.
fn head(status: StatusCode, phrase: &str, mut headers: HeaderMap) -> BytesMut {
    hop::strip_hop_by_hop(&mut headers);
    forwarded::remove_own(&mut headers);
    strip_tags(&mut headers);
    for name in [&SET_COOKIE, &CONTENT_LENGTH, &CLEAR_SITE_DATA] {
        headers.remove(name);
    }
    let mut bytes = BytesMut::with_capacity(256);
    bytes.extend_from_slice(format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).as_bytes());
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_holds_what_any_client_may_know() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", "</a.css>; rel=preload"),
            ("set-cookie", "a=b"),
            ("clear-site-data", "\"*\""),
            ("anteroom-login", "root"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("surrogate-key", "a"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let bytes = head(StatusCode::EARLY_HINTS, "Early Hints", headers);
        assert_eq!(bytes, "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
    }
}
