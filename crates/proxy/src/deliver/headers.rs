//! Header fields of responses: `Cache-Status`, privacy, cookies and content length.

use ::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, SET_COOKIE, VARY};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, Version};
use anteroom_http::cache_control::CacheControl;
use anteroom_http::cache_status::{CACHE_STATUS, CacheStatus, Forward};
use anteroom_http::harden::harden;
use anteroom_http::host::Scheme;
use anteroom_http::vary::Vary;
use anteroom_http::{hop, set_cookie};
use anteroom_policy::answer::StatusDetail;
use anteroom_telemetry::reason::Reason;

use crate::context::{RequestContext, WorkerContext};
use crate::deliver::body::Body;

/// Whether a field takes precedence over `Cache-Control` in some cache: targeted fields (RFC 9213),
/// which are prefixed with the name of the network, and those of Fastly, Akamai and nginx.
fn is_for_a_shared_cache(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.ends_with("-cache-control")
        || matches!(name, "surrogate-control" | "edge-control" | "x-accel-expires")
}

/// The `Cache-Status` of a request that was only forwarded.
pub(crate) fn bypassed(reason: Reason) -> CacheStatus<'static> {
    let why = match reason {
        Reason::Method => Forward::Method,
        Reason::Vary => Forward::VaryMiss,
        Reason::Miss | Reason::Head => Forward::UriMiss,
        Reason::RequestNoStore | Reason::RequestDirective | Reason::Condition => Forward::Request,
        _ => Forward::Bypass,
    };
    CacheStatus::forwarded(why, Some(reason.as_str()))
}

/// Appends the proxy's `Cache-Status` after those of caches nearer to the origin (RFC 9211 §2).
pub(crate) fn put_status(
    worker: &WorkerContext,
    headers: &mut HeaderMap,
    status: &CacheStatus<'_>,
) {
    if let Some(value) = status_value(worker, status) {
        headers.append(&CACHE_STATUS, value);
    }
}

/// The value of `Cache-Status`, in the detail that the operator configured.
pub(crate) fn status_value(
    worker: &WorkerContext,
    status: &CacheStatus<'_>,
) -> Option<HeaderValue> {
    match worker.settings.status {
        StatusDetail::Full => Some(status.value()),
        StatusDetail::Short => Some(status.short_value()),
        StatusDetail::Off => None,
    }
}

/// Removes cookies by which an origin without a part in sessions would set or end a visitor's session.
/// No origin has a part in visitor tokens.
pub(crate) fn remove_sessions(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    if let Some(tokens) = &cx.worker.settings.visitor_tokens {
        set_cookie::remove_named(headers, |name| tokens.is_named(name));
    }
    if cx.rules().is_apart {
        let sessions = &cx.worker.settings.cookies;
        set_cookie::remove_named(headers, |name| sessions.may_be_session(name));
        if set_cookie::clears_logins(headers) {
            headers.remove(&set_cookie::CLEAR_SITE_DATA);
        }
    }
}

/// Adds the cookies that the response to the visitor's own session sets, next to a page that is shared
/// without them. Session cookies are never among them: the configuration does not allow such a page to
/// drop those.
pub(crate) fn give_cookies(
    cx: &RequestContext<'_>,
    headers: &mut HeaderMap,
    cookies: Vec<HeaderValue>,
) {
    if cookies.is_empty() {
        return;
    }
    for line in cookies {
        headers.append(SET_COOKIE, line);
    }
    harden_cookies(cx, headers);
    keep_from_caches(headers);
}

/// Adds the attributes that the operator requires to the origin's cookies.
pub(crate) fn harden_cookies(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    let is_https = cx.admitted.scheme == Scheme::Https;
    harden(headers, &cx.worker.settings.hardening, is_https);
}

/// Marks a response to a known visitor as private, if the origin states no caching policy. The login
/// selected the response, and caches on the way to the client must know that.
pub(crate) fn keep_private(headers: &mut HeaderMap) {
    if headers.contains_key(CACHE_CONTROL) {
        return;
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.append(VARY, HeaderValue::from_name(COOKIE));
}

/// Keeps a response that belongs to one visitor out of caches, whatever policy the origin states.
pub(crate) fn keep_from_caches(headers: &mut HeaderMap) {
    let control = CacheControl::parse(headers, &CACHE_CONTROL);
    let leaves_room = headers.get_all(CACHE_CONTROL).iter().any(leaves_room);
    if !control.private && !control.no_store || leaves_room {
        headers.remove(CACHE_CONTROL);
    }
    remove_for_shared_caches(headers);
    keep_private(headers);
}

/// Whether a cache may store a response in spite of `private` or `no-store`: `private` may name single
/// fields (RFC 9111 §5.2.2.7), and `no-store` may be limited to caches that do not understand the status
/// (§5.2.2.3).
fn leaves_room(line: &HeaderValue) -> bool {
    let line = line.as_bytes().to_ascii_lowercase();
    let says = |part: &str| memchr::memmem::find(&line, part.as_bytes()).is_some();
    says("private=") || says("must-understand")
}

/// Removes the fields that only caches between the proxy and the client evaluate.
pub(crate) fn remove_for_shared_caches(headers: &mut HeaderMap) {
    let others: Vec<_> = headers.keys().filter(|n| is_for_a_shared_cache(n)).cloned().collect();
    for name in others {
        headers.remove(name);
    }
}

/// Keeps a stored page that the visitor's identity selected out of shared caches.
pub(crate) fn keep_for_one(headers: &mut HeaderMap) {
    keep_from_caches(headers);
    if !Vary::parse(headers).names(&COOKIE) {
        headers.append(VARY, HeaderValue::from_name(COOKIE));
    }
}

/// Removes the body from the response to a HEAD, and keeps the fields of a GET (RFC 9110 §9.3.2). Over
/// HTTP/2 the library would send the body.
pub(crate) fn leave_out_body(response: &mut Response<Body>) {
    if let Some(length) = response.body_mut().leave_out() {
        let length = HeaderValue::from(length);
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length);
    }
}

/// Announces to an HTTP/1.0 client that the connection closes, if the body's length is unknown: the end
/// of the connection is then the end of the body.
pub(crate) fn end_where_length_is_unknown(response: &mut Response<Body>) {
    let is_open = http_body::Body::size_hint(response.body()).exact().is_none();
    if is_open || hop::connection_names(response.headers(), "close") {
        // In an HTTP/1.1 response to such a client, the library would add `keep-alive` on request.
        *response.version_mut() = Version::HTTP_10;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_personal_response_is_kept_from_every_cache() {
        for (said, expected) in [
            (None, "private, no-cache"),
            (Some("max-age=600"), "private, no-cache"),
            (Some("public, max-age=600"), "private, no-cache"),
            (Some("private, max-age=600"), "private, max-age=600"),
            (Some("no-store"), "no-store"),
            (Some("max-age=600, Private=\"X-Foo\""), "private, no-cache"),
            (Some("max-age=600, must-understand, no-store"), "private, no-cache"),
        ] {
            let mut headers = HeaderMap::new();
            let field = said.map(HeaderValue::from_static);
            headers.extend(field.map(|value| (CACHE_CONTROL, value)));
            keep_from_caches(&mut headers);
            assert_eq!(headers[CACHE_CONTROL], expected, "{said:?}");
        }
    }
}
