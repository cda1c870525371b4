//! A tunnel: carries the bytes between a client and the origin after both have switched from HTTP to
//! another protocol.
//!
//! Bytes are forwarded in both directions as they arrive, uninspected. Each direction buffers one chunk
//! at most, so that a receiver that does not read slows its sender down. An idle tunnel buffers nothing.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anteroom_origin::UpgradedConnection;
use anteroom_telemetry::metrics::{Count, ThreadMetrics, TunnelEnd};
use bytes::{Buf, Bytes};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::counter::ReservedSlot;
use crate::record::RequestRecord;

/// The largest chunk that is read at once, and so the largest buffer of each direction.
const PART: usize = 16 * 1024;
/// The number of chunks that go in one direction before other tasks of the thread run.
const PARTS_MAX: usize = 16;

/// The parts of a tunnel, while its request is being answered.
#[derive(Debug)]
pub(crate) struct OpenedTunnel {
    pub(crate) origin: UpgradedConnection,
    pub(crate) is_websocket: bool,
    pub(crate) slot: ReservedSlot,
    /// The HTTP/2 stream that becomes the tunnel; `None`: the client's connection does.
    pub(crate) stream: Option<OnUpgrade>,
}

/// The slot in which a client connection's task finds the tunnel that the connection becomes.
pub type TunnelSlot = Rc<RefCell<Option<Box<Tunnel>>>>;

/// A tunnel to the origin, which its client has been told of. Dropping it ends and logs it.
#[derive(Debug)]
pub struct Tunnel {
    thread_metrics: Arc<ThreadMetrics>,
    /// How long the tunnel may be idle, and how long unread data may wait. The values are copied,
    /// because the worker context is replaced at a reload.
    idle: Duration,
    stall: Duration,
    origin: UpgradedConnection,
    is_websocket: bool,
    record: Box<RequestRecord>,
    up: TunnelDirection,
    down: TunnelDirection,
    end: TunnelEnd,
    _place: ReservedSlot,
}

impl Tunnel {
    /// Carries the tunnel over an HTTP/2 stream. There is no stream if the client has disconnected.
    pub(crate) async fn carry_stream(self, stream: OnUpgrade) {
        match stream.await {
            Ok(stream) => drop(self.carry(&mut TokioIo::new(stream), Bytes::new()).await),
            Err(error) => {
                tracing::debug!(%error, "a client disconnected before its tunnel was open")
            }
        }
    }

    /// A tunnel whose client is about to be told.
    pub(crate) fn new(
        opened: OpenedTunnel,
        record: Box<RequestRecord>,
        thread_metrics: &Arc<ThreadMetrics>,
        idle: Duration,
        stall: Duration,
    ) -> Self {
        let OpenedTunnel { origin, is_websocket, slot: place, .. } = opened;
        thread_metrics.count(Count::TunnelsOpened);
        let (up, down) = (TunnelDirection::default(), TunnelDirection::default());
        // Until the tunnel is carried, only a client that disconnects can end it.
        let end = TunnelEnd::Client;
        Self {
            thread_metrics: Arc::clone(thread_metrics),
            idle,
            stall,
            origin,
            is_websocket,
            record,
            up,
            down,
            end,
            _place: place,
        }
    }

    /// Carries bytes in both directions until both sides have ended, one of them broke, or the tunnel
    /// was idle for too long. `early` holds the bytes that the client sent before it had the response.
    /// Returns whether the client's connection may be closed in the usual way. If not, the client would
    /// take a truncated transfer for a complete one.
    pub async fn carry<S>(mut self, client: &mut S, early: Bytes) -> bool
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.up.held = early;
        self.end = TunnelEnd::Cut;
        let mut rest = IdleTimer::new();
        let end = std::future::poll_fn(|cx| self.poll(cx, client, &mut rest)).await;
        self.end = end;
        let is_over = self.up.is_over() && self.down.is_over();
        if is_over {
            self.record.whole();
        }
        // WebSocket marks its own end (RFC 6455 §5.5.1).
        is_over || self.is_websocket
    }

    fn poll<S>(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut S,
        rest: &mut IdleTimer,
    ) -> Poll<TunnelEnd>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let before = (self.up.stands(), self.down.stands());
        let up = self.up.poll(cx, client, &mut self.origin);
        if let Poll::Ready(Err(broke)) = up {
            return Poll::Ready(broke.from(TunnelEnd::Client, TunnelEnd::Origin));
        }
        let down = self.down.poll(cx, &mut self.origin, client);
        if let Poll::Ready(Err(broke)) = down {
            return Poll::Ready(broke.from(TunnelEnd::Origin, TunnelEnd::Client));
        }
        let after = (self.up.stands(), self.down.stands());
        if before != after {
            self.thread_metrics.add(Count::TunnelBytesReceived, after.0.0 - before.0.0);
            self.thread_metrics.add(Count::TunnelBytesSent, after.1.0 - before.1.0);
            rest.moved();
        }
        if rest.first.is_none() {
            let ended = [(up, TunnelEnd::Client), (down, TunnelEnd::Origin)];
            rest.first = ended.into_iter().find(|(way, _)| way.is_ready()).map(|(_, end)| end);
        }
        match rest.first {
            Some(first) if self.up.is_over() && self.down.is_over() => Poll::Ready(first),
            _ => rest.poll(cx, self.timeout()).map(|()| TunnelEnd::Idle),
        }
    }

    /// How long the tunnel may be idle. The time is short for a WebSocket of which one side has ended,
    /// because the other side has nothing more to send. It is also short while a receiver does not take
    /// data or the end: the receiver may be gone, and a sender that disconnects goes unnoticed
    /// meanwhile.
    fn timeout(&self) -> Duration {
        let ways = [&self.up, &self.down];
        let has_half_ended = ways.iter().any(|way| way.phase != Phase::Open);
        let waits = ways.iter().any(|way| way.waits_for_receiver());
        if waits || (has_half_ended && self.is_websocket) {
            self.idle.min(self.stall)
        } else {
            self.idle
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.record.tunnelled(self.up.moved, self.down.moved);
        self.thread_metrics.tunnel_ended(self.end);
    }
}

