//! The stages that a request passes before a source answers it, in order.
//!
//! Each stage takes what the stage before it returned, so that a wrong order does not compile:
//! `ReceivedRequest` → `AdmittedRequest` → `CountedRequest` → `RoutedRequest` → `IdentifiedRequest` →
//! `Decision`. Peek mode runs the same stages for `anteroom explain`. It counts, remembers and uses up
//! nothing, and sends no question to the app.

pub(crate) mod admit;
pub(crate) mod classify;
pub(crate) mod decide;
pub(crate) mod detect_upgrade;
pub(crate) mod divert;
pub(crate) mod identify;
pub(crate) mod limit;
pub(crate) mod receive;
mod revoked;
pub(crate) mod route;
pub(crate) mod url_pattern;
pub(crate) mod verify;
pub(crate) mod wanted_page;
#[cfg(feature = "testbed")]
pub(crate) mod words;

use std::rc::Rc;

use self::divert::Diversion;
use self::identify::IdentifiedRequest;
use self::receive::ReceivedRequest;
use super::connection::client::Client;
use super::context::{Mode, WorkerContext};
use super::error::Error;
use super::record::RequestRecord;

/// How far a request has come.
pub(crate) enum StageResult<'w> {
    /// The proxy answers the request itself.
    Diverted(Diversion<'w>),
    /// A source answers the request.
    Identified(IdentifiedRequest<'w>),
}

/// Takes a request through the stages.
pub(crate) async fn run<'w>(
    worker: &'w Rc<WorkerContext>,
    client: &'w Rc<Client>,
    received: ReceivedRequest,
    mode: Mode<'_>,
    record: &mut RequestRecord,
) -> Result<StageResult<'w>, Error> {
    let admitted = admit::admit(&worker.settings, client, received, mode, record)?;
    let counted = limit::count(worker, client, admitted, mode)?;
    // PERF: boxed, because it is rare.
    if mode.counts()
        && let Some(challenge) = divert::challenge_of(&worker.settings, &counted)
        && let Some(answer) = Box::pin(divert::challenge_answer(worker, &challenge)).await
    {
        return Ok(StageResult::Diverted(Diversion::Challenge(answer, counted)));
    }
    let counted = match divert::divert(&worker.settings, client, counted) {
        Diversion::No(counted) => counted,
        Diversion::Endpoint(call) => {
            route::refuse_denied_call(worker, &call, record)?;
            return Ok(StageResult::Diverted(Diversion::Endpoint(call)));
        }
        diverted => return Ok(StageResult::Diverted(diverted)),
    };
    let routed = route::route(worker, counted, mode, record)?;
    if routed.route().redirect.is_some() {
        return Ok(StageResult::Diverted(Diversion::RouteRedirect(routed)));
    }
    let identified = identify::identify(worker, client, routed, mode, record).await?;
    Ok(StageResult::Identified(identified))
}
