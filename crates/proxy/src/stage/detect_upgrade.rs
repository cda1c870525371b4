//! Finds requests that ask for another protocol, such as WebSocket (RFC 9110 §7.8, RFC 8441).

use ::http::header::{CONNECTION, SEC_WEBSOCKET_KEY};
use ::http::request::Parts;
use ::http::{HeaderMap, Method, Version};
use hyper::upgrade::OnUpgrade;

use anteroom_http::list;
use anteroom_http::upgrade::{self, UpgradeProtocol};

/// Marks a request that was an extended CONNECT for WebSocket, and holds the stream that it arrived on.
#[derive(Clone)]
pub(crate) struct ExtendedConnect(pub(crate) OnUpgrade);

/// Rewrites an extended CONNECT for WebSocket as an HTTP/1.1 handshake, with a key that the proxy makes
/// up. Any other CONNECT stays as it is.
pub(crate) fn normalise(head: &mut Parts) {
    if head.version != Version::HTTP_2 || head.method != Method::CONNECT {
        return;
    }
    let protocol = head.extensions.remove::<hyper::ext::Protocol>();
    if !protocol.is_some_and(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket")) {
        return;
    }
    let Some(stream) = head.extensions.remove::<OnUpgrade>() else { return };
    head.extensions.insert(ExtendedConnect(stream));
    head.method = Method::GET;
    head.headers.insert(SEC_WEBSOCKET_KEY, upgrade::websocket_key(fastrand::u128(..)));
}

/// Whether a request was an extended CONNECT. A 2xx response would tell its client that the tunnel is
/// open (RFC 8441 §5).
pub(crate) fn is_extended(head: &Parts) -> bool {
    head.extensions.get::<ExtendedConnect>().is_some()
}

/// The protocol that a request asks for, if the proxy may switch to it. A request with a body is
/// answered in HTTP, and so is a WebSocket handshake with a method other than GET (RFC 6455 §4.1).
pub(crate) fn requested_protocol(head: &Parts, has_body: bool) -> Option<UpgradeProtocol> {
    if has_body {
        return None;
    }
    if is_extended(head) {
        return Some(UpgradeProtocol::websocket());
    }
    asked_over_http1(head.version, &head.method, &head.headers)
}

fn asked_over_http1(
    version: Version,
    method: &Method,
    headers: &HeaderMap,
) -> Option<UpgradeProtocol> {
    if version != Version::HTTP_11 || !list::has_line(headers, &CONNECTION) {
        return None;
    }
    let protocol = UpgradeProtocol::from_request(headers)?;
    (!protocol.is_websocket() || *method == Method::GET).then_some(protocol)
}

/// Whether a request asks to switch its own connection to another protocol, whatever the outcome.
pub(crate) fn asks_for_connection(head: &Parts, has_body: bool) -> bool {
    !has_body && asked_over_http1(head.version, &head.method, &head.headers).is_some()
}
