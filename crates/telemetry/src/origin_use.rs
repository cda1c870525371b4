//! Measures what one request takes of its origin's time.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use anteroom_policy::priority::RequestClass;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Uri};
use tokio::time::Instant;

use super::crowd::{Asker, OriginTime};
use super::request_telemetry::RequestTelemetry;

/// The use of an origin by one request. It is counted when the head of the answer comes; if this is dropped before, the
/// request was given up, and is counted then. PERF: it borrows what it needs, and takes no memory of its own.
#[derive(Debug)]
pub struct OriginUse<'a> {
    telemetry: &'a Rc<RequestTelemetry>,
    origin: &'a Arc<str>,
    class: RequestClass,
    uri: &'a Uri,
    visitor: Option<UsingVisitor<'a>>,
    begun: Cell<Option<Instant>>,
}

/// The visitor whose request uses an origin.
#[derive(Clone, Copy, Debug)]
pub struct UsingVisitor<'a> {
    /// The address, if it is known.
    pub address: Option<IpAddr>,
    /// The user agent.
    pub agent: UserAgent<'a>,
}

/// Where the user agent of a visitor is found.
#[derive(Clone, Copy, Debug)]
pub enum UserAgent<'a> {
    /// In the fields of the request. PERF: they are searched only for a request that is added to tables.
    In(&'a HeaderMap),
    /// It was looked up.
    Known(Option<&'a HeaderValue>),
}

impl<'a> UserAgent<'a> {
    fn value(self) -> Option<&'a HeaderValue> {
        match self {
            Self::In(headers) => headers.get(USER_AGENT),
            Self::Known(value) => value,
        }
    }
}

/// The same as [`OriginUse`] for a request that is sent later, when what it borrows may be gone.
#[derive(Debug)]
pub struct KeptOriginUse {
    telemetry: Rc<RequestTelemetry>,
    origin: Arc<str>,
    class: RequestClass,
    uri: Uri,
    /// The address and the user agent.
    visitor: Option<(Option<IpAddr>, Option<HeaderValue>)>,
}

impl KeptOriginUse {
    /// What measures the use.
    #[must_use]
    pub fn lend(&self) -> OriginUse<'_> {
        let visitor = self.visitor.as_ref().map(|(address, agent)| UsingVisitor {
            address: *address,
            agent: UserAgent::Known(agent.as_ref()),
        });
        OriginUse::new(&self.telemetry, &self.origin, self.class, &self.uri, visitor)
    }
}

impl<'a> OriginUse<'a> {
    /// The use of the origin of this name by a request for `uri`. `visitor`: whose request it is, unless it is the proxy's
    /// own.
    #[must_use]
    pub fn new(
        telemetry: &'a Rc<RequestTelemetry>,
        origin: &'a Arc<str>,
        class: RequestClass,
        uri: &'a Uri,
        visitor: Option<UsingVisitor<'a>>,
    ) -> Self {
        Self { telemetry, origin, class, uri, visitor, begun: Cell::new(None) }
    }

    /// The same, to be kept. What was measured so far is not.
    #[must_use]
    pub fn kept(&self) -> KeptOriginUse {
        KeptOriginUse {
            telemetry: Rc::clone(self.telemetry),
            origin: Arc::clone(self.origin),
            class: self.class,
            uri: self.uri.clone(),
            visitor: self.visitor.map(|of| (of.address, of.agent.value().cloned())),
        }
    }

    /// The request is sent now. What it waited for a place before is not the origin's time.
    pub fn begin(&self) {
        self.begun.set(Some(Instant::now()));
    }

    /// The head of the answer has come now, or there will be none.
    pub fn end(&self, now: Instant) {
        let Some(begun) = self.begun.take() else { return };
        let thread = self.telemetry.thread();
        let took = now.saturating_duration_since(begun);
        let is_new = thread.is_new_url(self.uri.path(), self.uri.query());
        let Some(weight) = thread.used_origin(self.origin, self.class, took) else { return };
        let asker = self.visitor.map(|visitor| Asker {
            address: visitor.address,
            agent: visitor.agent.value().map(HeaderValue::as_bytes).unwrap_or_default(),
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

impl Drop for OriginUse<'_> {
    fn drop(&mut self) {
        // PERF: most have ended, and the time is not needed.
        if self.begun.get().is_some() {
            self.end(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_agent_is_that_of_the_fields() {
        let mut headers = HeaderMap::new();
        assert_eq!(UserAgent::In(&headers).value(), None);
        let agent = HeaderValue::from_static("curl/8");
        headers.insert(USER_AGENT, agent.clone());
        assert_eq!(UserAgent::In(&headers).value(), Some(&agent));
        assert_eq!(UserAgent::Known(Some(&agent)).value(), Some(&agent));
        assert_eq!(UserAgent::Known(None).value(), None);
    }
}
