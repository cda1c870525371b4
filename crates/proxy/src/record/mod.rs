//! The record of a request: what happened, for the access log and the counters. `end` tells it.
//!
//! It is written once, when the response's body is dropped, complete or not, or when the request's
//! future is dropped. A client that disconnects is therefore recorded, too.

mod end;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{REFERER, USER_AGENT};
use ::http::request::Parts;
use ::http::{HeaderValue, Method, Request, StatusCode, Uri, Version};
use anteroom_http::clock::unix_now;
use anteroom_http::host::Scheme;
use anteroom_http::ident::User;
use anteroom_http::trace_context::TraceContext;
use anteroom_policy::priority::RequestClass;
use anteroom_policy::route::CompiledRoute;
use anteroom_telemetry::access_log::VisitorClass;
use anteroom_telemetry::metrics::Outcome;
use anteroom_telemetry::reason::Reason;
use anteroom_telemetry::request_feed::{Step, Steps};
use anteroom_telemetry::request_telemetry::RequestTelemetry;
use anteroom_telemetry::traces::{Asking, RequestTrace, TraceIds, TraceRules};
use tokio::time::Instant;

use super::connection_state::ConnectionState;

/// The status that is logged if the client disconnects before there is a response (as in nginx).
const CLIENT_LEFT: u16 = 499;

/// What has happened to a request so far.
#[derive(Debug)]
pub(crate) struct RequestRecord {
    /// Held instead of the worker context, which a tunnel would keep alive through reloads.
    telemetry: Rc<RequestTelemetry>,
    /// Whether the access log has a line of it.
    is_logged: bool,
    /// Its steps, if a watcher is there, or traces are on.
    steps: Option<Box<Steps>>,
    /// Whether a watcher is there.
    is_watched: bool,
    /// Its trace, if traces are on.
    trace: Option<Box<RequestTrace>>,
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
    /// The visitor's scheme, once the request is admitted.
    scheme: Option<Scheme>,
    /// The route's name, and its place among the routes.
    route: Option<(Arc<str>, usize)>,
    visitor: VisitorClass,
    /// The class of the request, if the origin was too crowded for it.
    class: Option<RequestClass>,
    user: Option<User>,
    outcome: Outcome,
    reason: Option<Reason>,
    status: u16,
    sent: u64,
    /// Bytes received from the client and sent to it in a tunnel.
    tunnelled: Option<(u64, u64)>,
    /// Whether the response was counted before the end of the request.
    is_counted: bool,
    origin: Option<Duration>,
    whole: bool,
    /// Whether the body broke off on the proxy's or the origin's side.
    is_broken: bool,
}

impl RequestRecord {
    /// Begins the record when the request's head has arrived.
    pub(crate) fn begin(
        telemetry: &Rc<RequestTelemetry>,
        connection_state: &Rc<ConnectionState>,
        address: Option<IpAddr>,
        head: &Parts,
    ) -> Box<Self> {
        connection_state.request_begins();
        let is_logged = telemetry.log_buffer.is_some();
        let is_watched = telemetry.feed.is_watched();
        let logged = |name| head.headers.get(name).filter(|_| is_logged).cloned();
        Box::new(Self {
            telemetry: Rc::clone(telemetry),
            is_logged,
            steps: is_watched.then(Box::default),
            is_watched,
            trace: None,
            connection_state: Rc::clone(connection_state),
            begun: Instant::now(),
            at: unix_now(),
            address,
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            headers: (logged(REFERER), logged(USER_AGENT)),
            request_id: None,
            host: None,
            scheme: None,
            route: None,
            visitor: VisitorClass::Unknown,
            class: None,
            user: None,
            outcome: Outcome::Error,
            reason: None,
            status: CLIENT_LEFT,
            sent: 0,
            tunnelled: None,
            is_counted: false,
            origin: None,
            whole: false,
            is_broken: false,
        })
    }

    /// The record of a request that is part of another one, or is only explained. It is neither counted
    /// nor logged.
    pub(crate) fn of_part(
        telemetry: &Rc<RequestTelemetry>,
        connection_state: &Rc<ConnectionState>,
        method: &Method,
    ) -> Box<Self> {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = method.clone();
        let mut record = Self::begin(telemetry, connection_state, None, &head);
        (record.is_counted, record.is_logged) = (true, false);
        (record.is_watched, record.steps) = (false, None);
        record
    }

