//! The answer of a source, before it is settled and delivered.

use ::http::Response;
use anteroom_origin::OriginResponse;
use anteroom_telemetry::reason::Reason;

use super::connection::tunnel::OpenedTunnel;
use super::deliver::body::Body;
use super::deliver::client_response::ClientResponse;

/// The answer of a source. Nothing has been changed for it.
pub(super) enum Answer {
    /// A page of the cache, or a row.
    Stored(ClientResponse),
    /// The origin's response to this very request, and the reason why the cache did not serve it.
    Uncached(OriginResponse, Reason),
    /// The origin has switched to another protocol.
    Switched(Response<Body>, Box<OpenedTunnel>),
}
