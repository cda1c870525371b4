//! Rows that requests ask for before they are scheduled, and the use of those that are.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anteroom_http::ident::Row;
use quick_cache::sync::Cache;
use tokio::sync::{Notify, oneshot};

use super::memo::KeptRow;

/// How long a request waits for a row that is not scheduled yet.
const WAIT: Duration = Duration::from_secs(1);
/// How long a part of a page waits for such a row: as long as the store may take by default.
const SOON: Duration = Duration::from_millis(50);
/// The most requests that wait. A request beyond that is answered as if there were no such row.
const WAITING_MAX: usize = 1_024;
/// The most that wait when a part of a page adds one, so that room is left for requests.
const WAITING_MAX_OF_PARTS: usize = WAITING_MAX / 2;
/// How long a row that does not exist is remembered.
const MISSING: Duration = Duration::from_secs(10);
/// The most rows remembered as missing. The least used are forgotten first.
const MISSING_MAX: usize = 16_384;
/// The most rows whose use is noted between two times that it is taken. The use of others is noted
/// with their next request.
const USED_MAX: usize = 10_000;

/// A request for a row that is not scheduled.
#[derive(Debug)]
pub struct RowRequest {
    /// Which row.
    pub row: Row,
    /// Takes the row; `None`: there is none.
    pub answer: oneshot::Sender<Option<Arc<KeptRow>>>,
    /// Whether the row is fetched although the client has left.
    is_kept: bool,
}

/// A row for a part of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum RowSoon {
    /// Here it is.
    Found(Arc<KeptRow>),
    /// There is none.
    Missing,
    /// It is being fetched, or there are too many to fetch.
    Later,
}

impl RowSoon {
    /// The row, if it is there.
    #[must_use]
    pub fn found(self) -> Option<Arc<KeptRow>> {
        match self {
            Self::Found(kept) => Some(kept),
            Self::Missing | Self::Later => None,
        }
    }
}

impl From<Option<Arc<KeptRow>>> for RowSoon {
    fn from(row: Option<Arc<KeptRow>>) -> Self {
        row.map_or(Self::Missing, Self::Found)
    }
}

/// Rows that requests ask for, shared by all threads.
#[derive(Debug)]
pub struct RowRequests {
    waiting: Mutex<VecDeque<RowRequest>>,
    arrived: Notify,
    /// When each of them was found to be missing.
    missing: Cache<Row, Instant>,
    used: Mutex<HashSet<Row>>,
}

impl Default for RowRequests {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Notify::new(),
            missing: Cache::new(MISSING_MAX),
            used: Mutex::default(),
        }
    }
}

impl RowRequests {
    /// Asks for a row that is not scheduled, and waits for it a moment.
    pub async fn ask(&self, row: &Row) -> Option<Arc<KeptRow>> {
        if self.is_missing(row, Instant::now()) {
            return None;
        }
        let answer = self.enqueue(row, false)?;
        tokio::time::timeout(WAIT, answer).await.ok()?.ok()?
    }

    /// The same for a part of a page, which does not hold the page up: the row is fetched, and scheduled, for
    /// the next page.
    pub(super) async fn ask_soon(&self, row: &Row) -> RowSoon {
        if self.is_missing(row, Instant::now()) {
            return RowSoon::Missing;
        }
        let Some(answer) = self.enqueue(row, true) else { return RowSoon::Later };
        match tokio::time::timeout(SOON, answer).await {
            Ok(Ok(row)) => row.into(),
            Ok(Err(_)) | Err(_) => RowSoon::Later,
        }
    }

