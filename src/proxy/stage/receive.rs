//! The first stage: a request of any HTTP version is made to look alike, and the client's address is found.

use std::net::IpAddr;

use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, Method, Uri, Version};

use super::upgrade;
use crate::clock::unix_now;
use crate::http::forwarded;
use crate::http::http2::{self, Misshapen};
use crate::proxy::connection::client::Client;
use crate::proxy::error::Error;
use crate::proxy::settings::Settings;
use crate::proxy::visitor_token::VisitorTokenState;

/// A request whose head is read, and of which nothing was checked yet.
pub(in crate::proxy) struct Received {
    /// PERF: boxed, as it goes from stage to stage.
    pub(in crate::proxy) head: Box<Parts>,
    /// The length of its body, where that is known.
    pub(in crate::proxy) length: Option<u64>,
    pub(in crate::proxy) has_body: bool,
    /// The client's address, where it has one.
    pub(in crate::proxy) address: Option<IpAddr>,
    /// Unix time in seconds.
    pub(in crate::proxy) now: f64,
}

/// Receives a request. The cookie of its visitor's token is taken off, so that no later stage sees it.
pub(in crate::proxy) fn receive<B: http_body::Body>(
    settings: &Settings,
    client: &Client,
    mut head: Parts,
    body: &B,
    token: &VisitorTokenState,
) -> Result<Received, Error> {
    let now = unix_now();
    if client.pulse.is_over() {
        return Err(Error::BadRequest("a request stands behind trailers"));
    }
    if client.has_lapsed() {
        return Err(Error::Lapsed);
    }
    upgrade::even_out(&mut head);
    even_out(settings, client, &mut head)?;
    let has_body = !body.is_end_stream();
    Ok(Received::of(settings, client, head, (body.size_hint().exact(), has_body), (token, now)))
}

impl Received {
    /// A request with this head, and a body of this length, if there is one.
    pub(in crate::proxy) fn of(
        settings: &Settings,
        client: &Client,
        mut head: Parts,
        (length, has_body): (Option<u64>, bool),
        (token, now): (&VisitorTokenState, f64),
    ) -> Self {
        token.take(settings.visitor_tokens.as_ref(), &mut head.headers);
        let address = address(settings, client, &head.headers);
        Self { head: Box::new(head), length, has_body, address, now }
    }
}

/// Gives every target a path, and lets a request of HTTP/2 look like one of HTTP/1.1. Who stands before a
/// proxy or a load balancer may have spoken another scheme to that.
fn even_out(settings: &Settings, client: &Client, head: &mut Parts) -> Result<(), Error> {
    give_path(head)?;
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    // Extended CONNECT (RFC 8441) would part from plain CONNECT here.
    if head.method == Method::CONNECT {
        return Err(Error::Tunnel);
    }
    let is_own = !client.is_balanced() && !client.peer.is_among(&settings.trusted_proxies);
    let own = is_own.then(|| client.scheme());
    http2::even_out(head, own).map_err(|misshapen| match misshapen {
        Misshapen::Scheme => Error::Misdirected,
        Misshapen::Padded => Error::BadRequest("a field begins or ends with a space"),
        Misshapen::Authority => Error::BadRequest("exactly one valid Host is needed"),
    })
}

/// A target without a path means the root (RFC 9110 §4.2.3), and says so from here on: in the request line
/// to the origin, in what is signed, in the key and in a redirect.
fn give_path(head: &mut Parts) -> Result<(), Error> {
    const NO_PATH: Error = Error::BadRequest("the target has no path");
    let is_whole = match (head.uri.path_and_query(), head.uri.scheme()) {
        (None, _) => head.method == Method::CONNECT,
        (Some(_), None) => !head.uri.path().is_empty(),
        // Of "/" and nothing at all the same is said here.
        (Some(target), Some(_)) => {
            target.as_str().len() > 1 && target.as_str().starts_with('/') || target == "*"
        }
    };
    if is_whole {
        return Ok(());
    }
    let query = head.uri.query().map(|query| format!("/?{query}"));
    // RFC 9113 §8.3.1: `:path` has one, unlike a URL.
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

/// The client's address, where he has one: that of his connection, or what a trusted proxy says.
fn address(settings: &Settings, client: &Client, headers: &HeaderMap) -> Option<IpAddr> {
    forwarded::client_address(client.peer, headers, &settings.trusted_proxies)
}