/// The time since the last transfer, and the side that ended first.
struct IdleTimer {
    since: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    first: Option<TunnelEnd>,
}

impl IdleTimer {
    fn new() -> Self {
        Self { since: Instant::now(), timer: None, first: None }
    }

    fn moved(&mut self) {
        self.since = Instant::now();
    }

    /// Ready when nothing was transferred for `timeout`.
    ///
    /// PERF: the timer is reset only if it must fire earlier, or has fired too early.
    fn poll(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<()> {
        let deadline = self.since + timeout;
        let sleep = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

/// The side of a direction that broke.
enum BrokenSide {
    Reading,
    Writing,
}

impl BrokenSide {
    fn from(self, reader: TunnelEnd, writer: TunnelEnd) -> TunnelEnd {
        match self {
            Self::Reading => reader,
            Self::Writing => writer,
        }
    }
}

/// The progress of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// The sender has ended, and the receiver is to be told.
    Ending,
    Over,
}

/// One direction of a tunnel.
#[derive(Debug, Default)]
struct TunnelDirection {
    phase: Phase,
    /// Bytes that were read and are still to be written.
    held: Bytes,
    /// The number of bytes written.
    moved: u64,
    /// Whether written bytes may still be in a buffer.
    needs_flush: bool,
}

impl TunnelDirection {
    /// The bytes moved, the bytes buffered and the phase. Any progress changes this value.
    fn stands(&self) -> (u64, usize, Phase) {
        (self.moved, self.held.len(), self.phase)
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether the receiver has still to take bytes or the end.
    fn waits_for_receiver(&self) -> bool {
        !self.held.is_empty() || self.phase == Phase::Ending
    }

    /// Moves the data that is available; ready when the sender has ended and the receiver has been told.
    fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), BrokenSide>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        for _ in 0..PARTS_MAX {
            if !self.held.is_empty() {
                ready!(self.write(cx, to))?;
                continue;
            }
            match self.phase {
                Phase::Open => ready!(self.pass(cx, from, to))?,
                Phase::Ending => ready!(self.end(cx, to))?,
                Phase::Over => return Poll::Ready(Ok(())),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads a chunk and writes as much of it as the receiver takes at once.
    fn pass<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<Result<(), BrokenSide>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut space = [const { MaybeUninit::uninit() }; PART];
        let mut part = ReadBuf::uninit(&mut space);
        let Poll::Ready(read) = Pin::new(from).poll_read(cx, &mut part) else {
            if self.needs_flush {
                ready!(Pin::new(to).poll_flush(cx)).map_err(|_| BrokenSide::Writing)?;
                self.needs_flush = false;
            }
            return Poll::Pending;
        };
        read.map_err(|_| BrokenSide::Reading)?;
        if part.filled().is_empty() {
            self.phase = Phase::Ending;
            return Poll::Ready(Ok(()));
        }
        let written = match Pin::new(to).poll_write(cx, part.filled()) {
            Poll::Ready(written) => written.map_err(|_| BrokenSide::Writing)?,
            Poll::Pending => 0,
        };
        self.wrote(written);
        self.held = Bytes::copy_from_slice(&part.filled()[written..]);
        Poll::Ready(Ok(()))
    }

    fn write<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<Result<(), BrokenSide>>
    where
        W: AsyncWrite + Unpin,
    {
        let written = match ready!(Pin::new(to).poll_write(cx, &self.held)) {
            Ok(written) if written > 0 => written,
            _ => return Poll::Ready(Err(BrokenSide::Writing)),
        };
        self.held.advance(written);
        if self.held.is_empty() {
            // An empty `Bytes` may still keep its buffer alive.
            self.held = Bytes::new();
        }
        self.wrote(written);
        Poll::Ready(Ok(()))
    }

    fn wrote(&mut self, bytes: usize) {
        self.moved += bytes as u64;
        self.needs_flush |= bytes > 0;
    }

    /// Tells the receiver of the end. A receiver that has disconnected already is no error.
    fn end<W>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<Result<(), BrokenSide>>
    where
        W: AsyncWrite + Unpin,
    {
        match ready!(Pin::new(to).poll_shutdown(cx)) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => {
                return Poll::Ready(Err(BrokenSide::Writing));
            }
            _ => self.phase = Phase::Over,
        }
        Poll::Ready(Ok(()))
    }
}
