//! The parts of the process that the figures are read from.

use std::sync::Arc;

use anteroom_cache::Pages;
use anteroom_proxy::connection::counter::ConnectionCounter;
use anteroom_store::OpenStore;
use anteroom_telemetry::metrics::Metrics;
use anteroom_telemetry::request_feed::RequestFeed;

/// What is read for the figures.
#[derive(Debug)]
pub struct StatusParts {
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The pages.
    pub pages: Arc<Pages>,
    /// The connections of clients.
    pub connections: Arc<ConnectionCounter>,
    /// The tunnels.
    pub tunnels: Arc<ConnectionCounter>,
    /// The store.
    pub store: OpenStore,
    /// The Unix time of the start.
    pub since: f64,
    /// Requests as they end.
    pub feed: Arc<RequestFeed>,
}
