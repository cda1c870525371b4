//! What a request and the head of its answer teach. `body` reads the rest of the answer along.

use std::sync::Arc;
use std::time::Duration;

use ::http::response::Parts;
use ::http::{HeaderMap, Method, StatusCode};
use ahash::RandomState;
use anteroom_cache::entry::Entry;
use anteroom_cache::fill::{self, Filler, TrialOrder, TrialPage};
use anteroom_cache::purge::PurgeSnapshot;
use anteroom_cache::rules::key::ShareClass;
use anteroom_cache::rules::personal_data::PersonalData;
use anteroom_learn::{
    AnswerNeeds, AnswerSeen, Causes, PageName, PageRequest, PredictedOutcome, QueryValues,
};
use anteroom_origin::OriginResponse;
use anteroom_policy::route::{CompiledRoute, Share};
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::shown_path::parameter_names;

use super::body::{AnswerComparison, LessonBody};
use super::place::LearnedPlace;
use super::predict::Prediction;
use super::visitor::SeenVisitor;
use crate::context::RequestContext;
use crate::origin_request;
use crate::source::personal;
use crate::stage::url_pattern::short_path;
use crate::stage::wanted_page::WantedPage;

/// The visitor that a probe stands for.
const STRANGER: u64 = 0;

/// What an answer can teach.
pub(super) struct Lesson {
    page: LearnedPlace,
    route: Arc<CompiledRoute>,
    predicted: PredictedOutcome,
    is_rescued: bool,
    wanted: AnswerNeeds,
    order: Option<Box<TrialOrder>>,
    answer: AnswerSeen,
    words: PersonalData,
    /// The fields of the request, by which a variant of the page is chosen.
    asked: HeaderMap,
    /// Which purges outdate the answer.
    marks: PurgeSnapshot,
}

impl Lesson {
    /// Counts the request. `None`: nothing is to be learned from its answer.
    pub(super) fn begin(cx: &RequestContext<'_>, looked: &Prediction<'_>) -> Option<Self> {
        let worker = cx.worker;
        let seen = SeenVisitor::of(cx, &worker.learning);
        let class = looked.want.map(|want| want.class);
        let page = LearnedPlace::of(cx, looked.key, class);
        let request = PageRequest {
            key: page.key,
            route: &cx.route.name,
            is_for_all: cx.route.share == Share::Everyone,
            visitor: seen.visitor,
            causes: seen.causes.as_ref().filter(|_| is_compared(looked)),
            now: page.now,
        };
        let renewed = |entry: &Entry| page.renewed(entry);
        let wanted = page.learning.asked(&request, looked.predicted, |key| name(cx, key), renewed);
        let is_hit =
            matches!(looked.predicted, PredictedOutcome::Hit | PredictedOutcome::StaleHit { .. });
        if wanted == AnswerNeeds::default() && !is_hit {
            return None;
        }
        let want = looked.want.filter(|_| wanted.verdict);
        let order = want.map(|want| Box::new(order(cx, want, &page)));
        let answer = AnswerSeen {
            visitor: seen.visitor,
            renewed_known: seen.renewed_known,
            causes: seen.causes.unwrap_or_default(),
            is_shared: looked.is_shared,
            finding: None,
            at: page.now,
        };
        let (words, asked) = match wanted.comparison {
            true => (personal::own_words(cx), cx.head.headers.clone()),
            false => Default::default(),
        };
        let marks = page.marks();
        Some(Self {
            page,
            route: Arc::clone(cx.route),
            predicted: looked.predicted,
            is_rescued: looked.is_rescued,
            wanted,
            order,
            answer,
            words,
            asked,
            marks,
        })
    }

