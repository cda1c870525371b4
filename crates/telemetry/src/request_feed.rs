//! Requests as they end, for whatever watches them: `anteroom log`.
//!
//! Without a watcher a request costs one look at a counter. With one, each request notes its steps, and goes into a
//! ring; a watcher that falls behind by more than the ring loses the oldest, and learns how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::access_log::LogRecord;
use super::words::words;

/// How many requests the ring holds.
pub const RING: usize = 4_096;
/// How many watchers there may be at once: each makes every request cost more.
pub const WATCHERS_MAX: usize = 4;
/// The longest path that an event holds, in bytes. A full ring then has a bound of some megabytes.
pub const PATH_MAX: usize = 1_024;
/// The most steps that are noted of a request: a retry repeats some.
const STEPS_MAX: usize = 16;

words! {
    /// What a request has come to.
    pub enum Step {
        /// Its route is found.
        Routed = "routed",
        /// The visitor is identified, or cannot be.
        Identified = "identified",
        /// The cache was looked into.
        LookedUp = "looked up",
        /// The origin is asked, or another request's fetch waited for.
        Asked = "origin asked",
        /// The head of the origin's response has come.
        OriginHead = "origin's head",
        /// The head of the response goes out.
        Head = "head sent",
        /// The response has ended.
        End = "end",
    }
}

/// When a request came to which step, from the arrival of its head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps(Vec<(Step, Duration)>);

impl Steps {
    /// Notes a step.
    pub fn note(&mut self, step: Step, after: Duration) {
        if self.0.len() < STEPS_MAX {
            self.0.push((step, after));
        }
    }

    /// The steps, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Step, Duration)> {
        self.0.iter().copied()
    }

    /// When the request first came to a step.
    #[must_use]
    pub fn at(&self, step: Step) -> Option<Duration> {
        self.0.iter().find(|(known, _)| *known == step).map(|(_, at)| *at)
    }

    /// The memory that they take beside themselves, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(Step, Duration)>()
    }
}

/// A request that has ended. It holds no token, no cookie and no query value.
#[derive(Clone, Debug)]
pub struct RequestEvent {
    /// What the access log says of it.
    pub record: LogRecord,
    /// The site, if known.
    pub host: Option<Arc<str>>,
    /// The path as it may be shown.
    pub path: String,
    /// Names of query parameters.
    pub parameters: Vec<String>,
    /// The route's name.
    pub route: Option<Arc<str>>,
    /// The request id, if requests have one.
    pub request_id: Option<String>,
    /// Its steps.
    pub steps: Steps,
}

/// The ring of requests.
#[derive(Debug)]
pub struct RequestFeed {
    ring: broadcast::Sender<Arc<RequestEvent>>,
    watchers: AtomicUsize,
    closed: CancellationToken,
}

impl Default for RequestFeed {
    fn default() -> Self {
        Self {
            ring: broadcast::Sender::new(RING),
            watchers: AtomicUsize::new(0),
            closed: CancellationToken::new(),
        }
    }
}

impl RequestFeed {
    /// Whether a request should note its steps.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Adds a request that has ended.
    pub fn add(&self, event: RequestEvent) {
        // Without a watcher there is no receiver, and it is dropped.
        let _ = self.ring.send(Arc::new(event));
    }

    /// Watches the requests that begin from now on, unless [`WATCHERS_MAX`] others do.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> Option<Watcher> {
        let one_more = |watchers| (watchers < WATCHERS_MAX).then_some(watchers + 1);
        self.watchers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Watcher { feed: Arc::clone(self), receiver: self.ring.subscribe() })
    }

    /// Ends all watchers: the proxy drains.
    pub fn close(&self) {
        self.closed.cancel();
    }
}

/// Receives requests until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    feed: Arc<RequestFeed>,
    receiver: broadcast::Receiver<Arc<RequestEvent>>,
}

/// A request that has ended, or how many were lost.
pub type FeedItem = Result<Arc<RequestEvent>, u64>;

impl Watcher {
    /// Waits for the next request; `None`: the feed is closed.
    pub async fn next(&mut self) -> Option<FeedItem> {
        let received = tokio::select! {
            received = self.receiver.recv() => received,
            () = self.feed.closed.cancelled() => return None,
        };
        match received {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(lost)) => Some(Err(lost)),
            // The feed, which this holds, holds a sender.
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// The next request, if it has ended already.
    pub fn try_next(&mut self) -> Option<FeedItem> {
        match self.receiver.try_recv() {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::TryRecvError::Lagged(lost)) => Some(Err(lost)),
            Err(_) => None,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.feed.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
