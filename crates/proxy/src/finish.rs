//! Finishes every response, refusals included: completes its head, and attaches the record to its body.

use std::rc::Rc;

use ::http::header::{CONNECTION, SET_COOKIE, STRICT_TRANSPORT_SECURITY};
use ::http::request::Parts;
use ::http::{HeaderValue, Method, StatusCode, Version};
use anteroom_http::host::Scheme;

use super::connection::client::Client;
use super::connection::tunnel::{OpenedTunnel, Tunnel};
use super::context::WorkerContext;
use super::deliver::client_response::ClientResponse;
use super::record::RequestRecord;
use super::request_id::RequestId;
use super::stage::detect_upgrade;
use super::visitor_token::VisitorTokenState;
use crate::deliver::headers;

/// The properties of a request that its response's completion depends on.
pub(super) struct Finish {
    is_head: bool,
    knows_chunks: bool,
    asks_for_connection: bool,
    request_id: Option<RequestId>,
}

impl Finish {
    pub(super) fn of(head: &Parts, has_body: bool, request_id: Option<RequestId>) -> Self {
        Self {
            is_head: head.method == Method::HEAD,
            knows_chunks: head.version > Version::HTTP_10,
            asks_for_connection: detect_upgrade::asks_for_connection(head, has_body),
            request_id,
        }
    }

    /// The id of the request, if it has one.
    pub(super) fn request_id(&self) -> Option<&HeaderValue> {
        self.request_id.as_ref().map(|request_id| &request_id.id)
    }

    /// Completes a response's head.
    pub(super) fn complete(
        self,
        client: &Client,
        token: &VisitorTokenState,
        response: &mut ClientResponse,
    ) {
        show_token(token, response);
        if let Some(RequestId { name, id }) = self.request_id {
            response.headers_mut().insert(name, id);
        }
        if self.is_head {
            headers::leave_out_body(response.as_http());
        }
        require_https(client, response);
        // SECURITY: the bytes after such a request belong to another protocol. They must not be read as
        // a request.
        if self.asks_for_connection && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if !self.knows_chunks {
            headers::end_where_length_is_unknown(response.as_http());
        }
    }
}

/// Adds the cookie of the visitor's token to the response to this very request, and keeps the response
/// out of caches.
fn show_token(token: &VisitorTokenState, response: &mut ClientResponse) {
    if let Some(cookie) = token.0.borrow_mut().cookie.take() {
        let headers = response.headers_mut();
        headers.append(SET_COOKIE, cookie);
        headers::keep_from_caches(headers);
    }
}

/// Tells browsers to use https only (RFC 6797 §7.1), unless the app has its own policy, or the certificate is one that
/// they do not trust yet.
fn require_https(client: &Client, response: &mut ClientResponse) {
    if let Some(hsts) = &client.entry.hsts
        && client.scheme() == Scheme::Https
        && !client.server_name().is_some_and(|name| client.entry.awaited.has(name))
    {
        response.add_missing(&STRICT_TRANSPORT_SECURITY, hsts);
    }
}

/// Ties the record to the response's body, or to the tunnel that the answer opens.
pub(super) fn attach(
    mut record: Box<RequestRecord>,
    response: &mut ClientResponse,
    opened: Option<Box<OpenedTunnel>>,
    worker: &WorkerContext,
    client: &Rc<Client>,
) {
    record.answered(response.status());
    let Some(mut opened) = opened else { return response.body_mut().tie(record) };
    record.switched();
    let settings = &worker.settings;
    let stream = opened.stream.take();
    let (idle, stall) = (settings.tunnel_idle, settings.stall);
    let tunnel = Tunnel::new(*opened, record, &worker.thread_metrics, idle, stall);
    match stream {
        Some(stream) => worker.detached.carry_on(tunnel.carry_stream(stream)),
        None => client.become_tunnel(tunnel),
    }
}
