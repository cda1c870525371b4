//! The response to a request that is refused or fails.

use std::num::NonZeroU32;
use std::sync::LazyLock;
use std::time::Duration;

use ::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, LOCATION, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use ::http::{HeaderValue, Response, StatusCode};
use anteroom_http::host::Host;
use anteroom_origin::OriginError;
use anteroom_policy::error_page::ErrorForm;
use anteroom_telemetry::metrics::Outcome;
use bytes::Bytes;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::body::Body;
use super::headers::{bypassed, put_status};
use crate::context::WorkerContext;
use crate::error::{Error, RETRY_SECONDS};
use crate::record::RequestRecord;

/// When a client may try again that found the origin crowded, in seconds.
const CROWDED_RETRY_S: std::ops::RangeInclusive<u64> = 10..=40;

/// Builds the response, and logs the error where an operator could act on it.
pub(crate) fn response(
    error: Error,
    worker: &WorkerContext,
    form: ErrorForm,
    request_id: Option<&HeaderValue>,
    record: &mut RequestRecord,
) -> Response<Body> {
    if needs_operator(&error) {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let detail = std::error::Error::source(&error)
            .and_then(std::error::Error::source)
            .map(ToString::to_string);
        tracing::warn!(%error, cause, detail, "a request failed");
    }
    if let Error::Unlisted(host) = &error {
        log_unlisted(host);
    }
    let status = error.status();
    // Clients that were refused at one time do not come again at one.
    let crowd_retry_s = fastrand::u64(CROWDED_RETRY_S);
    let page = worker.settings.error_pages.page(status).filter(|_| form == ErrorForm::Page);
    let crowd_page = || match &error {
        Error::Crowded { page, .. } => page.as_ref().map(|page| page.html(crowd_retry_s)),
        _ => None,
    };
    let (kind, body) = match page.or_else(crowd_page) {
        Some(page) => ("text/html; charset=utf-8", page),
        None => ("text/plain; charset=utf-8", text(&error, request_id)),
    };
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, RETRY_SECONDS);
    }
    if error.is_crowded() {
        headers.insert(RETRY_AFTER, HeaderValue::from(crowd_retry_s));
    }
    if let Error::TooMany { retry, .. } = error {
        headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(retry)));
    }
    if let Error::LoginRequired { is_unsure: false, page, .. } = &error {
        let (name, value) = match page {
            Some(page) => (LOCATION, page.clone()),
            // RFC 9110 §15.5.2 requires a scheme. The login belongs to the app and is proved by a cookie.
            None => (WWW_AUTHENTICATE, HeaderValue::from_static("Cookie")),
        };
        headers.insert(name, value);
    }
    if error.closes() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    record.outcome(Outcome::Error, Some(error.reason()));
    if let Error::Crowded { class, .. } = &error {
        record.crowded(*class);
    }
    put_status(worker, headers, &bypassed(error.reason()).with_detail(error.detail()));
    if let Error::Cart { cookie: Some(cookie), .. }
    | Error::BrokenOff { cookie: Some(cookie), .. } = error
    {
        headers.insert(SET_COOKIE, cookie);
    }
    response
}

/// Whether an operator could act on the error. A route under maintenance is what the operator wanted, and of a crowd each
/// request would say the same.
fn needs_operator(error: &Error) -> bool {
    match error {
        Error::Origin(error) => !matches!(error, OriginError::Maintenance | OriginError::Crowded),
        Error::BrokenOff { .. } | Error::Session(_) | Error::Cart { .. } | Error::Purge(_) => true,
        _ => false,
    }
}

/// The proxy's own text for an error.
fn text(error: &Error, request_id: Option<&HeaderValue>) -> Bytes {
    let status = error.status();
    let name = status.canonical_reason().unwrap_or_default();
    let mut text = format!("{} {name}: {}\n", status.as_u16(), error.sentence());
    if let Some(Ok(id)) = request_id.map(HeaderValue::to_str) {
        text.push_str("Request: ");
        text.push_str(id);
        text.push('\n');
    }
    Bytes::from(text)
}

/// Says which string to add to `[origin] hosts`. Any client may send any `Host`, so this is said once a minute; the
/// access log has them all.
fn log_unlisted(host: &Host) {
    static LIMITER: LazyLock<DefaultDirectRateLimiter> =
        LazyLock::new(|| RateLimiter::direct(Quota::per_minute(NonZeroU32::MIN)));
    if LIMITER.check().is_ok() {
        let name = host.name();
        tracing::warn!(
            "421 for the host {name:?}: if it is one of your sites, add {name:?} to [origin] hosts"
        );
    }
}

/// A duration in whole seconds, rounded up, and at least 1.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}
