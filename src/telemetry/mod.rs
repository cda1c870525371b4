//! What the proxy tells operators: the access log, the metrics, and the reasons that both name.
//!
//! Nothing here knows a request; the parts hand over records and counts.

pub mod access_log;
pub mod metrics;
pub mod reason;
mod words;
