//! The audit: answers a request that a stored page would answer with the app's own answer, and compares both.
//!
//! The request goes to the app as it came, so that the visitor gets what the app says; where the app fails, the stored
//! page is the answer. `body` reads the app's answer along. Where it differs, the page is fetched once more as it was
//! filled, to tell what is noise or an edit.

mod body;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE, SET_COOKIE,
};
use ::http::{HeaderName, Method, Request};
use anteroom_cache::entry::Entry;
use anteroom_cache::fill;
use anteroom_cache::url_patterns::network;
use anteroom_http::field_set::FieldSet;
use anteroom_http::segments::pattern_segments;
use anteroom_learn::audit::{AuditPlace, AuditedPage, Audits};
use anteroom_origin::{BackgroundSlot, OriginResponse, UploadBody, Upstream};
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::reason::Reason;
use tokio::time::timeout;

use self::body::AuditBody;
use super::compared::short_path;
use super::forward;
use crate::answer::Answer;
use crate::context::{RequestContext, RequestKind};
use crate::origin_request;
use crate::record::RequestRecord;
use crate::stage::wanted_page::WantedPage;

/// With one of these, the app answers with a part of the page, or not with the page.
const CONDITIONS: [HeaderName; 5] =
    [RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE];
/// How long a visitor waits for the app where a stored page would be the answer at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// A hit that is held against the app.
pub(super) struct Audit {
    page: AuditedPage,
    stored: Arc<Entry>,
    route: Arc<CompiledRoute>,
    audits: Arc<Audits>,
    /// The page once more, as it was filled; `None`: it is not known how.
    fetch: Option<Request<UploadBody>>,
    upstream: Rc<Upstream>,
    /// While the visitor's request is at the app.
    slot: Option<BackgroundSlot>,
    /// While the bodies are held.
    _place: AuditPlace,
    /// The Unix time of the request.
    now: u64,
}

impl Audit {
    /// Draws one hit of so many as the route says, if the app has a place for it. PERF: boxed, so that the state of a hit
    /// stays small.
    pub(super) fn draw(want: &WantedPage<'_>, stored: &Arc<Entry>) -> Option<Box<Self>> {
        let cx = want.cx;
        let hits = cx.route.audit.hits()?;
        if fastrand::u32(..hits) != 0 || !may_be_held(want) {
            return None;
        }
        let audits = Arc::clone(&cx.worker.audits);
        let (place, slot) = (audits.place()?, cx.upstream().background_slot()?);
        let fetch = stored.recipe.as_ref();
        Some(Box::new(Self {
            page: audited(cx),
            stored: Arc::clone(stored),
            route: Arc::clone(cx.route),
            audits,
            fetch: fetch.map(|recipe| origin_request::fill(cx, want.class, &recipe.fields)),
            upstream: Rc::clone(cx.upstream()),
            slot: Some(slot),
            _place: place,
            now: want.now(),
        }))
    }

    /// The app's answer; `None`: it has none, and the stored page is the answer.
    pub(super) async fn answer(
        mut self: Box<Self>,
        cx: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> Option<Answer> {
        let forwarded = forward::forward(cx, None, Reason::Audited, record);
        // What a request with a cookie has begun in the app is waited for: its answer may change the session.
        let forwarded = match cx.admitted.fields.has(FieldSet::COOKIE) {
            true => forwarded.await.ok(),
            false => timeout(PATIENCE, forwarded).await.ok().and_then(Result::ok),
        };
        let slot = self.slot.take();
        let Some(Answer::Uncached(mut came, reason)) = forwarded.filter(is_told) else {
            if let Some(mut slot) = slot {
                slot.fail();
            }
            return None;
        };
        let (status, headers) = (came.response.status(), came.response.headers().clone());
        let reader = AuditBody::new(self, status, headers);
        came.response.body_mut().read_along(Box::new(reader));
        Some(Answer::Uncached(came, reason))
    }
}

/// Whether the visitor gets this answer of the app: an error gives way to the stored page, unless it sets a cookie.
fn is_told(answer: &Answer) -> bool {
    let tells = |came: &OriginResponse| {
        !fill::passes(came.response.status()) || came.response.headers().contains_key(SET_COOKIE)
    };
    matches!(answer, Answer::Uncached(came, _) if tells(came))
}

/// Whether the app's answer to this request can be compared with the page.
fn may_be_held(want: &WantedPage<'_>) -> bool {
    let cx = want.cx;
    let headers = &cx.head.headers;
    cx.kind == RequestKind::Page
        && cx.head.method == Method::GET
        && want.fills
        && want.class.has_recipes()
        && !want.directives.only_if_cached
        && !cx.route.maintenance
        // Each visitor has its own contents in the holes of a page.
        && !cx.route.has_fragments()
        && !CONDITIONS.iter().any(|name| headers.contains_key(name))
}

/// The page as the audit names it.
fn audited(cx: &RequestContext<'_>) -> AuditedPage {
    let path = cx.worker.telemetry.paths.path(cx.head.uri.path()).into_owned();
    let segments = pattern_segments(&path).map(|(segment, rest)| format!("/{segment}{rest}"));
    let pattern: String = segments.collect();
    AuditedPage {
        host: cx.admitted.site.clone(),
        // The last segment says whether the path ends in a slash.
        pattern: short_path(pattern.strip_suffix('/').unwrap_or(&pattern)),
        route: Arc::clone(&cx.route.name),
        path: short_path(&path),
        network: network(cx.admitted.address),
    }
}
