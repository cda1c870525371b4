//! Sends one request to the origin and reads the head of its response.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, header};
use anteroom_http::{hop, media};
use anteroom_telemetry::metrics::Count;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::body::{BodyEnd, BodySource};
use super::http1::{BodyDecoder, DirectConnection, ExchangeError};
use super::pool::{Destination, PinnedConnection, PinnedSlot, PoolReturn, ServerConnections};
use super::progress::UploadProgress;
use super::sender::{HyperSender, Sender, to_http2};
use super::settings::BUFFER;
use super::{OriginBody, OriginError, UploadBody};

/// Which connection may carry a request, and what happens to it afterwards.
#[derive(Clone, Debug)]
pub enum ConnectionReuse {
    /// Any; afterwards it is kept for any request. If the response begins a login of the connection (NTLM,
    /// Negotiate), the connection is pinned to this slot instead, or closed if there is no slot.
    Pool(Option<PinnedSlot>),
    /// The one in the slot or a new one; afterwards it returns to the slot.
    Pinned(PinnedSlot),
    /// A new one, which is closed afterwards.
    Alone,
}

/// Marks a gRPC call, whose response may begin with its first message, and therefore late.
#[derive(Clone, Copy, Debug)]
pub struct GrpcCall;

/// The head of a response, and its body as it arrives.
#[derive(Debug)]
pub struct OriginResponse {
    /// The response. Framing fields are checked and removed, except HEAD's Content-Length.
    pub response: Response<OriginBody>,
    /// Whether only the close of the connection ends the body: a cut then looks like an end.
    pub unframed: bool,
    /// The announced length of the body.
    pub length: Option<u64>,
    /// Whether the connection is pinned to the client's.
    pub pinned: bool,
}

/// The result of a failed attempt.
#[derive(Debug)]
pub(super) struct SendFailure {
    pub(super) error: OriginError,
    /// The request, if it is safe to send it again.
    pub(super) again: Option<Box<Request<UploadBody>>>,
    /// Whether another connection to the same server may work.
    here: bool,
    /// Whether other requests shared the connection.
    shared: bool,
    /// Whether the failure says anything about the server.
    pub(super) concerns_server: bool,
}

impl SendFailure {
    fn for_good(error: OriginError) -> Self {
        let concerns_server = !error.is_of_one_page();
        Self { error, again: None, here: false, shared: false, concerns_server }
    }

    /// There was no connection.
    fn unsent(error: OriginError, request: Box<Request<UploadBody>>) -> Self {
        Self { again: Some(request), ..Self::for_good(error) }
    }
}

