//! Ranges of a stored page (RFC 9110 §14): one part, several parts, or 416.

use std::ops::Range;

use ::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use ::http::{HeaderMap, Response, StatusCode};
use anteroom_cache::entry::Entry;
use anteroom_http::range::{self, Multipart, Selection};
use hyper::ext::ReasonPhrase;

use super::body::Body;
use crate::context::RequestContext;

/// The response to a request for ranges of a page, with what `head` makes, the head of all of the page; `None` if
/// all of it is to be sent.
pub(super) fn response(
    cx: &RequestContext<'_>,
    entry: &Entry,
    head: impl FnOnce() -> Response<Body>,
) -> Option<Response<Body>> {
    let length = entry.body.len();
    match range::select(&cx.head.headers, &entry.fields.map(), length, cx.now as u64) {
        Selection::Whole => None,
        Selection::One(part) => Some(one_part(entry, head(), &part)),
        Selection::Several(parts) => several_parts(entry, head, parts),
        Selection::Unsatisfiable => {
            let mut response = partial(head());
            *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            describe_no_more(response.headers_mut());
            response.headers_mut().insert(CONTENT_RANGE, range::unsatisfied_range(length));
            Some(response)
        }
    }
}

fn one_part(entry: &Entry, head: Response<Body>, part: &Range<usize>) -> Response<Body> {
    let mut response = partial(head);
    let headers = response.headers_mut();
    headers.insert(CONTENT_RANGE, range::content_range(part, entry.body.len()));
    response.map(|_| Body::full(entry.body.slice(part.clone())))
}

fn several_parts(
    entry: &Entry,
    head: impl FnOnce() -> Response<Body>,
    parts: Vec<Range<usize>>,
) -> Option<Response<Body>> {
    let boundary = format!("{:032x}", fastrand::u128(..));
    let fields = entry.fields.map();
    let kind = fields.get(CONTENT_TYPE);
    let framed = Multipart::new(parts, entry.body.len(), kind, &boundary)?;
    let mut response = partial(head());
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
fn partial(mut response: Response<Body>) -> Response<Body> {
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
