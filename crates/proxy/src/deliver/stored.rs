//! A stored page, as the client gets it: all of it, ranges of it, or no body, by the request's
//! conditions and ranges.

use std::sync::Arc;

use ::http::header::{AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use ::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use anteroom_cache::entry::Entry;
use anteroom_cache::recoded;
use anteroom_http::cache_status::CacheStatus;
use anteroom_http::conditional::{self, Condition};
use anteroom_http::field_set::FieldSet;
use anteroom_http::list;
use anteroom_http::range::{self, Multipart, Selection};
use anteroom_http::targeted::CDN_CACHE_CONTROL;
use hyper::ext::ReasonPhrase;

use super::body::Body;
use super::client_response::{ClientResponse, StoredResponse};
use super::headers::{put_status, status_value};
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
    let body = || Body::full(entry.body.clone());
    let asks_for_parts = cx.admitted.fields.has(FieldSet::RANGE) && cx.head.method == Method::GET;
    if asks_for_parts && !is_not_modified(cx, entry) && entry.status == 200 {
        let asked = &cx.head.headers;
        let length = entry.body.len();
        match range::select(asked, &entry.fields.map(), length, cx.now as u64) {
            Selection::Whole => {}
            Selection::One(part) => return one_part(cx, entry, status, &part),
            Selection::Several(parts) => {
                if let Some(response) = several_parts(cx, entry, status, parts) {
                    return response;
                }
            }
            Selection::Unsatisfiable => {
                let mut response = partial(cx, entry, status);
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                describe_no_more(response.headers_mut());
                let there = range::unsatisfied_range(length);
                response.headers_mut().insert(CONTENT_RANGE, there);
                return response;
            }
        }
    }
    stored(cx, entry, status, body())
}

fn one_part(
    cx: &RequestContext<'_>,
    entry: &Entry,
    status: &CacheStatus<'_>,
    part: &std::ops::Range<usize>,
) -> Response<Body> {
    let mut response = partial(cx, entry, status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_RANGE, range::content_range(part, entry.body.len()));
    response.map(|_| Body::full(entry.body.slice(part.clone())))
}

fn several_parts(
    cx: &RequestContext<'_>,
    entry: &Entry,
    status: &CacheStatus<'_>,
    parts: Vec<std::ops::Range<usize>>,
) -> Option<Response<Body>> {
    let boundary = format!("{:032x}", fastrand::u128(..));
    let fields = entry.fields.map();
    let kind = fields.get(CONTENT_TYPE);
    let framed = Multipart::new(parts, entry.body.len(), kind, &boundary)?;
    let mut response = partial(cx, entry, status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, framed.content_type.clone());
    let parts = framed
        .parts
        .iter()
        .flat_map(|(head, range)| [head.clone(), entry.body.slice(range.clone())]);
    let body = Body::parts(parts.chain([framed.end.clone()]).collect());
    Some(response.map(|_| body))
}

/// The head of a 206 response, as far as it describes the page.
fn partial(cx: &RequestContext<'_>, entry: &Entry, status: &CacheStatus<'_>) -> Response<Body> {
    let mut response = head(cx, entry, status);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response.extensions_mut().remove::<ReasonPhrase>();
    response.headers_mut().remove(CONTENT_LENGTH);
    response
}

/// Removes the fields that describe a body that is not sent.
fn describe_no_more(headers: &mut HeaderMap) {
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING] {
        headers.remove(name);
    }
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
fn head(cx: &RequestContext<'_>, entry: &Entry, status: &CacheStatus<'_>) -> Response<Body> {
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
