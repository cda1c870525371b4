//! `[traces]`

use std::time::Duration;

use ::http::HeaderName;
use anteroom_policy::traces::{Fraction, ParentSampling};

use super::origin::OriginUrl;
use crate::secret::Secret;

/// `[traces]`: where traces of requests go, and of which requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesConfig {
    /// `endpoint`: the receiver; `None`: no traces.
    pub endpoint: Option<TracesEndpoint>,
    /// `headers`: fields for the receiver.
    pub headers: Vec<(HeaderName, Secret)>,
    /// `sample`, 0.01: the part of requests that are traced whatever becomes of them.
    pub sample: Fraction,
    /// `parent`, `"follow"`: what the `traceparent` of a trusted proxy decides.
    pub parent: ParentSampling,
    /// `slow`, 1 s: requests that take at least so long are always traced; `None` (`"off"`): they are not.
    pub slow: Option<Duration>,
    /// `service_name`, `"anteroom"`: the name of this proxy in traces.
    pub service_name: String,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: Vec::new(),
            sample: Fraction::millionths(10_000),
            parent: ParentSampling::Follow,
            slow: Some(Duration::from_secs(1)),
            service_name: "anteroom".to_owned(),
        }
    }
}

/// The receiver of traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracesEndpoint {
    /// The server.
    pub server: OriginUrl,
    /// The path before `/v1/traces`, without a slash at its end; mostly empty.
    pub path: String,
}
