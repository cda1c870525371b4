//! Traces: what a request did, and how long each part took, for a receiver that speaks OTLP.
//!
//! Each request notes its steps while traces are on. At its end it is decided whether its trace is kept; a kept one
//! waits in [`TraceQueue`] until `task` sends it. [`otlp`] writes what is sent.

pub mod otlp;
mod queue;
mod request_trace;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use anteroom_policy::traces::{Fraction, ParentSampling};

pub use queue::TraceQueue;
pub use request_trace::{OriginSpan, RequestTrace, TraceIds};
pub use spans::{Asking, FinishedRequest, PartOfPage, ServerAddress};

/// The traces of one configuration.
#[derive(Debug)]
pub struct Traces {
    /// Which requests are traced.
    pub rules: TraceRules,
    /// Where kept traces wait.
    pub queue: Arc<TraceQueue>,
}

/// Which requests are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRules {
    /// The part of requests that are traced whatever becomes of them.
    pub sample: Fraction,
    /// What the trace of a trusted proxy decides.
    pub parent: ParentSampling,
    /// A request whose response begins no earlier than this is always traced.
    pub slow: Option<Duration>,
}
