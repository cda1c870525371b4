//! What a source answers, before anything is settled or delivered.

use ::http::{HeaderValue, Response};

use super::connection::tunnel::Opened;
use super::deliver::body::Body;
use crate::ident::Item;
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

/// What was settled, as far as the response tells of it.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// The cookie that begins or ends the session.
    pub(super) cookie: Option<HeaderValue>,
    /// The item that was viewed, by the app's word.
    pub(super) item: Option<Item>,
    /// Whether the app has changed the cart: stored by another cache, the response would change it once only.
    pub(super) has_filled_cart: bool,
}
