//! Answers a request that has passed the stages: decide, ask a source, settle, deliver.

use anteroom_http::ident::Item;
use anteroom_origin::{RequestBody, unless_ended};

use super::answer::Answer;
use super::connection::tunnel::OpenedTunnel;
use super::context::RequestContext;
use super::deliver::client_response::ClientResponse;
use super::deliver::own;
use super::error::Error;
use super::record::RequestRecord;
use super::settle::effects::Effects;
use super::settle::unanswered_change::UnansweredChange;
use super::stage::classify;
use super::stage::decide::{Evaluation, LookupRules, facts};
use super::{settle, source};

/// Answers a request, and carries out what the origin's response means before it goes out.
pub(super) async fn reply(
    cx: &RequestContext<'_>,
    item: Option<&Item>,
    body: RequestBody,
    record: &mut RequestRecord,
) -> Result<(ClientResponse, Option<Box<OpenedTunnel>>), Error> {
    // A stream that announced no length may have ended since.
    let body = body.and_then(unless_ended);
    let facts = facts(cx, item, body.is_some());
    let rules = if facts.learns { LookupRules::LEARN } else { LookupRules::LIVE };
    let mut evaluation = Evaluation::new(cx, facts, rules);
    let decision = evaluation.decide().await;
    let unanswered = UnansweredChange::of(cx);
    settle::expect_log_in(cx);
    let answered = source::answer(cx, decision, &evaluation, body, record).await;
    settle::expect_log_in(cx);
    let crowded = |error: Error| if error.is_crowded() { classify::crowded(cx) } else { error };
    let (came, reason) = match answered.map_err(crowded)? {
        Answer::Uncached(came, reason) => (came, reason),
        Answer::Stored(response) => {
            unanswered.mark_settled();
            return Ok((response, None));
        }
        Answer::Switched(response, opened) => {
            unanswered.mark_settled();
            return Ok((response.into(), Some(opened)));
        }
    };
    let effects = Effects::read(cx, came.response.status(), came.response.headers());
    let settled = settle::settle(cx, effects).await;
    unanswered.mark_settled();
    let response = own::response(cx, came.response, reason, settled?).await?;
    Ok((response.into(), None))
}
