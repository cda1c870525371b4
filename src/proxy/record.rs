//! The record of a request: what happened, for the access log and the counters.
//!
//! It is written once, when the response's body is dropped, whole or not, or when the request's future is:
//! a client that disconnects is recorded, too.

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

/// The status that is logged when the client left before there was one (nginx's custom).
const CLIENT_LEFT: u16 = 499;

/// What happened to a request so far.
#[derive(Debug)]
pub(in crate::proxy) struct RequestRecord {
    /// Not the room, which a tunnel would keep through reloads.
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
    /// Bytes that came from the client and went to it in a tunnel.
    tunnelled: Option<(u64, u64)>,
    /// Whether the answer was counted before the request's end.
    is_counted: bool,
    origin: Option<std::time::Duration>,
    whole: bool,
}

impl RequestRecord {
    /// A request's head is there.
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

    /// A request that is part of another, or only explained: it is neither counted nor logged by itself.
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

    /// The visitor's address.
    pub(in crate::proxy) fn came_from(&mut self, address: Option<IpAddr>) {
        self.address = address;
    }

    /// The site that the visitor asks for.
    pub(in crate::proxy) fn site(&mut self, site: &str) {
        if self.pen.is_some() {
            self.host = Some(site.into());
        }
    }

    /// The route.
    pub(in crate::proxy) fn route(&mut self, name: &Arc<str>) {
        self.route = Some(Arc::clone(name));
    }

    /// Who asks.
    pub(in crate::proxy) fn visitor(&mut self, class: VisitorClass, user: Option<&User>) {
        self.visitor = class;
        self.user = user.cloned();
    }

    /// How the cache answered, and why not from the cache.
    pub(in crate::proxy) fn outcome(&mut self, outcome: Outcome, reason: Option<Reason>) {
        self.outcome = outcome;
        self.reason = reason;
    }

    /// The head of the origin's response is there.
    pub(in crate::proxy) fn origin_answered(&mut self) {
        self.origin = Some(self.begun.elapsed());
    }

    /// The head of the answer is known.
    pub(in crate::proxy) fn answered(&mut self, status: StatusCode) {
        self.status = status.as_u16();
    }

    /// The answer opens a tunnel. It is counted now: the tunnel's time is not the time to answer.
    pub(in crate::proxy) fn switched(&mut self) {
        let took = self.begun.elapsed();
        self.sheet.answered(self.status, self.outcome, self.reason, took);
        self.is_counted = true;
    }

    /// Part of the body was handed to the connection.
    pub(in crate::proxy) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// So much of it came back unsent.
    pub(in crate::proxy) fn take_back(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_sub(bytes);
        self.whole = false;
    }

    /// So many bytes came from the client and went to it in a tunnel.
    pub(in crate::proxy) fn tunnelled(&mut self, received: u64, sent: u64) {
        self.tunnelled = Some((received, sent));
    }

    /// The body broke off. A client of HTTP/1.0 knows no chunks: to him the connection's end would
    /// be the body's.
    pub(in crate::proxy) fn broke_off(&mut self) {
        if self.version < Version::HTTP_11 {
            self.pulse.response_broke_off();
        }
    }

    /// The body was handed over whole.
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
