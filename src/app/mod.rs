//! The composition root: turns a plan into a running proxy, and shuts it down in order.
//!
//! Only this module sees the whole plan and names the concrete store. It opens everything first, so that
//! errors are reported before the first client connects. `live_config` is what a reload swaps,
//! `shared_state` what outlives it; `store`, `admin`, `sessions` and the others each read their part of
//! the plan.

mod access_log;
mod admin;
mod connect_check;
mod demo;
mod drain;
pub mod dry_run;
mod files;
mod fleet;
mod gauges;
mod hints;
mod jobs;
mod listeners;
mod live_config;
mod origins;
mod outdated;
mod page_memory;
mod parts;
mod possible_reasons;
mod receiver;
mod reload;
mod row_tasks;
mod rows;
mod rule_test;
mod runtime;
mod service_manager;
mod sessions;
mod shared_state;
mod signals;
mod start_error;
mod store;
mod store_backup;
mod store_move;
mod tls;
mod traces;
mod warm;
mod warm_start;
mod webhook;
mod worker;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anteroom_config::LoadedPlan;
use anteroom_proxy::serve::socket::Socket;
use anteroom_store::OpenStore;
use anteroom_telemetry::access_log::AccessLog;
use anteroom_telemetry::metrics::Metrics;
use arc_swap::ArcSwap;
use tokio::runtime::LocalRuntime;
use tokio_util::sync::CancellationToken;

use crate::admin::AdminState;

pub use connect_check::{ConnectFinding, ConnectResult, connect_check};
pub use demo::{Demo, DemoError};
use jobs::Jobs;
use listeners::Listeners;
use live_config::LiveConfig;
use origins::Origins;
use reload::Running;
pub use rule_test::{CaseResult, Mismatch, RuleTestError, case_reasons, run_cases};
use service_manager::Watchdog;
use shared_state::SharedState;
use signals::{Signal, Signals};
pub use start_error::StartError;
pub use store::StorePlace;
pub use store_backup::{StoreBackupError, back_up_store, restore_store, verify_store};
pub use store_move::{MoveReport, StoreMoveError, move_store};
pub use warm::{WarmError, WarmFailure, WarmOrder, WarmReport, warm};

/// A proxy with everything open, ready to run.
#[derive(Debug)]
pub struct Application {
    loaded: LoadedPlan,
    listeners: Listeners,
    admin: Option<TcpListener>,
    socket: Option<Socket>,
    log: access_log::RunningAccessLog,
    runtime: LocalRuntime,
    signals: Signals,
    store: OpenStore,
    metrics: Arc<Metrics>,
}

impl Application {
    /// Opens listeners, log and store.
    ///
    /// # Errors
    /// If one of them cannot be opened; the others are closed again.
    pub fn open(plan: impl Into<LoadedPlan>) -> Result<Self, StartError> {
        let loaded: LoadedPlan = plan.into();
        let plan = &loaded.plan;
        files::allow(plan.limits.connections);
        let listeners = Listeners::open(&plan.listen, plan.threads)?;
        let admin = admin::open_listener(plan.admin.address)?;
        let runtime = runtime::runtime()?;
        // From here on, a signal ends the process cleanly, also while it starts.
        let signals = runtime.block_on(async { Signals::new() })?;
        let store = runtime.block_on(store::open(plan))?;
        let log = access_log::start(&plan.log)?;
        let socket = admin::open_socket(plan);
        let metrics = Arc::default();
        Ok(Self { loaded, listeners, admin, socket, log, runtime, signals, store, metrics })
    }

