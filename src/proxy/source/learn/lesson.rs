//! Reads an answer along, and tells what it shows: whether the cache could share it, and how it differs from the
//! answers that others get.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_LANGUAGE, CONTENT_TYPE, LOCATION};
use ::http::response::Parts;
use ::http::{HeaderMap, Method, StatusCode};
use ahash::RandomState;
use bytes::{Bytes, BytesMut};

use super::predict::Looked;
use super::visitor::SeenVisitor;
use crate::cache::Pages;
use crate::cache::entry::Entry;
use crate::cache::fill::{Filler, TrialOrder, TrialPage};
use crate::cache::learn::{
    AnswerSeen, BodyPlace, Learning, PageName, PageRequest, Predicted, QueryValues, TextParts,
    Wanted,
};
use crate::cache::purge::PurgeSnapshot;
use crate::cache::purge::scope::ScopeDigest;
use crate::cache::recoded;
use crate::cache::rules::key::ShareClass;
use crate::cache::rules::leak_guard::{self, LeakChecks};
use crate::cache::rules::leak_kind::{LeakKind, PersonalForms};
use crate::cache::rules::personal_data::PersonalData;
use crate::http::media::{self, MediaKind};
use crate::http::tags::tags;
use crate::ident::PageKey;
use crate::origin::{BodyReader, OriginResponse};
use crate::proxy::context::RequestContext;
use crate::proxy::origin_request;
use crate::proxy::source::personal;
use crate::proxy::stage::cache_lookup::WantedPage;
use crate::telemetry::reason::Reason;
use crate::telemetry::shown_path::parameter_names;

/// The largest body that is read along, in bytes, as it comes and decoded.
const BODY_MAX: usize = 1 << 20;
const DECODED_MAX: usize = 4 << 20;

/// The visitor that a probe stands for.
const STRANGER: u64 = 0;

/// What an answer can teach.
pub(super) struct Lesson {
    page: LearnedPlace,
    route: Arc<str>,
    predicted: Predicted,
    wanted: Wanted,
    order: Option<Box<TrialOrder>>,
    answer: AnswerSeen,
    words: PersonalData,
    /// Which purges outdate the answer.
    marks: PurgeSnapshot,
}

/// A page in what was learned.
struct LearnedPlace {
    learning: Arc<Learning>,
    pages: Arc<Pages>,
    key: PageKey,
    scopes: Vec<ScopeDigest>,
    now: u64,
}

impl LearnedPlace {
    fn of(cx: &RequestContext<'_>, key: PageKey, class: Option<ShareClass>) -> Self {
        Self {
            learning: Arc::clone(&cx.worker.learning),
            pages: Arc::clone(&cx.worker.pages),
            key,
            scopes: scopes(cx, class),
            now: cx.now as u64,
        }
    }

    /// An entry as if it were fetched with this request.
    fn renewed(&self, entry: &Entry) -> Entry {
        entry.fetched_again(self.now, &self.pages.purged.now(&self.scopes))
    }

    /// The answer does not show what a fetch would get.
    fn unseen(&self) {
        self.learning.unseen(&self.key, |entry| self.renewed(entry));
    }
}

impl Lesson {
    /// Counts the request. `None`: nothing is to be learned from its answer.
    pub(super) fn begin(cx: &RequestContext<'_>, looked: &Looked<'_>) -> Option<Self> {
        let worker = cx.worker;
        let seen = SeenVisitor::of(cx, &worker.learning);
        let class = looked.want.as_ref().map(|want| want.class);
        let page = LearnedPlace::of(cx, looked.key, class);
        let request = PageRequest {
            key: page.key,
            route: &cx.route.name,
            visitor: seen.visitor,
            cookies: seen.cookies.filter(|_| is_compared(looked)),
            now: page.now,
        };
        let renewed = |entry: &Entry| page.renewed(entry);
        let wanted = page.learning.asked(&request, looked.predicted, |key| name(cx, key), renewed);
        let is_hit = matches!(looked.predicted, Predicted::Hit | Predicted::StaleHit);
        if wanted == Wanted::default() && !is_hit {
            return None;
        }
        let want = looked.want.as_ref().filter(|_| wanted.verdict);
        let order = want.map(|want| Box::new(order(cx, want, &page)));
        let answer = AnswerSeen {
            visitor: seen.visitor,
            cookies: seen.cookies.unwrap_or_default(),
            is_shared: looked.is_shared,
            could_fill: looked.is_seen,
            finding: None,
        };
        let words =
            if wanted.comparison { personal::own_words(cx) } else { PersonalData::default() };
        let route = Arc::clone(&cx.route.name);
        let marks = page.pages.purged.now(&page.scopes);
        Some(Self { page, route, predicted: looked.predicted, wanted, order, answer, words, marks })
    }

