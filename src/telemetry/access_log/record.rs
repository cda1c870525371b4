//! What is noted of one request. Holds no token, no cookie and no query value.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Method, Uri, Version};

use crate::ident::User;
use crate::telemetry::metrics::Outcome;
use crate::telemetry::reason::Reason;

/// Who asked, as a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VisitorClass {
    /// The token is in `login:`.
    Known,
    /// No login.
    Anonymous,
    /// It cannot be told.
    Unknown,
}

impl VisitorClass {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Anonymous => "anonymous",
            Self::Unknown => "unknown",
        }
    }
}

/// One request, after its end.
#[derive(Debug)]
pub struct Record {
    /// Unix time at which the request's head was there.
    pub at: f64,
    /// The client's address, where it has one.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: Method,
    /// The target as it came; only its path is written.
    pub uri: Uri,
    /// The site, as far as it was known.
    pub host: Option<Arc<str>>,
    /// HTTP version.
    pub version: Version,
    /// Status sent.
    pub status: u16,
    /// How the cache answered.
    pub outcome: Outcome,
    /// Why not from the cache.
    pub reason: Option<Reason>,
    /// The route's name.
    pub route: Option<Arc<str>>,
    /// Who asked.
    pub visitor: VisitorClass,
    /// The user, when `[log] user` wants it.
    pub user: Option<User>,
    /// Bytes of the response's body that were handed to the connection.
    pub sent: u64,
    /// Bytes that came from the client in a tunnel, where there was one.
    pub received: Option<u64>,
    /// From the head of the request to the end of the response.
    pub took: Duration,
    /// From the head of the request to the head of the origin's response.
    pub origin: Option<Duration>,
    /// Whether the response broke off.
    pub aborted: bool,
    /// The Referer field as it came; only its origin is written.
    pub referer: Option<HeaderValue>,
    /// The User-Agent field.
    pub agent: Option<HeaderValue>,
}

impl Record {
    /// Unix time of the response's end.
    pub(super) fn ended(&self) -> f64 {
        self.at + self.took.as_secs_f64()
    }

    /// The bytes that it holds on to, nearly.
    pub(super) fn weight(&self) -> usize {
        let target = self.uri.path_and_query().map_or(0, |target| target.as_str().len());
        let field = |value: &Option<HeaderValue>| value.as_ref().map_or(0, HeaderValue::len);
        target + field(&self.referer) + field(&self.agent)
    }
}
