//! A place at a server: held for as long as the server works on a request.

use std::sync::Arc;

use super::standing::Trying;
use super::{Failure, Roster};

/// A place at a server. Dropped, it goes to the next who waits.
#[derive(Debug)]
pub(in crate::origin) struct Place {
    /// `None` where there is no place to give back.
    roster: Option<Arc<Roster>>,
    server: usize,
    /// Where the request shows that the server is back, or is not.
    trial: Option<Trying>,
}

impl Place {
    pub(super) fn new(roster: Arc<Roster>, server: usize, trial: Option<Trying>) -> Self {
        Self { roster: Some(roster), server, trial }
    }

    /// Where it is.
    pub(in crate::origin) fn server(&self) -> usize {
        self.server
    }

    /// The server has answered, or failed.
    pub(in crate::origin) fn judge(&mut self, failure: Option<Failure>) {
        let trial = self.trial.take();
        if let Some(roster) = &self.roster {
            roster.judge(self.server, trial, failure);
        }
    }

    /// It was never given to anybody.
    pub(super) fn forget(mut self) {
        self.roster = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(roster) = self.roster.take() {
            roster.leave(self.server, self.trial);
        }
    }
}
