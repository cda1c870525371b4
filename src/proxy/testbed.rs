//! Requests that pass the stages of a worker without a socket, for tables of tests.

use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use anteroom_config::{ConfigSources, Overrides, Plan};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Token, User};
use anteroom_http::peer::Peer;
use anteroom_session::PreviousIdentity;
use tokio_util::sync::CancellationToken;

use super::connection::client::Client;
use super::connection_state::ConnectionState;
use super::context::{Mode, RequestContext, RequestKind, WorkerContext};
use super::error::Error;
use super::record::RequestRecord;
use super::stage::receive::Received;
use super::stage::{self, Reached};
use super::visitor_token::VisitorTokenState;
use crate::app::dry_run;

/// The client's address.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Runs `test` with a worker of this configuration. Its origin does not exist, and its store is empty.
pub(in crate::proxy) fn with_worker(settings: &str, test: impl AsyncFnOnce(&Rc<WorkerContext>)) {
    let text =
        format!("origin.url = \"http://127.0.0.1:9\"\norigin.hosts = [\"shop.test\"]\n{settings}");
    let file = Some(("proxy.toml".into(), text));
    let overrides = Overrides { store: Some("embedded:unused".to_owned()), ..Overrides::default() };
    let sources = ConfigSources { file, overrides, ..ConfigSources::default() };
    let (plan, _) = Plan::read(&sources).unwrap_or_else(|problems| panic!("{problems:?}"));
    dry_run::with_worker(plan, test).unwrap();
}

/// Logs a user in. Returns the session's token.
pub(in crate::proxy) async fn log_in(worker: &WorkerContext, user: &str) -> Token {
    let user = User::new(user.as_bytes()).unwrap();
    let before = PreviousIdentity::default();
    worker.sessions.log_in(&worker.store, before, user, unix_now()).await.unwrap()
}

/// The head of a request: the method and the target, then the fields, a line each.
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
pub(in crate::proxy) fn fields<'l>(lines: impl IntoIterator<Item = &'l str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

/// Takes a request through the stages, and tells `then` how far it came.
pub(in crate::proxy) async fn at_stage<T>(
    worker: &Rc<WorkerContext>,
    request: &str,
    then: impl AsyncFnOnce(&Rc<Client>, Result<Reached<'_>, Error>) -> T,
) -> T {
    let head = Box::new(head(request));
    let entry = (Arc::default(), CancellationToken::new());
    let client = Client::entering(Peer::at(CLIENT), CLIENT, ConnectionState::new(), entry, None);
    let mut record = RequestRecord::of_part(&worker.telemetry, &client.state, &head.method);
    let token = VisitorTokenState::default();
    let now = (&token, unix_now());
    let received = Received::of(&worker.settings, &client, head, (Some(0), false), now);
    let reached = stage::run(worker, &client, received, Mode::Serve, &mut record).await;
    then(&client, reached).await
}

/// Takes a request through the stages, and passes what is known about it to `then`.
///
/// # Panics
/// If no source answers the request.
pub(in crate::proxy) async fn with_context<T>(
    worker: &Rc<WorkerContext>,
    request: &str,
    then: impl AsyncFnOnce(&RequestContext<'_>) -> T,
) -> T {
    at_stage(worker, request, async |client, reached| {
        let Ok(Reached::Identified(identified)) = reached else { panic!("{request}") };
        let token = VisitorTokenState::default();
        then(&identified.context(worker, client, &token, RequestKind::Page)).await
    })
    .await
}
