//! Answers from a row that is refreshed in the background and is the same for every visitor.

use std::sync::Arc;

use ::http::header::{
    AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use anteroom_cache::LookupMode;
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::ident::Item;
use anteroom_http::list;
use anteroom_rows::{KeptRow, RowSoon};
use anteroom_telemetry::metrics::{Count, Outcome};

use crate::proxy::context::{RequestContext, RequestKind};
use crate::proxy::deliver::body::Body;
use crate::proxy::deliver::headers;
use crate::proxy::record::RequestRecord;
use crate::proxy::stage::detect_upgrade;

/// Conditions and ranges that only the app can answer.
const BY_THE_APP: [HeaderName; 3] = [IF_MATCH, IF_UNMODIFIED_SINCE, RANGE];

/// Answers with the row that a request names. `None`: the request goes to the origin, because the route
/// has no rows, the method is another one, the row does not exist, or the store is away.
pub(in crate::proxy) async fn answer(
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    has_body: bool,
    record: &mut RequestRecord,
) -> Option<Response<Body>> {
    cx.route.rows.as_ref()?;
    // PERF: boxed, so that the state of a request without rows stays small.
    let kept = Box::pin(find(cx, item, has_body, LookupMode::Use)).await?;
    record.outcome(Outcome::HitStore, None);
    Some(respond(cx, &kept))
}

/// The content of the row that a request names.
pub(in crate::proxy) async fn find(
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    has_body: bool,
    look: LookupMode,
) -> Option<Arc<KeptRow>> {
    let worker = cx.worker;
    let row = worker.row_named(cx.route, item)?;
    if has_body || !matches!(cx.head.method, Method::GET | Method::HEAD) {
        return None;
    }
    if detect_upgrade::requested_protocol(cx.head, has_body).is_some() {
        return None;
    }
    // Rare for rows, and the app can answer them.
    if BY_THE_APP.iter().any(|name| cx.head.headers.contains_key(name)) {
        return None;
    }
    let found = match look {
        // A part of a page does not hold the page up: the app is asked for it.
        LookupMode::Use if worker.is_on_demand(&row) && cx.kind == RequestKind::Fragment => {
            worker.rows.row_soon(&worker.store, &row).await.map(RowSoon::found)
        }
        LookupMode::Use if worker.is_on_demand(&row) => {
            worker.rows.row_on_demand(&worker.store, &row).await
        }
        LookupMode::Use => worker.rows.row(&worker.store, &row).await,
        LookupMode::Peek => worker.rows.peek(&worker.store, &row).await,
    };
    found.unwrap_or_else(|error| {
        tracing::debug!(%error, "looking up a row failed");
        worker.thread_metrics.count(Count::StoreReadErrors);
        None
    })
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
pub(in crate::proxy) fn status() -> CacheStatus<'static> {
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
