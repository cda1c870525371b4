//! Which requests ask for another protocol, WebSocket for one (RFC 9110 §7.8, RFC 8441).

use ::http::header::SEC_WEBSOCKET_KEY;
use ::http::request::Parts;
use ::http::{HeaderMap, Method, Request, Version};
use hyper::upgrade::OnUpgrade;

use crate::http::upgrade::{self, Protocol};

/// Marks a request that was an extended CONNECT for WebSocket, with the stream that it came on.
#[derive(Clone)]
pub(in crate::proxy) struct Extended(pub(in crate::proxy) OnUpgrade);

/// Lets an extended CONNECT for WebSocket look like a handshake of HTTP/1.1, with a key of ours. Any other
/// CONNECT stays what it is.
pub(in crate::proxy) fn even_out(head: &mut Parts) {
    if head.version != Version::HTTP_2 || head.method != Method::CONNECT {
        return;
    }
    let protocol = head.extensions.remove::<hyper::ext::Protocol>();
    if !protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket")) {
        return;
    }
    let Some(stream) = head.extensions.remove::<OnUpgrade>() else { return };
    head.extensions.insert(Extended(stream));
    head.method = Method::GET;
    head.headers.insert(SEC_WEBSOCKET_KEY, upgrade::websocket_key(fastrand::u128(..)));
}

/// Whether a request was an extended CONNECT: a success would tell its client that the tunnel is open
/// (RFC 8441 §5).
pub(in crate::proxy) fn is_extended(head: &Parts) -> bool {
    head.extensions.get::<Extended>().is_some()
}

/// The protocol that a request asks for, where it may have it. One with a body is answered in HTTP, and
/// so is a WebSocket that is not asked for with GET (RFC 6455 §4.1).
pub(in crate::proxy) fn asked(head: &Parts, has_body: bool) -> Option<Protocol> {
    if has_body {
        return None;
    }
    if is_extended(head) {
        return Some(Protocol::websocket());
    }
    asked_over_http1(head.version, &head.method, &head.headers)
}

fn asked_over_http1(version: Version, method: &Method, headers: &HeaderMap) -> Option<Protocol> {
    if version != Version::HTTP_11 {
        return None;
    }
    let protocol = Protocol::asked(headers)?;
    (!protocol.is_websocket() || *method == Method::GET).then_some(protocol)
}

/// Whether a request asks that its very connection become another protocol's, whatever comes of it.
pub(in crate::proxy) fn asks_for_connection<B: http_body::Body>(request: &Request<B>) -> bool {
    let asked = asked_over_http1(request.version(), request.method(), request.headers());
    asked.is_some() && request.body().is_end_stream()
}
