//! The refresher of rows, and where each source has them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::Row;
use anteroom_rows::{FetchError, RefreshProgress, Refresher, RowNames, RowSource, SharedRows};
use anteroom_store::{AnyStore, StoreError};
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use bytes::Bytes;

use super::database_rows::RowsQuery;
use super::origin_rows::RowLocation;
use super::{NextStep, Task};

/// `cache_rows`.
#[derive(Debug)]
pub struct CacheRows {
    refresher: Refresher<AnyStore, Rc<RowSources>, fn() -> f64>,
    thread_metrics: Arc<ThreadMetrics>,
}

impl CacheRows {
    /// Refreshes the rows in `store` from their sources.
    #[must_use]
    pub fn new(
        store: AnyStore,
        sources: Rc<RowSources>,
        shared: Arc<SharedRows>,
        thread_metrics: Arc<ThreadMetrics>,
    ) -> Self {
        let together = sources.most_together();
        let refresher = Refresher::new(store, sources, unix_now as fn() -> f64, together, shared);
        Self { refresher, thread_metrics }
    }
}

impl Task for CacheRows {
    const NAME: &'static str = "cache_rows";
    /// The lease covers unfinished fetches.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        let progress = self.refresher.cache_rows().await?;
        self.thread_metrics.add(Count::RowsFetched, progress.fetched as u64);
        self.thread_metrics.add(Count::RowsFailed, progress.failed as u64);
        self.thread_metrics.add(Count::RowsDropped, progress.dropped as u64);
        Ok(if progress == RefreshProgress::default() { NextStep::Idle } else { NextStep::Again })
    }

    async fn rest(&self) {
        self.refresher.rest().await;
    }

    async fn meanwhile(&self) {
        self.refresher.go_on().await;
    }
}

/// The sources of rows.
#[derive(Debug)]
pub struct RowSources {
    /// The names of rows.
    pub names: RowNames,
    /// Where each source has its rows.
    pub places: Vec<RowPlace>,
    /// How the rows of each source are scheduled.
    pub schedules: Vec<SourceSchedule>,
}

/// How the rows of a source are scheduled, beside those that commands schedule.
#[derive(Debug)]
pub struct SourceSchedule {
    /// The time between two refreshes.
    pub every: Duration,
    /// Rows that are always scheduled.
    pub rows: Vec<Row>,
    /// The query that lists further ids, and the time between two runs.
    pub listed_by: Option<(String, Duration)>,
    /// Whether a row is scheduled when it is asked for.
    pub on_demand: Option<OnDemand>,
}

/// The terms on which a row is scheduled when it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand {
    /// How long it stays without a request.
    pub idle: Duration,
    /// None is added when this many rows are scheduled.
    pub most: usize,
}

impl RowSources {
    /// The most rows that any source reads together.
    pub fn most_together(&self) -> usize {
        self.places.iter().map(RowPlace::together).max().unwrap_or(1)
    }

    /// How the rows of a row's source are scheduled.
    pub(super) fn schedule_of(&self, row: &Row) -> Option<&SourceSchedule> {
        self.schedules.get(self.names.split(row).0)
    }
}

/// Where a source has its rows.
#[derive(Debug)]
pub enum RowPlace {
    /// At an origin.
    Origin(RowLocation),
    /// In a database.
    Database(RowsQuery),
}

impl RowPlace {
    /// How many rows are read together.
    fn together(&self) -> usize {
        match self {
            Self::Origin(_) => 1,
            Self::Database(query) => query.query.batch.unwrap_or(1),
        }
    }
}

impl RowSource for RowSources {
    async fn fetch(&self, rows: &[&Row]) -> Vec<Result<Option<Bytes>, FetchError>> {
        let place = rows.first().and_then(|row| self.places.get(self.names.split(row).0));
        let ids: Vec<&str> = rows.iter().map(|row| self.names.split(row).1).collect();
        match (place, &ids[..]) {
            (Some(RowPlace::Database(query)), ids) => query.fetch(ids).await,
            (Some(RowPlace::Origin(location)), [id]) => vec![location.fetch(id).await.map(Some)],
            _ => rows.iter().map(|_| Err(FetchError::NoPlace)).collect(),
        }
    }

    fn together(&self, row: &Row) -> usize {
        self.places.get(self.names.split(row).0).map_or(1, RowPlace::together)
    }

    fn name(&self, row: &Row) -> &str {
        self.names.name(self.names.split(row).0)
    }
}
