//! Requests the content of a fragment, by a request of the visitor's own. It takes the same path as all
//! requests of the visitor, and ends here instead of at a socket.
//!
//! Only the body of the response is used. Its cookies and the fields addressed to the proxy are dropped,
//! because the page's head has been sent already.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use ::http::request::Parts;
use ::http::uri::PathAndQuery;
use ::http::{HeaderName, Method, Response, StatusCode, Uri, Version};
use anteroom_cache::recoded;
use anteroom_cache::rules::fragments::esi::Include;
use anteroom_cache::rules::fragments::{self, FragmentCutter};
use anteroom_http::apply_set_cookie::SetCookieEffect;
use anteroom_http::clock::unix_now;
use anteroom_http::coding::Coding;
use anteroom_http::cookie::cookies;
use anteroom_http::field_set::FieldSet;
use anteroom_http::ident::{Item, VisitorToken};
use anteroom_http::media::{self, MediaKind};
use anteroom_http::row_template::RowTemplate;
use anteroom_http::template::escape_html;
use anteroom_http::{forwarded, path};
use anteroom_policy::route::{CompiledRoute, Fill, Fragment, RowFill, RowId, Share};
use anteroom_rows::KeptRow;
use anteroom_telemetry::metrics::Count;
use anteroom_telemetry::traces::TraceIds;
use bytes::{Bytes, BytesMut};
use encoding_rs::{Encoding, UTF_8};

use super::content::{BufferCharge, FragmentContent, FragmentError, PendingContent};
use super::cut_method::CutMethod;
use super::gzip_writer::GzipWriter;
use super::row_content::RowContents;
use super::stream::{ContentAt, ContentState, Contents, Filling, NamedContents};
use super::subrequest::{OF_A_PART, Subrequest, Subrequests, Subresponse, target};
use super::visitor_data;
use crate::connection::client::Client;
use crate::context::{RequestContext, RequestFacts, WorkerContext};
use crate::deliver::body::Body;
use crate::origin_request;
use crate::stage::admit::AdmittedRequest;
use crate::stage::divert;
use crate::visitor::Visitor;

/// The depth up to which content is searched for fragments of its own: includes within includes.
const DEPTH_MAX: usize = 3;

/// Requests the contents of a page's fragments.
pub(super) struct FragmentRequester {
    requests: Rc<dyn Subrequests>,
    worker: Rc<WorkerContext>,
    client: Rc<Client>,
    /// The head of the requests, except for their targets.
    head: Parts,
    /// The target of the page, or of the content, that holds the fragments. Relative sources are
    /// resolved against it.
    base: String,
    admitted: RequestFacts,
    /// The page's route.
    route: Arc<CompiledRoute>,
    /// What the page's response does to the visitor's cookies.
    set_cookie_effect: Rc<SetCookieEffect>,
    /// The visitor's token without a login, after that response.
    token: Option<VisitorToken>,
    /// The page's charset. Contents are converted to it.
    encoding: &'static Encoding,
    depth: usize,
    /// The number of fragments that may still be requested for the page, nested ones included.
    left: Rc<Cell<usize>>,
    rows: Rc<RowContents>,
}

/// The types that may fill a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptedTypes {
    /// HTML, and plain text, which is escaped.
    Html,
    /// Any text, unescaped.
    Text,
}

impl FragmentRequester {
    pub(super) fn new(
        cx: &RequestContext<'_>,
        requests: Rc<dyn Subrequests>,
        encoding: &'static Encoding,
        set_cookie_effect: SetCookieEffect,
    ) -> Rc<Self> {
        let limits = &cx.worker.settings.fragments;
        Rc::new(Self {
            requests,
            worker: Rc::clone(cx.worker),
            client: cx.client.beside(),
            head: head(cx),
            base: target(cx),
            admitted: cx.admitted.clone(),
            route: Arc::clone(cx.route),
            set_cookie_effect: Rc::new(set_cookie_effect),
            token: cx.visitor_token.token(cx.visitor),
            encoding,
            depth: 0,
            left: Rc::new(Cell::new(limits.count)),
            rows: Rc::new(RowContents::new(cx.worker)),
        })
    }

    /// A requester of fragments within the content at `base`.
    pub(super) fn within(&self, base: String, encoding: &'static Encoding) -> Rc<Self> {
        Rc::new(Self {
            requests: Rc::clone(&self.requests),
            worker: Rc::clone(&self.worker),
            client: Rc::clone(&self.client),
            head: self.head.clone(),
            base,
            admitted: self.admitted.clone(),
            route: Arc::clone(&self.route),
            set_cookie_effect: Rc::clone(&self.set_cookie_effect),
            token: self.token.clone(),
            encoding,
            depth: self.depth + 1,
            left: Rc::clone(&self.left),
            rows: Rc::clone(&self.rows),
        })
    }

