//! The take-over as the process that serves sees it. Until its successor accepts connections, nothing has changed for
//! clients, and everything can be taken back.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anteroom_config::{Store, StoreUrl};
use anteroom_store::{STORE_FORMAT, Switch};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::drain::leave_fleet;
use super::line::Line;
use super::memory_parts;
use super::program::Program;
use super::reload::{RunningProxy, refuse_reload};
use super::service_manager;
use super::shared_state::SharedState;
use super::signals::{Signal, Signals};
use super::store;
use super::store_passage::{StorePassage, write_log_outs};
use super::successor::OTHER_USER;
use super::successor_process::SuccessorProcess;
use crate::admin::{TakeOverRequest, TakeOverRequests, UpgradeLine, UpgradeRequest};
use crate::take_over::channel::{Channel, TakeOverError};
use crate::take_over::frame::{FILES_MAX, FrameSocket};
use crate::take_over::message::{Hello, Message, Welcome, common_protocol};

/// How long a successor may take to read a message, and to answer one for which it has nothing to do.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it may take to read its configuration and certificates, to open its log, and to warm its memory. Nothing
/// waits for it meanwhile.
const PREPARED: Duration = Duration::from_secs(60);
/// How long a process that was started may take to read its configuration and to ask.
const CONNECTED: Duration = Duration::from_secs(30);
/// How long its threads may take to stand ready, or to accept connections.
const ACCEPTING: Duration = Duration::from_secs(10);
/// How long the store may be between the two. Calls wait for 20 s, and it has to be taken back by then.
const BETWEEN: Duration = Duration::from_secs(12);
/// How long it may take to tell a successor why it has to end, while calls wait.
const SOON: Duration = Duration::from_millis(500);
/// How long the store may take to hear that a successor is gone: as long as purges would wait for it otherwise.
const GONE: Duration = Duration::from_secs(3);

/// How many further processes are refused at a time, each in words.
const REFUSED_MAX: usize = 16;
/// A place for each of them.
static REFUSED: Semaphore = Semaphore::const_new(REFUSED_MAX);

/// The id of the first process.
const INIT: u32 = 1;
/// The namespace of process ids of a machine, as Linux has it (PROC_PID_INIT_INO).
const FIRST_PIDS: &str = "pid:[4026531836]";

/// What a successor, or an operator, is told when a signal ends this process.
const STOPPED: &str = "this process was told to end";

/// Why an embedded store is refused to which this process has moved.
const MOVED: &str =
    "the store was moved to the one in [store.next]: make that the [store], and restart";

/// Why a further process is refused meanwhile.
const UNDER_WAY: &str = "another take-over is under way";

/// Why a process is refused that the service manager would not take for the main one.
const OUTSIDE: &str = "the new process is outside of the service, which ends with the old one: use `anteroom upgrade`";

/// Why a process does not take over of which the service manager does not know: the service would end with this one.
const UNHEARD: &str = "the service manager takes no message";

/// Why a process with which a container ends is refused: all others end with it.
const IN_CONTAINER: &str = "the proxy is the first process of a container, or its init waits for it: replace the container";

/// How a take-over ended.
#[derive(Debug)]
pub(super) enum HandOver {
    /// The successor accepts connections.
    Done,
    /// This process serves on.
    Failed,
    /// The same, and a signal has told it to end.
    Stopped(Signal),
}

/// What a take-over needs of the main loop.
#[derive(Debug)]
pub(super) struct HandOverParts<'m> {
    pub(super) running: &'m mut RunningProxy,
    pub(super) program: Option<&'m Program>,
    pub(super) signals: &'m mut Signals,
    pub(super) requests: &'m mut TakeOverRequests,
}

/// Hands over to the process that asks for it, or to one that is started for an operator.
pub(super) async fn hand_over(request: TakeOverRequest, mut parts: HandOverParts<'_>) -> HandOver {
    match request {
        TakeOverRequest::Process(stream) => {
            let negotiated = match Offer::new(stream) {
                Ok(offer) => negotiate(offer, &mut parts).await,
                Err(error) => Err(Failure::Why(error.to_string())),
            };
            parts.outcome(negotiated, None)
        }
        TakeOverRequest::Upgrade(request) => {
            let negotiated = upgrade(&request, &mut parts).await;
            parts.outcome(negotiated, Some(&request))
        }
    }
}

/// Why no other process took over.
#[derive(Debug)]
enum Failure {
    Why(String),
    Stopped(Signal),
}

/// What is known of the process that took over.
#[derive(Debug)]
struct Heir {
    process: u32,
    version: String,
}

