//! The format and the target of the access log.

use std::path::PathBuf;

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// One JSON object.
    Json,
    /// The Combined Log Format, then the cache result, the reason and the milliseconds.
    Combined,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}
