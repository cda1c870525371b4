//! The life of a request, from the client's connection to the line in the access log.
//!
//! [`serve`](mod@serve) accepts clients and reads heads. [`respond`] is what happens with a request: the stages, the
//! decision, a source, settling, delivery and the record. `plan` decides what is done, and is pure; what may be shared is
//! decided by the rules of the cache.
//!
//! An answer to one visitor reaches no other, a request is answered although the store is away, and what the origin's
//! answer changes is settled before the answer goes out. Nothing here knows `proxy.toml`, or what runs in the background.
//! ARCHITECTURE states which of these modules may import which.

mod advice;
mod answer;
pub mod connection;
pub mod connection_state;
mod context;
mod cookie_report;
mod cookie_rules;
mod deliver;
mod endpoint;
mod error;
mod explain;
mod finish;
mod kept_body;
mod mirror;
mod origin_request;
mod plan;
mod recompress;
mod record;
mod reply;
mod request_id;
pub mod serve;
mod settings;
mod settle;
mod source;
mod stage;
mod subrequests;
#[cfg(feature = "testbed")]
pub mod testbed;
mod visitor;
mod visitor_token;
mod warm;

use std::panic::AssertUnwindSafe;
use std::rc::Rc;

use ::http::request::Parts;
use ::http::{Method, Request, Response};
use anteroom_http::trace_context::TraceContext;
use anteroom_origin::{RequestBody, unless_ended};
use futures_util::FutureExt as _;
use hyper::body::Incoming;

use self::connection::client::Client;
use self::connection::detached::{CancelOnDisconnect, DetachedTask};
use self::connection::tunnel::OpenedTunnel;
use self::context::{Mode, RequestKind};
use self::deliver::{field_rules, fragments};
use self::endpoint::{challenge, https_redirect, purge_method, route_redirect};
use self::error::Error;
use self::finish::Finish;
use self::record::RequestRecord;
use self::request_id::RequestId;
use self::settle::visit;
use self::settle::visitor_token::TokenContext;
use self::stage::StageResult;
use self::stage::divert::Diversion;
use self::stage::receive::receive;
use self::subrequests::FragmentRequests;
use self::visitor_token::VisitorTokenState;

pub use self::advice::{Advice, advice};
pub use self::connection::detached::DetachedTasks;
pub use self::connection::tunnel::{Tunnel, TunnelSlot};
pub use self::context::{AssumedVisitor, WaitingFragments, WorkerContext};
pub use self::cookie_report::{
    CookieKinds, CookieReport, SeenCookie, cookie_hints, cookie_report, means_session,
};
pub use self::cookie_rules::{CookieRules, TokenFrom};
pub use self::deliver::body::{Body, BodyError};
pub use self::deliver::client_response::{ClientResponse, StoredResponse};
pub use self::explain::{Explanation, Question, QuestionError, explain, explain_for};
pub use self::recompress::Recompressor;
pub use self::settings::{
    FragmentLimits, LearnSettings, OriginRules, ProxySettings, PurgeMethod, PurgeToken, Rates,
    SessionCreation, Verifier,
};
pub use self::visitor_token::VisitorTokens;
pub use self::warm::keep_warm;

/// Answers a request. An error is a response, too, so this never fails. A request that may change
/// something continues when this is dropped because its client has disconnected.
///
/// PERF: the head is boxed, because it is large and moves from stage to stage.
pub async fn respond(
    worker: Rc<WorkerContext>,
    client: Rc<Client>,
    request: (Box<Parts>, RequestBody),
) -> ClientResponse {
    let cancel = CancelOnDisconnect::default();
    let (head, body) = request;
    // An admitted CONNECT asks for a WebSocket, like GET over HTTP/1.1.
    if head.method.is_safe() || head.method == Method::CONNECT {
        return carry_out(worker, client, head, body, &cancel).await;
    }
    let (detached, inner) = (Rc::clone(&worker.detached), cancel.clone());
    let work = async move { carry_out(worker, client, head, body, &inner).await };
    DetachedTask::begin(&detached, cancel, work).await
}

/// The head of a request that hyper has read, and its body unless that has ended.
pub fn from_hyper(request: Request<Incoming>) -> (Box<Parts>, RequestBody) {
    let (head, body) = request.into_parts();
    (Box::new(head), unless_ended(body))
}

