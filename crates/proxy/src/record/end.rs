//! What is told of a request in the end: to the counters, the access log, the watchers and the traces.

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Method};
use anteroom_http::host::Scheme;
use anteroom_http::ident::User;
use anteroom_telemetry::access_log::{LogBuffer, LogRecord, LogTexts};
use anteroom_telemetry::metrics::{AnsweredRequest, Count, Outcome};
use anteroom_telemetry::misses::Miss;
use anteroom_telemetry::request_feed::{PATH_MAX, RequestEvent, Step, Steps};
use anteroom_telemetry::shown_path::parameter_names;
use anteroom_telemetry::traces::{Asking, FinishedRequest, PartOfPage, RequestTrace, TraceIds};
use tokio::time::Instant;

use super::RequestRecord;

impl RequestRecord {
    /// Counts the response.
    pub(super) fn count(&self, took: Duration) {
        let place = self.route.as_ref().map(|(_, place)| *place);
        let answered = AnsweredRequest {
            status: self.status,
            outcome: self.outcome,
            reason: self.reason,
            at: self.at,
            took,
            origin: self.origin,
            sent: self.sent,
        };
        self.telemetry.counters.answered(place, &answered);
        if let (Outcome::Miss | Outcome::Bypass, Some(reason)) = (self.outcome, self.reason)
            && matches!(self.method, Method::GET | Method::HEAD)
        {
            self.telemetry.missed(&Miss {
                host: self.host.as_deref().unwrap_or_default(),
                path: self.uri.path(),
                query: self.uri.query(),
                route: self.route.as_ref().map(|(name, _)| name),
                reason,
                took,
                at: self.at,
            });
        }
    }

    /// What the access log says of it.
    fn log_record(&self, took: Duration) -> LogRecord {
        LogRecord {
            at: self.at,
            client: self.address,
            method: self.method.clone(),
            version: self.version,
            status: self.status,
            outcome: self.outcome,
            reason: self.reason,
            visitor: self.visitor,
            class: self.class,
            sent: self.tunnelled.map_or(self.sent, |(_, sent)| sent),
            received: self.tunnelled.map(|(received, _)| received),
            took,
            origin: self.origin,
            aborted: !self.whole,
        }
    }

    fn log(&self, log_buffer: &LogBuffer, took: Duration) {
        let texts = LogTexts {
            path: self.uri.path().as_bytes(),
            host: self.host.as_deref().map(str::as_bytes),
            route: self.route.as_ref().map(|(name, _)| name.as_bytes()),
            user: self.user.as_ref().map(User::as_bytes),
            referer: self.headers.0.as_ref().map(HeaderValue::as_bytes),
            agent: self.headers.1.as_ref().map(HeaderValue::as_bytes),
            request_id: self.request_id.as_ref().map(HeaderValue::as_bytes),
        };
        log_buffer.write(self.log_record(took), texts);
    }

    /// Shows it to the watchers.
    fn show(&self, steps: Steps, took: Duration) {
        let request_id = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        let mut path = self.telemetry.paths.path(self.uri.path()).into_owned();
        path.truncate(path.floor_char_boundary(PATH_MAX));
        path.shrink_to_fit();
        self.telemetry.feed.add(RequestEvent {
            record: self.log_record(took),
            host: self.host.clone(),
            path,
            parameters: parameter_names(self.uri.query()),
            route: self.route.as_ref().map(|(name, _)| Arc::clone(name)),
            request_id: request_id.map(str::to_owned),
            steps,
        });
    }

    /// Keeps its trace if it was sampled, is slow, or ended in an error.
    fn keep_trace(&self, trace: RequestTrace, steps: Steps, took: Duration) {
        let Some(traces) = &self.telemetry.traces else { return };
        let RequestTrace { ids, asked } = trace;
        if let Some(page) = &ids.page {
            return page.add_part(self.finished(&ids, asked, steps, took));
        }
        // A body may take long because its client does.
        let until_head = steps.at(Step::Head).unwrap_or(took);
        let is_slow = traces.rules.slow.is_some_and(|slow| until_head >= slow);
        let is_error = self.status >= 500 || self.is_broken;
        if !(ids.is_sampled() || is_slow || is_error) {
            return;
        }
        let finished = self.finished(&ids, asked, steps, took);
        let spans = finished.span_count();
        if !traces.queue.add(finished) {
            self.telemetry.thread().add(Count::TraceSpansDropped, spans as u64);
        } else if !self.is_counted {
            let place = self.route.as_ref().map(|(_, place)| *place);
            self.telemetry.counters.traced(place, self.outcome, took, self.at, ids.trace);
        }
    }

    fn finished(
        &self,
        ids: &TraceIds,
        asked: Vec<Asking>,
        steps: Steps,
        took: Duration,
    ) -> FinishedRequest {
        let after = self.begun.saturating_duration_since(ids.begun);
        FinishedRequest {
            trace: ids.trace,
            flags: ids.flags(),
            parent: ids.parent,
            root: ids.root,
            asked,
            servers: ids.take_servers(),
            part: ids.page.as_ref().map(|_| PartOfPage { after }),
            parts: ids.take_parts(),
            record: self.log_record(took),
            is_broken: self.is_broken,
            host: self.host.clone(),
            scheme: self.scheme.map(Scheme::as_str),
            path: self.telemetry.paths.path(self.uri.path()).into_owned(),
            route: self.route.as_ref().map(|(name, _)| Arc::clone(name)),
            steps,
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        // PERF: one look at the clock for both.
        let now = Instant::now();
        self.connection_state.request_ends(now);
        let took = now - self.begun;
        if !self.is_counted {
            self.count(took);
        }
        self.telemetry.thread().add(Count::BytesSent, self.sent);
        if let Some(log_buffer) = self.telemetry.log_buffer.as_ref().filter(|_| self.is_logged) {
            self.log(log_buffer, took);
        }
        if let Some(mut steps) = self.steps.take() {
            steps.note(Step::End, took);
            if self.is_watched {
                self.show((*steps).clone(), took);
            }
            if let Some(trace) = self.trace.take() {
                self.keep_trace(*trace, *steps, took);
            }
        }
    }
}