    /// The lesson of the origin's answer to a visitor without cookies.
    pub(super) fn of_stranger(cx: &RequestContext<'_>, want: &WantedPage<'_>) -> Self {
        let page = LearnedPlace::of(cx, want.key, Some(want.class));
        let order = Some(Box::new(order(cx, want, &page)));
        let marks = page.pages.purged.now(&page.scopes);
        let answer = AnswerSeen {
            visitor: STRANGER,
            cookies: 0,
            is_shared: true,
            could_fill: true,
            finding: None,
        };
        Self {
            page,
            route: Arc::clone(&cx.route.name),
            predicted: Predicted::Fetch { is_seen: true },
            wanted: Wanted { verdict: true, comparison: true },
            order,
            answer,
            words: PersonalData::default(),
            marks,
        }
    }

    /// The origin did not answer.
    pub(super) fn failed(self) {
        if self.wanted.verdict {
            self.page.learning.judged(&self.page.key, Err(Reason::Origin));
        }
    }

    /// The head of the answer is there.
    pub(super) fn came(self, filler: &Filler, came: &mut OriginResponse, took: Duration) {
        let Self { page, route, predicted, wanted, order, answer, words, marks } = self;
        if matches!(predicted, Predicted::Hit | Predicted::StaleHit) {
            page.learning.saved(&route, took, came.length.unwrap_or(0));
        }
        let status = came.response.status();
        // The answer to a condition, or a part of the page: a fetch would ask for the whole.
        let is_partial = matches!(
            status,
            StatusCode::NOT_MODIFIED
                | StatusCode::PARTIAL_CONTENT
                | StatusCode::RANGE_NOT_SATISFIABLE
                | StatusCode::PRECONDITION_FAILED
        );
        if is_partial {
            if wanted.verdict {
                page.unseen();
            }
            return;
        }
        let (head, body) = (came.response.headers(), (came.length, came.unframed));
        let head = head_of(status, head, came.response.extensions());
        let judged = order.map(|order| filler.judge_head(*order, head.clone(), body));
        let trial = match judged {
            Some(Ok(trial)) => Some(trial),
            Some(Err(reason)) => {
                page.learning.judged(&page.key, Err(reason));
                None
            }
            None => None,
        };
        let compares = wanted.comparison && matches!(status.as_u16(), 200 | 203 | 404 | 410);
        if trial.is_none() && !compares {
            return;
        }
        let is_read = compares || trial.as_ref().is_some_and(TrialPage::is_guarded);
        let place = if is_read { page.learning.body_place() } else { None };
        let reader = LessonBody {
            page,
            visitor: answer.visitor,
            trial,
            comparison: compares.then_some((answer, words)),
            head: (status, head.headers),
            body: BytesMut::new(),
            is_kept: place.is_some(),
            place,
            marks,
        };
        came.response.body_mut().read_along(Box::new(reader));
    }
}

/// The fetch of a page as it would be ordered.
fn order(cx: &RequestContext<'_>, want: &WantedPage<'_>, page: &LearnedPlace) -> TrialOrder {
    let request = origin_request::fill(cx, want.class, want.sent()).0;
    TrialOrder {
        primary: want.key,
        target: request.uri().clone(),
        class: want.class,
        route: Arc::clone(cx.route),
        person: personal::person(cx),
        personal_data: personal::personal_data(cx, want.class),
        sent: want.sent().clone(),
        purge_snapshot: page.pages.purged.now(&page.scopes),
        asked_at: cx.now,
    }
}

/// A copy of a head.
fn head_of(status: StatusCode, headers: &HeaderMap, extensions: &::http::Extensions) -> Parts {
    let (mut head, ()) = ::http::Response::new(()).into_parts();
    head.status = status;
    head.headers = headers.clone();
    if let Some(phrase) = extensions.get::<hyper::ext::ReasonPhrase>() {
        head.extensions.insert(phrase.clone());
    }
    head
}

/// Reads the body of an answer along.
struct LessonBody {
    page: LearnedPlace,
    visitor: u64,
    trial: Option<TrialPage>,
    comparison: Option<(AnswerSeen, PersonalData)>,
    head: (StatusCode, HeaderMap),
    body: BytesMut,
    /// Whether the body was kept until now.
    is_kept: bool,
    place: Option<BodyPlace>,
    /// Which purges outdate the answer, but for its tags.
    marks: PurgeSnapshot,
}

