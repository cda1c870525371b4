//! HTTP/1.1 connections to the origin that carry requests without a body.
//!
//! The request itself writes to the socket and reads from it: there is no task and no channel, and the request
//! is not copied for a retry. A request with a body needs hyper's client, which sends and receives at the same
//! time.

mod body;
mod head;

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use ::http::response::Parts;
use ::http::{HeaderMap, Request, StatusCode, Version};
use anteroom_http::hop;
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::task::coop::unconstrained;

pub(super) use self::body::BodyDecoder;
use self::body::DecodeResult;
use self::head::HeadParser;
use super::UploadBody;
use super::interim::InterimListener;
use super::link::OriginLink;
use super::meter::HEADS_MAX;

/// How much is read at once while a head or a chunk's size is expected. It holds the whole of a small page.
const HEAD_ROOM: usize = 8 * 1024;
/// The most that is read at once of a body.
const BODY_ROOM: usize = 64 * 1024;

/// A connection between two requests, or with one in progress.
#[derive(Debug)]
pub(crate) struct DirectConnection {
    link: OriginLink,
    /// What was read and is not used yet.
    read: BytesMut,
    /// The most fields of a head.
    fields_max: usize,
    /// Whether the origin keeps the connection open after this response (RFC 9112 §9.3).
    is_persistent: bool,
}

/// A connection on which nothing is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdleState {
    /// It can carry a request.
    Open,
    /// It still sends the body of the last request.
    Busy,
    /// The origin has closed it.
    Closed,
    /// It broke, or the origin sent something unasked.
    Faulty,
}

/// Why there is no response on a connection, or only a part of it.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The connection ended first.
    #[error("the connection ended before the response was complete")]
    Incomplete,
    /// The head of the response is over a limit.
    #[error("too large a head")]
    LargeHead,
    /// The response is not HTTP/1.
    #[error("invalid HTTP/1 response: {0}")]
    Invalid(&'static str),
}

impl DirectConnection {
    pub(crate) fn new(link: OriginLink, fields_max: usize) -> Self {
        Self { link, read: BytesMut::new(), fields_max, is_persistent: true }
    }

    /// The socket of an idle connection.
    pub(crate) fn into_link(self) -> OriginLink {
        self.link
    }

    /// Sends a request and waits for the head of its response. Interim responses go to the listener.
    ///
    /// # Errors
    /// See [`ExchangeError`]. The connection is of no use then, nor if the future is dropped.
    pub(crate) async fn exchange(
        &mut self,
        request: &Request<UploadBody>,
    ) -> Result<Parts, ExchangeError> {
        self.link.write_all(&head::encode(request)).await?;
        self.link.flush().await?;
        let (mut parser, mut left) = (HeadParser::default(), HEADS_MAX);
        loop {
            if let Some(head) = parser.parse(&mut self.read, self.fields_max)? {
                if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS
                {
                    if let Some(listener) = request.extensions().get::<InterimListener>() {
                        listener.hear(head.status, &head.headers);
                    }
                    continue;
                }
                self.is_persistent = is_persistent(head.version, &head.headers);
                return Ok(head);
            }
            let count = poll_fn(|cx| self.poll_fill(cx, HEAD_ROOM)).await?;
            if count == 0 {
                return Err(ExchangeError::Incomplete);
            }
            left = left.checked_sub(count).ok_or(ExchangeError::Invalid("heads without end"))?;
        }
    }

