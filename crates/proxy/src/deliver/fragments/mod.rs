//! Fragments: the parts of a page that are personal or change often, filled in on the way to the client.
//!
//! `cache::rules::fragments` finds the fragments. The stored page stays unchanged: it is read, cut, and
//! assembled for one visitor while it is sent. Each content is requested on behalf of the visitor, by
//! the same path as the visitor's own requests (`ask`). A fragment that cannot be filled shows what the
//! page contains at its place.

mod ask;
mod content;
pub(crate) mod cut_method;
mod gzip_writer;
mod row_content;
mod stream;
pub(crate) mod subrequest;
mod visitor_data;

use std::rc::Rc;

use ::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, ETAG, EXPIRES,
    LAST_MODIFIED, SET_COOKIE, TRAILER, VARY,
};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use anteroom_cache::recoded;
use anteroom_cache::rules::fragments::{self, CutElement, FragmentCutter};
use anteroom_http::apply_set_cookie::SetCookieEffect;
use anteroom_http::cache_control::CacheControl;
use anteroom_http::coding::{AcceptedCodings, Coding};
use anteroom_http::ident::Item;
use anteroom_http::media;
use anteroom_http::vary::Vary;
use anteroom_policy::route::{Esi, Fill, Fragment, Route, RowId, Share};

use self::ask::FragmentRequester;
use self::cut_method::CutMethod;
use self::stream::Contents;
use self::subrequest::{OF_A_PART, Subrequests};
use crate::context::RequestContext;
use crate::deliver::body::Body;
use crate::deliver::headers;
use crate::origin_request;
use crate::stage::detect_upgrade;

/// What the client accepts of a page with fragments.
pub(crate) struct FragmentPreferences {
    /// The accepted codings. `None`: the request is not for a page. If the response is a page all the
    /// same, it is sent unfilled and marked as private, so that the browser does not keep it as the
    /// page.
    accepted: Option<AcceptedCodings>,
}

/// Adapts a request on a route with fragments so that the response can be cut: it asks for the whole
/// page, without conditions, ranges and content codings. `None`: the response has no fragments.
pub(crate) fn wanted_fragments(
    route: &Route,
    head: &mut Parts,
    has_body: bool,
) -> Option<FragmentPreferences> {
    if !route.has_fragments()
        || detect_upgrade::requested_protocol(head, has_body).is_some()
        || media::is_grpc(&head.headers)
    {
        return None;
    }
    if !may_be_cut(route, head) {
        return Some(FragmentPreferences { accepted: None });
    }
    let accepted = Some(AcceptedCodings::parse(&head.headers));
    if matches!(head.method, Method::GET | Method::HEAD) {
        for name in &OF_A_PART {
            head.headers.remove(name);
        }
    }
    origin_request::in_no_coding(&mut head.headers);
    Some(FragmentPreferences { accepted })
}

/// Whether the requested resource may have fragments. Static files on the same route have none, and keep
/// their conditions, ranges and codings.
fn may_be_cut(route: &Route, head: &Parts) -> bool {
    let is_static = || media::asks_for_static(&head.headers, head.uri.path());
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    match route.esi {
        Esi::Always => true,
        Esi::Said => !is_static(),
        // The response to an unsafe request comes from the app itself, and may belong to another user
        // than the request did.
        Esi::Off => is_read && !is_static() && media::asks_for_page(&head.headers),
    }
}

/// Fills the fragments of a response for the visitor, while the response is read. The request names `item`.
pub(crate) async fn fill(
    wanted: &FragmentPreferences,
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    requests: Rc<dyn Subrequests>,
    response: Response<Body>,
) -> Response<Body> {
    let Some(way) = CutMethod::of(cx.route, &response) else { return response };
    let recompressor = &cx.worker.recompressor;
    let (mut head, body) = response.into_parts();
    let is_own = body.is_ones_own();
    let is_for_everyone =
        !is_own && cx.route.share == Share::Everyone && !cx.route.has_personal_fragments();
    describe(&mut head.headers, is_for_everyone);
    let encoding = fragments::encoding(&head.headers)
        .filter(|_| Coding::of(&head.headers) == Some(Coding::Identity));
    let (Some(accepted), Some(encoding)) = (&wanted.accepted, encoding) else {
        return Response::from_parts(head, body);
    };
    // A response that is personal throughout is not compressed: its length would reveal secrets
    // (BREACH).
    let is_personal = matches!(cx.route.share, Share::User | Share::Segment);
    let is_shared = !is_own && !is_personal;
    let is_zipped = is_shared && accepted.takes(Coding::Gzip) && recompressor.makes(Coding::Gzip);
    if is_zipped {
        let name = HeaderValue::from_static(Coding::Gzip.as_str());
        head.headers.insert(CONTENT_ENCODING, name);
    }
    if recompressor.is_on() {
        recoded::vary_by_coding(&mut head.headers);
    }
    if cx.head.method == Method::HEAD {
        return Response::from_parts(head, body);
    }
    // If this response logs the visitor in or out, the fragments are filled for the visitor after it.
    let set_cookie_effect = match is_own {
        true => SetCookieEffect::of(&head.headers, cx.head.uri.path(), cx.now as u64),
        false => SetCookieEffect::default(),
    };
    let asker = FragmentRequester::new(cx, requests, encoding, set_cookie_effect);
    let (cutter, places) = match way {
        CutMethod::Tags => (FragmentCutter::tags(), Contents::default()),
        CutMethod::Elements => {
            let route = cx.route;
            let elements = route.fragments.iter().map(cut_element);
            let most = cx.worker.settings.fragments.count;
            let Some(ascii) = lol_html::AsciiCompatibleEncoding::new(encoding) else {
                return Response::from_parts(head, body);
            };
            let cutter = FragmentCutter::elements(elements, most, ascii, READ_MAX);
            let visitor = match is_own {
                true => asker.visitor(route, cx.now).await,
                false => cx.visitor.clone(),
            };
            (cutter, asker.places(&Rc::new(visitor), item))
        }
    };
    let zip = is_zipped.then(gzip_writer::GzipWriter::new);
    Response::from_parts(head, asker.filling(body, cutter, places, zip))
}

