//! The operator's listener: health and metrics, the dashboard, and commands for operators with a token.
//!
//! Each request is looked up in the table of endpoints, authenticated, and carried out by the handle, which
//! authorizes and records it. A Host that is neither the listener's own nor a loopback name is refused, so that a web
//! page in an operator's browser cannot read it by a name of its own (DNS rebinding).

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ::http::header::{ACCEPT, ALLOW, AUTHORIZATION, CONNECTION, LOCATION, RETRY_AFTER, SET_COOKIE};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use anteroom_http::bearer;
use anteroom_http::form::form_value;
use anteroom_http::host::{self, Host};
use anteroom_telemetry::metrics::Metrics;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::access::Operator;
use super::audit_subject::AuditSubject;
use super::endpoints::{self, Access, Action, Endpoint};
use super::handle::AdminHandle;
use super::limits::{ACCEPT_BACK_OFF, CONNECTIONS_MAX};
use super::reply::{AdminResponse, content, refusal, text};
use super::{connection, dashboard, login, same_origin};

/// OpenMetrics text, as Prometheus asks for it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The text format before it.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What `GET /` says without a token.
const NO_TOKEN: &str = "The dashboard needs a token: set [admin] token = { file = \"/etc/anteroom/admin-token\" } in \
                        proxy.toml, and restart or reload.\nAvailable: /healthz, /readyz and /metrics\n";
/// Why nothing but GET and HEAD is taken without a token.
const NO_COMMANDS: &str = "GET or HEAD: commands need [admin] token in proxy.toml; `anteroom purge` and the others work \
                           without, on this machine";
/// What to ask for in place of another host.
const WRONG_HOST: &str = "this listener does not serve this host: use its address, or localhost\n";
/// Why a request of another page is refused.
const OTHER_PAGE: &str = "a browser says that another page sent this request";
/// The largest form of a login, in bytes. A token has 64 KiB at most.
const FORM_MAX: usize = 256 << 10;

/// What the listener serves.
#[derive(Debug)]
pub struct AdminState {
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Set while the proxy takes requests.
    pub ready: Arc<AtomicBool>,
    /// Whether the store can be reached.
    pub store_connected: Arc<AtomicBool>,
    /// Runs the commands of requests with the token.
    pub handle: Option<Rc<AdminHandle>>,
}

/// Serves operators until `stop`, or until the listener is `left` to a successor.
pub async fn serve(
    listener: TcpListener,
    state: Rc<AdminState>,
    left: CancellationToken,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = left.cancelled() => return,
            () = stop.cancelled() => return,
        };
        let Ok((socket, place)) = accepted else {
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
            continue;
        };
        let (state, left) = (Rc::clone(&state), left.clone());
        tokio::task::spawn_local(async move {
            let _place = place;
            converse(socket, state, left).await;
        });
    }
}

/// The next connection, once there is a slot for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

