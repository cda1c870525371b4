//! A client's socket with its own deadlines for heads, idle time and writes.
//!
//! hyper's own head timer also ends idle keep-alive connections and cannot distinguish the two, so the
//! deadlines are kept here. Request bodies have theirs where they are read.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep};

use crate::connection_state::{ConnectionPhase, ConnectionState};

/// How long the server reads on after the last response of a connection that it ends: some round trips.
const LINGER: Duration = Duration::from_secs(1);

/// How much is read and dropped at a time.
const DROPPED: usize = 1024;

/// Reads on after the server has closed its side of a connection, until the client has closed its own, or for a moment.
///
/// The system resets a connection that is closed with unread bytes, such as a request that was on its way, and the reset
/// may overtake the last response (RFC 9112 §9.6).
pub(super) async fn linger<S: AsyncRead + Unpin>(socket: &mut S) {
    let reading = async {
        let mut rest = Vec::with_capacity(DROPPED);
        while socket.read_buf(&mut rest).await.is_ok_and(|read| read > 0) {
            rest.clear();
        }
    };
    if tokio::time::timeout(LINGER, reading).await.is_err() {
        tracing::debug!("a client did not close its side of a connection");
    }
}

/// The deadlines of a client connection.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From the first byte of a head (or from the accept) to its end.
    pub head: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For a write that makes no progress.
    pub stall: Duration,
}

/// A timer that is re-armed only when it must fire earlier, or fired too early.
///
/// PERF: deadlines mostly move later; a request then costs no work in the timer wheel.
#[derive(Debug, Default)]
pub(super) struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes.
    task: Option<Waker>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed.
    pub(super) fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        // PERF: a timer that will wake this task needs no poll.
        let is_set = self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if is_set && sleep.deadline() <= deadline && !sleep.is_elapsed() {
            return Poll::Pending;
        }
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        // Without budget, the timer would wake the task now, and not later.
        self.task = has_budget_remaining().then(|| cx.waker().clone());
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

/// A client's socket with its deadlines.
#[derive(Debug)]
pub struct TimedSocket<S> {
    socket: S,
    connection_state: Rc<ConnectionState>,
    deadlines: Deadlines,
    read_timer: LazyTimer,
    write_timer: LazyTimer,
    /// Since when a write has made no progress.
    stalled: Option<Instant>,
    /// When a stalled write last continued.
    moved: Option<Instant>,
    /// Bytes that were read from the socket and are returned by the next read.
    ahead: Bytes,
    /// Interim responses that are sent before anything else.
    interims: Bytes,
}

impl<S> TimedSocket<S> {
    /// Sets deadlines for `socket`.
    pub fn new(socket: S, connection_state: Rc<ConnectionState>, deadlines: Deadlines) -> Self {
        Self {
            socket,
            connection_state,
            deadlines,
            read_timer: LazyTimer::default(),
            write_timer: LazyTimer::default(),
            stalled: None,
            moved: None,
            ahead: Bytes::new(),
            interims: Bytes::new(),
        }
    }

    /// The socket without its deadlines, and the bytes read ahead.
    pub fn into_parts(self) -> (S, Bytes) {
        (self.socket, self.ahead)
    }

    /// The socket without its deadlines.
    pub fn into_socket(self) -> S {
        self.socket
    }

    /// The socket itself.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Returns bytes that were read too far: the next read gets them first.
    pub fn unread(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            // It may still hold the buffer that it was the end of.
            return;
        }
        self.ahead = match self.ahead.is_empty() {
            true => bytes,
            false => [bytes, std::mem::take(&mut self.ahead)].concat().into(),
        };
    }

    /// Extends the idle deadline, for a protocol that announces the close first.
    pub fn put_off_idle(&mut self, by: Duration) {
        self.deadlines.idle += by;
    }

    /// A response counts as answered once hyper has all of it, but sending it may still take long. The client
    /// is idle only when it is sent; until then the write has its own deadline.
    fn read_deadline(&self) -> Option<Instant> {
        let (phase, since) = self.connection_state.waits();
        let since = match self.stalled {
            Some(stalled) => stalled + self.deadlines.stall,
            None => self.moved.map_or(since, |moved| moved.max(since)),
        };
        match phase {
            ConnectionPhase::Head => Some(since + self.deadlines.head),
            ConnectionPhase::Idle => Some(since + self.deadlines.idle),
            ConnectionPhase::Answer => None,
        }
    }

    fn out_of_time(&self) -> io::Error {
        self.connection_state.ran_out_of_time();
        io::ErrorKind::TimedOut.into()
    }

    /// Passes a write's result on; a pending one gets a deadline.
    fn written<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            // PERF: a write that never waited does not read the clock.
            if self.stalled.take().is_some() {
                self.moved = Some(Instant::now());
                self.connection_state.stalls(false);
            }
            return result;
        }
        self.connection_state.stalls(true);
        let since = *self.stalled.get_or_insert_with(Instant::now);
        ready!(self.write_timer.poll(since + self.deadlines.stall, cx));
        Poll::Ready(Err(self.out_of_time()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let length = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(length));
            self.connection_state.bytes_received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.socket).poll_read(cx, buf) {
            if buf.filled().len() > before {
                self.connection_state.bytes_received();
            }
            return Poll::Ready(result);
        }
        let this = &mut *self;
        let Some(deadline) = this.read_deadline() else {
            return Poll::Pending;
        };
        ready!(this.read_timer.poll(deadline, cx));
        Poll::Ready(Err(this.out_of_time()))
    }
}