    /// The next part of the body that `decoder` reads; `None` at its end.
    pub(crate) fn poll_body(
        &mut self,
        decoder: &mut BodyDecoder,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        loop {
            match decoder.decode(&mut self.read) {
                Ok(DecodeResult::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(DecodeResult::End) => return Poll::Ready(None),
                Ok(DecodeResult::Missing(count)) => {
                    let room = count.clamp(HEAD_ROOM, BODY_ROOM);
                    match ready!(self.poll_fill(cx, room)) {
                        Ok(0) if decoder.ends_with_connection() => {}
                        Ok(0) => return Poll::Ready(Some(Err(ExchangeError::Incomplete))),
                        Ok(_) => {}
                        Err(error) => return Poll::Ready(Some(Err(error.into()))),
                    }
                }
                Err(why) => return Poll::Ready(Some(Err(ExchangeError::Invalid(why)))),
            }
        }
    }

    /// The response ends with the connection, or the connection must not be used again.
    pub(crate) fn close_afterwards(&mut self) {
        self.is_persistent = false;
    }

    /// Whether another request may follow. Bytes after a response belong to none.
    pub(crate) fn after_response(&self) -> IdleState {
        match (self.read.is_empty(), self.is_persistent) {
            (true, true) => IdleState::Open,
            (_, false) => IdleState::Closed,
            (false, true) => IdleState::Faulty,
        }
    }

    /// The state of an idle connection. Anything that arrives on it is unasked.
    pub(crate) fn idle_state(&mut self) -> IdleState {
        match self.after_response() {
            IdleState::Open => {}
            ended => return ended,
        }
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        let reading = poll_fn(|cx| Pin::new(&mut self.link).poll_read(cx, &mut buf));
        // A task without budget would be told that nothing has arrived.
        match pin!(unconstrained(reading)).poll(&mut cx) {
            Poll::Pending => IdleState::Open,
            Poll::Ready(Ok(())) if buf.filled().is_empty() => IdleState::Closed,
            Poll::Ready(_) => IdleState::Faulty,
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < room / 2 {
            self.read.reserve(room);
        }
        pin!(self.link.read_buf(&mut self.read)).poll(cx)
    }
}

/// RFC 9112 §9.3. A `close` outweighs whatever other line says.
fn is_persistent(version: Version, headers: &HeaderMap) -> bool {
    !hop::connection_names(headers, "close")
        && (version == Version::HTTP_11 || hop::connection_names(headers, "keep-alive"))
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use http_body_util::BodyExt as _;
    use hyper::client::conn::http1::handshake;
    use hyper_util::rt::TokioIo;
    use proptest::prelude::*;
    use tokio::net::UnixStream;

    use super::*;
    use crate::RESPONSE_FIELDS;
    use crate::send::framing;

    fn request() -> Request<UploadBody> {
        Request::get("/").header("host", "shop.test").body(UploadBody::Empty).unwrap()
    }

    /// A connection whose origin answers the first request with these bytes, and closes.
    fn answered_with(bytes: &[u8]) -> UnixStream {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let bytes = bytes.to_vec();
        tokio::task::spawn_local(async move {
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                theirs.read_buf(&mut asked).await.unwrap();
            }
            theirs.write_all(&bytes).await.unwrap();
        });
        ours
    }

    /// Status, data and trailers of a response that is whole.
    type WholeResponse = (StatusCode, Vec<u8>, Option<HeaderMap>);

    async fn directly(bytes: &[u8]) -> Option<WholeResponse> {
        let link = OriginLink::Unix(answered_with(bytes));
        let mut connection = DirectConnection::new(link, RESPONSE_FIELDS);
        let head = connection.exchange(&request()).await.ok()?;
        let mut decoder = framing(head.status, &head.headers, false).ok()?.decoder();
        let (mut data, mut trailers) = (Vec::new(), None);
        while let Some(frame) = poll_fn(|cx| connection.poll_body(&mut decoder, cx)).await {
            match frame.ok()?.into_data() {
                Ok(part) => data.extend_from_slice(&part),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        Some((head.status, data, trailers))
    }

    async fn by_hyper(bytes: &[u8]) -> Option<WholeResponse> {
        let io = TokioIo::new(answered_with(bytes));
        let (mut sender, connection) = handshake(io).await.ok()?;
        tokio::task::spawn_local(connection);
        let response = sender.send_request(request()).await.ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?;
        let trailers = body.trailers().cloned();
        Some((head.status, body.to_bytes().to_vec(), trailers))
    }

    fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(tokio::runtime::LocalOptions::default());
        runtime.unwrap().block_on(work)
    }

    const RESPONSES: [&str; 6] = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n02\r\nlo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: 1\r\nB: 2\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
        "HTTP/1.0 200 OK\r\n\r\nhello until the end",
        "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\nContent-Length: 5\r\n\r\n",
    ];

    #[test]
    fn an_idle_connection_is_looked_at_whatever_the_task_has_done_before() {
        for expected in [IdleState::Open, IdleState::Faulty, IdleState::Closed] {
            on_one_thread(async {
                let (ours, mut theirs) = UnixStream::pair().unwrap();
                let mut connection = DirectConnection::new(OriginLink::Unix(ours), RESPONSE_FIELDS);
                if expected == IdleState::Faulty {
                    theirs.write_all(b"x").await.unwrap();
                }
                let _open = Some(theirs).filter(|_| expected != IdleState::Closed);
                let OriginLink::Unix(socket) = &connection.link else { unreachable!() };
                if expected != IdleState::Open {
                    socket.readable().await.unwrap();
                }
                // As in a task that answers many requests at a stretch.
                while tokio::task::coop::has_budget_remaining() {
                    tokio::task::coop::consume_budget().await;
                }
                assert_eq!(connection.idle_state(), expected);
            });
        }
    }

    #[test]
    fn a_connection_with_bytes_that_were_read_too_far_is_not_open() {
        on_one_thread(async {
            let answer = b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n";
            let link = OriginLink::Unix(answered_with(answer));
            let mut connection = DirectConnection::new(link, RESPONSE_FIELDS);
            assert!(connection.exchange(&request()).await.is_ok());
            assert_eq!(connection.idle_state(), IdleState::Faulty);
        });
    }

    #[test]
    fn responses_are_read_as_by_hyper() {
        for text in RESPONSES {
            on_one_thread(async {
                let whole = directly(text.as_bytes()).await;
                assert!(whole.is_some(), "{text:?}");
                assert_eq!(whole, by_hyper(text.as_bytes()).await, "{text:?}");
            });
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// SECURITY: what two parsers read in two ways can be used to smuggle a response in.
        #[test]
        fn what_is_taken_for_whole_is_what_hyper_takes_for_it(
            response in prop::sample::select(&RESPONSES[..]),
            edits in prop::collection::vec(
                (any::<prop::sample::Index>(), prop::sample::select(&b"\r\n019afF;:=, \t-x\"T\0"[..]), 0..3_u8),
                1..4,
            ),
        ) {
            let mut bytes = response.as_bytes().to_vec();
            for (at, byte, kind) in edits {
                let at = at.index(bytes.len());
                match kind {
                    0 => bytes.insert(at, byte),
                    1 => bytes[at] = byte,
                    _ => drop(bytes.remove(at)),
                }
            }
            on_one_thread(async {
                if let Some(whole) = directly(&bytes).await {
                    let expected = by_hyper(&bytes).await;
                    assert_eq!(Some(whole), expected, "{:?}", bytes.escape_ascii().to_string());
                }
            });
        }
    }
}
