//! Rows that are read from a source repeatedly: their schedule, and the last good content.

use std::future::Future;

use anteroom_http::ident::Row;
use bytes::Bytes;

use super::StoreError;

/// The most rows that are scheduled.
pub const ROWS_MAX: usize = 100_000;
/// The largest row, in bytes of JSON.
pub const ROW_JSON_MAX: usize = 1 << 20;

/// A row that a worker has claimed.
#[derive(Clone, Debug, PartialEq)]
pub struct RowClaim {
    /// Which row.
    pub row: Row,
    /// Seconds between two refreshes, over 0.
    pub delay: f64,
    /// The Unix time at which it was due.
    pub due: f64,
    /// The Unix time at which the lease ends. The schedule holds it until the row is claimed again,
    /// stopped or rescheduled; a result that comes after that is dropped.
    pub fence: f64,
}

/// The result of one claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClaimResult {
    /// Rows to fetch, the earliest due first.
    pub rows: Vec<RowClaim>,
    /// How many rows were removed, because their delay was 0 or less, or missing.
    pub removed: usize,
    /// The Unix time at which the next row is due, if any.
    pub next: Option<f64>,
}

/// The last good content of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRow {
    /// JSON.
    pub json: Bytes,
    /// The Unix time at which it was fetched; `None` if another program wrote it.
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

/// How rows are scheduled that leave the schedule by themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowTerm {
    /// Seconds between two refreshes, over 0.
    pub delay: f64,
    /// The Unix time at which a row that is new to the schedule is due.
    pub due: f64,
    /// The Unix time from which [`RowStore::drop_rows`] removes them.
    pub until: f64,
    /// A row that is new to the schedule is refused when the schedule has this many rows.
    pub most: usize,
}

/// Rows, their schedule and their content. Each call is one atomic step.
pub trait RowStore {
    /// `schedule_row_cache`: a row is due now, and then every `delay` seconds. With a delay of 0 or
    /// less the next claim removes it. It has no end any more. Durable when it returns.
    ///
    /// A row beyond [`ROWS_MAX`] is refused with [`StoreError::RowsFull`].
    fn schedule_row(
        &self,
        row: &Row,
        delay: f64,
        now: f64,
    ) -> impl Future<Output = Result<(), StoreError>>;

    /// Schedules rows until a time, or moves that time on; returns how many were refused. A row that
    /// is scheduled without an end stays as it is. A row that is scheduled already keeps its due
    /// time, unless its delay changes, and its end is never moved back.
    fn schedule_until(
        &self,
        rows: &[Row],
        term: RowTerm,
    ) -> impl Future<Output = Result<usize, StoreError>>;

    /// Removes at most `most` rows whose end has come, with their content; returns how many.
    fn drop_rows(&self, now: f64, most: usize) -> impl Future<Output = Result<usize, StoreError>>;

    /// Makes scheduled rows due now; returns how many are scheduled. Their content stays, and a
    /// fetch under way is dropped, because it may have read what was there before.
    fn make_due(&self, rows: &[Row], now: f64) -> impl Future<Output = Result<usize, StoreError>>;

    /// Claims at most `most` due rows, the oldest first. Rows whose delay is 0 or less, or missing,
    /// are removed instead, with their content. The others are postponed by `lease` seconds: no
    /// other worker claims them during that time, and a worker that dies delays them by no more.
    fn claim_rows(
        &self,
        now: f64,
        most: usize,
        lease: f64,
    ) -> impl Future<Output = Result<ClaimResult, StoreError>>;

    /// Stores the fetched content, and makes the row due at `due_next`, if the schedule still holds
    /// the claim's fence. Otherwise it does nothing and returns false: the row has been stopped,
    /// rescheduled or claimed by another worker, whose content is newer. Empty content removes what
    /// is stored: the source has no such row.
    fn put_row(
        &self,
        claim: &RowClaim,
        json: Bytes,
        due_next: f64,
        now: f64,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// Makes a row due at `due_next`, if the schedule still holds the claim's fence; returns
    /// whether it did. Its last good content stays.
    fn postpone_row(
        &self,
        claim: &RowClaim,
        due_next: f64,
    ) -> impl Future<Output = Result<bool, StoreError>>;

    /// The row's source has changed: its content is removed, and it is due now if it is scheduled.
    /// A fetch under way is dropped. Durable when it returns.
    fn outdate_row(&self, row: &Row, now: f64) -> impl Future<Output = Result<(), StoreError>>;

    /// The last good content of a row. Within the read budget.
    fn row(&self, row: &Row) -> impl Future<Output = Result<Option<StoredRow>, StoreError>>;

    /// At most `most` scheduled rows, the earliest due first.
    fn rows(&self, most: usize) -> impl Future<Output = Result<Vec<ScheduledRow>, StoreError>>;
}
