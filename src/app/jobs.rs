//! The background tasks: those with the lifetime of the process, and those that a reload restarts.

use std::sync::Arc;
use std::time::Duration;

use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::ThreadMetrics;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::hints::Hints;
use super::live_config::LiveConfig;
use super::shared_state::SharedState;
use super::{acme, fleet, origins, page_memory, parts, row_tasks, sessions, tls, traces, webhook};
use crate::task::{
    self, Clean, CleanVisitors, EndedSessions, FlushVisitors, Handovers, HotPages, KeepLimits,
    LogOuts, PurgeTask, RegisterProxy, Rescale, ShareTicketKeys, Visits,
};

/// How long a step may take to end before the store changes hands.
const PAUSE: Duration = Duration::from_secs(1);

/// The background tasks.
#[derive(Debug)]
pub(super) struct Jobs {
    lasting: Vec<JoinHandle<()>>,
    /// The tasks that depend on the configuration in force.
    configured: Vec<JoinHandle<()>>,
    /// Ends those tasks; a child of the token that ends everything.
    config_ends: CancellationToken,
    stop: CancellationToken,
    thread_metrics: Arc<ThreadMetrics>,
}

impl Jobs {
    /// None so far. They will end at `stop`.
    pub(super) fn new(live: &LiveConfig, shared: &SharedState, stop: &CancellationToken) -> Self {
        live.tell_rules(shared);
        Self {
            lasting: Vec::new(),
            configured: Vec::new(),
            config_ends: stop.child_token(),
            stop: stop.clone(),
            thread_metrics: shared.metrics.thread_metrics(),
        }
    }

    /// Starts the tasks on this thread's runtime.
    pub(super) fn start(&mut self, live: &LiveConfig, shared: &SharedState, store: &AnyStore) {
        self.lasting = lasting(live, shared, store, &self.thread_metrics, &self.stop);
        self.start_configured(live, shared, store);
    }

    fn start_configured(&mut self, live: &LiveConfig, shared: &SharedState, store: &AnyStore) {
        self.config_ends = self.stop.child_token();
        self.configured = configured(live, shared, store, &self.thread_metrics, &self.config_ends);
    }

    /// Ends the tasks of the old configuration, and starts those of the new one.
    pub(super) async fn restart(
        &mut self,
        live: &LiveConfig,
        shared: &SharedState,
        store: &AnyStore,
    ) {
        self.config_ends.cancel();
        wait(&mut self.configured).await;
        self.start_configured(live, shared, store);
    }

    /// Ends the tasks that depend on the configuration: what they do beside the store, another process would do once more.
    /// A step that takes long is not waited for. [`Self::restart`] starts them again.
    pub(super) async fn pause(&mut self) {
        self.config_ends.cancel();
        if timeout(PAUSE, wait(&mut self.configured)).await.is_err() {
            tracing::debug!("a background task has not ended before the store changes hands");
        }
    }

    /// Starts what this process needs while a successor has the store.
    pub(super) fn go_on_beside_successor(&mut self, live: &LiveConfig, store: &AnyStore) {
        self.config_ends = self.stop.child_token();
        let (thread_metrics, stop) = (&self.thread_metrics, &self.config_ends);
        let log_outs = task::drive(log_outs(live, store), Arc::clone(thread_metrics), stop.clone());
        self.configured.push(tokio::task::spawn_local(log_outs));
        let checks = origins::start_checks(&live.plan, &live.origins, thread_metrics, stop);
        self.configured.extend(checks);
    }

    /// Returns when all tasks have ended.
    pub(super) async fn ended(mut self) {
        wait(&mut self.lasting).await;
        wait(&mut self.configured).await;
    }
}

/// Takes out those that have ended, until none is left.
async fn wait(jobs: &mut Vec<JoinHandle<()>>) {
    while let Some(job) = jobs.last_mut() {
        if let Err(error) = job.await {
            tracing::error!(%error, "a background task failed");
        }
        jobs.pop();
    }
}

fn log_outs(live: &LiveConfig, store: &AnyStore) -> LogOuts {
    LogOuts { store: store.clone(), sessions: Arc::clone(&live.sessions) }
}

fn visits(live: &LiveConfig, shared: &SharedState, store: &AnyStore) -> Visits {
    Visits {
        store: store.clone(),
        queue: Arc::clone(&shared.visits),
        sessions: Arc::clone(&live.sessions),
    }
}

/// The list of the pages in use, which the next start reads.
pub(super) fn hot_pages(shared: &SharedState, store: &AnyStore) -> HotPages {
    HotPages {
        store: store.background(),
        pages: Arc::clone(&shared.pages),
        has_rested: Default::default(),
    }
}

/// What is known of the servers of origins, which the next start reads.
pub(super) fn keep_limits(live: &LiveConfig, store: &AnyStore) -> KeepLimits {
    let learning = live.origins.server_lists().filter(|list| list.learns_limits());
    KeepLimits {
        store: store.background(),
        server_lists: learning.cloned().collect(),
        has_rested: Default::default(),
    }
}

/// Starts the task that keeps it, if any origin learns limits.
fn start_keep_limits(
    live: &LiveConfig,
    store: &AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let keep = keep_limits(live, store);
    if keep.server_lists.is_empty() {
        return None;
    }
    let driven = task::drive(keep, Arc::clone(thread_metrics), stop.clone());
    Some(tokio::task::spawn_local(driven))
}