    /// The visitor, after the page's response.
    pub(super) async fn visitor(&self, route: &Arc<CompiledRoute>, now: f64) -> Visitor {
        let mut head = self.head.clone();
        self.set_cookie_effect.apply(&mut head.headers, head.uri.path());
        // The response may have set the first cookie.
        let fields = FieldSet::of(&head.headers);
        let admitted = RequestFacts { fields, ..self.admitted.clone() };
        let (head, admitted) = (Box::new(head), Box::new(admitted));
        let request = AdmittedRequest { head, has_body: false, now, admitted };
        let (worker, client) = (Rc::clone(&self.worker), Rc::clone(&self.client));
        self.requests.visitor(worker, client, request, Arc::clone(route)).await
    }

    /// Whether the visitor has a session cookie after the page's response.
    pub(super) fn has_session(&self) -> bool {
        let mut headers = self.head.headers.clone();
        self.set_cookie_effect.apply(&mut headers, self.head.uri.path());
        let rules = &self.worker.settings.cookies;
        cookies(&headers).any(|(name, _)| rules.is_session(name))
    }

    /// Encodes a text in the page's charset.
    pub(super) fn encoded(&self, text: &str) -> Bytes {
        Bytes::from(self.encoding.encode(text).0.into_owned())
    }

    /// Starts to request the contents of all fragments of a page, concurrently. The page's request names
    /// `item`.
    pub(super) fn places(self: &Rc<Self>, visitor: &Rc<Visitor>, item: Option<&Item>) -> Contents {
        let fragments = &self.route.fragments;
        // The login does not decide here: a guest without a login may have a cart in the app's session.
        let is_without = fragments.iter().any(|one| one.only_sessions) && !self.has_session();
        let place = |fragment: &Fragment| {
            let slot = match fragment.only_sessions && is_without {
                true => ContentState::None,
                false => self.fragment(fragment, visitor, item),
            };
            let fallback = fragment.fallback.as_deref().map(|text| self.encoded(text));
            ContentAt { slot, fallback }
        };
        Contents(fragments.iter().map(place).collect())
    }

    /// Wraps a page, or nested content, so that its fragments are filled while it is sent.
    pub(super) fn filling(
        self: &Rc<Self>,
        page: Body,
        cutter: FragmentCutter,
        places: Contents,
        zip: Option<GzipWriter>,
    ) -> Body {
        let named = Box::new(NamedByPage(Rc::clone(self)));
        Body::filled(Filling::new(page, cutter, places, named, zip))
    }

    /// Starts to request the content of a fragment.
    pub(super) fn fragment(
        self: &Rc<Self>,
        fragment: &Fragment,
        visitor: &Rc<Visitor>,
        item: Option<&Item>,
    ) -> ContentState {
        let (this, share) = (Rc::clone(self), fragment.share);
        ContentState::of(match &fragment.fill {
            Fill::From(target) => {
                let target = target.to_string();
                self.begin(async move { this.content(&target, share, AcceptedTypes::Html).await })
            }
            own @ (Fill::User(_) | Fill::CartCount | Fill::Recent(_)) => {
                let (own, visitor) = (own.clone(), Rc::clone(visitor));
                self.begin(async move {
                    let token = this.token.as_ref();
                    let text = visitor_data::html(&own, &visitor, token, &this.worker).await?;
                    this.charged(this.encoded(&text))
                })
            }
            Fill::Row(fill) => {
                return match &fill.id {
                    RowId::Item => self.row(fill, item.map(Item::as_str)),
                    RowId::Fixed(id) => self.row(fill, Some(id)),
                    RowId::Attribute(_) => ContentState::OfElement,
                };
            }
        })
    }

    /// Starts to read the row `id`, unless it is in memory.
    fn row(self: &Rc<Self>, fill: &RowFill, id: Option<&str>) -> ContentState {
        let rows = &self.rows;
        let Some(row) = id.and_then(|id| rows.named(&fill.rows, id)) else {
            self.count(Err(&FragmentError::NoRow));
            return ContentState::Failed;
        };
        if let Some(kept) = rows.remembered(&row) {
            let content = self.shown(&fill.template, &kept);
            self.count(content.as_ref().map(drop));
            return content.map_or(ContentState::Failed, |it| ContentState::Come(Rc::new(it)));
        }
        let (this, template) = (Rc::clone(self), fill.template.clone());
        ContentState::of(self.begin(async move {
            let kept = this.rows.read(&row).await?;
            this.shown(&template, &kept)
        }))
    }

    /// A row as it stands in the page.
    fn shown(
        &self,
        template: &RowTemplate,
        row: &KeptRow,
    ) -> Result<FragmentContent, FragmentError> {
        let most = self.worker.settings.fragments.size;
        // A larger row is not even read: this happens for each visitor.
        if row.json.len() > most {
            return Err(FragmentError::TooLarge);
        }
        let content = self.charged(self.encoded(&template.html(&row.json, most)?))?;
        Ok(FragmentContent { is_public: true, ..content })
    }