impl ServerConnections {
    /// Sends a request and waits for the head of the response.
    ///
    /// When a kept connection turns out to be dead, the request is sent once more on a new one: any request
    /// of which nothing was written, and a GET or HEAD without a body that got no answer. The same holds for
    /// a request without a body that the origin reports as unprocessed.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub async fn send(
        self: &Rc<Self>,
        request: Request<UploadBody>,
        keep: ConnectionReuse,
    ) -> Result<OriginResponse, OriginError> {
        self.try_send(Box::new(request), keep).await.map_err(|failed| failed.error)
    }

    /// The same; a failure includes the request if it can be sent to another server.
    pub(super) async fn try_send(
        self: &Rc<Self>,
        request: Box<Request<UploadBody>>,
        keep: ConnectionReuse,
    ) -> Result<OriginResponse, SendFailure> {
        self.thread_metrics.count(Count::OriginRequests);
        self.tell_span(request.extensions());
        let result = self.send_once_or_twice(request, keep).await;
        if result.is_err() {
            self.thread_metrics.count(Count::OriginErrors);
        }
        result
    }

    async fn send_once_or_twice(
        self: &Rc<Self>,
        request: Box<Request<UploadBody>>,
        keep: ConnectionReuse,
    ) -> Result<OriginResponse, SendFailure> {
        let (sender, was_kept) = match self.carrier(&request, &keep).await {
            Ok(found) => found,
            Err(error) => return Err(SendFailure::unsent(error, request)),
        };
        let (request, shared) = match self.attempt(sender, request, &keep, was_kept).await {
            Err(SendFailure { again: Some(request), here: true, shared, .. }) => (request, shared),
            ended => return ended,
        };
        self.thread_metrics.count(Count::OriginRetries);
        // Requests that lost a shared connection share the next; another kept one may be as dead as this.
        let sender = match &keep {
            ConnectionReuse::Pool(_) if shared && self.may_share() => {
                self.carrier(&request, &keep).await.map(|(sender, _)| sender)
            }
            ConnectionReuse::Pool(_) => self.connect().await,
            ConnectionReuse::Pinned(_) | ConnectionReuse::Alone => self.connect_alone().await,
        };
        match sender {
            Ok(sender) => self.attempt(sender, request, &keep, false).await,
            Err(error) => Err(SendFailure::unsent(error, request)),
        }
    }

    /// Returns what carries a request, and whether it was open already. A request that logs a connection in
    /// is never sent on a shared connection (RFC 9113 has no such login).
    async fn carrier(
        self: &Rc<Self>,
        request: &Request<UploadBody>,
        keep: &ConnectionReuse,
    ) -> Result<(Sender, bool), OriginError> {
        let pinned = match keep {
            ConnectionReuse::Pool(_) => {
                let with_effects = !matches!(*request.method(), Method::GET | Method::HEAD);
                return self.sender(with_effects).await;
            }
            ConnectionReuse::Pinned(slot) => slot.take().filter(|pinned| pinned.is_of(self)),
            ConnectionReuse::Alone => None,
        };
        if let Some(PinnedConnection { mut connection, .. }) = pinned
            && self.is_open(connection.idle_state())
        {
            return Ok((connection.into(), true));
        }
        Ok((self.connect_alone().await?, false))
    }

    async fn attempt(
        self: &Rc<Self>,
        sender: Sender,
        request: Box<Request<UploadBody>>,
        keep: &ConnectionReuse,
        was_kept: bool,
    ) -> Result<OriginResponse, SendFailure> {
        let sender = match sender {
            Sender::Direct(direct) if matches!(request.body(), UploadBody::Empty) => {
                return self.attempt_directly(direct, request, keep, was_kept).await;
            }
            Sender::Direct(direct) => match self.begin_task(direct.into_link()).await {
                Ok(task) => HyperSender::Task(task),
                Err(error) => return Err(SendFailure::unsent(error, request)),
            },
            Sender::Hyper(sender) => sender,
        };
        // PERF: boxed, so that the state of a request without a body stays small.
        Box::pin(self.attempt_by_hyper(sender, request, keep, was_kept)).await
    }

    /// Sends a request without a body, and reads the response in the same task.
    async fn attempt_directly(
        self: &Rc<Self>,
        mut direct: Box<DirectConnection>,
        request: Box<Request<UploadBody>>,
        keep: &ConnectionReuse,
        was_kept: bool,
    ) -> Result<OriginResponse, SendFailure> {
        let limit = self.settings.first_byte_timeout;
        let (here, error) = match tokio::time::timeout(limit, direct.exchange(&request)).await {
            Ok(Ok(head)) => {
                let is_head = request.method() == Method::HEAD;
                let response = Response::from_parts(head, None);
                return self
                    .accept(response, Sender::Direct(direct), is_head, keep)
                    .map_err(SendFailure::for_good);
            }
            Ok(Err(ExchangeError::LargeHead)) => {
                return Err(SendFailure::for_good(self.large_head()));
            }
            Ok(Err(error)) => (was_kept, OriginError::broken(error)),
            // A server that is silent on one connection is silent on the next.
            Err(_) => (false, OriginError::FirstByteTimedOut),
        };
        let may_repeat = (was_kept || self.settings.has_peers) && is_repeatable(&request);
        let again = may_repeat.then_some(request);
        Err(SendFailure { again, here, ..SendFailure::for_good(error) })
    }

    async fn attempt_by_hyper(
        self: &Rc<Self>,
        mut sender: HyperSender,
        mut request: Box<Request<UploadBody>>,
        keep: &ConnectionReuse,
        was_kept: bool,
    ) -> Result<OriginResponse, SendFailure> {
        let is_head = request.method() == Method::HEAD;
        let copies = RequestCopies::of(&request, &sender, was_kept || self.settings.has_peers);
        let (progress, has_body) = match request.body_mut() {
            UploadBody::Empty => (UploadProgress::new(Duration::ZERO), false),
            UploadBody::Ours(_) => (UploadProgress::new(Duration::ZERO), true),
            UploadBody::Upload(upload) => (upload.sets_out(), true),
        };
        if sender.is_shared() {
            to_http2(&mut request, self.settings.tls.is_some()).map_err(SendFailure::for_good)?;
        }
        let is_call = sender.is_shared() && request.extensions().get::<GrpcCall>().is_some();
        let limit =
            if is_call { self.settings.stream_timeout } else { self.settings.first_byte_timeout };
        let sent = sender.send(*request);
        let Some(answer) = within_limit(sent, limit, &progress).await else {
            // A call may be silent legitimately: that says nothing about its connection or its server. But if
            // its body has not even begun, the connection has no place for it.
            if !is_call || (has_body && !progress.begun.get()) {
                sender.doubt();
            }
            // A server that is silent on one connection is silent on the next.
            let error = OriginError::FirstByteTimedOut;
            let concerns_server = !is_call;
            return Err(SendFailure {
                again: copies.lost,
                concerns_server,
                ..SendFailure::for_good(error)
            });
        };
        match answer {
            Ok(response) => self
                .accept(response.map(Some), Sender::Hyper(sender), is_head, keep)
                .map_err(SendFailure::for_good),
            Err(mut failed) => {
                sender.over();
                let unsent = failed.take_message().filter(|_| !progress.begun.get());
                let error = failed.into_error();
                if error.is_parse_too_large() {
                    return Err(SendFailure::for_good(self.large_head()));
                }
                let broken = FailedExchange::by(&error);
                match broken {
                    FailedExchange::Refused | FailedExchange::Stream => {}
                    FailedExchange::GoneAway | FailedExchange::Connection => sender.doubt(),
                    FailedExchange::WantsHttp1 => {
                        self.http2_pool.want_http1();
                        sender.doubt();
                    }
                }
                let here = was_kept || broken.is_unseen();
                let again = match unsent {
                    Some(mut unsent) => {
                        copies.restore(&mut unsent);
                        Some(Box::new(unsent))
                    }
                    None => match broken {
                        _ if broken.is_unseen() => copies.refused,
                        FailedExchange::Connection => copies.lost,
                        _ => None,
                    },
                };
                let shared = sender.is_shared();
                let error = match progress.fault.get() {
                    Some(fault) => OriginError::ClientBody(fault),
                    // The origin reports that it has no room for the stream.
                    None if broken == FailedExchange::Refused => OriginError::Crowded,
                    None => OriginError::broken(error),
                };
                Err(SendFailure { again, here, shared, ..SendFailure::for_good(error) })
            }
        }
    }

    /// A response has a head over the limits, and would have it again.
    pub(super) fn large_head(&self) -> OriginError {
        OriginError::LargeHead(self.settings.response_fields)
    }

    /// Checks the framing of a response; its connection is returned when the body ends. `response` has hyper's
    /// body, or none where the connection itself is read.
    pub(super) fn accept(
        self: &Rc<Self>,
        response: Response<Option<Incoming>>,
        mut sender: Sender,
        is_head: bool,
        keep: &ConnectionReuse,
    ) -> Result<OriginResponse, OriginError> {
        sender.answered();
        let is_shared = sender.is_shared();
        let (mut head, body) = response.into_parts();
        let framing = match framing(head.status, &head.headers, is_head)? {
            // A stream marks its own end.
            Framing::Close if is_shared => Framing::Chunked,
            framing => framing,
        };
        if is_shared {
            head.version = Version::HTTP_11;
        }
        head.headers.remove(header::TRANSFER_ENCODING);
        if !is_head && head.status != StatusCode::NOT_MODIFIED {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let logs_in = binds_connection(&head);
        let to = match keep {
            ConnectionReuse::Pinned(slot) | ConnectionReuse::Pool(Some(slot))
                if logs_in || is_pinned(keep) =>
            {
                Destination::Slot(Rc::clone(slot))
            }
            ConnectionReuse::Alone => Destination::Nowhere,
            _ if logs_in || (is_head && !self.settings.head_reuse) => Destination::Nowhere,
            _ => Destination::Pool,
        };
        let pinned = matches!(to, Destination::Slot(_));
        let limit = self.limit_between_parts(&head.headers);
        let source = match (body, &mut sender) {
            (Some(body), _) => BodySource::Hyper(body),
            (None, Sender::Direct(direct)) => {
                if framing == Framing::Close {
                    direct.close_afterwards();
                }
                BodySource::Direct(framing.decoder())
            }
            (None, Sender::Hyper(_)) => BodySource::Direct(BodyDecoder::of_length(0)),
        };
        let give_back = PoolReturn::new(self, sender, to);
        let ending = match framing {
            _ if !is_shared => BodyEnd::Delimited,
            Framing::Empty => BodyEnd::Bytes(0),
            Framing::Length(length) => BodyEnd::Bytes(length),
            Framing::Chunked | Framing::Close => BodyEnd::Stream,
        };
        let body = OriginBody::new(source, limit, ending, give_back);
        let response = Response::from_parts(head, body);
        Ok(OriginResponse {
            response,
            unframed: framing == Framing::Close,
            length: match framing {
                Framing::Length(length) => Some(length),
                Framing::Chunked | Framing::Close | Framing::Empty => None,
            },
            pinned,
        })
    }

    /// How long a body may pause: bodies of live streams may pause for longer.
    fn limit_between_parts(&self, headers: &HeaderMap) -> Duration {
        if media::is_live(headers) {
            return self.settings.stream_timeout;
        }
        self.settings.between_bytes_timeout
    }
}

