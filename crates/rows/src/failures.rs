//! Which rows are healthy, which fail, and for how many attempts.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anteroom_http::ident::Row;
use anteroom_store::ROWS_MAX;

use super::source::FetchError;

/// Where the pauses after failures begin, unless the row's own delay is shorter, in seconds.
const FIRST_PAUSE: f64 = 1.0;
/// The longest pause after failures, in seconds.
const LONGEST_PAUSE: f64 = 60.0;
/// A row whose last failure here is this long ago, in seconds, is no longer tried here: it was
/// stopped, or another process refreshes it.
const FORGOTTEN: f64 = 600.0;
/// How long a healthy row is remembered as such, in seconds.
const WELL: f64 = 3_600.0;
/// The time between two searches for such rows, in seconds.
const LOOK: f64 = 60.0;
/// At the limit, one row in this many is forgotten to make room.
const EVICTED: usize = 16;

/// The most bytes of a reason in a listing.
const WHY_MAX: usize = 300;

/// What a row's history says about its next fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Its last fetch here succeeded.
    Well,
    /// Unknown: it is new, failed quickly, or was healthy before it failed.
    Open,
    /// It has never succeeded here, and the last fetch took too long.
    Slow,
}

/// The rows that cannot be refreshed in this process, shared with the listing of rows.
#[derive(Debug, Default)]
pub struct RowFailures(Mutex<HashMap<Row, FailingRow>>);

impl RowFailures {
    fn rows(&self) -> MutexGuard<'_, HashMap<Row, FailingRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a row has failed since it last succeeded, and why at last; `None`: it has not.
    #[must_use]
    pub fn of(&self, row: &Row) -> Option<(u32, String)> {
        self.rows().get(row).map(|failing| (failing.count, failing.why.clone()))
    }
}

/// How often each row failed in a row, for the pauses between attempts. Lost with the process.
///
/// The log reports when the rows of a source begin to fail and when none fails any more, not each
/// row.
#[derive(Debug, Default)]
pub(super) struct Failures {
    rows: Arc<RowFailures>,
    /// How many rows of each source fail.
    sources: RefCell<HashMap<String, usize>>,
    /// When each row last succeeded.
    well: RefCell<HashMap<Row, f64>>,
    /// Rows that their source does not have.
    missing: RefCell<HashSet<Row>>,
    looked: Cell<f64>,
}

#[derive(Debug)]
struct FailingRow {
    count: u32,
    last: f64,
    source: String,
    /// Whether the last attempt took too long.
    slow: bool,
    why: String,
}

impl Failures {
    /// Without any failure yet; they are listed in `rows`.
    pub(super) fn listed_in(rows: Arc<RowFailures>) -> Self {
        rows.rows().clear();
        Self { rows, ..Self::default() }
    }

    /// What to expect of a row.
    pub(super) fn trust(&self, row: &Row) -> Trust {
        let was_well = self.well.borrow().contains_key(row);
        match self.rows.rows().get(row) {
            None if was_well => Trust::Well,
            Some(failing) if failing.slow && !was_well => Trust::Slow,
            _ => Trust::Open,
        }
    }

    /// A row was fetched.
    pub(super) fn note_well(&self, row: &Row, now: f64) {
        self.forget(row);
        let mut well = self.well.borrow_mut();
        if let Some(last) = well.get_mut(row) {
            *last = now;
        } else if well.len() < ROWS_MAX {
            well.insert(row.clone(), now);
        }
    }

    /// Notes whether the source has the row. The log says once that it has not.
    pub(super) fn note_there(&self, row: &Row, source: &str, is_there: bool) {
        let mut missing = self.missing.borrow_mut();
        if is_there {
            missing.remove(row);
        } else if missing.len() < ROWS_MAX && missing.insert(row.clone()) {
            tracing::info!(
                rows = source,
                row = row.as_str(),
                "there is no such row: it was removed"
            );
        }
    }

    /// Adds a failure; returns how many in a row that makes.
    pub(super) fn add(&self, row: &Row, source: &str, why: &FetchError, now: f64) -> u32 {
        let slow = matches!(why, FetchError::TimedOut);
        if let Some(failing) = self.rows.rows().get_mut(row) {
            failing.count = failing.count.saturating_add(1);
            (failing.last, failing.slow, failing.why) = (now, slow, shown(why));
            tracing::debug!(row = row.as_str(), %why, count = failing.count, "a row still fails");
            return failing.count;
        }
        if self.rows.rows().len() >= ROWS_MAX {
            let some: Vec<Row> = self.rows.rows().keys().step_by(EVICTED).cloned().collect();
            some.iter().for_each(|row| self.forget(row));
        }
        let (source_name, shown) = (source.to_owned(), shown(why));
        let failing = FailingRow { count: 1, last: now, source: source_name, slow, why: shown };
        self.rows.rows().insert(row.clone(), failing);
        let mut sources = self.sources.borrow_mut();
        let count = sources.entry(source.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            tracing::warn!(rows = source, row = row.as_str(), %why, "rows cannot be refreshed");
        } else {
            tracing::debug!(row = row.as_str(), %why, "a row cannot be refreshed");
        }
        1
    }

