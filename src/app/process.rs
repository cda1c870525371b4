//! The life of the process, on its main thread: the parts start, clients are let in, and at the end all drains in order.

use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anteroom_config::LoadedPlan;
use anteroom_fault::may_crash;
use anteroom_proxy::serve::ThreadListener;
use anteroom_proxy::serve::socket::Socket;
use anteroom_store::{AnyStore, OpenStore};
use anteroom_telemetry::access_log::AccessLog;
use anteroom_telemetry::metrics::Metrics;
use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::admin_sockets::AdminSockets;
use super::call_host::{CallHost, learn_purges};
use super::certificate_parts::CertificateParts;
use super::ends::Ends;
use super::hand_over::{HandOver, HandOverParts, hand_over};
use super::handed::HandedSockets;
use super::jobs::Jobs;
use super::listeners::Listeners;
use super::live_config::LiveConfig;
use super::memory_parts::MemoryReader;
use super::origins::Origins;
use super::program::Program;
use super::reload::RunningProxy;
use super::service_manager::{self, Watchdog};
use super::shared_state::SharedState;
use super::signals::{Signal, Signals};
use super::start_error::StartError;
use super::successor::{OldProcess, Predecessor, accepting};
use super::worker::{self, FirstEntrances, Worker};
use super::{admin, drain, files, gauges, store, tls, warm_start};
use crate::admin::{AdminState, MainLoopRequests, ReloadResult, main_loop_entrances};
use crate::take_over::channel::TakeOverError;
use crate::take_over::message::Message;

/// How long clients of a process that has a successor may use a kept connection once more, at least.
const KEPT: Duration = Duration::from_secs(5);
/// How long a request, or a connection that the system has queued, may be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// How often it is looked whether connections are left.
const LOOK: Duration = Duration::from_millis(10);
/// The longest time in which a successor warms its memory before it takes over.
const WARM_MAX: Duration = Duration::from_secs(30);

/// What is open before the process serves.
#[derive(Debug)]
pub(super) struct OpenParts {
    pub(super) loaded: LoadedPlan,
    pub(super) listeners: Listeners,
    pub(super) admin: Option<TcpListener>,
    pub(super) socket: Option<Socket>,
    pub(super) signals: Signals,
    pub(super) store: OpenStore,
    pub(super) metrics: Arc<Metrics>,
    pub(super) certificates: CertificateParts,
    /// The process that serves until this one does.
    pub(super) predecessor: Option<Predecessor>,
    /// Its sockets that no listener has taken.
    pub(super) handed: HandedSockets,
    /// Where everything is, a line each.
    pub(super) places: Vec<String>,
    /// How to start a successor.
    pub(super) program: Option<Program>,
}

impl OpenParts {
    /// The id under which this process reports to the other proxies on the store. The process that serves has been told the
    /// one of its successor.
    fn process_id(&self) -> u64 {
        let told = self.predecessor.as_ref().map(Predecessor::process_id);
        told.unwrap_or_else(|| fastrand::u64(..))
    }
}

/// The running process.
#[derive(Debug)]
pub(super) struct Process {
    running: RunningProxy,
    signals: Signals,
    requests: MainLoopRequests,
    log: Option<Arc<AccessLog>>,
    ready: Arc<AtomicBool>,
    ends: Ends,
    /// What operators come in by, until it is open.
    doors: Option<AdminDoors>,
    data_commands: Option<JoinHandle<()>>,
    /// Reads pages into memory.
    warming: Option<JoinHandle<()>>,
    take_over: Option<(Predecessor, HandedSockets)>,
    /// Ends when the process that served before cannot serve on, where it has not said so in time.
    old_drains: Option<JoinHandle<bool>>,
    places: Vec<String>,
    program: Option<Program>,
}

/// The listener for operators and the socket of the data commands.
#[derive(Debug)]
struct AdminDoors {
    operators: Option<TcpListener>,
    socket: Option<Socket>,
    state: AdminState,
}