impl HandOverParts<'_> {
    /// Tells the operator how it ended, and the log.
    fn outcome(
        &self,
        negotiated: Result<Heir, Failure>,
        told: Option<&UpgradeRequest>,
    ) -> HandOver {
        let (outcome, line) = match negotiated {
            Ok(Heir { process, version }) => {
                (HandOver::Done, UpgradeLine::Done { process, version })
            }
            Err(Failure::Why(why)) => {
                // What a process that was started here has said is in the log already.
                let first = why.lines().next().unwrap_or_default();
                tracing::error!(why = first, "the take-over failed: this process serves on");
                self.running.shared.upgrades_failed.fetch_add(1, Ordering::Relaxed);
                service_manager::serving_on();
                (HandOver::Failed, UpgradeLine::Failed { why })
            }
            Err(Failure::Stopped(signal)) => {
                (HandOver::Stopped(signal), UpgradeLine::Failed { why: STOPPED.to_owned() })
            }
        };
        if let Some(told) = told {
            told.tell(line);
        }
        outcome
    }
}

/// Starts a process, and hands over to it.
async fn upgrade(request: &UpgradeRequest, parts: &mut HandOverParts<'_>) -> Result<Heir, Failure> {
    let mut started = start(request, parts).map_err(Failure::Why)?;
    request.tell(UpgradeLine::Started { process: started.id() });
    let shared = Arc::clone(&parts.running.shared);
    let connected = tokio::select! {
        stream = connection_of(started.id(), parts.requests) => Ok(stream),
        () = started.ended() => Err(Failure::Why("the new process could not start".to_owned())),
        () = sleep(CONNECTED) => Err(Failure::Why("the new process did not start in time".to_owned())),
        signal = last_signal(&shared, parts.signals) => Err(Failure::Stopped(signal)),
    };
    match connected {
        Ok(stream) => {
            let channel = Channel::new(FrameSocket::new(stream));
            negotiate(Offer::to(started, channel), parts).await
        }
        Err(failure) => {
            let words = started.end().await;
            Err(match failure {
                Failure::Why(why) => Failure::Why(with_words(why, words)),
                Failure::Stopped(signal) => Failure::Stopped(signal),
            })
        }
    }
}

/// Starts a process that takes over, if this one can have a successor.
fn start(request: &UpgradeRequest, parts: &HandOverParts<'_>) -> Result<SuccessorProcess, String> {
    let program =
        parts.program.ok_or("this process does not know how it was started: restart it")?;
    let live = parts.running.live.load();
    let switch = &parts.running.shared.fleet.switch;
    can_hand_over(&parts.running.in_use(&live.plan).store, switch)?;
    let socket = live.plan.admin.socket.as_deref().ok_or("[admin] socket is \"off\"")?;
    let command = program.successor(request.order.binary.as_deref(), socket)?;
    let path = command.get_program().to_owned();
    SuccessorProcess::start(command)
        .map_err(|error| format!("cannot start {}: {error}", path.display()))
}

/// Waits until the process with this id asks to take over; others are refused beside that.
async fn connection_of(process: u32, requests: &mut TakeOverRequests) -> UnixStream {
    while let Some(request) = requests.recv().await {
        let id = match &request {
            TakeOverRequest::Process(stream) => stream.peer_cred().ok().and_then(|peer| peer.pid()),
            TakeOverRequest::Upgrade(_) => None,
        };
        match request {
            TakeOverRequest::Process(stream)
                if id.and_then(|id| id.try_into().ok()) == Some(process) =>
            {
                return stream;
            }
            other => refuse_aside(other),
        }
    }
    std::future::pending().await
}

/// Talks with the successor until it accepts connections.
async fn negotiate(mut offer: Offer, parts: &mut HandOverParts<'_>) -> Result<Heir, Failure> {
    let agreed = match offer.settle(parts).await {
        Ok(version) => {
            let committed = offer.commit(parts.running).await;
            committed.map(|()| version).map_err(|error| Failure::Why(error.to_string()))
        }
        Err(failure) => Err(failure),
    };
    let version = match agreed {
        Ok(version) => version,
        Err(failure) => return Err(offer.take_back(failure, parts.running).await),
    };
    let HandOverParts { running, signals, requests, .. } = parts;
    let shared = Arc::clone(&running.shared);
    let accepting = tokio::select! {
        accepting = offer.accepting() => accepting.map_err(|error| Failure::Why(error.to_string())),
        // The successor ends, too: until it is told `Main` it obeys `Failed`.
        signal = last_signal(&shared, signals) => Err(Failure::Stopped(signal)),
        never = refuse_others(requests) => match never {},
    };
    let completed = match accepting {
        Ok(()) => offer.complete().await.map_err(|why| Failure::Why(why.to_owned())),
        Err(failure) => Err(failure),
    };
    match completed {
        Ok(process) => Ok(Heir { process, version }),
        Err(failure) => Err(offer.take_back(failure, running).await),
    }
}

