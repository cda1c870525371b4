//! Holes: what is each visitor's own in a page that is shared, filled in on the way to him.
//!
//! Where the holes are is found by `cache::rules::fragments`. The stored page is never touched: it is read, cut, and put
//! together for one visitor while it is sent. All that is asked for is asked in his name, by the way that
//! his own requests go (`ask`); and what cannot be filled shows what the page has there.

mod ask;
mod own;
mod stream;
mod zip;

use crate::proxy::connection::client::Client;
use crate::proxy::context::WaitingFragments;
use crate::proxy::context::WorkerContext;
use crate::proxy::error::Error;
use crate::proxy::stage::admit::AdmittedRequest;
use crate::proxy::visitor::Visitor;
use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, ETAG, EXPIRES,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, TRAILER, VARY,
};
use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use futures_util::future::LocalBoxFuture;

use self::ask::Asker;
use self::stream::Filling;
use self::stream::Places;
use crate::cache::recoded;
use crate::cache::rules::fragments;
use crate::cache::rules::fragments::{Knife, esi};
use crate::http::apply_set_cookie::Aftermath;
use crate::http::cache_control::CacheControl;
use crate::http::coding::{Accepted, Coding};
use crate::http::media::{self, Kind};
use crate::http::vary::Vary;
use crate::policy::route::{Esi, Route, Share};
use crate::proxy::context::RequestContext;
use crate::proxy::deliver;
use crate::proxy::deliver::body::Body;
use crate::proxy::origin_request;
use crate::proxy::stage::upgrade;

/// How deep content is looked into for holes of its own: includes within includes.
const DEPTH_MAX: usize = 3;

/// A request of the visitor's own for the content of a fragment.
pub(in crate::proxy) struct Subrequest {
    pub(in crate::proxy) worker: Rc<WorkerContext>,
    pub(in crate::proxy) client: Rc<Client>,
    pub(in crate::proxy) request: AdmittedRequest,
    /// With whom the content is shared, where the fragment says so.
    pub(in crate::proxy) share: Option<Share>,
    /// The page's route.
    pub(in crate::proxy) page: Arc<Route>,
}

/// The answer to it.
pub(in crate::proxy) struct Subresponse {
    pub(in crate::proxy) response: Response<Body>,
    pub(in crate::proxy) route: Arc<Route>,
    /// What was asked for, against which the sources in it are resolved.
    pub(in crate::proxy) target: String,
}

/// How fragments come back into the request path: behind admission, and unable to change anything.
pub(in crate::proxy) trait Subrequests {
    /// Answers a request for a fragment.
    fn answer(&self, request: Subrequest) -> LocalBoxFuture<'static, Result<Subresponse, Error>>;

    /// The visitor of a request on a route.
    fn visitor(
        &self,
        worker: Rc<WorkerContext>,
        client: Rc<Client>,
        request: AdmittedRequest,
        route: Arc<Route>,
    ) -> LocalBoxFuture<'static, Visitor>;
}

/// What the visitor takes of a page with holes.
pub(in crate::proxy) struct Wanted {
    /// The codings; `None`: he asks for something else than a page. Should it be one, he gets it as it is,
    /// and told that it is no other's, so that his browser does not keep it for the page.
    accepted: Option<Accepted>,
}

/// Makes a request for a page on a route with holes ask for what is cut: the whole of it, whatever part of
/// it the client has already, and in no coding. `None`: it has no holes.
pub(in crate::proxy) fn wanted(route: &Route, head: &mut Parts, has_body: bool) -> Option<Wanted> {
    if !route.has_holes()
        || upgrade::asked(head, has_body).is_some()
        || media::is_grpc(&head.headers)
    {
        return None;
    }
    if !may_be_cut(route, head) {
        return Some(Wanted { accepted: None });
    }
    let accepted = Some(Accepted::parse(&head.headers));
    if matches!(head.method, Method::GET | Method::HEAD) {
        for name in &OF_A_PART {
            head.headers.remove(name);
        }
    }
    origin_request::in_no_coding(&mut head.headers);
    Some(Wanted { accepted })
}