/// Waits for a head for at most `limit` after the last byte sent. Time spent waiting for the client does not
/// count against the origin; the upload has its own limit for it.
async fn within_limit<T>(
    answer: impl Future<Output = T>,
    limit: Duration,
    progress: &UploadProgress,
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut deadline = progress.last.get() + limit;
    loop {
        if let Ok(answer) = tokio::time::timeout_at(deadline, answer.as_mut()).await {
            return Some(answer);
        }
        deadline = match progress.last.get() + limit {
            _ if progress.awaits_client.get() => Instant::now() + limit,
            moved if moved > deadline => moved,
            _ => return None,
        };
    }
}

/// Whether a request may be sent twice: GET or HEAD without a body (RFC 9110 §9.2.2).
pub(super) fn is_repeatable(request: &Request<UploadBody>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && matches!(request.body(), UploadBody::Empty)
}

/// Copies of a request, from which it can be sent again.
struct RequestCopies {
    /// For a request lost on its way: GET or HEAD without a body (RFC 9110 §9.2.2).
    lost: Option<Box<Request<UploadBody>>>,
    /// For one that the origin reports as unprocessed (RFC 9113 §8.7): any without a body.
    refused: Option<Box<Request<UploadBody>>>,
    /// The original URI and fields, before conversion to HTTP/2.
    fields: Option<Box<(Uri, HeaderMap)>>,
}