/// Starts the task that has the keys of TLS tickets alike with other proxies, if any listener uses them.
fn start_share_ticket_keys(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Option<JoinHandle<()>> {
    let share = ShareTicketKeys {
        store: store.background(),
        keys: Arc::clone(&shared.ticket_keys),
        refusal_logged: Default::default(),
    };
    tls::shares_ticket_keys(&live.plan).then(|| {
        tokio::task::spawn_local(task::drive(share, Arc::clone(thread_metrics), stop.clone()))
    })
}

fn register_proxy(live: &LiveConfig, shared: &SharedState, store: &AnyStore) -> RegisterProxy {
    RegisterProxy {
        store: store.background(),
        fleet: Arc::clone(&shared.fleet),
        pages: Arc::clone(&shared.pages),
        process_id: shared.pages.purged.process_id,
        entry: fleet::entry(live, shared),
        refusal_logged: Default::default(),
        written: Default::default(),
    }
}

fn lasting(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let purges = PurgeTask {
        store: store.clone(),
        purged: Arc::clone(&shared.pages.purged),
        began: Instant::now(),
        refusal_logged: Default::default(),
        backlog_logged: Default::default(),
    };
    let visits = visits(live, shared, store);
    let flush_visitors =
        FlushVisitors { store: store.clone(), visits: Arc::clone(&shared.visitor_visits) };
    let gone = EndedSessions {
        store: store.clone(),
        sessions: Arc::clone(&live.sessions),
        gone: Default::default(),
    };
    let mut jobs = vec![
        tokio::task::spawn_local(task::drive(gone, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(purges, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(visits, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(
            flush_visitors,
            Arc::clone(thread_metrics),
            stop.clone(),
        )),
    ];
    page_memory::report(&live.plan.cache);
    if let Some(fit) = page_memory::fit(shared, thread_metrics) {
        let fit = task::drive(fit, Arc::clone(thread_metrics), stop.clone());
        jobs.push(tokio::task::spawn_local(fit));
    }
    jobs
}

/// Existing tokens expire, too, after the last route stops issuing them.
fn clean_visitors(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
) -> CleanVisitors {
    let plan = &live.plan;
    CleanVisitors {
        store: store.background(),
        visits: Arc::clone(&shared.visitor_visits),
        keep: plan.visitor.max_tokens,
        unseen: plan.visitor.token_lifetime,
        batch: plan.session.clean_batch,
        every: plan.session.clean_every,
        kept: Arc::clone(&shared.visitor_tokens),
        thread_metrics: Arc::clone(thread_metrics),
    }
}

fn configured(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let plan = &live.plan;
    let log_outs = log_outs(live, store);
    let clean = Clean {
        store: store.background(),
        visits: visits(live, shared, store),
        keep: plan.session.max_sessions,
        unseen: sessions::rules(&plan.session).longest(),
        batch: plan.session.clean_batch,
        every: plan.session.clean_every,
        carts: plan.session.clean_carts,
        expiring: sessions::expiring(&plan.session),
        thread_metrics: Arc::clone(thread_metrics),
        refusal_logged: Default::default(),
        loss_logged: Default::default(),
        corrected: Default::default(),
    };
    let clean_visitors = clean_visitors(live, shared, store, thread_metrics);
    let rescale = Rescale {
        store: store.background(),
        keep_top: plan.views.keep_top,
        factor: f64::from(plan.views.rescale_percent) / 100.0,
        every: plan.views.rescale_every,
    };
    let hints = Hints {
        kinds: parts::cookie_kinds(plan),
        metrics: Arc::clone(&shared.metrics),
        found: Arc::clone(&shared.hints),
    };
    let handovers = Handovers { store: store.background() };
    let register = register_proxy(live, shared, store);
    let mut jobs = vec![
        tokio::task::spawn_local(task::drive(register, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(handovers, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(log_outs, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(hints, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(rescale, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(clean, Arc::clone(thread_metrics), stop.clone())),
        tokio::task::spawn_local(task::drive(
            clean_visitors,
            Arc::clone(thread_metrics),
            stop.clone(),
        )),
    ];
    if !plan.cache.warm_start.is_zero() {
        let listing = hot_pages(shared, store);
        jobs.push(tokio::task::spawn_local(task::drive(
            listing,
            Arc::clone(thread_metrics),
            stop.clone(),
        )));
    }
    jobs.extend(row_tasks::start(live, shared, thread_metrics, store, stop));
    jobs.extend(webhook::start(plan, live.webhook.as_ref(), shared, thread_metrics, store, stop));
    let receiver = live.traces_receiver.as_ref();
    jobs.extend(traces::start(plan, receiver, shared, thread_metrics, stop));
    let authority = live.authority_tls.as_ref();
    jobs.extend(acme::start(plan, authority, shared, store, thread_metrics, stop));
    jobs.extend(start_keep_limits(live, store, thread_metrics, stop));
    jobs.extend(start_share_ticket_keys(live, shared, store, thread_metrics, stop));
    jobs.extend(origins::start_checks(plan, &live.origins, thread_metrics, stop));
    jobs
}
