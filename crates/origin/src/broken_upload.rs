//! An upload that the origin no longer reads: the answer that is there counts before the broken write.
//!
//! RFC 9112 §9.3: a client that still sends its request reads the answer, and stops sending. An origin that refuses an
//! upload (413, 401, a redirect) and closes resets the connection, so that the next write fails, often before the
//! answer was read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A socket whose reader learns of a failed write only after what the origin has sent.
#[derive(Debug)]
pub(super) struct AnswerBeforeBreak<S> {
    socket: S,
    /// Why a write has failed. Later ones wait for ever: the reader ends the connection.
    broken: Option<io::Error>,
}

impl<S> AnswerBeforeBreak<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { socket, broken: None }
    }

    /// Keeps the error of a write, and lets the writer wait. The reader is polled in the same turn, or again when the
    /// socket has something for it, the end included.
    fn or_wait<T>(
        &mut self,
        cx: &Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(error)) => {
                self.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            written => written,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AnswerBeforeBreak<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(cx, buf));
        let is_over = read.is_err() || buf.filled().len() == before && buf.remaining() > 0;
        match self.broken.take_if(|_| is_over) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(read),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnswerBeforeBreak<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.broken.is_some() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.or_wait(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.broken.is_some() {
            return Poll::Pending;
        }
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        self.or_wait(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.is_some() {
            return Poll::Pending;
        }
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.or_wait(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Has an answer to read, and takes nothing.
    struct RefusingSocket(&'static [u8]);

    impl AsyncRead for RefusingSocket {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            buf.put_slice(self.0);
            self.0 = b"";
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for RefusingSocket {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn an_answer_is_read_before_a_failed_write_is_told() {
        let mut socket = AnswerBeforeBreak::new(RefusingSocket(b"413"));
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..2 {
            assert!(Pin::new(&mut socket).poll_write(cx, b"upload").is_pending());
            assert!(Pin::new(&mut socket).poll_flush(cx).is_pending());
        }
        let mut space = [0; 8];
        let mut buf = ReadBuf::new(&mut space);
        assert!(matches!(Pin::new(&mut socket).poll_read(cx, &mut buf), Poll::Ready(Ok(()))));
        assert_eq!(buf.filled(), b"413");
        let Poll::Ready(Err(error)) = Pin::new(&mut socket).poll_read(cx, &mut buf) else {
            panic!("the end is the failure of the write");
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
