//! The composition root: a plan becomes a running proxy, and ends in good order.
//!
//! The only module that sees the whole plan and names the concrete store. It opens everything
//! first, so that whatever is wrong is told before the first visitor comes.

mod demo;
pub mod demo_shop;
mod files;
mod hints;
mod jobs;
mod listeners;
mod origins;
mod parts;
mod reload;
mod rows;
mod tls;
mod turn;
mod webhook;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Desk, Post};
use crate::config::{Admin, Plan, StoreUrl};
use crate::serve::listen;
use crate::serve::socket::Socket;
use crate::serve::tls::TlsError;
use crate::store::{AnyStore, OpenError, OpenStore, PurgeStore as _, StoreError, StoreState};
use crate::telemetry::access_log::AccessLog;
use crate::telemetry::metrics::Metrics;

pub use demo::{Demo, DemoError};
use jobs::Jobs;
use listeners::Listeners;
use parts::Shared;
use reload::Live;
use turn::Turn;

/// How often the store's state is looked at for `/readyz` and the metrics.
const LOOK: Duration = Duration::from_millis(500);
/// How long visits are waited for that another is writing.
const LOOK_FLYING: Duration = Duration::from_millis(10);

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address to listen on.
    #[error(
        "cannot listen on {address} for {what}: {source}; is another process there? \
         Choose another address with {flag}"
    )]
    Listen {
        /// The address.
        address: String,
        /// What for.
        what: &'static str,
        /// What sets it.
        flag: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The certificates of a listener.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The access log.
    #[error("the access log {path:?} cannot be opened: {source}")]
    Log {
        /// Its file; empty: standard output.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// TLS to the origin.
    #[error("cannot speak TLS with the origin: {0}")]
    OriginTls(#[from] crate::origin::TlsError),
    /// TLS to the webhook of abandoned carts.
    #[error("cannot speak TLS with the webhook of on_expire: {0}")]
    WebhookTls(crate::origin::TlsError),
    /// A thread, a runtime or a signal handler.
    #[error("the system refused {what}: {source}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// A proxy with everything open, ready to run.
#[derive(Debug)]
pub struct App {
    plan: Plan,
    listeners: Listeners,
    admin: Option<TcpListener>,
    socket: Option<Socket>,
    log: Option<(Arc<AccessLog>, thread::JoinHandle<()>)>,
    runtime: LocalRuntime,
    store: OpenStore,
    metrics: Arc<Metrics>,
}

impl App {
    /// Opens listeners, log and store.
    ///
    /// # Errors
    /// When one of them cannot be opened; what was opened is closed again.
    pub fn open(plan: Plan) -> Result<Self, StartError> {
        files::allow(plan.limits.connections);
        let listeners = Listeners::open(&plan.listen, plan.threads)?;
        let admin = open_admin(plan.admin.address)?;
        let runtime = runtime()?;
        let store = runtime.block_on(open_store(&plan))?;
        let log = parts::access_log(&plan.log)?;
        let socket = rows::open_socket(&plan);
        Ok(Self { plan, listeners, admin, socket, log, runtime, store, metrics: Arc::default() })
    }

    /// Where visitors are served over TCP; a port 0 in the plan has become a real one.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.addresses()
    }

    /// Whether visitors at one of [`Self::addresses`] come by https.
    #[must_use]
    pub fn is_secured(&self, address: SocketAddr) -> bool {
        self.listeners.is_secured(address)
    }

    /// The Unix sockets that we opened for visitors.
    #[must_use]
    pub fn sockets(&self) -> Vec<PathBuf> {
        self.listeners.sockets()
    }

    /// Where operators are served.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until TERM or INT, then drains: listeners close at once, open requests finish within
    /// `drain_timeout`, visits are written down, the store is closed.
    ///
    /// HUP puts the plan that `again` reads into force, all of it or nothing, and opens the access log
    /// anew. `again` tells by itself what is wrong where it reads none.
    ///
    /// # Errors
    /// When the system refuses a thread or a signal handler.
    pub fn run(self, again: impl Fn() -> Option<Plan>) -> Result<(), StartError> {
        let Self { plan, mut listeners, admin, socket, log, runtime, store, metrics } = self;
        let drain = CancellationToken::new();
        let stop = CancellationToken::new();
        let shared = Shared::new(&plan, Arc::clone(&metrics));
        let writer = log.as_ref().map(|(log, _)| Arc::clone(log));
        shared.register(writer.as_ref(), &store);
        tls::register(listeners.tls(), &metrics);
        let turn = Turn::new(&plan, &shared)?;
        shared.origins.store(Arc::clone(&turn.origins));
        let workers = listeners
            .take_entrances()
            .into_iter()
            .map(|entrances| {
                let pen = writer.as_ref().map(|log| log.pen());
                worker::start(&turn, &shared, &store, entrances, pen, drain.clone())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let lane_store = store.clone();
        runtime.block_on(async {
            let mut signals = Signals::new()?;
            let lane = lane_store.lane();
            let ready = Arc::new(AtomicBool::new(true));
            let connected = Arc::new(AtomicBool::new(false));
            shared.gauge_store(&connected);
            let post = Post::new(rows::clerk(&plan, &turn, &shared, &lane), admin_token(&plan));
            if let Some(listener) = admin {
                let desk = Desk {
                    post: Some(Rc::clone(&post)),
                    metrics,
                    ready: Arc::clone(&ready),
                    store_connected: Arc::clone(&connected),
                };
                let listener = tokio::net::TcpListener::from_std(listener)
                    .map_err(|source| StartError::System { what: "a listener", source })?;
                tokio::task::spawn_local(admin::serve(listener, Rc::new(desk), stop.clone()));
            }
            tokio::task::spawn_local(watch(lane.clone(), connected, stop.clone()));
            tokio::task::spawn_local(look_at_policy(lane_store, lane.clone()));
            tokio::task::spawn_local(tls::watch(Arc::clone(listeners.tls()), stop.clone()));
            let data_commands = rows::serve_socket(socket, &post, &stop);
            let jobs = Jobs::start((&plan, &turn), &shared, &lane, &stop);
            tracing::info!(threads = plan.threads, "serving");
            let mut live = Live { plan, turn, listeners, workers, shared, lane, post, jobs };
            while signals.next().await == Signal::Reload {
                if let Some(log) = &writer {
                    log.reopen();
                }
                live.reload(again()).await;
            }
            tracing::info!("draining");
            ready.store(false, Ordering::Release);
            drain.cancel();
            let Live { listeners, workers, shared, lane, jobs, .. } = live;
            // Nobody finds a socket that is not accepted on, and the next process finds its place free.
            drop(listeners);
            worker::join(workers).await;
            stop.cancel();
            end((jobs, data_commands), &shared, &lane).await;
            Ok::<_, StartError>(())
        })?;
        runtime.block_on(store.close());
        if let Some((log, writer)) = log {
            log.stop();
            if writer.join().is_err() {
                tracing::error!("the access log's thread panicked");
            }
        }
        tracing::info!("ended");
        Ok(())
    }
}

/// The token: who has it may give orders over the listener.
fn admin_token(plan: &Plan) -> Option<admin::Token> {
    let token = plan.admin.token.as_ref()?.expose().as_bytes().to_vec();
    Some(admin::Token(token))
}

/// Waits for the tasks, and writes down what they and the workers leave.
async fn end(
    (jobs, data_commands): (Jobs, Option<JoinHandle<()>>),
    shared: &Shared,
    lane: &AnyStore,
) {
    // Before waiting for whatever is slow: somebody may lose patience with us.
    let flushed = flush(shared, lane).await;
    if let Err(error) = shared.pages.purged.flush(lane).await {
        tracing::warn!(%error, "purges did not reach the store: others keep those pages for their time");
    }
    jobs.ended().await;
    if let Some(Err(error)) = async { Some(data_commands?.await) }.await {
        tracing::error!(%error, "the data commands did not end well");
    }
    finish(shared, lane, flushed).await;
    if let Err(error) = lane.ask_no_more(shared.pages.purged.who).await {
        tracing::debug!(%error, "others wait a moment for this process to see their purges");
    }
}

/// Writes down what still waits. Fails where the store does not take all of it; the rest waits on.
async fn flush(shared: &Shared, lane: &AnyStore) -> Result<(), StoreError> {
    let log_outs = shared.sessions.flush_log_outs(lane).await;
    loop {
        let progress = shared.visits.drain_all(lane).await;
        if let Some(error) = progress.failure {
            return Err(error);
        }
        if !progress.more {
            break;
        }
        if progress.visits + progress.items == 0 {
            // The task of visits is writing what these come behind.
            tokio::time::sleep(LOOK_FLYING).await;
        }
    }
    while shared.visitor_visits.flush(lane).await? > 0 {}
    if log_outs { Ok(()) } else { Err(StoreError::Away) }
}

/// Writes down what the tasks gave back, and what the store did not take in the first place; says
/// what is lost.
async fn finish(shared: &Shared, lane: &AnyStore, flushed: Result<(), StoreError>) {
    let visits = || shared.visits.backlog() + shared.visitor_visits.backlog();
    if flushed.is_ok() && visits() + shared.sessions.log_outs_waiting() == 0 {
        return;
    }
    if let Err(error) = flush(shared, lane).await {
        tracing::warn!(
            %error,
            visits = visits(),
            log_outs = shared.sessions.log_outs_waiting(),
            "visits and log-outs did not reach the store"
        );
    }
}

/// Keeps the store's state for those who cannot ask it themselves.
async fn watch(lane: AnyStore, connected: Arc<AtomicBool>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        connected.store(lane.state() == StoreState::Connected, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
    }
}

/// Opens the listener for operators. The usual address is a convenience: where something else has
/// it already, visitors are served all the same.
fn open_admin(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    match open_listener(address, 1, "administration", "--admin") {
        Ok(mut listeners) => Ok(listeners.pop()),
        Err(error) if Admin::default().address == Some(address) => {
            tracing::warn!(%error, "there is no listener for health and metrics");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Warns where Redis may drop sessions when its memory is full.
async fn look_at_policy(store: OpenStore, lane: AnyStore) {
    lane.connected().await;
    match store.drops_sessions().await {
        Ok(None) => {}
        Ok(Some(policy)) => tracing::warn!(
            policy,
            "Redis drops any key when its memory is full, sessions too: set maxmemory-policy to \
             volatile-lru, which takes pages only"
        ),
        Err(error) => tracing::debug!(%error, "Redis does not tell its eviction policy"),
    }
}

async fn open_store(plan: &Plan) -> Result<OpenStore, OpenError> {
    let settings = parts::store_settings(plan);
    let store = OpenStore::open(&settings).await?;
    match (&plan.store.url, &plan.store.pages_url) {
        (StoreUrl::Redis(_), Some(StoreUrl::Redis(url))) => {
            store.with_pages_in(url.expose(), &settings)
        }
        _ => Ok(store),
    }
}

fn open_listener(
    address: SocketAddr,
    count: usize,
    what: &'static str,
    flag: &'static str,
) -> Result<Vec<TcpListener>, StartError> {
    listen::open(address, count).map_err(|source| StartError::Listen {
        address: address.to_string(),
        what,
        flag,
        source,
    })
}

fn runtime() -> Result<LocalRuntime, StartError> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|source| StartError::System { what: "a runtime", source })
}

/// The signals that the proxy heeds.
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, StartError> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| {
            signal(kind).map_err(|source| StartError::System { what: "a signal handler", source })
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// What we are told next.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::End,
            _ = self.int.recv() => Signal::End,
            _ = self.hup.recv() => Signal::Reload,
        }
    }
}

/// What a signal means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// TERM or INT.
    End,
    /// HUP.
    Reload,
}

impl Shared {
    fn gauge_store(&self, connected: &Arc<AtomicBool>) {
        let connected = Arc::clone(connected);
        self.metrics.gauge(
            "anteroom_store_connected",
            "Whether the store can be reached",
            move || u64::from(connected.load(Ordering::Relaxed)),
        );
    }
}
