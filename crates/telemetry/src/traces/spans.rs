//! The spans of a request that has ended, from its steps.
//!
//! Names and attributes follow OpenTelemetry's semantic conventions for HTTP; those that begin with
//! `anteroom.` are ours. Nothing here holds a query, a cookie, a token, a user or a client's address.

use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Version};

use crate::access_log::LogRecord;
use crate::request_feed::{Step, Steps};

/// Places of spans behind the root.
const RECOGNISE: u64 = 1;
const LOOK_UP: u64 = 2;
const DELIVER: u64 = 3;
const ASKED: u64 = 16;

/// What a request waits for after it has looked into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Another request's fetch of the same page.
    Another,
    /// Its own fetch for the cache.
    Fill,
    /// Its own fetch for the cache, which failed.
    FailedFill,
    /// The origin's answer to the visitor's own request.
    Forward,
}

/// A server of the origin, as spans name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Its host, or the path of its Unix socket.
    pub host: String,
    /// Its port; a Unix socket has none.
    pub port: Option<u16>,
}

/// How a request for a fragment stands in its page.
#[derive(Clone, Copy, Debug)]
pub struct PartOfPage {
    /// When it began, from the arrival of the page's request.
    pub after: Duration,
}

/// The span of the origin's part, when the request asks for the `place`th time.
pub(super) fn span_of_origin(root: u64, place: u64) -> u64 {
    root + ASKED + 2 * place + 1
}

/// A request that has ended, and whose trace is kept.
#[derive(Clone, Debug)]
pub struct FinishedRequest {
    /// The trace.
    pub trace: u128,
    /// The flags of the trace.
    pub flags: u8,
    /// The span of the client, if the trace goes on.
    pub parent: Option<u64>,
    /// The span of the request.
    pub root: u64,
    /// What it waited for, each time.
    pub asked: Vec<Asking>,
    /// The servers that were asked, by the place in `asked`.
    pub servers: Vec<(u8, Arc<ServerAddress>)>,
    /// If it is for a fragment of a page: how it stands in it.
    pub part: Option<PartOfPage>,
    /// The requests for its fragments.
    pub parts: Vec<Self>,
    /// What the access log says of it.
    pub record: LogRecord,
    /// Whether the response broke off on the proxy's or the origin's side.
    pub is_broken: bool,
    /// The site, if known.
    pub host: Option<Arc<str>>,
    /// The visitor's scheme, if known.
    pub scheme: Option<&'static str>,
    /// The path as it may be shown.
    pub path: String,
    /// The route's name.
    pub route: Option<Arc<str>>,
    /// Its steps.
    pub steps: Steps,
}

/// `SpanKind` of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) parent: Option<u64>,
    pub(super) kind: SpanKind,
    /// From the arrival of the request's head.
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) is_error: bool,
}

