//! Rows that change often and are for everyone: read from a source every few seconds, and kept.
//!
//! Where a row comes from is a [`RowSource`]'s business, and when a step is called the task's. What
//! holds the rows is a [`RowStore`].

mod names;
mod together;

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::ident::Row;
use crate::store::{Claim, ROW_JSON_MAX, ROWS_MAX, RowStore, StoreError};

pub use names::Names;
pub use together::together;

/// For how long a worker has a row to itself.
pub const LEASE: Duration = Duration::from_secs(10);
/// The longest that a fetch may take: it ends before the lease does, so that what it brought can
/// still be kept.
const FETCH_TIME: Duration = Duration::from_secs(9);
/// Rows that one step fetches side by side.
const SIDE_BY_SIDE: usize = 8;
/// Where the pauses after failures begin, unless the row's own delay is shorter, in seconds.
const FIRST_PAUSE: f64 = 1.0;
/// The longest pause after failures, in seconds.
const LONGEST_PAUSE: f64 = 60.0;

/// Where rows are read.
pub trait RowSource {
    /// Reads a row. It is dropped when it takes longer than `FETCH_TIME`.
    fn fetch(&self, row: &Row) -> impl Future<Output = Result<Bytes, FetchError>>;
}

/// Why there is no new content of a row. The last good one stays.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The source cannot have a row of that name.
    #[error("the source has no place for a row of that name")]
    NoPlace,
    /// The source answered with another status than 200.
    #[error("the source answered {0}")]
    Status(u16),
    /// What came is no JSON.
    #[error("the source's answer is no JSON")]
    NotJson,
    /// What came is over [`ROW_JSON_MAX`].
    #[error("the source's answer is over {ROW_JSON_MAX} bytes")]
    TooLarge,
    /// The answer has no length and no chunks: an end cannot be told from a cut.
    #[error("the end of the source's answer cannot be told from a cut")]
    Unframed,
    /// Nothing came in time.
    #[error("the source took too long")]
    TimedOut,
    /// The source could not be read.
    #[error("the source failed: {0}")]
    Source(#[source] Box<dyn std::error::Error>),
}

/// `schedule_row_cache`: from now on a row is refreshed every `delay`; `None` stops that, and removes
/// the row.
///
/// # Errors
/// When the store does not take it; [`StoreError::RowsFull`] for a row too many.
pub async fn schedule_row_cache<S: RowStore>(
    store: &S,
    row: &Row,
    delay: Option<Duration>,
    now: f64,
) -> Result<(), StoreError> {
    store.schedule_row(row, delay.map_or(0.0, |delay| delay.as_secs_f64()), now).await
}

/// How often each row failed in a row, for the pauses between attempts. Forgotten with the process.
#[derive(Debug, Default)]
pub struct Failures(RefCell<HashMap<Row, u32>>);

