//! The exporter: sends the traces that wait to their receiver, in batches, by OTLP/HTTP.
//!
//! A batch stays in the queue until its receiver has answered. A receiver that is away gets nothing for a while;
//! meanwhile the queue fills up, and further traces are dropped where they come from.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use ::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use bytes::Bytes;
use tokio::time::Instant;

use super::{NextStep, Task};
use crate::clock::unix_now;
use crate::http::retry_after;
use crate::origin::{ConnectionReuse, OriginError, OriginResponse, ServerConnections, UploadBody};
use crate::store::StoreError;
use crate::telemetry::metrics::{Count, ThreadMetrics};
use crate::telemetry::traces::{FinishedRequest, TraceQueue, otlp};

/// How long a receiver may take for a batch, from connecting to the end of its answer. The default of OTLP.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long traces wait for a batch to be complete.
const EVERY: Duration = Duration::from_secs(5);
/// How much of an answer is read. A longer one closes its connection.
const ANSWER_MAX: usize = 16 << 10;
/// The first and the longest pause after a receiver did not take a batch.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
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
    /// The connections of this thread to it.
    pub connections: Rc<ServerConnections>,
    /// Its Host, which is also its name in the log.
    pub host: HeaderValue,
    /// The path of `/v1/traces`.
    pub target: Uri,
    /// Further fields. Most are keys.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The name of the proxy in traces.
    pub service: String,
}

impl std::fmt::Debug for TraceReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TraceReceiver").field("host", &self.host).finish_non_exhaustive()
    }
}

/// How often a batch was not taken in a row, and until when nothing is tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExportPause {
    in_a_row: u32,
    until: Option<Instant>,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("the answer was {0}")]
    Status(StatusCode, Option<Duration>),
    #[error("no answer within {TIMEOUT:?}")]
    TooLate,
    #[error("no connection: {0}")]
    Unreached(std::io::Error),
    #[error("no TLS: {0}")]
    NoTls(std::io::Error),
    #[error("the connection broke, or the answer is malformed")]
    Broken,
}

impl From<OriginError> for ExportError {
    fn from(error: OriginError) -> Self {
        match error {
            OriginError::Connect(error) => Self::Unreached(error),
            OriginError::Tls(error) => Self::NoTls(error),
            error if error.timed_out() => Self::TooLate,
            _ => Self::Broken,
        }
    }
}

impl ExportError {
    /// Whether the same batch may be taken later (OTLP specification, "OTLP/HTTP Response").
    fn is_temporary(&self) -> bool {
        match self {
            Self::Status(status, _) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::TooLate | Self::Unreached(_) | Self::NoTls(_) | Self::Broken => true,
        }
    }

    /// The pause that the receiver requested.
    fn pause(&self) -> Duration {
        match self {
            Self::Status(_, Some(pause)) => (*pause).min(RETRY_AFTER_MAX),
            _ => Duration::ZERO,
        }
    }
}

impl TraceReceiver {
    fn request(&self, batch: &[Arc<FinishedRequest>]) -> Request<UploadBody> {
        let body = Bytes::from(otlp::body(batch, &self.service));
        let mut request = Request::new(UploadBody::Ours(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(USER_AGENT, HeaderValue::from_static("anteroom-traces"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        request
    }

    /// Sends a batch. Returns how many of its spans were refused.
    async fn take(&self, batch: &[Arc<FinishedRequest>]) -> Result<u64, ExportError> {
        let exchange = async {
            let request = self.request(batch);
            let came = self.connections.send(request, ConnectionReuse::Pool(None)).await?;
            let status = came.response.status();
            let retry_after = retry_after::wanted(came.response.headers(), unix_now() as u64);
            let answer = read(came).await;
            if !status.is_success() {
                return Err(ExportError::Status(status, retry_after));
            }
            let refused = otlp::refused(&answer);
            if let Some((spans, why)) = &refused {
                tracing::warn!(receiver = self.name(), spans, why, "the receiver refused spans");
            }
            Ok(refused.map_or(0, |(spans, _)| spans))
        };
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(|_elapsed| ExportError::TooLate)?
    }

    fn name(&self) -> &str {
        self.host.to_str().unwrap_or_default()
    }
}

/// The beginning of an answer's body.
async fn read(came: OriginResponse) -> Vec<u8> {
    let (mut body, mut read) = (came.response.into_body(), Vec::new());
    while let Some(Ok(frame)) = body.frame().await {
        let part = frame.data_ref().map_or(&[][..], |part| part);
        if read.len() + part.len() > ANSWER_MAX {
            break;
        }
        read.extend_from_slice(part);
    }
    read
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
            Err(error) if error.is_temporary() => {
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
    fn pause(&self, error: &ExportError) {
        let ExportPause { in_a_row, .. } = self.failures.get();
        let receiver = self.receiver.name();
        if in_a_row == 0 {
            tracing::warn!(receiver, %error, "traces wait: the receiver does not take them");
        } else {
            tracing::debug!(receiver, %error, "traces still wait: the receiver does not take them");
        }
        let (first, longest) = BACK_OFF;
        let pause = (first * (1 << in_a_row.min(8))).min(longest);
        // Spreads the attempts of several proxies.
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0).max(error.pause());
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
    use super::*;

    #[test]
    fn what_may_be_taken_later_is_kept() {
        for (status, is_temporary) in [
            (429, true),
            (502, true),
            (503, true),
            (504, true),
            (400, false),
            (500, false),
            (301, false),
        ] {
            let error = ExportError::Status(StatusCode::from_u16(status).unwrap(), None);
            assert_eq!(error.is_temporary(), is_temporary, "{status}");
        }
        assert!(ExportError::TooLate.is_temporary());
        let asked = ExportError::Status(StatusCode::TOO_MANY_REQUESTS, Some(Duration::MAX));
        assert_eq!(asked.pause(), RETRY_AFTER_MAX);
    }
}
