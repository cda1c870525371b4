//! Connections to the origin: each thread keeps its own, newest first.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use ::http::Extensions;
use anteroom_policy::origin::Http2;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use anteroom_telemetry::traces::{OriginSpan, ServerAddress};
use tokio::time::Instant;

use super::http1::{DirectConnection, IdleState};
use super::http2_pool::Http2Pool;
use super::sender::{Http1, Sender};
use super::{OriginError, ServerSettings};

/// A kept connection that was idle for longer than this carries only GET and HEAD: if the origin closed it at
/// that moment, any other request could not be sent again.
const UNSAFE_IDLE: Duration = Duration::from_secs(1);
/// How often idle connections are checked.
const SWEEP: Duration = Duration::from_secs(1);

/// A connection that belongs to one client's connection (NTLM, Negotiate).
#[derive(Debug)]
pub struct PinnedConnection {
    pub(super) connection: Http1,
    /// Its server. Requests to other servers are never sent on it.
    server: Weak<ServerConnections>,
}

impl PinnedConnection {
    pub(super) fn is_of(&self, server: &Rc<ServerConnections>) -> bool {
        std::ptr::eq(self.server.as_ptr(), Rc::as_ptr(server))
    }
}

/// Where a client's connection holds the origin connection that is pinned to it.
pub type PinnedSlot = Rc<RefCell<Option<PinnedConnection>>>;

/// One thread's connections to one server of an origin.
#[derive(Debug)]
pub struct ServerConnections {
    pub(super) settings: ServerSettings,
    pub(super) thread_metrics: Arc<ThreadMetrics>,
    /// The server, as traces name it.
    address: Arc<ServerAddress>,
    /// Newest last.
    idle: RefCell<Vec<(Http1, Instant)>>,
    pub(super) http2_pool: Http2Pool,
}

