//! Measures what one request takes of its origin's time.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use anteroom_policy::priority::RequestClass;
use http::{HeaderValue, Uri};
use tokio::time::Instant;

use super::crowd::{Asker, OriginTime};
use super::request_telemetry::RequestTelemetry;

/// The use of an origin by one request. It is counted when the head of the answer comes; if this is dropped before, the
/// request was given up, and is counted then. PERF: making one takes no memory of its own.
#[derive(Debug)]
pub struct OriginUse {
    telemetry: Rc<RequestTelemetry>,
    origin: Arc<str>,
    class: RequestClass,
    uri: Uri,
    visitor: Option<UsingVisitor>,
    begun: Cell<Option<Instant>>,
}

/// The visitor whose request uses an origin.
#[derive(Debug)]
pub struct UsingVisitor {
    /// The address, if it is known.
    pub address: Option<IpAddr>,
    /// The user agent.
    pub agent: Option<HeaderValue>,
}

impl OriginUse {
    /// The use of the origin of this name by a request for `uri`. `visitor`: whose request it is, unless it is the proxy's
    /// own.
    #[must_use]
    pub fn new(
        telemetry: &Rc<RequestTelemetry>,
        origin: &Arc<str>,
        class: RequestClass,
        uri: &Uri,
        visitor: Option<UsingVisitor>,
    ) -> Self {
        Self {
            telemetry: Rc::clone(telemetry),
            origin: Arc::clone(origin),
            class,
            uri: uri.clone(),
            visitor,
            begun: Cell::new(None),
        }
    }

    /// The request is sent now. What it waited for a place before is not the origin's time.
    pub fn begin(&self) {
        self.begun.set(Some(Instant::now()));
    }

    /// The head of the answer has come, or there will be none.
    pub fn end(&self) {
        let Some(begun) = self.begun.take() else { return };
        let (now, thread) = (Instant::now(), self.telemetry.thread());
        let took = now.saturating_duration_since(begun);
        let is_new = thread.is_new_url(self.uri.path(), self.uri.query());
        let Some(weight) = thread.used_origin(&self.origin, self.class, took) else { return };
        let asker = self.visitor.as_ref().map(|visitor| Asker {
            address: visitor.address,
            agent: visitor.agent.as_ref().map(HeaderValue::as_bytes).unwrap_or_default(),
        });
        let path = self.telemetry.paths.path(self.uri.path());
        let time = OriginTime {
            class: self.class,
            asker,
            path: &path,
            query: self.uri.query(),
            is_new,
            took,
            weight,
        };
        thread.add_to_crowd(&time, now.into_std());
    }
}

impl Drop for OriginUse {
    fn drop(&mut self) {
        self.end();
    }
}
