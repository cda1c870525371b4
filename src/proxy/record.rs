//! The record of a request: what happened, for the access log and the counters.
//!
//! It is written once, when the response's body is dropped, complete or not, or when the request's
//! future is dropped. A client that disconnects is therefore recorded, too.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{REFERER, USER_AGENT};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::connection_state::ConnectionState;
use crate::clock::unix_now;
use crate::ident::User;
use crate::policy::route::CompiledRoute;
use crate::telemetry::access_log::{LogBuffer, LogRecord, LogTexts, VisitorClass};
use crate::telemetry::metrics::{Count, Outcome, ThreadMetrics};
use crate::telemetry::reason::Reason;

/// The status that is logged if the client disconnects before there is a response (as in nginx).
const CLIENT_LEFT: u16 = 499;

/// What has happened to a request so far.
#[derive(Debug)]
pub(in crate::proxy) struct RequestRecord {
    /// Held instead of the worker context, which a tunnel would keep alive through reloads.
    thread_metrics: Arc<ThreadMetrics>,
    log_buffer: Option<Arc<LogBuffer>>,
    connection_state: Rc<ConnectionState>,
    begun: Instant,
    at: f64,
    address: Option<IpAddr>,
    method: Method,
    uri: Uri,
    version: Version,
    headers: (Option<HeaderValue>, Option<HeaderValue>),
    request_id: Option<HeaderValue>,
    host: Option<Arc<str>>,
    route: Option<Arc<str>>,
    visitor: VisitorClass,
    user: Option<User>,
    outcome: Outcome,
    reason: Option<Reason>,
    status: u16,
    sent: u64,
    /// Bytes received from the client and sent to it in a tunnel.
    tunnelled: Option<(u64, u64)>,
    /// Whether the response was counted before the end of the request.
    is_counted: bool,
    origin: Option<std::time::Duration>,
    whole: bool,
}

impl RequestRecord {
    /// Begins the record when the request's head has arrived.
    pub(in crate::proxy) fn begin(
        (thread_metrics, log_buffer): (&Arc<ThreadMetrics>, Option<&Arc<LogBuffer>>),
        connection_state: &Rc<ConnectionState>,
        address: Option<IpAddr>,
        head: &Parts,
    ) -> Box<Self> {
        connection_state.request_begins();
        let logged =
            |headers: &HeaderMap, name| log_buffer.and_then(|_| headers.get(name).cloned());
        Box::new(Self {
            thread_metrics: Arc::clone(thread_metrics),
            log_buffer: log_buffer.cloned(),
            connection_state: Rc::clone(connection_state),
            begun: Instant::now(),
            at: unix_now(),
            address,
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            headers: (logged(&head.headers, REFERER), logged(&head.headers, USER_AGENT)),
            request_id: None,
            host: None,
            route: None,
            visitor: VisitorClass::Unknown,
            user: None,
            outcome: Outcome::Error,
            reason: None,
            status: CLIENT_LEFT,
            sent: 0,
            tunnelled: None,
            is_counted: false,
            origin: None,
            whole: false,
        })
    }

    /// The record of a request that is part of another one, or is only explained. It is neither counted
    /// nor logged.
    pub(in crate::proxy) fn of_part(
        thread_metrics: &Arc<ThreadMetrics>,
        connection_state: &Rc<ConnectionState>,
        method: &Method,
    ) -> Box<Self> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = method.clone();
        let mut record = Self::begin((thread_metrics, None), connection_state, None, &head);
        record.is_counted = true;
        record
    }

    /// When the request's head arrived, in Unix time.
    pub(in crate::proxy) fn at(&self) -> f64 {
        self.at
    }

    /// Records the request id.
    pub(in crate::proxy) fn request_id(&mut self, id: &HeaderValue) {
        if self.log_buffer.is_some() {
            self.request_id = Some(id.clone());
        }
    }

    /// Records the client's address.
    pub(in crate::proxy) fn set_client_address(&mut self, address: Option<IpAddr>) {
        self.address = address;
    }

    /// Records the site that the request is for.
    pub(in crate::proxy) fn site(&mut self, site: &str) {
        if self.log_buffer.is_some() {
            self.host = Some(site.into());
        }
    }

    /// Records the route.
    pub(in crate::proxy) fn route(&mut self, route: &CompiledRoute) {
        self.route = Some(Arc::clone(&route.name));
        if !route.access_log {
            self.log_buffer = None;
        }
    }

    /// Records the visitor.
    pub(in crate::proxy) fn visitor(&mut self, class: VisitorClass, user: Option<&User>) {
        self.visitor = class;
        self.user = user.cloned();
    }

    /// Records how the cache answered, and the reason if it did not.
    pub(in crate::proxy) fn outcome(&mut self, outcome: Outcome, reason: Option<Reason>) {
        self.outcome = outcome;
        self.reason = reason;
    }

    /// Records that the head of the origin's response has arrived.
    pub(in crate::proxy) fn origin_answered(&mut self) {
        self.origin = Some(self.begun.elapsed());
    }

    /// Records the status of the response.
    pub(in crate::proxy) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// Records that the response opens a tunnel. It is counted now, because the time of the tunnel is
    /// not response time.
    pub(in crate::proxy) fn switched(&mut self) {
        let took = self.begun.elapsed();
        self.thread_metrics.answered(self.status, self.outcome, self.reason, took);
        self.is_counted = true;
    }

    /// Records that part of the body was handed to the connection.
    pub(in crate::proxy) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Records that part of it came back unsent.
    pub(in crate::proxy) fn take_back(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_sub(bytes);
        self.whole = false;
    }

    /// Records the bytes received from the client and sent to it in a tunnel.
    pub(in crate::proxy) fn tunnelled(&mut self, received: u64, sent: u64) {
        self.tunnelled = Some((received, sent));
    }

    /// Records that the body broke off. HTTP/1.0 has no chunked coding, so a client takes the end of the
    /// connection for the end of the body.
    pub(in crate::proxy) fn broke_off(&mut self) {
        if self.version < Version::HTTP_11 {
            self.connection_state.response_broke_off();
        }
    }

    /// Records that the complete body was handed over.
    pub(in crate::proxy) fn whole(&mut self) {
        self.whole = true;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        // PERF: one look at the clock for both.
        let now = Instant::now();
        self.connection_state.request_ends(now);
        let took = now - self.begun;
        let thread_metrics = &self.thread_metrics;
        if !self.is_counted {
            thread_metrics.answered(self.status, self.outcome, self.reason, took);
        }
        thread_metrics.add(Count::BytesSent, self.sent);
        let Some(log_buffer) = &self.log_buffer else { return };
        let record = LogRecord {
            at: self.at,
            client: self.address,
            method: std::mem::take(&mut self.method),
            version: self.version,
            status: self.status,
            outcome: self.outcome,
            reason: self.reason,
            visitor: self.visitor,
            sent: self.tunnelled.map_or(self.sent, |(_, sent)| sent),
            received: self.tunnelled.map(|(received, _)| received),
            took,
            origin: self.origin,
            aborted: !self.whole,
        };
        let texts = LogTexts {
            path: self.uri.path().as_bytes(),
            host: self.host.as_deref().map(str::as_bytes),
            route: self.route.as_deref().map(str::as_bytes),
            user: self.user.as_ref().map(User::as_bytes),
            referer: self.headers.0.as_ref().map(HeaderValue::as_bytes),
            agent: self.headers.1.as_ref().map(HeaderValue::as_bytes),
            request_id: self.request_id.as_ref().map(HeaderValue::as_bytes),
        };
        log_buffer.write(record, texts);
    }
}
