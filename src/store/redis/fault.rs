//! What an error of redis-rs says of the server and of the connection.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use super::link::Call;
use crate::store::StoreError;

/// What went wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No answer in time.
    TimedOut,
    /// The server has become a replica, and has done nothing: the primary is found by connecting again.
    Demoted,
    /// The connection is of no more use.
    Broken,
    /// The server is there but does not serve yet: nothing was done.
    NotReady,
    /// The server answered with an error.
    Refused,
}

impl Fault {
    pub(super) fn of(error: &RedisError) -> Self {
        if error.is_timeout() {
            Self::TimedOut
        } else if is_demoted(error) {
            Self::Demoted
        } else if error.is_connection_dropped()
            || error.is_io_error()
            || error.is_unrecoverable_error()
        {
            Self::Broken
        } else if is_not_ready(error) {
            Self::NotReady
        } else {
            Self::Refused
        }
    }

    /// What the caller is told.
    pub(super) fn into_store_error(self, call: Call, error: RedisError) -> StoreError {
        match (self, call) {
            (Self::TimedOut, _) => StoreError::TimedOut,
            (Self::Demoted | Self::NotReady, _) | (Self::Broken, Call::Read) => StoreError::Away,
            (Self::Broken, Call::Write) => StoreError::Unanswered(Box::new(error)),
            (Self::Refused, _) => StoreError::Failed(Box::new(error)),
        }
    }
}

fn is_demoted(error: &RedisError) -> bool {
    if !matches!(error.kind(), ErrorKind::Server(_)) {
        return false;
    }
    // A transaction has an error for each of its commands; scripts of older servers tell it in words.
    let is_read_only = |error: &ServerError| {
        error.code() == "READONLY"
            || error.details().is_some_and(|words| words.contains("-READONLY "))
    };
    let errors = error.clone().into_server_errors();
    errors.is_some_and(|errors| errors.iter().any(|(_, error)| is_read_only(error)))
}

fn is_not_ready(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
        )
    )
}
