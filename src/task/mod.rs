//! Background work: bounded, idempotent steps, and the one driver that calls them.
//!
//! Tasks and requests do not know each other. Any step may be the last: the driver stops between
//! steps, or within one if the task allows it, catches a panic, and restarts the task.

mod certificates;
mod clean;
mod database_rows;
mod fleet;
mod gone;
mod handovers;
mod health;
mod hot_pages;
mod keep_limits;
mod log_outs;
mod migrate_store;
mod origin_rows;
mod purges;
mod receiver;
mod rescale;
mod row_changes;
mod row_requests;
mod row_schedule;
mod rows;
mod ticket_keys;
mod traces;
mod visitors;
mod visits;
mod webhook;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anteroom_store::StoreError;
use tokio_util::sync::CancellationToken;

use anteroom_telemetry::metrics::{Count, ThreadMetrics};

pub use certificates::KeepCertificates;
pub use clean::{CartExpiry, Clean};
pub use database_rows::RowsQuery;
pub use fleet::RegisterProxy;
pub use gone::EndedSessions;
pub use handovers::Handovers;
pub use health::HealthChecks;
pub use hot_pages::HotPages;
pub use keep_limits::KeepLimits;
pub use log_outs::LogOuts;
pub use migrate_store::{MigrateStore, MigrationError, MigrationProgress, MigrationStatus};
pub use origin_rows::{RowLocation, RowOrigin, RowSecret};
pub use purges::PurgeTask;
pub use receiver::Receiver;
pub use rescale::Rescale;
pub use row_changes::{ListenForChanges, ListenedSource};
pub use row_requests::RowsOnDemand;
pub use row_schedule::ScheduleRows;
pub use rows::{CacheRows, OnDemand, RowPlace, RowSources, SourceSchedule};
pub use ticket_keys::{ShareTicketKeys, exchange_ticket_keys};
pub use traces::{ExportPause, ExportTraces, TraceReceiver};
pub use visitors::{CleanVisitors, FlushVisitors};
pub use visits::Visits;
pub use webhook::{Deliver, Webhook, WebhookKeys, WebhookPause};

/// How long a task rests after a step that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// There is more to do.
    Again,
    /// Nothing for now.
    Idle,
}

/// A piece of background work.
pub trait Task {
    /// The name in logs.
    const NAME: &'static str;
    /// Whether a step may be dropped halfway at the stop, so that the stop need not wait for it.
    const DROPPED_AT_STOP: bool = false;

    /// One bounded batch. Safe to call again after any failure.
    fn step(&self) -> impl Future<Output = Result<NextStep, StoreError>>;

    /// Returns when the task wants to be called again after [`NextStep::Idle`].
    fn rest(&self) -> impl Future<Output = ()>;

    /// Runs while the task rests after a failed step. It need not return.
    fn meanwhile(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// Runs a task on the current runtime until `stop`. A panic is logged and counted, and the task
/// restarts.
pub async fn drive<T: Task + 'static>(
    task: T,
    thread_metrics: Arc<ThreadMetrics>,
    stop: CancellationToken,
) {
    let task = Rc::new(task);
    while !stop.is_cancelled() {
        let (same, counters, end) = (Rc::clone(&task), Arc::clone(&thread_metrics), stop.clone());
        let work = tokio::task::spawn_local(async move { repeat(&*same, &counters, &end).await });
        if let Err(error) = work.await {
            thread_metrics.count(Count::TaskErrors);
            tracing::error!(task = T::NAME, %error, "a background task failed and restarts");
            pause(AFTER_FAILURE, &stop).await;
        }
    }
}

async fn repeat<T: Task>(task: &T, thread_metrics: &ThreadMetrics, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let done = tokio::select! {
            done = task.step() => done,
            () = stop.cancelled(), if T::DROPPED_AT_STOP => return,
        };
        match done {
            Ok(NextStep::Again) => tokio::task::yield_now().await,
            Ok(NextStep::Idle) => tokio::select! {
                () = task.rest() => {}
                () = stop.cancelled() => {}
            },
            Err(error) => {
                if !matches!(error, StoreError::Away) {
                    thread_metrics.count(Count::TaskErrors);
                    tracing::warn!(task = T::NAME, %error, "a background step failed");
                }
                tokio::select! {
                    () = pause(AFTER_FAILURE, stop) => {}
                    () = task.meanwhile() => {}
                }
            }
        }
    }
}

async fn pause(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Fails until `meanwhile` has run.
    #[derive(Default)]
    struct Fails(Cell<bool>, CancellationToken);

    impl Task for Fails {
        const NAME: &'static str = "fails";

        async fn step(&self) -> Result<NextStep, StoreError> {
            if self.0.get() {
                self.1.cancel();
                return Ok(NextStep::Idle);
            }
            Err(StoreError::Away)
        }

        async fn rest(&self) {}

        async fn meanwhile(&self) {
            self.0.set(true);
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_goes_on_while_it_rests_after_a_failure() {
        let task = Fails::default();
        repeat(&task, &ThreadMetrics::default(), &task.1).await;
        assert!(task.0.get());
    }
}
