//! The target of a mirror: learns from copies of requests that another server answers, and forwards nothing.
//!
//! A copy passes the stages as `anteroom explain` does: nothing is counted against a limit, no visit is recorded, and
//! the app is not asked who the visitor is.

use std::rc::Rc;

use ::http::{Response, StatusCode};
use anteroom_telemetry::metrics::Outcome;
use anteroom_telemetry::reason::Reason;

use super::connection::client::Client;
use super::context::{Mode, RequestKind, WorkerContext};
use super::deliver::body::Body;
use super::plan::Facts;
use super::record::RequestRecord;
use super::source::learn::mirrored;
use super::stage::decide::{Evaluation, LookupRules, facts};
use super::stage::receive::ReceivedRequest;
use super::stage::{self, StageResult};
use super::visitor_token::VisitorTokenState;

/// Learns from a request, and answers it with 204.
pub(super) async fn answer(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    received: ReceivedRequest,
    has_body: bool,
    record: &mut RequestRecord,
) -> Response<Body> {
    record.outcome(Outcome::Endpoint, Some(Reason::Learn));
    let token = VisitorTokenState::default();
    let mode = Mode::Peek { knows_address: true, visitor: None };
    let reached = stage::run(worker, client, received, mode, record).await;
    if let Ok(StageResult::Identified(identified)) = reached {
        let cx = identified.context(worker, client, &token, RequestKind::Page);
        // The other server may answer from rows, or serve what is stored: this one scores what its cache would do.
        let own = facts(&cx, identified.item(), has_body);
        let facts = Facts { row: None, only_if_cached: false, ..own };
        let mut evaluation = Evaluation::new(&cx, facts, LookupRules::PEEK_LEARN);
        let decision = evaluation.decide().await;
        mirrored(&cx, &decision, &evaluation, has_body);
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
