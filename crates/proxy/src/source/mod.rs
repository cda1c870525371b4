//! Sources of answers: the cache, a row, or the origin; `learn` forwards, and learns what the cache would do; `audit` holds
//! a hit against the origin.
//! Each carries out a decision, and leaves the visitor's session and cart unchanged.

mod audit;
pub(crate) mod cache;
mod causes;
mod compared;
mod forward;
pub(crate) mod learn;
mod personal;
pub(crate) mod rows;
mod upgrade;

use anteroom_origin::RequestBody;
use anteroom_policy::learn::CacheMode;
use anteroom_telemetry::request_feed::Step;

use super::answer::Answer;
use super::context::RequestContext;
use super::error::Error;
use super::plan::Decision;
use super::record::RequestRecord;
use super::stage::decide::Evaluation;

/// Carries out a decision.
pub(super) async fn answer(
    cx: &RequestContext<'_>,
    decision: Decision,
    evaluation: &Evaluation<'_>,
    body: RequestBody,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    let learns = cx.route.mode == CacheMode::Learn;
    if !learns && evaluation.want().is_some() {
        record.step(Step::LookedUp);
    }
    match &decision {
        Decision::Row(row) => return Ok(Answer::Stored(rows::answer(cx, row, record).into())),
        Decision::NotStored => return Err(Error::NotStored),
        Decision::Upgrade => return upgrade::answer(cx, record).await,
        // PERF: boxed, so that the state of a hit stays small.
        Decision::Page(_) | Decision::Forward(_) if learns => {
            return Box::pin(learn::answer(cx, decision, evaluation, body, record)).await;
        }
        Decision::Page(_) | Decision::Forward(_) => {}
    }
    evaluation.count_use();
    match (decision, evaluation.want()) {
        (Decision::Forward(reason), _) => forward::forward(cx, body, reason, record).await,
        (Decision::Page(page), Some(want)) => cache::answer(want, page, body, record).await,
        // Not reached: these are carried out above, and a page is decided about behind its look-up.
        _ => Err(Error::Defect),
    }
}
