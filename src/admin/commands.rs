//! The data commands of the running proxy: JSON over HTTP.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::CONTENT_TYPE;
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::latest_backup::{BACKUP, LatestBackup};
use super::limits::{ACCEPT_BACK_OFF, CONNECTION_TIME, CONNECTIONS_MAX, HEAD_TIME};
use super::status::{MISSES, STATUS, StatusParts};
use crate::cache::purger::Purger;
use crate::http::bearer;
use crate::proxy::{CookieKinds, WorkerContext, cookie_report};
use crate::row::{RowNames, SharedRows};
use crate::serve::socket::Socket;
use crate::session::Sessions;
use crate::store::fleet::{Fleet, ProxyEntry};
use crate::store::{AnyStore, StoreError};
use crate::task::MoveProgress;
use crate::telemetry::metrics::Metrics;

/// The path of the list of proxies.
pub const FLEET: &str = "/fleet";
/// The path of the move of the store.
pub const MOVE: &str = "/store/migrate";
/// The path of the cookie counts.
pub const TOP_COOKIES: &str = "/top/cookies";
/// How long a command waits for a store that is away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest command, in bytes.
const COMMAND_MAX: usize = 4 << 20;

/// The answer to a command that failed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) error: String,
}

/// Runs commands, under the current configuration.
#[derive(Debug)]
pub struct Commands {
    /// The store.
    pub store: AnyStore,
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// The names of rows.
    pub names: RowNames,
    /// What the threads share of rows.
    pub rows: Arc<SharedRows>,
    /// The refresh interval of each source's rows.
    pub every: Vec<Duration>,
    /// What purges.
    pub purger: Arc<Purger>,
    /// For explaining requests, without answering them.
    pub worker: Rc<WorkerContext>,
    /// The kinds of cookies.
    pub kinds: CookieKinds,
    /// The counters of cookies.
    pub metrics: Arc<Metrics>,
    /// What is read for the figures.
    pub status_parts: StatusParts,
    /// What this process knows of the other proxies on the store.
    pub fleet: Arc<Fleet>,
    /// The latest backup of the store.
    pub backup: Arc<LatestBackup>,
    /// What it says about itself.
    pub entry: ProxyEntry,
    /// Where the store would be moved, in words.
    pub move_target: Option<String>,
    /// What the configuration needs then, as a line of it.
    pub move_advice: Option<String>,
    /// What is known of a move by this process.
    pub moving: Arc<MoveProgress>,
    /// The token that admits some commands over TCP, too.
    pub token: Option<AdminToken>,
}

/// The bearer token. It is never printed.
pub struct AdminToken(pub Vec<u8>);

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The current commands. A reload replaces them.
#[derive(Debug)]
pub struct AdminHandle(RefCell<Rc<Commands>>);

impl AdminHandle {
    /// The handle of these commands.
    #[must_use]
    pub fn new(commands: Rc<Commands>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(commands)))
    }

    /// Further commands run on `commands`.
    pub fn replace(&self, commands: Rc<Commands>) {
        self.0.replace(commands);
    }

    /// The current commands.
    #[must_use]
    pub fn commands(&self) -> Rc<Commands> {
        Rc::clone(&self.0.borrow())
    }

    /// Whether a request carries the token; `None` if none is configured.
    pub(super) fn admits(&self, headers: &HeaderMap) -> Option<bool> {
        self.0.borrow().token.as_ref().map(|token| bearer::carries(headers, &token.0))
    }
}

/// Serves the data commands until `stop`.
pub async fn serve_data(socket: Socket, handle: Rc<AdminHandle>, stop: CancellationToken) {
    let listener = socket.listener().and_then(UnixListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::warn!(%error, "cannot listen on the socket"),
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
            tracing::warn!("refused a data command of another user");
            continue;
        }
        let commands = handle.commands();
        tokio::task::spawn_local(async move {
            let _place = place;
            let streams = Cell::new(false);
            tokio::select! {
                () = converse(stream, commands, &streams) => {}
                () = time_is_up(&streams) => tracing::debug!("a data command timed out"),
            }
        });
    }
}

/// The next connection, once there is a slot for it.
async fn accept(
    listener: &UnixListener,
    places: &Arc<Semaphore>,
) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

