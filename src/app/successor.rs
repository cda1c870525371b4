//! The take-over as the new process sees it. Until the old one says `Commit`, this process accepts no connection, and
//! changes nothing that the old one has to itself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use anteroom_config::Plan;

use super::handed::HandedSockets;
use super::start_error::StartError;
use super::{service_manager, store};
use crate::admin::{ClientError, begin_take_over};
use crate::take_over::channel::{Channel, TakeOverError};
use crate::take_over::frame::FrameSocket;
use crate::take_over::message::{Hello, Message, PROTOCOL};

/// How long the old process may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it may take to let this process accept connections.
const COMMIT: Duration = Duration::from_secs(10);

/// The process that serves until this one does.
#[derive(Debug)]
pub(super) struct Predecessor {
    channel: Channel,
    /// Its standard error, if it has started this process and reads what this one writes to its own.
    errors: Option<OwnedFd>,
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
    service_manager::wait_to_be_main();
    let channel = Channel::new(FrameSocket::new(stream));
    let mut predecessor = Predecessor { channel, errors: None };
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
            store_format: 0,
            store: store::mark(&plan.store),
        };
        self.channel.say(&Message::Hello(hello), &[], ANSWER).await?;
        let due = "it agrees";
        let (Message::Welcome(welcome), mut files) = self.channel.hear(ANSWER, due).await? else {
            return Err(TakeOverError::Unexpected(due));
        };
        self.errors = files.pop();
        tracing::info!(version = %welcome.version, "the running proxy hands over");
        let mut handed = HandedSockets::default();
        let due = "these are its sockets";
        loop {
            let (message, files) = self.channel.hear(ANSWER, due).await?;
            let Message::Sockets { sockets, more } = message else {
                return Err(TakeOverError::Unexpected(due));
            };
            handed.add(sockets, files).map_err(TakeOverError::Socket)?;
            if !more {
                return Ok(handed);
            }
        }
    }

    /// Says that this process stands ready, and waits until it may accept connections.
    pub(super) async fn ready(&mut self) -> Result<(), TakeOverError> {
        self.channel.say(&Message::Prepared, &[], ANSWER).await?;
        self.channel.say(&Message::Ready, &[], ANSWER).await?;
        let due = "this process may accept connections";
        self.channel.expect(&Message::Commit, COMMIT, due).await?;
        if let Some(errors) = self.errors.take()
            && let Err(error) = rustix::stdio::dup2_stderr(errors)
        {
            tracing::warn!(%error, "messages are lost when the old process has ended");
        }
        Ok(())
    }

    /// Says that this process accepts connections. Fails if the old one serves on; one that has ended does not matter any
    /// more.
    pub(super) async fn accepting(mut self) -> Result<(), TakeOverError> {
        let told = self.channel.say(&Message::Accepting, &[], ANSWER).await;
        let heard = match told {
            Ok(()) => self.channel.expect(&Message::Main, ANSWER, "it drains").await,
            Err(error) => Err(error),
        };
        match heard {
            Err(error @ TakeOverError::GaveUp(_)) => return Err(error),
            Err(error) => tracing::warn!(%error, "the old process does not say that it drains"),
            Ok(()) => {}
        }
        service_manager::become_main();
        Ok(())
    }
}
