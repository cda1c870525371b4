//! Admission: what must not go on is refused here; later steps trust what has passed.

use crate::proxy::context::Admitted;
use std::borrow::Cow;
use std::net::IpAddr;

use ::http::header::{AUTHORIZATION, CONTENT_LENGTH, EXPECT, PROXY_AUTHORIZATION};
use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, Method, Uri, Version};

use crate::http::host::{self};
use crate::http::http2::{self, Misshapen};
use crate::http::{forwarded, hop, path};
use crate::origin::is_connection_scheme;
use crate::proxy::connection::client::Client;
use crate::proxy::error::Error;
use crate::proxy::settings::Settings;

/// Gives every target a path, and lets a request of HTTP/2 look like one of HTTP/1.1. Who stands before a
/// proxy or a load balancer may have spoken another scheme to that.
pub(in crate::proxy) fn even_out(
    settings: &Settings,
    client: &Client,
    head: &mut Parts,
) -> Result<(), Error> {
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
pub(in crate::proxy) fn address(
    settings: &Settings,
    client: &Client,
    headers: &HeaderMap,
) -> Option<IpAddr> {
    forwarded::client_address(client.peer, headers, &settings.trusted_proxies)
}

/// Checks a request's head; `address` is its client's, and `length` its body's, where they are known.
pub(in crate::proxy) fn admit(
    settings: &Settings,
    client: &Client,
    head: &Parts,
    (address, length): (Option<IpAddr>, Option<u64>),
) -> Result<Admitted, Error> {
    if head.method == Method::CONNECT {
        return Err(Error::BadRequest("CONNECT is not for this server"));
    }
    hop::transfer_encoding(&head.headers)
        .map_err(|_| Error::BadRequest("Transfer-Encoding must be chunked and nothing else"))?;
    if head.headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(Error::BadRequest("Content-Length came twice"));
    }
    if head.headers.get_all(EXPECT).iter().any(|line| !is_continue(line.as_bytes())) {
        return Err(Error::Expectation);
    }
    let target_length = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target_length > settings.uri_max {
        return Err(Error::UriTooLong);
    }
    if hop::hops_left(&head.method, &head.headers) == Some(0) {
        return Err(Error::LastHop);
    }
    let star = head.method == Method::OPTIONS && head.uri.path() == "*";
    if !star && !head.uri.path().starts_with('/') {
        return Err(Error::BadRequest("the target has no path"));
    }
    if let (Some(max), Some(length)) = (settings.body_max, length)
        && length > max
    {
        return Err(Error::BodyTooLarge);
    }
    let host = host::site(&head.uri, &head.headers)
        .map_err(|_| Error::BadRequest("exactly one valid Host is needed"))?;
    let peer = client.peer;
    let trusted = &settings.trusted_proxies;
    let scheme = forwarded::client_scheme(peer, client.scheme(), &head.headers, trusted);
    let site = host.normalised(scheme).into_owned();
    let by_proxy = peer.is_among(trusted);
    if !(by_proxy || client.is_for(&host))
        || (!settings.hosts.is_empty() && !settings.hosts.contains(&site))
    {
        return Err(Error::Misdirected);
    }
    let path = path::decoded(head.uri.path())
        .map_or_else(|| Cow::Borrowed(head.uri.path()), Cow::Owned)
        .into_owned();
    Ok(Admitted { by_proxy, host, site, scheme, address, path })
}

/// Whether `Expect` names nothing, or the one thing that there is to be expected (RFC 9110 §10.1.1).
fn is_continue(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.eq_ignore_ascii_case(b"100-continue")
}

/// Whether a request carries credentials that log its connection in.
pub(in crate::proxy) fn logs_connection_in(headers: &HeaderMap) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION].iter().any(|name| {
        headers.get_all(name).iter().any(|value| is_connection_scheme(value.as_bytes()))
    })
}