/// What a successor is offered.
#[derive(Debug)]
struct Offer {
    successor: SuccessorProcess,
    /// The conversation until `Commit`.
    channel: Option<Channel>,
    /// The conversation from then on.
    line: Option<Line>,
    /// The store, if it changes hands.
    store: Option<StorePassage>,
    /// The id under which the successor reports to the proxies on the store.
    process_id: Option<u64>,
    /// Whether it takes in what is known here; an older version does not.
    takes_memory: bool,
}

impl Offer {
    fn new(stream: UnixStream) -> io::Result<Self> {
        let channel = Channel::new(FrameSocket::new(stream));
        // SECURITY: the listening sockets are for processes of this user only.
        if channel.peer()?.user != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(OTHER_USER));
        }
        // Before it says anything, so that the process that speaks is the one that has connected.
        let successor = channel.peer()?.process_id.and_then(SuccessorProcess::of);
        let successor = successor.ok_or_else(|| io::Error::other("its process id is not known"))?;
        Ok(Self::to(successor, channel))
    }

    fn to(successor: SuccessorProcess, channel: Channel) -> Self {
        Self {
            successor,
            channel: Some(channel),
            line: None,
            store: None,
            process_id: None,
            takes_memory: false,
        }
    }

    /// The conversation, which goes on like this until `Commit`.
    fn channel(&mut self) -> Result<&mut Channel, TakeOverError> {
        self.channel.as_mut().ok_or(TakeOverError::Ended("it is a successor"))
    }

    /// Gives it the sockets, the store if that is embedded, and what is known here. Returns its version when its threads stand
    /// ready.
    async fn settle(&mut self, parts: &mut HandOverParts<'_>) -> Result<String, Failure> {
        let HandOverParts { running, signals, requests, .. } = parts;
        let shared = Arc::clone(&running.shared);
        let steps = async {
            let version = self.prepare(running).await?;
            self.release_store(running).await?;
            self.tell_memory(running).await?;
            Ok::<_, TakeOverError>(version)
        };
        tokio::select! {
            settled = steps => settled.map_err(|error| Failure::Why(error.to_string())),
            signal = last_signal(&shared, signals) => Err(Failure::Stopped(signal)),
            never = refuse_others(requests) => match never {},
        }
    }

    /// Gives it the sockets, and returns its version when it has all it needs but the store.
    async fn prepare(&mut self, running: &RunningProxy) -> Result<String, TakeOverError> {
        let due = "it is a successor";
        let (Message::Hello(hello), _) = self.channel()?.hear(ANSWER, due).await? else {
            return Err(TakeOverError::Unexpected(due));
        };
        let protocol = protocol(running, &hello).map_err(TakeOverError::Refused)?;
        // One that was started here is in the service.
        if !self.successor.is_own() && !service_manager::would_follow(self.successor.id()) {
            return Err(TakeOverError::Refused(OUTSIDE.to_owned()));
        }
        self.process_id =
            hello.process_id.filter(|id| *id != running.shared.pages.purged.process_id);
        self.takes_memory = hello.takes_memory;
        tracing::info!(process = self.successor.id(), version = ?hello.version, "a take-over begins");
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let in_use = running.in_use(&running.live.load().plan).store;
        let hands_over_store = is_embedded(&in_use);
        self.store = hands_over_store.then(|| StorePassage::new(&running.shared.store));
        let welcome = Welcome { protocol, version, hands_over_store };
        // A process that was started here writes its messages to this one, and later where this one does.
        let errors = io::stderr();
        let errors: &[BorrowedFd<'_>] =
            if self.successor.is_own() { &[errors.as_fd()] } else { &[] };
        self.channel()?.say(&Message::Welcome(welcome), errors, ANSWER).await?;
        self.send_sockets(running).await?;
        self.channel()?.expect(&Message::Prepared, PREPARED, "it is prepared").await?;
        Ok(hello.version)
    }

    /// Gives it the store, if that changes hands. Returns when its threads stand ready, and the store has all logouts.
    async fn release_store(&mut self, running: &mut RunningProxy) -> Result<(), TakeOverError> {
        let channel = self.channel.as_mut().ok_or(TakeOverError::Ended("it is prepared"))?;
        let ready = "its threads stand ready";
        let Some(store) = &mut self.store else {
            channel.expect(&Message::Ready, ACCEPTING, ready).await?;
            // As late as that: until then, others may begin to wait.
            return write_log_outs(running).await;
        };
        store.begin(running).await?;
        let live = running.live.load_full();
        let between = async {
            store.release(&running.shared, &live, channel).await?;
            channel.expect(&Message::StoreOpened, ACCEPTING, "it has opened the store").await?;
            channel.expect(&Message::Ready, ACCEPTING, ready).await
        };
        let passed = timeout(BETWEEN, between).await;
        passed.map_err(|_elapsed| TakeOverError::Late(BETWEEN, ready))?
    }

    /// Tells it what it would lack on any store, as late as possible: until then requests change it.
    async fn tell_memory(&mut self, running: &RunningProxy) -> Result<(), TakeOverError> {
        // No authority is asked to look from now on: what it has been asked for is told, and the successor goes on.
        let board = &running.shared.certificates.board;
        board.set_serves(false);
        if !self.takes_memory {
            return Ok(());
        }
        let parts = memory_parts::parts(&running.live.load(), board);
        let channel = self.channel()?;
        let told = async {
            for part in parts {
                channel.say(&Message::Part(part), &[], ANSWER).await?;
            }
            Ok::<(), TakeOverError>(())
        };
        // Calls may wait for the store.
        let due = "it has read what is known here";
        timeout(ANSWER, told).await.map_err(|_elapsed| TakeOverError::Late(ANSWER, due))?
    }

    async fn send_sockets(&mut self, running: &RunningProxy) -> Result<(), TakeOverError> {
        let mut all = running.listeners.hand_out();
        all.extend(running.admin_sockets.hand_out());
        let parts: Vec<_> = all.chunks(FILES_MAX).collect();
        for (place, part) in parts.iter().enumerate() {
            let (sockets, files): (Vec<_>, Vec<_>) = part.iter().cloned().unzip();
            let message = Message::Sockets { sockets, more: place + 1 < parts.len() };
            self.channel()?.say(&message, &files, ANSWER).await?;
        }
        Ok(())
    }

    /// Lets it accept connections and change the store. The calls that wait go there.
    async fn commit(&mut self, running: &mut RunningProxy) -> Result<(), TakeOverError> {
        let mut channel = self.channel.take().ok_or(TakeOverError::Ended("it is ready"))?;
        if let Some(store) = &mut self.store {
            store.allow_writes();
            running.shared.pages.purged.expect_others();
        }
        channel.say(&Message::Commit, &[], ANSWER).await?;
        let (line, calls) = Line::to_successor(channel);
        self.line = Some(line);
        if let Some(store) = &self.store {
            store.hand_over(calls);
            running.jobs.go_on_beside_successor(&running.live.load_full(), &running.store);
        }
        Ok(())
    }

    /// Returns when it accepts connections.
    async fn accepting(&mut self) -> Result<(), TakeOverError> {
        let due = "it accepts connections";
        let line = self.line.as_mut().ok_or(TakeOverError::Ended(due))?;
        line.expect(&Message::Accepting, ACCEPTING, due).await
    }

    /// The service manager is told of the successor, and the successor of that. Returns its id. Store calls go on.
    async fn complete(&self) -> Result<u32, &'static str> {
        let process = self.successor.id();
        if !service_manager::handed_over(process).await {
            return Err(UNHEARD);
        }
        if let Some(line) = &self.line {
            line.say(Message::Main);
        }
        Ok(process)
    }

    /// Tells it why, and waits for its end: there are never two that both think they serve, or that both have the store.
    /// Then all is here as before. Returns why, and what it said last.
    async fn take_back(mut self, failure: Failure, running: &mut RunningProxy) -> Failure {
        let why = match &failure {
            Failure::Why(why) => why.clone(),
            Failure::Stopped(_) => STOPPED.to_owned(),
        };
        let mut store = self.store.take().filter(StorePassage::has_begun);
        // Calls may wait for the store.
        let limit = if store.is_some() { SOON } else { ANSWER };
        self.tell_failure(why.clone(), limit).await;
        let words = match store {
            Some(_) => self.successor.end_within(SOON).await,
            None => self.successor.end().await,
        };
        if let Some(line) = self.line {
            line.end();
        }
        if let Some(store) = &mut store {
            store.take_back().await;
            let live = running.live.load_full();
            running.jobs.restart(&live, &running.shared, &running.store).await;
        }
        running.shared.certificates.board.set_serves(true);
        // It may have reported to the others already, and one that was killed has not told them that it is gone.
        if let Some(process_id) = self.process_id
            && timeout(GONE, leave_fleet(process_id, &running.store)).await.is_err()
        {
            tracing::debug!("other proxies wait briefly for the new process");
        }
        match failure {
            Failure::Why(_) => Failure::Why(with_words(why, words)),
            stopped @ Failure::Stopped(_) => stopped,
        }
    }

    /// Tells it that it has to end.
    async fn tell_failure(&mut self, why: String, limit: Duration) {
        let message = Message::Failed { why };
        if let Some(line) = &self.line {
            line.say(message);
        } else if let Some(channel) = &mut self.channel
            && let Err(error) = channel.say(&message, &[], limit).await
        {
            tracing::debug!(%error, "the new process was not told why it has to end");
        }
    }
}