    /// Counts a fragment that is filled, or is not.
    fn count(&self, filled: Result<(), &FragmentError>) {
        let count = match filled {
            Ok(()) => Count::FragmentsFilled,
            // A logged-out visitor has no user name to show, so this is not a failure.
            Err(FragmentError::Nobody) => return,
            Err(error) => {
                tracing::debug!(%error, "a fragment is not filled");
                Count::FragmentsUnfilled
            }
        };
        self.worker.thread_metrics.count(count);
    }

    async fn included(&self, source: &str) -> Result<FragmentContent, FragmentError> {
        let target = self.admitted.same_site(&self.base, source);
        self.content(&target.ok_or(FragmentError::Elsewhere)?, None, AcceptedTypes::Text).await
    }

    /// `None`: the limit is reached.
    fn begin(
        self: &Rc<Self>,
        work: impl Future<Output = Result<FragmentContent, FragmentError>> + 'static,
    ) -> Option<PendingContent> {
        let left = self.left.get();
        if left == 0 || self.depth >= DEPTH_MAX {
            self.count(Err(&FragmentError::TooMany));
            return None;
        }
        self.left.set(left - 1);
        let limit = self.worker.settings.fragments.timeout;
        let this = Rc::clone(self);
        Some(PendingContent(tokio::task::spawn_local(async move {
            let content = tokio::time::timeout(limit, work).await;
            let content = content.unwrap_or(Err(FragmentError::Late));
            this.count(content.as_ref().map(drop));
            content.ok()
        })))
    }

    /// The content at `target` for the visitor.
    async fn content(
        &self,
        target: &str,
        share: Option<Share>,
        takes: AcceptedTypes,
    ) -> Result<FragmentContent, FragmentError> {
        let response = self.answer(target, share).await?;
        let (head, body) = response.into_parts();
        let is_plain = match (head.status, media::kind(&head.headers)) {
            (StatusCode::NO_CONTENT, _) => return self.charged(Bytes::new()),
            (StatusCode::OK, MediaKind::Html) => false,
            (StatusCode::OK, _) if takes == AcceptedTypes::Text => {
                media::is_compressible(&head.headers).then_some(false).ok_or(FragmentError::Type)?
            }
            (StatusCode::OK, _) => {
                media::is_plain(&head.headers).then_some(true).ok_or(FragmentError::Type)?
            }
            (status, _) => return Err(FragmentError::Status(status)),
        };
        let (bytes, charge) = self.read(body).await?;
        let most = self.worker.settings.fragments.size;
        let bytes = recoded::plain(&head.headers, &bytes, most).ok_or(FragmentError::Unreadable)?;
        let from = fragments::encoding(&head.headers).ok_or(FragmentError::Unreadable)?;
        let bytes = self.converted(bytes, from, is_plain);
        // Conversion may enlarge the content. The larger size is charged, too.
        let charge = if bytes.len() > charge.bytes { self.charge(bytes.len())? } else { charge };
        Ok(FragmentContent { bytes, is_public: false, _charge: charge })
    }