impl RequestCopies {
    /// PERF: a new HTTP/1.1 connection to the only server needs no copy (`may_be_lost`).
    fn of(request: &Request<UploadBody>, sender: &HyperSender, may_be_lost: bool) -> Self {
        let is_shared = sender.is_shared();
        let is_empty = matches!(request.body(), UploadBody::Empty);
        Self {
            lost: (may_be_lost && is_repeatable(request)).then(|| copy(request)),
            refused: (is_shared && is_empty).then(|| copy(request)),
            fields: (is_shared && !is_empty)
                .then(|| Box::new((request.uri().clone(), request.headers().clone()))),
        }
    }

    /// Restores the original form of a returned request.
    fn restore(self, request: &mut Request<UploadBody>) {
        if let Some(whole) = self.refused {
            *request = *whole;
        } else if let Some(fields) = self.fields {
            let (uri, headers) = *fields;
            *request.uri_mut() = uri;
            *request.headers_mut() = headers;
            *request.version_mut() = Version::HTTP_11;
        }
    }
}

/// PERF: boxed, because a copy moves with the state of its exchange, and is hardly ever sent.
fn copy(request: &Request<UploadBody>) -> Box<Request<UploadBody>> {
    let mut copy = Box::new(Request::new(UploadBody::Empty));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// What broke, along with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailedExchange {
    /// The request alone: the origin has not processed it (RFC 9113 §8.7).
    Refused,
    /// Its stream.
    Stream,
    /// The origin accepts it over HTTP/1.1 only (RFC 9113 §7).
    WantsHttp1,
    /// The connection, which the origin is closing; it named an earlier stream as the last that it processes
    /// (RFC 9113 §6.8).
    GoneAway,
    /// The connection.
    Connection,
}

impl FailedExchange {
    fn by(error: &hyper::Error) -> Self {
        let source = std::error::Error::source(error);
        let Some(error) = source.and_then(|source| source.downcast_ref::<h2::Error>()) else {
            return Self::Connection;
        };
        match error.reason() {
            Some(h2::Reason::HTTP_1_1_REQUIRED) if error.is_remote() => Self::WantsHttp1,
            Some(h2::Reason::REFUSED_STREAM) if error.is_remote() && error.is_reset() => {
                Self::Refused
            }
            _ if error.is_reset() => Self::Stream,
            _ if error.is_go_away() && error.is_remote() => Self::GoneAway,
            _ => Self::Connection,
        }
    }

