//! One request to the origin and the head of its response.

use std::pin::pin;
use std::rc::Rc;

use ::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::body::Progress;
use super::pool::{BUFFER, Bound, BoundSlot, Origin, Return, Sender, To};
use super::{OriginBody, OriginError, Outgoing};
use crate::http::hop;
use crate::metrics::Count;

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
struct Failed {
    error: OriginError,
    /// The request, where it is safe to send it again.
    again: Option<Request<Outgoing>>,
}

impl Origin {
    /// Sends a request and waits for the head of the response.
    ///
    /// When a kept connection turns out dead, the request is sent once more on a fresh one: any
    /// request of which nothing was written, and a GET or HEAD without body that got no answer.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub async fn send(
        self: &Rc<Self>,
        request: Request<Outgoing>,
        keep: Keep,
    ) -> Result<OriginResponse, OriginError> {
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
    ) -> Result<OriginResponse, OriginError> {
        let with_effects = !matches!(*request.method(), Method::GET | Method::HEAD);
        let kept = match &keep {
            Keep::Pool(_) => self.kept(with_effects).await,
            Keep::Bound(slot) => slot.take().map(|Bound(sender)| sender),
            Keep::Alone => None,
        };
        let Some(sender) = kept else {
            let sender = self.connect().await?;
            return self.attempt(sender, request, &keep, false).await.map_err(|f| f.error);
        };
        match self.attempt(sender, request, &keep, true).await {
            Ok(response) => Ok(response),
            Err(Failed { again: Some(request), .. }) => {
                self.sheet.count(Count::OriginRetries);
                let sender = self.connect().await?;
                self.attempt(sender, request, &keep, false).await.map_err(|f| f.error)
            }
            Err(Failed { error, again: None }) => Err(error),
        }
    }

    async fn attempt(
        self: &Rc<Self>,
        mut sender: Sender,
        request: Request<Outgoing>,
        keep: &Keep,
        was_kept: bool,
    ) -> Result<OriginResponse, Failed> {
        let is_head = request.method() == Method::HEAD;
        let copy = if was_kept { repeatable(&request) } else { None };
        let progress = match request.body() {
            Outgoing::Empty => Progress::new(),
            Outgoing::Upload(upload) => upload.progress(),
        };
        let limit = self.settings.first_byte_timeout;
        sender.allowance.heads();
        let mut answer = pin!(sender.requests.try_send_request(request));
        let answer = loop {
            let deadline = progress.last.get() + limit;
            match tokio::time::timeout_at(deadline, answer.as_mut()).await {
                Ok(answer) => break answer,
                Err(_) if progress.last.get() + limit > deadline => {}
                Err(_) => {
                    let error = OriginError::FirstByteTimedOut;
                    return Err(Failed { error, again: None });
                }
            }
        };
        match answer {
            Ok(response) => self
                .accept(response, sender, is_head, keep)
                .map_err(|error| Failed { error, again: None }),
            Err(mut failed) => {
                let unsent = failed.take_message().filter(|_| was_kept && !progress.begun.get());
                let error = match progress.fault.get() {
                    Some(fault) => OriginError::ClientBody(fault),
                    None => OriginError::Broken(failed.into_error()),
                };
                Err(Failed { error, again: unsent.or(copy) })
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
        sender.allowance.body();
        let (mut head, body) = response.into_parts();
        let framing = framing(head.status, &head.headers, is_head)?;
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
        let give_back = Return::new(self, sender, to);
        let body = OriginBody::new(body, self.settings.between_bytes_timeout, give_back);
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
}

fn is_bound(keep: &Keep) -> bool {
    matches!(keep, Keep::Bound(_))
}

/// A copy of a request that may be sent twice: GET or HEAD without a body (RFC 9110 §9.2.2).
fn repeatable(request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if !safe || !matches!(request.body(), Outgoing::Empty) {
        return None;
    }
    let mut copy = Request::new(Outgoing::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
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