/// Why a take-over is given up.
const TOLD_TO_END: &str = "the new process was told to end";
const NO_WORKER: &str = "a thread of the new process does not serve";
const TOO_FEW_FILES: &str = "the new process may open too few files, raise LimitNOFILE";

/// Why the process ends.
#[derive(Debug)]
enum End {
    Signal(Signal),
    /// A successor accepts connections.
    HandedOver,
    /// It did not come to serve.
    Failed(StartError),
}

impl Process {
    /// Starts the workers and the background tasks, on this thread's runtime. The workers of a process that takes over
    /// accept no connection yet.
    pub(super) fn begin(parts: OpenParts, log: Option<Arc<AccessLog>>) -> Result<Self, StartError> {
        let process_id = parts.process_id();
        let OpenParts { loaded, mut listeners, admin, socket, signals, store, metrics, .. } = parts;
        let plan = &loaded.plan;
        store::expect_news(&store, plan);
        let (certificates, ticket_keys) = (parts.certificates, listeners.ticket_keys());
        let shared =
            SharedState::new(plan, &metrics, &store, certificates, ticket_keys, process_id);
        let audit = admin::start_audit_log(plan)?;
        let admin_sockets = AdminSockets::of(plan, admin.as_ref(), socket.as_ref())?;
        let (may_accept, ends) = (parts.predecessor.is_none(), Ends::default());
        let first = LiveConfig::new(loaded, &shared, &Origins::default())?;
        let live = Arc::new(ArcSwap::new(Arc::clone(&first)));
        gauges::register(&shared, &live, &store, log.as_ref());
        tls::register(listeners.tls(), &metrics);
        let mut watchdog = Watchdog::wanted();
        let entrances = listeners.first_entrances(may_accept);
        let start = |listeners: Vec<ThreadListener>| {
            let entrances = FirstEntrances { listeners, are_open: may_accept };
            let log_buffer = log.as_ref().map(|log| log.log_buffer());
            let pulse = watchdog.as_mut().map(Watchdog::pulse);
            worker::start(&first, &shared, &store, entrances, log_buffer, &ends, pulse)
        };
        let workers = entrances.into_iter().map(start).collect::<Result<Vec<Worker>, _>>()?;
        let handle = store.thread_handle();
        let [ready, connected] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        gauges::register_store_state(&connected, &metrics);
        let (main_loop, requests) = main_loop_entrances();
        let admin_handle = admin::handle(&first, &shared, &handle, &listeners, audit, main_loop);
        let state = AdminState {
            handle: Some(Rc::clone(&admin_handle)),
            metrics,
            ready: Arc::clone(&ready),
            store_connected: Arc::clone(&connected),
        };
        watch(&listeners, store, &handle, connected, &ends);
        watchdog.map(|watchdog| tokio::task::spawn_local(watchdog.run()));
        let mut jobs = Jobs::new(&first, &shared, &ends.stop);
        // The store of another process is not to be changed so far.
        let owns_store = !parts.predecessor.as_ref().is_some_and(Predecessor::hands_over_store);
        if owns_store {
            jobs.start(&first, &shared, &handle);
        }
        let warming = owns_store.then(|| warm_start::begin(&first, &shared, &handle));
        let running = RunningProxy {
            live,
            listeners,
            workers,
            shared,
            store: handle,
            admin_handle,
            admin_sockets,
            jobs,
        };
        let take_over = parts.predecessor.map(|predecessor| (predecessor, parts.handed));
        let (places, program) = (parts.places, parts.program);
        Ok(Self {
            running,
            signals,
            requests,
            log,
            ready,
            ends,
            doors: Some(AdminDoors { operators: admin, socket, state }),
            data_commands: None,
            warming,
            take_over,
            old_drains: None,
            places,
            program,
        })
    }

    /// Serves until a signal, or a successor, ends the process.
    pub(super) async fn run(
        mut self,
        again: impl Fn() -> Result<LoadedPlan, Vec<String>>,
    ) -> Result<(), StartError> {
        let end = match self.let_in().await {
            Ok(()) => self.serve_until_end(again).await,
            Err(error) => End::Failed(error),
        };
        self.end(end).await
    }

