//! What bounds the connections of operators, on either socket.

use std::time::Duration;

/// How long to wait when accepting fails.
pub(super) const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);
/// Connections at a time; further ones wait.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// The longest that a connection may last.
pub(super) const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// For a request's head.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(10);
