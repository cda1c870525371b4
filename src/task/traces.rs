//! The exporter: sends the traces that wait to their receiver, in batches, by OTLP/HTTP.
//!
//! A batch stays in the queue until its receiver has answered. A receiver that is away gets nothing for a while;
//! meanwhile the queue fills up, and further traces are dropped where they come from.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Request};
use anteroom_origin::UploadBody;
use anteroom_store::StoreError;
use anteroom_telemetry::metrics::{Count, ThreadMetrics};
use anteroom_telemetry::traces::{FinishedRequest, TraceQueue, otlp};
use bytes::Bytes;
use tokio::time::Instant;

use super::receiver::{Receiver, ReceiverError, TIMEOUT, back_off};
use super::{NextStep, Task};

/// How long traces wait for a batch to be complete.
const EVERY: Duration = Duration::from_secs(5);
/// The longest pause after a receiver did not take a batch.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The longest pause that a receiver may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// How long the last traces may take at the end of the process.
const FLUSH: Duration = Duration::from_secs(2);

/// Sends traces.
#[derive(Debug)]
pub struct ExportTraces {
    /// The traces that wait.
    pub queue: Arc<TraceQueue>,
    /// Their receiver.
    pub receiver: Rc<TraceReceiver>,
    /// Counters.
    pub thread_metrics: Arc<ThreadMetrics>,
    /// Recent failures.
    pub failures: Cell<ExportPause>,
}

/// The receiver of traces.
pub struct TraceReceiver {
    /// How to reach `/v1/traces`.
    pub receiver: Receiver,
    /// Further fields. Most are keys.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The name of the proxy in traces.
    pub service: String,
}

impl std::fmt::Debug for TraceReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReceiver").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

/// How often a batch was not taken in a row, and until when nothing is tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportPause {
    in_a_row: u32,
    until: Option<Instant>,
}

/// Whether the same batch may be taken later (OTLP specification, "OTLP/HTTP Response").
fn is_temporary(error: &ReceiverError) -> bool {
    match error {
        ReceiverError::Status(status, _) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        _ => true,
    }
}

impl TraceReceiver {
    fn request(&self, batch: &[Arc<FinishedRequest>]) -> Request<UploadBody> {
        let body = Bytes::from(otlp::body(batch, &self.service));
        let mut request = self.receiver.request("anteroom-traces", body);
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        request
    }

    /// Sends a batch. Returns how many of its spans were refused.
    async fn take(&self, batch: &[Arc<FinishedRequest>]) -> Result<u64, ReceiverError> {
        let exchange = async {
            let answer = self.receiver.send(self.request(batch)).await?;
            let (status, retry_after) = (answer.status, answer.retry_after);
            let answer = answer.read().await;
            if !status.is_success() {
                return Err(ReceiverError::Status(status, retry_after));
            }
            let refused = otlp::refused(&answer);
            if let Some((spans, why)) = &refused {
                tracing::warn!(receiver = self.name(), spans, why, "the receiver refused spans");
            }
            Ok(refused.map_or(0, |(spans, _)| spans))
        };
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_elapsed| ReceiverError::TooLate)?
    }

    fn name(&self) -> &str {
        self.receiver.name()
    }
}

impl ExportTraces {
    /// Sends the oldest batch. Returns whether it is done with, or there was none.
    async fn send(&self) -> bool {
        let batch = self.queue.batch();
        if batch.is_empty() {
            return true;
        }
        let spans = batch.iter().map(|request| request.span_count() as u64).sum::<u64>();
        match self.receiver.take(&batch).await {
            Ok(refused) => {
                let refused = refused.min(spans);
                self.thread_metrics.add(Count::TraceSpansExported, spans - refused);
                self.thread_metrics.add(Count::TraceSpansFailed, refused);
                if self.failures.take().in_a_row > 0 {
                    tracing::info!(receiver = self.receiver.name(), "traces are taken again");
                }
            }
            Err(error) if is_temporary(&error) => {
                self.pause(&error);
                return false;
            }
            Err(error) => {
                self.thread_metrics.add(Count::TraceSpansFailed, spans);
                let receiver = self.receiver.name();
                tracing::warn!(receiver, spans, %error, "the receiver refused traces, which are lost");
            }
        }
        self.queue.remove(batch.len());
        true
    }

    /// Tries nothing for a while. Logged when it begins.
    fn pause(&self, error: &ReceiverError) {
        let ExportPause { in_a_row, .. } = self.failures.get();
        let receiver = self.receiver.name();
        if in_a_row == 0 {
            tracing::warn!(receiver, %error, "traces wait: the receiver does not take them");
        } else {
            tracing::debug!(receiver, %error, "traces still wait: the receiver does not take them");
        }
        let requested = error.requested_pause(RETRY_AFTER_MAX);
        let pause = back_off(in_a_row, PAUSE_MAX).max(requested);
        let until = Some(Instant::now() + pause);
        self.failures.set(ExportPause { in_a_row: in_a_row.saturating_add(1), until });
    }

    fn resting_until(&self) -> Option<Instant> {
        self.failures.get().until.filter(|until| Instant::now() < *until)
    }

    /// Sends what waits, at the end, for at most two seconds and until the receiver does not take it.
    pub async fn flush(&self) {
        let all = async { while self.send().await && !self.queue.batch().is_empty() {} };
        if tokio::time::timeout(FLUSH, all).await.is_err() {
            tracing::warn!(receiver = self.receiver.name(), "the last traces took too long");
        }
    }
}

impl Task for ExportTraces {
    const NAME: &'static str = "traces";
    /// The batch is still in the queue.
    const DROPPED_AT_STOP: bool = true;

    async fn step(&self) -> Result<NextStep, StoreError> {
        if self.resting_until().is_some() {
            return Ok(NextStep::Idle);
        }
        let is_done = self.send().await;
        Ok(if is_done && self.queue.has_batch() { NextStep::Again } else { NextStep::Idle })
    }

    async fn rest(&self) {
        if let Some(until) = self.resting_until() {
            return tokio::time::sleep_until(until).await;
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = self.queue.batch_is_complete() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::StatusCode;

    use super::*;

    #[test]
    fn what_may_be_taken_later_is_kept() {
        for (status, expected) in [
            (429, true),
            (502, true),
            (503, true),
            (504, true),
            (400, false),
            (500, false),
            (301, false),
        ] {
            let error = ReceiverError::Status(StatusCode::from_u16(status).unwrap(), None);
            assert_eq!(is_temporary(&error), expected, "{status}");
        }
        assert!(is_temporary(&ReceiverError::TooLate));
    }
}
