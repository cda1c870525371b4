//! The request that began a flight, and its answer.

use std::sync::Arc;

use ::http::HeaderValue;
use anteroom_origin::{OriginError, OriginResponse};
use anteroom_telemetry::metrics::AskedAgain;
use anteroom_telemetry::reason::Reason;
use tokio::sync::oneshot;

use crate::entry::Entry;
use crate::flight::FlightReader;

/// The answer to the request that began the flight.
#[derive(Debug)]
pub enum LeaderAnswer {
    /// The response itself, not shared, with the reason.
    Own(Box<OriginResponse>, Reason),
    /// The shared response.
    Shared(SharedAnswer),
    /// The page as it is kept, which differs from the response.
    Landed(Arc<Entry>),
    /// The stored page, validated by the origin, with its new freshness lifetime.
    Validated(Arc<Entry>),
    /// The page that another proxy of the fleet has fetched meanwhile.
    Elsewhere(Arc<Entry>),
    /// A response that is not for this visitor: the visitor's own request must be sent, too.
    Again(Reason, AskedAgain),
    /// No response, because the origin was not asked: the visitor's own request must be sent.
    NotAsked(Reason),
    /// The origin failed.
    Failed(OriginError),
}

/// A response that is shared, or may be.
#[derive(Debug)]
pub struct SharedAnswer {
    /// Its head.
    pub head: Arc<Entry>,
    /// Its body.
    pub reader: FlightReader,
    /// The length of the body, if it is known.
    pub length: Option<u64>,
    /// Whether the page is kept, as far as is known: the leak guard may still have to read the body.
    pub stored: bool,
    /// The reason why the page is not kept, if that is known already.
    pub waits: Option<Reason>,
    /// The cookies that the response sets, if it is the visitor's own: other visitors do not get them.
    pub cookies: Vec<HeaderValue>,
}

/// The request that began a flight, while it waits for its answer.
pub(super) struct Leader {
    pub(super) reader: FlightReader,
    pub(super) sender: oneshot::Sender<LeaderAnswer>,
    /// The cookies that the answer sets for this visitor alone.
    pub(super) cookies: Vec<HeaderValue>,
    /// Why the response is not for this visitor if it is not shared.
    pub(super) asks_again: Option<AskedAgain>,
}

impl Leader {
    pub(super) fn shared(self, head: &Arc<Entry>, length: Option<u64>, stored: bool) {
        self.given(head, length, stored, None);
    }

    /// Answers the request alone, because other visitors may not get the page, or not yet, for this reason.
    pub(super) fn alone(self, head: &Arc<Entry>, length: Option<u64>, waits: Option<Reason>) {
        self.given(head, length, false, waits);
    }

    /// Answers the request after a response that is not shared, for this reason.
    pub(super) fn refused(self, head: &Arc<Entry>, length: Option<u64>, reason: Reason) {
        match self.asks_again {
            Some(why) => send_answer(self.sender, LeaderAnswer::Again(reason, why)),
            None => self.alone(head, length, Some(reason)),
        }
    }

    fn given(self, head: &Arc<Entry>, length: Option<u64>, stored: bool, waits: Option<Reason>) {
        let (head, reader) = (Arc::clone(head), self.reader);
        let cookies = self.cookies;
        let answer = SharedAnswer { head, reader, length, stored, waits, cookies };
        send_answer(self.sender, LeaderAnswer::Shared(answer));
    }
}

/// Answers the request that began the flight, if its client is still connected.
pub(super) fn send_answer(sender: oneshot::Sender<LeaderAnswer>, what: LeaderAnswer) {
    if sender.send(what).is_err() {
        tracing::debug!("the client that began a fetch has left");
    }
}
