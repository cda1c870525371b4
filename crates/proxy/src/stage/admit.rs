//! Admission refuses every request that must not go on. Later stages rely on these checks.

use std::borrow::Cow;
use std::net::IpAddr;

use anteroom_fault::fault;

use ::http::header::{CONTENT_LENGTH, EXPECT};
use ::http::request::Parts;
use ::http::{HeaderMap, Method, Version};
use anteroom_http::field_set::FieldSet;
use anteroom_http::host::BadHost;
use anteroom_http::{cdn_loop, cookie, forwarded, hop, path};
use anteroom_policy::admin::DASHBOARD_COOKIE;

use super::receive::ReceivedRequest;
use crate::connection::client::Client;
use crate::context::{Mode, RequestFacts};
use crate::error::Error;
use crate::record::RequestRecord;
use crate::settings::ProxySettings;

/// The cookie of the dashboard, which browsers send to all ports of a host.
static DASHBOARD: cookie::Name = cookie::Name::new(DASHBOARD_COOKIE);

/// A request that has passed the checks of its head and of its client's address.
pub(crate) struct AdmittedRequest {
    pub(crate) head: Box<Parts>,
    pub(crate) has_body: bool,
    /// Unix time in seconds.
    pub(crate) now: f64,
    pub(crate) admitted: Box<RequestFacts>,
}

/// Admits a request, or returns the error that refuses it.
pub(crate) fn admit(
    settings: &ProxySettings,
    client: &Client,
    received: ReceivedRequest,
    mode: Mode<'_>,
    record: &mut RequestRecord,
) -> Result<AdmittedRequest, Error> {
    let ReceivedRequest { mut head, length, has_body, address, now } = received;
    record.set_client_address(address);
    let is_denied = mode.knows_address() && !settings.allowed_addresses.may_come(address);
    if is_denied && !fault!("list") {
        return Err(Error::Denied);
    }
    let admitted = check(settings, client, &mut head, address, length).inspect_err(|error| {
        if let Error::Unlisted(host) = error {
            record.site(host.as_str());
        }
    })?;
    if is_denied && fault!("list") {
        return Err(Error::Denied);
    }
    record.site(&admitted.site);
    record.scheme(admitted.scheme);
    Ok(AdmittedRequest { head, has_body, now, admitted: Box::new(admitted) })
}

/// Checks a request's head, and removes the cookie of the dashboard, so that no later stage sees it. `address` is
/// the client's address and `length` the body's length, where they are known.
fn check(
    settings: &ProxySettings,
    client: &Client,
    head: &mut Parts,
    address: Option<IpAddr>,
    length: Option<u64>,
) -> Result<RequestFacts, Error> {
    if head.method == Method::CONNECT {
        return Err(Error::BadRequest("CONNECT is not for this server"));
    }
    let fields = without_dashboard(&mut head.headers);
    if fields.has(FieldSet::FRAMING) {
        check_framing(&head.headers)?;
    }
    // In HTTP/1, the parser knows this limit.
    if head.version == Version::HTTP_2 && list_size(head) > settings.head_max {
        return Err(Error::HeadTooLarge);
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
    let host = match (client.site(head), &settings.only_site) {
        (Ok(host), _) => host,
        // RFC 9112 §3.2 demands the field in HTTP/1.1 only.
        (Err(BadHost::Missing), Some(site))
            if head.version == Version::HTTP_10 && head.uri.authority().is_none() =>
        {
            site.clone()
        }
        (Err(_), _) => return Err(Error::BadRequest("exactly one valid Host is needed")),
    };
    let peer = client.peer;
    let trusted = &settings.trusted_proxies;
    let scheme = forwarded::client_scheme(peer, client.scheme(), &head.headers, trusted);
    let site = host.normalised(scheme).into_owned();
    let by_proxy = peer.is_among(trusted);
    if !(by_proxy || client.is_for(&host)) {
        return Err(Error::Misdirected);
    }
    if !settings.hosts.is_empty() && !settings.hosts.iter().any(|host| host.matches(&site)) {
        return Err(Error::Unlisted(host));
    }
    if fields.has(FieldSet::CDN_LOOP)
        && cdn_loop::has_come_round(&head.headers, &site, head.uri.path())
    {
        return Err(Error::Loop);
    }
    let path = path::decoded(head.uri.path())
        .map_or_else(|| Cow::Borrowed(head.uri.path()), Cow::Owned)
        .into_owned();
    Ok(RequestFacts { by_proxy, host, site, scheme, address, path, fields })
}

/// The size of a list of fields as HTTP/2 counts it (RFC 9113 §6.5.2), in bytes.
fn list_size(head: &Parts) -> usize {
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let fields = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    target + authority + fields.sum::<usize>()
}

/// Removes the cookie of the dashboard. Returns which fields are there then.
fn without_dashboard(headers: &mut HeaderMap) -> FieldSet {
    let fields = FieldSet::of(headers);
    match fields.has(FieldSet::COOKIE) && cookie::remove(headers, &DASHBOARD) {
        true => FieldSet::of(headers),
        false => fields,
    }
}

/// Checks the fields that frame a body.
fn check_framing(headers: &HeaderMap) -> Result<(), Error> {
    hop::transfer_encoding(headers)
        .map_err(|_| Error::BadRequest("Transfer-Encoding must be chunked and nothing else"))?;
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(Error::BadRequest("Content-Length came twice"));
    }
    if headers.get_all(EXPECT).iter().any(|line| !is_continue(line.as_bytes())) {
        return Err(Error::Expectation);
    }
    Ok(())
}

/// Whether `Expect` is empty or names `100-continue`, the only expectation defined (RFC 9110 §10.1.1).
fn is_continue(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.eq_ignore_ascii_case(b"100-continue")
}
