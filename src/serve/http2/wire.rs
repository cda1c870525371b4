//! The socket of a connection of HTTP/2, above its deadlines and above TLS: what goes through is metered,
//! and the connection's state follows from it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::meter::{HEAD, Meter, Stand};
use crate::proxy::pulse::Pulse;
use crate::telemetry::metrics::Cut;

/// The largest frame that a client may send: the least that RFC 9113 §6.5.2 allows.
pub(super) const FRAME: u32 = 16 * 1024;

/// Writes of fewer bytes are acknowledgements and pings: nothing that a client waits for moves by them.
const MOVES: usize = 64;

/// The number of the frame that ends a connection (RFC 9113 §6.8).
const GOAWAY: u8 = 7;

/// So much is read before whoever reads the bodies has his turn: a client's burst of small messages shall
/// not look as if nobody wanted them.
const TURN: usize = 32 * 1024;

/// What is known of what went through.
#[derive(Debug, Default)]
pub(super) struct Flow {
    moved: Cell<Option<Instant>>,
    flood: Cell<Option<Cut>>,
}

impl Flow {
    /// When something was sent that somebody waits for.
    pub(super) fn moved(&self) -> Option<Instant> {
        self.moved.get()
    }

    /// What the connection was cut for.
    pub(super) fn flood(&self) -> Option<Cut> {
        self.flood.get()
    }
}

/// Where what is sent stands among frames.
#[derive(Debug, Default)]
struct Outgoing {
    /// So many bytes of a frame's head were sent.
    head: usize,
    /// So many bytes of its payload are to be sent, as far as the head says it.
    payload: usize,
}

impl Outgoing {
    /// These bytes were sent.
    fn went(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let [first, behind @ ..] = rest {
            if self.head < HEAD {
                // A head begins with the length, in three bytes.
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

    /// Whether no frame is half sent.
    fn is_between(&self) -> bool {
        self.head == 0
    }
}

/// A metered socket.
#[derive(Debug)]
pub(super) struct Wire<S> {
    socket: S,
    meter: Meter,
    outgoing: Outgoing,
    /// Bytes read in this turn.
    turn: usize,
    begun: Instant,
    pulse: Rc<Pulse>,
    flow: Rc<Flow>,
}

impl<S> Wire<S> {
    pub(super) fn new(socket: S, meter: Meter, pulse: Rc<Pulse>, flow: Rc<Flow>) -> Self {
        let outgoing = Outgoing::default();
        Self { socket, meter, outgoing, turn: 0, begun: Instant::now(), pulse, flow }
    }

    fn came(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.meter.came(bytes, self.begun.elapsed()) {
            Ok(Stand::Between) => self.pulse.head_ends(),
            Ok(Stand::Within) => self.pulse.head_goes_on(),
            Ok(Stand::WithinAnother) => self.pulse.head_begins(),
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

impl<S: AsyncWrite + Unpin> Wire<S> {
    /// Says why the connection ends, and which requests may be sent again, where that can be said at once:
    /// the library says nothing behind an error of the socket.
    fn say_farewell(&mut self, cx: &mut Context<'_>) {
        // Who never began to speak HTTP/2 would not understand it.
        if self.flow.flood() == Some(Cut::Protocol) || !self.outgoing.is_between() {
            return;
        }
        let mut frame = [0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        frame[HEAD..HEAD + 4].copy_from_slice(&self.meter.last_stream().to_be_bytes());
        frame[HEAD + 4..].copy_from_slice(&u32::from(h2::Reason::ENHANCE_YOUR_CALM).to_be_bytes());
        let socket = Pin::new(&mut self.socket);
        // Of a part of it nothing could be made; whoever does not read gets none.
        let said = socket.poll_write(cx, &frame);
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        tracing::debug!(?said, ?flushed, "a client of HTTP/2 was told why");
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
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
        let result = this.came(&buf.filled()[before..]);
        if result.is_err() {
            buf.set_filled(before);
            this.say_farewell(cx);
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
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
    fn what_is_sent_is_followed_however_it_is_cut() {
        let frames = [&[0, 0, 0, 4, 1, 0, 0, 0, 0][..], &[0, 1, 2, 0, 0, 0, 0, 0, 1], &[7; 258]];
        let bytes = [frames.concat(), frames.concat()].concat();
        let whole = [0, 9, 276, 285, 552];
        for size in 1..bytes.len() {
            let mut outgoing = Outgoing::default();
            let mut sent = 0;
            for part in bytes.chunks(size) {
                outgoing.went(part);
                sent += part.len();
                assert_eq!(outgoing.is_between(), whole.contains(&sent), "{sent} by {size}");
            }
        }
    }
}
