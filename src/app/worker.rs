//! A worker: one thread with its own runtime, listeners, origin connections and store handle.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anteroom_cache::Pages;
use anteroom_cache::fill::Filler;
use anteroom_origin::Upstreams;
use anteroom_proxy::serve::{
    ConnectionContext, Entrance, ReloadableContext, ServingContext, ThreadListener, serve,
};
use anteroom_proxy::{DetachedTasks, WorkerContext, keep_warm};
use anteroom_rows::RowReader;
use anteroom_store::{AnyStore, OpenStore};
use anteroom_telemetry::access_log::LogBuffer;
use anteroom_telemetry::metrics::{RequestCounters, ThreadMetrics};
use anteroom_telemetry::request_telemetry::RequestTelemetry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ends::Ends;
use super::live_config::LiveConfig;
use super::runtime::runtime;
use super::service_manager::Pulse;
use super::shared_state::SharedState;
use super::start_error::StartError;
use super::tls;
use crate::task;

/// How often the end of the workers is checked.
const LOOK: Duration = Duration::from_millis(10);

/// How long visitors wait for the store at start.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// The parts of a worker.
struct WorkerParts {
    shared: Arc<SharedState>,
    live: Arc<LiveConfig>,
    store: OpenStore,
    entrances: FirstEntrances,
    orders: mpsc::UnboundedReceiver<Order>,
    log_buffer: Option<Arc<LogBuffer>>,
    leaving: CancellationToken,
    drain: CancellationToken,
    pulse: Option<Pulse>,
    serves: oneshot::Sender<bool>,
}

/// Where a worker accepts connections.
#[derive(Debug)]
pub(super) struct FirstEntrances {
    pub(super) listeners: Vec<ThreadListener>,
    /// Whether it does so at once. Otherwise it is all prepared, and begins with its first order.
    pub(super) are_open: bool,
}

/// A running worker.
#[derive(Debug)]
pub(super) struct Worker {
    thread: JoinHandle<()>,
    orders: mpsc::UnboundedSender<Order>,
    /// Resolves when it accepts connections, or stands ready to: whether it can at all its entrances.
    serves: Option<oneshot::Receiver<bool>>,
}

/// What a reload sends to a worker, and a process that may serve from now on.
struct Order {
    live: Arc<LiveConfig>,
    /// The entrances that it serves in addition.
    entrances: Vec<ThreadListener>,
    /// Takes whether it can.
    done: oneshot::Sender<bool>,
}

/// Starts a worker with `entrances`.
pub(super) fn start(
    live: &Arc<LiveConfig>,
    shared: &Arc<SharedState>,
    store: &OpenStore,
    entrances: FirstEntrances,
    log_buffer: Option<Arc<LogBuffer>>,
    ends: &Ends,
    pulse: Option<Pulse>,
) -> Result<Worker, StartError> {
    let refused = |what| move |source| StartError::System { what, source };
    let (shared, live, store) = (Arc::clone(shared), Arc::clone(live), store.clone());
    let (leaving, drain) = (ends.leaving.clone(), ends.drain.clone());
    let (tell, orders) = mpsc::unbounded_channel();
    let (serves, serving) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(move || {
            let runtime = match runtime() {
                Ok(runtime) => runtime,
                Err(error) => return tracing::error!(%error, "a worker did not start"),
            };
            runtime.block_on(work(WorkerParts {
                shared,
                live,
                store,
                entrances,
                orders,
                log_buffer,
                leaving,
                drain,
                pulse,
                serves,
            }));
        })
        .map_err(refused("a thread"))?;
    Ok(Worker { thread, orders: tell, serves: Some(serving) })
}

/// Returns when all workers accept connections, at their start, or stand ready to; whether all of them do.
pub(super) async fn serving(workers: &mut [Worker]) -> bool {
    let mut all_serve = true;
    for serves in workers.iter_mut().filter_map(|worker| worker.serves.take()) {
        let serves = serves.await;
        if serves.is_err() {
            tracing::error!("a worker ended before it served");
        }
        all_serve &= serves.unwrap_or_default();
    }
    all_serve
}

/// Sends the next configuration to all workers, and further entrances, and returns when they use them; whether all of
/// them do. A worker that has accepted no connections so far begins to.
pub(super) async fn tell(
    workers: &[Worker],
    live: &Arc<LiveConfig>,
    entrances: Vec<Vec<ThreadListener>>,
) -> bool {
    let (mut answers, mut all_use_it) = (Vec::new(), true);
    for (worker, entrances) in workers.iter().zip(entrances) {
        let (done, answer) = oneshot::channel();
        match worker.orders.send(Order { live: Arc::clone(live), entrances, done }) {
            Ok(()) => answers.push(answer),
            Err(_) => all_use_it = false,
        }
    }
    for answer in answers {
        let answer = answer.await;
        if answer.is_err() {
            tracing::error!("a worker did not take the new configuration");
        }
        all_use_it &= answer.unwrap_or_default();
    }
    all_use_it
}