/// Why a process did not take over, and what it said last.
fn with_words(why: String, words: Option<String>) -> String {
    match words {
        Some(words) => format!("{why}; {words}"),
        None => why,
    }
}

/// The protocol of a take-over, or why there is none.
fn protocol(running: &RunningProxy, hello: &Hello) -> Result<u32, String> {
    let live = running.live.load();
    let in_use = running.in_use(&live.plan).store;
    let protocol = common_protocol(&hello.protocols)
        .ok_or("the two versions have no protocol in common: restart the proxy")?;
    let switch = &running.shared.fleet.switch;
    can_hand_over(&in_use, switch)?;
    if switch.is_moving() {
        return Err("the store is being moved: try again when it has been".to_owned());
    }
    // After a move, a configuration may name the store that was left, or already the next.
    let own = [&live.plan.store, &in_use].map(store::mark);
    if !own.contains(&hello.store) {
        return Err("the new process has another [store]: restart to change it".to_owned());
    }
    if is_embedded(&in_use) && hello.store_format != STORE_FORMAT {
        return Err("the new version writes another format of the store: restart".to_owned());
    }
    Ok(protocol)
}

fn is_embedded(store: &Store) -> bool {
    matches!(store.url, StoreUrl::Embedded(_))
}

/// Whether the store in use can be handed over.
fn can_hand_over(in_use: &Store, switch: &Switch) -> Result<(), &'static str> {
    if ends_container() {
        return Err(IN_CONTAINER);
    }
    let is_moved = switch.has_moved() || switch.is_elsewhere();
    if is_embedded(in_use) && is_moved { Err(MOVED) } else { Ok(()) }
}