    /// The TCP addresses of the listeners; a port 0 in the plan has become a real one.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.addresses()
    }

    /// Whether the listener at one of [`Self::addresses`] serves https.
    fn is_secured(&self, address: SocketAddr) -> bool {
        self.listeners.is_secured(address)
    }

    /// The Unix sockets opened for visitors.
    fn sockets(&self) -> Vec<PathBuf> {
        self.listeners.sockets()
    }

    /// Where everything is, a line each.
    fn addresses_in_words(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for address in self.addresses() {
            let scheme = if self.is_secured(address) { "https" } else { "http" };
            lines.push(format!("visitors are served at {scheme}://{address}"));
        }
        lines.extend(
            self.sockets()
                .iter()
                .map(|path| format!("visitors are served at unix:{}", path.display())),
        );
        let urls: Vec<_> = self.loaded.plan.origin.urls().iter().map(ToString::to_string).collect();
        lines.push(format!("the app is at {}", urls.join(", ")));
        lines.extend(
            self.admin_address()
                .map(|address| format!("health and metrics are at http://{address}")),
        );
        lines
    }

    /// The address for operators.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Whether the socket of the data commands is open.
    fn has_socket(&self) -> bool {
        self.socket.is_some()
    }

    /// Serves until TERM or INT, then drains: after TERM, connections are accepted for `drain_delay` while `/readyz`
    /// says 503; then listeners close, open requests finish within `drain_timeout`, visits are written, and the store
    /// is closed.
    ///
    /// HUP applies the plan that `again` reads, all of it or nothing, and reopens the access log. If
    /// `again` fails, it reports the reason itself.
    ///
    /// # Errors
    /// If the system refuses a thread or a signal handler.
    pub fn run(self, again: impl Fn() -> Option<LoadedPlan>) -> Result<(), StartError> {
        let where_it_is = self.addresses_in_words();
        let Self { loaded, mut listeners, admin: operators, socket, log, runtime, .. } = self;
        let plan = &loaded.plan;
        let (mut signals, store, metrics) = (self.signals, self.store, self.metrics);
        let [leaving, drain, stop] = [(); 3].map(|()| CancellationToken::new());
        store::expect_news(&store, plan);
        let shared = SharedState::new(plan, Arc::clone(&metrics), &store, listeners.ticket_keys());
        let audit = admin::start_audit_log(plan)?;
        let first = LiveConfig::new(loaded, &shared, &Origins::default())?;
        let live = Arc::new(ArcSwap::new(Arc::clone(&first)));
        let writer = log.as_ref().map(|(log, _)| Arc::clone(log));
        gauges::register(&shared, &live, &store, writer.as_ref());
        tls::register(listeners.tls(), &metrics);
        let mut watchdog = Watchdog::wanted();
        let start = |entrances| {
            let log_buffer = writer.as_ref().map(|log| log.log_buffer());
            let pulse = watchdog.as_mut().map(Watchdog::pulse);
            let ends = (leaving.clone(), drain.clone());
            worker::start(&first, &shared, &store, entrances, log_buffer, ends, pulse)
        };
        let workers = listeners.take_entrances().into_iter().map(start);
        let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
        let opened = store.clone();
        runtime.block_on(async {
            let handle = opened.thread_handle();
            let [ready, connected] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
            gauges::register_store_state(&connected, &metrics);
            let admin_handle = admin::handle(&first, (&shared, &handle), &listeners, audit);
            let state = AdminState {
                handle: Some(Rc::clone(&admin_handle)),
                metrics,
                ready: Arc::clone(&ready),
                store_connected: Arc::clone(&connected),
            };
            admin::serve_operators(operators, state, &stop)?;
            tokio::task::spawn_local(store::watch(handle.clone(), connected, stop.clone()));
            tokio::task::spawn_local(store::warn_of_eviction(opened, handle.clone()));
            tokio::task::spawn_local(tls::watch(Arc::clone(listeners.tls()), stop.clone()));
            let data_commands = admin::serve_socket(socket, &admin_handle, &stop);
            let jobs = Jobs::start(&first, &shared, &handle, &stop);
            where_it_is.iter().for_each(|line| tracing::info!("{line}"));
            watchdog.map(|watchdog| tokio::task::spawn_local(watchdog.run()));
            let warming = warm_start::begin(&first, &shared, &handle);
            drop(first);
            worker::serving(&mut workers).await;
            let warmed = warm_start::make_ready(warming, Arc::clone(&ready), leaving.clone());
            tokio::task::spawn_local(warmed);
            let mut running =
                Running { live, listeners, workers, shared, store: handle, admin_handle, jobs };
            let log = writer.as_deref();
            let end = serve_until_end(&mut signals, &mut running, log, again).await;
            ready.store(false, Ordering::Release);
            leaving.cancel();
            leave(end, &mut signals, &running, log).await;
            drain.cancel();
            running.shared.feed.close();
            let Running { live, listeners, workers, shared, store: handle, jobs, admin_handle } =
                running;
            // Removes the sockets early, so that the next process can open them.
            drop(listeners);
            worker::join(workers).await;
            stop.cancel();
            let live = live.load_full();
            drain::end((jobs, data_commands), (&shared, &live), &handle).await;
            admin_handle.audit().end();
            Ok::<_, StartError>(())
        })?;
        runtime.block_on(store.close());
        runtime.block_on(access_log::end(log));
        tracing::info!("ended");
        Ok(())
    }
}

/// Waits after TERM until load balancers have noticed that the process leaves, or for another signal.
async fn leave(end: Signal, signals: &mut Signals, running: &Running, log: Option<&AccessLog>) {
    let delay = running.live.load().plan.limits.drain_delay;
    if end != Signal::Terminate || delay.is_zero() {
        return;
    }
    tracing::info!(?delay, "leaving: /readyz says 503, and connections are accepted for the delay");
    let another = async {
        while signals.next().await == Signal::Reload {
            running.reopen(log);
        }
    };
    if tokio::time::timeout(delay, another).await.is_ok() {
        tracing::info!("a second signal has ended the delay");
    }
}

/// Applies reloads until TERM or INT, which it returns, and tells the service manager of each state.
async fn serve_until_end(
    signals: &mut Signals,
    running: &mut Running,
    log: Option<&AccessLog>,
    again: impl Fn() -> Option<LoadedPlan>,
) -> Signal {
    service_manager::ready();
    let end = loop {
        let signal = signals.next().await;
        if signal != Signal::Reload {
            break signal;
        }
        service_manager::reloading();
        running.reopen(log);
        service_manager::reloaded(running.reload(again()).await);
    };
    tracing::info!("draining");
    service_manager::stopping();
    end
}
