//! What the operator says of one server of an origin: where it is, and how long it may take.

use std::path::PathBuf;
use std::time::Duration;

use super::protocol::Http2;
use super::tls::Tls;

/// hyper's buffer for an origin connection, and so the bound of a response's head. At 16 KiB
/// bodies 64 KiB cost a third less than hyper's first guess.
pub(super) const BUFFER: usize = 64 * 1024;

/// How to reach the origin and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Host name or address literal (IPv6 without brackets).
    pub host: String,
    /// Port.
    pub port: u16,
    /// For a connection.
    pub connect_timeout: Duration,
    /// For the head of a response, from the last byte sent.
    pub first_byte_timeout: Duration,
    /// Between two parts of a body.
    pub between_bytes_timeout: Duration,
    /// Idle connections that are kept.
    pub keep_idle: usize,
    /// How long an idle one is kept.
    pub idle_timeout: Duration,
    /// Whether a connection that carried a HEAD is used again.
    pub head_reuse: bool,
    /// Whether there are other servers, to which a request may go that this one failed.
    pub has_peers: bool,
    /// The path of its Unix socket, where it is reached by one; host and port are not looked at then.
    pub socket: Option<PathBuf>,
    /// TLS to it; `None`: clear text.
    pub tls: Option<Tls>,
    /// Whether HTTP/2 is spoken with it.
    pub http2: Http2,
    /// Between two PINGs on a connection of HTTP/2 on which nothing comes.
    pub http2_ping: Duration,
    /// Between two parts of an event stream or of a call of gRPC.
    pub stream_timeout: Duration,
}
