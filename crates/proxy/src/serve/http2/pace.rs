//! The pace of one response: the server waits only so long for a client to take it. The connection and its
//! other streams continue.
//!
//! hyper polls a body for its next part only when the client has opened its window for the last one. So if a
//! part was handed over and no other was requested since, the client is blocking the response.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::wire::{FRAME, FrameCounts};
use crate::connection::counter::ReservedSlot;
use crate::serve::io::LazyTimer;
use crate::{Body, BodyError};

/// How much longer a client may take if it has taken something, because it may have much else to take. At
/// most [`super::SEND_BUFFER`] and a part were handed over before: three hundred bytes a second.
pub(super) const BACKLOG: Duration = Duration::from_secs(160);

/// The progress of a response.
#[derive(Debug, Default)]
pub(super) struct ResponseProgress {
    /// Parts handed over.
    parts: Cell<u64>,
    /// Whether no part was requested since.
    is_held: Cell<bool>,
}

/// A response's body in parts no larger than a frame.
#[derive(Debug)]
pub(super) struct FrameSizedBody {
    body: Body,
    rest: Bytes,
    pace: Rc<ResponseProgress>,
}

impl FrameSizedBody {
    pub(super) fn new(body: Body, pace: Rc<ResponseProgress>) -> Self {
        Self { body, rest: Bytes::new(), pace }
    }

    fn part(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(FRAME as usize);
        self.pace.parts.update(|parts| parts + 1);
        self.pace.is_held.set(true);
        Frame::data(self.rest.split_to(length))
    }
}

impl Drop for FrameSizedBody {
    fn drop(&mut self) {
        // It came as one part, and was counted as sent.
        if !self.rest.is_empty() {
            self.body.take_back(self.rest.len());
        }
    }
}

impl http_body::Body for FrameSizedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.pace.is_held.set(false);
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.part())));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(bytes) => {
                    this.rest = bytes;
                    this.part()
                }
                Err(other) => other,
            })),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

/// A new request: its pace, and the slot that it holds until its task ends.
type PacedRequest = (Rc<ResponseProgress>, ReservedSlot);

/// Runs the requests of a connection on this thread, each in a task of its own.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    pub(super) tasks: TaskTracker,
    pub(super) stall: Duration,
    pub(super) flow: Rc<FrameCounts>,
    pub(super) thread_metrics: Arc<ThreadMetrics>,
    /// The request for which hyper is about to spawn a task: it calls the service, and then this executor.
    next: Rc<RefCell<Option<PacedRequest>>>,
}

impl Streams {
    pub(super) fn new(
        stall: Duration,
        flow: Rc<FrameCounts>,
        thread_metrics: Arc<ThreadMetrics>,
    ) -> Self {
        Self { tasks: TaskTracker::new(), stall, flow, thread_metrics, next: Rc::default() }
    }

    /// The pace of a new request, which holds this slot until its task ends.
    pub(super) fn pace(&self, place: ReservedSlot) -> Rc<ResponseProgress> {
        let pace = Rc::<ResponseProgress>::default();
        *self.next.borrow_mut() = Some((Rc::clone(&pace), place));
        pace
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, work: F) {
        let watch = self.next.borrow_mut().take().map(|(pace, place)| StallWatch {
            _place: place,
            pace,
            flow: Rc::clone(&self.flow),
            stall: self.stall,
            timer: LazyTimer::default(),
            held: (0, Instant::now()),
        });
        let thread_metrics = Arc::clone(&self.thread_metrics);
        self.tasks.spawn_local(async move {
            let Some(mut watch) = watch else { return work.await };
            let mut work = std::pin::pin!(work);
            let has_ended = std::future::poll_fn(|cx| {
                if work.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                watch.poll(cx).map(|()| false)
            });
            if !has_ended.await {
                thread_metrics.count(Count::StreamsStalled);
                tracing::debug!("a client did not take a response");
            }
            // If the task is dropped before its end, its stream is reset.
        });
    }
}

/// Watches a response that its client may not be taking.
#[derive(Debug)]
struct StallWatch {
    _place: ReservedSlot,
    pace: Rc<ResponseProgress>,
    flow: Rc<FrameCounts>,
    stall: Duration,
    timer: LazyTimer,
    /// The number of the blocked part, and since when.
    held: (u64, Instant),
}

impl StallWatch {
    /// Ready when the client has blocked the response for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.pace.is_held.get() {
            return Poll::Pending;
        }
        let parts = self.pace.parts.get();
        if self.held.0 != parts {
            self.held = (parts, Instant::now());
        }
        let since = self.held.1;
        // Progress on the connection may include parts of this response.
        let moved = self.flow.moved().map_or(since, |moved| moved.max(since));
        let latest = if parts > 1 { since + self.stall + BACKLOG } else { since + self.stall };
        self.timer.poll(latest.min(moved + self.stall), cx)
    }
}
