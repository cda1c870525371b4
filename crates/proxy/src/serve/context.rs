//! What a thread needs to serve clients, and the part that a reload replaces.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_http::peer::Peer;
use anteroom_telemetry::metrics::ThreadMetrics;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caps::{self, Caps};
use super::io::{Deadlines, TimedSocket};
use super::stream::ClientStream;
use crate::WorkerContext;
use crate::connection::client::Client;
use crate::connection::counter;

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// Its deadlines.
    pub deadlines: Deadlines,
    /// The largest request head, in bytes.
    pub request_head: usize,
    /// How long a connection without a request may still begin one when the server drains: one may be on its way.
    pub last_requests: Duration,
}

/// What a thread needs to serve clients.
#[derive(Debug)]
pub struct ConnectionContext {
    /// This thread's counters.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// The server leaves its load balancers: an answer ends its connection, over HTTP/2 by GOAWAY.
    pub leaving: CancellationToken,
    /// Stops accepting, and lets open connections finish.
    pub drain: CancellationToken,
    /// The open connections.
    pub connections: TaskTracker,
    /// The part that a reload replaces.
    pub inside: ReloadableContext,
}

impl ConnectionContext {
    /// Returns when the server drains, and a request that was on its way has had the time to arrive.
    pub async fn takes_no_more(&self) {
        self.drain.cancelled().await;
        tokio::time::sleep(self.inside.settings().last_requests).await;
    }
}

/// What serves the clients of a thread. A reload replaces it as a whole.
#[derive(Debug)]
pub struct ServingContext {
    /// The context that answers requests.
    pub worker: Rc<WorkerContext>,
    /// The settings of each connection.
    pub settings: ConnectionSettings,
    /// The limits on open connections and requests.
    pub caps: Arc<Caps>,
}

/// The [`ServingContext`], until a reload replaces it.
#[derive(Debug)]
pub struct ReloadableContext(RefCell<ServingContext>);

impl ReloadableContext {
    /// Serves clients with `current`.
    #[must_use]
    pub fn new(current: ServingContext) -> Self {
        Self(RefCell::new(current))
    }

    /// Installs `next`: it answers the next request of each connection.
    pub fn replace(&self, next: ServingContext) {
        self.0.replace(next);
    }

    /// The context that answers requests now.
    #[must_use]
    pub fn worker(&self) -> Rc<WorkerContext> {
        Rc::clone(&self.0.borrow().worker)
    }

    /// The settings of a new connection.
    #[must_use]
    pub fn settings(&self) -> ConnectionSettings {
        self.0.borrow().settings
    }

    /// A slot for a new connection; `None` at the cap.
    #[must_use]
    pub fn enter(&self) -> Option<caps::CappedConnection> {
        self.0.borrow().caps.enter()
    }

    /// A slot for a new HTTP/2 request of `peer`; `None` at a cap.
    #[must_use]
    pub fn enter_request(&self, peer: Peer) -> Option<counter::ReservedSlot> {
        self.0.borrow().caps.enter_request(peer)
    }
}

/// A connection whose client and version are known.
pub(super) struct KnownConnection<'d> {
    pub(super) io: TimedSocket<ClientStream>,
    pub(super) client: Rc<Client>,
    pub(super) settings: ConnectionSettings,
    pub(super) context: &'d Rc<ConnectionContext>,
}