    /// Converts content to the form in which it can stand in the page.
    fn converted(&self, bytes: Bytes, from: &'static Encoding, is_plain: bool) -> Bytes {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if !is_plain && from == self.encoding {
            let marked = from == UTF_8 && bytes.starts_with(MARK);
            return if marked { bytes.slice(MARK.len()..) } else { bytes };
        }
        let (text, _) = from.decode_with_bom_removal(&bytes);
        if !is_plain {
            return self.encoded(&text);
        }
        let mut html = String::with_capacity(text.len());
        escape_html(&text, &mut html);
        self.encoded(&html)
    }

    async fn read(&self, mut body: Body) -> Result<(Bytes, BufferCharge), FragmentError> {
        let limits = &self.worker.settings.fragments;
        let mut charge = BufferCharge::new(&self.worker.waiting_fragments);
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        if http_body::Body::size_hint(&body).lower() > limits.size as u64 {
            return Err(FragmentError::TooLarge);
        }
        while let Some(frame) =
            poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut body), cx)).await
        {
            let Ok(part) = frame.map_err(|_| FragmentError::BrokenOff)?.into_data() else {
                continue;
            };
            let is_over = charge.bytes + part.len() > limits.size;
            if is_over || !charge.grow(part.len(), limits.memory) {
                return Err(FragmentError::TooLarge);
            }
            // PERF: a stored body is a single chunk and is not copied.
            if first.is_empty() && rest.is_empty() {
                first = part;
            } else {
                rest.extend_from_slice(&std::mem::take(&mut first));
                rest.extend_from_slice(&part);
            }
        }
        Ok((if rest.is_empty() { first } else { rest.freeze() }, charge))
    }

    fn charge(&self, bytes: usize) -> Result<BufferCharge, FragmentError> {
        let mut charge = BufferCharge::new(&self.worker.waiting_fragments);
        let has_room = charge.grow(bytes, self.worker.settings.fragments.memory);
        has_room.then_some(charge).ok_or(FragmentError::TooLarge)
    }

    fn charged(&self, bytes: Bytes) -> Result<FragmentContent, FragmentError> {
        let charge = self.charge(bytes.len())?;
        Ok(FragmentContent { bytes, is_public: false, _charge: charge })
    }

    /// The response to the visitor's request for `target`. The checks that the page's request passed
    /// before its route was known also hold for this request: the site is served, and the visitor is
    /// known.
    async fn answer(
        &self,
        target: &str,
        share: Option<Share>,
    ) -> Result<Response<Body>, FragmentError> {
        let worker = &self.worker;
        let is_longer = target.len() > worker.settings.uri_max;
        let target = PathAndQuery::try_from(target).ok().filter(|_| !is_longer);
        let mut head = self.head.clone();
        head.uri = Uri::from(target.ok_or(FragmentError::Elsewhere)?);
        let path = head.uri.path();
        self.set_cookie_effect.apply(&mut head.headers, path);
        if divert::is_endpoint_path(path) || !path.starts_with('/') {
            return Err(FragmentError::Elsewhere);
        }
        let path = path::decoded(path).unwrap_or_else(|| path.to_owned());
        let admitted =
            RequestFacts { path, fields: FieldSet::of(&head.headers), ..self.admitted.clone() };
        let subrequest = Subrequest {
            worker: Rc::clone(worker),
            client: Rc::clone(&self.client),
            request: AdmittedRequest {
                head: Box::new(head),
                has_body: false,
                now: unix_now(),
                admitted: Box::new(admitted),
            },
            share,
            page: Arc::clone(&self.route),
        };
        Ok(fill_within(self.requests.answer(subrequest).await?, self))
    }
}

/// Requests what a page, or a nested content, names.
struct NamedByPage(Rc<FragmentRequester>);

impl NamedContents for NamedByPage {
    fn include(&self, include: Include) -> Option<PendingContent> {
        let this = Rc::clone(&self.0);
        self.0.begin(async move {
            let first = this.included(&include.src).await;
            match (first, &include.alt) {
                (Err(error), Some(alt)) => {
                    tracing::debug!(%error, "an include failed; its alt is tried");
                    this.included(alt).await
                }
                (first, _) => first,
            }
        })
    }

    fn row(&self, place: usize, id: Option<&str>) -> ContentState {
        match self.0.route.fragments.get(place).map(|fragment| &fragment.fill) {
            Some(Fill::Row(fill)) => self.0.row(fill, id),
            _ => ContentState::Failed,
        }
    }
}

/// Fills the fragments within a content, if its route uses ESI. Fragments below the maximum depth are
/// not requested.
fn fill_within(answered: Subresponse, asker: &FragmentRequester) -> Response<Body> {
    let Subresponse { response, route, target } = answered;
    let has_tags = CutMethod::of(&route, &response) == Some(CutMethod::Tags)
        && Coding::of(response.headers()) == Some(Coding::Identity);
    let Some(encoding) = fragments::encoding(response.headers()).filter(|_| has_tags) else {
        return response;
    };
    let asker = asker.within(target, encoding);
    response.map(|body| asker.filling(body, FragmentCutter::tags(), Contents::default(), None))
}

/// The head of the visitor's requests for contents: that of the page's request, changed to a GET of a
/// whole resource without content coding.
fn head(cx: &RequestContext<'_>) -> Parts {
    let mut head = cx.head.clone();
    head.method = Method::GET;
    head.version = Version::HTTP_11;
    let trace = head.extensions.remove::<Arc<TraceIds>>();
    head.extensions.clear();
    if let Some(ids) = trace {
        head.extensions.insert(ids);
    }
    let gone: Vec<HeaderName> =
        head.headers.keys().filter(|name| is_of_the_page(name)).cloned().collect();
    for name in gone {
        head.headers.remove(name);
    }
    head.headers.insert(HOST, forwarded::host(&cx.admitted.host));
    origin_request::in_no_coding(&mut head.headers);
    head
}

/// Whether a field of the page's request does not apply to the request for a content.
fn is_of_the_page(name: &HeaderName) -> bool {
    let text = name.as_str();
    [CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE].contains(name)
        || OF_A_PART.contains(name)
        || text.starts_with("content-")
        || text.starts_with("if-")
        // SECURITY: with these fields, the app could handle another path or method than the one that was
        // checked.
        || forwarded::is_detour(text)
        || forwarded::is_other_method(text)
}
