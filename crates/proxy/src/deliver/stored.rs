//! A stored page, as the client gets it: all of it, ranges of it, or no body, by the request's
//! conditions and ranges.

use std::sync::Arc;

use ::http::header::{AGE, CONTENT_LENGTH};
use ::http::{HeaderValue, Method, Response, StatusCode};
use anteroom_cache::entry::Entry;
use anteroom_cache::recoded;
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::conditional::{self, Condition};
use anteroom_http::field_set::FieldSet;
use anteroom_http::list;
use anteroom_http::targeted::CDN_CACHE_CONTROL;
use hyper::ext::ReasonPhrase;

use super::body::Body;
use super::client_response::{ClientResponse, StoredResponse};
use super::headers::{put_status, status_value};
use super::ranges;
use crate::context::RequestContext;
use crate::deliver::fragments::cut_method;

/// A page, ready to be sent to one client.
pub(crate) struct Ready {
    pub(crate) page: Arc<Entry>,
    /// Whether ranges of the page may be sent.
    pub(crate) in_parts: bool,
}

impl Ready {
    pub(super) fn stored(page: &Arc<Entry>, in_parts: bool) -> Self {
        Self { page: Arc::clone(page), in_parts }
    }
}

/// Responds with a stored page in the form that was prepared for the client.
pub(crate) fn ready(
    cx: &RequestContext<'_>,
    ready: Ready,
    status: &CacheStatus<'_>,
) -> ClientResponse {
    let page = &ready.page;
    if is_sent_as_stored(cx, page) {
        return ClientResponse::Stored(Box::new(as_stored(cx, ready.page, status)));
    }
    ClientResponse::from(if ready.in_parts {
        whole(cx, page, status)
    } else {
        stored(cx, page, status, Body::full(page.body.clone()))
    })
}

/// Whether all of a page is sent, and no field of it depends on the request or the route.
fn is_sent_as_stored(cx: &RequestContext<'_>, page: &Entry) -> bool {
    let asked = cx.admitted.fields;
    cx.head.method == Method::GET
        && !asked.has(FieldSet::RANGE)
        && !asked.has(FieldSet::CONDITIONS)
        && page.status == StatusCode::OK.as_u16()
        && page.reason.is_none()
        && page.fields.fit(page.body.len())
        && !cx.route.has_fragments()
}

fn as_stored(
    cx: &RequestContext<'_>,
    page: Arc<Entry>,
    status: &CacheStatus<'_>,
) -> StoredResponse {
    StoredResponse {
        age: page.age(cx.now as u64),
        adds_vary: !page.fields.varies_by_coding && is_negotiated(cx, &page),
        cache_status: status_value(cx.worker, status),
        more: Vec::new(),
        body: Body::full(page.body.clone()),
        page,
    }
}

/// Whether clients get the page in different codings.
fn is_negotiated(cx: &RequestContext<'_>, page: &Entry) -> bool {
    cx.worker.recompressor.is_on() && page.fields.recodable.is_negotiated()
}

/// Responds with a complete stored page: all of it, ranges of it, or no body, by the request's
/// conditions and ranges. `Age` is as accurate as the clock; all other fields are as they came from the
/// origin.
fn whole(cx: &RequestContext<'_>, entry: &Entry, status: &CacheStatus<'_>) -> Response<Body> {
    let asks_for_parts = cx.admitted.fields.has(FieldSet::RANGE) && cx.head.method == Method::GET;
    let may_have_parts = asks_for_parts && entry.status == 200 && !is_not_modified(cx, entry);
    let head_of_all = || head(cx, entry, status);
    if may_have_parts && let Some(response) = ranges::response(cx, entry, head_of_all) {
        return response;
    }
    stored(cx, entry, status, Body::full(entry.body.clone()))
}

/// Whether the client has the page already (RFC 9111 §4.3.2).
pub(crate) fn is_not_modified(cx: &RequestContext<'_>, entry: &Entry) -> bool {
    if !cx.admitted.fields.has(FieldSet::CONDITIONS) {
        return false;
    }
    let stored = entry.fields.some(&conditional::OF_STORED);
    conditional::judge(&cx.head.headers, status_of(entry), &stored, cx.now as u64)
        == Condition::NotModified
}

fn status_of(entry: &Entry) -> StatusCode {
    StatusCode::from_u16(entry.status).unwrap_or(StatusCode::OK)
}

/// Responds with a stored page and its body, or without the body if the request's conditions say so.
pub(crate) fn stored(
    cx: &RequestContext<'_>,
    entry: &Entry,
    status: &CacheStatus<'_>,
    body: Body,
) -> Response<Body> {
    let mut response = head(cx, entry, status);
    if is_not_modified(cx, entry) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response.extensions_mut().remove::<ReasonPhrase>();
        conditional::strip_for_not_modified(response.headers_mut());
        return response;
    }
    if cx.head.method != Method::HEAD {
        return response.map(|_| body);
    }
    // RFC 9110 §8.6: a 204 has no `Content-Length`.
    if let (Some(length), true) = (http_body::Body::size_hint(&body).exact(), entry.status != 204) {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

/// The head of a stored page, without a body.
pub(super) fn head(
    cx: &RequestContext<'_>,
    entry: &Entry,
    status: &CacheStatus<'_>,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let mut headers = entry.fields.map();
    // RFC 9213 §2: the field was addressed to this cache, and is stored for the next 304.
    if list::has_line(&headers, &CDN_CACHE_CONTROL) {
        headers.remove(&CDN_CACHE_CONTROL);
    }
    let age = entry.age(cx.now as u64);
    headers.insert(AGE, HeaderValue::from(age));
    if is_negotiated(cx, entry) {
        recoded::vary_by_coding(&mut headers);
    }
    put_status(cx.worker, &mut headers, status);
    *response.headers_mut() = headers;
    *response.status_mut() = status_of(entry);
    if let Some(reason) = &entry.reason
        && let Ok(phrase) = ReasonPhrase::try_from(reason.as_ref())
    {
        response.extensions_mut().insert(phrase);
    }
    cut_method::note(cx.route, &mut response);
    response
}
