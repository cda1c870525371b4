//! Why a request is refused or fails: one table of the status and text that the client gets for each
//! error.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, StatusCode};
use anteroom_http::host::Host;
use anteroom_origin::{BodyFault, OriginError};
use anteroom_policy::error_page::CrowdPage;
use anteroom_policy::priority::RequestClass;
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::reason::Reason;

use anteroom_cache::flight::FlightFailure;

/// Seconds after which a client may try again.
pub(crate) const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// Why the proxy answers a request with an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request is malformed.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// The target is longer than the limit.
    #[error("the target is too long")]
    UriTooLong,
    /// The head is larger than `request_head`.
    #[error("the head is too large")]
    HeadTooLarge,
    /// The body is larger than `max_body`.
    #[error("the body is too large")]
    BodyTooLarge,
    /// The body stopped arriving.
    #[error("the body stopped")]
    BodyStalled,
    /// The request has an unknown expectation.
    #[error("the request expects what we do not know of")]
    Expectation,
    /// The site is not served here.
    #[error("the site is not served here")]
    Misdirected,
    /// The host is not in `[origin] hosts`.
    #[error("the host is not in [origin] hosts")]
    Unlisted(Host),
    /// The result of the client's TLS handshake is no longer valid.
    #[error("what the client showed counts no more")]
    Lapsed,
    /// `Max-Forwards` is 0, and the proxy does not answer the method itself.
    #[error("the request may go no further")]
    LastHop,
    /// This process has sent the request itself: what it takes for the origin leads back to it.
    #[error("the origin's address leads back to this proxy")]
    Loop,
    /// The client asks for a tunnel with CONNECT.
    #[error("tunnels are not opened")]
    Tunnel,
    /// The client may not do this.
    #[error("this is not for this client")]
    Forbidden,
    /// The client's address is not served.
    #[error("this is not for this address")]
    Denied,
    /// The route denies its requests.
    #[error("the route denies its requests")]
    DeniedByRoute(Arc<CompiledRoute>),
    /// The route requires a login, which the visitor lacks.
    #[error("the route requires a login")]
    LoginRequired {
        /// The route of the request.
        route: Arc<CompiledRoute>,
        /// Whether the store or the app could not tell.
        is_unsure: bool,
        /// The page where a browser is sent to log in.
        page: Option<HeaderValue>,
    },
    /// A rate limit is reached.
    #[error("one request too many")]
    TooMany {
        /// The time until the next request is allowed.
        retry: Duration,
        /// Whether the body was left unread.
        has_body: bool,
    },
    /// The request accepts only a stored page, and there is none for it.
    #[error("nothing is stored for a request that takes nothing else")]
    NotStored,
    /// The limit on open tunnels is reached.
    #[error("too many tunnels are open")]
    TunnelsFull,
    /// A purge did not reach the store.
    #[error("a purge did not reach the store")]
    Purge(#[source] Box<dyn std::error::Error>),
    /// The origin failed.
    #[error("the origin failed")]
    Origin(#[source] OriginError),
    /// The origin has more to do than it can, and the request found no place in time.
    #[error("the origin is crowded")]
    Crowded {
        /// The class of the request.
        class: RequestClass,
        /// What is shown to a browser that asks for a page.
        page: Option<CrowdPage>,
    },
    /// The origin failed after the head of its response, and before any part of the body.
    #[error("the origin failed behind the head of its response")]
    BrokenOff {
        /// The error of the origin.
        source: OriginError,
        /// The cookie of a login that was carried out before. It must reach the client, because the
        /// visitor's old cookie is void.
        cookie: Option<HeaderValue>,
    },
    /// A fetch for the cache failed that is shared with other requests.
    #[error("the origin failed for another request")]
    OriginShared(FlightFailure),
    /// A login or logout could not be stored.
    #[error("the session could not be stored")]
    Session(#[source] Box<dyn std::error::Error>),
    /// A defect of Anteroom ended the request.
    #[error("a defect of Anteroom ended the request")]
    Defect,
    /// A cart could not be stored.
    #[error("the cart could not be stored")]
    Cart {
        /// The error of the store.
        source: Box<dyn std::error::Error>,
        /// The cookie of a login that was carried out before. It must reach the client, because the
        /// visitor's old cookie is void.
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
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::BodyStalled => StatusCode::REQUEST_TIMEOUT,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Misdirected | Self::Unlisted(_) | Self::Lapsed => StatusCode::MISDIRECTED_REQUEST,
            Self::LastHop | Self::Tunnel => StatusCode::NOT_IMPLEMENTED,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
            // RFC 9110 §10.1.1.
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Forbidden | Self::Denied | Self::DeniedByRoute(_) => StatusCode::FORBIDDEN,
            Self::LoginRequired { is_unsure: true, .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::LoginRequired { page: Some(_), .. } => StatusCode::FOUND,
            Self::LoginRequired { page: None, .. } => StatusCode::UNAUTHORIZED,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Origin(error) if error.unavailable() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Origin(error) if error.timed_out() => StatusCode::GATEWAY_TIMEOUT,
            // RFC 9111 §5.2.1.7.
            Self::OriginShared(FlightFailure::TimedOut) | Self::NotStored => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Crowded { .. }
            | Self::OriginShared(FlightFailure::Unavailable | FlightFailure::Crowded) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Origin(_)
            | Self::BrokenOff { .. }
            | Self::OriginShared(FlightFailure::Unusable) => StatusCode::BAD_GATEWAY,
            Self::Session(_) | Self::Cart { .. } | Self::Purge(_) | Self::TunnelsFull => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The text for the client. It never contains an inner error's text.
    pub(crate) fn sentence(&self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::BodyStalled => "the request body stopped",
            Self::BodyTooLarge => "the request body is too large",
            Self::UriTooLong => "the request target is too long",
            Self::HeadTooLarge => "the header fields of the request are too large",
            Self::LastHop => "the request may go no further, and is not answered here",
            Self::Loop => {
                "the request has come round: the site's address leads back to this server"
            }
            Self::Defect => "an error in this server ended the request",
            Self::Tunnel => "CONNECT is not for this server",
            Self::Forbidden | Self::Denied | Self::DeniedByRoute(_) => "this is not for you",
            Self::LoginRequired { is_unsure: false, .. } => "please log in first",
            Self::LoginRequired { is_unsure: true, .. } => "please try again in a few seconds",
            Self::TooMany { .. } => "too many requests, please try again later",
            Self::NotStored => "the page is not stored, and nothing else was asked for",
            Self::Purge(_) => "the purge holds in this process only, until the store takes it",
            Self::Misdirected | Self::Unlisted(_) => "this site is not served here",
            Self::Lapsed => "this connection is over, please make another",
            Self::Crowded { .. }
            | Self::Origin(OriginError::Crowded)
            | Self::OriginShared(FlightFailure::Crowded) => {
                "the site has too many visitors now, please try again in a minute"
            }
            Self::Origin(error) if error.unavailable() => "the site is busy or away for now",
            Self::OriginShared(FlightFailure::Unavailable) => "the site is busy or away for now",
            Self::Origin(error) if error.timed_out() => "the site took too long to answer",
            Self::OriginShared(FlightFailure::TimedOut) => "the site took too long to answer",
            Self::Origin(_)
            | Self::BrokenOff { .. }
            | Self::OriginShared(FlightFailure::Unusable) => "the site gave no usable answer",
            Self::Expectation => "nothing but 100-continue can be expected here",
            Self::Session(_) | Self::Cart { .. } | Self::TunnelsFull => {
                "please try again in a few seconds"
            }
        }
    }

    /// Whether the connection closes after the answer: the request cannot be trusted, or its body was
    /// not read.
    pub(crate) fn closes(&self) -> bool {
        !matches!(
            self,
            Self::Origin(_)
                | Self::BrokenOff { .. }
                | Self::OriginShared(_)
                | Self::Crowded { .. }
                | Self::NotStored
                | Self::Defect
                | Self::LoginRequired { .. }
                | Self::TooMany { has_body: false, .. }
                | Self::Session(_)
                | Self::Cart { .. }
                | Self::Purge(_)
        )
    }

    /// Whether the origin has more to do than it can.
    pub(crate) fn is_crowded(&self) -> bool {
        self.reason() == Reason::Crowded
    }

    /// The detail in `Cache-Status`: the reason, and of a crowd the class of the request.
    pub(crate) fn detail(&self) -> &'static str {
        match self {
            Self::Crowded { class, .. } => match class {
                RequestClass::Known => "crowded-known",
                RequestClass::LogIn => "crowded-login",
                RequestClass::Seen => "crowded-seen",
                RequestClass::New => "crowded-new",
                RequestClass::Background => "crowded-background",
            },
            other => other.reason().as_str(),
        }
    }

    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Origin(OriginError::Maintenance) => Reason::Maintenance,
            Self::Crowded { .. }
            | Self::Origin(OriginError::Crowded)
            | Self::OriginShared(FlightFailure::Crowded) => Reason::Crowded,
            Self::LoginRequired { .. } => Reason::LoginRequired,
            Self::Origin(_) | Self::BrokenOff { .. } | Self::OriginShared(_) => Reason::Origin,
            Self::Session(_) | Self::Cart { .. } | Self::Purge(_) => Reason::StoreAway,
            Self::NotStored => Reason::RequestDirective,
            Self::Denied | Self::DeniedByRoute(_) => Reason::Denied,
            Self::Loop => Reason::Loop,
            Self::Defect => Reason::Defect,
            Self::TooMany { .. } => Reason::RateLimited,
            _ => Reason::Refused,
        }
    }
}