/// Whether a container ends with this process: the first of it, or the child of an init that waits for it. A service manager
/// is told of a successor.
fn ends_container() -> bool {
    let has_init = || rustix::process::getppid().is_some_and(|parent| parent.is_init());
    let is_contained = || {
        fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace != Path::new(FIRST_PIDS))
    };
    std::process::id() == INIT || has_init() && !service_manager::is_named() && is_contained()
}

/// The next signal that ends the process. A reload would change what the successor has been told.
async fn last_signal(shared: &SharedState, signals: &mut Signals) -> Signal {
    loop {
        let signal = signals.next().await;
        if signal != Signal::Reload {
            return signal;
        }
        refuse_reload(shared).await;
    }
}

/// Refuses further requests while a process takes over.
async fn refuse_others(requests: &mut TakeOverRequests) -> Infallible {
    while let Some(request) = requests.recv().await {
        refuse_aside(request);
    }
    std::future::pending().await
}

/// Refuses a request, and lets nothing wait for a process that does not listen.
fn refuse_aside(request: TakeOverRequest) {
    let why = UNDER_WAY.to_owned();
    let stream = match request {
        TakeOverRequest::Process(stream) => stream,
        TakeOverRequest::Upgrade(request) => return request.tell(UpgradeLine::Failed { why }),
    };
    let Ok(place) = REFUSED.try_acquire() else {
        // The end of its connection has to tell it.
        return;
    };
    tokio::task::spawn_local(async move {
        if timeout(ANSWER, refuse(stream, why)).await.is_err() {
            tracing::debug!("a further process has said nothing, and is left alone");
        }
        drop(place);
    });
}

async fn refuse(stream: UnixStream, why: String) {
    let mut channel = Channel::new(FrameSocket::new(stream));
    // It speaks first: what came with the answer to its HTTP request would be lost.
    let refused = match channel.hear(ANSWER, "it is a successor").await {
        Ok(_) => channel.say(&Message::Failed { why }, &[], ANSWER).await,
        Err(error) => Err(error),
    };
    if let Err(error) = refused {
        tracing::debug!(%error, "a further process was not told why it is refused");
    }
}
