//! Requests without a body, read and answered in the connection's own task.
//!
//! Nearly all requests are of this kind. There is no channel and no second state machine between the socket
//! and the request, so that a hit is one read, one write and little else.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use ::http::Method;
use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};

use super::head::{Front, HeadParser, PlainRequest};
use super::queue::WriteQueue;
use super::response::{BodyLength, Framing, InvalidLength, encode_head, encode_stored};
use crate::connection::client::Client;
use crate::connection_state::ConnectionState;
use crate::serve::context::ConnectionContext;
use crate::serve::io::{TimedSocket, linger};
use crate::serve::stream::ClientStream;
use crate::{Body, BodyError, ClientResponse, respond};

/// The least room for a read. A browser's head is some 600 bytes.
const ROOM_MIN: usize = 1024;
/// How much the buffer grows by. Each connection in use has one.
const ROOM: usize = 4 * 1024;

/// A connection, with what was read and what is to be written.
#[derive(Debug)]
pub(super) struct DirectConnection {
    io: TimedSocket<ClientStream>,
    read: BytesMut,
    parser: HeadParser,
    queue: WriteQueue,
}

/// Why a conversation ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConversationEnd {
    /// The next request needs hyper.
    ForHyper,
    /// No request came for a moment.
    Idle,
    /// The connection is over.
    Over,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The socket failed, or the client was too slow.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The response broke off.
    #[error("a response broke off: {0}")]
    Body(#[from] BodyError),
    /// The response is shorter than its length.
    #[error("a response ended early")]
    Short,
    /// The response cannot be framed.
    #[error(transparent)]
    Length(#[from] InvalidLength),
}

impl DirectConnection {
    pub(super) fn new(io: TimedSocket<ClientStream>) -> Self {
        Self {
            io,
            read: BytesMut::new(),
            parser: HeadParser::default(),
            queue: WriteQueue::default(),
        }
    }

    /// The socket between two requests, and the bytes that were read.
    pub(super) fn into_parts(self) -> (TimedSocket<ClientStream>, Bytes) {
        (self.io, self.read.freeze())
    }

    /// Answers requests until one needs hyper, or the connection is over. Once `is_stopping`, the request in
    /// progress is the last.
    ///
    /// # Errors
    /// See [`ConnectionError`]. The connection must be closed then.
    pub(super) async fn converse(
        &mut self,
        client: &Rc<Client>,
        context: &ConnectionContext,
        head_max: usize,
        is_stopping: &Cell<bool>,
    ) -> Result<ConversationEnd, ConnectionError> {
        let state = &*client.state;
        // Whether the server ends the connection, and the client may have sent another request.
        let is_server_end = loop {
            let front = poll_fn(|cx| self.poll_request(cx, head_max, state, is_stopping)).await?;
            let request = match front {
                Some(Front::Request(request)) => request,
                Some(_) => return Ok(ConversationEnd::ForHyper),
                None => break is_stopping.get(),
            };
            let PlainRequest { head, closes } = request;
            client.state.takes_body(false, false);
            let is_head = head.method == Method::HEAD;
            // PERF: boxed. Inside the connection's state it would be cold memory at each request. The box comes first,
            // so that the future, of some kilobytes, is made in it and not copied there.
            let place = Box::new_uninit();
            let responding = respond(context.inside.worker(), Rc::clone(client), (head, None));
            let mut responding = Box::into_pin(Box::write(place, responding));
            let Some(response) = poll_fn(|cx| self.poll_response(responding.as_mut(), cx)).await?
            else {
                return Ok(ConversationEnd::Over);
            };
            drop(responding);
            let is_last = is_stopping.get() || context.leaving.is_cancelled();
            if self.send(response, is_head, closes || is_last).await? {
                break is_last;
            }
        };
        self.io.shutdown().await?;
        if is_server_end {
            // Boxed, so that a connection in use needs no room for it.
            Box::pin(linger(&mut self.io)).await;
        }
        Ok(ConversationEnd::Over)
    }

    /// What stands at the front of the buffer once it is complete; `None`: nothing more comes, or none is
    /// waited for.
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        head_max: usize,
        state: &ConnectionState,
        is_stopping: &Cell<bool>,
    ) -> Poll<io::Result<Option<Front>>> {
        loop {
            match self.parser.parse(&mut self.read, head_max) {
                Front::Partial if self.read.is_empty() => {}
                // It may have come with the request before it.
                Front::Partial => state.head_goes_on(),
                front => return Poll::Ready(Ok(Some(front))),
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(None)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // A request that has begun to arrive is still answered, within the deadline for heads.
                Poll::Pending if is_stopping.get() && self.read.is_empty() => {
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// The response, once there is one; `None`: the client has left. Sends interim responses in the meantime.
    fn poll_response(
        &mut self,
        responding: Pin<&mut impl Future<Output = ClientResponse>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<ClientResponse>>> {
        if let Poll::Ready(response) = responding.poll(cx) {
            return Poll::Ready(Ok(Some(response)));
        }
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.io).poll_flush(cx) {
            return Poll::Ready(Err(error));
        }
        self.poll_end(cx).map(|ended| ended.map(|()| None))
    }

    /// Ready when the client has closed the connection. A request behind the current one stays unread.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.read.is_empty() {
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < ROOM_MIN {
            self.read.reserve(ROOM);
        }
        pin!(self.io.read_buf(&mut self.read)).poll(cx)
    }

    /// Sends a response. Returns whether the connection closes after it.
    async fn send(
        &mut self,
        response: ClientResponse,
        is_to_head: bool,
        closes: bool,
    ) -> Result<bool, ConnectionError> {
        let (begun, body) = match response {
            ClientResponse::Stored(stored) => {
                let begun = encode_stored(self.queue.buffer(), &stored, closes);
                (begun, stored.into_body())
            }
            ClientResponse::Other(response) => {
                let (parts, body) = response.into_parts();
                let length = BodyLength::of(&body);
                (encode_head(self.queue.buffer(), &parts, is_to_head, length, closes)?, body)
            }
        };
        let sent = self.send_body(body, begun.framing).await;
        // What a response has that broke off reaches the client, too.
        poll_fn(|cx| self.queue.poll_write(&mut self.io, cx)).await?;
        self.io.flush().await?;
        sent.map(|()| begun.closes)
    }

    /// Queues a body to its end, and writes what does not fit into the queue.
    async fn send_body(
        &mut self,
        mut body: Body,
        mut framing: Framing,
    ) -> Result<(), ConnectionError> {
        while !framing.is_ended() && !body.is_end_stream() {
            let Some(frame) = poll_fn(|cx| self.poll_frame(&mut body, cx)).await? else { break };
            // Trailers are left out.
            if let Ok(part) = frame.into_data() {
                framing.put_data(&mut self.queue, part);
            }
        }
        match framing.put_end(&mut self.queue) {
            true => Ok(()),
            false => Err(ConnectionError::Short),
        }
    }

    /// The next frame of a body. What is queued is written when it is much, or while there is no frame.
    fn poll_frame(
        &mut self,
        body: &mut Body,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Frame<Bytes>>, ConnectionError>> {
        if self.queue.is_full() {
            match self.queue.poll_write(&mut self.io, cx) {
                Poll::Ready(written) => written?,
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame.transpose().map_err(ConnectionError::from));
        }
        if self.queue.poll_write(&mut self.io, cx)?.is_pending() {
            return Poll::Pending;
        }
        let _ = Pin::new(&mut self.io).poll_flush(cx)?;
        match self.poll_end(cx)? {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe).into())),
            Poll::Pending => Poll::Pending,
        }
    }
}