impl BodyReader for LessonBody {
    fn part(&mut self, part: &Bytes) {
        if self.is_kept && self.body.len() + part.len() <= BODY_MAX {
            self.body.extend_from_slice(part);
        } else if self.is_kept {
            self.is_kept = false;
            self.body = BytesMut::new();
        }
    }

    fn whole(self: Box<Self>) {
        if !self.is_kept {
            return self.learn();
        }
        // What the leak guard and the comparison read may take milliseconds: other requests do not wait for it.
        tokio::task::spawn_blocking(move || self.learn());
    }
}

impl LessonBody {
    fn learn(self) {
        let Self { page, visitor, trial, comparison, head: (status, headers), .. } = self;
        let Self { body, is_kept, place, marks, .. } = self;
        let body = body.freeze();
        let parts = || {
            let plain = recoded::plain(&headers, &body, DECODED_MAX)?;
            let (fields, is_text) = (fields(status, &headers), is_text(&headers));
            Some(TextParts::of(&page.learning.hash_key(), &fields, &plain, is_text))
        };
        let parts = is_kept.then(parts).flatten();
        if let Some((answer, words)) = comparison
            && let Some(parts) = &parts
        {
            let answer = AnswerSeen { finding: find(&headers, &body, &words), ..answer };
            let purged = &page.pages.purged;
            let marks = purged.tagged(&marks, &tags(&headers).unwrap_or_default());
            let is_current = |marks: &PurgeSnapshot| purged.is_current(marks);
            page.learning.compare(&page.key, (answer, parts), &marks, is_current);
        }
        match trial {
            Some(trial) if is_kept || !trial.is_guarded() => {
                let proof = trial.needs_second_user().then_some(&parts);
                let judged = trial.judge_body(&body, &page.pages.purged);
                let judged = judged.map(|(key, entry)| (key, Arc::new(entry)));
                match proof {
                    Some(parts) => {
                        page.learning.proved(&page.key, visitor, judged, parts.as_ref());
                    }
                    None => page.learning.judged(&page.key, judged),
                }
            }
            Some(_) => page.unseen(),
            None => {}
        }
        drop(place);
    }
}

/// What of the visitor's own words stands in a body.
fn find(headers: &HeaderMap, body: &Bytes, words: &PersonalData) -> Option<LeakKind> {
    let checks =
        LeakChecks { forms: PersonalForms::None, personal_data: words, max_decoded: DECODED_MAX };
    let found = leak_guard::search(headers, std::slice::from_ref(body), &checks).err();
    found.filter(|leak| *leak != LeakKind::Undecodable)
}

/// The fields of which each visitor would get the same.
fn fields(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let mut all = status.as_str().as_bytes().to_vec();
    for name in [CONTENT_TYPE, CONTENT_LANGUAGE, LOCATION] {
        for value in headers.get_all(name) {
            all.push(b'\n');
            all.extend_from_slice(value.as_bytes());
        }
    }
    all
}

fn is_text(headers: &HeaderMap) -> bool {
    match media::kind(headers) {
        MediaKind::Html
        | MediaKind::Css
        | MediaKind::JavaScript
        | MediaKind::Json
        | MediaKind::Xml => true,
        MediaKind::Image
        | MediaKind::Font
        | MediaKind::Audio
        | MediaKind::Video
        | MediaKind::Other => false,
    }
}

/// Pages of one visitor are compared with nothing.
fn is_compared(looked: &Looked<'_>) -> bool {
    let class = looked.want.as_ref().map(|want| want.class);
    !matches!(class, Some(ShareClass::User | ShareClass::Public))
}

fn scopes(cx: &RequestContext<'_>, class: Option<ShareClass>) -> Vec<ScopeDigest> {
    let mut scopes = cx.purge_scopes();
    if class == Some(ShareClass::User) {
        scopes.extend(cx.own_scopes());
    }
    scopes
}

fn name(cx: &RequestContext<'_>, key: &RandomState) -> PageName {
    debug_assert_eq!(cx.head.method, Method::GET);
    let query = cx.head.uri.query();
    let parameters = parameter_names(query);
    PageName {
        host: cx.admitted.site.clone(),
        path: cx.worker.telemetry.paths.path(cx.head.uri.path()).into_owned(),
        values: QueryValues::of(key, query, &parameters),
        parameters,
    }
}
