//! Carts of idle sessions, and events that wait for their receiver.

use std::borrow::Cow;
use std::future::Future;

use serde_json::Value;

use super::{ExpiredSession, ExpiryAction, StoreError};

/// Which sessions are idle.
#[derive(Clone, Copy, Debug)]
pub struct IdleRange {
    /// Sessions last seen at this Unix time or before.
    pub until: f64,
    /// The current Unix time. A position beyond it was recorded by a clock that was wrong.
    pub now: f64,
    /// The most sessions that one step reads.
    pub batch: u32,
}

/// The result of a step that reports idle sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleStep {
    /// Carts handed on.
    pub handed_on: usize,
    /// There may be more after these.
    pub more: bool,
    /// The store's message when it refused the carts.
    pub refusal: Option<String>,
}

/// An event that waits for its receiver.
#[derive(Clone, Debug)]
pub struct WaitingEvent {
    /// The event; `None` if the record was not written by Anteroom.
    pub expired: Option<ExpiredSession>,
    /// The Unix time of the receiver's first refusal, if any.
    pub refused: Option<f64>,
    /// The receiver's failures with it, if any.
    pub failed: Option<ReceiverFailures>,
    /// The event as it is stored.
    pub(super) record: Vec<u8>,
    /// The store's own position.
    pub(super) position: u64,
}

/// A receiver's failures with an event: the connection broke, the answer came too late, or the
/// receiver was temporarily unavailable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReceiverFailures {
    /// The Unix time of the first failure after another event was taken; before that, of the first
    /// failure.
    pub first: f64,
    /// The Unix time of the last failure.
    pub last: f64,
    /// How many failures came after another event was taken since the previous failure.
    pub behind: u32,
}

/// What is recorded about an event that was not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeliveryFailure {
    /// Its receiver refused it.
    Refused {
        /// The current Unix time.
        now: f64,
    },
    /// Its receiver failed with it.
    Failed {
        /// The current Unix time.
        now: f64,
        /// Whether another event was taken since the previous failure with this one.
        is_behind: bool,
    },
}

impl WaitingEvent {
    pub(super) fn new(record: Vec<u8>, place: u64) -> Self {
        let expired = ExpiredSession::read(&record);
        let (refused, failed) = match &expired {
            Some(_) => noted_in(&record),
            None => (None, None),
        };
        Self { expired, refused, failed, record, position: place }
    }

    /// The record with this note added. The event's own bytes stay the same.
    pub(super) fn with(&self, noted: Option<DeliveryFailure>) -> Cow<'_, [u8]> {
        let says = self.record.strip_suffix(b"}").map(without_notes);
        let (Some(noted), Some(says), true) = (noted, says, self.expired.is_some()) else {
            return self.record.as_slice().into();
        };
        let (mut refused, mut failed) = (self.refused, self.failed);
        match noted {
            DeliveryFailure::Refused { now } => refused = refused.or(Some(now)),
            DeliveryFailure::Failed { now, is_behind } => {
                failed = Some(failed_again(failed, now, is_behind))
            }
        }
        let mut record = says.to_vec();
        if let Some(refused) = refused {
            record.extend(format!("{REFUSED}{}", refused as u64).as_bytes());
        }
        if let Some(ReceiverFailures { first, last, behind }) = failed {
            record.extend(format!("{FAILED}[{first:.3},{last:.3},{behind}]").as_bytes());
        }
        record.push(b'}');
        record.into()
    }
}

/// The time starts with the first failure that concerns the event and not a receiver that is away.
fn failed_again(before: Option<ReceiverFailures>, now: f64, is_behind: bool) -> ReceiverFailures {
    let behind = before.map_or(0, |before| before.behind);
    let first = before.filter(|_| behind > 0).map_or(now, |before| before.first);
    ReceiverFailures { first, last: now, behind: behind.saturating_add(is_behind.into()) }
}

/// Logged when the position of idle carts lies in the future and is set back.
pub(super) const POSITION_AHEAD: &str = "a clock was ahead: some idle carts were reported too early; reporting continues from the current time";

/// The member at the end of a record with the time of the first refusal. This prefix cannot occur
/// inside a JSON string, where a quotation mark has a backslash before it.
const REFUSED: &str = ",\"refused\":";
/// The member after it, with the receiver's failures: the fields of [`ReceiverFailures`], in that order.
const FAILED: &str = ",\"failed\":";

/// An open record without its notes.
fn without_notes(open: &[u8]) -> &[u8] {
    let begins = |note: &str| open.windows(note.len()).rposition(|at| at == note.as_bytes());
    let end = [REFUSED, FAILED].into_iter().filter_map(begins).min();
    &open[..end.unwrap_or(open.len())]
}

fn noted_in(record: &[u8]) -> (Option<f64>, Option<ReceiverFailures>) {
    let Ok(record) = serde_json::from_str::<Value>(&String::from_utf8_lossy(record)) else {
        return (None, None);
    };
    let [first, last, behind] = [0, 1, 2].map(|at| record["failed"][at].as_f64());
    let failed = first.zip(last).zip(behind).map(|((first, last), behind)| ReceiverFailures {
        first,
        last,
        behind: behind as u32,
    });
    (record["refused"].as_f64(), failed)
}

/// Events: carts of idle sessions, and the queue for the receiver.
pub trait EventStore {
    /// Hands on the carts of idle sessions as `expiry_action` says, ordered by when they were seen,
    /// starting after the last step's position: each is reported once, until its session is seen
    /// again. Handing on a cart and moving the position are one atomic step. While the queue is
    /// half full, or the outbox holds anything, idle carts wait. Durable when it returns.
    fn report_idle_carts(
        &self,
        idle: IdleRange,
        expiry_action: &ExpiryAction,
    ) -> impl Future<Output = Result<IdleStep, StoreError>>;

    /// How many events wait for their receiver, see [`ExpiryAction::Queue`].
    fn events_waiting(&self) -> impl Future<Output = Result<u64, StoreError>>;

    /// The oldest waiting event.
    fn first_event(&self) -> impl Future<Output = Result<Option<WaitingEvent>, StoreError>>;

    /// Removes an event that the receiver has taken. Durable when it returns.
    fn remove_event(&self, event: &WaitingEvent) -> impl Future<Output = Result<(), StoreError>>;

    /// Moves an event behind all others, if it is still the first, and records `noted` with it.
    fn put_back_event(
        &self,
        event: &WaitingEvent,
        noted: Option<DeliveryFailure>,
    ) -> impl Future<Output = Result<(), StoreError>>;
}
