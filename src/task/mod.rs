//! Background work: bounded, idempotent steps, and the one driver that calls them.
//!
//! A task knows no request, and a request no task. Whatever a step does, it may be the last: the
//! driver stops between steps, or within one where the task allows it, notices a panic, and starts the
//! task again.

mod clean;
mod deliver;
mod gone;
mod health;
mod log_outs;
mod purges;
mod rescale;
mod rows;
mod visitors;
mod visits;

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::store::StoreError;
use crate::telemetry::metrics::{Count, Sheet};

pub use clean::{Clean, Expiring};
pub use deliver::{Deliver, Refusals, Webhook, WebhookKeys};
pub use gone::Gone;
pub use health::Health;
pub use log_outs::LogOuts;
pub use purges::Purges;
pub use rescale::Rescale;
pub use rows::{CacheRows, OriginRows, RowOrigin, RowPlace, RowSecret};
pub use visitors::{CleanVisitors, FlushVisitors};
pub use visits::Visits;

/// How long a task rests after a step that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What a step says of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is more to do.
    Again,
    /// Nothing for now.
    Idle,
}

/// A piece of background work.
pub trait Task {
    /// For logs.
    const NAME: &'static str;
    /// Whether a step may be dropped halfway at the stop, so that nobody waits for its end.
    const DROPPED_AT_STOP: bool = false;

    /// One bounded batch. Safe to call again after any failure.
    fn step(&self) -> impl Future<Output = Result<Next, StoreError>>;

    /// Ends when the task wants to be called again after [`Next::Idle`].
    fn rest(&self) -> impl Future<Output = ()>;

    /// What goes on while the task rests after a step that failed. It need not end.
    fn meanwhile(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// Runs a task on the current runtime until `stop`. A panic is logged and counted, and the task
/// begins anew.
pub async fn drive<T: Task + 'static>(task: T, sheet: Arc<Sheet>, stop: CancellationToken) {
    let task = Rc::new(task);
    while !stop.is_cancelled() {
        let (same, counters, end) = (Rc::clone(&task), Arc::clone(&sheet), stop.clone());
        let work = tokio::task::spawn_local(async move { repeat(&*same, &counters, &end).await });
        if let Err(error) = work.await {
            sheet.count(Count::TaskErrors);
            tracing::error!(task = T::NAME, %error, "a background task failed and begins anew");
            pause(AFTER_FAILURE, &stop).await;
        }
    }
}

async fn repeat<T: Task>(task: &T, sheet: &Sheet, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        let done = tokio::select! {
            done = task.step() => done,
            () = stop.cancelled(), if T::DROPPED_AT_STOP => return,
        };
        match done {
            Ok(Next::Again) => tokio::task::yield_now().await,
            Ok(Next::Idle) => tokio::select! {
                () = task.rest() => {}
                () = stop.cancelled() => {}
            },
            Err(error) => {
                if !matches!(error, StoreError::Away) {
                    sheet.count(Count::TaskErrors);
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

    /// Fails until what goes on meanwhile has happened.
    #[derive(Default)]
    struct Fails(Cell<bool>, CancellationToken);

    impl Task for Fails {
        const NAME: &'static str = "fails";

        async fn step(&self) -> Result<Next, StoreError> {
            if self.0.get() {
                self.1.cancel();
                return Ok(Next::Idle);
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
        repeat(&task, &Sheet::default(), &task.1).await;
        assert!(task.0.get());
    }
}