impl Failures {
    /// One more; how many it makes.
    fn add(&self, row: &Row) -> u32 {
        let mut counts = self.0.borrow_mut();
        // Rows that were stopped while they failed stay behind here. They are few.
        if counts.len() >= ROWS_MAX {
            counts.clear();
        }
        let count = counts.entry(row.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    fn forget(&self, row: &Row) -> bool {
        self.0.borrow_mut().remove(row).is_some()
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Rows fetched and kept.
    pub fetched: usize,
    /// Rows that could not be fetched.
    pub failed: usize,
    /// Rows removed.
    pub removed: usize,
    /// The Unix time at which the next row is due, if there is one.
    pub next: Option<f64>,
}

/// `cache_rows`, one step of it: takes a few rows that are due, fetches them side by side, and keeps
/// what came. `clock` tells the Unix time.
///
/// A row that fails keeps its last good content and is tried again later and later.
///
/// # Errors
/// When the store fails. What was taken and not kept is due again after [`LEASE`].
pub async fn cache_rows<S: RowStore, R: RowSource>(
    store: &S,
    source: &R,
    failures: &Failures,
    clock: impl Fn() -> f64,
) -> Result<Progress, StoreError> {
    let claimed = store.claim_rows(clock(), SIDE_BY_SIDE, LEASE.as_secs_f64()).await?;
    let refresh = async |claim: &Claim| {
        let fetched = tokio::time::timeout(FETCH_TIME, source.fetch(&claim.row)).await;
        let json = fetched.unwrap_or(Err(FetchError::TimedOut)).and_then(checked);
        let now = clock();
        match json {
            Ok(json) => {
                if failures.forget(&claim.row) {
                    tracing::info!(row = claim.row.as_str(), "the row is there again");
                }
                store.put_row(claim, json, next_due(claim, now), now).await.map(|_| true)
            }
            Err(error) => {
                let count = failures.add(&claim.row);
                if count == 1 {
                    tracing::warn!(row = claim.row.as_str(), %error, "a row cannot be refreshed");
                } else {
                    tracing::debug!(row = claim.row.as_str(), %error, count, "the row fails still");
                }
                let due = now + pause(claim.delay, count, fastrand::f64());
                store.postpone_row(claim, due).await.map(|_| false)
            }
        }
    };
    let mut progress =
        Progress { removed: claimed.removed, next: claimed.next, ..Progress::default() };
    for kept in together(claimed.rows.iter().map(refresh).collect()).await {
        if kept? {
            progress.fetched += 1;
        } else {
            progress.failed += 1;
        }
    }
    Ok(progress)
}

/// When a row is due after a good fetch: counted from when it was due and not from now, so that it
/// does not drift; where a whole turn was missed, it begins anew.
fn next_due(claim: &Claim, now: f64) -> f64 {
    let next = claim.due + claim.delay;
    if next > now { next } else { now + claim.delay }
}

/// How long a row rests after its `count`-th failure in a row: a second, or its delay if that is
/// shorter, doubled each time, to a minute. The jitter, 0 to 1, keeps rows that failed together apart.
fn pause(delay: f64, count: u32, jitter: f64) -> f64 {
    let doubled = delay.min(FIRST_PAUSE) * f64::from(1_u32 << count.min(16));
    doubled.min(LONGEST_PAUSE) * (0.75 + jitter / 4.0)
}

/// The content as it came, where it is JSON and no larger than may be kept.
fn checked(json: Bytes) -> Result<Bytes, FetchError> {
    if json.len() > ROW_JSON_MAX {
        return Err(FetchError::TooLarge);
    }
    // As text first: what is skipped is not looked at for UTF-8.
    let text = std::str::from_utf8(&json).map_err(|_| FetchError::NotJson)?;
    match serde_json::from_str::<IgnoredAny>(text) {
        Ok(_) => Ok(json),
        Err(_) => Err(FetchError::NotJson),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::store::scratch::with_store;

    /// Answers each fetch as it is told to.
    struct Told(Cell<Result<&'static str, u16>>);

    impl RowSource for Told {
        async fn fetch(&self, _: &Row) -> Result<Bytes, FetchError> {
            self.0.get().map(Bytes::from).map_err(FetchError::Status)
        }
    }

    fn row() -> Row {
        Row::new("1").unwrap()
    }

    #[test]
    fn a_row_is_fetched_when_it_is_due_and_kept_when_it_fails() {
        with_store(async |store| {
            let source = Told(Cell::new(Ok("{\"n\":1}")));
            let failures = Failures::default();
            let step =
                async |now: f64| cache_rows(&store, &source, &failures, || now).await.unwrap();
            schedule_row_cache(&store, &row(), Some(Duration::from_secs(5)), 100.0).await.unwrap();

            assert_eq!(step(100.5).await.fetched, 1);
            assert_eq!(step(104.0).await, Progress { next: Some(105.0), ..Progress::default() });
            source.0.set(Err(404));
            assert_eq!(step(105.0).await.failed, 1);
            let stored = store.row(&row()).await.unwrap().unwrap();
            assert_eq!((&stored.json[..], stored.refreshed), (&b"{\"n\":1}"[..], Some(100.5)));
            source.0.set(Ok("no json"));
            assert_eq!(step(116.0).await.failed, 1);

            schedule_row_cache(&store, &row(), None, 117.0).await.unwrap();
            assert_eq!(step(117.0).await, Progress { removed: 1, ..Progress::default() });
            assert_eq!(store.row(&row()).await.unwrap(), None);
        });
    }

    #[test]
    fn a_row_does_not_drift_and_does_not_make_up_for_what_it_missed() {
        let claim = |due| Claim { row: row(), delay: 5.0, due, fence: due + 10.0 };
        assert_eq!(next_due(&claim(100.0), 100.3), 105.0);
        assert_eq!(next_due(&claim(100.0), 107.0), 112.0);
        assert_eq!(next_due(&claim(100.0), 3_600.0), 3_605.0);
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        let longest = |delay, count| pause(delay, count, 1.0);
        assert_eq!([1, 2, 3].map(|count| longest(5.0, count)), [2.0, 4.0, 8.0]);
        assert_eq!([1, 2, 3].map(|count| longest(0.25, count)), [0.5, 1.0, 2.0]);
        assert_eq!([1, 9].map(|count| longest(3_600.0, count)), [2.0, 60.0]);
        assert_eq!(longest(0.25, u32::MAX), 60.0);
        assert_eq!(pause(5.0, 1, 0.0), 1.5);
    }

    #[test]
    fn only_json_is_kept() {
        for good in [&b"{}"[..], b"[1, 2]", b"\"\xc3\xa4\"", b" null\n"] {
            assert!(checked(Bytes::from_static(good)).is_ok(), "{good:?}");
        }
        for bad in [&b""[..], b"{", b"{} {}", b"<html>", b"\"\xff\"", b"NaN"] {
            assert!(checked(Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
        assert!(checked(vec![b'1'; ROW_JSON_MAX + 1].into()).is_err());
    }
}
