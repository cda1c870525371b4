//! The pace of one response: a client that does not take it is waited for only so long. Its connection
//! goes on, and what else is on it.
//!
//! hyper asks a body for its next part only when the client has opened its window for the last one. So a
//! part that was handed over and nothing asked for since means that the client holds it up.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::rt::Executor;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::wire::{FRAME, Flow};
use crate::proxy::connection::counter::Place;
use crate::proxy::{Body, BodyError};
use crate::serve::io::LazyTimer;
use crate::telemetry::metrics::{Count, Sheet};

/// How much longer a client may take that has taken something, for it may have much else to take. What
/// was handed over before is at most [`super::SEND_BUFFER`] and a part: three hundred bytes a second.
pub(super) const BACKLOG: Duration = Duration::from_secs(160);

/// How far a response has come.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Parts handed over.
    parts: Cell<u64>,
    /// Whether nothing was asked for since.
    is_held: Cell<bool>,
}

/// A response's body in parts no larger than a frame.
#[derive(Debug)]
pub(super) struct Paced {
    body: Body,
    rest: Bytes,
    pace: Rc<Pace>,
}

impl Paced {
    pub(super) fn new(body: Body, pace: Rc<Pace>) -> Self {
        Self { body, rest: Bytes::new(), pace }
    }

    fn part(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(FRAME as usize);
        self.pace.parts.update(|parts| parts + 1);
        self.pace.is_held.set(true);
        Frame::data(self.rest.split_to(length))
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        // It came in one part, and counted as sent.
        if !self.rest.is_empty() {
            self.body.take_back(self.rest.len());
        }
    }
}

impl http_body::Body for Paced {
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

/// A request that has just come: its pace, and the place that it has until its task ends.
type Next = (Rc<Pace>, Place);

/// Runs the requests of a connection on this thread, each in a task of its own.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    pub(super) tasks: TaskTracker,
    pub(super) stall: Duration,
    pub(super) flow: Rc<Flow>,
    pub(super) sheet: Arc<Sheet>,
    /// The request that hyper is about to give a task: it calls the service, and then us.
    next: Rc<RefCell<Option<Next>>>,
}

impl Streams {
    pub(super) fn new(stall: Duration, flow: Rc<Flow>, sheet: Arc<Sheet>) -> Self {
        Self { tasks: TaskTracker::new(), stall, flow, sheet, next: Rc::default() }
    }

    /// The pace of a request that has just come, and has this place until its task ends.
    pub(super) fn pace(&self, place: Place) -> Rc<Pace> {
        let pace = Rc::<Pace>::default();
        *self.next.borrow_mut() = Some((Rc::clone(&pace), place));
        pace
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, work: F) {
        let watch = self.next.borrow_mut().take().map(|(pace, place)| Watch {
            _place: place,
            pace,
            flow: Rc::clone(&self.flow),
            stall: self.stall,
            timer: LazyTimer::default(),
            held: (0, Instant::now()),
        });
        let sheet = Arc::clone(&self.sheet);
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
                sheet.count(Count::StreamsStalled);
                tracing::debug!("a client did not take a response");
            }
            // Dropped before its end, the work resets its stream.
        });
    }
}

/// Looks after a response whose client may not take it.
#[derive(Debug)]
struct Watch {
    _place: Place,
    pace: Rc<Pace>,
    flow: Rc<Flow>,
    stall: Duration,
    timer: LazyTimer,
    /// The part that is held up, by its number, and since when.
    held: (u64, Instant),
}

impl Watch {
    /// Ready when the client has held the response up for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.pace.is_held.get() {
            return Poll::Pending;
        }
        let parts = self.pace.parts.get();
        if self.held.0 != parts {
            self.held = (parts, Instant::now());
        }
        let since = self.held.1;
        // What moves on the connection may be what it has taken of this response.
        let moved = self.flow.moved().map_or(since, |moved| moved.max(since));
        let latest = if parts > 1 { since + self.stall + BACKLOG } else { since + self.stall };
        self.timer.poll(latest.min(moved + self.stall), cx)
    }
}
