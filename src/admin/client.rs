//! The client end of the socket: a data command asks the running proxy.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::http::header::{CONNECTION, HOST, UPGRADE};
use ::http::{HeaderValue, Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::signal::unix::{SignalKind, signal};

use super::endpoints::TAKE_OVER;
use super::reply::Refusal;
use super::take_over::PROTOCOL;

/// How long the running proxy may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer, in bytes.
const ANSWER_MAX: usize = 16 << 20;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No proxy listens.
    #[error("no running proxy answers at {}: {source}; start it, or set its socket with --socket", .path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The proxy belongs to another user.
    #[error("the socket {} is for the user of the running proxy and for root only: {source}; run the command as one of \
             them, such as with sudo", .path.display())]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The proxy refused.
    #[error("{0}")]
    Refused(String),
    /// The connection broke, or the answer took too long.
    #[error("the running proxy did not answer: {0}")]
    Broken(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends a command to the proxy behind the socket at `path`, and returns its answer. Blocks; not
/// for use inside a runtime.
///
/// # Errors
/// See [`ClientError`].
pub fn send_command(
    path: &Path,
    method: Method,
    target: &str,
    body: Vec<u8>,
) -> Result<Bytes, ClientError> {
    runtime()?.block_on(async {
        let stream = connected(path).await?;
        let request = request(method, target, body)?;
        let exchanged = tokio::time::timeout(TIMEOUT, exchange(stream, request)).await;
        exchanged.map_err(|elapsed| ClientError::Broken(elapsed.into()))?
    })
}

/// What ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The proxy ended, or drains.
    Proxy,
    /// The reader has enough.
    Reader,
    /// INT or TERM came.
    Signal,
}

/// Sends a command, reads its answer, which is a stream of lines, and calls `each` with some whole lines at a time, until
/// it breaks, or INT or TERM comes, or the proxy ends. Blocks; not for use inside a runtime.
///
/// # Errors
/// See [`ClientError`].
pub fn stream_lines(
    path: &Path,
    method: Method,
    target: &str,
    body: Vec<u8>,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<StreamEnd, ClientError> {
    runtime()?.block_on(async {
        let broken = |error: io::Error| ClientError::Broken(error.into());
        let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
        tokio::select! {
            end = read_lines(path, request(method, target, body)?, &mut each) => end,
            _ = interrupt.recv() => Ok(StreamEnd::Signal),
            _ = terminate.recv() => Ok(StreamEnd::Signal),
        }
    })
}

/// Asks the proxy behind the socket at `path` to be taken over; the connection is for the messages of the take-over.
///
/// # Errors
/// See [`ClientError`].
pub async fn begin_take_over(path: &Path) -> Result<UnixStream, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.into());
    let mut asks = request(Method::POST, TAKE_OVER, Vec::new())?;
    asks.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    asks.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    let stream = connected(path).await?;
    let (mut requests, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::task::spawn_local(connection.with_upgrades());
    let answer = tokio::time::timeout(TIMEOUT, requests.send_request(asks)).await;
    let answer = answer.map_err(|elapsed| ClientError::Broken(elapsed.into()))?.map_err(broken)?;
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        StatusCode::NOT_FOUND => {
            let why = "the running proxy is of a version that knows no take-over: restart it";
            return Err(ClientError::Refused(why.to_owned()));
        }
        status => {
            let refused = whole(answer).await.err();
            return Err(refused.unwrap_or_else(|| ClientError::Refused(status.to_string())));
        }
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(broken)?;
    match upgraded.downcast::<TokioIo<UnixStream>>() {
        Ok(parts) if parts.read_buf.is_empty() => Ok(parts.io.into_inner()),
        Ok(_) | Err(_) => Err(ClientError::Broken("it spoke before it was asked".into())),
    }
}

async fn read_lines(
    path: &Path,
    command: Request<Full<Bytes>>,
    each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<StreamEnd, ClientError> {
    let stream = connected(path).await?;
    let begun = tokio::time::timeout(TIMEOUT, send(stream, command));
    let response = begun.await.map_err(|elapsed| ClientError::Broken(elapsed.into()))??;
    if response.status() != StatusCode::OK {
        return Err(whole(response)
            .await
            .err()
            .unwrap_or_else(|| ClientError::Refused(String::new())));
    }
    let mut body = response.into_body();
    let mut unread = Vec::new();
    // A body that breaks off is that of a proxy that has ended, too.
    while let Some(Ok(frame)) = body.frame().await {
        let Some(data) = frame.data_ref() else { continue };
        if unread.len() + data.len() > ANSWER_MAX {
            return Err(ClientError::Broken("a line is too long".into()));
        }
        unread.extend_from_slice(data);
        let Some(end) = unread.iter().rposition(|byte| *byte == b'\n') else { continue };
        if each(&unread[..=end]).is_break() {
            return Ok(StreamEnd::Reader);
        }
        unread.drain(..=end);
    }
    Ok(StreamEnd::Proxy)
}

fn runtime() -> Result<LocalRuntime, ClientError> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    runtime.map_err(|error| ClientError::Broken(error.into()))
}

async fn connected(path: &Path) -> Result<UnixStream, ClientError> {
    UnixStream::connect(path).await.map_err(|source| unconnected(path.to_owned(), source))
}

fn unconnected(path: PathBuf, source: io::Error) -> ClientError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ClientError::OtherUser { path, source },
        _ => ClientError::NotRunning { path, source },
    }
}

fn request(
    method: Method,
    target: &str,
    body: Vec<u8>,
) -> Result<Request<Full<Bytes>>, ClientError> {
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(|error| ClientError::Broken(Box::new(error)))?;
    request.headers_mut().insert(HOST, HeaderValue::from_static("anteroom"));
    Ok(request)
}

async fn send(
    stream: UnixStream,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.into());
    let (mut requests, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::task::spawn_local(connection);
    requests.send_request(request).await.map_err(broken)
}

async fn exchange(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<Bytes, ClientError> {
    whole(send(stream, request).await?).await
}

/// The answer, or the refusal that it is.
async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let answer = body.map_err(ClientError::Broken)?.to_bytes();
    if status == StatusCode::OK {
        return Ok(answer);
    }
    let refusal = serde_json::from_slice::<Refusal>(&answer);
    Err(ClientError::Refused(refusal.map_or_else(|_| status.to_string(), |refusal| refusal.error)))
}
