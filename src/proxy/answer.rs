//! What a source answers, before anything is settled or delivered.

use ::http::Response;

use super::connection::tunnel::Opened;
use super::deliver::body::Body;
use crate::origin::OriginResponse;
use crate::telemetry::reason::Reason;

/// What a source answers. Nothing was changed for it.
pub(super) enum Answer {
    /// A page of the cache, or a row.
    Stored(Response<Body>),
    /// The origin's response to this very request, which the cache did not serve for a reason.
    Own(OriginResponse, Reason),
    /// The origin speaks another protocol from here on.
    Switched(Response<Body>, Box<Opened>),
}
