//! Upgrades: a visitor asks to speak another protocol with the origin, WebSocket for one, and the
//! connection becomes a tunnel (RFC 9110 §7.8).
//!
//! Such a request is always the visitor's own: it is forwarded, on an origin connection of its own.
//! SECURITY: what a client says behind such a request is for the new protocol. Where none comes of it,
//! nobody may take it for another request; so the client's connection ends with the answer, whoever of us
//! gives that.
//!
//! Over HTTP/2 WebSocket is asked for by an extended CONNECT, and its stream alone becomes the tunnel
//! (RFC 8441). The origin is asked as over HTTP/1.1.

use ::http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TE, TRAILER,
};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::forward::{self, Unanswered};
use crate::http::hop;
use crate::http::peer::Peer;
use crate::http::tags::strip_tags;
use crate::http::upgrade::{self, Protocol};
use crate::ident::StoredToken;
use crate::origin::{Answer, OriginError};
use crate::proxy::connection::counter::Place;
use crate::proxy::connection::tunnel::Opened;
use crate::proxy::context::RequestContext;
use crate::proxy::deliver;
use crate::proxy::deliver::body::Body;
use crate::proxy::error::Error;
use crate::proxy::origin_request;
use crate::proxy::record::RequestRecord;
use crate::telemetry::metrics::{Count, Outcome};
use crate::telemetry::reason::Reason;

/// Marks a request that was an extended CONNECT for WebSocket, with the stream that it came on.
#[derive(Clone)]
struct Extended(OnUpgrade);

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

/// Ends the connection of such a request with its answer, unless that is the other protocol's beginning.
pub(in crate::proxy) fn end_unless_switched(response: &mut Response<Body>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// A place for one more tunnel, in all and for the visitor's address. A proxy of ours that does not say
/// for whom it asks is not counted, and neither is who has no address.
fn place(case: &RequestContext<'_>) -> Option<Place> {
    let settings = &case.room.settings;
    let mut place = case.room.tunnels.enter(settings.tunnels)?;
    let peer = case.admitted.address.map(Peer::at);
    let counted = peer.filter(|peer| !peer.is_among(&settings.trusted_proxies));
    counted.is_none_or(|peer| place.count_for(peer, settings.tunnels_per_address)).then_some(place)
}

/// Forwards a request for another protocol; it was found to be one, and has no body.
pub(in crate::proxy) async fn answer(
    case: &RequestContext<'_>,
    body: Incoming,
    trail: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let room = case.room;
    let Some(protocol) = asked(case.head, false) else {
        return forward::forward(case, Some(body), Reason::Upgrade, trail).await;
    };
    let Some(place) = place(case) else {
        room.sheet.count(Count::TunnelsRefused);
        return Err(Error::TunnelsFull);
    };
    let mut request = origin_request::forwarded(case, Some(body));
    for name in [TE, TRAILER] {
        request.headers_mut().remove(name);
    }
    protocol.put(request.headers_mut());
    let unanswered = Unanswered::of(case);
    let session = case.visitor.token.as_ref().map(StoredToken::as_str);
    let answer = match case.upstream().upgrade(request, &protocol, session).await {
        Ok(answer) => answer,
        Err(error) if error.may_have_reached() => return Err(error.into()),
        Err(error) => {
            unanswered.over();
            return Err(error.into());
        }
    };
    trail.origin_answered();
    trail.outcome(Outcome::Bypass, Some(Reason::Upgrade));
    let stream = case.head.extensions.get::<Extended>().map(|Extended(stream)| stream.clone());
    let response = match answer {
        // Over HTTP/2 a success would mean that the tunnel is open (RFC 8441 §5).
        Answer::Http(came) if stream.is_some() && came.response.status().is_success() => {
            let what = "it answers a handshake with a page";
            Err(Error::Origin(OriginError::Malformed(what)))
        }
        Answer::Http(came) => forward::own(case, came, Reason::Upgrade).await,
        Answer::Switched(mut origin) => {
            let mut fields = std::mem::take(&mut origin.fields);
            deliver::remove_sessions(case, &mut fields);
            deliver::harden_cookies(case, &mut fields);
            let is_websocket = protocol.is_websocket();
            let response = match stream {
                Some(_) => extended(fields),
                None => agreed(fields, &protocol),
            };
            trail.open(Opened { origin, is_websocket, place, stream });
            Ok(response)
        }
    };
    unanswered.over();
    response
}

/// The 101 as the client gets it. It changes nobody's session: what it says of one is left out.
fn agreed(fields: HeaderMap, protocol: &Protocol) -> Response<Body> {
    let mut response = told(fields);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    protocol.put(response.headers_mut());
    response
}

/// The same over HTTP/2 (RFC 8441 §5): the key was ours.
fn extended(fields: HeaderMap) -> Response<Body> {
    let mut response = told(fields);
    response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
    response
}

fn told(mut fields: HeaderMap) -> Response<Body> {
    hop::strip_hop_by_hop(&mut fields);
    fields.remove(CONTENT_LENGTH);
    deliver::remove_own(&mut fields);
    strip_tags(&mut fields);
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = fields;
    response
}