    /// Begins the trace of a request that is part of another one: it is in the trace of that one.
    pub(crate) fn begin_part(&mut self, page: &Arc<TraceIds>, uri: &Uri) -> Arc<TraceIds> {
        let ids = TraceIds::of_part(page);
        self.uri = uri.clone();
        self.trace = Some(Box::new(RequestTrace::new(Arc::clone(&ids))));
        self.steps.get_or_insert_default();
        ids
    }

    /// Records the status of the response to a request that is part of another one.
    pub(crate) fn part_answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// Begins the trace of the request, which continues that of a trusted client.
    pub(crate) fn begin_trace(
        &mut self,
        rules: &TraceRules,
        trusted: Option<TraceContext>,
    ) -> Arc<TraceIds> {
        let ids = TraceIds::begin(rules, trusted);
        self.trace = Some(Box::new(RequestTrace::new(Arc::clone(&ids))));
        self.steps.get_or_insert_default();
        ids
    }

    /// When the request's head arrived, in Unix time.
    pub(crate) fn at(&self) -> f64 {
        self.at
    }

    /// Records the request id.
    pub(crate) fn request_id(&mut self, id: &HeaderValue) {
        if self.is_logged || self.steps.is_some() {
            self.request_id = Some(id.clone());
        }
    }

    /// Records the client's address.
    pub(crate) fn set_client_address(&mut self, address: Option<IpAddr>) {
        self.address = address;
    }

    /// Records the site that the request is for.
    pub(crate) fn site(&mut self, site: &str) {
        self.host = Some(site.into());
    }

    /// Records the visitor's scheme.
    pub(crate) fn scheme(&mut self, scheme: Scheme) {
        self.scheme = Some(scheme);
    }

    /// Records the route.
    pub(crate) fn route(&mut self, route: &CompiledRoute) {
        self.route = Some((Arc::clone(&route.name), route.place));
        self.is_logged &= route.access_log;
        self.step(Step::Routed);
    }

    /// Records the visitor.
    pub(crate) fn visitor(&mut self, class: VisitorClass, user: Option<&User>) {
        self.step(Step::Identified);
        self.visitor = class;
        self.user = user.cloned();
    }

    /// Records the class of a request for which the origin was too crowded.
    pub(crate) fn crowded(&mut self, class: RequestClass) {
        self.class = Some(class);
    }

    /// Records how the cache answered, and the reason if it did not.
    pub(crate) fn outcome(&mut self, outcome: Outcome, reason: Option<Reason>) {
        self.outcome = outcome;
        self.reason = reason;
    }

    /// Records that the request is to ask the origin, or to wait for the fetch of another.
    pub(crate) fn asks(&mut self) {
        self.step(Step::Asked);
        if let Some(trace) = &mut self.trace {
            trace.asks();
        }
    }

    /// Records what the origin is asked for.
    pub(crate) fn asks_origin(&mut self, asking: Asking) {
        if let Some(trace) = &mut self.trace {
            trace.asks_origin(asking);
        }
    }

    /// Records that the head of the origin's response has arrived.
    pub(crate) fn origin_answered(&mut self) {
        self.origin = Some(self.begun.elapsed());
        self.step(Step::OriginHead);
    }

    /// Records the status of the response.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.step(Step::Head);
        self.status = status.as_u16();
    }

    /// Records that the response opens a tunnel. It is counted now, because the time of the tunnel is
    /// not response time.
    pub(crate) fn switched(&mut self) {
        self.count(self.begun.elapsed());
        self.is_counted = true;
    }

    /// Notes when the request has come to a step, if steps are noted.
    pub(crate) fn step(&mut self, step: Step) {
        if let Some(steps) = &mut self.steps {
            steps.note(step, self.begun.elapsed());
        }
    }

    /// Records that part of the body was handed to the connection.
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// Records that part of it came back unsent.
    pub(crate) fn take_back(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_sub(bytes);
        self.whole = false;
    }

    /// Records the bytes received from the client and sent to it in a tunnel.
    pub(crate) fn tunnelled(&mut self, received: u64, sent: u64) {
        self.tunnelled = Some((received, sent));
    }

    /// Records that the body broke off. HTTP/1.0 has no chunked coding, so a client takes the end of the
    /// connection for the end of the body.
    pub(crate) fn broke_off(&mut self) {
        self.is_broken = true;
        if self.version < Version::HTTP_11 {
            self.connection_state.response_broke_off();
        }
    }

    /// Records that the complete body was handed over.
    pub(crate) fn whole(&mut self) {
        self.whole = true;
    }
}
