//! The take-over as the new process sees it. Until the old one says `Commit`, this process accepts no connection, and
//! changes nothing that the old one has to itself.

use std::error::Error as _;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use anteroom_config::Plan;
use anteroom_fault::may_crash;
use anteroom_store::{OpenStore, STORE_FORMAT, StoreMemory};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::call_host::CallHost;
use super::handed::HandedSockets;
use super::line::Line;
use super::memory_parts::MemoryReader;
use super::start_error::StartError;
use super::{service_manager, store};
use crate::admin::{ClientError, begin_take_over};
use crate::take_over::channel::{Channel, TakeOverError};
use crate::take_over::frame::FrameSocket;
use crate::take_over::message::{Hello, Message, PROTOCOL};

/// How long the old process may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it may take to write what waits, to close the store, and to tell what is in its memory only.
const RELEASED: Duration = Duration::from_secs(20);
/// How long it may take to let this process accept connections.
const COMMIT: Duration = Duration::from_secs(10);
/// How long it may take for messages of which there are many, in all.
const ALL: Duration = Duration::from_secs(30);

/// Why a process of another user is refused.
pub(super) const OTHER_USER: &str =
    "the other process runs as another user: a take-over needs the same user in both";

/// The process that serves until this one does.
#[derive(Debug)]
pub(super) struct Predecessor {
    /// Until it says `Commit`; a [`Line`] afterwards.
    channel: Channel,
    /// Its standard error, if it has started this process and reads what this one writes to its own.
    errors: Option<OwnedFd>,
    /// Whether its store is embedded.
    hands_over_store: bool,
    /// The id under which this process will report to the proxies on the store.
    process_id: u64,
}

