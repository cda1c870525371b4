//! The operator's listener: health and metrics, and commands with the token.
//!
//! A Host that is neither its own nor a loopback name is refused, so that a web page in an
//! operator's browser cannot read it by a name of its own (DNS rebinding).

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::commands::{AdminHandle, BYPASS, FLEET, TOP_COOKIES};
use super::limits::{ACCEPT_BACK_OFF, CONNECTION_TIME, CONNECTIONS_MAX, HEAD_TIME};
use super::status::{MISSES, STATUS};
use crate::http::host::{self, Host};
use crate::telemetry::metrics::Metrics;

/// OpenMetrics text, as Prometheus asks for it.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The text format before it.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

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

/// Serves operators until `stop`.
pub async fn serve(listener: TcpListener, state: Rc<AdminState>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((socket, place)) = accepted else {
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
            continue;
        };
        let state = Rc::clone(&state);
        tokio::task::spawn_local(async move {
            let _place = place;
            if tokio::time::timeout(CONNECTION_TIME, converse(socket, state)).await.is_err() {
                tracing::debug!("an administration connection timed out");
            }
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

async fn converse(socket: TcpStream, state: Rc<AdminState>) {
    let Ok(own) = socket.local_addr() else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let state = Rc::clone(&state);
        async move { Ok::<_, Infallible>(respond(&state, own, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(socket), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an administration connection broke");
    }
}

async fn respond(
    state: &AdminState,
    own: SocketAddr,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    if let Some(refused) = misdirected(own, &request) {
        return refused;
    }
    let is_order = matches!(
        (request.method(), request.uri().path()),
        (&Method::GET, TOP_COOKIES | FLEET | BYPASS | STATUS | MISSES)
            | (
                &Method::POST,
                "/purge"
                    | BYPASS
                    | "/explain"
                    | "/sessions/list"
                    | "/sessions/show"
                    | "/sessions/revoke"
                    | "/user/delete"
            )
    );
    let admitted = state.handle.as_ref().filter(|_| is_order).and_then(|handle| {
        let commands = |is_admitted: bool| is_admitted.then(|| handle.commands());
        handle.admits(request.headers()).map(commands)
    });
    match admitted {
        Some(Some(commands)) => commands.answer(request).await,
        Some(None) => {
            let mut response = text(StatusCode::UNAUTHORIZED, "a bearer token is required\n");
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        None => answer(state, &request),
    }
}

/// The refusal of a request for another host.
fn misdirected<B>(own: SocketAddr, request: &Request<B>) -> Option<Response<Full<Bytes>>> {
    match host::site(request.uri(), request.headers()) {
        Ok(host) if is_listener_host(&host, own) => None,
        Ok(_) => {
            Some(text(StatusCode::MISDIRECTED_REQUEST, "this listener does not serve this host\n"))
        }
        Err(_) => Some(text(StatusCode::BAD_REQUEST, "exactly one valid Host is needed\n")),
    }
}

fn answer<B>(state: &AdminState, request: &Request<B>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => readiness(state),
        "/metrics" => metrics(state, wants_classic(request.headers())),
        _ => text(StatusCode::NOT_FOUND, "available: /healthz, /readyz and /metrics\n"),
    }
}

/// Ready while requests are taken. A store that is away is reported, but does not make the proxy
/// unready: it serves visitors without the store, and other proxies cannot reach the store, either.
fn readiness(state: &AdminState) -> Response<Full<Bytes>> {
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

fn metrics(state: &AdminState, classic: bool) -> Response<Full<Bytes>> {
    let (page, kind) = match classic {
        true => (state.metrics.classic_page(), CLASSIC),
        false => (state.metrics.page(), OPEN_METRICS),
    };
    match page {
        Ok(page) => {
            let mut response = text(StatusCode::OK, page);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        }
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

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ready: bool, connected: bool) -> AdminState {
        AdminState {
            handle: None,
            metrics: Arc::default(),
            ready: Arc::new(AtomicBool::new(ready)),
            store_connected: Arc::new(AtomicBool::new(connected)),
        }
    }

    fn status(state: &AdminState, path: &str, host: &str) -> StatusCode {
        let request = Request::get(path).header("host", host).body(()).unwrap();
        let own = "127.0.0.1:9180".parse().unwrap();
        misdirected(own, &request).unwrap_or_else(|| answer(state, &request)).status()
    }

    #[test]
    fn only_its_own_names_are_answered() {
        let state = state(true, true);
        for own in ["127.0.0.1:9180", "localhost", "[::1]:9180", "LOCALHOST:1"] {
            assert_eq!(status(&state, "/healthz", own), StatusCode::OK, "{own}");
        }
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
            let request = Request::get("/metrics").header("accept", accept).body(()).unwrap();
            let response = answer(&state(true, true), &request);
            assert_eq!(response.headers()[CONTENT_TYPE], kind, "{accept}");
        }
    }

    #[test]
    fn a_store_that_is_away_is_no_reason_to_go_elsewhere() {
        assert_eq!(status(&state(true, false), "/readyz", "localhost"), StatusCode::OK);
        let draining = state(false, true);
        assert_eq!(status(&draining, "/readyz", "localhost"), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(&draining, "/healthz", "localhost"), StatusCode::OK);
    }
}
