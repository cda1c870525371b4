//! Errors between the proxy and the origin.

use std::io::ErrorKind;

/// Too many files are open, in the system or in this process (errno(3)).
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// What went wrong with a client's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyFault {
    /// It made no progress for the stall timeout.
    #[error("the body stalled")]
    Stalled,
    /// It exceeds `max_body`.
    #[error("the body is too large")]
    TooLarge,
    /// It broke off or is malformed.
    #[error("the body broke off")]
    Broken,
}

/// Why there is no response, or only a part of it.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// No connection: refused, unreachable, or no such name.
    #[error("no connection to the origin")]
    Connect(#[source] std::io::Error),
    /// No TLS: the certificate is not trusted, or the origin does not speak TLS.
    #[error("no TLS with the origin")]
    Tls(#[source] std::io::Error),
    /// The request cannot be expressed in the origin's protocol.
    #[error("the request cannot be sent to the origin: {0}")]
    Unsendable(&'static str),
    /// No connection within `connect_timeout`.
    #[error("connecting to the origin took too long")]
    ConnectTimedOut,
    /// No head within `first_byte_timeout`.
    #[error("the origin did not answer in time")]
    FirstByteTimedOut,
    /// The body paused for `between_bytes_timeout`.
    #[error("the origin stalled in the middle of a body")]
    BodyTimedOut,
    /// The connection broke before the response was complete.
    #[error("the origin closed the connection early")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The stream ended before the response was complete.
    #[error("the origin truncated its response")]
    CutOff,
    /// The head of the response is over a limit, which is this number for its fields.
    #[error(
        "the head of the origin's response is over 64 KiB, or over {0} fields ([origin] response_fields)"
    )]
    LargeHead(usize),
    /// The response is not HTTP that can be passed on.
    #[error("the origin's response is malformed: {0}")]
    Malformed(&'static str),
    /// Every server is at its limit, and none was ready in time.
    #[error("all servers of the origin are busy")]
    Crowded,
    /// No server is up.
    #[error("all servers of the origin are down")]
    Resting,
    /// The operator has taken the origin out of service on this route.
    #[error("the route is under maintenance")]
    Maintenance,
    /// The client's own body failed while it was sent on.
    #[error("the client's body failed")]
    ClientBody(BodyFault),
}

impl OriginError {
    /// The connection broke with `error`.
    pub(super) fn broken(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Broken(Box::new(error))
    }

    /// Whether the origin may have received the whole request and acted on it.
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
                | Self::Maintenance
                | Self::ClientBody(_)
        )
    }

    /// Whether no connection was made, so that no server has seen the request.
    #[must_use]
    pub fn reached_no_server(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Tls(_) | Self::ConnectTimedOut)
    }

    /// Whether this machine has run out of files or ports, which says nothing about the server.
    #[must_use]
    pub(super) fn is_ours(&self) -> bool {
        let Self::Connect(error) = self else { return false };
        error.kind() == ErrorKind::AddrNotAvailable
            || matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
    }

    /// Whether only this page is at fault: the server has answered, and says nothing about its other pages.
    #[must_use]
    pub(super) fn is_of_one_page(&self) -> bool {
        matches!(self, Self::LargeHead(_))
    }

    /// Whether the request was not sent for lack of a server.
    #[must_use]
    pub fn unavailable(&self) -> bool {
        matches!(self, Self::Crowded | Self::Resting | Self::Maintenance)
    }

    /// Whether the origin was too slow, rather than unreachable or wrong.
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
    fn local_resource_errors_are_not_blamed_on_a_server() {
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