async fn carry_out(
    worker: Rc<WorkerContext>,
    client: Rc<Client>,
    mut head: Box<Parts>,
    body: RequestBody,
    cancel: &CancelOnDisconnect,
) -> ClientResponse {
    let request_id = RequestId::give(&worker.settings, &client, &mut head);
    let mut record =
        RequestRecord::begin(&worker.telemetry, &client.state, client.peer.address(), &head);
    if let Some(traces) = &worker.telemetry.traces {
        let is_trusted = client.peer.is_among(&worker.settings.trusted_proxies);
        let trusted = TraceContext::of(&head.headers).filter(|_| is_trusted);
        head.extensions.insert(record.begin_trace(&traces.rules, trusted));
    }
    if let Some(request_id) = &request_id {
        record.request_id(&request_id.id);
    }
    let finish = Finish::of(&head, body.is_some(), request_id);
    let error_page = worker.settings.error_pages.form(&head.headers);
    let token = VisitorTokenState::default();
    let answering = answer(&worker, &client, head, body, cancel, &token, &mut record);
    // A defect ends this request, not the others of its connection. What it left half done is its own: the page that
    // it was fetching ends as one that broke off.
    let answered = AssertUnwindSafe(answering).catch_unwind().await;
    let answered = answered.unwrap_or(Err(Error::Defect));
    let (mut response, opened) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            let id = finish.request_id();
            let response = deliver::error::response(error, &worker, error_page, id, &mut record);
            (response.into(), None)
        }
    };
    finish.complete(&client, &token, &mut response);
    finish::attach(record, &mut response, opened, &worker, &client);
    response
}

/// The steps of a request's life, in order.
async fn answer(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    head: Box<Parts>,
    body: RequestBody,
    cancel: &CancelOnDisconnect,
    token: &VisitorTokenState,
    record: &mut RequestRecord,
) -> Result<(ClientResponse, Option<Box<OpenedTunnel>>), Error> {
    anteroom_fault::may_panic(head.uri.path());
    let (settings, now) = (&worker.settings, record.at());
    let received = receive(settings, client, head, body.as_ref(), token, now)?;
    if worker.settings.learn.is_mirror {
        let mirrored = mirror::answer(worker, client, received, body.is_some(), record);
        return Ok((Box::pin(mirrored).await.into(), None));
    }
    let mut identified = match stage::run(worker, client, received, Mode::Serve, record).await? {
        StageResult::Identified(identified) => identified,
        StageResult::Diverted(diverted) => {
            // PERF: boxed, as are other rare steps, so that the state of a common request stays small.
            let own = own_answer(worker, client, diverted, body, token, record);
            let own = Box::pin(own).await?;
            return Ok((own.into(), None));
        }
    };
    let (route, has_body) = (identified.route(), identified.has_body());
    let wanted = fragments::wanted_fragments(route, identified.head_mut(), has_body);
    let cx = identified.context(worker, client, token, RequestKind::Page);
    token.settle(&TokenContext::of(&cx), cx.visitor).await;
    if cx.is_call() {
        // A client that disconnects from a call cancels it.
        cancel.bind();
    }
    let item = identified.item();
    let (response, opened) = reply::reply(&cx, item, body, record).await?;
    visit::record(&cx, item.cloned(), &response).await;
    let mut response = match wanted {
        Some(wanted) => {
            let (requests, response) = (Rc::new(FragmentRequests), response.into_http());
            Box::pin(fragments::fill(&wanted, &cx, item, requests, response)).await.into()
        }
        None => response,
    };
    field_rules::set_fields(&cx, &mut response);
    Ok((response, opened))
}

/// Answers a request that the proxy answers itself.
async fn own_answer(
    worker: &Rc<WorkerContext>,
    client: &Rc<Client>,
    diverted: Diversion<'_>,
    body: RequestBody,
    visitor_token: &VisitorTokenState,
    record: &mut RequestRecord,
) -> Result<Response<Body>, Error> {
    match diverted {
        Diversion::Challenge(text, request) => Ok(challenge::answer(text, &request, record)),
        Diversion::Purge(method, request) => {
            purge_method::answer(method, worker, client, &request, record).await
        }
        Diversion::Redirect(redirect, request) => {
            https_redirect::answer(redirect, &request, record)
        }
        Diversion::RouteRedirect(routed) => route_redirect::answer(&routed, record),
        Diversion::Endpoint(request) | Diversion::No(request) => {
            let call = endpoint::EndpointRequest { worker, client, request, visitor_token };
            endpoint::answer(&call, body, record).await
        }
    }
}
