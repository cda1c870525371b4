//! The socket of an HTTP/2 connection, above its deadlines and above TLS: all bytes are metered, the connection's
//! state follows from them, and what is written in one turn goes out together.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use anteroom_telemetry::metrics::ConnectionCut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::flood::{CompletedFrames, FloodBudget, FrameState, HEAD};
use crate::connection_state::ConnectionState;

/// The largest frame that a client may send: the minimum that RFC 9113 §6.5.2 allows.
pub(super) const FRAME: u32 = 16 * 1024;

/// Smaller frames are acknowledgements and pings, and do not count as progress of a response.
const MOVES: usize = 64;

/// The most bytes that are collected. As much as a TLS record holds (RFC 8446 §5.1).
const COLLECTED_MAX: usize = 16 * 1024;

/// From this size on, what is written goes to the socket at once, and is not copied.
const DIRECT: usize = 4 * 1024;

/// The type of the frame that ends a connection (RFC 9113 §6.8).
const GOAWAY: u8 = 7;

/// This much is read before the code that reads the bodies runs: otherwise a client's burst of small messages
/// would look unread.
const TURN: usize = 32 * 1024;

/// What is known of the bytes sent and received.
#[derive(Debug, Default)]
pub(super) struct FrameCounts {
    moved: Cell<Option<Instant>>,
    flood: Cell<Option<ConnectionCut>>,
}

impl FrameCounts {
    /// When something other than acknowledgements was last sent.
    pub(super) fn moved(&self) -> Option<Instant> {
        self.moved.get()
    }

    /// Why the connection was cut.
    pub(super) fn flood(&self) -> Option<ConnectionCut> {
        self.flood.get()
    }
}

/// The position of the sent bytes among frames.
#[derive(Debug, Default)]
struct OutgoingFrames {
    /// Bytes of a frame's header sent so far.
    head: usize,
    /// Bytes of its payload still to be sent, as far as its header is known.
    payload: usize,
    /// Whether the frame is no acknowledgement or ping.
    is_large: bool,
    kind: u8,
    flags: u8,
    length: usize,
}

/// What bytes that were sent have completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SentBytes {
    /// Whether a part of a large frame was among them.
    moves: bool,
    completed: CompletedFrames,
}

impl OutgoingFrames {
    /// Records that these bytes were sent.
    fn went(&mut self, bytes: &[u8], sent: &mut SentBytes) {
        let mut rest = bytes;
        while let [first, behind @ ..] = rest {
            if self.head < HEAD {
                // A frame's header begins with the length, in three bytes, the type and the flags.
                match self.head {
                    ..3 => self.payload = (self.payload << 8) | usize::from(*first),
                    3 => self.kind = *first,
                    4 => self.flags = *first,
                    _ => {}
                }
                self.head += 1;
                self.length = self.payload;
                self.is_large = self.head == HEAD && HEAD + self.payload >= MOVES;
                rest = behind;
            } else {
                sent.moves |= self.is_large;
                let taken = rest.len().min(self.payload);
                self.payload -= taken;
                rest = &rest[taken..];
            }
            if self.head == HEAD && self.payload == 0 {
                sent.completed.add(self.kind, self.flags, self.length);
                *self = Self::default();
            }
        }
    }

    /// Whether no frame is partly sent.
    fn is_between(&self) -> bool {
        self.head == 0
    }
}

/// A metered socket.
///
/// The library flushes after each DATA frame of 256 bytes or more. Frames are collected here instead, and
/// [`CollectedWrites`] sends them after the turn in which they were written: in one system call and, as far as they
/// fit, in one TLS record.
#[derive(Debug)]
pub(super) struct MeteredSocket<S>(Rc<RefCell<Wire<S>>>);

/// What a [`MeteredSocket`] has collected.
#[derive(Debug)]
pub(super) struct CollectedWrites<S>(Rc<RefCell<Wire<S>>>);

