//! Carts that are told of while their sessions go on, and events that wait for their receiver.

use std::borrow::Cow;
use std::future::Future;

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
    /// How its receiver failed with it, if it did.
    pub failed: Option<Failed>,
    /// The event as it is stored.
    pub(super) record: Vec<u8>,
    /// Its place, where the store finds it by that.
    pub(super) place: u64,
}

/// How a receiver failed with an event: it broke off, did not answer in time, or said that it cannot now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failed {
    /// The Unix time of the first failure behind another event that was taken; before, of the first.
    pub first: f64,
    /// The Unix time of the last.
    pub last: f64,
    /// How many of them came behind another event that was taken since the one before.
    pub behind: u32,
}

/// What is noted of an event that was not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noted {
    /// Its receiver refused it.
    Refused {
        /// The Unix time.
        now: f64,
    },
    /// Its receiver failed with it.
    Failed {
        /// The Unix time.
        now: f64,
        /// Whether another was taken since it failed with this one before.
        is_behind: bool,
    },
}

impl WaitingEvent {
    pub(super) fn new(record: Vec<u8>, place: u64) -> Self {
        let expired = Expired::read(&record);
        let (refused, failed) = match &expired {
            Some(_) => noted_in(&record),
            None => (None, None),
        };
        Self { expired, refused, failed, record, place }
    }

    /// The record that it becomes when this is noted. No byte changes of what it says.
    pub(super) fn with(&self, noted: Option<Noted>) -> Cow<'_, [u8]> {
        let says = self.record.strip_suffix(b"}").map(without_notes);
        let (Some(noted), Some(says), true) = (noted, says, self.expired.is_some()) else {
            return self.record.as_slice().into();
        };
        let (mut refused, mut failed) = (self.refused, self.failed);
        match noted {
            Noted::Refused { now } => refused = refused.or(Some(now)),
            Noted::Failed { now, is_behind } => failed = Some(failed_again(failed, now, is_behind)),
        }
        let mut record = says.to_vec();
        if let Some(refused) = refused {
            record.extend(format!("{REFUSED}{}", refused as u64).as_bytes());
        }
        if let Some(Failed { first, last, behind }) = failed {
            record.extend(format!("{FAILED}[{first:.3},{last:.3},{behind}]").as_bytes());
        }
        record.push(b'}');
        record.into()
    }
}

/// The time begins with the first failure that says something of the event, and not of a receiver that is away.
fn failed_again(before: Option<Failed>, now: f64, is_behind: bool) -> Failed {
    let behind = before.map_or(0, |before| before.behind);
    let first = before.filter(|_| behind > 0).map_or(now, |before| before.first);
    Failed { first, last: now, behind: behind.saturating_add(is_behind.into()) }
}

/// Said when idle carts have been told of beyond this time, and that is set back.
pub(super) const TOLD_TO_COME: &str = "a clock was ahead: idle carts were told of too early, and those that come are told of from now on";

/// The member at the end of a record that says when the event was refused first. As it begins here it stands
/// in no text of JSON, where a quotation mark has a backslash before it.
const REFUSED: &str = ",\"refused\":";
/// The one behind it, that says how its receiver failed with it: see [`Failed`], in that order.
const FAILED: &str = ",\"failed\":";

/// What an open record says, without what is noted of it.
fn without_notes(open: &[u8]) -> &[u8] {
    let begins = |note: &str| open.windows(note.len()).rposition(|at| at == note.as_bytes());
    let end = [REFUSED, FAILED].into_iter().filter_map(begins).min();
    &open[..end.unwrap_or(open.len())]
}

fn noted_in(record: &[u8]) -> (Option<f64>, Option<Failed>) {
    let Ok(record) = serde_json::from_str::<Value>(&String::from_utf8_lossy(record)) else {
        return (None, None);
    };
    let [first, last, behind] = [0, 1, 2].map(|at| record["failed"][at].as_f64());
    let failed = first.zip(last).zip(behind).map(|((first, last), behind)| Failed {
        first,
        last,
        behind: behind as u32,
    });
    (record["refused"].as_f64(), failed)
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

    /// Puts it behind all others, if it is the first still, with what is `noted` of it now.
    fn put_back_event(
        &self,
        event: &WaitingEvent,
        noted: Option<Noted>,
    ) -> impl Future<Output = Result<(), StoreError>>;
}