impl ServerConnections {
    /// For one thread. The sweep of idle connections runs on the current runtime for as long as the origin is
    /// held.
    #[must_use]
    pub fn new(settings: ServerSettings, thread_metrics: Arc<ThreadMetrics>) -> Rc<Self> {
        let address = Arc::new(match &settings.socket {
            Some(path) => ServerAddress { host: path.display().to_string(), port: None },
            None => ServerAddress { host: settings.host.clone(), port: Some(settings.port) },
        });
        let origin = Rc::new(Self {
            settings,
            thread_metrics,
            address,
            idle: RefCell::default(),
            http2_pool: Http2Pool::default(),
        });
        let weak = Rc::downgrade(&origin);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(origin) = weak.upgrade() else { return };
                origin.sweep();
            }
        });
        origin
    }

    /// A request is sent to this server: its span is told, if it has one.
    pub(super) fn tell_span(&self, request: &Extensions) {
        if let Some(span) = request.get::<OriginSpan>() {
            span.sent_to(&self.address);
        }
    }

    fn sweep(&self) {
        let limit = self.settings.idle_timeout;
        self.idle.borrow_mut().retain_mut(|(connection, since)| {
            let state = connection.idle_state();
            let stays = self.is_open(state) || state == IdleState::Busy;
            stays && since.elapsed() < limit
        });
        self.http2_pool.sweep(limit);
    }

    /// Whether an idle connection can carry a request. Counts one that broke.
    pub(super) fn is_open(&self, state: IdleState) -> bool {
        if state == IdleState::Faulty {
            self.thread_metrics.count(Count::OriginIdleErrors);
        }
        state == IdleState::Open
    }

    /// Returns what carries a request, and whether it was open already.
    pub(super) async fn sender(&self, with_effects: bool) -> Result<(Sender, bool), OriginError> {
        if !self.may_share() {
            return match self.kept(with_effects) {
                Some(kept) => Ok((kept.into(), true)),
                None => Ok((self.connect().await?, false)),
            };
        }
        if let Some(stream) = self.http2_pool.free() {
            return Ok((stream.into(), true));
        }
        if let Some(kept) = self.kept(with_effects) {
            return Ok((kept.into(), true));
        }
        self.open_or_share().await
    }

    /// One request connects for all that arrive meanwhile; where connections are not shared, each connects
    /// for itself. The request whose turn it is has the full timeout, however long it has waited. Otherwise
    /// each waiting request would try for a moment only, and all would fail.
    async fn open_or_share(&self) -> Result<(Sender, bool), OriginError> {
        if self.http2_pool.speaks_http1() {
            return Ok((self.connect().await?, false));
        }
        let turn = tokio::time::timeout(self.settings.connect_timeout, self.http2_pool.turn.lock())
            .await
            .map_err(|_| OriginError::ConnectTimedOut)?;
        if let Some(stream) = self.http2_pool.free_once_announced().await {
            return Ok((stream.into(), true));
        }
        if self.http2_pool.speaks_http1() {
            drop(turn);
        }
        Ok((self.connect().await?, false))
    }

    /// Whether connections to the origin may use HTTP/2 now.
    pub(super) fn may_share(&self) -> bool {
        self.may_speak_http2() && !self.http2_pool.wants_http1()
    }

    /// Whether HTTP/2 is allowed with this origin at all.
    pub(super) fn may_speak_http2(&self) -> bool {
        match self.settings.http2 {
            Http2::Never => false,
            Http2::Auto => self.settings.tls.is_some(),
            Http2::Always => true,
        }
    }

    /// A kept connection that appears to be alive; the most recently used first.
    pub(super) fn kept(&self, with_effects: bool) -> Option<Http1> {
        let limit =
            self.settings.idle_timeout.min(if with_effects { UNSAFE_IDLE } else { Duration::MAX });
        let mut idle = self.idle.borrow_mut();
        loop {
            let (mut connection, since) = idle.pop()?;
            if since.elapsed() >= limit {
                // The others are older still; the sweep closes those past the idle timeout.
                idle.push((connection, since));
                return None;
            }
            if self.is_open(connection.idle_state()) {
                connection.rests(false);
                return Some(connection);
            }
        }
    }

    pub(super) fn keep(&self, connection: Http1) {
        let mut idle = self.idle.borrow_mut();
        if self.is_open(connection.after_response()) && idle.len() < self.settings.keep_idle {
            connection.rests(true);
            idle.push((connection, Instant::now()));
        }
    }
}

/// Returns a connection once its response has been read to the end. Dropping it frees a place on a shared
/// connection.
pub(super) struct PoolReturn {
    origin: Rc<ServerConnections>,
    sender: Sender,
    to: Destination,
}

/// Where a connection goes.
pub(super) enum Destination {
    /// To the next request.
    Pool,
    /// Back to the client's connection to which it is pinned.
    Slot(PinnedSlot),
    /// It is closed.
    Nowhere,
}

impl PoolReturn {
    pub(super) fn new(origin: &Rc<ServerConnections>, sender: Sender, to: Destination) -> Self {
        Self { origin: Rc::clone(origin), sender, to }
    }

    pub(super) fn now(self) {
        self.sender.over();
        let Some(connection) = self.sender.into_http1() else { return };
        match self.to {
            Destination::Pool => self.origin.keep(connection),
            Destination::Slot(slot) => {
                if self.origin.is_open(connection.after_response()) {
                    let server = Rc::downgrade(&self.origin);
                    slot.replace(Some(PinnedConnection { connection, server }));
                }
            }
            Destination::Nowhere => {}
        }
    }

    /// The connection that the request itself reads.
    pub(super) fn direct(&mut self) -> Option<&mut DirectConnection> {
        match &mut self.sender {
            Sender::Direct(direct) => Some(direct),
            Sender::Hyper(_) => None,
        }
    }

    /// The origin has ended its side, or has sent everything: dropping the request now cancels nothing.
    pub(super) fn over(&self) {
        self.sender.over();
    }

    /// The response stalled.
    pub(super) fn timed_out(self) {
        self.sender.doubt();
    }
}