    /// Whether the origin reports that it has not processed the request.
    fn is_unseen(self) -> bool {
        matches!(self, Self::Refused | Self::GoneAway | Self::WantsHttp1)
    }
}

fn is_pinned(keep: &ConnectionReuse) -> bool {
    matches!(keep, ConnectionReuse::Pinned(_))
}

/// What delimits a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Empty,
    Length(u64),
    Chunked,
    Close,
}

impl Framing {
    pub(super) fn decoder(self) -> BodyDecoder {
        match self {
            Self::Empty => BodyDecoder::of_length(0),
            Self::Length(length) => BodyDecoder::of_length(length),
            Self::Chunked => BodyDecoder::chunked(),
            Self::Close => BodyDecoder::Close,
        }
    }
}

/// RFC 9112 §6.3, and stricter where hyper is lenient: ambiguous framing is refused.
pub(super) fn framing(
    status: StatusCode,
    headers: &HeaderMap,
    is_head: bool,
) -> Result<Framing, OriginError> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(OriginError::Malformed("it switches protocols unasked"));
    }
    // hyper checks its buffer only while a head is incomplete.
    if headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > BUFFER
    {
        return Err(OriginError::Malformed("its head is too large"));
    }
    let chunked = hop::transfer_encoding(headers)
        .map_err(|_| OriginError::Malformed("its Transfer-Encoding is not just chunked"))?;
    let length = hop::content_length(headers)
        .map_err(|_| OriginError::Malformed("its Content-Length is no single number"))?;
    let chunked = chunked == hop::TransferEncoding::Chunked;
    if is_head || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Empty);
    }
    match (chunked, length) {
        (true, Some(_)) => Err(OriginError::Malformed("it has a length and chunks")),
        (true, None) => Ok(Framing::Chunked),
        (false, Some(length)) => Ok(Framing::Length(length)),
        (false, None) => Ok(Framing::Close),
    }
}

/// Whether a response offers a login of the connection: NTLM, or Negotiate, by which browsers carry NTLM
/// (MS-NTHT, RFC 4559 §6).
fn binds_connection(head: &::http::response::Parts) -> bool {
    let (challenge, fits) = match head.status {
        StatusCode::UNAUTHORIZED => (header::WWW_AUTHENTICATE, true),
        StatusCode::PROXY_AUTHENTICATION_REQUIRED => (header::PROXY_AUTHENTICATE, true),
        _ => (header::WWW_AUTHENTICATE, false),
    };
    fits && head.headers.get_all(challenge).iter().any(|value| {
        value.as_bytes().split(|b| *b == b',').any(|part| is_connection_scheme(part.trim_ascii()))
    })
}

/// Whether credentials or a challenge begin with a scheme that logs the connection in.
#[must_use]
pub fn is_connection_scheme(text: &[u8]) -> bool {
    let scheme = text.split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"NTLM") || scheme.eq_ignore_ascii_case(b"Negotiate")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (::http::HeaderName::from_static(name), ::http::HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    #[test]
    fn framing_that_could_be_read_in_two_ways_is_refused() {
        type Case = (&'static [(&'static str, &'static str)], Option<Framing>);
        let cases: [Case; 9] = [
            (&[], Some(Framing::Close)),
            (&[("content-length", "5")], Some(Framing::Length(5))),
            (&[("transfer-encoding", "chunked")], Some(Framing::Chunked)),
            (&[("transfer-encoding", "chunked"), ("content-length", "5")], None),
            (&[("content-length", "5, 5")], None),
            (&[("content-length", "+5")], None),
            (&[("transfer-encoding", "xchunked")], None),
            (&[("transfer-encoding", "chunked, identity")], None),
            (&[("transfer-encoding", "gzip, chunked")], None),
        ];
        for (fields, expected) in cases {
            let got = framing(StatusCode::OK, &head(fields), false).ok();
            assert_eq!(got, expected, "{fields:?}");
        }
        assert!(framing(StatusCode::SWITCHING_PROTOCOLS, &head(&[]), false).is_err());
        assert_eq!(framing(StatusCode::NO_CONTENT, &head(&[]), false).ok(), Some(Framing::Empty));
    }

    #[test]
    fn schemes_that_log_a_connection_in_are_told() {
        for (text, expected) in [
            (&b"NTLM"[..], true),
            (b"ntlm TlRMTVNTUAAB", true),
            (b"Negotiate YII", true),
            (b"Basic Zm9v", false),
            (b"Bearer NTLM", false),
            (b"", false),
        ] {
            assert_eq!(is_connection_scheme(text), expected, "{text:?}");
        }
    }
}
