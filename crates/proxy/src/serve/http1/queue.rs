//! What a connection is about to write: heads and small parts in one buffer, large parts as they are.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite;

/// Up to this size, copying a part is cheaper than another slice in the system call.
const COPIED_MAX: usize = 4 * 1024;
/// From here on, nothing more is queued before the queue is written.
const FULL: usize = 64 * 1024;
/// The most slices of one system call.
const SLICES: usize = 16;
/// The most capacity that the buffer keeps between two responses.
const KEPT_CAPACITY: usize = 16 * 1024;

/// Bytes that wait to be written.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// Heads, the framing of chunks, and copies of small parts.
    buffer: Vec<u8>,
    /// How much of the buffer is written.
    written: usize,
    /// Large parts, each with the position in the buffer where it belongs.
    parts: VecDeque<(usize, Bytes)>,
    /// How many bytes wait in `parts`.
    parts_len: usize,
}

impl WriteQueue {
    /// The buffer, to append a head or framing to it.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Queues a part of a body.
    pub(super) fn push(&mut self, part: Bytes) {
        if part.len() <= COPIED_MAX {
            self.buffer.extend_from_slice(&part);
        } else {
            self.parts_len += part.len();
            self.parts.push_back((self.buffer.len(), part));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written == self.buffer.len() && self.parts.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.buffer.len() - self.written + self.parts_len >= FULL
    }

    /// Writes everything.
    pub(super) fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        io: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let written = if self.parts.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, &self.buffer[self.written..]))?
            } else {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let count = self.slices(&mut slices);
                match &slices[..count] {
                    // PERF: of a single slice tokio knows whether the socket is full, and does not try again.
                    [slice] => ready!(Pin::new(&mut *io).poll_write(cx, slice))?,
                    slices => ready!(Pin::new(&mut *io).poll_write_vectored(cx, slices))?,
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        self.written = 0;
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_CAPACITY);
        Poll::Ready(Ok(()))
    }

    /// The first bytes that wait, in order.
    fn slices<'q>(&'q self, slices: &mut [IoSlice<'q>; SLICES]) -> usize {
        let (mut from, mut count) = (self.written, 0);
        // Each part takes a slice, and so may what stands before it.
        for (at, part) in self.parts.iter().take(SLICES / 2) {
            if from < *at {
                slices[count] = IoSlice::new(&self.buffer[from..*at]);
                (from, count) = (*at, count + 1);
            }
            slices[count] = IoSlice::new(part);
            count += 1;
        }
        if count < SLICES && self.parts.len() <= SLICES / 2 && from < self.buffer.len() {
            slices[count] = IoSlice::new(&self.buffer[from..]);
            count += 1;
        }
        count
    }

    /// So many bytes were written.
    fn advance(&mut self, mut count: usize) {
        while let Some((at, part)) = self.parts.front_mut() {
            let before = (*at - self.written).min(count);
            self.written += before;
            count -= before;
            let of_part = part.len().min(count);
            part.advance(of_part);
            self.parts_len -= of_part;
            count -= of_part;
            if self.written < *at || !part.is_empty() {
                self.forget_written();
                return;
            }
            self.parts.pop_front();
        }
        self.written += count;
        self.forget_written();
    }

    /// Frees what is written of the buffer, though more waits: a client that never catches up would make it grow
    /// by the whole response.
    fn forget_written(&mut self) {
        if self.written < KEPT_CAPACITY {
            return;
        }
        self.buffer.drain(..self.written);
        for (at, _) in &mut self.parts {
            *at -= self.written;
        }
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use proptest::prelude::*;

    use super::*;

    /// A socket that takes a few bytes at a time.
    struct Narrow {
        got: Vec<u8>,
        most: usize,
    }

    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = buf.len().min(self.most);
            self.got.extend_from_slice(&buf[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let before = self.got.len();
            for buf in bufs {
                let room = self.most - (self.got.len() - before);
                self.got.extend_from_slice(&buf[..buf.len().min(room)]);
            }
            Poll::Ready(Ok(self.got.len() - before))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A client that reads as fast as the origin sends, and never catches up.
    #[test]
    fn what_is_written_takes_no_memory_though_the_queue_is_never_empty() {
        struct PacedClient(usize);

        impl AsyncWrite for PacedClient {
            fn poll_write(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                match std::mem::take(&mut self.0).min(buf.len()) {
                    0 => Poll::Pending,
                    count => Poll::Ready(Ok(count)),
                }
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }

        let mut cx = Context::from_waker(std::task::Waker::noop());
        for part in [1_000, COPIED_MAX + 1] {
            let mut queue = WriteQueue::default();
            queue.push(vec![0; 30_000].into());
            for _ in 0..10_000 {
                queue.buffer().extend_from_slice(b"3E8\r\n");
                queue.push(vec![0; part].into());
                assert!(queue.poll_write(&mut PacedClient(part + 5), &mut cx).is_pending());
            }
            assert!(queue.buffer.capacity() < 4 * FULL, "{}", queue.buffer.capacity());
        }
    }

    proptest! {
        #[test]
        fn bytes_are_written_in_their_order(
            parts in prop::collection::vec((any::<bool>(), 0..3 * COPIED_MAX), 0..30),
            most in prop::sample::select(vec![1_000, COPIED_MAX, 10_000, 1 << 20]),
        ) {
            let (mut queue, mut expected) = (WriteQueue::default(), Vec::new());
            let pattern: Vec<u8> = (0..=255).cycle().take(3 * COPIED_MAX + 30).collect();
            for (number, (is_head, length)) in parts.into_iter().enumerate() {
                let bytes = &pattern[number..number + length];
                expected.extend_from_slice(bytes);
                match is_head {
                    true => queue.buffer().extend_from_slice(bytes),
                    false => queue.push(bytes.to_vec().into()),
                }
            }
            prop_assert_eq!(queue.is_full(), expected.len() >= FULL);
            let mut socket = Narrow { got: Vec::new(), most };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(poll_fn(|cx| queue.poll_write(&mut socket, cx))).unwrap();
            prop_assert!(queue.is_empty() && !queue.is_full());
            prop_assert!(socket.got == expected);
        }
    }
}
