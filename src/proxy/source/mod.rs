//! Sources of answers: the cache, a row, or the origin; `learn` forwards, and learns what the cache would do. A source leaves the visitor's session and cart
//! unchanged.

pub(in crate::proxy) mod cache;
mod forward;
mod learn;
mod personal;
pub(in crate::proxy) mod rows;
mod upgrade;

use anteroom_cache::rules::verdict::Access;
use anteroom_fault::fault;
use anteroom_http::ident::Item;
use anteroom_origin::RequestBody;
use anteroom_policy::learn::CacheMode;
use anteroom_telemetry::reason::Reason;

pub(in crate::proxy) use self::learn::{forward_reason, mirrored};
use super::answer::Answer;
use super::context::RequestContext;
use super::error::Error;
use super::record::RequestRecord;
use super::stage::decide;

/// A request for another protocol, in any mode.
const UPGRADE: Access = Access::Bypass(Reason::Upgrade);

/// Answers a request from the source that was decided.
pub(super) async fn answer(
    cx: &RequestContext<'_>,
    (access, item): (Access, Option<&Item>),
    body: RequestBody,
    record: &mut RequestRecord,
) -> Result<Answer, Error> {
    if let Some(response) = rows::answer(cx, item, body.is_some(), record).await {
        return Ok(Answer::Stored(response.into()));
    }
    let is_learning = cx.route.mode == CacheMode::Learn;
    let may_find_stored = !is_learning && !matches!(access, Access::Bypass(_));
    let is_exempt = may_find_stored || (fault!("stored") && access == UPGRADE);
    // RFC 9111 §5.2.1.7.
    if !is_exempt && decide::takes_stored_only(cx.head) {
        return Err(Error::NotStored);
    }
    match access {
        UPGRADE => upgrade::answer(cx, record).await,
        // PERF: boxed, so that the state of a hit stays small.
        access if is_learning => Box::pin(learn::answer(cx, access, body, record)).await,
        Access::Bypass(reason) => forward::forward(cx, body, reason, record).await,
        Access::Shared(_) | Access::StaticOnly(_) => cache::answer(cx, body, access, record).await,
    }
}
