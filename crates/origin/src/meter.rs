//! Limits what an origin may send before its response begins. hyper limits one head, but accepts any number
//! of interim responses (RFC 9110 §15.2 sets no maximum).

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of heads that are read for one response, including interim responses and the part of the
/// body that hyper reads ahead.
pub(super) const HEADS_MAX: usize = 256 * 1024;

/// How many bytes may still be read from an origin connection.
#[derive(Clone, Debug)]
pub(super) struct Allowance(Rc<Cell<usize>>);

impl Allowance {
    pub(super) fn new() -> Self {
        Self(Rc::new(Cell::new(HEADS_MAX)))
    }

    /// A request is about to be sent: heads come next.
    pub(super) fn heads(&self) {
        self.0.set(HEADS_MAX);
    }

    /// The response has begun; its body is limited elsewhere.
    pub(super) fn body(&self) {
        self.0.set(usize::MAX);
    }

    fn take(&self, read: usize) -> io::Result<()> {
        if self.0.get() == usize::MAX {
            return Ok(());
        }
        let left = self.0.get().checked_sub(read);
        self.0.set(left.ok_or_else(|| io::Error::other("heads without end"))?);
        Ok(())
    }
}

/// A socket that is read only while the allowance lasts.
#[derive(Debug)]
pub(super) struct HeadLimitedIo<S> {
    socket: S,
    allowance: Allowance,
}

impl<S> HeadLimitedIo<S> {
    pub(super) fn new(socket: S, allowance: Allowance) -> Self {
        Self { socket, allowance }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadLimitedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        Poll::Ready(self.allowance.take(buf.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadLimitedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
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
