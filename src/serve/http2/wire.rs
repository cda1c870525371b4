//! The socket of an HTTP/2 connection, above its deadlines and above TLS: all bytes are metered, and the
//! connection's state follows from them.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::flood::{FloodBudget, FrameState, HEAD};
use crate::proxy::connection_state::ConnectionState;
use crate::telemetry::metrics::ConnectionCut;

/// The largest frame that a client may send: the minimum that RFC 9113 §6.5.2 allows.
pub(super) const FRAME: u32 = 16 * 1024;

/// Smaller writes are acknowledgements and pings, and do not count as progress of a response.
const MOVES: usize = 64;

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
}

impl OutgoingFrames {
    /// Records that these bytes were sent.
    fn went(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let [first, behind @ ..] = rest {
            if self.head < HEAD {
                // A frame's header begins with the length, in three bytes.
                if self.head < 3 {
                    self.payload = (self.payload << 8) | usize::from(*first);
                }
                self.head += 1;
                rest = behind;
            } else {
                let taken = rest.len().min(self.payload);
                self.payload -= taken;
                rest = &rest[taken..];
            }
            if self.head == HEAD && self.payload == 0 {
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
#[derive(Debug)]
pub(super) struct MeteredSocket<S> {
    socket: S,
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
        let outgoing = OutgoingFrames::default();
        Self { socket, meter, outgoing, turn: 0, begun: Instant::now(), connection_state, flow }
    }

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
            let mut left = bytes;
            for buf in bufs {
                let taken = buf.len().min(left);
                self.outgoing.went(&buf[..taken]);
                left -= taken;
            }
            self.meter.sent(bytes);
            if bytes >= MOVES {
                self.flow.moved.set(Some(Instant::now()));
            }
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> MeteredSocket<S> {
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
        let socket = Pin::new(&mut self.socket);
        // A partial frame would be useless; a client that does not read gets none.
        let said = socket.poll_write(cx, &frame);
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        tracing::debug!(?said, ?flushed, "sent GOAWAY to a client of HTTP/2");
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MeteredSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
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
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.socket).poll_write(cx, buf));
        Poll::Ready(self.went(&[IoSlice::new(buf)], result))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs));
        Poll::Ready(self.went(bufs, result))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
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
                outgoing.went(part);
                sent += part.len();
                assert_eq!(outgoing.is_between(), whole.contains(&sent), "{sent} by {size}");
            }
        }
    }
}
