//! What carries a request: an HTTP/1.1 connection of its own, or a stream on a shared HTTP/2 connection.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use ::http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use ::http::uri::{Authority, Parts, PathAndQuery, Scheme};
use ::http::{HeaderMap, Request, Response, Uri};
use futures_util::future::Either;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::http1::{DirectConnection, IdleState};
use super::http2_pool::OriginStream;
use super::interim::pass_to_hyper;
use super::link::OriginLink;
use super::meter::Allowance;
use super::progress::Uploads;
use super::{OriginError, UploadBody};

/// An HTTP/1.1 connection that is free for a request.
#[derive(Debug)]
pub(super) enum Http1 {
    /// Carries requests without a body. PERF: boxed, because it moves through the pool and the response.
    Direct(Box<DirectConnection>),
    /// Carries any request.
    Task(TaskConnection),
}

impl Http1 {
    /// The state of an idle connection.
    pub(super) fn idle_state(&mut self) -> IdleState {
        match self {
            Self::Direct(direct) => direct.idle_state(),
            Self::Task(task) if task.requests.is_closed() => IdleState::Closed,
            Self::Task(task) if task.requests.is_ready() => IdleState::Open,
            Self::Task(_) => IdleState::Busy,
        }
    }

    /// Whether another request may follow the response that has ended.
    pub(super) fn after_response(&self) -> IdleState {
        match self {
            Self::Direct(direct) => direct.after_response(),
            Self::Task(task) if task.requests.is_closed() => IdleState::Closed,
            Self::Task(_) => IdleState::Open,
        }
    }

    /// Whether it is idle in the pool from now on.
    pub(super) fn rests(&self, is_idle: bool) {
        if let Self::Task(task) = self {
            task.resting.set(is_idle);
        }
    }
}

/// A connection that a task of hyper's client drives.
#[derive(Debug)]
pub(super) struct TaskConnection {
    pub(super) requests: http1::SendRequest<UploadBody>,
    /// Whether it is idle in the pool. Whatever arrives on it then is unsolicited.
    pub(super) resting: Rc<Cell<bool>>,
    /// How much may be read from it.
    pub(super) allowance: Allowance,
    /// The uploads sent on it.
    pub(super) uploads: Rc<Uploads>,
}

impl Drop for TaskConnection {
    fn drop(&mut self) {
        self.uploads.answer_is_over();
    }
}

/// What carries a request.
#[derive(Debug)]
pub(super) enum Sender {
    Direct(Box<DirectConnection>),
    Hyper(HyperSender),
}

/// What carries a request by hyper's client.
#[derive(Debug)]
pub(super) enum HyperSender {
    Task(TaskConnection),
    Stream(OriginStream),
}

impl From<Http1> for Sender {
    fn from(connection: Http1) -> Self {
        match connection {
            Http1::Direct(direct) => Self::Direct(direct),
            Http1::Task(task) => Self::Hyper(HyperSender::Task(task)),
        }
    }
}

impl From<OriginStream> for Sender {
    fn from(stream: OriginStream) -> Self {
        Self::Hyper(HyperSender::Stream(stream))
    }
}

impl Sender {
    /// A new HTTP/1.1 connection.
    pub(super) fn http1(link: OriginLink, fields_max: usize) -> Self {
        Self::Direct(Box::new(DirectConnection::new(link, fields_max)))
    }

    /// The HTTP/1.1 connection that may be used again.
    pub(super) fn into_http1(self) -> Option<Http1> {
        match self {
            Self::Direct(direct) => Some(Http1::Direct(direct)),
            Self::Hyper(HyperSender::Task(task)) => Some(Http1::Task(task)),
            Self::Hyper(HyperSender::Stream(_)) => None,
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Hyper(hyper) if hyper.is_shared())
    }

    /// The response has begun.
    pub(super) fn answered(&self) {
        if let Self::Hyper(HyperSender::Task(task)) = self {
            task.allowance.body();
        }
    }

    /// The origin has ended its side, cleanly or not.
    pub(super) fn over(&self) {
        if let Self::Hyper(hyper) = self {
            hyper.over();
        }
    }

    /// A request timed out or broke here: no further request follows on this connection.
    pub(super) fn doubt(&self) {
        if let Self::Hyper(hyper) = self {
            hyper.doubt();
        }
    }
}

impl HyperSender {
    /// Sends a request and returns the future of its response's head.
    pub(super) fn send(
        &mut self,
        mut request: Request<UploadBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<UploadBody>>>> + use<>
    {
        pass_to_hyper(&mut request);
        match self {
            Self::Task(task) => {
                task.allowance.heads();
                if let UploadBody::Upload(upload) = request.body() {
                    task.uploads.begin(upload.progress());
                }
                Either::Left(task.requests.try_send_request(request))
            }
            Self::Stream(stream) => Either::Right(stream.send(request)),
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// The origin has ended its side, cleanly or not.
    pub(super) fn over(&self) {
        match self {
            Self::Task(task) => task.uploads.answer_is_over(),
            Self::Stream(stream) => stream.over(),
        }
    }

    /// A request timed out or broke here: no further request follows on this connection.
    pub(super) fn doubt(&self) {
        if let Self::Stream(stream) = self {
            stream.doubt();
        }
    }
}

/// A request in the form of HTTP/2 (RFC 9113 §8.2.2, §8.3.1): the Host moves to `:authority`, and
/// connection-specific fields are removed. `TE: trailers` may stay, and so may cookies in one line.
///
/// # Errors
/// If the Host is not a valid authority.
pub(super) fn to_http2(
    request: &mut Request<UploadBody>,
    over_tls: bool,
) -> Result<(), OriginError> {
    let no_host = OriginError::Unsendable("its Host is no authority");
    let Some(host) = request.headers_mut().remove(HOST) else { return Err(no_host) };
    let Ok(authority) = Authority::try_from(host.as_bytes()) else { return Err(no_host) };
    strip(request.headers_mut());
    let mut parts = Parts::default();
    parts.scheme = Some(if over_tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    let path = request.uri().path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    *request.uri_mut() = Uri::from_parts(parts)
        .map_err(|_| OriginError::Unsendable("its target is none for HTTP/2"))?;
    *request.version_mut() = ::http::Version::HTTP_2;
    Ok(())
}

fn strip(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(name);
    }
}
