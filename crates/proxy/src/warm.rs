//! Warms pages: carries recipes out as requests of a stranger, so that the next visitor finds the page.
//!
//! A recipe passes the same stages as a visitor's request. It is not counted as a request or a visit, it is charged
//! to no limit, and has no line in the access log. What it fetches is judged by the rules of every fill.

use std::rc::Rc;
use std::sync::Arc;

use ::http::header::HOST;
use ::http::request::Parts;
use ::http::{HeaderValue, Request, Uri};
use anteroom_cache::Pages;
use anteroom_cache::recipe::Recipe;
use anteroom_cache::warm_queue::{WarmOccasion, WarmRequest};
use anteroom_http::clock::unix_now;
use anteroom_http::peer::Peer;
use anteroom_telemetry::metrics::Count;
use tokio_util::sync::CancellationToken;

use super::connection::client::{Client, HandshakeResult};
use super::connection_state::ConnectionState;
use super::context::{AssumedVisitor, Mode, RequestKind, WorkerContext};
use super::plan::{Decision, Facts};
use super::record::RequestRecord;
use super::source::cache::{WarmOutcome, warm};
use super::stage::decide::{Evaluation, LookupRules, facts};
use super::stage::receive::ReceivedRequest;
use super::stage::{self, StageResult};
use super::visitor_token::VisitorTokenState;

/// Carries out the recipes that wait, one after the other, until the proxy drains. `current` is the context that
/// serves clients now.
pub async fn keep_warm(
    pages: Arc<Pages>,
    current: impl Fn() -> Rc<WorkerContext>,
    drain: CancellationToken,
) {
    let warming = async {
        loop {
            let request = pages.warm_queue.next().await;
            let worker = current();
            let outcome = Box::pin(carry_out(&worker, &request)).await;
            if let Some(count) = counted(request.occasion, outcome) {
                worker.thread_metrics.count(count);
            }
        }
    };
    drain.run_until_cancelled(warming).await;
}

fn counted(occasion: WarmOccasion, outcome: WarmOutcome) -> Option<Count> {
    match (occasion, outcome) {
        (_, WarmOutcome::Needless) => None,
        (WarmOccasion::Purged, WarmOutcome::Fetched) => Some(Count::PagesWarmed),
        (WarmOccasion::Purged, WarmOutcome::Failed | WarmOutcome::NoPlace) => {
            Some(Count::PagesWarmFailed)
        }
        (WarmOccasion::ExpiresSoon, WarmOutcome::Fetched) => Some(Count::RefreshesAhead),
        (WarmOccasion::ExpiresSoon, WarmOutcome::NoPlace) => Some(Count::RefreshesSkipped),
        (WarmOccasion::ExpiresSoon, WarmOutcome::Failed) => Some(Count::RefreshesFailed),
    }
}

/// Fetches the page of a request, unless it is there already.
async fn carry_out(worker: &Rc<WorkerContext>, request: &WarmRequest) -> WarmOutcome {
    let WarmRequest { recipe, occasion } = request;
    let Some(head) = head(recipe) else { return WarmOutcome::Failed };
    // No address of a network is its own: it is no trusted proxy, and has no privileges.
    let secured = recipe.is_https.then(HandshakeResult::default);
    let state = ConnectionState::new();
    let client = Client::entering(
        Peer::Carried(None),
        recipe.local,
        state,
        Arc::default(),
        CancellationToken::new(),
        secured,
    );
    let token = VisitorTokenState::default();
    let mut record = RequestRecord::of_part(&worker.telemetry, &client.state, &head.method);
    let received = ReceivedRequest::of(
        &worker.settings,
        &client,
        Box::new(head),
        Some(0),
        false,
        &token,
        unix_now(),
    );
    let stranger = AssumedVisitor::Anonymous;
    let mode = Mode::Peek { knows_address: false, visitor: Some(&stranger) };
    let reached = stage::run(worker, &client, received, mode, &mut record).await;
    // A page that the proxy answers itself, or refuses to a stranger, is not fetched for one.
    let Ok(StageResult::Identified(identified)) = reached else { return WarmOutcome::Failed };
    let cx = identified.context(worker, &client, &token, RequestKind::Page);
    // A page is fetched also where a row answers in its place.
    let facts = Facts { row: None, ..facts(&cx, identified.item(), false) };
    if facts.learns {
        return WarmOutcome::Failed;
    }
    let mut evaluation = Evaluation::new(&cx, facts, LookupRules::PEEK);
    match (evaluation.decide().await, evaluation.want()) {
        (Decision::Page(decision), Some(want)) => warm(want, decision, *occasion).await,
        _ => WarmOutcome::Failed,
    }
}

fn head(recipe: &Recipe) -> Option<Parts> {
    let mut request = Request::new(());
    *request.uri_mut() = Uri::from(recipe.target.clone());
    *request.headers_mut() = recipe.fields.map();
    request.headers_mut().insert(HOST, HeaderValue::try_from(recipe.site.as_str()).ok()?);
    Some(request.into_parts().0)
}
