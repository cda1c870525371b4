//! The settings of one server of an origin: its address and timeouts.

use std::path::PathBuf;
use std::time::Duration;

use anteroom_policy::origin::Http2;

use super::tls::OriginTlsConnector;

/// hyper's buffer for an origin connection, and so the limit of a response's head. At 16 KiB, 64 KiB bodies
/// cost a third less than with hyper's first guess.
pub(super) const BUFFER: usize = 64 * 1024;

/// The usual limit of the fields of a response. Up to it they are read without an allocation, here and in hyper.
pub const RESPONSE_FIELDS: usize = 100;

/// How to reach the origin and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Host name or address literal (IPv6 without brackets).
    pub host: String,
    /// Port.
    pub port: u16,
    /// The timeout for a connection.
    pub connect_timeout: Duration,
    /// The timeout for the head of a response, from the last byte sent.
    pub first_byte_timeout: Duration,
    /// The timeout between two parts of a body.
    pub between_bytes_timeout: Duration,
    /// The number of idle connections kept.
    pub keep_idle: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Whether a connection that carried a HEAD is used again.
    pub head_reuse: bool,
    /// The most fields in the head of a response over HTTP/1.
    pub response_fields: usize,
    /// Whether there are other servers that can take a request that this one failed.
    pub has_peers: bool,
    /// The path of its Unix socket, if it has one; host and port are then ignored.
    pub socket: Option<PathBuf>,
    /// TLS to it; `None`: clear text.
    pub tls: Option<OriginTlsConnector>,
    /// Whether HTTP/2 is used with it.
    pub http2: Http2,
    /// The time between two PINGs on an HTTP/2 connection that receives nothing.
    pub http2_ping: Duration,
    /// The timeout between two parts of an event stream or a gRPC call.
    pub stream_timeout: Duration,
}
