//! What the proxy tells operators: the access log, messages, the metrics, missed URLs, requests as they end, who takes the
//! origins' time, traces, and the reasons that all name.
//!
//! Nothing here knows a request, a store or a connection; the parts hand over records and counts. Telling never waits:
//! where a queue is full, a record is dropped and counted.

pub mod access_log;
pub mod crowd;
pub mod line_file;
pub mod message_log;
pub mod metrics;
pub mod misses;
pub mod origin_use;
pub mod reason;
pub mod remedies;
pub mod request_feed;
pub mod request_filter;
pub mod request_telemetry;
pub mod shown_path;
pub mod traces;
mod words;
