//! A receiver that is not an origin, of abandoned carts or of traces: how a request reaches it, and why it was not
//! taken.
//!
//! Which failures are for good, and what waits meanwhile, is for the tasks to say.

use std::rc::Rc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use ::http::{HeaderValue, Method, Request, StatusCode, Uri};
use anteroom_http::clock::unix_now;
use anteroom_http::retry_after;
use bytes::Bytes;

use anteroom_origin::{
    ConnectionReuse, OriginError, OriginResponse, ServerConnections, UploadBody,
};

/// How long a receiver may take to answer, from connecting. It is OTLP's default, too.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer is read, so that its connection can be reused. A longer one closes it.
const ANSWER_MAX: usize = 16 << 10;
/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// A receiver, for one thread.
pub struct Receiver {
    /// The connections to it.
    pub connections: Rc<ServerConnections>,
    /// Its Host, which is also its name in the log.
    pub host: HeaderValue,
    /// Path and query. They may hold a key.
    pub target: Uri,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("host", &self.host).finish_non_exhaustive()
    }
}

/// The head of an answer, whose body is still to be read.
pub(super) struct ReceiverAnswer {
    /// The status.
    pub status: StatusCode,
    /// The pause that the receiver requested.
    pub retry_after: Option<Duration>,
    body: OriginResponse,
}

/// Why a receiver did not take what was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiverError {
    /// It answered something else than 2xx, and may have requested a pause.
    #[error("the answer was {0}")]
    Status(StatusCode, Option<Duration>),
    /// It was reached, and did not answer in time.
    #[error("no answer within {TIMEOUT:?}")]
    TooLate,
    /// No connection within its own, shorter, timeout.
    #[error("no connection in time")]
    ConnectTimedOut,
    /// No connection: refused, unreachable, or no such name.
    #[error("no connection: {0}")]
    Unreached(std::io::Error),
    /// Its certificate is not trusted, or it does not speak TLS.
    #[error("no TLS: {0}")]
    NoTls(std::io::Error),
    /// It was reached, and its answer cannot be read.
    #[error("the connection broke, or the answer is malformed")]
    Broken,
}

impl From<OriginError> for ReceiverError {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::Connect(error) => Self::Unreached(error),
            OriginError::ConnectTimedOut => Self::ConnectTimedOut,
            OriginError::Tls(error) => Self::NoTls(error),
            error if error.timed_out() => Self::TooLate,
            _ => Self::Broken,
        }
    }
}

impl ReceiverError {
    /// Whether the request may have reached the receiver.
    pub(super) fn may_have_reached(&self) -> bool {
        match self {
            Self::ConnectTimedOut | Self::Unreached(_) | Self::NoTls(_) => false,
            Self::Status(..) | Self::TooLate | Self::Broken => true,
        }
    }

    /// The pause that the receiver requested, up to a bound.
    pub(super) fn requested_pause(&self, longest: Duration) -> Duration {
        match self {
            Self::Status(_, Some(pause)) => (*pause).min(longest),
            _ => Duration::ZERO,
        }
    }
}

impl Receiver {
    /// Its name in the log.
    pub(super) fn name(&self) -> &str {
        self.host.to_str().unwrap_or_default()
    }

    /// A request that brings it a JSON document.
    pub(super) fn request(&self, user_agent: &'static str, json: Bytes) -> Request<UploadBody> {
        let mut request = Request::new(UploadBody::Ours(json));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static(user_agent));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request
    }

    /// Sends a request, and waits for the head of its answer. The caller has the timeout.
    pub(super) async fn send(
        &self,
        request: Request<UploadBody>,
    ) -> Result<ReceiverAnswer, ReceiverError> {
        let body = self.connections.send(request, ConnectionReuse::Pool(None)).await?;
        let status = body.response.status();
        let retry_after = retry_after::wanted(body.response.headers(), unix_now() as u64);
        Ok(ReceiverAnswer { status, retry_after, body })
    }
}

impl ReceiverAnswer {
    /// The beginning of the body.
    pub(super) async fn read(self) -> Vec<u8> {
        let (mut body, mut read) = (self.body.response.into_body(), Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            let part = frame.data_ref().map_or(&[][..], |part| part);
            if read.len() + part.len() > ANSWER_MAX {
                break;
            }
            read.extend_from_slice(part);
        }
        read
    }
}

/// The pause after some failures in a row. It doubles each time, and is spread, so that several proxies do not try
/// at the same time.
pub(super) fn back_off(in_a_row: u32, longest: Duration) -> Duration {
    let pause = (FIRST_PAUSE * (1 << in_a_row.min(8))).min(longest);
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_failure_says_whether_the_receiver_was_reached() {
        let refused = || Error::from(ErrorKind::ConnectionRefused);
        for (error, may_have_reached, says) in [
            (OriginError::Connect(refused()), false, "no connection: connection refused"),
            (OriginError::Tls(refused()), false, "no TLS: connection refused"),
            (OriginError::ConnectTimedOut, false, "no connection in time"),
            (OriginError::FirstByteTimedOut, true, "no answer within 10s"),
            (OriginError::BodyTimedOut, true, "no answer within 10s"),
            (OriginError::CutOff, true, "the connection broke, or the answer is malformed"),
        ] {
            let error = ReceiverError::from(error);
            assert_eq!(error.may_have_reached(), may_have_reached, "{error}");
            assert_eq!(error.to_string(), says);
        }
    }

    #[test]
    fn a_receiver_requests_a_bounded_pause() {
        let longest = Duration::from_secs(300);
        let with = |pause| ReceiverError::Status(StatusCode::TOO_MANY_REQUESTS, pause);
        assert_eq!(with(Some(Duration::MAX)).requested_pause(longest), longest);
        assert_eq!(with(Some(FIRST_PAUSE)).requested_pause(longest), FIRST_PAUSE);
        assert_eq!(with(None).requested_pause(longest), Duration::ZERO);
        assert_eq!(ReceiverError::TooLate.requested_pause(longest), Duration::ZERO);
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        let longest = Duration::from_secs(30);
        for (in_a_row, most) in [(0, 1), (1, 2), (4, 16), (5, 30), (u32::MAX, 30)] {
            let most = Duration::from_secs(most);
            assert!((most / 2..=most).contains(&back_off(in_a_row, longest)), "{in_a_row}");
        }
    }
}
