//! The request that began a flight, and what it gets.

use std::sync::Arc;

use ::http::HeaderValue;
use tokio::sync::oneshot;

use crate::cache::entry::Entry;
use crate::cache::flight::Seat;
use crate::origin::{OriginError, OriginResponse};
use crate::telemetry::reason::Reason;

/// What the request that began the flight gets.
#[derive(Debug)]
pub enum Led {
    /// The response, unshared.
    Own(Box<OriginResponse>, Reason),
    /// The shared response.
    Shared {
        /// Its head.
        head: Arc<Entry>,
        /// Its body.
        seat: Seat,
        /// The body's length, where it is known.
        length: Option<u64>,
        /// Whether it is kept, as far as can be told: the guard may still have to read the body.
        stored: bool,
        /// Whether it is known already that it is not, and why.
        waits: Option<Reason>,
        /// The cookies that it sets, where it is the answer to the visitor's own session: nobody else gets them.
        cookies: Vec<HeaderValue>,
    },
    /// The page as it is kept, which is not as it came.
    Landed(Arc<Entry>),
    /// The origin says that the page is right still, and it is as fresh as this says.
    Validated(Arc<Entry>),
    /// The page that another proxy of the fleet has fetched meanwhile.
    Elsewhere(Arc<Entry>),
    /// Nothing: the request is to be forwarded as it came.
    Again(Reason),
    /// No response.
    Failed(OriginError),
}

/// The request that began a flight, waiting for its answer.
pub(super) struct Lead {
    pub(super) seat: Seat,
    pub(super) tell: oneshot::Sender<Led>,
    /// What the answer sets for him alone.
    pub(super) cookies: Vec<HeaderValue>,
}

impl Lead {
    pub(super) fn shared(self, head: &Arc<Entry>, length: Option<u64>, stored: bool) {
        self.given(head, length, stored, None);
    }

    /// The same where others do not get it yet, for this reason.
    pub(super) fn alone(self, head: &Arc<Entry>, length: Option<u64>, waits: Option<Reason>) {
        self.given(head, length, false, waits);
    }

    fn given(self, head: &Arc<Entry>, length: Option<u64>, stored: bool, waits: Option<Reason>) {
        let (head, seat) = (Arc::clone(head), self.seat);
        let cookies = self.cookies;
        say(self.tell, Led::Shared { head, seat, length, stored, waits, cookies });
    }
}

/// Answers the request that began the flight, if its client is still there.
pub(super) fn say(tell: oneshot::Sender<Led>, what: Led) {
    if tell.send(what).is_err() {
        tracing::debug!("the client that began a fetch has left");
    }
}
