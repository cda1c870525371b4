//! Requests that pass the stages of a worker without a socket, for tables of tests. It is built with the feature
//! `testbed` only.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "it serves tests, in which a panic is the way to fail"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, Token, User};
use anteroom_http::peer::Peer;
use anteroom_session::PreviousIdentity;

use super::connection::client::Client;
use super::connection_state::ConnectionState;
use super::context::{Mode, RequestContext, RequestKind, WorkerContext};
use super::deliver::own::SettledChanges;
use super::error::Error;
use super::record::RequestRecord;
use super::settle::effects::Effects;
use super::stage::decide::{Evaluation, LookupRules, facts};
use super::stage::receive::ReceivedRequest;
use super::stage::{self, StageResult};
use super::visitor_token::VisitorTokenState;
use super::{plan, settle};

/// The client's address.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Logs a user in. Returns the session's token.
///
/// # Panics
/// If the store fails.
pub async fn log_in(worker: &WorkerContext, user: &str) -> Token {
    let user = User::new(user.as_bytes()).unwrap();
    let before = PreviousIdentity::default();
    worker.sessions.log_in(&worker.store, before, user, unix_now()).await.unwrap()
}

/// Takes a request through the stages: the method and the target, then its fields, a line each. Returns in words how
/// far it came.
///
/// # Panics
/// If it is no request.
pub async fn stages(worker: &Rc<WorkerContext>, request: &str) -> String {
    at_stage(worker, request, async |_, _, reached| stage::words::in_words(reached)).await
}

/// What is decided about a request, in words. `peeks`: as for `explain`, without a look-up that counts.
///
/// # Panics
/// If no source answers the request.
pub async fn decision(worker: &Rc<WorkerContext>, request: &str, peeks: bool) -> String {
    with_context(worker, request, async |cx, item| {
        let rules = if peeks { LookupRules::PEEK } else { LookupRules::LIVE };
        let mut evaluation = Evaluation::new(cx, facts(cx, item, false), rules);
        let decision = evaluation.decide().await;
        if !peeks {
            evaluation.count_use();
        }
        plan::words::in_words(&decision)
    })
    .await
}

/// What a response means, in words: its status, and its fields, a line each.
///
/// # Panics
/// If no source answers the request.
pub async fn effects(
    worker: &Rc<WorkerContext>,
    request: &str,
    status: u16,
    answer: &str,
) -> String {
    with_context(worker, request, async |cx, _| {
        let status = StatusCode::from_u16(status).unwrap();
        settle::words::in_words(&Effects::read(cx, status, &fields(answer.lines())))
    })
    .await
}

/// What settling a response adds to it.
#[derive(Debug)]
pub struct SettledResponse {
    /// The cookie that begins or ends the session.
    pub cookie: Option<String>,
    /// Whether the cart was changed.
    pub has_filled_cart: bool,
}

/// Settles a response with the status 200 and these fields.
///
/// # Panics
/// If no source answers the request, or the store fails.
pub async fn settled(worker: &Rc<WorkerContext>, request: &str, answer: &str) -> SettledResponse {
    with_context(worker, request, async |cx, _| {
        let effects = Effects::read(cx, StatusCode::OK, &fields(answer.lines()));
        let SettledChanges { cookie, has_filled_cart, .. } =
            settle::settle(cx, effects).await.unwrap();
        let cookie = cookie.map(|line| line.to_str().unwrap().to_owned());
        SettledResponse { cookie, has_filled_cart }
    })
    .await
}

/// The head of a request.
fn head(request: &str) -> Parts {
    let mut lines = request.lines();
    let (method, target) = lines.next().unwrap().split_once(' ').unwrap();
    let mut head = Request::new(()).into_parts().0;
    head.method = Method::from_bytes(method.as_bytes()).unwrap();
    head.uri = target.parse().unwrap();
    head.headers = fields(lines);
    head.headers.entry("host").or_insert(HeaderValue::from_static("shop.test"));
    head
}

/// Fields, each `Name: value`.
fn fields<'l>(lines: impl IntoIterator<Item = &'l str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// Takes a request through the stages, and tells `then` how far it came.
async fn at_stage<T>(
    worker: &Rc<WorkerContext>,
    request: &str,
    then: impl AsyncFnOnce(&Rc<Client>, &VisitorTokenState, Result<StageResult<'_>, Error>) -> T,
) -> T {
    let head = Box::new(head(request));
    let client = Client::new(Peer::at(CLIENT), CLIENT, ConnectionState::new());
    let mut record = RequestRecord::of_part(&worker.telemetry, &client.state, &head.method);
    let token = VisitorTokenState::default();
    let (settings, now) = (&worker.settings, unix_now());
    let received = ReceivedRequest::of(settings, &client, head, Some(0), false, &token, now);
    let reached = stage::run(worker, &client, received, Mode::Serve, &mut record).await;
    then(&client, &token, reached).await
}

/// Takes a request through the stages, and passes what is known about it to `then`, with the item that it names.
async fn with_context<T>(
    worker: &Rc<WorkerContext>,
    request: &str,
    then: impl AsyncFnOnce(&RequestContext<'_>, Option<&Item>) -> T,
) -> T {
    at_stage(worker, request, async |client, token, reached| {
        let Ok(StageResult::Identified(identified)) = reached else { panic!("{request}") };
        let cx = identified.context(worker, client, token, RequestKind::Page);
        then(&cx, identified.item()).await
    })
    .await
}