impl<S: AsyncWrite + Unpin> TimedSocket<S> {
    /// Sends the rest of an interim response that has begun: no other bytes may come between.
    fn finish_interims(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interims.is_empty() {
            let result = Pin::new(&mut self.socket).poll_write(cx, &self.interims);
            let written = ready!(self.written(result, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.interims.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.finish_interims(cx))?;
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.written(result, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.finish_interims(cx))?;
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.written(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// hyper flushes when it has written everything, so that no response is partly written now.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.finish_interims(cx))?;
        self.interims = self.connection_state.interims(cx.waker());
        ready!(self.finish_interims(cx))?;
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        self.written(result, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.written(result, cx)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use tokio::io::AsyncWriteExt;

    use super::*;

    const DEADLINES: Deadlines = Deadlines {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(75),
        stall: Duration::from_secs(30),
    };

    fn paused<F: Future>(test: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(test)
    }

    async fn timed_out_after(mut io: TimedSocket<tokio::io::DuplexStream>) -> Duration {
        let begin = Instant::now();
        let mut buf = [0; 8];
        while io.read(&mut buf).await.is_ok() {}
        begin.elapsed()
    }

    #[test]
    fn nothing_read_too_far_keeps_no_buffer() {
        let (_client, server) = tokio::io::duplex(64);
        let mut io = TimedSocket::new(server, ConnectionState::new(), DEADLINES);
        let mut buffer = BytesMut::zeroed(64 * 1024);
        let read = buffer.split_to(64 * 1024).freeze();
        io.unread(buffer.freeze());
        assert!(read.is_unique(), "the buffer is kept");
    }

    #[test]
    fn what_comes_after_the_last_response_is_read_until_the_client_closes_or_for_a_moment() {
        paused(async {
            let (mut client, mut server) = tokio::io::duplex(8);
            let begin = Instant::now();
            let sends = async {
                // More than there is room for: it would wait if nothing were read.
                client.write_all(&[0; 64]).await.unwrap();
                drop(client);
            };
            tokio::join!(linger(&mut server), sends);
            assert_eq!(begin.elapsed(), Duration::ZERO);

            let (_client, mut server) = tokio::io::duplex(8);
            linger(&mut server).await;
            assert_eq!(begin.elapsed().as_secs(), LINGER.as_secs());
        });
    }

    #[test]
    fn a_silent_connection_ends_at_the_head_deadline() {
        paused(async {
            let (_client, server) = tokio::io::duplex(64);
            let io = TimedSocket::new(server, ConnectionState::new(), DEADLINES);
            let took = timed_out_after(io).await;
            assert_eq!(took.as_secs(), 10);
        });
    }

    #[test]
    fn an_idle_connection_ends_at_the_idle_deadline() {
        paused(async {
            let (_client, server) = tokio::io::duplex(64);
            let connection_state = ConnectionState::new();
            connection_state.request_begins();
            connection_state.request_ends(Instant::now());
            let took =
                timed_out_after(TimedSocket::new(server, Rc::clone(&connection_state), DEADLINES))
                    .await;
            assert_eq!(took.as_secs(), 75);
            assert!(connection_state.timed_out());
        });
    }

    #[test]
    fn bytes_that_trickle_do_not_move_the_head_deadline() {
        paused(async {
            let (mut client, server) = tokio::io::duplex(64);
            let connection_state = ConnectionState::new();
            connection_state.request_begins();
            connection_state.request_ends(Instant::now());
            let trickle = async {
                loop {
                    if client.write_all(b"x").await.is_err() {
                        std::future::pending::<()>().await;
                    }
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
            };
            let took = tokio::select! {
                took = timed_out_after(TimedSocket::new(server, connection_state, DEADLINES)) => took,
                () = trickle => Duration::ZERO,
            };
            assert_eq!(took.as_secs(), 10);
        });
    }

    #[test]
    fn a_client_that_reads_slowly_is_idle_only_when_it_has_all() {
        paused(async {
            let (mut client, server) = tokio::io::duplex(8);
            let connection_state = ConnectionState::new();
            connection_state.request_begins();
            connection_state.request_ends(Instant::now());
            let (reader, mut writer) =
                tokio::io::split(TimedSocket::new(server, connection_state, DEADLINES));
            let begin = Instant::now();
            let mut reader = reader;
            let mut buf = [0; 8];
            let write = async {
                writer.write_all(&[0; 64]).await.unwrap();
                std::future::pending::<()>().await;
            };
            let read_slowly = async {
                let mut part = [0; 8];
                for _ in 0..8 {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    client.read_exact(&mut part).await.unwrap();
                }
                std::future::pending::<()>().await;
            };
            let result = tokio::select! {
                result = reader.read(&mut buf) => result,
                () = write => Ok(0),
                () = read_slowly => Ok(0),
            };
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert_eq!(
                begin.elapsed().as_secs(),
                7 * 20 + 75,
                "the last write went on after 140 s"
            );
        });
    }

    #[test]
    fn a_client_that_does_not_read_ends_at_the_stall_deadline() {
        paused(async {
            let (_client, server) = tokio::io::duplex(8);
            let connection_state = ConnectionState::new();
            connection_state.request_begins();
            let mut io = TimedSocket::new(server, connection_state, DEADLINES);
            let begin = Instant::now();
            let error = io.write_all(&[0; 64]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(begin.elapsed().as_secs(), 30);
        });
    }
}
