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
use super::http1::BodyDecoder;
use super::pool::PoolReturn;
use super::servers::ServerSlot;
use super::upload::{is_malformed, waited_too_long};

/// The origin's body as it arrives. When it is read to its end, the connection is returned.
///
/// PERF: boxed, because each response has room for it, also one from the cache, and moves through several layers.
pub struct OriginBody(Box<BodyState>);

/// Reads along while a body passes.
pub trait BodyReader {
    /// The next part.
    fn part(&mut self, part: &Bytes);
    /// The body is whole.
    fn whole(self: Box<Self>);
}

struct BodyState {
    source: BodySource,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    give_back: Option<PoolReturn>,
    /// The server counts as busy with the request until the body has ended.
    server_slot: Option<ServerSlot>,
    ending: BodyEnd,
    /// Whether a part was returned, and the body has not been pending since.
    has_passed_on: bool,
    /// An error that followed such a part.
    failed: Option<OriginError>,
    /// What reads along, in learn mode and in the audit.
    reader: Option<Box<dyn BodyReader>>,
}

/// Where the parts of a body come from.
pub(super) enum BodySource {
    /// hyper's client.
    Hyper(Incoming),
    /// The connection itself, which the [`PoolReturn`] holds.
    Direct(BodyDecoder),
}

impl BodySource {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            Self::Direct(decoder) => decoder.is_ended(),
        }
    }
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
        source: BodySource,
        limit: Duration,
        ending: BodyEnd,
        give_back: PoolReturn,
    ) -> Self {
        let mut state = BodyState {
            source,
            limit,
            timer: None,
            give_back: Some(give_back),
            server_slot: None,
            ending,
            has_passed_on: false,
            failed: None,
            reader: None,
        };
        state.give_back_at_end();
        Self(Box::new(state))
    }

    /// Holds the place at the server until the body has ended.
    pub(super) fn hold(&mut self, place: ServerSlot) {
        if !self.0.source.is_end_stream() {
            self.0.server_slot = Some(place);
        }
    }

    /// From now on, this reads along. It is told nothing of a body that breaks off.
    pub fn read_along(&mut self, reader: Box<dyn BodyReader>) {
        if self.0.source.is_end_stream() && self.0.is_whole() {
            return reader.whole();
        }
        self.0.reader = Some(reader);
    }

    /// The next part of the body; `None` at its end. Cancel-safe.
    ///
    /// # Errors
    /// If the origin breaks off or stalls.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, OriginError>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await
    }
}

impl BodyState {
    fn give_back_at_end(&mut self) {
        if !self.source.is_end_stream() {
            return;
        }
        if let Some(give_back) = self.give_back.take() {
            give_back.now();
        }
        // After the connection is returned, so that the next request can use it.
        self.server_slot = None;
    }

    /// The next part from where it comes.
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        match (&mut self.source, &mut self.give_back) {
            (BodySource::Hyper(body), _) => {
                Pin::new(body).poll_frame(cx).map_err(OriginError::broken)
            }
            (BodySource::Direct(decoder), Some(give_back)) => match give_back.direct() {
                Some(direct) => direct.poll_body(decoder, cx).map_err(OriginError::broken),
                None => Poll::Ready(None),
            },
            (BodySource::Direct(decoder), None) if decoder.is_ended() => Poll::Ready(None),
            // It broke off before.
            (BodySource::Direct(_), None) => Poll::Ready(Some(Err(OriginError::CutOff))),
        }
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

    /// Tells what reads along.
    #[cold]
    fn read_frame(&mut self, frame: Option<&Frame<Bytes>>) {
        if let (Some(part), Some(reader)) = (frame.and_then(Frame::data_ref), &mut self.reader) {
            reader.part(part);
        }
        let is_over = frame.is_none() || self.source.is_end_stream() && self.is_whole();
        if is_over && let Some(reader) = self.reader.take() {
            reader.whole();
        }
    }

    /// Whether the body was complete when the stream ended.
    fn is_whole(&self) -> bool {
        match self.ending {
            BodyEnd::Delimited | BodyEnd::Bytes(0) => true,
            BodyEnd::Bytes(_) | BodyEnd::Stream => self.source.is_end_stream(),
        }
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = OriginError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, OriginError>>> {
        let this = &mut *self.0;
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(frame) = this.poll_source(cx) else {
            this.has_passed_on = false;
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
                this.has_passed_on = true;
                this.give_back_at_end();
                if this.reader.is_some() {
                    this.read_frame(Some(&frame));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                this.break_off();
                if !this.has_passed_on {
                    return Poll::Ready(Some(Err(error)));
                }
                // hyper's server drops what it has not written when a body fails. It writes while a body is
                // pending.
                this.failed = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None if !this.is_whole() => {
                this.break_off();
                Poll::Ready(Some(Err(OriginError::CutOff)))
            }
            None => {
                this.give_back_at_end();
                if this.reader.is_some() {
                    this.read_frame(None);
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0.source {
            BodySource::Hyper(body) => body.size_hint(),
            BodySource::Direct(decoder) => decoder.size_hint(),
        }
    }
}
