//! The responses to operators.

use std::convert::Infallible;

use ::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use ::http::{HeaderName, HeaderValue, Response, StatusCode};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde::{Deserialize, Serialize};

/// A body of any kind: a stream, too.
pub(super) type AdminBody = UnsyncBoxBody<Bytes, Infallible>;
/// A response to an operator.
pub(super) type AdminResponse = Response<AdminBody>;

/// The response to a request that was refused, or failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
}

/// A response with this content, which neither browsers nor caches keep or guess the type of.
pub(super) fn content(
    status: StatusCode,
    kind: &'static str,
    content: impl Into<Bytes>,
) -> AdminResponse {
    let mut response = Response::new(Full::new(content.into()).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    let policy = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(policy, HeaderValue::from_static("same-origin"));
    response
}

/// A line of text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> AdminResponse {
    content(status, "text/plain; charset=utf-8", text)
}

/// A value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> AdminResponse {
    match serde_json::to_vec(value) {
        Ok(text) => content(status, "application/json", text),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            content(StatusCode::INTERNAL_SERVER_ERROR, "application/json", "{}")
        }
    }
}

/// Why a request was refused, or failed.
pub(super) fn refusal(status: StatusCode, error: impl Into<String>) -> AdminResponse {
    json(status, &Refusal { error: error.into() })
}