    /// Lets clients in.
    async fn let_in(&mut self) -> Result<(), StartError> {
        if let Some((predecessor, handed)) = self.take_over.take() {
            return self.take_over(predecessor, handed).await;
        }
        self.open_doors()?;
        self.tell_places();
        worker::serving(&mut self.running.workers).await;
        if let Some(warming) = self.warming.take() {
            let (ready, leaving) = (Arc::clone(&self.ready), self.ends.leaving.clone());
            tokio::task::spawn_local(warm_start::make_ready(warming, ready, leaving));
        }
        Ok(())
    }

    /// Lets clients in when another process, which has served them so far, allows it.
    async fn take_over(
        &mut self,
        mut predecessor: Predecessor,
        handed: HandedSockets,
    ) -> Result<(), StartError> {
        let is_handed = predecessor.hands_over_store();
        let (running, warming) = (&mut self.running, self.warming.take());
        let ready = tokio::select! {
            ready = stand_ready(running, warming, &mut predecessor) => ready,
            () = told_to_end(&mut self.signals) => Err(TakeOverError::Refused(TOLD_TO_END.to_owned())),
        };
        let ready = match ready {
            Ok(()) => refuse_after_signal(&mut self.signals).await,
            failed => failed,
        };
        if let Err(error) = ready {
            predecessor.give_up(error.to_string()).await;
            return Err(error.into());
        }
        if is_handed {
            self.own_store().await?;
        }
        let line = predecessor.into_line(self.call_host());
        if let Err(error) = self.accept().await {
            line.say(Message::Failed { why: error.to_string() });
            return Err(error);
        }
        let old = accepting(line).await?;
        self.running.listeners.own_files();
        match old {
            OldProcess::Drains => self.fill_up().await,
            OldProcess::Unknown(drains) => self.old_drains = Some(drains),
        }
        if is_handed {
            let RunningProxy { live, shared, store, .. } = &self.running;
            // Beside requests: the store has these pages.
            drop(warm_start::begin(&live.load_full(), shared, store));
        }
        handed.close_rest();
        tracing::info!("this process has taken over");
        self.tell_places();
        Ok(())
    }

    /// Lets operators and clients in. What can fail comes first: a connection that was accepted is lost where another
    /// process serves on.
    async fn accept(&mut self) -> Result<(), StartError> {
        self.ready.store(true, Ordering::Release);
        self.open_doors()?;
        if self.tell_workers().await {
            return Ok(());
        }
        Err(TakeOverError::Refused(NO_WORKER.to_owned()).into())
    }

    /// Adds sockets for the threads that have none. Clients come to them at once, so no other process may serve on.
    async fn fill_up(&mut self) {
        if self.running.listeners.fill_up() && !self.tell_workers().await {
            tracing::warn!("some threads accept no connection");
        }
    }

    /// Has the threads accept connections, at the entrances that they have and at further ones; whether all of them do.
    async fn tell_workers(&mut self) -> bool {
        let RunningProxy { live, listeners, workers, .. } = &mut self.running;
        worker::tell(workers, &live.load_full(), listeners.take_entrances()).await
    }

    /// Begins to change the store, which was another process's.
    async fn own_store(&mut self) -> Result<(), TakeOverError> {
        let RunningProxy { live, shared, store, jobs, .. } = &mut self.running;
        let allowed = shared.store.allow_writes().await;
        allowed.map_err(|error| TakeOverError::Refused(error.to_string()))?;
        may_crash("writes");
        jobs.start(&live.load_full(), shared, store);
        Ok(())
    }

    fn call_host(&self) -> CallHost {
        let RunningProxy { live, shared, store, .. } = &self.running;
        let (live, shared) = (Arc::clone(live), Arc::clone(shared));
        CallHost { live, shared, store: store.clone() }
    }

