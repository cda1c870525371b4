//! An origin as one thread reaches it: its servers, each with this thread's connections to it.
//!
//! The server list, shared by all threads, chooses the server of a request. This module decides whether a
//! failed request is sent to another server.

use std::rc::Rc;
use std::sync::Arc;

use ::http::{Request, StatusCode};
use anteroom_http::hop;
use anteroom_http::upgrade::UpgradeProtocol;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use tokio::time::Instant;

use super::background::BackgroundSlot;
use super::pool::PinnedConnection;
use super::requester::Requester;
use super::send::{SendFailure, is_repeatable};
use super::servers::{
    FoundServer, NoServer, ServerFailure, ServerList, ServerSlot, ServerWanted, SharedPriority,
    Upload,
};
use super::upgrade::UpgradeAnswer;
use super::{
    ConnectionReuse, OriginError, OriginResponse, ServerConnections, ServerSettings, UploadBody,
};

/// A place at a server, kept for a request that is sent soon.
#[derive(Debug)]
pub struct ReservedPlace(ServerSlot);

/// An origin, as one thread reaches it.
#[derive(Debug)]
pub struct Upstream {
    server_list: Arc<ServerList>,
    servers: Vec<Rc<ServerConnections>>,
    thread_metrics: Arc<ThreadMetrics>,
}

/// All origins, at the indexes by which routes refer to them.
pub type Upstreams = Rc<[Rc<Upstream>]>;

impl Upstream {
    /// For one thread. `servers` are those of the server list, in its order.
    #[must_use]
    pub fn new(
        server_list: Arc<ServerList>,
        servers: Vec<ServerSettings>,
        thread_metrics: Arc<ThreadMetrics>,
    ) -> Rc<Self> {
        let servers = servers
            .into_iter()
            .map(|settings| ServerConnections::new(settings, Arc::clone(&thread_metrics)));
        Rc::new(Self { server_list, servers: servers.collect(), thread_metrics })
    }

