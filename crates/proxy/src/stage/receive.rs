//! The first stage gives requests of all HTTP versions the same form, and finds the client's address.

use std::net::IpAddr;

use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, Method, Uri, Version};
use anteroom_fault::fault;
use anteroom_http::forwarded;
use anteroom_http::http2::{self, MalformedRequest};
use http_body::Body as _;
use hyper::body::Incoming;

use super::detect_upgrade;
use crate::connection::client::Client;
use crate::error::Error;
use crate::settings::ProxySettings;
use crate::visitor_token::VisitorTokenState;

/// A request whose head has been read and not checked yet.
pub(crate) struct ReceivedRequest {
    /// PERF: boxed, because it moves from stage to stage.
    pub(crate) head: Box<Parts>,
    /// The length of the body, if known.
    pub(crate) length: Option<u64>,
    pub(crate) has_body: bool,
    /// The client's address, if known.
    pub(crate) address: Option<IpAddr>,
    /// Unix time in seconds.
    pub(crate) now: f64,
}

/// Receives a request at `now`, in Unix time. The visitor token's cookie is removed, so that later stages cannot see it.
pub(crate) fn receive(
    settings: &ProxySettings,
    client: &Client,
    mut head: Box<Parts>,
    body: Option<&Incoming>,
    token: &VisitorTokenState,
    now: f64,
) -> Result<ReceivedRequest, Error> {
    if client.state.is_over() {
        return Err(Error::BadRequest("a request stands behind trailers"));
    }
    if client.has_lapsed() {
        return Err(Error::Lapsed);
    }
    if !fault!("stream") {
        detect_upgrade::normalise(&mut head);
    }
    normalise(settings, client, &mut head)?;
    if fault!("stream") {
        detect_upgrade::normalise(&mut head);
    }
    let length = body.map_or(Some(0), |body| body.size_hint().exact());
    Ok(ReceivedRequest::of(settings, client, head, length, body.is_some(), token, now))
}

impl ReceivedRequest {
    /// Builds a received request from a head and, if there is a body, the body's length.
    pub(crate) fn of(
        settings: &ProxySettings,
        client: &Client,
        mut head: Box<Parts>,
        length: Option<u64>,
        has_body: bool,
        token: &VisitorTokenState,
        now: f64,
    ) -> Self {
        token.take(settings.visitor_tokens.as_ref(), &mut head.headers);
        let address = address(settings, client, &head.headers);
        Self { head, length, has_body, address, now }
    }
}

/// Gives every target a path, and an HTTP/2 request the form of HTTP/1.1. The scheme is checked only for
/// direct clients: a client behind a proxy or load balancer may have used another scheme there.
fn normalise(settings: &ProxySettings, client: &Client, head: &mut Parts) -> Result<(), Error> {
    give_path(head)?;
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    // A plain CONNECT. Extended CONNECT (RFC 8441) was rewritten before.
    if head.method == Method::CONNECT {
        return Err(Error::Tunnel);
    }
    let is_own = !client.is_balanced() && !client.peer.is_among(&settings.trusted_proxies);
    let own = is_own.then(|| client.scheme());
    http2::normalise(head, own).map_err(|misshapen| match misshapen {
        MalformedRequest::Scheme => Error::Misdirected,
        MalformedRequest::Padded => Error::BadRequest("a field begins or ends with a space"),
        MalformedRequest::Authority => Error::BadRequest("exactly one valid Host is needed"),
    })
}

/// Replaces a missing path by the root (RFC 9110 §4.2.3). From here on, the path is explicit in the
/// request line to the origin, in signatures, in the key and in redirects.
fn give_path(head: &mut Parts) -> Result<(), Error> {
    const NO_PATH: Error = Error::BadRequest("the target has no path");
    let is_whole = match (head.uri.path_and_query(), head.uri.scheme()) {
        (None, _) => head.method == Method::CONNECT,
        (Some(_), None) => !head.uri.path().is_empty(),
        // An empty path is reported as "/" here, too.
        (Some(target), Some(_)) => {
            target.as_str().len() > 1 && target.as_str().starts_with('/') || target == "*"
        }
    };
    if is_whole {
        return Ok(());
    }
    let query = head.uri.query().map(|query| format!("/?{query}"));
    // RFC 9113 §8.3.1: unlike a URL, `:path` always includes a path.
    let is_missing = query.is_some() || head.uri.scheme().is_none();
    if is_missing && head.version == Version::HTTP_2 {
        return Err(NO_PATH);
    }
    let target = match query {
        Some(target) => PathAndQuery::try_from(target).map_err(|_| NO_PATH)?,
        None => PathAndQuery::from_static("/"),
    };
    let mut parts = std::mem::take(&mut head.uri).into_parts();
    parts.path_and_query = Some(target);
    head.uri = Uri::from_parts(parts).map_err(|_| NO_PATH)?;
    Ok(())
}

/// The client's address: that of the connection, or the one that a trusted proxy states.
fn address(settings: &ProxySettings, client: &Client, headers: &HeaderMap) -> Option<IpAddr> {
    forwarded::client_address(client.peer, headers, &settings.trusted_proxies)
}
