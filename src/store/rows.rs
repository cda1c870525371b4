//! Rows that are read from a source again and again: their schedule, and the last good content.

use std::future::Future;

use bytes::Bytes;

use super::StoreError;
use crate::ident::Row;

/// The most rows that are scheduled.
pub const ROWS_MAX: usize = 100_000;
/// The largest row, in bytes of JSON.
pub const ROW_JSON_MAX: usize = 1 << 20;

/// A row that a worker has taken to fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Which row.
    pub row: Row,
    /// Seconds between two refreshes, over 0.
    pub delay: f64,
    /// The Unix time at which it was due.
    pub due: f64,
    /// The Unix time at which the lease ends. The schedule holds it as long as nobody else has taken,
    /// stopped or scheduled the row; what is brought after that is dropped.
    pub fence: f64,
}

/// What one claim brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claimed {
    /// Rows to fetch, those that were due first in front.
    pub rows: Vec<Claim>,
    /// How many rows were removed, because their delay said so or was gone.
    pub removed: usize,
    /// The Unix time at which the next row is due, if there is one.
    pub next: Option<f64>,
}

/// The last good content of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRow {
    /// JSON.
    pub json: Bytes,
    /// The Unix time at which it was fetched; `None` where another program wrote it.
    pub refreshed: Option<f64>,
}

/// A row in the schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduledRow {
    /// Which row.
    pub row: Row,
    /// Seconds between two refreshes; 0 or less: about to be removed.
    pub delay: f64,
    /// The Unix time at which it is due.
    pub due: f64,
    /// The Unix time of its last good fetch.
    pub refreshed: Option<f64>,
}

/// Rows, their schedule and their content. Each call is one atomic step.
pub trait RowStore {
    /// `schedule_row_cache`: a row is due now, and from then on every `delay` seconds. With a delay
    /// of 0 or less the next claim removes it. Durable when it returns.
    ///
    /// A row beyond [`ROWS_MAX`] is refused with [`StoreError::RowsFull`].
    fn schedule_row(
        &self,
        row: &Row,
        delay: f64,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Takes at most `most` rows that are due, the oldest first. Rows whose delay is 0 or less, or
    /// gone, are removed instead, with their content. The others are put off by `lease` seconds:
    /// nobody else takes them meanwhile, and a worker that dies costs them no more than that.
    fn claim_rows(
        &self,
        now: f64,
        most: usize,
        lease: f64,
    ) -> impl Future<Output = Result<Claimed, StoreError>>;

    /// Keeps what was fetched, and makes the row due at `due_next`, if the schedule still holds the
    /// claim's fence. Otherwise it does nothing and returns false: the row has been stopped, scheduled
    /// anew or taken by another worker, whose content is newer.
    fn put_row(
        &self,
        claim: &Claim,
        json: Bytes,
        due_next: f64,
        now: f64,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Makes a row due at `due_next`, if the schedule still holds the claim's fence; whether it did.
    /// Its last good content stays.
    fn postpone_row(
        &self,
        claim: &Claim,
        due_next: f64,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// What the row was read from has changed: its content is forgotten, and it is due now unless it
    /// is stopped or was never scheduled. What is being fetched of it is dropped. Durable when it
    /// returns.
    fn outdate_row(&self, row: &Row, now: f64) -> impl Future<Output = Result<(), StoreError>>;

    /// The last good content of a row. Within the read budget.
    fn row(&self, row: &Row) -> impl Future<Output = Result<Option<StoredRow>, StoreError>>;

    /// At most `most` scheduled rows, those that are due first in front.
    fn rows(&self, most: usize) -> impl Future<Output = Result<Vec<ScheduledRow>, StoreError>>;
}
