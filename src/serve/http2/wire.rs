//! The socket of a connection of HTTP/2, above its deadlines and above TLS: what goes through is metered,
//! and the connection's state follows from it.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::meter::{Meter, Stand};
use crate::metrics::Cut;
use crate::request::client::Pulse;

/// Writes of fewer bytes are acknowledgements and pings: nothing that a client waits for moves by them.
const MOVES: usize = 64;

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

/// A metered socket.
#[derive(Debug)]
pub(super) struct Wire<S> {
    socket: S,
    meter: Meter,
    /// Bytes read in this turn.
    turn: usize,
    begun: Instant,
    pulse: Rc<Pulse>,
    flow: Rc<Flow>,
}

impl<S> Wire<S> {
    pub(super) fn new(socket: S, pulse: Rc<Pulse>, flow: Rc<Flow>) -> Self {
        Self { socket, meter: Meter::default(), turn: 0, begun: Instant::now(), pulse, flow }
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

    fn went(&mut self, result: io::Result<usize>) -> io::Result<usize> {
        if let Ok(bytes) = result {
            self.meter.sent(bytes);
            if bytes >= MOVES {
                self.flow.moved.set(Some(Instant::now()));
            }
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
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
        Poll::Ready(self.went(result))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs));
        Poll::Ready(self.went(result))
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
