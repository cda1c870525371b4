//! Upgrades: a visitor asks to speak another protocol with the origin, WebSocket for one, and the
//! connection becomes a tunnel (RFC 9110 §7.8).
//!
//! Such a request is always the visitor's own: it is forwarded, on an origin connection of its own.
//! SECURITY: what a client says behind such a request is for the new protocol. Where none comes of it,
//! nobody may take it for another request; so the client's connection ends with the answer.

use ::http::header::{CONNECTION, CONTENT_LENGTH, TE, TRAILER};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::error::Error;
use super::forward::{self, Unanswered};
use super::trail::Trail;
use super::tunnel::Opened;
use super::{Body, Case, deliver, outgoing};
use crate::http::hop;
use crate::http::tags::strip_tags;
use crate::http::upgrade::Protocol;
use crate::metrics::{Count, Outcome};
use crate::origin::Answer;
use crate::reason::Reason;

/// The protocol that a request asks for, where it may have it. One with a body is answered in HTTP, and
/// so is a WebSocket that is not asked for with GET (RFC 6455 §4.1).
pub(super) fn asked(head: &Parts, has_body: bool) -> Option<Protocol> {
    if head.version != Version::HTTP_11 || has_body {
        return None;
    }
    let protocol = Protocol::asked(&head.headers)?;
    (!protocol.is_websocket() || head.method == Method::GET).then_some(protocol)
}

/// Forwards a request for another protocol; it was found to be one, and has no body.
pub(super) async fn answer(case: &Case<'_>, body: Incoming, trail: &mut Trail) -> Response<Body> {
    let mut response = match ask(case, body, trail).await {
        Ok(response) => response,
        Err(error) => error.into_response(case.room, trail),
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn ask(case: &Case<'_>, body: Incoming, trail: &mut Trail) -> Result<Response<Body>, Error> {
    let room = case.room;
    let Some(protocol) = asked(case.head, false) else {
        return forward::forward(case, body, Reason::Upgrade, trail).await;
    };
    let Some(place) = room.tunnels.enter(room.settings.tunnels) else {
        room.sheet.count(Count::TunnelsRefused);
        return Err(Error::TunnelsFull);
    };
    let mut request = outgoing::forwarded(case, body);
    for name in [TE, TRAILER] {
        request.headers_mut().remove(name);
    }
    protocol.put(request.headers_mut());
    let unanswered = Unanswered::of(case);
    let answer = match room.origin.upgrade(request, &protocol).await {
        Ok(answer) => answer,
        Err(error) if error.may_have_reached() => return Err(error.into()),
        Err(error) => {
            unanswered.over();
            return Err(error.into());
        }
    };
    trail.origin_answered();
    trail.outcome(Outcome::Bypass, Some(Reason::Upgrade));
    let response = match answer {
        Answer::Http(came) => forward::own(case, came, Reason::Upgrade).await,
        Answer::Switched(mut origin) => {
            let fields = std::mem::take(&mut origin.fields);
            let is_websocket = protocol.is_websocket();
            trail.open(Opened { origin, is_websocket, place });
            Ok(agreed(fields, &protocol))
        }
    };
    unanswered.over();
    response
}

/// The 101 as the client gets it. It changes nobody's session: what it says of one is left out.
fn agreed(mut fields: HeaderMap, protocol: &Protocol) -> Response<Body> {
    hop::strip_hop_by_hop(&mut fields);
    fields.remove(CONTENT_LENGTH);
    deliver::remove_own(&mut fields);
    strip_tags(&mut fields);
    protocol.put(&mut fields);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = fields;
    response
}
