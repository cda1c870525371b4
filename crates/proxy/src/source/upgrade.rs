//! Upgrades: a client asks to speak another protocol with the origin, such as WebSocket, and the
//! connection becomes a tunnel (RFC 9110 §7.8).
//!
//! Such a request is never served from the cache. It is forwarded on an origin connection of its own.
//! SECURITY: the bytes that a client sends after such a request belong to the new protocol. If the
//! upgrade fails, they must not be read as another request. The client's connection therefore closes
//! after the answer, whether the origin or the proxy gives it.
//!
//! Over HTTP/2, a client asks for WebSocket with an extended CONNECT, and only its stream becomes the
//! tunnel (RFC 8441). The origin is asked as over HTTP/1.1.

use ::http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, TE, TRAILER};
use ::http::{HeaderMap, Response, StatusCode};
use anteroom_http::peer::Peer;
use anteroom_http::tags::strip_tags;
use anteroom_http::upgrade::UpgradeProtocol;
use anteroom_http::{forwarded, hop};
use anteroom_origin::{OriginError, UpgradeAnswer as Upgraded};
use anteroom_telemetry::metrics::{Count, Outcome};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::traces::Asking;

use super::forward;
use crate::answer::Answer;
use crate::connection::counter::ReservedSlot;
use crate::connection::tunnel::OpenedTunnel;
use crate::context::RequestContext;
use crate::deliver::body::Body;
use crate::deliver::headers;
use crate::error::Error;
use crate::origin_request;
use crate::record::RequestRecord;
use crate::stage::classify::OwnRequest;
use crate::stage::detect_upgrade::{ExtendedConnect, requested_protocol};

/// Reserves a place for one more tunnel, in total and for the client's address. A client without an
/// address is not counted by address, and neither is a trusted proxy that does not name its client.
fn tunnel_slot_for(cx: &RequestContext<'_>) -> Option<ReservedSlot> {
    let settings = &cx.worker.settings;
    let mut place = cx.worker.tunnels.enter(settings.tunnels)?;
    let peer = cx.admitted.address.map(Peer::at);
    let counted = peer.filter(|peer| !peer.is_among(&settings.trusted_proxies));
    counted.is_none_or(|peer| place.count_for(peer, settings.tunnels_per_address)).then_some(place)
}

/// Forwards a request for another protocol. The caller has checked that it is one, and that it has no
/// body.
pub(crate) async fn answer(
    cx: &RequestContext<'_>,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    let worker = cx.worker;
    let Some(protocol) = requested_protocol(cx.head, false) else {
        return forward::forward(cx, None, Reason::Upgrade, record).await;
    };
    if cx.route.maintenance {
        return Err(OriginError::Maintenance.into());
    }
    let Some(place) = tunnel_slot_for(cx) else {
        worker.thread_metrics.count(Count::TunnelsRefused);
        return Err(Error::TunnelsFull);
    };
    record.asks();
    record.asks_origin(Asking::Forward);
    let mut request = origin_request::forwarded(cx, None);
    for name in [TE, TRAILER] {
        request.headers_mut().remove(name);
    }
    protocol.put(request.headers_mut());
    cx.set_reached(true);
    let sent = Box::pin(async {
        let own = OwnRequest::new(cx);
        cx.upstream().upgrade(request, &protocol, own.requester()).await
    });
    let sent = sent.await;
    let answer = sent.inspect_err(|error| cx.set_reached(error.may_have_reached()))?;
    record.origin_answered();
    record.outcome(Outcome::Bypass, Some(Reason::Upgrade));
    let stream =
        cx.head.extensions.get::<ExtendedConnect>().map(|ExtendedConnect(stream)| stream.clone());
    match answer {
        // Over HTTP/2, a 2xx response would mean that the tunnel is open (RFC 8441 §5).
        Upgraded::Http(came) if stream.is_some() && came.response.status().is_success() => {
            // The origin has answered, so the request is not left unanswered.
            cx.set_reached(false);
            let what = "it answers a handshake with a page";
            Err(Error::Origin(OriginError::Malformed(what)))
        }
        Upgraded::Http(came) => Ok(Answer::Uncached(came, Reason::Upgrade)),
        Upgraded::Switched(mut origin) => {
            let mut fields = std::mem::take(&mut origin.fields);
            headers::remove_sessions(cx, &mut fields);
            headers::harden_cookies(cx, &mut fields);
            let is_websocket = protocol.is_websocket();
            let response = match stream {
                Some(_) => extended(fields),
                None => agreed(fields, &protocol),
            };
            Ok(Answer::Switched(
                response,
                Box::new(OpenedTunnel { origin, is_websocket, slot: place, stream }),
            ))
        }
    }
}

/// The 101 response as the client gets it. It changes no session: fields about sessions are removed.
fn agreed(fields: HeaderMap, protocol: &UpgradeProtocol) -> Response<Body> {
    let mut response = switching_response(fields);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    protocol.put(response.headers_mut());
    response
}

/// The same over HTTP/2 (RFC 8441 §5). The key was made by the proxy, so the client gets no proof of it.
fn extended(fields: HeaderMap) -> Response<Body> {
    let mut response = switching_response(fields);
    response.headers_mut().remove(SEC_WEBSOCKET_ACCEPT);
    response
}

fn switching_response(mut fields: HeaderMap) -> Response<Body> {
    hop::strip_hop_by_hop(&mut fields);
    fields.remove(CONTENT_LENGTH);
    forwarded::remove_own(&mut fields);
    strip_tags(&mut fields);
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = fields;
    response
}
