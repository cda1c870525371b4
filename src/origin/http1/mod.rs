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
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

pub(super) use self::body::BodyDecoder;
use self::body::Decoded;
use self::head::HeadParser;
use super::UploadBody;
use super::interim::InterimListener;
use super::link::OriginLink;
use super::meter::HEADS_MAX;
use crate::http::hop;

/// How much is read at once while a head or a chunk's size is expected. It holds the whole of a small page.
const HEAD_ROOM: usize = 8 * 1024;
/// The most that is read at once of a body.
const BODY_ROOM: usize = 64 * 1024;

/// A connection between two requests, or with one in progress.
#[derive(Debug)]
pub(in crate::origin) struct DirectConnection {
    link: OriginLink,
    /// What was read and is not used yet.
    read: BytesMut,
    /// Whether the origin keeps the connection open after this response (RFC 9112 §9.3).
    is_persistent: bool,
}

/// A connection on which nothing is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::origin) enum IdleState {
    /// It can carry a request.
    Open,
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
    /// The response is not HTTP/1.
    #[error("invalid HTTP/1 response: {0}")]
    Invalid(&'static str),
}

impl DirectConnection {
    pub(in crate::origin) fn new(link: OriginLink) -> Self {
        Self { link, read: BytesMut::new(), is_persistent: true }
    }

    /// The socket of an idle connection.
    pub(in crate::origin) fn into_link(self) -> OriginLink {
        self.link
    }

    /// Sends a request and waits for the head of its response. Interim responses go to the listener.
    ///
    /// # Errors
    /// See [`ExchangeError`]. The connection is of no use then, nor if the future is dropped.
    pub(in crate::origin) async fn exchange(
        &mut self,
        request: &Request<UploadBody>,
    ) -> Result<Parts, ExchangeError> {
        self.link.write_all(&head::encode(request)).await?;
        self.link.flush().await?;
        let (mut parser, mut left) = (HeadParser::default(), HEADS_MAX);
        loop {
            if let Some(head) = parser.parse(&mut self.read)? {
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
    pub(in crate::origin) fn poll_body(
        &mut self,
        decoder: &mut BodyDecoder,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        loop {
            match decoder.decode(&mut self.read) {
                Ok(Decoded::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::Missing(count)) => {
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
    pub(in crate::origin) fn close_afterwards(&mut self) {
        self.is_persistent = false;
    }

    /// Whether another request may follow. Bytes after a response belong to none.
    pub(in crate::origin) fn after_response(&self) -> IdleState {
        match (self.read.is_empty(), self.is_persistent) {
            (true, true) => IdleState::Open,
            (_, false) => IdleState::Closed,
            (false, true) => IdleState::Faulty,
        }
    }

    /// The state of an idle connection. Anything that arrives on it is unasked.
    pub(in crate::origin) fn idle_state(&mut self) -> IdleState {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.link).poll_read(&mut cx, &mut buf) {
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
