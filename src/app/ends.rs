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