    fn enqueue(&self, row: &Row, is_kept: bool) -> Option<oneshot::Receiver<Option<Arc<KeptRow>>>> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = locked(&self.waiting);
        if waiting.len() >= if is_kept { WAITING_MAX_OF_PARTS } else { WAITING_MAX } {
            return None;
        }
        waiting.push_back(RowRequest { row: row.clone(), answer, is_kept });
        drop(waiting);
        self.arrived.notify_one();
        Some(answered)
    }

    /// Returns when requests wait.
    pub async fn arrived(&self) {
        while locked(&self.waiting).is_empty() {
            self.arrived.notified().await;
        }
    }

    /// The oldest request, with up to `most(row) - 1` others for rows that `fits` says are read
    /// together with it. Requests whose clients have left are dropped.
    pub fn take(
        &self,
        most: impl Fn(&Row) -> usize,
        fits: impl Fn(&Row, &Row) -> bool,
    ) -> Vec<RowRequest> {
        let mut waiting = locked(&self.waiting);
        waiting.retain(|request| request.is_kept || !request.answer.is_closed());
        let Some(first) = waiting.pop_front() else { return Vec::new() };
        let most = most(&first.row);
        let mut taken = vec![first];
        let mut left = VecDeque::with_capacity(waiting.len());
        for request in waiting.drain(..) {
            let is_same = taken.iter().any(|other| other.row == request.row);
            if is_same || (taken.len() < most && fits(&taken[0].row, &request.row)) {
                taken.push(request);
            } else {
                left.push_back(request);
            }
        }
        *waiting = left;
        taken
    }

    /// Notes that there is no such row.
    pub fn note_missing(&self, row: &Row) {
        self.missing.insert(row.clone(), Instant::now());
    }

    /// Forgets that a row is missing.
    pub(super) fn forget_missing_row(&self, row: &Row) {
        self.missing.remove(row);
    }

    /// Forgets which rows are missing: their source has changed.
    pub fn forget_missing(&self) {
        self.missing.clear();
    }

    fn is_missing(&self, row: &Row, now: Instant) -> bool {
        let since = self.missing.get(row);
        since.is_some_and(|since| now.saturating_duration_since(since) < MISSING)
    }

    /// Notes that a row was asked for.
    pub fn note_use(&self, row: &Row) {
        let mut used = locked(&self.used);
        if used.len() < USED_MAX && !used.contains(row) {
            used.insert(row.clone());
        }
    }

    /// The rows that were asked for since the last call.
    pub fn take_used(&self) -> HashSet<Row> {
        std::mem::take(&mut locked(&self.used))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row::new(name).unwrap()
    }

    fn names(taken: &[RowRequest]) -> Vec<&str> {
        taken.iter().map(|request| request.row.as_str()).collect()
    }

    #[test]
    fn requests_are_taken_together_as_their_source_reads_them() {
        let requests = RowRequests::default();
        let waiting: Vec<_> =
            ["a1", "b1", "a2", "a1", "a3"].map(|name| requests.enqueue(&row(name), false)).into();
        let of_one_source =
            |one: &Row, other: &Row| one.as_str().as_bytes()[0] == other.as_str().as_bytes()[0];
        let take = || requests.take(|_| 3, of_one_source);
        assert_eq!(names(&take()), ["a1", "a2", "a1"]);
        assert_eq!(names(&take()), ["b1"]);
        drop(waiting);
        assert!(take().is_empty(), "its client has left");
    }

    #[test]
    fn no_more_requests_wait_than_the_bound() {
        let requests = RowRequests::default();
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|number| requests.enqueue(&row("1"), number < WAITING_MAX_OF_PARTS))
            .collect();
        assert!(waiting.iter().all(Option::is_some));
        assert!(requests.enqueue(&row("1"), false).is_none());
    }

    #[tokio::test]
    async fn a_part_of_a_page_asks_and_does_not_wait() {
        let requests = RowRequests::default();
        // Nothing answers.
        assert_eq!(requests.ask_soon(&row("1")).await, RowSoon::Later);
        assert_eq!(names(&requests.take(|_| 1, |_, _| true)), ["1"], "it is fetched all the same");
        requests.note_missing(&row("1"));
        assert_eq!(requests.ask_soon(&row("1")).await, RowSoon::Missing);
        for _ in 0..WAITING_MAX_OF_PARTS {
            assert!(requests.enqueue(&row("2"), true).is_some());
        }
        assert!(requests.enqueue(&row("2"), true).is_none());
        assert!(requests.enqueue(&row("2"), false).is_some(), "there is room for requests");
    }

    #[tokio::test]
    async fn a_missing_row_is_remembered_for_a_while() {
        let requests = RowRequests::default();
        requests.note_missing(&row("1"));
        assert!(requests.ask(&row("1")).await.is_none());
        assert!(requests.take(|_| 1, |_, _| true).is_empty(), "it was not asked for");
        assert!(!requests.is_missing(&row("1"), Instant::now() + MISSING));
        requests.forget_missing();
        assert!(!requests.is_missing(&row("1"), Instant::now()));
        for number in 0..2 * MISSING_MAX {
            requests.note_missing(&row(&number.to_string()));
        }
        assert!(requests.missing.len() <= MISSING_MAX);
    }

    #[test]
    fn the_use_of_rows_is_noted_once_and_to_a_bound() {
        let requests = RowRequests::default();
        for number in 0..USED_MAX + 5 {
            requests.note_use(&row(&number.to_string()));
            requests.note_use(&row("0"));
        }
        assert_eq!(requests.take_used().len(), USED_MAX);
        assert!(requests.take_used().is_empty());
    }
}