    /// Its name: `origin`, or that of its `[origins.NAME]`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.server_list.name()
    }

    /// The same, to be kept.
    #[must_use]
    pub fn shared_name(&self) -> &Arc<str> {
        self.server_list.shared_name()
    }

    /// Whether it may take gRPC calls, which need HTTP/2.
    #[must_use]
    pub fn may_speak_http2(&self) -> bool {
        self.servers.iter().any(|server| server.may_speak_http2())
    }

    /// A place for a request of the proxy's own accord; `None` while the origin has others of them, waits, is
    /// slow or fails.
    #[must_use]
    pub fn background_slot(&self) -> Option<BackgroundSlot> {
        self.server_list.background_slot()
    }

    /// Whether requests may wait here, each in its order.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        !self.server_list.is_plain()
    }

    pub(super) fn server_list(&self) -> &Arc<ServerList> {
        &self.server_list
    }

    pub(super) fn servers(&self) -> &[Rc<ServerConnections>] {
        &self.servers
    }

    /// Sends a request to one of the servers and waits for the head of the response. The session keeps to a
    /// server where the operator has configured that.
    ///
    /// If that server fails, the request goes to another one, once: any request of which nothing was written,
    /// and a GET or HEAD without a body that got no answer. The retry budget limits this, except where no
    /// connection was made.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub fn send(
        &self,
        request: Request<UploadBody>,
        keep: ConnectionReuse,
        requester: Requester<'_>,
    ) -> impl Future<Output = Result<OriginResponse, OriginError>> {
        self.send_at(None, request, keep, requester)
    }

    /// Waits for a place at one of the servers, for a request whose answer several clients may wait for; `None`: requests do
    /// not wait here. `is_repeatable`: whether it is a GET or HEAD without a body.
    ///
    /// # Errors
    /// There is no place.
    pub async fn reserve(
        &self,
        requester: Requester<'_>,
        shared: &SharedPriority,
        is_repeatable: bool,
    ) -> Result<Option<ReservedPlace>, OriginError> {
        if self.server_list.is_plain() {
            return Ok(None);
        }
        let shared = Some(shared);
        let wanted = ServerWanted {
            requester,
            shared,
            is_repeatable,
            upload: if is_repeatable { Upload::None } else { Upload::Small },
            not: None,
            only: None,
        };
        Ok(Some(ReservedPlace(self.slot(&wanted).await?)))
    }

    /// The same as [`Self::send`], at a place that was reserved, if there is one.
    ///
    /// # Errors
    /// See [`OriginError`].
    pub async fn send_at(
        &self,
        place: Option<ReservedPlace>,
        request: Request<UploadBody>,
        keep: ConnectionReuse,
        requester: Requester<'_>,
    ) -> Result<OriginResponse, OriginError> {
        if self.server_list.is_plain() {
            requester.begin();
            let sent = self.servers[0].send(request, keep).await;
            requester.end(Instant::now());
            return sent;
        }
        self.server_list.count_request();
        let wanted = ServerWanted {
            requester,
            shared: None,
            is_repeatable: is_repeatable(&request),
            upload: upload(&request),
            not: None,
            only: self.pinned_to(&keep),
        };
        let found = match place {
            Some(place) => FoundServer::Place(place.0),
            None => self.server_list.find(&wanted),
        };
        // PERF: no future is built for a place that is free.
        let mut slot = match found {
            FoundServer::Place(slot) => slot,
            found => self.slot_after(found, &wanted).await?,
        };
        let first = slot.server();
        slot.sent();
        requester.begin();
        let mut sent = self.servers[first].try_send(Box::new(request), keep.clone()).await;
        judge(&mut sent, slot, &requester);
        let failed = match sent {
            Ok(received) => return Ok(received),
            Err(failed) => failed,
        };
        let SendFailure { error, again: Some(request), .. } = failed else {
            return Err(failed.error);
        };
        // A login on a connection that is gone must begin again, which the client does.
        let is_free = matches!(keep, ConnectionReuse::Pool(_));
        if !is_free || !(error.reached_no_server() || self.server_list.may_send_again()) {
            return Err(error);
        }
        let wanted = ServerWanted { not: Some(first), ..wanted };
        let Ok(mut slot) = self.server_list.slot(&wanted).await else { return Err(error) };
        self.thread_metrics.count(Count::OriginRetriesElsewhere);
        slot.sent();
        requester.begin();
        let mut sent = self.servers[slot.server()].try_send(request, keep).await;
        judge(&mut sent, slot, &requester);
        sent.map_err(|failed| failed.error)
    }

    /// Sends a request for another protocol to one server only.
    ///
    /// # Errors
    /// As [`ServerConnections::upgrade`].
    pub async fn upgrade(
        &self,
        request: Request<UploadBody>,
        protocol: &UpgradeProtocol,
        requester: Requester<'_>,
    ) -> Result<UpgradeAnswer, OriginError> {
        if self.server_list.is_plain() {
            requester.begin();
            let received = self.servers[0].upgrade(request, protocol).await;
            requester.end(Instant::now());
            return received;
        }
        self.server_list.count_request();
        let wanted = ServerWanted {
            requester,
            shared: None,
            is_repeatable: false,
            upload: Upload::Large,
            not: None,
            only: None,
        };
        let mut slot = self.slot(&wanted).await?;
        slot.sent();
        requester.begin();
        let mut received = self.servers[slot.server()].upgrade(request, protocol).await;
        requester.end(Instant::now());
        match &mut received {
            Ok(UpgradeAnswer::Http(received)) => {
                let fails = says_it_cannot(received.response.status());
                slot.judge(fails.then_some(ServerFailure::Unanswered));
                received.response.body_mut().hold(slot);
            }
            Ok(UpgradeAnswer::Switched(switched)) => {
                slot.judge(None);
                switched.hold(slot);
            }
            Err(error) if error.is_ours() || error.is_of_one_page() => {}
            Err(error) => slot.judge(Some(failure(error))),
        }
        received
    }

    async fn slot(&self, wanted: &ServerWanted<'_>) -> Result<ServerSlot, OriginError> {
        self.slot_after(self.server_list.find(wanted), wanted).await
    }

    /// A place at a server, after a look for one.
    async fn slot_after(
        &self,
        found: FoundServer,
        wanted: &ServerWanted<'_>,
    ) -> Result<ServerSlot, OriginError> {
        self.server_list.slot_after(found, wanted).await.map_err(|why| {
            self.thread_metrics.refused_at_origin(wanted.requester.priority.class);
            match why {
                NoServer::Crowded => OriginError::Crowded,
                NoServer::Resting => OriginError::Resting,
            }
        })
    }

    /// The server to which a client's connection is pinned.
    fn pinned_to(&self, keep: &ConnectionReuse) -> Option<usize> {
        let ConnectionReuse::Pinned(slot) = keep else { return None };
        let slot = slot.borrow();
        let pinned: &PinnedConnection = slot.as_ref()?;
        self.servers.iter().position(|server| pinned.is_of(server))
    }
}

/// Tells the place at a server what has become of the request that was sent there. PERF: by reference, and in no future of
/// its own, because results and places are large.
fn judge(
    sent: &mut Result<OriginResponse, SendFailure>,
    mut slot: ServerSlot,
    requester: &Requester<'_>,
) {
    let now = Instant::now();
    requester.end(now);
    match sent {
        Ok(received) => {
            let fails = says_it_cannot(received.response.status());
            slot.judge_at(fails.then_some(ServerFailure::Unanswered), now);
            received.response.body_mut().hold(slot);
        }
        // A fault of the client or of the proxy says nothing about the server.
        Err(SendFailure {
            error: OriginError::ClientBody(_) | OriginError::Unsendable(_), ..
        }) => {}
        Err(SendFailure { error, concerns_server, .. }) if !*concerns_server || error.is_ours() => {
        }
        Err(SendFailure { error, .. }) => slot.judge_at(Some(failure(error)), now),
    }
}

/// The largest upload that comes with its head, or soon after.
const SMALL_UPLOAD: u64 = 16 << 10;

fn upload(request: &Request<UploadBody>) -> Upload {
    if matches!(request.body(), UploadBody::Empty) {
        return Upload::None;
    }
    match hop::content_length(request.headers()) {
        Ok(Some(length)) if length <= SMALL_UPLOAD => Upload::Small,
        Ok(_) | Err(_) => Upload::Large,
    }
}

fn failure(error: &OriginError) -> ServerFailure {
    if error.reached_no_server() { ServerFailure::Unreachable } else { ServerFailure::Unanswered }
}

/// The statuses of a server that cannot serve, as opposed to those of a wrong request.
fn says_it_cannot(status: StatusCode) -> bool {
    matches!(status.as_u16(), 502..=504)
}
