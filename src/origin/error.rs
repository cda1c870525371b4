//! What can go wrong between us and the origin.

use std::io::ErrorKind;

/// Too many files are open, in the system or in this process (errno(3)).
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// What went wrong with a client's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// It did not move for the stall timeout.
    #[error("the body stopped")]
    Stalled,
    /// It grew over `max_body`.
    #[error("the body is too large")]
    TooLarge,
    /// It broke off or is malformed.
    #[error("the body broke off")]
    Broken,
}

/// Why there is no response, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// No connection: refused, unreachable, or no such name.
    #[error("no connection to the origin")]
    Connect(#[source] std::io::Error),
    /// No TLS: its certificate is not believed, or it speaks none.
    #[error("no TLS with the origin")]
    Tls(#[source] std::io::Error),
    /// The request cannot be said in the protocol that the origin speaks.
    #[error("the request cannot be sent to the origin: {0}")]
    Unsendable(&'static str),
    /// No connection within `connect_timeout`.
    #[error("connecting to the origin took too long")]
    ConnectTimedOut,
    /// No head within `first_byte_timeout`.
    #[error("the origin did not answer in time")]
    FirstByteTimedOut,
    /// The body stopped for `between_bytes_timeout`.
    #[error("the origin stopped in the middle of a body")]
    BodyTimedOut,
    /// The connection broke before the response was whole.
    #[error("the origin broke off")]
    Broken(#[source] hyper::Error),
    /// The stream ended before the response was whole.
    #[error("the origin cut off its response")]
    CutOff,
    /// The response is not HTTP as we can pass it on.
    #[error("the origin's response is malformed: {0}")]
    Malformed(&'static str),
    /// Every server works on as much as it may, and none was ready in time.
    #[error("the origin's servers have no room")]
    Crowded,
    /// No server is up.
    #[error("the origin's servers have failed lately")]
    Resting,
    /// The client's own body failed while it was sent on.
    #[error("the client's body failed")]
    ClientBody(BodyFault),
}

impl OriginError {
    /// Whether the origin may have got the whole request, and acted on it.
    #[must_use]
    pub fn may_have_reached(&self) -> bool {
        !matches!(
            self,
            Self::Connect(_)
                | Self::Tls(_)
                | Self::Unsendable(_)
                | Self::ConnectTimedOut
                | Self::Crowded
                | Self::Resting
                | Self::ClientBody(_)
        )
    }

    /// Whether there was no connection, so that no server has seen anything of the request.
    #[must_use]
    pub fn reached_nobody(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Tls(_) | Self::ConnectTimedOut)
    }

    /// Whether it is this machine that has no room for a connection, which says nothing of a server.
    #[must_use]
    pub(super) fn is_ours(&self) -> bool {
        let Self::Connect(error) = self else { return false };
        error.kind() == ErrorKind::AddrNotAvailable
            || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
    }

    /// Whether the request was not sent, for there was no server for it.
    #[must_use]
    pub fn unavailable(&self) -> bool {
        matches!(self, Self::Crowded | Self::Resting)
    }

    /// Whether the origin was too slow, and not just unreachable or wrong.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        matches!(self, Self::ConnectTimedOut | Self::FirstByteTimedOut | Self::BodyTimedOut)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn what_this_machine_lacks_is_no_fault_of_a_server() {
        for (error, expected) in [
            (Error::from_raw_os_error(EMFILE), true),
            (Error::from_raw_os_error(ENFILE), true),
            (ErrorKind::AddrNotAvailable.into(), true),
            (ErrorKind::ConnectionRefused.into(), false),
            (ErrorKind::HostUnreachable.into(), false),
        ] {
            assert_eq!(OriginError::Connect(error).is_ours(), expected);
        }
    }
}
