//! How the parts of the process are told of its end.

use tokio_util::sync::CancellationToken;

/// One token for each step of the end, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// The process leaves: connections get their last answer.
    pub(super) leaving: CancellationToken,
    /// A successor has the sockets of the administration.
    pub(super) left: CancellationToken,
    /// Nothing is accepted any more, and connections end.
    pub(super) drain: CancellationToken,
    /// The tasks end.
    pub(super) stop: CancellationToken,
}

impl Ends {
    /// The ends of what listens for operators.
    pub(super) fn of_doors(&self) -> (CancellationToken, CancellationToken) {
        (self.left.clone(), self.stop.clone())
    }

    /// The ends of what listens for visitors.
    pub(super) fn of_workers(&self) -> (CancellationToken, CancellationToken) {
        (self.leaving.clone(), self.drain.clone())
    }
}