/// Puts listeners onto the runtime of this thread; whether it has taken all of them.
fn on_this_runtime(listeners: Vec<ThreadListener>) -> (Vec<Entrance>, bool) {
    let count = listeners.len();
    let entrance = |listener| {
        let entrance = Entrance::new(listener);
        entrance.inspect_err(|error| tracing::error!(%error, "a worker cannot listen")).ok()
    };
    let entrances: Vec<_> = listeners.into_iter().filter_map(entrance).collect();
    let has_all = entrances.len() == count;
    (entrances, has_all)
}

async fn work(kit: WorkerParts) {
    let WorkerParts { shared, mut live, store, entrances, mut orders, .. } = kit;
    let WorkerParts { log_buffer, leaving, drain, pulse, serves, .. } = kit;
    if let Some(pulse) = &pulse {
        tokio::task::spawn_local(pulse.clone().keep_up());
    }
    let thread_metrics = shared.metrics.thread_metrics();
    let first = worker_context(
        &shared,
        &live,
        store.thread_handle(),
        Arc::clone(&thread_metrics),
        log_buffer,
    );
    // The first visitors should be recognised, too, but an unreachable store must not delay them.
    let ready = hear_from_store(&first, &shared, &live);
    if tokio::time::timeout(CONNECT_TIMEOUT, ready).await.is_err() {
        tracing::warn!("the store is unreachable; serving without it for now");
    }
    let connections = TaskTracker::new();
    let connection_context = Rc::new(ConnectionContext {
        thread_metrics,
        // PERF: it is looked at after each request, and threads would contend for one.
        leaving: leaving.child_token(),
        drain: drain.clone(),
        connections: connections.clone(),
        inside: ReloadableContext::new(served_by(Rc::clone(&first), &live)),
    });
    let detached = Rc::clone(&first.detached);
    drop(first);
    let mut accepting = JoinSet::new();
    let accept = |entrances: &mut Vec<Entrance>, accepting: &mut JoinSet<()>| {
        for entrance in entrances.drain(..) {
            accepting.spawn_local(serve(entrance, Rc::clone(&connection_context)));
        }
    };
    let (mut waiting, has_all) = on_this_runtime(entrances.listeners);
    if entrances.are_open {
        accept(&mut waiting, &mut accepting);
    }
    let (context, pages) = (Rc::clone(&connection_context), Arc::clone(&shared.pages));
    accepting.spawn_local(keep_warm(pages, move || context.inside.worker(), drain.clone()));
    if serves.send(has_all).is_err() {
        tracing::debug!("the start was abandoned");
    }
    loop {
        tokio::select! {
            Some(order) = orders.recv() => {
                let next = next_worker_context(&connection_context.inside.worker(), &live, &order.live);
                connection_context.inside.replace(served_by(next, &order.live));
                live = order.live;
                let (further, has_all) = on_this_runtime(order.entrances);
                waiting.extend(further);
                accept(&mut waiting, &mut accepting);
                if order.done.send(has_all).is_err() {
                    tracing::debug!("a reload was abandoned");
                }
            }
            Some(ended) = accepting.join_next() => say_failure(&ended),
            () = drain.cancelled() => break,
        }
    }
    while let Some(ended) = accepting.join_next().await {
        say_failure(&ended);
    }
    end_connections(&connections, &detached, live.plan.limits.drain_timeout).await;
    if let Some(pulse) = pulse {
        pulse.end();
    }
}

/// Returns when the store has told what the first visitors are served by.
async fn hear_from_store(first: &WorkerContext, shared: &SharedState, live: &LiveConfig) {
    first.store.connected().await;
    first.pages.purged.known().await;
    shared.fleet.switch.heard().await;
    // After a restart all visitors come back at once: a whole handshake for each would cost the most then.
    if tls::shares_ticket_keys(&live.plan)
        && let Err(error) = task::exchange_ticket_keys(&first.store, &shared.ticket_keys).await
    {
        tracing::debug!(%error, "the store has told no keys of tickets");
    }
}

/// Waits for the end of connections and detached requests, for at most `limit`.
async fn end_connections(connections: &TaskTracker, detached: &DetachedTasks, limit: Duration) {
    connections.close();
    let ended = async {
        connections.wait().await;
        detached.ended().await;
    };
    if tokio::time::timeout(limit, ended).await.is_err() {
        tracing::warn!(open = connections.len(), "connections were closed at the drain timeout");
    }
}

