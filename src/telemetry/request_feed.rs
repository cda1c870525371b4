//! Requests as they end, for whatever watches them: `anteroom log`.
//!
//! Without a watcher a request costs one look at a counter. With one, each request notes its steps, and goes into a
//! ring; a watcher that falls behind by more than the ring loses the oldest, and learns how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::broadcast;

use super::access_log::LogRecord;
use super::words::words;

/// How many requests the ring holds.
const RING: usize = 4_096;
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
}

impl Default for RequestFeed {
    fn default() -> Self {
        Self { ring: broadcast::Sender::new(RING), watchers: AtomicUsize::new(0) }
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

    /// Watches the requests that begin from now on.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> Watcher {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watcher { feed: Arc::clone(self), receiver: self.ring.subscribe() }
    }
}

/// Receives requests until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    feed: Arc<RequestFeed>,
    receiver: broadcast::Receiver<Arc<RequestEvent>>,
}

impl Watcher {
    /// The next request, or how many were lost.
    pub async fn next(&mut self) -> Result<Arc<RequestEvent>, u64> {
        match self.receiver.recv().await {
            Ok(event) => Ok(event),
            Err(broadcast::error::RecvError::Lagged(lost)) => Err(lost),
            // The feed, which this holds, holds a sender.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.feed.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
