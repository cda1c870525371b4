//! Where a thread's records of requests go.

use std::sync::Arc;

use super::access_log::LogBuffer;
use super::metrics::{RequestCounters, ThreadMetrics};
use super::misses::Miss;
use super::request_feed::RequestFeed;
use super::shown_path::ShownPaths;
use super::traces::Traces;

/// Where the records of requests go under one configuration.
#[derive(Debug)]
pub struct RequestTelemetry {
    /// The counters of this thread.
    pub counters: RequestCounters,
    /// This thread's buffer of the access log, if there is an access log.
    pub log_buffer: Option<Arc<LogBuffer>>,
    /// Requests for whatever watches them, shared by all threads.
    pub feed: Arc<RequestFeed>,
    /// What is shown of paths.
    pub paths: Arc<ShownPaths>,
    /// Traces, if there is a receiver of them.
    pub traces: Option<Arc<Traces>>,
}

impl RequestTelemetry {
    /// The counters of the thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadMetrics {
        self.counters.thread()
    }

    /// Counts a request that the cache did not answer.
    pub fn missed(&self, miss: &Miss<'_>) {
        let path = self.paths.path(miss.path);
        self.thread().missed(&Miss { path: &path, ..miss.clone() });
    }
}
