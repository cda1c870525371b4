//! Limits for the connections of operators, on both sockets.

use std::time::Duration;

/// How long to wait after accepting fails.
pub(super) const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);
/// Connections at a time; further ones wait.
pub(super) const CONNECTIONS_MAX: usize = 64;
/// The longest time of a connection.
pub(super) const CONNECTION_TIME: Duration = Duration::from_secs(60);
/// The longest time that a response of the listener goes on after that. A stream of figures lasts shorter.
pub(super) const LAST_RESPONSE_TIME: Duration = Duration::from_secs(60);
/// The longest time for a request's head.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(10);
