//! Reads a body into its flight.

use std::time::Duration;

use anteroom_fault::fault;
use anteroom_origin::OriginBody;
use anteroom_telemetry::reason::Reason;
use bytes::Bytes;

use super::fetched::Fetch;
use super::filler::Filler;
use super::refuse::MarkScope;
use super::share::NotShared;
use crate::flight::{Flight, FlightVerdict, PushResult};
use crate::recoded::DECODED_FACTOR;

/// How long other requests wait for the whole of a page that the leak guard must read.
const GUARD_TIMEOUT: Duration = Duration::from_secs(5);

impl Filler {
    /// Reads the body into the flight. `None`: the readers got it, but it is not kept whole.
    pub(super) async fn read(
        &self,
        flight: &Flight,
        mut body: OriginBody,
    ) -> Result<Option<Bytes>, NotShared> {
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            if fault!("cut") && frame.is_err() {
                break;
            }
            let Ok(part) = frame.map_err(NotShared::Failed)?.into_data() else { continue };
            length += part.len() as u64;
            if flight.push(part, self.policy.max_object) == PushResult::NoRoom {
                self.thread_metrics.refused(self.no_room(length));
            }
            if !std::future::poll_fn(|cx| flight.poll_room(cx)).await {
                return Err(NotShared::Abandoned);
            }
        }
        Ok(flight.body())
    }

    /// The same for a body that the leak guard must see whole before it is shared. If it grows too large or
    /// takes too long, the other requests stop waiting and the first visitor alone gets it. `release` states
    /// whether this visitor gets it; if not, it is refused.
    pub(super) async fn read_guarded(
        &self,
        fetch: &Fetch,
        flight: &Flight,
        mut body: OriginBody,
        release: impl FnOnce(Reason) -> bool,
    ) -> Result<Option<Bytes>, NotShared> {
        let deadline = tokio::time::Instant::now() + GUARD_TIMEOUT;
        let mut length = 0;
        let reason = loop {
            let Ok(frame) = tokio::time::timeout_at(deadline, body.frame()).await else {
                break Reason::Slow;
            };
            let Some(frame) = frame else { return Ok(flight.body()) };
            let Ok(part) = frame.map_err(NotShared::Failed)?.into_data() else { continue };
            length += part.len() as u64;
            if flight.push(part, self.policy.max_object) == PushResult::NoRoom {
                break self.no_room(length);
            }
        };
        if !release(reason) {
            return Err(NotShared::Refused(reason));
        }
        self.mark(fetch, reason, MarkScope::OneVariant);
        flight.decide(FlightVerdict::Refused(reason));
        self.read(flight, body).await.map(|_| None)
    }

    /// The same for a body that is held back until it is whole, because a stale page could be served if it
    /// breaks off. If it is too large or too slow for that, `release` is called and the body goes out. Its
    /// argument states whether the page may still be kept.
    pub(super) async fn read_withheld(
        &self,
        flight: &Flight,
        mut body: OriginBody,
        release: impl FnOnce(bool),
    ) -> Result<Option<Bytes>, NotShared> {
        let deadline = tokio::time::Instant::now() + GUARD_TIMEOUT;
        let mut length = 0;
        let may_be_kept = loop {
            let Ok(frame) = tokio::time::timeout_at(deadline, body.frame()).await else {
                break true;
            };
            let Some(frame) = frame else { return Ok(flight.body()) };
            let Ok(part) = frame.map_err(NotShared::Failed)?.into_data() else { continue };
            length += part.len() as u64;
            if flight.push(part, self.policy.max_object) == PushResult::NoRoom {
                self.thread_metrics.refused(self.no_room(length));
                break false;
            }
        };
        release(may_be_kept);
        self.read(flight, body).await
    }

    /// The reason why a body of this length so far is not kept.
    fn no_room(&self, length: u64) -> Reason {
        if length > self.policy.max_object { Reason::TooLarge } else { Reason::Crowded }
    }

    /// The largest page that the leak guard reads, after decoding, in bytes.
    pub(super) fn decoded_max(&self) -> usize {
        let most = self.policy.max_object.saturating_mul(DECODED_FACTOR as u64);
        usize::try_from(most).unwrap_or(usize::MAX)
    }
}
