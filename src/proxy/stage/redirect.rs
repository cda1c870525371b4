//! From http to https: a visitor is sent there, and told to come that way from now on.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, STRICT_TRANSPORT_SECURITY};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use bytes::Bytes;

use crate::http::host::Scheme;
use crate::http::path;
use crate::proxy::connection::client::{Client, Redirect};
use crate::proxy::context::Admitted;
use crate::proxy::deliver::body::Body;
use crate::proxy::error::Error;
use crate::proxy::record::RequestRecord;
use crate::telemetry::metrics::Outcome;

/// How the request is sent to https, where it is.
pub(in crate::proxy) fn wanted<'c>(
    client: &'c Client,
    head: &Parts,
    admitted: &Admitted,
) -> Option<&'c Redirect> {
    let redirect = client.entry.redirect.as_ref()?;
    // A trusted proxy may have taken it by https: sent there again it would go round for ever.
    let is_plain = admitted.scheme == Scheme::Http;
    // SECURITY: a path that the app may read as another one is no exception.
    let is_excepted = || {
        !path::is_odd(head.uri.path())
            && redirect.except.iter().any(|path| path.matches(&admitted.path).is_some())
    };
    (is_plain && !is_excepted()).then_some(redirect)
}

/// Sends the visitor to the same target by https. By 308, which keeps the method.
pub(in crate::proxy) fn answer(
    redirect: &Redirect,
    head: &Parts,
    admitted: &Admitted,
    trail: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    // `OPTIONS *` is for the server and no page of it.
    let target = if target.starts_with('/') { target } else { "/" };
    let name = admitted.host.name();
    let location = if redirect.port == Scheme::Https.default_port() {
        format!("https://{name}{target}")
    } else {
        format!("https://{name}:{}{target}", redirect.port)
    };
    let location = HeaderValue::try_from(location)
        .map_err(|_| Error::BadRequest("the target fits into no Location"))?;
    trail.outcome(Outcome::Endpoint, None);
    let mut response =
        Response::new(Body::full(Bytes::from_static(b"308 Permanent Redirect: use https\n")));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, location);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // Browsers would keep it for ever, also when it is taken back.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Tells browsers to come by https only (RFC 6797 §7.1), where the app says nothing of it.
pub(in crate::proxy) fn insist(client: &Client, headers: &mut HeaderMap) {
    if let Some(hsts) = &client.entry.hsts
        && client.scheme() == Scheme::Https
        && !headers.contains_key(STRICT_TRANSPORT_SECURITY)
    {
        headers.insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}