/// Waits until a connection has had its time. One that streams has no end: its client, or the drain, ends it.
async fn time_is_up(streams: &Cell<bool>) {
    tokio::time::sleep(CONNECTION_TIME).await;
    if streams.get() {
        std::future::pending().await
    }
}

/// Answers commands, and says in `streams` whether the last answer is a stream.
async fn converse(stream: UnixStream, commands: Rc<Commands>, streams: &Cell<bool>) {
    let service = service_fn(move |request| {
        let commands = Rc::clone(&commands);
        async move {
            let response = commands.answer_or_stream(request).await;
            streams.set(response.body().size_hint().exact().is_none());
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "the connection of a data command broke");
    }
}

/// Why a command failed.
pub(super) type CommandRefusal = (StatusCode, String);

impl Commands {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        if let Some(reply) = self.figures(&head) {
            return reply;
        }
        // For an operator a short wait is better than an error.
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, self.store.connected());
        if connected.await.is_err() {
            tracing::debug!("a data command found the store away");
        }
        let done = match (head.method, head.uri.path()) {
            (Method::GET, "/rows") => self.list_rows().await.and_then(json_reply),
            (Method::POST, "/rows/schedule") => {
                self.change_rows(body, false).await.and_then(json_reply)
            }
            (Method::POST, "/rows/stop") => self.change_rows(body, true).await.and_then(json_reply),
            (Method::POST, "/purge") => self.purge(body).await.and_then(json_reply),
            (Method::POST, "/explain") => self.explain(body).await.and_then(json_reply),
            (Method::POST, "/sessions/list") => self.list_sessions(body).await.and_then(json_reply),
            (Method::POST, "/sessions/show") => self.show_sessions(body).await.and_then(json_reply),
            (Method::POST, "/sessions/revoke") => {
                self.revoke_sessions(body).await.and_then(json_reply)
            }
            (Method::POST, "/user/delete") => self.delete_user(body).await.and_then(json_reply),
            (Method::GET, TOP_COOKIES) => {
                json_reply(cookie_report(&self.kinds, &self.metrics.cookies()))
            }
            (Method::GET, MOVE) => json_reply(self.moving.report()),
            (Method::POST, MOVE) => self.move_store(body).await.and_then(json_reply),
            (Method::GET, FLEET) => self.list_fleet().await.and_then(json_reply),
            (Method::POST, BACKUP) => self.begin_backup(body).await.and_then(json_reply),
            (Method::GET, BACKUP) => json_reply(self.backup_state()),
            (Method::GET, "/top") => self.top(head.uri.query()).await.and_then(json_reply),
            _ => Err((StatusCode::NOT_FOUND, "this proxy does not know this command".to_owned())),
        };
        done.unwrap_or_else(refused)
    }
}

impl Commands {
    /// The answer to a command that reads the process alone, and does not wait for a store that is away.
    fn figures(&self, head: &Parts) -> Option<Response<Full<Bytes>>> {
        if head.method != Method::GET {
            return None;
        }
        let done = match head.uri.path() {
            STATUS => json_reply(self.status()),
            MISSES => json_reply(self.misses()),
            _ => return None,
        };
        Some(done.unwrap_or_else(refused))
    }
}

pub(super) fn refused((status, error): CommandRefusal) -> Response<Full<Bytes>> {
    json(status, serde_json::to_vec(&Refusal { error }).unwrap_or_default())
}

/// Reads a command.
pub(super) async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, CommandRefusal> {
    let read = Limited::new(body, COMMAND_MAX).collect().await;
    let bytes = read.map_err(|error| bad(&error))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| bad(&error))
}

/// The command is invalid.
pub(super) fn bad(why: &impl ToString) -> CommandRefusal {
    (StatusCode::BAD_REQUEST, why.to_string())
}

/// The store failed.
pub(super) fn store_failed(error: &StoreError) -> CommandRefusal {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn json_reply(value: impl Serialize) -> Result<Response<Full<Bytes>>, CommandRefusal> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_its_time_unless_it_streams() {
        let has_ended = async |streams: bool| {
            let streams = Cell::new(streams);
            tokio::time::timeout(CONNECTION_TIME * 100, time_is_up(&streams)).await.is_ok()
        };
        assert!(has_ended(false).await);
        assert!(!has_ended(true).await);
    }
}
