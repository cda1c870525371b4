//! One request to the origin and the head of its response.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::body::Ending;
use super::pool::{Bound, BoundSlot, Origin, Return, To};
use super::progress::Progress;
use super::sender::{Sender, to_http2};
use super::settings::BUFFER;
use super::{OriginBody, OriginError, Outgoing};
use crate::http::{hop, media};
use crate::telemetry::metrics::Count;

/// Which connection may carry a request, and what becomes of it afterwards.
#[derive(Clone, Debug)]
pub enum Keep {
    /// Any; afterwards it is kept for anybody. Should the response begin a log-in of the
    /// connection (NTLM, Negotiate), it is bound to this slot instead, or ended without one.
    Pool(Option<BoundSlot>),
    /// The one in the slot or a fresh one; afterwards it goes back into the slot.
    Bound(BoundSlot),
    /// A fresh one, which ends afterwards.
    Alone,
}

/// Marks a request as a call of gRPC, whose answer may begin with its first message, and so late.
#[derive(Clone, Copy, Debug)]
pub struct Call;

/// The head of a response, and its body on the way.
#[derive(Debug)]
pub struct OriginResponse {
    /// The response. Framing fields are checked and gone, but for HEAD's Content-Length.
    pub response: Response<OriginBody>,
    /// Whether its body ends only with the connection: an end that cannot be told from a cut.
    pub unframed: bool,
    /// Length of the body as announced.
    pub length: Option<u64>,
    /// Whether the connection is bound to the client's.
    pub bound: bool,
}

/// What did not come back from an attempt.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: OriginError,
    /// The request, where it is safe to send it again.
    pub(super) again: Option<Request<Outgoing>>,
    /// Whether the same server may be better on another connection.
    here: bool,
    /// Whether others were on the same connection.
    shared: bool,
    /// Whether it says anything of the server.
    pub(super) is_telling: bool,
}

impl Failed {
    fn for_good(error: OriginError) -> Self {
        Self { error, again: None, here: false, shared: false, is_telling: true }
    }

    /// There was no connection.
    fn unsent(error: OriginError, request: Request<Outgoing>) -> Self {
        Self { again: Some(request), ..Self::for_good(error) }
    }
}