impl FinishedRequest {
    /// About how much memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(Self::bytes).sum::<usize>();
        let servers = self.servers.capacity() * size_of::<(u8, Arc<ServerAddress>)>();
        size_of::<Self>() + self.path.capacity() + self.steps.bytes() + servers + parts
    }

    /// How many spans it has.
    #[must_use]
    pub fn span_count(&self) -> usize {
        let asked = |asking: &Asking| if *asking == Asking::Another { 1 } else { 2 };
        let of = |step| usize::from(self.steps.iter().any(|(known, _)| known == step));
        let begun = self.steps.iter().filter(|(step, _)| *step == Step::Asked).count();
        1 + of(Step::Identified)
            + of(Step::LookedUp)
            + of(Step::Head)
            + self.asked.iter().take(begun).map(asked).sum::<usize>()
            + self.parts.iter().map(Self::span_count).sum::<usize>()
    }

    /// The error, in the words of `error.type`: the status, or that the body broke off. 499 is a fragment that came
    /// too late for its page.
    fn error(&self) -> Option<String> {
        match self.record.status {
            status @ 500.. => Some(status.to_string()),
            status @ 499 if self.part.is_some() => Some(status.to_string()),
            _ if self.is_broken => Some("broken_body".to_owned()),
            _ => None,
        }
    }

    /// Its spans, the root first.
    pub(super) fn spans(&self) -> Vec<Span> {
        let mut spans = vec![self.root_span()];
        let mut last = Duration::ZERO;
        let mut asked = self.asked.iter().enumerate();
        let (mut open, mut head) = (None::<OpenAsking>, None);
        for (step, at) in self.steps.iter() {
            match step {
                Step::Routed => {}
                Step::Identified => self.add_once(&mut spans, "recognise", RECOGNISE, last, at),
                Step::LookedUp => self.add_once(&mut spans, "look up", LOOK_UP, last, at),
                Step::OriginHead => {
                    if let Some(open) = &mut open {
                        open.head = Some(at);
                    }
                }
                Step::Asked | Step::Head | Step::End => {
                    if let Some(open) = open.take() {
                        self.add_asking(&mut spans, &open, at);
                    }
                    match step {
                        Step::Asked => {
                            open = asked.next().map(|(place, asking)| OpenAsking {
                                place: place as u64,
                                asking: *asking,
                                from: at,
                                head: None,
                            });
                        }
                        Step::Head => head = head.or(Some(at)),
                        _ => {
                            if let Some(head) = head {
                                self.add_once(&mut spans, "deliver", DELIVER, head, at);
                            }
                        }
                    }
                }
            }
            last = at;
        }
        spans.extend(self.parts.iter().flat_map(Self::spans_in_page));
        spans
    }

    /// The spans of a fragment, from the arrival of the page's request.
    fn spans_in_page(&self) -> Vec<Span> {
        let after = self.part.map_or(Duration::ZERO, |part| part.after);
        let moved = |span: Span| Span { from: span.from + after, to: span.to + after, ..span };
        self.spans().into_iter().map(moved).collect()
    }

    fn root_span(&self) -> Span {
        if self.part.is_some() { self.fragment_span() } else { self.request_span() }
    }

    fn fragment_span(&self) -> Span {
        let record = &self.record;
        let name = self.route.as_ref().map_or_else(String::new, |route| format!(" {route}"));
        let mut attributes = Vec::with_capacity(6);
        let mut add = |name, value: &str| attributes.push((name, Value::Text(value.to_owned())));
        add("url.path", &self.path);
        if let Some(route) = &self.route {
            add("http.route", route);
        }
        add("anteroom.cache", record.outcome.as_str());
        if let Some(reason) = record.reason {
            add("anteroom.reason", reason.as_str());
        }
        let error = self.error();
        if let Some(error) = &error {
            add("error.type", error);
        }
        attributes.push(("http.response.status_code", Value::Number(record.status.into())));
        Span {
            parent: self.parent,
            attributes,
            is_error: error.is_some(),
            ..self.part(&format!("fragment{name}"), self.root, Duration::ZERO, record.took)
        }
    }

    fn request_span(&self) -> Span {
        let record = &self.record;
        let method = known_method(&record.method);
        let name = match &self.route {
            Some(route) => format!("{} {route}", method.unwrap_or("HTTP")),
            None => method.unwrap_or("HTTP").to_owned(),
        };
        let mut attributes = Vec::with_capacity(16);
        let mut add = |name, value: &str| attributes.push((name, Value::Text(value.to_owned())));
        add("http.request.method", method.unwrap_or("_OTHER"));
        add("url.path", &self.path);
        if let Some(scheme) = self.scheme {
            add("url.scheme", scheme);
        }
        if let Some(route) = &self.route {
            add("http.route", route);
        }
        let (name_of_host, port) = self.host.as_deref().map(host_and_port).unwrap_or_default();
        if !name_of_host.is_empty() {
            add("server.address", name_of_host);
        }
        add("network.protocol.name", "http");
        add("network.protocol.version", version(record.version));
        add("anteroom.cache", record.outcome.as_str());
        if let Some(reason) = record.reason {
            add("anteroom.reason", reason.as_str());
        }
        add("anteroom.visitor", record.visitor.as_str());
        let error = self.error();
        if let Some(error) = &error {
            add("error.type", error);
        }
        if let Some(port) = port {
            attributes.push(("server.port", Value::Number(port.into())));
        }
        attributes.push(("http.response.status_code", Value::Number(record.status.into())));
        attributes.push(("http.response.body.size", Value::Number(record.sent)));
        Span {
            name,
            id: self.root,
            parent: self.parent,
            kind: SpanKind::Server,
            from: Duration::ZERO,
            to: record.took,
            attributes,
            is_error: error.is_some(),
        }
    }

    /// Adds a span of which there is one.
    fn add_once(
        &self,
        spans: &mut Vec<Span>,
        name: &str,
        place: u64,
        from: Duration,
        to: Duration,
    ) {
        let id = self.root + place;
        if spans.iter().all(|span| span.id != id) {
            spans.push(self.part(name, id, from, to));
        }
    }

    fn add_asking(&self, spans: &mut Vec<Span>, open: &OpenAsking, to: Duration) {
        let (name, asks_origin) = match open.asking {
            Asking::Another => ("wait", false),
            Asking::Fill | Asking::FailedFill => ("fill", true),
            Asking::Forward => ("forward", true),
        };
        let id = self.root + ASKED + 2 * open.place;
        spans.push(self.part(name, id, open.from, to));
        if asks_origin {
            let method = match open.asking {
                Asking::Fill | Asking::FailedFill => "GET",
                _ => known_method(&self.record.method).unwrap_or("_OTHER"),
            };
            let mut attributes = vec![("http.request.method", Value::Text(method.to_owned()))];
            let mut servers = self.servers.iter();
            if let Some((_, server)) = servers.find(|(place, _)| u64::from(*place) == open.place) {
                attributes.push(("server.address", Value::Text(server.host.clone())));
                attributes
                    .extend(server.port.map(|port| ("server.port", Value::Number(port.into()))));
            }
            let has_failed = open.head.is_none() || open.asking == Asking::FailedFill;
            if has_failed {
                attributes.push(("error.type", Value::Text("no_response".to_owned())));
            }
            spans.push(Span {
                parent: Some(id),
                kind: SpanKind::Client,
                attributes,
                is_error: has_failed,
                ..self.part(
                    "origin",
                    span_of_origin(self.root, open.place),
                    open.from,
                    open.head.unwrap_or(to),
                )
            });
        }
    }

    fn part(&self, name: &str, id: u64, from: Duration, to: Duration) -> Span {
        Span {
            name: name.to_owned(),
            id,
            parent: Some(self.root),
            kind: SpanKind::Internal,
            from,
            to,
            attributes: Vec::new(),
            is_error: false,
        }
    }
}

