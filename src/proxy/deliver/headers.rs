//! Header fields of responses: `Cache-Status`, privacy, cookies, and the length that is told.

use ::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, SET_COOKIE, VARY};
use ::http::{HeaderMap, HeaderName, HeaderValue, Response, Version};

use crate::http::cache_control::CacheControl;
use crate::http::cache_status::{CACHE_STATUS, CacheStatus, Forward};
use crate::http::harden::harden;
use crate::http::host::Scheme;
use crate::http::vary::Vary;
use crate::http::{hop, set_cookie};
use crate::proxy::context::{RequestContext, WorkerContext};
use crate::proxy::deliver::body::Body;
use crate::proxy::settings::StatusDetail;
use crate::telemetry::reason::Reason;

/// Whether a field outweighs `Cache-Control` for some cache: targeted ones (RFC 9213), each with the name of
/// its network in front, Fastly's, Akamai's, and nginx's.
fn is_for_a_shared_cache(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.ends_with("-cache-control")
        || matches!(name, "surrogate-control" | "edge-control" | "x-accel-expires")
}

/// `Cache-Status` of a request that was only forwarded.
pub(in crate::proxy) fn bypassed(reason: Reason) -> CacheStatus<'static> {
    let why = match reason {
        Reason::Method => Forward::Method,
        Reason::Vary => Forward::VaryMiss,
        Reason::Miss | Reason::Head => Forward::UriMiss,
        Reason::RequestNoStore | Reason::RequestDirective | Reason::Condition => Forward::Request,
        _ => Forward::Bypass,
    };
    CacheStatus::forwarded(why, Some(reason.as_str()))
}

/// Adds our `Cache-Status` behind those of caches nearer to the origin (RFC 9211 §2).
pub(in crate::proxy) fn put_status(
    worker: &WorkerContext,
    headers: &mut HeaderMap,
    status: &CacheStatus<'_>,
) {
    if let Some(value) = status_value(worker, status) {
        headers.append(&CACHE_STATUS, value);
    }
}

/// As much of it as the operator wants to be said.
pub(in crate::proxy) fn status_value(
    worker: &WorkerContext,
    status: &CacheStatus<'_>,
) -> Option<HeaderValue> {
    match worker.settings.status {
        StatusDetail::Full => Some(status.value()),
        StatusDetail::Short => Some(status.short_value()),
        StatusDetail::Off => None,
    }
}

/// Removes the sessions that an origin would give visitors which has no part in them, and what would end
/// theirs. No origin has a part in visitors' tokens.
pub(in crate::proxy) fn remove_sessions(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
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

/// Gives a visitor the cookies that the answer to his own session sets, beside a page that others may have
/// without. They are none of a session's: the configuration lets no such page lose those.
pub(in crate::proxy) fn give_cookies(
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

/// Adds to the origin's cookies what the operator wants them to have.
pub(in crate::proxy) fn harden_cookies(cx: &RequestContext<'_>, headers: &mut HeaderMap) {
    let is_https = cx.admitted.scheme == Scheme::Https;
    harden(headers, &cx.worker.settings.hardening, is_https);
}

/// A response to a known visitor, of which the origin says nothing to caches, was chosen by his
/// login: caches between us and him are told so.
pub(in crate::proxy) fn keep_private(headers: &mut HeaderMap) {
    if headers.contains_key(CACHE_CONTROL) {
        return;
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.append(VARY, HeaderValue::from_name(COOKIE));
}

/// A response that belongs to one visitor goes to no cache, whatever the origin says of it.
pub(in crate::proxy) fn keep_from_caches(headers: &mut HeaderMap) {
    let control = CacheControl::parse(headers, &CACHE_CONTROL);
    let leaves_room = headers.get_all(CACHE_CONTROL).iter().any(leaves_room);
    if !control.private && !control.no_store || leaves_room {
        headers.remove(CACHE_CONTROL);
    }
    remove_for_shared_caches(headers);
    keep_private(headers);
}

/// Whether a cache may store a response all the same: `private` is said of fields alone (RFC 9111 §5.2.2.7), or
/// `no-store` of caches that do not understand the status (§5.2.2.3).
fn leaves_room(line: &HeaderValue) -> bool {
    let line = line.as_bytes().to_ascii_lowercase();
    let says = |part: &str| memchr::memmem::find(&line, part.as_bytes()).is_some();
    says("private=") || says("must-understand")
}

/// Removes what only caches between us and the visitor would read.
pub(in crate::proxy) fn remove_for_shared_caches(headers: &mut HeaderMap) {
    let others: Vec<_> = headers.keys().filter(|n| is_for_a_shared_cache(n)).cloned().collect();
    for name in others {
        headers.remove(name);
    }
}

/// A stored page that was chosen by who the visitor is goes to no cache that others are given pages from.
pub(in crate::proxy) fn keep_for_one(headers: &mut HeaderMap) {
    keep_from_caches(headers);
    if !Vary::parse(headers).names(&COOKIE) {
        headers.append(VARY, HeaderValue::from_name(COOKIE));
    }
}

/// The answer to a HEAD: what a GET would be told of the body, and none of it (RFC 9110 §9.3.2). Over
/// HTTP/2 the library would send it.
pub(in crate::proxy) fn leave_out_body(response: &mut Response<Body>) {
    if let Some(length) = response.body_mut().leave_out() {
        let length = HeaderValue::from(length);
        response.headers_mut().entry(CONTENT_LENGTH).or_insert(length);
    }
}

/// To a client of HTTP/1.0 the end of a body without a length is the connection's: it is told so, and not
/// that the connection stays.
pub(in crate::proxy) fn end_where_length_is_unknown(response: &mut Response<Body>) {
    let is_open = http_body::Body::size_hint(response.body()).exact().is_none();
    if is_open || hop::connection_names(response.headers(), "close") {
        // The library would say `keep-alive` in an answer of HTTP/1.1, if that is what was asked for.
        *response.version_mut() = Version::HTTP_10;
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_one_visitor_s_is_kept_from_every_cache() {
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