    /// The lesson of the origin's answer to a visitor without cookies.
    pub(super) fn of_stranger(cx: &RequestContext<'_>, want: &WantedPage<'_>) -> Self {
        let page = LearnedPlace::of(cx, want.key, Some(want.class));
        let order = Some(Box::new(order(cx, want, &page)));
        let marks = page.marks();
        let answer = AnswerSeen {
            visitor: STRANGER,
            renewed_known: cx.worker.learning.renewed_cookies().len() as u32,
            causes: Causes::default(),
            is_shared: true,
            finding: None,
            at: page.now,
        };
        Self {
            page,
            route: Arc::clone(cx.route),
            predicted: PredictedOutcome::Fetch { is_seen: true },
            is_rescued: false,
            wanted: AnswerNeeds { verdict: true, comparison: true },
            order,
            answer,
            words: PersonalData::default(),
            asked: want.sent().clone(),
            marks,
        }
    }

    /// The origin did not answer.
    pub(super) fn failed(self) {
        if self.wanted.verdict {
            self.page.learning.failed(&self.page.key, Reason::Origin, self.is_rescued);
        }
    }

    /// The head of the answer is there.
    pub(super) fn came(self, filler: &Filler, came: &mut OriginResponse, took: Duration) {
        let Self { page, route, predicted, is_rescued, wanted, order, .. } = self;
        let Self { answer, words, asked, marks, .. } = self;
        if matches!(predicted, PredictedOutcome::Hit | PredictedOutcome::StaleHit { .. }) {
            page.learning.saved(&route.name, took, came.length.unwrap_or(0));
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
        let (length, unframed) = (came.length, came.unframed);
        let head = head_of(status, came.response.headers(), came.response.extensions());
        let judged = order.map(|order| match is_rescued && fill::is_server_error(status) {
            true => Err(Reason::ServerError),
            false => filler.judge_head(*order, head.clone(), length, unframed),
        });
        let trial = match judged {
            Some(Ok(trial)) => Some(trial),
            Some(Err(reason)) => {
                // A status that passes says nothing of the page.
                match fill::passes(status) {
                    true => page.learning.failed(
                        &page.key,
                        reason,
                        is_rescued && fill::is_server_error(status),
                    ),
                    false => page.learning.judged(&page.key, Err(reason)),
                }
                None
            }
            None => None,
        };
        let compares = wanted.comparison && is_answer(status);
        if trial.is_none() && !compares {
            return;
        }
        let is_read = compares || trial.as_ref().is_some_and(TrialPage::is_guarded);
        let place = if is_read { page.learning.body_place() } else { None };
        let visitor = answer.visitor;
        let comparing =
            compares.then(|| AnswerComparison::new(answer, words, &route, &head, &asked));
        let reader = LessonBody::new(page, trial, comparing, head, place, marks, visitor);
        came.response.body_mut().read_along(Box::new(reader));
    }
}

/// Whether an answer with this status says something of the page, such as whom the app refuses it, and is compared.
fn is_answer(status: StatusCode) -> bool {
    !status.is_informational() && !fill::passes(status)
}

/// The fetch of a page as it would be ordered.
fn order(cx: &RequestContext<'_>, want: &WantedPage<'_>, page: &LearnedPlace) -> TrialOrder {
    let request = origin_request::fill(cx, want.class, want.sent());
    TrialOrder {
        primary: want.key,
        target: request.uri().clone(),
        class: want.class,
        route: Arc::clone(cx.route),
        person: personal::person(cx),
        personal_data: personal::personal_data(cx, want.class),
        sent: want.sent().clone(),
        purge_snapshot: page.marks(),
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

/// Pages of one visitor are compared with nothing.
fn is_compared(looked: &Prediction<'_>) -> bool {
    let class = looked.want.map(|want| want.class);
    class != Some(ShareClass::User)
}

fn name(cx: &RequestContext<'_>, key: &RandomState) -> PageName {
    debug_assert_eq!(cx.head.method, Method::GET);
    let query = cx.head.uri.query();
    let parameters = parameter_names(query);
    PageName {
        host: cx.admitted.site.clone(),
        path: short_path(&cx.worker.telemetry.paths.path(cx.head.uri.path())),
        values: QueryValues::of(key, query, &parameters),
        parameters,
    }
}
