//! Why a request is refused, or fails: the one table of what the client is told of each.

use std::time::Duration;

use ::http::{HeaderValue, StatusCode};

use crate::cache::flight::Failure;
use crate::origin::{BodyFault, OriginError};
use crate::telemetry::reason::Reason;

/// Seconds after which a client may try again.
pub(in crate::proxy) const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// Why a request is answered by us.
#[derive(Debug, thiserror::Error)]
pub(in crate::proxy) enum Error {
    /// The request is wrong.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// The target is too long.
    #[error("the target is too long")]
    UriTooLong,
    /// The body is larger than `max_body`.
    #[error("the body is too large")]
    BodyTooLarge,
    /// The body stopped.
    #[error("the body stopped")]
    BodyStalled,
    /// The request expects something that we do not know of.
    #[error("the request expects what we do not know of")]
    Expectation,
    /// The site is not served here.
    #[error("the site is not served here")]
    Misdirected,
    /// What the client showed when it connected counts no more.
    #[error("what the client showed counts no more")]
    Lapsed,
    /// The request may go no further, and is of no kind that we answer.
    #[error("the request may go no further")]
    LastHop,
    /// A tunnel.
    #[error("tunnels are not opened")]
    Tunnel,
    /// Not this client.
    #[error("this is not for this client")]
    Forbidden,
    /// Not this address.
    #[error("this is not for this address")]
    Denied,
    /// One request too many.
    #[error("one request too many")]
    TooMany {
        /// The time after which one more is none.
        retry: Duration,
        /// Whether its body was left unread.
        has_body: bool,
    },
    /// The request takes nothing but a stored page, and there is none for it.
    #[error("nothing is stored for a request that takes nothing else")]
    NotStored,
    /// As many tunnels as there may be are open.
    #[error("too many tunnels are open")]
    TunnelsFull,
    /// A purge did not reach the store.
    #[error("a purge did not reach the store")]
    Purge(#[source] Box<dyn std::error::Error>),
    /// The origin.
    #[error("the origin failed")]
    Origin(#[source] OriginError),
    /// The origin, behind the head of its response, of which nothing more had come.
    #[error("the origin failed behind the head of its response")]
    BrokenOff {
        /// How.
        source: OriginError,
        /// The cookie of a log-in that went before and stands: the visitor's old one is void.
        cookie: Option<HeaderValue>,
    },
    /// A fetch for the cache, shared with others, failed.
    #[error("the origin failed for another request")]
    OriginShared(Failure),
    /// A log-in or a log-out could not be stored.
    #[error("the session could not be stored")]
    Session(#[source] Box<dyn std::error::Error>),
    /// A cart could not be stored.
    #[error("the cart could not be stored")]
    Cart {
        /// Why.
        source: Box<dyn std::error::Error>,
        /// The cookie of a log-in that went before and stands: the visitor's old one is void.
        cookie: Option<HeaderValue>,
    },
}

impl From<OriginError> for Error {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::ClientBody(BodyFault::TooLarge) => Self::BodyTooLarge,
            OriginError::ClientBody(BodyFault::Stalled) => Self::BodyStalled,
            OriginError::ClientBody(BodyFault::Broken) => Self::BadRequest("the body broke off"),
            other => Self::Origin(other),
        }
    }
}

impl Error {
    pub(in crate::proxy) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::BodyStalled => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::Misdirected | Self::Lapsed => StatusCode::MISDIRECTED_REQUEST,
            Self::LastHop | Self::Tunnel => StatusCode::NOT_IMPLEMENTED,
            // RFC 9110 §10.1.1.
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Forbidden | Self::Denied => StatusCode::FORBIDDEN,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Origin(error) if error.unavailable() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Origin(error) if error.timed_out() => StatusCode::GATEWAY_TIMEOUT,
            // RFC 9111 §5.2.1.7.
            Self::OriginShared(Failure::TimedOut) | Self::NotStored => StatusCode::GATEWAY_TIMEOUT,
            Self::OriginShared(Failure::Unavailable) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Origin(_) | Self::BrokenOff { .. } | Self::OriginShared(Failure::Unusable) => {
                StatusCode::BAD_GATEWAY
            }
            Self::Session(_) | Self::Cart { .. } | Self::Purge(_) | Self::TunnelsFull => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// What the client is told: never an inner text.
    pub(in crate::proxy) fn sentence(&self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::BodyStalled => "the request body stopped",
            Self::BodyTooLarge => "the request body is too large",
            Self::UriTooLong => "the request target is too long",
            Self::LastHop => "the request may go no further, and is not answered here",
            Self::Tunnel => "CONNECT is not for this server",
            Self::Forbidden | Self::Denied => "this is not for you",
            Self::TooMany { .. } => "too many requests, please try again later",
            Self::NotStored => "the page is not stored, and nothing else was asked for",
            Self::Purge(_) => "the purge holds in this process only, until the store takes it",
            Self::Misdirected => "this site is not served here",
            Self::Lapsed => "this connection is over, please make another",
            Self::Origin(error) if error.unavailable() => "the site is busy or away for now",
            Self::OriginShared(Failure::Unavailable) => "the site is busy or away for now",
            Self::Origin(error) if error.timed_out() => "the site took too long to answer",
            Self::OriginShared(Failure::TimedOut) => "the site took too long to answer",
            Self::Origin(_) | Self::BrokenOff { .. } | Self::OriginShared(Failure::Unusable) => {
                "the site gave no usable answer"
            }
            Self::Expectation => "nothing but 100-continue can be expected here",
            Self::Session(_) | Self::Cart { .. } | Self::TunnelsFull => {
                "please try again in a few seconds"
            }
        }
    }

    /// Whether the connection ends with the answer: after a request that cannot be trusted, or
    /// whose body was not read.
    pub(in crate::proxy) fn closes(&self) -> bool {
        !matches!(
            self,
            Self::Origin(_)
                | Self::BrokenOff { .. }
                | Self::OriginShared(_)
                | Self::NotStored
                | Self::TooMany { has_body: false, .. }
                | Self::Session(_)
                | Self::Cart { .. }
                | Self::Purge(_)
        )
    }

    pub(in crate::proxy) fn reason(&self) -> Reason {
        match self {
            Self::Origin(_) | Self::BrokenOff { .. } | Self::OriginShared(_) => Reason::Origin,
            Self::Session(_) | Self::Cart { .. } | Self::Purge(_) => Reason::StoreAway,
            Self::NotStored => Reason::RequestDirective,
            Self::Denied => Reason::Denied,
            Self::TooMany { .. } => Reason::RateLimited,
            _ => Reason::Refused,
        }
    }
}