/// Whether what a request asks for may have holes. Style sheets and the like on the same route have none, and
/// keep their conditions, ranges and codings.
fn may_be_cut(route: &Route, head: &Parts) -> bool {
    let is_static = || media::asks_for_static(&head.headers, head.uri.path());
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    match route.esi {
        Esi::Always => true,
        Esi::Said => !is_static(),
        // The answer to a change is the app's own, and may be somebody else's than the request was.
        Esi::Off => is_read && !is_static() && media::asks_for_page(&head.headers),
    }
}

/// What a client says of the part of a page that it has, or wants.
static OF_A_PART: [HeaderName; 4] = [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE];

/// Beside a response: the app says that its tags of ESI are to be carried out.
#[derive(Clone, Copy, Debug)]
struct Said;

/// Keeps in mind what a response says of ESI, where that counts: the field is taken away where caches between
/// us and the visitor would keep for others by it what is his.
pub(in crate::proxy) fn note(route: &Route, response: &mut Response<Body>) {
    if route.esi == Esi::Said && esi::is_said(response.headers()) {
        response.extensions_mut().insert(Said);
    }
}

/// How a response is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Elements,
    Tags,
}

impl Way {
    /// How the response to a request on `route` is cut, where it is at all.
    fn of(route: &Route, response: &Response<Body>) -> Option<Self> {
        let headers = response.headers();
        if !matches!(response.status().as_u16(), 200 | 203 | 404 | 410) {
            return None;
        }
        match route.esi {
            Esi::Off => {
                let has_any = !route.fragments.is_empty() && media::kind(headers) == Kind::Html;
                has_any.then_some(Self::Elements)
            }
            Esi::Said if response.extensions().get::<Said>().is_none() => None,
            Esi::Said | Esi::Always => media::is_compressible(headers).then_some(Self::Tags),
        }
    }
}

/// The response with its holes filled for the visitor, as it is read.
pub(in crate::proxy) async fn fill(
    wanted: &Wanted,
    case: &RequestContext<'_>,
    requests: Rc<dyn Subrequests>,
    response: Response<Body>,
) -> Response<Body> {
    let Some(way) = Way::of(case.route, &response) else { return response };
    let coder = &case.room.coder;
    let (mut head, body) = response.into_parts();
    describe(&mut head.headers);
    let encoding = fragments::encoding(&head.headers)
        .filter(|_| Coding::of(&head.headers) == Some(Coding::Identity));
    let (Some(accepted), Some(encoding)) = (&wanted.accepted, encoding) else {
        return Response::from_parts(head, body);
    };
    // What is one visitor's own all over is not compressed: its length would tell (BREACH).
    let is_own = body.is_ones_own();
    let is_personal = matches!(case.route.share, Share::User | Share::Segment);
    let is_shared = !is_own && !is_personal;
    let is_zipped = is_shared && accepted.takes(Coding::Gzip) && coder.makes(Coding::Gzip);
    if is_zipped {
        let name = HeaderValue::from_static(Coding::Gzip.as_str());
        head.headers.insert(CONTENT_ENCODING, name);
    }
    if coder.is_on() {
        recoded::tell_choice(&mut head.headers);
    }
    if case.head.method == Method::HEAD {
        return Response::from_parts(head, body);
    }
    // Who logs in or out by this very answer is filled in as whom it leaves him.
    let aftermath = match is_own {
        true => Aftermath::of(&head.headers, case.head.uri.path(), case.now as u64),
        false => Aftermath::default(),
    };
    let asker = Asker::new(case, requests, (encoding, aftermath));
    let (knife, places) = match way {
        Way::Tags => (Knife::tags(), Places::default()),
        Way::Elements => {
            let route = case.route;
            let selectors = route.fragments.iter().map(|fragment| &fragment.selector);
            let most = case.room.settings.holes.count;
            let Some(ascii) = lol_html::AsciiCompatibleEncoding::new(encoding) else {
                return Response::from_parts(head, body);
            };
            let knife = Knife::elements(selectors, most, ascii, READ_MAX);
            let visitor = match is_own {
                true => asker.visitor(route, case.now).await,
                false => case.visitor.clone(),
            };
            (knife, Places::begin(&route.fragments, &asker, &Rc::new(visitor)))
        }
    };
    let zip = is_zipped.then(zip::Zip::new);
    Response::from_parts(head, Body::filled(Filling::new(body, knife, places, asker, zip)))
}