#[derive(Debug)]
struct Wire<S> {
    socket: S,
    /// Written by the library, and not sent yet: at most [`COLLECTED_MAX`].
    collected: Vec<u8>,
    /// Whether the socket may hold bytes of its own, as TLS does.
    is_unflushed: bool,
    /// Why collected bytes could not be sent. The library learns it from the next call.
    failed: Option<io::Error>,
    meter: FloodBudget,
    outgoing: OutgoingFrames,
    /// Bytes read in this turn.
    turn: usize,
    begun: Instant,
    connection_state: Rc<ConnectionState>,
    flow: Rc<FrameCounts>,
}

impl<S> MeteredSocket<S> {
    pub(super) fn new(
        socket: S,
        meter: FloodBudget,
        connection_state: Rc<ConnectionState>,
        flow: Rc<FrameCounts>,
    ) -> Self {
        Self(Rc::new(RefCell::new(Wire {
            socket,
            collected: Vec::new(),
            is_unflushed: false,
            failed: None,
            meter,
            outgoing: OutgoingFrames::default(),
            turn: 0,
            begun: Instant::now(),
            connection_state,
            flow,
        })))
    }

    /// What is collected here. Must be sent after each turn.
    pub(super) fn collected_writes(&self) -> CollectedWrites<S> {
        CollectedWrites(Rc::clone(&self.0))
    }
}

impl<S> CollectedWrites<S> {
    /// The socket below, once the [`MeteredSocket`] is gone.
    pub(super) fn into_socket(self) -> Option<S> {
        Rc::into_inner(self.0).map(|wire| wire.into_inner().socket)
    }
}

impl<S: AsyncWrite + Unpin> CollectedWrites<S> {
    /// Sends what was collected, as far as the socket takes it. Wakes the task when the socket takes more, or has
    /// failed.
    pub(super) fn send(&self, cx: &mut Context<'_>) {
        let mut wire = self.0.borrow_mut();
        if wire.failed.is_some() {
            return;
        }
        if let Poll::Ready(Err(error)) = wire.poll_send(cx) {
            wire.failed = Some(error);
            cx.waker().wake_by_ref();
        }
    }
}