/// Answers the requests of a connection. Once the listener is left, an answer is the last: the process ends before long.
async fn converse(socket: TcpStream, state: Rc<AdminState>, left: CancellationToken) {
    let Ok(own) = socket.local_addr() else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let (state, left) = (Rc::clone(&state), left.clone());
        async move {
            let mut response = respond(&state, own, request).await;
            if left.is_cancelled() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    connection::serve(TokioIo::new(socket), service).await;
}

async fn respond(state: &AdminState, own: SocketAddr, request: Request<Incoming>) -> AdminResponse {
    let (head, body) = request.into_parts();
    let host = match served_host(own, &head) {
        Ok(host) => host,
        Err((status, why)) => return text(status, why),
    };
    let has_tokens = state.handle.as_ref().is_some_and(|handle| !handle.operators().is_empty());
    let endpoint = endpoints::of_listener(&head.method, head.uri.path());
    let Some(endpoint) = endpoint.filter(|one| one.access == Access::Open || has_tokens) else {
        return unknown(&head.method, has_tokens);
    };
    let is_of_other_page = same_origin::is_of_other_page(&head.headers) && !endpoint.is_page();
    let Some(handle) = state.handle.as_ref().filter(|_| has_tokens) else {
        return match is_of_other_page {
            true => refusal(StatusCode::FORBIDDEN, OTHER_PAGE),
            false => open(state, endpoint, &head, has_tokens),
        };
    };
    if is_of_other_page {
        return handle.refuse_stranger(endpoint, (StatusCode::FORBIDDEN, OTHER_PAGE.to_owned()));
    }
    match endpoint.action {
        Action::LogIn => log_in(handle, endpoint, &head, &host, body).await,
        Action::Me
        | Action::Audit
        | Action::Events
        | Action::Log
        | Action::LogOut
        | Action::TakeOver
        | Action::Upgrade
        | Action::Reload
        | Action::Data(_) => match authenticate(handle, endpoint, &head, &host) {
            Ok(operator) => handle.carry_out(&operator, endpoint, &head, body).await,
            Err(why) => refuse(handle, endpoint, why),
        },
        Action::Health
        | Action::Readiness
        | Action::Metrics
        | Action::Page
        | Action::DashboardFile => open(state, endpoint, &head, has_tokens),
    }
}

/// Why a request is refused before it has an operator.
enum AuthenticationFailure {
    /// Its token, or its session, is missing or not known.
    Unknown,
    /// A browser sent an operator's cookie with an action that does not show that it comes from the dashboard.
    OfOtherPage(Operator),
}

/// The operator who sends a request, by a bearer token or by the cookie of a session. A browser sends the cookie with
/// requests of other pages, too, so that an action with it must show that it comes from the dashboard.
fn authenticate(
    handle: &AdminHandle,
    endpoint: &Endpoint,
    head: &Parts,
    host: &Host,
) -> Result<Operator, AuthenticationFailure> {
    if head.headers.contains_key(AUTHORIZATION) {
        let operators = handle.operators();
        let operator = bearer::token(&head.headers).and_then(|token| operators.with_token(token));
        return operator.cloned().ok_or(AuthenticationFailure::Unknown);
    }
    let now = Instant::now();
    let session = login::tokens(&head.headers)
        .find_map(|token| handle.sessions.borrow_mut().operator(token, now));
    let operator = session.ok_or(AuthenticationFailure::Unknown)?;
    let is_of_dashboard =
        same_origin::is_of(&head.headers, host) && same_origin::has_dashboard_field(&head.headers);
    if endpoint.is_action() && !is_of_dashboard {
        return Err(AuthenticationFailure::OfOtherPage(operator));
    }
    Ok(operator)
}

fn refuse(
    handle: &AdminHandle,
    endpoint: &'static Endpoint,
    why: AuthenticationFailure,
) -> AdminResponse {
    match why {
        AuthenticationFailure::Unknown => {
            let why = "a known bearer token, or the cookie of a login, is required".to_owned();
            handle.refuse_stranger(endpoint, (StatusCode::UNAUTHORIZED, why))
        }
        AuthenticationFailure::OfOtherPage(operator) => {
            let why =
                "an action with a cookie needs X-Anteroom-Admin: 1 and the Origin of this listener";
            handle.refuse(&operator, endpoint, (StatusCode::FORBIDDEN, why.to_owned()))
        }
    }
}

/// Begins a session of the dashboard for the bearer of the token in a form.
async fn log_in(
    handle: &AdminHandle,
    endpoint: &'static Endpoint,
    head: &Parts,
    host: &Host,
    body: Incoming,
) -> AdminResponse {
    let refuse = |status, why: &str| handle.refuse_stranger(endpoint, (status, why.to_owned()));
    if !same_origin::is_of(&head.headers, host) {
        return refuse(StatusCode::FORBIDDEN, "a login needs the Origin of this listener");
    }
    let Ok(form) = Limited::new(body, FORM_MAX).collect().await else {
        return refuse(StatusCode::BAD_REQUEST, "the form is incomplete, or too large");
    };
    // From here on nothing waits, so that the bound holds for logins at the same time, too.
    if let Some(wait) = handle.wrong_tokens.borrow_mut().wait(Instant::now()) {
        let mut response = refuse(
            StatusCode::TOO_MANY_REQUESTS,
            "too many wrong tokens: wait, or use a bearer token",
        );
        let seconds = HeaderValue::from(wait.as_secs() + 1);
        response.headers_mut().insert(RETRY_AFTER, seconds);
        return response;
    }
    let token = form_value(&form.to_bytes(), "token").unwrap_or_default();
    let (now, operator) = (Instant::now(), handle.operators().with_token(&token).cloned());
    let Some(operator) = operator else {
        handle.wrong_tokens.borrow_mut().count(now);
        return refuse(StatusCode::UNAUTHORIZED, "the token is not known");
    };
    let begun = handle.sessions.borrow_mut().begin(&operator, now);
    let cookie = begun.ok().and_then(|token| login::cookie(&token));
    let Some(cookie) = cookie else {
        let why = "the system provides no random bytes".to_owned();
        return handle.refuse(&operator, endpoint, (StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let mut response = text(StatusCode::SEE_OTHER, "logged in\n");
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/"));
    response.headers_mut().insert(SET_COOKIE, cookie);
    let entry = handle.audit().begin(&operator.name, endpoint.name(), AuditSubject::default());
    entry.end(response.status().as_u16());
    response
}

/// Answers what needs no operator.
fn open(state: &AdminState, endpoint: &Endpoint, head: &Parts, has_tokens: bool) -> AdminResponse {
    match endpoint.action {
        Action::Health => text(StatusCode::OK, "ok\n"),
        Action::Readiness => readiness(state),
        Action::Metrics => metrics(state, wants_classic(&head.headers)),
        Action::Page if has_tokens => dashboard::page(&head.headers),
        Action::Page => text(StatusCode::OK, NO_TOKEN),
        Action::DashboardFile => dashboard::file(&head.headers, head.uri.path())
            .unwrap_or_else(|| unknown(&head.method, has_tokens)),
        Action::LogIn
        | Action::LogOut
        | Action::Me
        | Action::Audit
        | Action::Events
        | Action::Log
        | Action::TakeOver
        | Action::Upgrade
        | Action::Reload
        | Action::Data(_) => unknown(&head.method, has_tokens),
    }
}

/// The host that a request is for, if it is the listener's own.
fn served_host(own: SocketAddr, head: &Parts) -> Result<Host, (StatusCode, &'static str)> {
    match host::site(&head.uri, &head.headers) {
        Ok(host) if is_listener_host(&host, own) => Ok(host),
        Ok(_) => Err((StatusCode::MISDIRECTED_REQUEST, WRONG_HOST)),
        Err(_) => Err((StatusCode::BAD_REQUEST, "exactly one valid Host is needed\n")),
    }
}

/// There is no such endpoint.
fn unknown(method: &Method, has_tokens: bool) -> AdminResponse {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let why = if has_tokens { "GET or HEAD" } else { NO_COMMANDS };
        let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, why);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match has_tokens {
        true => refusal(StatusCode::NOT_FOUND, "there is no such endpoint"),
        false => text(StatusCode::NOT_FOUND, "available: /healthz, /readyz and /metrics\n"),
    }
}

/// Ready while requests are taken. A store that is away is reported, but does not make the proxy
/// unready: it serves visitors without the store, and other proxies cannot reach the store, either.
fn readiness(state: &AdminState) -> AdminResponse {
    if !state.ready.load(Ordering::Acquire) {
        return text(StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n");
    }
    if state.store_connected.load(Ordering::Relaxed) {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::OK, "ready; the store is away\n")
    }
}

/// Whether the client reads plain text, and does not say that it reads OpenMetrics.
fn wants_classic(headers: &HeaderMap) -> bool {
    let accepts = |kind: &str| {
        let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.contains(kind))
    };
    accepts("text/plain") && !accepts("application/openmetrics-text")
}

fn metrics(state: &AdminState, classic: bool) -> AdminResponse {
    let (page, kind) = match classic {
        true => (state.metrics.classic_page(), CLASSIC),
        false => (state.metrics.page(), OPEN_METRICS),
    };
    match page {
        Ok(page) => content(StatusCode::OK, kind, page),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n")
        }
    }
}

fn is_listener_host(host: &Host, own: SocketAddr) -> bool {
    let name = host.name();
    if name == "localhost" {
        return true;
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || address == own.ip())
}

#[cfg(test)]
mod tests {
    use ::http::header::CONTENT_TYPE;

    use super::*;

    fn state(ready: bool, connected: bool) -> AdminState {
        AdminState {
            handle: None,
            metrics: Arc::default(),
            ready: Arc::new(AtomicBool::new(ready)),
            store_connected: Arc::new(AtomicBool::new(connected)),
        }
    }

    fn head(path: &str, name: &str, value: &str) -> Parts {
        Request::get(path).header(name, value).body(()).unwrap().into_parts().0
    }

    fn answer(state: &AdminState, head: &Parts) -> AdminResponse {
        let endpoint = endpoints::of_listener(&head.method, head.uri.path()).unwrap();
        open(state, endpoint, head, false)
    }

    fn status(state: &AdminState, path: &str, host: &str) -> StatusCode {
        let own = "127.0.0.1:9180".parse().unwrap();
        let head = head(path, "host", host);
        served_host(own, &head).map_or_else(|(status, _)| status, |_| answer(state, &head).status())
    }

    #[test]
    fn only_its_own_names_are_answered() {
        let state = state(true, true);
        for own in ["127.0.0.1:9180", "localhost", "[::1]:9180", "LOCALHOST:1"] {
            assert_eq!(status(&state, "/healthz", own), StatusCode::OK, "{own}");
        }
        let own = "127.0.0.1:9180".parse().unwrap();
        let said = served_host(own, &head("/healthz", "host", "web-1")).unwrap_err().1;
        assert!(said.contains("use its address, or localhost"), "{said}");
        for other in ["evil.test", "127.0.0.1.evil.test", "192.0.2.1"] {
            let refused = StatusCode::MISDIRECTED_REQUEST;
            assert_eq!(status(&state, "/metrics", other), refused, "{other}");
        }
    }

    #[test]
    fn metrics_are_told_in_the_format_that_is_asked_for() {
        for (accept, kind) in [
            ("*/*", OPEN_METRICS),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", CLASSIC),
            ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", OPEN_METRICS),
        ] {
            let response = answer(&state(true, true), &head("/metrics", "accept", accept));
            assert_eq!(response.headers()[CONTENT_TYPE], kind, "{accept}");
        }
    }

    #[tokio::test]
    async fn a_command_without_tokens_leads_to_the_key() {
        let body = |has_tokens: bool| async move {
            let response = unknown(&Method::POST, has_tokens);
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        assert!(body(false).await.contains("[admin] token"));
        assert!(!body(true).await.contains("[admin] token"));
    }

    #[test]
    fn a_store_that_is_away_is_no_reason_to_go_elsewhere() {
        assert_eq!(status(&state(true, false), "/readyz", "localhost"), StatusCode::OK);
        let draining = state(false, true);
        assert_eq!(status(&draining, "/readyz", "localhost"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(&draining, "/healthz", "localhost"), StatusCode::OK);
    }
}