    fn tell_places(&self) {
        self.places.iter().for_each(|line| tracing::info!("{line}"));
    }

    /// Serves operators, if there is a listener or a socket for them.
    fn open_doors(&mut self) -> Result<(), StartError> {
        let Some(AdminDoors { operators, socket, state }) = self.doors.take() else {
            return Ok(());
        };
        admin::serve_operators(operators, state, &self.ends)?;
        self.data_commands = admin::serve_socket(socket, &self.running.admin_handle, &self.ends);
        Ok(())
    }

    /// Applies reloads and lets successors try, until the process has to end, and tells the service manager of each state.
    async fn serve_until_end(
        &mut self,
        again: impl Fn() -> Result<LoadedPlan, Vec<String>>,
    ) -> End {
        self.running.shared.certificates.board.set_serves(true);
        service_manager::ready().await;
        self.running.listeners.keep().await;
        let end = loop {
            let mut command = None;
            let signal = tokio::select! {
                signal = self.signals.next() => signal,
                () = drains_late(&mut self.old_drains) => {
                    self.fill_up().await;
                    self.running.listeners.keep().await;
                    continue;
                }
                Some(request) = self.requests.reloads.recv() => {
                    command = Some(request);
                    Signal::Reload
                }
                Some(request) = self.requests.take_overs.recv() => {
                    let parts = HandOverParts {
                        running: &mut self.running,
                        program: self.program.as_ref(),
                        signals: &mut self.signals,
                        requests: &mut self.requests.take_overs,
                    };
                    match hand_over(request, parts).await {
                        HandOver::Done => return End::HandedOver,
                        HandOver::Stopped(signal) => break signal,
                        HandOver::Failed => continue,
                    }
                }
            };
            if signal != Signal::Reload {
                break signal;
            }
            let result = self.reload(&again).await;
            if let Some(command) = command {
                command.answer(result);
            }
        };
        tracing::info!("draining");
        service_manager::stopping().await;
        End::Signal(end)
    }

    /// Reopens the logs, and applies the configuration that `again` reads.
    async fn reload(
        &mut self,
        again: impl Fn() -> Result<LoadedPlan, Vec<String>>,
    ) -> ReloadResult {
        service_manager::reloading().await;
        self.running.reopen(self.log.as_deref());
        let result = self.running.reload(again()).await;
        service_manager::reloaded(result.is_ok()).await;
        self.running.listeners.keep().await;
        result
    }

    /// Ends everything in order: nothing is accepted any more, open requests finish within `drain_timeout`, visits are
    /// written.
    async fn end(mut self, end: End) -> Result<(), StartError> {
        // A process that asks to take over from now on is told so.
        self.requests.close();
        // Its successor orders certificates from now on.
        self.running.shared.certificates.board.set_serves(false);
        // A check that comes over a connection from before learns what one over a new connection does: there is a process
        // that is ready.
        self.ready.store(matches!(end, End::HandedOver), Ordering::Release);
        self.ends.leaving.cancel();
        self.leave(&end).await;
        self.running.listeners.release();
        self.running.admin_sockets.release();
        self.ends.drain.cancel();
        self.running.shared.feed.close();
        let RunningProxy { live, listeners, workers, shared, store, jobs, admin_handle, .. } =
            self.running;
        // Removes the sockets early, so that the next process can open them.
        drop(listeners);
        worker::join(workers).await;
        self.ends.stop.cancel();
        let live = live.load_full();
        let has_successor = !matches!(end, End::Signal(_));
        drain::end(jobs, self.data_commands, &shared, &live, &store, has_successor).await;
        admin_handle.audit().end();
        match end {
            End::Signal(_) | End::HandedOver => Ok(()),
            End::Failed(error) => Err(error),
        }
    }