impl Origin {
    /// Sends a request and waits for the head of the response.
    ///
    /// When a kept connection turns out dead, the request is sent once more on a fresh one: any
    /// request of which nothing was written, and a GET or HEAD without body that got no answer. So is
    /// one without body of which the origin says that it has not looked at it.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub async fn send(
        self: &Rc<Self>,
        request: Request<Outgoing>,
        keep: Keep,
    ) -> Result<OriginResponse, OriginError> {
        self.try_send(request, keep).await.map_err(|failed| failed.error)
    }

    /// The same, and gives back a request that another server may be sent.
    pub(super) async fn try_send(
        self: &Rc<Self>,
        request: Request<Outgoing>,
        keep: Keep,
    ) -> Result<OriginResponse, Failed> {
        self.sheet.count(Count::OriginRequests);
        let result = self.send_once_or_twice(request, keep).await;
        if result.is_err() {
            self.sheet.count(Count::OriginErrors);
        }
        result
    }

    async fn send_once_or_twice(
        self: &Rc<Self>,
        request: Request<Outgoing>,
        keep: Keep,
    ) -> Result<OriginResponse, Failed> {
        let (sender, was_kept) = match self.carrier(&request, &keep).await {
            Ok(found) => found,
            Err(error) => return Err(Failed::unsent(error, request)),
        };
        let (request, shared) = match self.attempt(sender, request, &keep, was_kept).await {
            Err(Failed { again: Some(request), here: true, shared, .. }) => (request, shared),
            ended => return ended,
        };
        self.sheet.count(Count::OriginRetries);
        // What many lost at once they share again; another kept one may be as dead as this.
        let sender = match &keep {
            Keep::Pool(_) if shared && self.may_share() => {
                self.carrier(&request, &keep).await.map(|(sender, _)| sender)
            }
            Keep::Pool(_) => self.connect().await,
            Keep::Bound(_) | Keep::Alone => self.connect_alone().await,
        };
        match sender {
            Ok(sender) => self.attempt(sender, request, &keep, false).await,
            Err(error) => Err(Failed::unsent(error, request)),
        }
    }

    /// What carries a request, and whether it was there already. What logs a connection in is never sent
    /// where others' requests go (RFC 9113 knows of no such log-in).
    async fn carrier(
        self: &Rc<Self>,
        request: &Request<Outgoing>,
        keep: &Keep,
    ) -> Result<(Sender, bool), OriginError> {
        let bound = match keep {
            Keep::Pool(_) => {
                let with_effects = !matches!(*request.method(), Method::GET | Method::HEAD);
                return self.sender(with_effects).await;
            }
            Keep::Bound(slot) => slot.take().filter(|bound| bound.is_of(self)),
            Keep::Alone => None,
        };
        match bound {
            Some(Bound { sender, .. }) => Ok((Sender::Http1(sender), true)),
            None => Ok((self.connect_alone().await?, false)),
        }
    }

    async fn attempt(
        self: &Rc<Self>,
        mut sender: Sender,
        mut request: Request<Outgoing>,
        keep: &Keep,
        was_kept: bool,
    ) -> Result<OriginResponse, Failed> {
        let is_head = request.method() == Method::HEAD;
        let copies = Copies::of(&request, &sender, was_kept || self.settings.has_peers);
        let (progress, has_body) = match request.body_mut() {
            Outgoing::Empty => (Progress::new(Duration::ZERO), false),
            Outgoing::Ours(_) => (Progress::new(Duration::ZERO), true),
            Outgoing::Upload(upload) => (upload.sets_out(), true),
        };
        if sender.is_shared() {
            to_http2(&mut request, self.settings.tls.is_some()).map_err(Failed::for_good)?;
        }
        let is_call = sender.is_shared() && request.extensions().get::<Call>().is_some();
        let limit =
            if is_call { self.settings.stream_timeout } else { self.settings.first_byte_timeout };
        let sent = sender.send(request);
        let Some(answer) = within_limit(sent, limit, &progress).await else {
            // A call may be silent of right: that says nothing of its connection, nor of its server.
            // One whose body has not even begun has no place there.
            if !is_call || (has_body && !progress.begun.get()) {
                sender.doubt();
            }
            // Whoever is silent on one connection is so on the next.
            let error = OriginError::FirstByteTimedOut;
            let is_telling = !is_call;
            return Err(Failed { again: copies.lost, is_telling, ..Failed::for_good(error) });
        };
        match answer {
            Ok(response) => self.accept(response, sender, is_head, keep).map_err(Failed::for_good),
            Err(mut failed) => {
                sender.over();
                let unsent = failed.take_message().filter(|_| !progress.begun.get());
                let error = failed.into_error();
                let broken = Broken::by(&error);
                match broken {
                    Broken::Refused | Broken::Stream => {}
                    Broken::GoneAway | Broken::Connection => sender.doubt(),
                    Broken::WantsHttp1 => {
                        self.lanes.want_http1();
                        sender.doubt();
                    }
                }
                let here = was_kept || broken.is_unseen();
                let again = match unsent {
                    Some(mut unsent) => {
                        copies.restore(&mut unsent);
                        Some(unsent)
                    }
                    None => match broken {
                        _ if broken.is_unseen() => copies.refused,
                        Broken::Connection => copies.lost,
                        _ => None,
                    },
                };
                let shared = sender.is_shared();
                let error = match progress.fault.get() {
                    Some(fault) => OriginError::ClientBody(fault),
                    // It says that it has no room for it.
                    None if broken == Broken::Refused => OriginError::Crowded,
                    None => OriginError::Broken(error),
                };
                Err(Failed { again, here, shared, ..Failed::for_good(error) })
            }
        }
    }

    /// Checks the framing of a response and ties its connection's return to its body's end.
    pub(super) fn accept(
        self: &Rc<Self>,
        response: Response<Incoming>,
        sender: Sender,
        is_head: bool,
        keep: &Keep,
    ) -> Result<OriginResponse, OriginError> {
        sender.answered();
        let is_shared = sender.is_shared();
        let (mut head, body) = response.into_parts();
        let framing = match framing(head.status, &head.headers, is_head)? {
            // A stream has an end of its own.
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
            Keep::Bound(slot) | Keep::Pool(Some(slot)) if logs_in || is_bound(keep) => {
                To::Slot(Rc::clone(slot))
            }
            Keep::Alone => To::Nowhere,
            _ if logs_in || (is_head && !self.settings.head_reuse) => To::Nowhere,
            _ => To::Pool,
        };
        let bound = matches!(to, To::Slot(_));
        let limit = self.limit_between_parts(&head.headers);
        let give_back = Return::new(self, sender, to);
        let ending = match framing {
            _ if !is_shared => Ending::Told,
            Framing::Empty => Ending::Bytes(0),
            Framing::Length(length) => Ending::Bytes(length),
            Framing::Chunked | Framing::Close => Ending::Stream,
        };
        let body = OriginBody::new(body, limit, ending, give_back);
        let response = Response::from_parts(head, body);
        Ok(OriginResponse {
            response,
            unframed: framing == Framing::Close,
            length: match framing {
                Framing::Length(length) => Some(length),
                Framing::Chunked | Framing::Close | Framing::Empty => None,
            },
            bound,
        })
    }

    /// How long a body may pause: what is meant to pause may do so for longer.
    fn limit_between_parts(&self, headers: &HeaderMap) -> Duration {
        if media::is_live(headers) {
            return self.settings.stream_timeout;
        }
        self.settings.between_bytes_timeout
    }
}

