//! What a redis-rs error means for the server, the connection, and the call.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::StoreError;

/// The kind of a call: its budget, and the meaning of its failure.
#[derive(Clone, Copy, Debug)]
pub(super) enum RedisCall {
    /// Changes nothing: on a broken connection it counts as not done.
    Read,
    /// Changes something: on a broken connection the result is unknown.
    Write,
}

/// Why a call at one server failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The call has failed.
    Store(StoreError),
    /// Nothing was done: the keys are at another server, from now on or for this call.
    Redirected(Redirection),
    /// Nothing was done: the keys are on their way from one server to another.
    Split,
}

/// The server that has the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// From now on: MOVED.
    Moved(String),
    /// For this call: ASK.
    Ask(String),
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl CallError {
    /// The error for a caller that knows one server only.
    pub(super) fn at_one_server(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Redirected(_) => StoreError::Failed(
                "this Redis is a node of a Cluster: write redis+cluster:// in [store] url".into(),
            ),
            Self::Split => StoreError::Away,
        }
    }
}

/// The kind of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisFault {
    /// Another server has the keys.
    Redirected(Redirection),
    /// Some of the keys have moved.
    Split,
    /// No answer in time.
    TimedOut,
    /// The server is a replica, and has done nothing: another connection may lead to the primary.
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
        if let Some(redirection) = redirection_in(error) {
            Self::Redirected(redirection)
        } else if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) {
            Self::Split
        } else if error.is_timeout() {
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
    pub(super) fn into_call_error(self, call: RedisCall, error: RedisError) -> CallError {
        CallError::Store(match (self, call) {
            (Self::Redirected(redirection), _) => return CallError::Redirected(redirection),
            (Self::Split, _) => return CallError::Split,
            (Self::TimedOut, _) => StoreError::TimedOut,
            (Self::Demoted | Self::NotReady, _) | (Self::Broken, RedisCall::Read) => {
                StoreError::Away
            }
            (Self::Broken, RedisCall::Write) => StoreError::Unanswered(Box::new(error)),
            (Self::Refused, _) => StoreError::Failed(Box::new(error)),
        })
    }
}

/// What is said of a login that a server refuses.
const WRONG_LOGIN: &str = "Redis refuses the user or the password in [store] url";

/// What a server denies its user: NOAUTH and NOPERM in its own words, or a login that is wrong. `None` for other errors.
pub(super) fn denial(error: &RedisError) -> Option<String> {
    if error.kind() == ErrorKind::AuthenticationFailed {
        return Some(WRONG_LOGIN.to_owned());
    }
    server_errors(error).iter().find_map(|error| {
        let words = error.details().unwrap_or_default();
        // A script that is denied something, and EXEC, have other codes.
        let is_denied = || {
            let signs = [
                "The user executing the script can't",
                "ACL failure in script",
                "no permissions to run the",
            ];
            signs.iter().any(|sign| words.contains(sign))
        };
        match error.code() {
            "NOAUTH" => Some(format!("NOAUTH {words} Write the password in [store] url")),
            "NOPERM" => Some(format!("NOPERM {words}")),
            _ => is_denied().then(|| format!("NOPERM {words}")),
        }
    })
}

/// Tells the operator if a server denies its user what the proxy needs.
pub(super) fn tell_denial(error: &RedisError) {
    if let Some(reason) = denial(error) {
        tracing::warn!(
            reason,
            "Redis denies its user what the store needs: `anteroom check --connect` lists it"
        );
    }
}

/// The errors of a reply: a transaction has one for each of its commands.
fn server_errors(error: &RedisError) -> Vec<ServerError> {
    if !matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) {
        return Vec::new();
    }
    let errors = error.clone().into_server_errors();
    errors.iter().flat_map(|errors| errors.iter()).map(|(_, error)| error.clone()).collect()
}

/// The details of MOVED and ASK are the slot and the address.
fn redirection_in(error: &RedisError) -> Option<Redirection> {
    server_errors(error).iter().find_map(|error| {
        let address = || Some(error.details()?.split_ascii_whitespace().nth(1)?.to_owned());
        match error.code() {
            "MOVED" => Some(Redirection::Moved(address()?)),
            "ASK" => Some(Redirection::Ask(address()?)),
            _ => None,
        }
    })
}

fn is_demoted(error: &RedisError) -> bool {
    // Scripts of older servers report it as text.
    let is_read_only = |error: &ServerError| {
        error.code() == "READONLY"
            || error.details().is_some_and(|words| words.contains("-READONLY "))
    };
    server_errors(error).iter().any(is_read_only)
}

fn is_not_ready(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
        )
    )
}

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    #[test]
    fn what_a_server_denies_is_told_in_its_words() {
        for (code, words, denied) in [
            ("NOAUTH", "Authentication required.", Some("NOAUTH Authentication required. Write")),
            (
                "NOPERM",
                "User ann has no permissions to run the 'zadd' command",
                Some("NOPERM User ann has no permissions to run the 'zadd' command"),
            ),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: d635, on @user_script:1.",
                Some("NOPERM The user executing the script can't run this command"),
            ),
            (
                "EXECABORT",
                "Transaction discarded because of: this user has no permissions to run the 'exec' command",
                Some("NOPERM Transaction discarded because of: this user has no permissions"),
            ),
            ("EXECABORT", "Transaction discarded because of previous errors.", None),
            ("ERR", "wrong number of arguments for 'zadd' command", None),
            ("WRONGTYPE", "Operation against a key holding the wrong kind of value", None),
        ] {
            let error = make_extension_error(code.to_owned(), Some(words.to_owned()));
            let told = denial(&error);
            assert_eq!(told.is_some(), denied.is_some(), "{code}");
            let begins = told.unwrap_or_default().starts_with(denied.unwrap_or_default());
            assert!(begins, "{code}");
            assert_eq!(RedisFault::of(&error), RedisFault::Refused, "{code}");
        }
        let login = (ErrorKind::AuthenticationFailed, "Password authentication failed");
        assert_eq!(denial(&login.into()).as_deref(), Some(WRONG_LOGIN));
    }
}