/// The limit on buffered markup that has no end yet, in bytes.
const READ_MAX: usize = 1_024 * 1_024;

/// The element that a fragment fills.
fn cut_element(fragment: &Fragment) -> CutElement<'_> {
    let row = match &fragment.fill {
        Fill::Row(row) => Some(&row.id),
        Fill::From(_) | Fill::User(_) | Fill::CartCount | Fill::Recent(_) => None,
    };
    let attribute = match row {
        Some(RowId::Attribute(name)) => Some(&**name),
        Some(RowId::Item | RowId::Fixed(_)) | None => None,
    };
    CutElement { attribute, is_text: row.is_some(), ..CutElement::from(&fragment.selector) }
}

/// Adjusts the fields of a page with fragments: the result differs from the stored page, and is private unless
/// it is the same for everyone. No cache may show it again without asking: what was filled in changes.
fn describe(headers: &mut HeaderMap, is_for_everyone: bool) {
    for name in OF_THE_STORED.iter().chain(&recoded::OF_BYTES) {
        headers.remove(name);
    }
    let said = CacheControl::parse(headers, &CACHE_CONTROL);
    let is_private = !is_for_everyone || said.private || headers.contains_key(SET_COOKIE);
    if !said.no_store {
        let control = if is_private { "private, no-cache" } else { "no-cache" };
        headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
    }
    let vary = Vary::parse(headers);
    if is_private && vary != Vary::Any && !vary.names(&COOKIE) {
        headers.append(VARY, HeaderValue::from_name(COOKIE));
    }
    headers::remove_for_shared_caches(headers);
}

/// The fields that describe the page as it is stored.
static OF_THE_STORED: [HeaderName; 6] =
    [ETAG, LAST_MODIFIED, CONTENT_LENGTH, ACCEPT_RANGES, EXPIRES, TRAILER];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_say_that_it_is_one_visitor_s() {
        for (control, is_for_everyone, expected) in [
            ("public, max-age=60", false, "private, no-cache"),
            ("private, max-age=60", false, "private, no-cache"),
            ("no-store", false, "no-store"),
            ("private", true, "private, no-cache"),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("cache-control", control),
                ("etag", "\"a\""),
                ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
                ("content-length", "5"),
                ("accept-ranges", "bytes"),
                ("repr-digest", "sha-256=:AA==:"),
                ("surrogate-control", "content=\"ESI/1.0\""),
                ("cdn-cache-control", "max-age=60"),
                ("vary", "Accept-Language"),
                ("content-type", "text/html"),
            ] {
                headers.insert(name, value.parse().unwrap());
            }
            describe(&mut headers, is_for_everyone);
            let mut left: Vec<_> = headers.iter().map(|(n, v)| format!("{n}: {v:?}")).collect();
            left.sort_unstable();
            let control = format!("cache-control: {expected:?}");
            assert_eq!(
                left,
                [
                    control.as_str(),
                    "content-type: \"text/html\"",
                    "vary: \"Accept-Language\"",
                    "vary: \"cookie\"",
                ]
            );
        }
    }

    #[test]
    fn a_page_that_is_the_same_for_everyone_is_asked_for_again_each_time() {
        for (control, expected) in
            [("public, max-age=3600", "no-cache"), ("max-age=60, s-maxage=9", "no-cache")]
        {
            let mut headers = HeaderMap::new();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static(control));
            headers.insert(ETAG, HeaderValue::from_static("\"a\""));
            headers.insert("cdn-cache-control", HeaderValue::from_static("max-age=60"));
            describe(&mut headers, true);
            assert_eq!(headers.len(), 1, "{headers:?}");
            assert_eq!(headers[CACHE_CONTROL], expected);
        }
        let mut headers = HeaderMap::new();
        headers.insert(SET_COOKIE, HeaderValue::from_static("a=b"));
        describe(&mut headers, true);
        assert_eq!(headers[CACHE_CONTROL], "private, no-cache");
        assert_eq!(headers[VARY], "cookie");
    }
}
