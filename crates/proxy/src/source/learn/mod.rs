//! Learn mode: forwards the request as it came, and learns from the answer what the cache would have done.
//!
//! `predict` scores what was decided by the simulated cache; `lesson` reads the answer along, and
//! tells [`anteroom_learn`]; `probe` asks the origin as a visitor without cookies, where that is allowed. The client gets
//! what the origin answers, whatever is learned.

mod body;
mod lesson;
mod place;
mod predict;
mod probe;
mod visitor;

use std::time::Instant;

use ::http::header::SET_COOKIE;
use ::http::{HeaderMap, Method};
use anteroom_http::cookie::cookies;
use anteroom_http::set_cookie;
use anteroom_origin::RequestBody;
use anteroom_telemetry::reason::Reason;

use self::lesson::Lesson;
use self::predict::predict;
use super::causes::learned_name;
use super::forward;
use crate::answer::Answer;
use crate::context::{RequestContext, RequestKind};
use crate::error::Error;
use crate::plan::{Decision, PageDecision};
use crate::record::RequestRecord;
use crate::stage::decide::Evaluation;

/// Whether the visitor gets the origin's answer, which then teaches something, or is only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestUse {
    Forwarded,
    Mirrored,
}

/// Forwards a request of a route that learns. `decision`: what the cache would have done.
pub(super) async fn answer(
    cx: &RequestContext<'_>,
    decision: Decision,
    evaluation: &Evaluation<'_>,
    body: RequestBody,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    // A part of a page teaches nothing.
    if cx.kind != RequestKind::Page {
        let reason = evaluation.barred().unwrap_or(Reason::Learn);
        return forward::forward(cx, body, reason, record).await;
    }
    let reason = forward_reason(&decision);
    if reason == Reason::BypassSwitch {
        return forward::forward(cx, body, reason, record).await;
    }
    let lesson = begin(cx, &decision, evaluation, body.is_some(), RequestUse::Forwarded);
    let begun = Instant::now();
    let mut answered = forward::forward(cx, body, reason, record).await;
    if let Ok(Answer::Uncached(came, _)) = &answered {
        note_set_cookies(cx, came.response.headers());
    }
    match (lesson, &mut answered) {
        (Some(lesson), Ok(Answer::Uncached(came, _))) => {
            lesson.came(&cx.worker.filler, came, begun.elapsed());
        }
        (Some(lesson), _) => lesson.failed(),
        (None, _) => {}
    }
    answered
}

/// Notes for how long the app sets cookies, and which of the request's own it sets to another value.
fn note_set_cookies(cx: &RequestContext<'_>, headers: &HeaderMap) {
    if !headers.contains_key(SET_COOKIE) {
        return;
    }
    let own = |name: &[u8]| cookies(&cx.head.headers).find(|(own, _)| *own == name);
    let renewed =
        set_cookie::pairs(headers).take(visitor::COOKIES_MAX).filter_map(|(name, value)| {
            own(name).filter(|(_, own)| *own != value).and_then(|(name, _)| learned_name(name))
        });
    let renewed: Vec<String> = renewed.collect();
    if !renewed.is_empty() {
        cx.worker.learning.renewed(renewed.iter().map(String::as_str));
    }
    let set = set_cookie::lifetimes(headers, cx.now as u64).take(visitor::COOKIES_MAX);
    let set = set.filter_map(|(name, time)| Some((learned_name(name)?, time)));
    let set: Vec<(String, u64)> = set.collect();
    if !set.is_empty() {
        cx.worker.learning.set_cookies(set.iter().map(|(name, time)| (name.as_str(), *time)));
    }
}

/// Learns from a request that a mirror has sent, and whose answer another server gives.
pub(crate) fn mirrored(
    cx: &RequestContext<'_>,
    decision: &Decision,
    evaluation: &Evaluation<'_>,
    has_body: bool,
) {
    // Nothing of its answer is seen.
    drop(begin(cx, decision, evaluation, has_body, RequestUse::Mirrored));
}

/// Why a request of a route that learns is forwarded: because the route learns, or as it would be in any case.
fn forward_reason(decision: &Decision) -> Reason {
    decision.reason().unwrap_or(Reason::Learn)
}

/// Counts the request. Returns what its answer can teach.
fn begin(
    cx: &RequestContext<'_>,
    decision: &Decision,
    evaluation: &Evaluation<'_>,
    has_body: bool,
    using: RequestUse,
) -> Option<Lesson> {
    let (learning, route) = (&cx.worker.learning, &cx.route.name);
    evaluation.count_use();
    let reason = forward_reason(decision);
    if cx.head.method != Method::GET || has_body {
        match decision {
            Decision::Page(PageDecision::Hit(..)) => learning.counted(route),
            _ => learning.forwarded(route, reason),
        }
        return None;
    }
    let Some(mut looked) = predict(cx, decision, evaluation.want()) else {
        learning.forwarded(route, reason);
        return None;
    };
    if using == RequestUse::Mirrored {
        looked = looked.unseen();
    }
    let probe = probe::of(cx, &looked, using);
    let lesson = Lesson::begin(cx, &looked);
    if let Some(probe) = probe {
        probe.begin(cx);
    }
    lesson
}
