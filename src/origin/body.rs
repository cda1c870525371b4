//! The body of the origin's response.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::OriginError;
use super::pool::PoolReturn;
use super::servers::ServerSlot;
use super::upload::{is_malformed, waited_too_long};

/// The origin's body as it arrives. When it is read to its end, the connection is returned.
pub struct OriginBody {
    body: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    give_back: Option<PoolReturn>,
    /// The server counts as busy with the request until the body has ended.
    server_slot: Option<ServerSlot>,
    ending: BodyEnd,
}

/// What marks the end of a body. hyper takes a stream that was reset without an error for one that ended, but
/// the response may be incomplete (RFC 9113 §8.1 allows such a reset only after the whole response).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// hyper detects it.
    Delimited,
    /// This many bytes of a stream are still to come.
    Bytes(u64),
    /// The stream signals its end, or trailers do.
    Stream,
}

impl std::fmt::Debug for OriginBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OriginBody").finish_non_exhaustive()
    }
}

impl OriginBody {
    pub(super) fn new(
        body: Incoming,
        limit: Duration,
        ending: BodyEnd,
        give_back: PoolReturn,
    ) -> Self {
        let mut this = Self {
            body,
            limit,
            timer: None,
            give_back: Some(give_back),
            server_slot: None,
            ending,
        };
        this.give_back_at_end();
        this
    }

    /// Holds the place at the server until the body has ended.
    pub(super) fn hold(&mut self, place: ServerSlot) {
        self.server_slot = Some(place).filter(|_| !self.body.is_end_stream());
    }

    fn give_back_at_end(&mut self) {
        if !self.body.is_end_stream() {
            return;
        }
        if let Some(give_back) = self.give_back.take() {
            give_back.now();
        }
        // After the connection is returned, so that the next request can use it.
        self.server_slot = None;
    }

    /// The origin broke off.
    fn break_off(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back.over();
        }
    }

    /// Updates the expected end with what arrived, for a body whose end must be distinguished from a cut.
    fn note(&mut self, frame: &Frame<Bytes>) {
        self.ending = match (self.ending, frame.data_ref()) {
            (BodyEnd::Bytes(left), Some(part)) => {
                BodyEnd::Bytes(left.saturating_sub(part.len() as u64))
            }
            // Only the end follows trailers.
            (BodyEnd::Stream, None) => BodyEnd::Delimited,
            (ending, _) => ending,
        };
        // Many origins end a stream with an empty frame, which is never read when the length was announced.
        if let (BodyEnd::Bytes(0), Some(give_back)) = (self.ending, &self.give_back) {
            give_back.over();
        }
    }

    /// Whether the body was complete when the stream ended.
    fn is_whole(&self) -> bool {
        match self.ending {
            BodyEnd::Delimited | BodyEnd::Bytes(0) => true,
            BodyEnd::Bytes(_) | BodyEnd::Stream => self.body.is_end_stream(),
        }
    }

    /// The next part of the body; `None` at its end. Cancel-safe.
    ///
    /// # Errors
    /// If the origin breaks off or stalls.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, OriginError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
            ready!(waited_too_long(&mut this.timer, this.limit, cx));
            if let Some(give_back) = this.give_back.take() {
                give_back.timed_out();
            }
            return Poll::Ready(Some(Err(OriginError::BodyTimedOut)));
        };
        this.timer = None;
        match frame {
            Some(Ok(frame)) => {
                if let (BodyEnd::Delimited, Some(trailers)) = (this.ending, frame.trailers_ref()) {
                    // SECURITY: as in a client's trailers, it may be a part of the next response.
                    this.break_off();
                    if is_malformed(trailers) {
                        return Poll::Ready(Some(Err(OriginError::Malformed("empty trailers"))));
                    }
                }
                this.note(&frame);
                this.give_back_at_end();
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                this.break_off();
                Poll::Ready(Some(Err(OriginError::Broken(error))))
            }
            None if !this.is_whole() => {
                this.break_off();
                Poll::Ready(Some(Err(OriginError::CutOff)))
            }
            None => {
                this.give_back_at_end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
