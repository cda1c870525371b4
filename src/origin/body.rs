//! The origin's body on its way back.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::OriginError;
use super::pool::Return;
use super::servers::Place;
use super::upload::{is_malformed, waited_too_long};

/// The origin's body as it comes. Read to its end, it gives the connection back.
pub struct OriginBody {
    body: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    give_back: Option<Return>,
    /// The server works on the request until the body has ended.
    place: Option<Place>,
    ending: Ending,
}

/// By what the end of a body is known. hyper takes a stream that was reset without an error for one that
/// ended, which it need not have (RFC 9113 §8.1 allows it behind the whole response only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// hyper knows it.
    Told,
    /// So many bytes of a stream are to come.
    Bytes(u64),
    /// The stream says that it is over, or trailers do.
    Stream,
}

impl std::fmt::Debug for OriginBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OriginBody").finish_non_exhaustive()
    }
}

impl OriginBody {
    pub(super) fn new(body: Incoming, limit: Duration, ending: Ending, give_back: Return) -> Self {
        let mut this =
            Self { body, limit, timer: None, give_back: Some(give_back), place: None, ending };
        this.give_back_at_end();
        this
    }

    /// Holds a place at the server until the body has ended.
    pub(super) fn hold(&mut self, place: Place) {
        self.place = Some(place).filter(|_| !self.body.is_end_stream());
    }

    fn give_back_at_end(&mut self) {
        if !self.body.is_end_stream() {
            return;
        }
        if let Some(give_back) = self.give_back.take() {
            give_back.now();
        }
        // Behind the connection, which the next may use.
        self.place = None;
    }

    /// The origin broke off.
    fn break_off(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back.over();
        }
    }

    /// Notes what came of a body whose end is to be told from a cut.
    fn note(&mut self, frame: &Frame<Bytes>) {
        self.ending = match (self.ending, frame.data_ref()) {
            (Ending::Bytes(left), Some(part)) => {
                Ending::Bytes(left.saturating_sub(part.len() as u64))
            }
            // Nothing but the end comes behind trailers.
            (Ending::Stream, None) => Ending::Told,
            (ending, _) => ending,
        };
        // Many end a stream by an empty frame, which nobody looks for where the length was said.
        if let (Ending::Bytes(0), Some(give_back)) = (self.ending, &self.give_back) {
            give_back.over();
        }
    }

    /// Whether nothing was left to come when nothing more came.
    fn is_whole(&self) -> bool {
        match self.ending {
            Ending::Told | Ending::Bytes(0) => true,
            Ending::Bytes(_) | Ending::Stream => self.body.is_end_stream(),
        }
    }

    /// The next part of the body; `None` at its end. Cancel-safe.
    ///
    /// # Errors
    /// When the origin breaks off or stops.
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
                if let (Ending::Told, Some(trailers)) = (this.ending, frame.trailers_ref()) {
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
