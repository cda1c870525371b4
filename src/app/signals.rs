//! The signals that the process handles: TERM, INT and HUP.

use super::start_error::StartError;

/// The handled signals.
#[derive(Debug)]
pub(super) struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

impl Signals {
    /// Handles the signals from now on.
    pub(super) fn new() -> Result<Self, StartError> {
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

    /// The next signal.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.term.recv() => Signal::Terminate,
            _ = self.int.recv() => Signal::Interrupt,
            _ = self.hup.recv() => Signal::Reload,
        }
    }
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// TERM: a supervisor ends the process.
    Terminate,
    /// INT: somebody at a terminal does.
    Interrupt,
    /// HUP.
    Reload,
}
