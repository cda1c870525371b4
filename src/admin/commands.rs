//! What the data commands ask of the running proxy: orders and answers as JSON, over HTTP.

use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::limits::{ACCEPT_BACK_OFF, CONNECTION_TIME, CONNECTIONS_MAX, HEAD_TIME};
use crate::cache::purger::Purger;
use crate::http::bearer;
use crate::proxy::{CookieKinds, WorkerContext, cookie_report};
use crate::row::{Memo, Names};
use crate::serve::socket::Socket;
use crate::session::Sessions;
use crate::store::{AnyStore, StoreError};
use crate::telemetry::metrics::Metrics;

/// Where it is told what was counted of cookies.
pub const TOP_COOKIES: &str = "/top/cookies";
/// How long an order waits for a store that is away.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// The largest order, in bytes.
const ORDER_MAX: usize = 4 << 20;

/// What is told where an order is not carried out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
}

/// Carries out orders.
#[derive(Debug)]
pub struct Clerk {
    /// The store.
    pub store: AnyStore,
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// The names of rows.
    pub names: Names,
    /// Rows in memory, which a row that is stopped leaves.
    pub memo: Arc<Memo>,
    /// The time between two refreshes of each source's rows.
    pub every: Vec<Duration>,
    /// What purges.
    pub purger: Arc<Purger>,
    /// Where requests are explained, and none is answered.
    pub room: Rc<WorkerContext>,
    /// What cookies are.
    pub kinds: CookieKinds,
    /// What was counted of them.
    pub metrics: Arc<Metrics>,
}

/// The bearer token. It is not shown.
pub struct Token(pub Vec<u8>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Where the clerk sits who carries out orders now; a reload brings another.
#[derive(Debug)]
pub struct Post {
    clerk: RefCell<Rc<Clerk>>,
    /// Which orders of those who have it are taken over TCP, too.
    token: RefCell<Option<Token>>,
}

impl Post {
    /// The post of this clerk, with the bearer token, if there is one.
    #[must_use]
    pub fn new(clerk: Rc<Clerk>, token: Option<Token>) -> Rc<Self> {
        Rc::new(Self { clerk: RefCell::new(clerk), token: RefCell::new(token) })
    }

    /// Another clerk, and another token, for all orders that come now.
    pub fn change(&self, clerk: Rc<Clerk>, token: Option<Token>) {
        self.clerk.replace(clerk);
        self.token.replace(token);
    }

    /// Who carries out orders now.
    #[must_use]
    pub fn clerk(&self) -> Rc<Clerk> {
        Rc::clone(&self.clerk.borrow())
    }

    /// Whether a request carries the token; `None` where there is none.
    pub(super) fn admits(&self, headers: &HeaderMap) -> Option<bool> {
        self.token.borrow().as_ref().map(|token| bearer::carries(headers, &token.0))
    }
}

/// Serves the data commands until told to stop.
pub async fn serve_data(socket: Socket, post: Rc<Post>, stop: CancellationToken) {
    let listener = socket.listener().and_then(UnixListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "the socket cannot be listened on"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, place)) = accepted else {
            tokio::time::sleep(ACCEPT_BACK_OFF).await;
            continue;
        };
        if !socket.admits(&stream) {
            tracing::warn!("a data command of another user is refused");
            continue;
        }
        let clerk = post.clerk();
        tokio::task::spawn_local(async move {
            let _place = place;
            if tokio::time::timeout(CONNECTION_TIME, converse(stream, clerk)).await.is_err() {
                tracing::debug!("a data command reached its time");
            }
        });
    }
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

async fn converse(stream: UnixStream, clerk: Rc<Clerk>) {
    let service = service_fn(move |request| {
        let clerk = Rc::clone(&clerk);
        async move { Ok::<_, Infallible>(clerk.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a data command broke off");
    }
}

/// Why an order is not carried out.
pub(super) type Refused = (StatusCode, String);

impl Clerk {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        // An operator would rather wait a moment than ask again.
        let connected = tokio::time::timeout(CONNECT_PATIENCE, self.store.connected());
        if connected.await.is_err() {
            tracing::debug!("a data command finds the store away");
        }
        let done = match (head.method, head.uri.path()) {
            (Method::GET, "/rows") => self.list_rows().await.and_then(told),
            (Method::POST, "/rows/schedule") => self.order_rows(body, false).await.and_then(told),
            (Method::POST, "/rows/stop") => self.order_rows(body, true).await.and_then(told),
            (Method::POST, "/purge") => self.purge(body).await.and_then(told),
            (Method::POST, "/explain") => self.explain(body).await.and_then(told),
            (Method::POST, "/sessions/list") => self.list_sessions(body).await.and_then(told),
            (Method::POST, "/sessions/show") => self.show_sessions(body).await.and_then(told),
            (Method::POST, "/sessions/revoke") => self.revoke_sessions(body).await.and_then(told),
            (Method::POST, "/user/delete") => self.delete_user(body).await.and_then(told),
            (Method::GET, TOP_COOKIES) => told(cookie_report(&self.kinds, &self.metrics.cookies())),
            (Method::GET, "/top") => self.top(head.uri.query()).await.and_then(told),
            _ => Err((StatusCode::NOT_FOUND, "this proxy does not know that command".to_owned())),
        };
        done.unwrap_or_else(|(status, error)| {
            let refusal = serde_json::to_vec(&Refusal { error }).unwrap_or_default();
            json(status, refusal)
        })
    }
}

/// Reads an order.
pub(super) async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, Refused> {
    let read = Limited::new(body, ORDER_MAX).collect().await;
    let bytes = read.map_err(|error| bad(&error))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| bad(&error))
}

/// The order is wrong.
pub(super) fn bad(why: &impl ToString) -> Refused {
    (StatusCode::BAD_REQUEST, why.to_string())
}

/// The store could not do it.
pub(super) fn store_failed(error: &StoreError) -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn told(value: impl Serialize) -> Result<Response<Full<Bytes>>, Refused> {
    serde_json::to_vec(&value)
        .map(|bytes| json(StatusCode::OK, bytes))
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn json(status: StatusCode, text: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
