//! The record of a request: what happened, for the access log and the counters.
//!
//! It is written once, when the response's body is dropped, complete or not, or when the request's
//! future is dropped. A client that disconnects is therefore recorded, too.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::http::header::{REFERER, USER_AGENT};
use ::http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::pulse::Pulse;
use crate::clock::unix_now;
use crate::ident::User;
use crate::telemetry::access_log::{Pen, Record, VisitorClass};
use crate::telemetry::metrics::{Count, Outcome, Sheet};
use crate::telemetry::reason::Reason;

/// The status that is logged if the client disconnects before there is a response (as in nginx).
const CLIENT_LEFT: u16 = 499;

/// What has happened to a request so far.
#[derive(Debug)]
pub(in crate::proxy) struct RequestRecord {
    /// Held instead of the worker context, which a tunnel would keep alive through reloads.
    sheet: Arc<Sheet>,
    pen: Option<Arc<Pen>>,
    pulse: Rc<Pulse>,
    begun: Instant,
    at: f64,
    address: Option<IpAddr>,
    method: Method,
    uri: Uri,
    version: Version,
    headers: (Option<::http::HeaderValue>, Option<::http::HeaderValue>),
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
    pub(in crate::proxy) fn begin<B>(
        (sheet, pen): (&Arc<Sheet>, Option<&Arc<Pen>>),
        pulse: &Rc<Pulse>,
        address: Option<IpAddr>,
        request: &Request<B>,
    ) -> Box<Self> {
        pulse.request_begins();
        let logged = |headers: &HeaderMap, name| pen.and_then(|_| headers.get(name).cloned());
        Box::new(Self {
            sheet: Arc::clone(sheet),
            pen: pen.cloned(),
            pulse: Rc::clone(pulse),
            begun: Instant::now(),
            at: unix_now(),
            address,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: (logged(request.headers(), REFERER), logged(request.headers(), USER_AGENT)),
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
        sheet: &Arc<Sheet>,
        pulse: &Rc<Pulse>,
        method: &Method,
    ) -> Box<Self> {
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        let mut record = Self::begin((sheet, None), pulse, None, &request);
        record.is_counted = true;
        record
    }

    /// Records the client's address.
    pub(in crate::proxy) fn came_from(&mut self, address: Option<IpAddr>) {
        self.address = address;
    }

    /// Records the site that the request is for.
    pub(in crate::proxy) fn site(&mut self, site: &str) {
        if self.pen.is_some() {
            self.host = Some(site.into());
        }
    }

    /// Records the route.
    pub(in crate::proxy) fn route(&mut self, name: &Arc<str>) {
        self.route = Some(Arc::clone(name));
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
        self.sheet.answered(self.status, self.outcome, self.reason, took);
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
            self.pulse.response_broke_off();
        }
    }

    /// Records that the complete body was handed over.
    pub(in crate::proxy) fn whole(&mut self) {
        self.whole = true;
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.pulse.request_ends();
        let took = self.begun.elapsed();
        let sheet = &self.sheet;
        if !self.is_counted {
            sheet.answered(self.status, self.outcome, self.reason, took);
        }
        sheet.add(Count::BytesSent, self.sent);
        let Some(pen) = &self.pen else { return };
        pen.write(Record {
            at: self.at,
            client: self.address,
            method: std::mem::take(&mut self.method),
            uri: std::mem::take(&mut self.uri),
            host: self.host.take(),
            version: self.version,
            status: self.status,
            outcome: self.outcome,
            reason: self.reason,
            route: self.route.take(),
            visitor: self.visitor,
            user: self.user.take(),
            sent: self.tunnelled.map_or(self.sent, |(_, sent)| sent),
            received: self.tunnelled.map(|(received, _)| received),
            took,
            origin: self.origin,
            aborted: !self.whole,
            referer: self.headers.0.take(),
            agent: self.headers.1.take(),
        });
    }
}
