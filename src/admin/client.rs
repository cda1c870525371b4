//! The client end of the socket: a data command asks the running proxy.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::http::header::HOST;
use ::http::{HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, LocalOptions};

use super::reply::Refusal;

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
    let broken = |error: io::Error| ClientError::Broken(error.into());
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(broken)?;
    runtime.block_on(async {
        let not_running = |source| ClientError::NotRunning { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).await.map_err(not_running)?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() =
            target.parse().map_err(|error| ClientError::Broken(Box::new(error)))?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("anteroom"));
        let exchanged = tokio::time::timeout(TIMEOUT, exchange(stream, request)).await;
        exchanged.map_err(|elapsed| ClientError::Broken(elapsed.into()))?
    })
}

async fn exchange(stream: UnixStream, request: Request<Full<Bytes>>) -> Result<Bytes, ClientError> {
    let broken = |error: hyper::Error| ClientError::Broken(error.into());
    let (mut requests, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::task::spawn_local(connection);
    let response = requests.send_request(request).await.map_err(broken)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let answer = body.map_err(ClientError::Broken)?.to_bytes();
    if status == StatusCode::OK {
        return Ok(answer);
    }
    let refusal = serde_json::from_slice::<Refusal>(&answer);
    Err(ClientError::Refused(refusal.map_or_else(|_| status.to_string(), |refusal| refusal.error)))
}
