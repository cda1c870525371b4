//! Redirects a client from http to the same target on https.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use ::http::{HeaderValue, Response, StatusCode};
use anteroom_http::host::Scheme;
use anteroom_policy::listener::Redirect;
use anteroom_telemetry::metrics::Outcome;
use bytes::Bytes;

use crate::deliver::body::Body;
use crate::error::Error;
use crate::record::RequestRecord;
use crate::stage::admit::AdmittedRequest;

/// Redirects the client to the same target on https. The status is 308, which keeps the method.
pub(crate) fn answer(
    redirect: &Redirect,
    request: &AdmittedRequest,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let AdmittedRequest { head, admitted, .. } = request;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    // `OPTIONS *` addresses the server and not a page.
    let target = if target.starts_with('/') { target } else { "/" };
    let name = admitted.host.name();
    let location = if redirect.port == Scheme::Https.default_port() {
        format!("https://{name}{target}")
    } else {
        format!("https://{name}:{}{target}", redirect.port)
    };
    let location = HeaderValue::try_from(location)
        .map_err(|_| Error::BadRequest("the target fits into no Location"))?;
    record.outcome(Outcome::Endpoint, None);
    let mut response =
        Response::new(Body::full(Bytes::from_static(b"308 Permanent Redirect: use https\n")));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, location);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // Browsers keep a 308 indefinitely, even after the operator removes the redirect.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
