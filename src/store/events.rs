//! Carts that are told of while their sessions go on, and events that wait for their receiver.

use std::borrow::Cow;
use std::future::Future;
use std::time::Duration;

use serde_json::Value;

use super::{Expired, Farewell, StoreError};

/// Which sessions are idle.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Those that were last seen at this Unix time or before.
    pub until: f64,
    /// The Unix time. What has been told of beyond it was so by a clock that went wrong.
    pub now: f64,
    /// So many are looked at in one step, at most.
    pub batch: u32,
}

/// What a step of telling of idle sessions did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleTold {
    /// Carts handed on.
    pub handed_on: usize,
    /// There may be more behind these.
    pub more: bool,
    /// What the store said when it did not take the carts.
    pub refusal: Option<String>,
}

/// An event that waits for its receiver.
#[derive(Clone, Debug)]
pub struct WaitingEvent {
    /// What it says; `None` where it is none of ours.
    pub expired: Option<Expired>,
    /// When its receiver refused it first, in Unix time, if it did.
    pub refused: Option<f64>,
    /// The event as it is stored.
    pub(super) record: Vec<u8>,
    /// Its place, where the store finds it by that.
    pub(super) place: u64,
}

impl WaitingEvent {
    pub(super) fn new(record: Vec<u8>, place: u64) -> Self {
        let expired = Expired::read(&record);
        let refused = expired.is_some().then(|| refused_at(&record)).flatten();
        Self { expired, refused, record, place }
    }

    /// The record that it becomes when it was refused now. No byte changes of what it says.
    pub(super) fn refused_now(&self, now: Option<f64>) -> Cow<'_, [u8]> {
        match (now, self.refused, self.record.strip_suffix(b"}")) {
            (Some(now), None, Some(open)) if self.expired.is_some() => {
                [open, format!(",\"{REFUSED}\":{}}}", now as u64).as_bytes()].concat().into()
            }
            _ => self.record.as_slice().into(),
        }
    }
}

/// Said when idle carts have been told of beyond this time, and that is set back.
pub(super) const TOLD_TO_COME: &str = "a clock was ahead: idle carts were told of too early, and those that come are told of from now on";

/// The member of a record that says when the event was refused first.
const REFUSED: &str = "refused";

fn refused_at(record: &[u8]) -> Option<f64> {
    let record: Value = serde_json::from_str(&String::from_utf8_lossy(record)).ok()?;
    record[REFUSED].as_f64()
}

/// Events: carts of sessions that go on, and what waits for its receiver.
pub trait EventStore {
    /// Hands on the carts of sessions that are idle, as `farewell` says, in the order in which they were
    /// seen, behind where the last step came to: so each is told of once, until it is seen again. That a
    /// cart is handed on, and how far the steps have come, is one atomic step. Where the queue is half
    /// full, or the outbox holds anything, they wait. Durable when it returns.
    fn tell_idle(
        &self,
        idle: Idle,
        farewell: &Farewell,
    ) -> impl Future<Output = Result<IdleTold, StoreError>>;

    /// How many events wait for their receiver, see [`Farewell::Queue`].
    fn events_waiting(&self) -> impl Future<Output = Result<u64, StoreError>>;

    /// The event that has waited longest.
    fn first_event(&self) -> impl Future<Output = Result<Option<WaitingEvent>, StoreError>>;

    /// The receiver has it: it waits no more. Durable when it returns.
    fn remove_event(&self, event: &WaitingEvent) -> impl Future<Output = Result<(), StoreError>>;

    /// Puts it behind all others, if it is the first still. With `refused` it is noted that its receiver did
    /// so at that time, unless it did before.
    fn put_back_event(
        &self,
        event: &WaitingEvent,
        refused: Option<f64>,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Whether `who` may deliver events for the next `time`, and nobody else. Whoever has the turn keeps it
    /// by asking again.
    fn take_delivery(
        &self,
        who: u64,
        time: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>>;
}