/// The content of a hole with its own filled, where its route has ESI. What is behind the last depth is not
/// asked for.
fn fill_within(answered: Subresponse, asker: &Asker) -> Response<Body> {
    let Subresponse { response, route, target } = answered;
    let has_tags = Way::of(&route, &response) == Some(Way::Tags)
        && Coding::of(response.headers()) == Some(Coding::Identity);
    let Some(encoding) = fragments::encoding(response.headers()).filter(|_| has_tags) else {
        return response;
    };
    let asker = asker.within(target, encoding);
    response
        .map(|body| Body::filled(Filling::new(body, Knife::tags(), Places::default(), asker, None)))
}

/// What a request asks for, against which the sources in its answer are resolved (RFC 3986 §5.1.3).
pub(in crate::proxy) fn target(case: &RequestContext<'_>) -> String {
    case.head.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned()
}

/// What is kept of markup that has no end, in bytes.
const READ_MAX: usize = 1_024 * 1_024;

/// What the page's fields say of one with holes: it is one visitor's, and no two are alike.
fn describe(headers: &mut HeaderMap) {
    for name in OF_THE_STORED.iter().chain(&recoded::OF_BYTES) {
        headers.remove(name);
    }
    if !CacheControl::parse(headers, &CACHE_CONTROL).no_store {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    }
    let vary = Vary::parse(headers);
    if vary != Vary::Any && !vary.names(&COOKIE) {
        headers.append(VARY, HeaderValue::from_name(COOKIE));
    }
    deliver::remove_for_shared_caches(headers);
}

/// What speaks of the page as it is stored.
static OF_THE_STORED: [HeaderName; 6] =
    [ETAG, LAST_MODIFIED, CONTENT_LENGTH, ACCEPT_RANGES, EXPIRES, TRAILER];

/// WorkerContext for a content that waits for its page.
struct Charge {
    waiting: Rc<WaitingFragments>,
    bytes: usize,
}

impl Charge {
    fn new(waiting: &Rc<WaitingFragments>) -> Self {
        Self { waiting: Rc::clone(waiting), bytes: 0 }
    }

    /// Takes room for more; false where there is none.
    fn grow(&mut self, bytes: usize, most: usize) -> bool {
        let all = self.waiting.0.get().saturating_add(bytes);
        if all > most {
            return false;
        }
        self.waiting.0.set(all);
        self.bytes += bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.waiting.0.update(|all| all.saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_say_that_it_is_one_visitor_s() {
        for (control, expected) in [
            ("public, max-age=60", "private, no-cache"),
            ("private, max-age=60", "private, no-cache"),
            ("no-store", "no-store"),
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
            describe(&mut headers);
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
    fn contents_have_a_bound_together() {
        let waiting = Rc::new(WaitingFragments::default());
        let (mut one, mut other) = (Charge::new(&waiting), Charge::new(&waiting));
        assert!(one.grow(6, 10) && other.grow(4, 10) && !other.grow(1, 10));
        drop(one);
        assert!(other.grow(6, 10) && !other.grow(1, 10));
        drop(other);
        assert_eq!(waiting.0.get(), 0);
    }
}
