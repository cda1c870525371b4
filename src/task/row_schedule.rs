//! Keeps rows in the schedule that the configuration names or requests ask for, and drops the others.
//!
//! A row has an end in the schedule, which is moved on while there is a reason to keep the row. One process of a
//! fleet does that for the rows of the configuration, by a lease; each process for the rows that its requests
//! use.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::Row;
use anteroom_rows::SharedRows;
use anteroom_store::{
    AnyStore, LeaseStore as _, ROWS_MAX, RowStore as _, RowTerm, StoreError, TaskLease,
};
use tokio::sync::watch;
use tokio::time::Instant;

use super::rows::{RowPlace, RowSources, SourceSchedule};
use super::{NextStep, Task};

/// The time between two steps.
const EVERY: Duration = Duration::from_secs(1);
/// How long the lease lasts; it is renewed with each step.
const LEASE: Duration = Duration::from_secs(5);
/// How long a row of the configuration stays without a proxy that names it.
const KEPT: Duration = Duration::from_secs(180);
/// The time between two times that the end of these rows is moved on.
const RENEWED: Duration = Duration::from_secs(60);
/// The time between two searches for rows whose end has come.
const DROPPED: Duration = Duration::from_secs(2);
/// Rows dropped by one call.
const BATCH: usize = 1_000;
/// The end of a row in use is moved on when this part of its time is over.
const USE_RENEWED: u32 = 4;

/// `schedule_row_cache` for the rows of the configuration and of requests.
#[derive(Debug)]
pub struct ScheduleRows {
    store: AnyStore,
    process_id: u64,
    sources: Rc<RowSources>,
    shared: Arc<SharedRows>,
    /// Whether this process holds the lease.
    leads: watch::Sender<bool>,
    /// The rows that each source's query listed last, and when.
    listed: RefCell<Vec<ListedRows>>,
    /// When the end of the configured rows was moved on.
    renewed: Cell<Option<Instant>>,
    dropped: Cell<Option<Instant>>,
    /// When the end of each row in use was moved on.
    used: RefCell<HashMap<Row, Instant>>,
    refusal_logged: Cell<bool>,
}

#[derive(Debug, Default)]
struct ListedRows {
    rows: Vec<Row>,
    /// When the query runs again.
    again: Option<Instant>,
    /// Whether the last run failed.
    failed: bool,
}

impl ScheduleRows {
    /// Keeps the rows of `sources` in the schedule, as the process with this id. `leads` tells whether it holds the
    /// lease.
    pub fn new(
        store: AnyStore,
        process_id: u64,
        sources: Rc<RowSources>,
        shared: Arc<SharedRows>,
        leads: watch::Sender<bool>,
    ) -> Self {
        let listed = sources.places.iter().map(|_| ListedRows::default()).collect();
        Self {
            store,
            process_id,
            sources,
            shared,
            leads,
            listed: RefCell::new(listed),
            renewed: Cell::default(),
            dropped: Cell::default(),
            used: RefCell::default(),
            refusal_logged: Cell::default(),
        }
    }

    /// Moves the end of rows on that requests have used.
    async fn renew_used(&self) -> Result<(), StoreError> {
        let now = Instant::now();
        let mut by_source: HashMap<usize, Vec<Row>> = HashMap::new();
        for row in self.shared.requests.take_used() {
            let place = self.sources.names.split(&row).0;
            let on_demand = self.sources.schedules.get(place).and_then(|one| one.on_demand);
            let Some(on_demand) = on_demand else { continue };
            let renewed = self.used.borrow().get(&row).copied();
            if renewed.is_none_or(|renewed| now - renewed >= on_demand.idle / USE_RENEWED) {
                by_source.entry(place).or_default().push(row);
            }
        }
        for (place, rows) in by_source {
            let schedule = &self.sources.schedules[place];
            let Some(on_demand) = schedule.on_demand else { continue };
            // Rows that are not scheduled are left alone.
            let term = RowTerm { most: 0, ..term(schedule, on_demand.idle) };
            self.store.schedule_until(&rows, term).await?;
            let mut used = self.used.borrow_mut();
            if used.len() + rows.len() > ROWS_MAX {
                used.clear();
            }
            used.extend(rows.into_iter().map(|row| (row, now)));
        }
        Ok(())
    }