/// Something that was asked for and is not there yet.
#[derive(Clone, Copy)]
struct OpenAsking {
    place: u64,
    asking: Asking,
    from: Duration,
    /// When the head of the origin's response came.
    head: Option<Duration>,
}

/// The methods that the conventions know; others would be without bound.
fn known_method(method: &Method) -> Option<&'static str> {
    const KNOWN: [&str; 10] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
    KNOWN.into_iter().find(|known| *known == method.as_str())
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// The parts of a site.
fn host_and_port(site: &str) -> (&str, Option<u16>) {
    match site.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.ends_with(']') => (host, port.parse().ok()),
        _ => (site, None),
    }
}

/// A request that was answered from the cache after a fetch.
#[cfg(test)]
pub(super) fn example() -> FinishedRequest {
    use crate::access_log::VisitorClass;
    use crate::metrics::Outcome;
    use crate::reason::Reason;

    let mut steps = Steps::default();
    for (at, step) in (1..).zip([
        Step::Routed,
        Step::Identified,
        Step::LookedUp,
        Step::Asked,
        Step::OriginHead,
        Step::Head,
        Step::End,
    ]) {
        steps.note(step, Duration::from_millis(at));
    }
    FinishedRequest {
        trace: 0xabc,
        flags: 1,
        parent: None,
        root: 0x100,
        asked: vec![Asking::Fill],
        servers: Vec::new(),
        part: None,
        parts: Vec::new(),
        record: LogRecord {
            at: 1_700_000_000.5,
            client: None,
            method: Method::GET,
            version: Version::HTTP_11,
            status: 200,
            outcome: Outcome::Miss,
            reason: Some(Reason::Miss),
            visitor: VisitorClass::Anonymous,
            class: None,
            sent: 10,
            received: None,
            took: Duration::from_millis(7),
            origin: None,
            aborted: false,
        },
        is_broken: false,
        host: Some("a.test:81".into()),
        scheme: Some("http"),
        path: "/a".to_owned(),
        route: Some("shop".into()),
        steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(request: &FinishedRequest) -> Vec<(String, Option<u64>, u128, u128)> {
        let spans = request.spans();
        assert_eq!(spans.len(), request.span_count());
        let told = |span: &Span| {
            let parent = spans.iter().position(|other| Some(other.id) == span.parent);
            let parent = parent.map(|place| place as u64);
            (span.name.clone(), parent, span.from.as_millis(), span.to.as_millis())
        };
        spans.iter().map(told).collect()
    }

    fn expected(
        list: &[(&str, Option<u64>, u128, u128)],
    ) -> Vec<(String, Option<u64>, u128, u128)> {
        list.iter()
            .map(|(name, parent, from, to)| ((*name).to_owned(), *parent, *from, *to))
            .collect()
    }

    #[test]
    fn a_fetch_for_the_cache_is_a_tree() {
        let list = expected(&[
            ("GET shop", None, 0, 7),
            ("recognise", Some(0), 1, 2),
            ("look up", Some(0), 2, 3),
            ("fill", Some(0), 4, 6),
            ("origin", Some(3), 4, 5),
            ("deliver", Some(0), 6, 7),
        ]);
        assert_eq!(told(&example()), list);
    }

    #[test]
    fn a_request_may_wait_and_then_ask_itself() {
        let mut steps = Steps::default();
        for (at, step) in (1..).zip([
            Step::Routed,
            Step::Identified,
            Step::LookedUp,
            Step::Asked,
            Step::Asked,
            Step::Head,
            Step::End,
        ]) {
            steps.note(step, Duration::from_millis(at));
        }
        let mut request = example();
        (request.steps, request.asked) = (steps, vec![Asking::Another, Asking::Forward]);
        request.record.status = 504;
        let list = expected(&[
            ("GET shop", None, 0, 7),
            ("recognise", Some(0), 1, 2),
            ("look up", Some(0), 2, 3),
            ("wait", Some(0), 4, 5),
            ("forward", Some(0), 5, 6),
            ("origin", Some(4), 5, 6),
            ("deliver", Some(0), 6, 7),
        ]);
        assert_eq!(told(&request), list);
        let errors: Vec<bool> = request.spans().iter().map(|span| span.is_error).collect();
        assert_eq!(errors, [true, false, false, false, false, true, false]);
        assert_eq!(request.spans()[5].id, span_of_origin(request.root, 1));
    }

    #[test]
    fn the_server_that_was_asked_is_told() {
        let mut request = example();
        let of = |request: &FinishedRequest| request.spans()[4].attributes.clone();
        assert!(of(&request).iter().all(|(name, _)| !name.starts_with("server.")));
        let server = ServerAddress { host: "app".to_owned(), port: Some(8080) };
        request.servers = vec![(0, Arc::new(server))];
        let told = of(&request);
        assert!(told.contains(&("server.address", Value::Text("app".to_owned()))));
        assert!(told.contains(&("server.port", Value::Number(8080))));
        let socket = ServerAddress { host: "/run/app.sock".to_owned(), port: None };
        request.servers = vec![(0, Arc::new(socket))];
        assert!(of(&request).iter().all(|(name, _)| *name != "server.port"));
    }

    #[test]
    fn a_fragment_is_a_tree_within_its_page() {
        let mut part = example();
        part.root = 0x1000;
        part.parent = Some(0x100);
        part.part = Some(PartOfPage { after: Duration::from_millis(6) });
        part.record.took = Duration::from_millis(1);
        part.steps = Steps::default();
        part.steps.note(Step::Asked, Duration::ZERO);
        part.steps.note(Step::End, Duration::from_millis(1));
        let mut page = example();
        page.parts = vec![part.clone()];
        let list = told(&page);
        let expected = expected(&[
            ("fragment shop", Some(0), 6, 7),
            ("fill", Some(6), 6, 7),
            ("origin", Some(7), 6, 7),
        ]);
        assert_eq!(list[6..], expected);
        assert!(page.bytes() > example().bytes() + size_of::<FinishedRequest>());
        // It had no response in time.
        page.parts[0].record.status = 499;
        assert!(page.spans()[6].is_error);
    }

    #[test]
    fn methods_and_routes_have_no_unbounded_names() {
        let mut request = example();
        request.record.method = Method::from_bytes(b"BREW").unwrap();
        assert_eq!(request.spans()[0].name, "HTTP shop");
        request.route = None;
        assert_eq!(request.spans()[0].name, "HTTP");
        assert_eq!(host_and_port("[::1]"), ("[::1]", None));
        assert_eq!(host_and_port("[::1]:81"), ("[::1]", Some(81)));
        assert_eq!(host_and_port("a.test"), ("a.test", None));
    }
}
