//! What a redis-rs error means for the server, the connection, and the call.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::store::StoreError;

/// The kind of a call: its budget, and the meaning of its failure.
#[derive(Clone, Copy, Debug)]
pub(super) enum RedisCall {
    /// Changes nothing: on a broken connection it counts as not done.
    Read,
    /// Changes something: on a broken connection the result is unknown.
    Write,
}

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisFault {
    /// No answer in time.
    TimedOut,
    /// The server has become a replica, and has done nothing: reconnecting finds the primary.
    Demoted,
    /// The connection is unusable.
    Broken,
    /// The server is up but does not serve yet: nothing was done.
    NotReady,
    /// The server answered with an error.
    Refused,
}

impl RedisFault {
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

    /// The error for the caller.
    pub(super) fn into_store_error(self, call: RedisCall, error: RedisError) -> StoreError {
        match (self, call) {
            (Self::TimedOut, _) => StoreError::TimedOut,
            (Self::Demoted | Self::NotReady, _) | (Self::Broken, RedisCall::Read) => {
                StoreError::Away
            }
            (Self::Broken, RedisCall::Write) => StoreError::Unanswered(Box::new(error)),
            (Self::Refused, _) => StoreError::Failed(Box::new(error)),
        }
    }
}

fn is_demoted(error: &RedisError) -> bool {
    if !matches!(error.kind(), ErrorKind::Server(_)) {
        return false;
    }
    // A transaction has an error for each of its commands; scripts of older servers report it as
    // text.
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