/// Waits for a head for as long as the origin may take from the last byte that was sent. While the
/// client is waited for it is not the origin that takes long; for how long that may be is said by the
/// upload.
async fn within_limit<T>(
    answer: impl Future<Output = T>,
    limit: Duration,
    progress: &Progress,
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
pub(super) fn is_repeatable(request: &Request<Outgoing>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && matches!(request.body(), Outgoing::Empty)
}

/// Copies of a request, by which it can be sent again.
struct Copies {
    /// Where it was lost on its way: GET or HEAD without a body (RFC 9110 §9.2.2).
    lost: Option<Request<Outgoing>>,
    /// Where the origin says that it has not looked at it (RFC 9113 §8.7): any without a body.
    refused: Option<Request<Outgoing>>,
    /// What was its own before HTTP/2 said it in its way.
    fields: Option<(Uri, HeaderMap)>,
}

impl Copies {
    /// PERF: a fresh connection of HTTP/1.1 to the only server needs none (`may_be_lost`).
    fn of(request: &Request<Outgoing>, sender: &Sender, may_be_lost: bool) -> Self {
        let is_shared = sender.is_shared();
        let is_empty = matches!(request.body(), Outgoing::Empty);
        Self {
            lost: (may_be_lost && is_repeatable(request)).then(|| copy(request)),
            refused: (is_shared && is_empty).then(|| copy(request)),
            fields: (is_shared && !is_empty)
                .then(|| (request.uri().clone(), request.headers().clone())),
        }
    }

    /// Makes a request that came back what it was.
    fn restore(self, request: &mut Request<Outgoing>) {
        if let Some(whole) = self.refused {
            *request = whole;
        } else if let Some((uri, headers)) = self.fields {
            *request.uri_mut() = uri;
            *request.headers_mut() = headers;
            *request.version_mut() = Version::HTTP_11;
        }
    }
}

fn copy(request: &Request<Outgoing>) -> Request<Outgoing> {
    let mut copy = Request::new(Outgoing::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// What broke with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// Nothing but that: the origin has not looked at it (RFC 9113 §8.7).
    Refused,
    /// Its stream.
    Stream,
    /// The origin takes it by HTTP/1.1 only (RFC 9113 §7).
    WantsHttp1,
    /// The connection, which the origin ends; it named an earlier stream as the last that it looks at
    /// (RFC 9113 §6.8).
    GoneAway,
    /// The connection.
    Connection,
}

impl Broken {
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

    /// Whether the origin says that it has not looked at the request.
    fn is_unseen(self) -> bool {
        matches!(self, Self::Refused | Self::GoneAway | Self::WantsHttp1)
    }
}

fn is_bound(keep: &Keep) -> bool {
    matches!(keep, Keep::Bound(_))
}

/// How a response's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Empty,
    Length(u64),
    Chunked,
    Close,
}

/// RFC 9112 §6.3, and stricter where hyper is lenient: what could be read in two ways is refused.
fn framing(status: StatusCode, headers: &HeaderMap, is_head: bool) -> Result<Framing, OriginError> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(OriginError::Malformed("it switches protocols unasked"));
    }
    // hyper looks at its buffer only while a head is not whole.
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

/// Whether a response offers a log-in that holds for the connection: NTLM, or Negotiate, by which
/// browsers carry NTLM (MS-NTHT, RFC 4559 §6).
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
