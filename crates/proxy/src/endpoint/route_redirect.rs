//! Redirects the clients of a route that says `redirect`.

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use ::http::{HeaderValue, Response};
use anteroom_telemetry::metrics::Outcome;
use bytes::Bytes;

use crate::context::template_values;
use crate::deliver::body::Body;
use crate::error::Error;
use crate::record::RequestRecord;
use crate::stage::route::RoutedRequest;

/// Redirects the client where the route says.
pub(crate) fn answer(
    routed: &RoutedRequest<'_>,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    let (route, request) = (routed.route(), routed.request());
    let values = template_values(&request.head, &request.admitted);
    let target = route.redirect.as_ref().map(|target| target.render(&values));
    let location = HeaderValue::try_from(target.unwrap_or_default())
        .map_err(|_| Error::BadRequest("the target fits into no Location"))?;
    let status = route.redirect_status.code();
    record.outcome(Outcome::Endpoint, None);
    let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let mut response = Response::new(Body::full(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(LOCATION, location);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // Browsers keep a permanent redirect indefinitely, even after the operator removes it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}
