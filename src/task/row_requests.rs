//! Fetches rows that requests ask for and that are not scheduled, and schedules those that exist.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom_http::clock::unix_now;
use anteroom_http::ident::Row;
use anteroom_rows::{FetchError, KeptRow, LEASE, RowRequest, RowSource, SharedRows};
use anteroom_store::{AnyStore, RowClaim, RowStore as _, RowTerm, StoreError, StoredRow};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::rows::{OnDemand, RowSources};
use super::{NextStep, Task};

/// Fetches under way at a time, for all sources. A database may have four connections, and the
/// refresher needs some.
const FETCHES: usize = 2;
/// The least time between the starts of two fetches: fifty queries a second, however many ids a
/// client counts through. Requests of the meantime are read together.
const BETWEEN: Duration = Duration::from_millis(20);
/// The longest time of a fetch: by then the requests have gone to the origin.
const FETCH_TIME: Duration = Duration::from_secs(1);

/// Answers requests for rows that are not scheduled.
#[derive(Debug)]
pub struct RowsOnDemand {
    answerer: Rc<Answerer>,
    fetches: Arc<Semaphore>,
    thread_metrics: Arc<ThreadMetrics>,
}

#[derive(Debug)]
struct Answerer {
    store: AnyStore,
    sources: Rc<RowSources>,
    shared: Arc<SharedRows>,
}

impl RowsOnDemand {
    /// Fetches rows from `sources` into `store`.
    pub fn new(
        store: AnyStore,
        sources: Rc<RowSources>,
        shared: Arc<SharedRows>,
        thread_metrics: Arc<ThreadMetrics>,
    ) -> Self {
        let answerer = Rc::new(Answerer { store, sources, shared });
        Self { answerer, fetches: Arc::new(Semaphore::new(FETCHES)), thread_metrics }
    }
}

impl Task for RowsOnDemand {
    const NAME: &'static str = "rows_on_demand";
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.fetches).acquire_owned().await;
        let sources = &self.answerer.sources;
        let requests = self.answerer.shared.requests.take(
            |row| sources.together(row),
            |row, other| sources.name(row) == sources.name(other),
        );
        if requests.is_empty() {
            return Ok(NextStep::Idle);
        }
        self.thread_metrics.add(Count::RowsOnDemand, requests.len() as u64);
        let answerer = Rc::clone(&self.answerer);
        tokio::task::spawn_local(async move {
            answerer.answer(requests).await;
            drop(permit);
        });
        tokio::time::sleep(BETWEEN).await;
        Ok(NextStep::Again)
    }

    async fn rest(&self) {
        self.answerer.shared.requests.arrived().await;
    }
}

impl Answerer {
    /// Fetches the rows of requests, and answers them.
    async fn answer(&self, requests: Vec<RowRequest>) {
        let mut rows: Vec<Row> = requests.iter().map(|request| request.row.clone()).collect();
        rows.sort();
        rows.dedup();
        let named: Vec<&Row> = rows.iter().collect();
        let changes = self.shared.memory.changes();
        let fetch = self.sources.fetch(&named);
        let Ok(fetched) = tokio::time::timeout(FETCH_TIME, fetch).await else { return };
        let mut found = Vec::new();
        for (row, fetched) in rows.iter().zip(fetched) {
            found.push((row, self.settle(row, fetched, changes).await));
        }
        for request in requests {
            let row = found.iter().find(|(row, _)| **row == request.row);
            // Its client may have left.
            drop(request.answer.send(row.and_then(|(_, kept)| kept.clone())));
        }
    }

    /// Schedules a row that exists, with its content. Content from before a change of some row is not used:
    /// the origin is asked.
    async fn settle(
        &self,
        row: &Row,
        fetched: Result<Option<Bytes>, FetchError>,
        changes: u64,
    ) -> Option<Arc<KeptRow>> {
        let json = match fetched {
            Ok(Some(json)) => json,
            Ok(None) | Err(FetchError::NoPlace | FetchError::Status(404 | 410)) => {
                self.shared.requests.note_missing(row);
                return None;
            }
            Err(why) => {
                tracing::debug!(row = row.as_str(), %why, "a row that was asked for failed");
                return None;
            }
        };
        let json = anteroom_rows::checked(json).ok()?;
        if self.shared.memory.changes() != changes {
            return None;
        }
        let now = unix_now();
        if let Err(error) = self.store_row(row, json.clone(), now).await {
            tracing::debug!(row = row.as_str(), %error, "a row that was asked for is not scheduled");
        }
        let kept = Arc::new(KeptRow::from(StoredRow { json, refreshed: Some(now) }));
        self.shared.memory.keep(row, &kept, changes, Instant::now());
        Some(kept)
    }

    /// Schedules a row as if it was claimed, so that its content can be stored, and stores that. A row that
    /// was scheduled meanwhile keeps its schedule. It is due at once: it may have changed in another process
    /// between its fetch and its entry in the schedule.
    async fn store_row(&self, row: &Row, json: Bytes, now: f64) -> Result<(), StoreError> {
        let Some(schedule) = self.sources.schedule_of(row) else { return Ok(()) };
        let Some(OnDemand { idle, most }) = schedule.on_demand else { return Ok(()) };
        let (delay, fence) = (schedule.every.as_secs_f64(), now + LEASE.as_secs_f64());
        let term = RowTerm { delay, due: fence, until: now + idle.as_secs_f64(), most };
        if self.store.schedule_until(std::slice::from_ref(row), term).await? > 0 {
            return Err(StoreError::RowsFull);
        }
        let claim = RowClaim { row: row.clone(), delay, due: now, fence };
        self.store.put_row(&claim, json, now, now).await.map(drop)
    }
}