    /// Waits until load balancers have noticed that the process leaves, or clients that it has a successor, or for another
    /// signal.
    async fn leave(&mut self, end: &End) {
        let delay = self.running.live.load().plan.limits.drain_delay;
        match end {
            End::Signal(Signal::Terminate) if !delay.is_zero() => {
                tracing::info!(
                    ?delay,
                    "leaving: /readyz says 503, and connections are accepted for the delay"
                );
                self.wait_or_signal(delay, std::future::pending()).await;
            }
            End::HandedOver => {
                tracing::info!("another process accepts connections; draining");
                self.running.listeners.leave_to_successor();
                self.ends.left.cancel();
                let connections = Arc::clone(&self.running.shared.connections);
                let none_left = async move {
                    sleep(ON_ITS_WAY).await;
                    while connections.open() > 0 {
                        sleep(LOOK).await;
                    }
                };
                self.wait_or_signal(delay.max(KEPT), none_left).await;
            }
            End::Failed(_) => {
                // Where another process serves on, it does so at these files.
                self.running.listeners.leave_to_successor();
                self.ends.left.cancel();
            }
            End::Signal(_) => {}
        }
    }

    /// Waits for `delay`, at most until `done`, or a signal.
    async fn wait_or_signal(&mut self, delay: Duration, done: impl Future<Output = ()>) {
        let (signals, running, log) = (&mut self.signals, &self.running, self.log.as_deref());
        let another = async {
            while signals.next().await == Signal::Reload {
                running.reopen(log);
            }
        };
        tokio::select! {
            () = sleep(delay) => {}
            () = done => {}
            () = another => tracing::info!("a second signal has ended the delay"),
        }
    }
}

/// Returns when the process that serves has let this one accept connections.
async fn stand_ready(
    running: &mut RunningProxy,
    warming: Option<JoinHandle<()>>,
    predecessor: &mut Predecessor,
) -> Result<(), TakeOverError> {
    if predecessor.hands_over_store() {
        // Without these no page of the store counts as fresh. No task learns them so far.
        learn_purges(&running.shared.pages.purged, &running.store).await;
    }
    if !worker::serving(&mut running.workers).await {
        return Err(TakeOverError::Refused(NO_WORKER.to_owned()));
    }
    files::have_room()
        .map_err(|error| TakeOverError::Refused(format!("{TOO_FEW_FILES}: {error}")))?;
    if let Some(warming) = warming
        && timeout(WARM_MAX, warming).await.is_err()
    {
        tracing::warn!("not all pages were read into memory before the take-over");
    }
    let board = Arc::clone(&running.shared.certificates.board);
    predecessor.ready(&mut MemoryReader::new(running.live.load_full(), board)).await
}

/// Returns when the process that served before says that it drains, or has ended, where that is waited for.
async fn drains_late(old_drains: &mut Option<JoinHandle<bool>>) {
    if let Some(drains) = old_drains {
        let drained = drains.await;
        *old_drains = None;
        if matches!(drained, Ok(true)) {
            return;
        }
    }
    std::future::pending().await
}

/// Returns when a signal tells the process to end. Its configuration was read a moment ago, so a reload changes nothing.
async fn told_to_end(signals: &mut Signals) {
    while signals.next().await == Signal::Reload {}
}

/// Refuses where a signal came while this thread was busy: the old process serves on.
async fn refuse_after_signal(signals: &mut Signals) -> Result<(), TakeOverError> {
    // The runtime looks for signals before it goes on here.
    tokio::task::yield_now().await;
    tokio::select! {
        biased;
        () = told_to_end(signals) => Err(TakeOverError::Refused(TOLD_TO_END.to_owned())),
        () = std::future::ready(()) => Ok(()),
    }
}

/// Starts what watches the store and the certificates.
fn watch(
    listeners: &Listeners,
    store: OpenStore,
    handle: &AnyStore,
    connected: Arc<AtomicBool>,
    ends: &Ends,
) {
    tokio::task::spawn_local(store::watch(handle.clone(), connected, ends.stop.clone()));
    tokio::task::spawn_local(store::warn_of_eviction(store, handle.clone()));
    tokio::task::spawn_local(tls::watch(Arc::clone(listeners.tls()), ends.stop.clone()));
}
