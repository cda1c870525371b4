//! Requests for fragments. They begin as admitted requests, pass the stages that depend on the visitor,
//! and end in the page instead of at a socket.

use std::rc::Rc;
use std::sync::Arc;

use anteroom_policy::route::{CompiledRoute, Share};
use anteroom_telemetry::traces::TraceIds;
use futures_util::future::LocalBoxFuture;

use super::connection::client::Client;
use super::context::{Mode, RequestKind, WorkerContext};
use super::deliver::fragments::subrequest::{Subrequest, Subrequests, Subresponse, target};
use super::error::Error;
use super::record::RequestRecord;
use super::reply::reply;
use super::stage::admit::AdmittedRequest;
use super::stage::limit::CountedRequest;
use super::stage::{identify, route};
use super::visitor::Visitor;
use super::visitor_token::VisitorTokenState;

/// Answers requests for fragments.
pub(super) struct FragmentRequests;

impl Subrequests for FragmentRequests {
    fn answer(&self, request: Subrequest) -> LocalBoxFuture<'static, Result<Subresponse, Error>> {
        Box::pin(answer(request))
    }

    fn visitor(
        &self,
        worker: Rc<WorkerContext>,
        client: Rc<Client>,
        request: AdmittedRequest,
        route: Arc<CompiledRoute>,
    ) -> LocalBoxFuture<'static, Visitor> {
        Box::pin(
            async move { identify::visitor(&worker, &client, &request, &route, Mode::Serve).await },
        )
    }
}

async fn answer(asked: Subrequest) -> Result<Subresponse, Error> {
    let mut record = RequestRecord::of_part(
        &asked.worker.telemetry,
        &asked.client.state,
        &asked.request.head.method,
    );
    let answered = answer_recorded(asked, &mut record).await;
    record.part_answered(match &answered {
        Ok(answer) => answer.response.status(),
        Err(error) => error.status(),
    });
    answered
}

async fn answer_recorded(
    asked: Subrequest,
    record: &mut RequestRecord,
) -> Result<Subresponse, Error> {
    let Subrequest { worker, client, mut request, share, page } = asked;
    let head = &mut request.head;
    if let Some(page) = head.extensions.get::<Arc<TraceIds>>().cloned() {
        head.extensions.insert(record.begin_part(&page, &head.uri));
    }
    // The page was counted among all requests. A fragment counts on its own route only.
    let counted = CountedRequest::with_its_page(&worker, request)?;
    let routed = route::route(&worker, counted, Mode::Serve, record)?;
    let route = shared_as(routed.route(), share, &page);
    let routed = routed.on(&route);
    let identified = identify::identify(&worker, &client, routed, Mode::Serve, record).await?;
    let token = VisitorTokenState::default();
    let cx = identified.context(&worker, &client, &token, RequestKind::Fragment);
    let (response, _) = reply(&cx, identified.item(), None, record).await?;
    let target = target(&cx);
    drop(cx);
    Ok(Subresponse { response: response.into_http(), target, route: Arc::clone(&route) })
}

/// The route, with the sharing that the fragment states.
fn shared_as(
    route: &Arc<CompiledRoute>,
    share: Option<Share>,
    page: &CompiledRoute,
) -> Arc<CompiledRoute> {
    match share {
        Some(share) if share != route.share => Arc::new(route.shared_as(share, page)),
        _ => Arc::clone(route),
    }
}
