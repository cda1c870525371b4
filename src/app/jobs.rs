//! The background tasks: those with the lifetime of the process, and those that a reload restarts.

use std::sync::Arc;

use anteroom_store::AnyStore;
use anteroom_telemetry::metrics::ThreadMetrics;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::hints::Hints;
use super::live_config::LiveConfig;
use super::shared_state::SharedState;
use super::{fleet, origins, page_memory, parts, row_tasks, sessions, tls, traces, webhook};
use crate::task::{
    self, Clean, CleanVisitors, EndedSessions, FlushVisitors, Handovers, HotPages, KeepLimits,
    LogOuts, PurgeTask, RegisterProxy, Rescale, ShareTicketKeys, Visits,
};

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
    /// Starts the tasks on this thread's runtime. They end at `stop`.
    pub(super) fn start(
        live: &LiveConfig,
        shared: &SharedState,
        store: &AnyStore,
        stop: &CancellationToken,
    ) -> Self {
        live.tell_rules(shared);
        let thread_metrics = shared.metrics.thread_metrics();
        let config_ends = stop.child_token();
        Self {
            lasting: lasting((live, shared), store, &thread_metrics, stop),
            configured: configured(live, shared, store, (&thread_metrics, &config_ends)),
            config_ends,
            stop: stop.clone(),
            thread_metrics,
        }
    }

    /// Ends the tasks of the old configuration, and starts those of the new one.
    pub(super) async fn restart(
        &mut self,
        live: &LiveConfig,
        shared: &SharedState,
        store: &AnyStore,
    ) {
        self.config_ends.cancel();
        wait(std::mem::take(&mut self.configured)).await;
        self.config_ends = self.stop.child_token();
        self.configured =
            configured(live, shared, store, (&self.thread_metrics, &self.config_ends));
    }

    /// Returns when all tasks have ended.
    pub(super) async fn ended(self) {
        wait(self.lasting).await;
        wait(self.configured).await;
    }
}

async fn wait(jobs: Vec<JoinHandle<()>>) {
    for job in jobs {
        if let Err(error) = job.await {
            tracing::error!(%error, "a background task failed");
        }
    }
}

fn visits((live, shared): (&LiveConfig, &SharedState), store: &AnyStore) -> Visits {
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
    (live, shared): (&LiveConfig, &SharedState),
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

fn register_proxy((live, shared): (&LiveConfig, &SharedState), store: &AnyStore) -> RegisterProxy {
    RegisterProxy {
        store: store.background(),
        fleet: Arc::clone(&shared.fleet),
        pages: Arc::clone(&shared.pages),
        who: shared.pages.purged.who,
        entry: fleet::entry(live, shared),
        refusal_logged: Default::default(),
        written: Default::default(),
    }
}

fn lasting(
    (live, shared): (&LiveConfig, &SharedState),
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
    let visits = visits((live, shared), store);
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

fn configured(
    live: &LiveConfig,
    shared: &SharedState,
    store: &AnyStore,
    (thread_metrics, stop): (&Arc<ThreadMetrics>, &CancellationToken),
) -> Vec<JoinHandle<()>> {
    let plan = &live.plan;
    let log_outs = LogOuts { store: store.clone(), sessions: Arc::clone(&live.sessions) };
    let clean = Clean {
        store: store.background(),
        visits: visits((live, shared), store),
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
    // Existing tokens expire, too, after the last route stops issuing them.
    let clean_visitors = CleanVisitors {
        store: store.background(),
        visits: Arc::clone(&shared.visitor_visits),
        keep: plan.visitor.max_tokens,
        unseen: plan.visitor.token_lifetime,
        batch: plan.session.clean_batch,
        every: plan.session.clean_every,
        kept: Arc::clone(&shared.visitor_tokens),
        thread_metrics: Arc::clone(thread_metrics),
    };
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
    let register = register_proxy((live, shared), store);
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
    jobs.extend(webhook::start((plan, live.webhook.as_ref()), shared, thread_metrics, store, stop));
    let receiver = live.traces_receiver.as_ref();
    jobs.extend(traces::start((plan, receiver), shared, thread_metrics, stop));
    jobs.extend(start_keep_limits(live, store, thread_metrics, stop));
    jobs.extend(start_share_ticket_keys((live, shared), store, thread_metrics, stop));
    jobs.extend(origins::start_checks(plan, &live.origins, thread_metrics, stop));
    jobs
}