fn say_failure(ended: &Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a listener failed");
    }
}

/// The context that serves clients.
fn served_by(worker_context: Rc<WorkerContext>, live: &LiveConfig) -> ServingContext {
    ServingContext {
        worker: worker_context,
        settings: live.connection,
        caps: Arc::clone(&live.caps),
    }
}

/// Everything that a thread needs to answer requests.
fn worker_context(
    shared: &SharedState,
    live: &LiveConfig,
    handle: AnyStore,
    thread_metrics: Arc<ThreadMetrics>,
    log_buffer: Option<Arc<LogBuffer>>,
) -> Rc<WorkerContext> {
    let upstreams = live.origins.reach(&thread_metrics);
    Rc::new(WorkerContext {
        filler: filler(live, &shared.pages, &upstreams, handle.clone(), &thread_metrics),
        settings: Arc::clone(&live.settings),
        pages: Arc::clone(&shared.pages),
        learning: Arc::clone(&shared.learning),
        audits: Arc::clone(&shared.audits),
        class_memory: Arc::clone(&shared.class_memory),
        recompressor: Arc::clone(&live.recompressor),
        sessions: Arc::clone(&live.sessions),
        verified: Arc::clone(&shared.verified),
        visits: Arc::clone(&shared.visits),
        visitor_visits: Arc::clone(&shared.visitor_visits),
        ranks: Arc::clone(&shared.ranks),
        rows: Rc::new(RowReader::new(Arc::clone(&shared.rows))),
        store: handle,
        upstreams,
        key_memo: Rc::default(),
        token_memo: Rc::default(),
        telemetry: Rc::new(RequestTelemetry {
            counters: request_counters(live, &thread_metrics),
            log_buffer,
            feed: Arc::clone(&shared.feed),
            paths: Arc::clone(&shared.paths),
            traces: live.traces.clone(),
        }),
        thread_metrics,
        waiting_fragments: Rc::default(),
        detached: Rc::default(),
        tunnels: Arc::clone(&shared.tunnels),
    })
}

/// The counters of a thread for the routes of this configuration.
fn request_counters(live: &LiveConfig, thread_metrics: &Arc<ThreadMetrics>) -> RequestCounters {
    RequestCounters::new(thread_metrics, live.settings.routes.names())
}

fn filler(
    live: &LiveConfig,
    pages: &Arc<Pages>,
    upstreams: &Upstreams,
    store: AnyStore,
    thread_metrics: &Arc<ThreadMetrics>,
) -> Rc<Filler> {
    Rc::new(Filler {
        pages: Arc::clone(pages),
        upstreams: Rc::clone(upstreams),
        store,
        policy: live.policy,
        config: live.number,
        thread_metrics: Arc::clone(thread_metrics),
        deferred_writes: Cell::default(),
        leak_logged_at: Cell::default(),
    })
}

/// The context for the next configuration. The thread keeps its counters, its store handle, its detached
/// tasks, and its connections to unchanged origins.
fn next_worker_context(
    worker_context: &WorkerContext,
    old: &LiveConfig,
    new: &LiveConfig,
) -> Rc<WorkerContext> {
    let upstreams = new.origins.reach_on(
        &old.origins,
        &worker_context.upstreams,
        &worker_context.thread_metrics,
    );
    let telemetry = &worker_context.telemetry;
    Rc::new(WorkerContext {
        settings: Arc::clone(&new.settings),
        recompressor: Arc::clone(&new.recompressor),
        sessions: Arc::clone(&new.sessions),
        telemetry: Rc::new(RequestTelemetry {
            counters: request_counters(new, &worker_context.thread_metrics),
            log_buffer: telemetry.log_buffer.clone(),
            feed: Arc::clone(&telemetry.feed),
            paths: Arc::clone(&telemetry.paths),
            traces: new.traces.clone(),
        }),
        filler: filler(
            new,
            &worker_context.pages,
            &upstreams,
            worker_context.store.clone(),
            &worker_context.thread_metrics,
        ),
        upstreams,
        ..worker_context.clone()
    })
}

/// A context for explanations, in which no request is answered. Its counters are not read.
pub(super) fn dry_worker(
    live: &LiveConfig,
    shared: &SharedState,
    handle: &AnyStore,
) -> Rc<WorkerContext> {
    let thread_metrics = Arc::<ThreadMetrics>::default();
    worker_context(shared, live, handle.clone(), thread_metrics, None)
}

/// Waits for the workers to end.
pub(super) async fn join(workers: Vec<Worker>) {
    while !workers.iter().all(|worker| worker.thread.is_finished()) {
        tokio::time::sleep(LOOK).await;
    }
    for worker in workers {
        if worker.thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}
