//! The state that all threads share, independent of the configuration.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anteroom_cache::Pages;
use anteroom_cache::class_memory::ClassMemory;
use anteroom_cache::flight::Flights;
use anteroom_cache::purge::PurgeTable;
use anteroom_config::{Plan, StoreUrl, smallest_memory_limit};
use anteroom_http::clock::unix_now;
use anteroom_learn::Learning;
use anteroom_learn::audit::Audits;
use anteroom_proxy::connection::counter::ConnectionCounter;
use anteroom_rows::SharedRows;
use anteroom_session::visit::{PopularityRanks, VisitQueue, VisitorVisits};
use anteroom_session::{SessionMemory, VerifyMemory};
use anteroom_store::OpenStore;
use anteroom_store::fleet::Fleet;
use anteroom_telemetry::metrics::Metrics;
use anteroom_telemetry::request_feed::RequestFeed;
use anteroom_telemetry::shown_path::ShownPaths;
use anteroom_telemetry::traces::TraceQueue;
use anteroom_tls::TicketKeys;

use super::certificate_parts::CertificateParts;
use crate::admin::{FoundHints, LatestBackup, ReloadCounts};
use crate::task::MigrationProgress;

/// The state that all threads share, from start to end. A reload changes no setting in it.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) pages: Arc<Pages>,
    pub(super) learning: Arc<Learning>,
    /// What the audit has found.
    pub(super) audits: Arc<Audits>,
    pub(super) class_memory: Arc<ClassMemory>,
    pub(super) sessions: Arc<SessionMemory>,
    pub(super) verified: Arc<VerifyMemory>,
    pub(super) visits: Arc<VisitQueue>,
    pub(super) visitor_visits: Arc<VisitorVisits>,
    /// Tokens of visitors in the store.
    pub(super) visitor_tokens: Arc<AtomicU64>,
    pub(super) ranks: Arc<PopularityRanks>,
    pub(super) rows: Arc<SharedRows>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) store: OpenStore,
    /// The keys of TLS tickets that listeners share with other proxies.
    pub(super) ticket_keys: Arc<TicketKeys>,
    pub(super) connections: Arc<ConnectionCounter>,
    /// Requests of HTTP/2.
    pub(super) requests: Arc<ConnectionCounter>,
    pub(super) tunnels: Arc<ConnectionCounter>,
    /// Configurations made so far.
    pub(super) configs: AtomicU64,
    pub(super) reloads: Arc<ReloadCounts>,
    /// Take-overs after which this process served on.
    pub(super) upgrades_failed: Arc<AtomicU64>,
    /// Hints about cookies that keep pages out of the cache.
    pub(super) hints: Arc<FoundHints>,
    /// Carts that wait for their webhook.
    pub(super) events_waiting: Arc<AtomicU64>,
    /// The other proxies on the store.
    pub(super) fleet: Arc<Fleet>,
    /// What is known of a move of the store by this process.
    pub(super) moving: Arc<MigrationProgress>,
    /// The latest backup of the store.
    pub(super) backup: Arc<LatestBackup>,
    /// Requests as they end, for whatever watches them.
    pub(super) feed: Arc<RequestFeed>,
    /// Traces that wait for their receiver.
    pub(super) traces: Arc<TraceQueue>,
    /// The certificates that are ordered.
    pub(super) certificates: CertificateParts,
    /// What is shown of paths.
    pub(super) paths: Arc<ShownPaths>,
    /// The Unix time of the start.
    pub(super) since: f64,
}

impl SharedState {
    /// Built with the sizes in `plan`, which are read only at start. `process_id`: the id under which this process reports
    /// to the other proxies on the store.
    pub(super) fn new(
        plan: &Plan,
        metrics: &Arc<Metrics>,
        store: &OpenStore,
        certificates: CertificateParts,
        ticket_keys: &Arc<TicketKeys>,
        process_id: u64,
    ) -> Arc<Self> {
        let fleet = Arc::new(Fleet::new(Arc::clone(store.switch())));
        let limits = &plan.limits;
        let flights = Flights::new(limits.in_flight, limits.waiters);
        let mut purged = PurgeTable::new(has_others(plan));
        purged.process_id = process_id;
        let memory = plan.cache.memory_within(smallest_memory_limit().map(|limit| limit.bytes));
        let viewed_items = plan.session.viewed_items as usize;
        Arc::new(Self {
            pages: Arc::new(Pages::new(memory, flights, Arc::new(purged), limits.variants)),
            learning: Arc::default(),
            audits: Arc::default(),
            class_memory: Arc::default(),
            sessions: Arc::default(),
            verified: Arc::default(),
            visits: Arc::new(VisitQueue::new(limits.visit_queue, viewed_items)),
            visitor_visits: Arc::new(VisitorVisits::new(limits.visit_queue, viewed_items)),
            visitor_tokens: Arc::default(),
            ranks: Arc::default(),
            rows: Arc::default(),
            metrics: Arc::clone(metrics),
            store: store.clone(),
            ticket_keys: Arc::clone(ticket_keys),
            connections: Arc::default(),
            requests: Arc::default(),
            tunnels: Arc::default(),
            configs: AtomicU64::default(),
            reloads: Arc::default(),
            upgrades_failed: Arc::default(),
            hints: Arc::default(),
            events_waiting: Arc::default(),
            fleet,
            moving: Arc::default(),
            backup: Arc::default(),
            feed: Arc::default(),
            traces: Arc::default(),
            certificates,
            paths: Arc::new(ShownPaths { redact: plan.log.redact_paths.clone() }),
            since: unix_now(),
        })
    }
}

/// Whether other proxies may use the store, or the one that it is moved to.
pub(super) fn has_others(plan: &Plan) -> bool {
    let next = plan.store.next();
    let stores = [Some(&plan.store), next.as_ref()];
    stores.into_iter().flatten().any(|store| matches!(store.url, StoreUrl::Redis(_)))
}