/// Asks the process behind the socket at `path` to be taken over, and gets its listening sockets. `None`: there is none.
pub(super) async fn greet(
    path: &Path,
    plan: &Plan,
) -> Result<Option<(Predecessor, HandedSockets)>, StartError> {
    let stream = match begin_take_over(path).await {
        Ok(stream) => stream,
        Err(ClientError::NotRunning { source, .. }) if is_absence(&source) => {
            tracing::info!(socket = %path.display(), "there is no proxy to take over from");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    // SECURITY: its sockets, and the commands that come in by them, are this process's from then on.
    let user = stream.peer_cred().map_err(TakeOverError::Socket)?.uid();
    if user != rustix::process::geteuid().as_raw() {
        return Err(TakeOverError::Refused(OTHER_USER.to_owned()).into());
    }
    service_manager::wait_to_be_main();
    let channel = Channel::new(FrameSocket::new(stream));
    let process_id = fastrand::u64(..);
    let mut predecessor =
        Predecessor { channel, errors: None, hands_over_store: false, process_id };
    let handed = predecessor.greet(plan).await?;
    Ok(Some((predecessor, handed)))
}

/// Whether nothing listens at a socket: it was never there, or its process has ended.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl Predecessor {
    async fn greet(&mut self, plan: &Plan) -> Result<HandedSockets, TakeOverError> {
        let hello = Hello {
            protocols: vec![PROTOCOL],
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store_format: STORE_FORMAT,
            store: store::mark(&plan.store),
            process_id: Some(self.process_id),
            takes_memory: true,
        };
        self.channel.say(&Message::Hello(hello), &[], ANSWER).await?;
        let due = "it agrees";
        let (Message::Welcome(welcome), mut files) = self.channel.hear(ANSWER, due).await? else {
            return Err(TakeOverError::Unexpected(due));
        };
        self.errors = files.pop();
        self.hands_over_store = welcome.hands_over_store;
        tracing::info!(version = %welcome.version, "the running proxy hands over");
        let due = "these are its sockets";
        in_all(due, self.sockets(due)).await
    }

    async fn sockets(&mut self, due: &'static str) -> Result<HandedSockets, TakeOverError> {
        let mut handed = HandedSockets::default();
        loop {
            let (message, files) = self.channel.hear(ANSWER, due).await?;
            let Message::Sockets { sockets, more } = message else {
                return Err(TakeOverError::Unexpected(due));
            };
            handed.add(sockets, files).map_err(TakeOverError::Socket)?;
            if !more {
                may_crash("sockets");
                return Ok(handed);
            }
        }
    }

    /// The id under which this process reports to the proxies on the store: the other one knows it, too.
    pub(super) fn process_id(&self) -> u64 {
        self.process_id
    }

    /// Whether the store has one owner, and changes hands: [`Self::take_store`].
    pub(super) fn hands_over_store(&self) -> bool {
        self.hands_over_store
    }

    /// Has the old process close its store, and opens it. Nothing is written there so far.
    pub(super) async fn take_store(&mut self, plan: &Plan) -> Result<OpenStore, StartError> {
        self.channel.say(&Message::Prepared, &[], ANSWER).await?;
        may_crash("prepared");
        let due = "it has closed the store";
        let memory = in_all(due, self.store_memory(due)).await?;
        may_crash("released");
        let store = match store::open_handed(plan, memory).await {
            Ok(store) => store,
            Err(error) => {
                let source = error.source().map(|source| format!(": {source}"));
                self.give_up(format!("{error}{}", source.unwrap_or_default())).await;
                return Err(error.into());
            }
        };
        may_crash("opened");
        self.channel.say(&Message::StoreOpened, &[], ANSWER).await?;
        Ok(store)
    }

    async fn store_memory(&mut self, due: &'static str) -> Result<StoreMemory, TakeOverError> {
        let mut memory = StoreMemory::default();
        loop {
            match self.channel.hear(RELEASED, due).await? {
                (Message::Part(part), _) => memory.add(&part.name, part.layout, &part.text),
                (Message::StoreReleased, _) => return Ok(memory),
                _ => return Err(TakeOverError::Unexpected(due)),
            }
        }
    }

    /// Tells the old process why this one ends, so that it goes on at once.
    pub(super) async fn give_up(&mut self, why: String) {
        if let Err(error) = self.channel.say(&Message::Failed { why }, &[], ANSWER).await {
            tracing::debug!(%error, "the old process was not told why this one ends");
        }
    }

    /// Says that this process stands ready, takes in what the old one has in memory, and waits until it may accept
    /// connections.
    pub(super) async fn ready(&mut self, memory: &mut MemoryReader) -> Result<(), TakeOverError> {
        if !self.hands_over_store {
            self.channel.say(&Message::Prepared, &[], ANSWER).await?;
        }
        self.channel.say(&Message::Ready, &[], ANSWER).await?;
        may_crash("ready");
        let due = "this process may accept connections";
        in_all(due, self.memory(memory, due)).await?;
        may_crash("commit");
        if let Some(errors) = self.errors.take()
            && let Err(error) = rustix::stdio::dup2_stderr(errors)
        {
            tracing::warn!(%error, "messages are lost when the old process has ended");
        }
        Ok(())
    }

    async fn memory(
        &mut self,
        memory: &mut MemoryReader,
        due: &'static str,
    ) -> Result<(), TakeOverError> {
        loop {
            match self.channel.hear(COMMIT, due).await? {
                (Message::Part(part), _) => memory.add(&part),
                (Message::Commit, _) => return Ok(()),
                _ => return Err(TakeOverError::Unexpected(due)),
            }
        }
    }

    /// Carries out the store calls of the old process from now on, if there are any: until it ends.
    pub(super) fn into_line(self, host: CallHost) -> Line {
        Line::to_predecessor(self.channel, async move |call: &[u8]| host.carry_out(call).await)
    }
}

/// Messages within one limit, however many there are.
async fn in_all<T>(
    due: &'static str,
    messages: impl Future<Output = Result<T, TakeOverError>>,
) -> Result<T, TakeOverError> {
    timeout(ALL, messages).await.map_err(|_elapsed| TakeOverError::Late(ALL, due))?
}

/// Whether the old process cannot serve on: it drains, or has ended.
#[derive(Debug)]
pub(super) enum OldProcess {
    Drains,
    /// It has not said so in time. The task waits for that; `false`: it has said something else.
    Unknown(JoinHandle<bool>),
}

/// Says that this process accepts connections. Fails if the old one serves on.
pub(super) async fn accepting(mut line: Line) -> Result<OldProcess, TakeOverError> {
    may_crash("accepting");
    line.say(Message::Accepting);
    let drains = line.expect(&Message::Main, ANSWER, "it drains").await;
    let old = match drains {
        Ok(()) => OldProcess::Drains,
        Err(error @ TakeOverError::GaveUp(_)) => return Err(error),
        Err(error) => {
            tracing::warn!(%error, "the old process does not say that it drains");
            if matches!(error, TakeOverError::Ended(_)) {
                OldProcess::Drains
            } else {
                let drains_late = async move { line.expect_or_end(&Message::Main).await };
                OldProcess::Unknown(tokio::task::spawn_local(drains_late))
            }
        }
    };
    service_manager::become_main();
    Ok(old)
}