    /// The row no longer counts as failing.
    fn forget(&self, row: &Row) {
        let Some(FailingRow { source, .. }) = self.rows.rows().remove(row) else { return };
        let mut sources = self.sources.borrow_mut();
        let Some(count) = sources.get_mut(&source) else { return };
        *count -= 1;
        if *count == 0 {
            sources.remove(&source);
            tracing::info!(rows = source, "all rows can be refreshed again");
        }
    }

    /// Forgets rows that are no longer tried here, once in a while.
    pub(super) fn look(&self, now: f64) {
        // A clock that was set back does not delay this.
        if (now - self.looked.get()).abs() < LOOK {
            return;
        }
        self.looked.set(now);
        self.well.borrow_mut().retain(|_, last| (now - *last).abs() <= WELL);
        let rows = self.rows.rows();
        let old = rows.iter().filter(|(_, failing)| (now - failing.last).abs() > FORGOTTEN);
        let old: Vec<Row> = old.map(|(row, _)| row.clone()).collect();
        drop(rows);
        old.iter().for_each(|row| self.forget(row));
    }
}

/// The reason in a listing, to a bound: a database's message may be long.
fn shown(why: &FetchError) -> String {
    let mut shown = why.to_string();
    shown.truncate(shown.floor_char_boundary(WHY_MAX));
    shown
}

/// How long a row rests after its `count`-th failure in a row: a second, or its delay if that is
/// shorter, doubled each time, up to a minute. The jitter, 0 to 1, spreads rows that failed
/// together.
pub(super) fn pause(delay: f64, count: u32, jitter: f64) -> f64 {
    let doubled = delay.min(FIRST_PAUSE) * f64::from(1_u32 << count.min(16));
    doubled.min(LONGEST_PAUSE) * (0.75 + jitter / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn failures_of_rows_no_longer_tried_are_forgotten() {
        let failures = Failures::default();
        let row = |number: usize| Row::new(&number.to_string()).unwrap();
        let add = |number, now| failures.add(&row(number), "inventory", &FetchError::NotJson, now);
        failures.look(1_000.0);
        assert_eq!((add(1, 1_000.0), add(2, 1_000.0), add(2, 1_500.0)), (1, 1, 2));
        failures.look(1_601.0);
        let has = |number| failures.rows.rows().contains_key(&row(number));
        assert_eq!((has(1), has(2)), (false, true));
        assert_eq!(failures.sources.borrow()["inventory"], 1);
        failures.forget(&row(2));
        assert!(failures.sources.borrow().is_empty());
    }

    #[test]
    fn a_row_is_trusted_by_its_last_attempt_and_as_it_was_before() {
        let failures = Failures::default();
        let row = Row::new("1").unwrap();
        let fails = |why| {
            failures.add(&row, "inventory", &why, 1.0);
            failures.trust(&row)
        };
        assert_eq!(failures.trust(&row), Trust::Open);
        assert_eq!(fails(FetchError::TimedOut), Trust::Slow);
        assert_eq!(fails(FetchError::Status(500)), Trust::Open);
        failures.note_well(&row, 2.0);
        assert_eq!(failures.trust(&row), Trust::Well);
        assert_eq!(fails(FetchError::TimedOut), Trust::Open, "it may be an outage");
        failures.look(3.0 + WELL);
        assert_eq!((failures.trust(&row), failures.well.borrow().len()), (Trust::Open, 0));
    }

    #[test]
    fn at_the_bound_some_are_forgotten_and_not_all() {
        let failures = Failures::default();
        for number in 0..=ROWS_MAX {
            let row = Row::new(&number.to_string()).unwrap();
            failures.add(&row, "inventory", &FetchError::NotJson, 1.0);
        }
        let left = failures.rows.rows().len();
        assert!((ROWS_MAX / 2..ROWS_MAX).contains(&left), "{left}");
        assert_eq!(failures.sources.borrow()["inventory"], left);
    }
}