    /// What the holder of the lease does.
    async fn keep(&self) -> Result<(), StoreError> {
        self.list().await;
        if is_over(self.renewed.get(), RENEWED) {
            self.renew().await?;
            self.renewed.set(Some(Instant::now()));
        }
        // While a query fails, rows that it listed to an earlier process may still be wanted.
        let all_known = self.listed.borrow().iter().all(|listed| !listed.failed);
        if all_known && is_over(self.dropped.get(), DROPPED) {
            while self.store.drop_rows(unix_now(), BATCH).await? == BATCH {}
            self.dropped.set(Some(Instant::now()));
        }
        Ok(())
    }

    /// Runs the queries that list rows, if it is time.
    async fn list(&self) {
        for (index, schedule) in self.sources.schedules.iter().enumerate() {
            let Some((sql, every)) = &schedule.listed_by else { continue };
            let RowPlace::Database(query) = &self.sources.places[index] else { continue };
            let again = self.listed.borrow()[index].again;
            if again.is_some_and(|again| Instant::now() < again) {
                continue;
            }
            let name = self.sources.names.name(index);
            let found = query.ids(sql).await;
            let listed = &mut self.listed.borrow_mut()[index];
            match found {
                Ok(ids) => {
                    let rows = ids.iter().filter_map(|id| self.sources.names.row(name, id));
                    let rows: Vec<Row> = rows.collect();
                    if listed.rows != rows {
                        self.renewed.set(None);
                    }
                    listed.rows = rows;
                    listed.again = Some(Instant::now() + *every);
                    if std::mem::take(&mut listed.failed) {
                        tracing::info!(rows = name, "rows_query works again");
                    }
                }
                Err(why) => {
                    if !std::mem::replace(&mut listed.failed, true) {
                        tracing::warn!(rows = name, %why, "rows_query failed: the rows that it listed last stay");
                    }
                    listed.again = Some(Instant::now() + (*every).min(RENEWED / 6));
                }
            }
        }
    }

    /// Moves the end of the configured and the listed rows on.
    async fn renew(&self) -> Result<(), StoreError> {
        let mut refused = 0;
        for (index, schedule) in self.sources.schedules.iter().enumerate() {
            let listed = self.listed.borrow()[index].rows.clone();
            for rows in [&schedule.rows, &listed] {
                refused += self.store.schedule_until(rows, term(schedule, KEPT)).await?;
            }
        }
        if refused > 0 && !self.refusal_logged.replace(true) {
            tracing::warn!(refused, "rows were not scheduled, because {ROWS_MAX} are");
        }
        self.shared.made_due.notify_one();
        Ok(())
    }

    async fn lead(&self) -> Result<(), StoreError> {
        let leads = self.store.take_lease(TaskLease::Scheduler, self.process_id, LEASE).await?;
        self.note_lease(leads);
        if leads { self.keep().await } else { Ok(()) }
    }

    fn note_lease(&self, leads: bool) {
        self.leads.send_if_modified(|last| std::mem::replace(last, leads) != leads);
    }
}

/// Rows that are due now, and stay for a time.
fn term(schedule: &SourceSchedule, stay: Duration) -> RowTerm {
    let now = unix_now();
    RowTerm {
        delay: schedule.every.as_secs_f64(),
        due: now,
        until: now + stay.as_secs_f64(),
        most: ROWS_MAX,
    }
}

fn is_over(since: Option<Instant>, time: Duration) -> bool {
    since.is_none_or(|since| since.elapsed() >= time)
}

impl Task for ScheduleRows {
    const NAME: &'static str = "schedule_row_cache";
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        let mut done = self.renew_used().await;
        if done.is_ok() {
            done = self.lead().await;
        }
        if done.is_err() {
            // Another process may have it by now.
            self.note_lease(false);
        }
        done.map(|()| NextStep::Idle)
    }

    async fn rest(&self) {
        tokio::time::sleep(EVERY).await;
    }
}
