//! Answers from a row that is refreshed in the background and is the same for every visitor.

use ::http::header::{
    AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, X_CONTENT_TYPE_OPTIONS,
};
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::list;
use anteroom_rows::KeptRow;
use anteroom_telemetry::metrics::Outcome;

use crate::context::RequestContext;
use crate::deliver::body::Body;
use crate::deliver::headers;
use crate::record::RequestRecord;

/// Answers with a row.
pub(crate) fn answer(
    cx: &RequestContext<'_>,
    kept: &KeptRow,
    record: &mut RequestRecord,
) -> Response<Body> {
    record.outcome(Outcome::HitStore, None);
    respond(cx, kept)
}

fn respond(cx: &RequestContext<'_>, kept: &KeptRow) -> Response<Body> {
    let KeptRow { json, refreshed, tag } = kept;
    let mut headers = HeaderMap::with_capacity(8);
    // Hex digits in quotes are a valid field value.
    if let Ok(value) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, value);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(refreshed) = refreshed {
        // If this clock is behind the refreshing process's clock, the age is 0.
        headers.insert(AGE, HeaderValue::from((cx.now - refreshed).max(0.0) as u64));
    }
    headers::put_status(cx.worker, &mut headers, &status());
    let mut response = Response::new(Body::empty());
    if names_tag(&cx.head.headers, tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if cx.head.method == Method::HEAD {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(json.len()));
        } else {
            *response.body_mut() = Body::full(json.clone());
        }
    }
    *response.headers_mut() = headers;
    response
}

/// The `Cache-Status` of a row.
pub(crate) fn status() -> CacheStatus<'static> {
    CacheStatus { ttl: None, ..CacheStatus::hit(0, "rows") }
}

/// Whether `If-None-Match` names the tag, by weak comparison (RFC 9110 §13.1.2).
fn names_tag(headers: &HeaderMap, tag: &str) -> bool {
    list::members(headers, &IF_NONE_MATCH)
        .any(|known| known == b"*" || known.strip_prefix(b"W/").unwrap_or(known) == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_among_others() {
        let named = |line: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static(line));
            names_tag(&headers, "\"ab\"")
        };
        for line in ["\"ab\"", "W/\"ab\"", "\"x\", \"ab\"", "*"] {
            assert!(named(line), "{line}");
        }
        for line in ["ab", "\"abc\"", "\"x, \"", ""] {
            assert!(!named(line), "{line}");
        }
    }
}
