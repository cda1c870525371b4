//! Answers an authority that checks whether a name is ours (http-01, RFC 8555 §8.3).

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderValue, Response};
use anteroom_telemetry::metrics::Outcome;
use bytes::Bytes;

use crate::deliver::body::Body;
use crate::record::RequestRecord;
use crate::stage::admit::AdmittedRequest;

/// Gives the authority its answer, the key authorization.
pub(crate) fn answer(
    text: String,
    request: &AdmittedRequest,
    record: &mut RequestRecord,
) -> Response<Body> {
    record.outcome(Outcome::Endpoint, None);
    tracing::info!(host = request.admitted.site, "an authority checks whether a name is ours");
    let mut response = Response::new(Body::full(Bytes::from(text)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