impl<S> Wire<S> {
    fn bytes_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.meter.count_frames(bytes, self.begun.elapsed()) {
            Ok(FrameState::Between) => self.connection_state.head_ends(),
            Ok(FrameState::Within) => self.connection_state.head_goes_on(),
            Ok(FrameState::WithinAnother) => self.connection_state.head_begins(),
            Err(flood) => {
                self.flow.flood.set(Some(flood));
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        Ok(())
    }

    fn went(&mut self, bufs: &[IoSlice<'_>], result: io::Result<usize>) -> io::Result<usize> {
        if let Ok(bytes) = result {
            let (mut left, mut sent) = (bytes, SentBytes::default());
            for buf in bufs {
                let taken = buf.len().min(left);
                self.outgoing.went(&buf[..taken], &mut sent);
                left -= taken;
            }
            self.meter.sent(bytes, sent.completed);
            if sent.moves {
                self.flow.moved.set(Some(Instant::now()));
            }
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Sends all that was written.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.collected.is_empty() {
            let collected = std::mem::take(&mut self.collected);
            let written = Pin::new(&mut self.socket).poll_write(cx, &collected);
            let Poll::Ready(result) = written else {
                self.collected = collected;
                return Poll::Pending;
            };
            let count = self.went(&[IoSlice::new(&collected)], result)?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_unflushed = true;
            // An idle connection keeps no buffer.
            if count < collected.len() {
                self.collected = collected;
                self.collected.drain(..count);
            }
        }
        if self.is_unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Collects what was written, or sends it after what was collected before.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let length = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        if length < DIRECT && self.collected.len() + length <= COLLECTED_MAX {
            if self.collected.capacity() == 0 {
                self.collected.reserve(DIRECT);
            }
            bufs.iter().for_each(|buf| self.collected.extend_from_slice(buf));
            return Poll::Ready(Ok(length));
        }
        ready!(self.poll_send(cx))?;
        if length < DIRECT {
            return self.poll_write(cx, bufs);
        }
        let result = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs));
        self.is_unflushed = true;
        Poll::Ready(self.went(bufs, result))
    }

    /// Sends the reason for the end of the connection, and the last processed stream, if that is possible at
    /// once: the library sends nothing after an error of the socket.
    fn say_farewell(&mut self, cx: &mut Context<'_>) {
        // A client that never began to speak HTTP/2 could not parse it.
        if self.flow.flood() == Some(ConnectionCut::Protocol) || !self.outgoing.is_between() {
            return;
        }
        let mut frame = [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        frame[HEAD..HEAD + 4].copy_from_slice(&self.meter.last_stream().to_be_bytes());
        frame[HEAD + 4..].copy_from_slice(&u32::from(h2::Reason::ENHANCE_YOUR_CALM).to_be_bytes());
        self.collected.extend_from_slice(&frame);
        // A client that does not read gets none.
        let sent = self.poll_send(cx);
        tracing::debug!(?sent, "sent GOAWAY to a client of HTTP/2");
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MeteredSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        let this = &mut *wire;
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Err(error));
        }
        if this.turn >= TURN {
            this.turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let Poll::Ready(result) = Pin::new(&mut this.socket).poll_read(cx, buf) else {
            this.turn = 0;
            return Poll::Pending;
        };
        result?;
        this.turn += buf.filled().len() - before;
        let result = this.bytes_read(&buf.filled()[before..]);
        if result.is_err() {
            buf.set_filled(before);
            this.say_farewell(cx);
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().socket.is_write_vectored()
    }

    /// What was written is sent after the turn.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.borrow_mut().failed.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.0.borrow_mut();
        if let Some(error) = wire.failed.take() {
            return Poll::Ready(Err(error));
        }
        ready!(wire.poll_send(cx))?;
        Pin::new(&mut wire.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outgoing_frames_are_tracked_across_any_split() {
        let frames = [&[0, 0, 0, 4, 1, 0, 0, 0, 0][..], &[0, 1, 2, 0, 0, 0, 0, 0, 1], &[7; 258]];
        let bytes = [frames.concat(), frames.concat()].concat();
        let whole = [0, 9, 276, 285, 552];
        for size in 1..bytes.len() {
            let mut outgoing = OutgoingFrames::default();
            let mut sent = 0;
            for part in bytes.chunks(size) {
                outgoing.went(part, &mut SentBytes::default());
                sent += part.len();
                assert_eq!(outgoing.is_between(), whole.contains(&sent), "{sent} by {size}");
            }
        }
    }

    #[test]
    fn whole_answers_and_data_are_counted_across_any_split() {
        let frames = [
            // A head, data, data of a byte, trailers that end the answer; a WINDOW_UPDATE; a head without a body; data that ends one.
            &[0, 0, 1, 1, 4, 0, 0, 0, 1, 9][..],
            &[0, 0, 4, 0, 0, 0, 0, 0, 1, 9, 9, 9, 9],
            &[0, 0, 1, 0, 0, 0, 0, 0, 1, 9],
            &[0, 0, 1, 1, 5, 0, 0, 0, 1, 9],
            &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            &[0, 0, 1, 1, 5, 0, 0, 0, 3, 9],
            &[0, 0, 0, 0, 1, 0, 0, 0, 5],
            &[0, 0, 0, 0, 0, 0, 0, 0, 7],
        ];
        let bytes = frames.concat();
        for size in 1..=bytes.len() {
            let (mut outgoing, mut sent) = (OutgoingFrames::default(), SentBytes::default());
            bytes.chunks(size).for_each(|part| outgoing.went(part, &mut sent));
            assert_eq!(sent.completed, CompletedFrames { answers: 3, data: 1 }, "by {size}");
        }
    }
}
