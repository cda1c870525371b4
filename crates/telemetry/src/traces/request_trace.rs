//! The trace of one request: its ids, and what has been noted for its spans.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::http::HeaderMap;
use anteroom_http::trace_context::{SAMPLED, TRACEPARENT, TRACESTATE, TraceContext};
use anteroom_policy::traces::{Fraction, ParentSampling};
use tokio::time::Instant;

use super::TraceRules;
use super::spans::{Asking, FinishedRequest, ServerAddress, span_of_origin};

/// The most times that a request asks the origin, or waits for the fetch of another, which have spans of their own.
const ASKED_MAX: usize = 8;
/// The most fragments of a page that have spans.
const PARTS_MAX: usize = 32;

/// The ids of a request's trace, which its record and its requests to the origin share.
#[derive(Debug)]
pub struct TraceIds {
    /// The trace.
    pub trace: u128,
    /// The span of the client, if the trace goes on; that of the page, for a fragment.
    pub parent: Option<u64>,
    /// The span of the request. Those of its parts follow it.
    pub root: u64,
    /// The page, if the request is for a fragment of one.
    pub page: Option<Arc<Self>>,
    /// When the trace began here.
    pub begun: Instant,
    flags: u8,
    /// Whether the trace goes on from a trusted client.
    is_continued: bool,
    /// How often the request has asked so far.
    asked: AtomicU8,
    found: Mutex<FoundMeanwhile>,
}

/// What the spans of a request tell that its record does not know.
#[derive(Debug, Default)]
struct FoundMeanwhile {
    servers: Vec<(u8, Arc<ServerAddress>)>,
    parts: Vec<FinishedRequest>,
}

impl TraceIds {
    /// Begins a trace, or continues that of a trusted client. A trace that is sampled is kept in any case.
    #[must_use]
    pub fn begin(rules: &TraceRules, trusted: Option<TraceContext>) -> Arc<Self> {
        let own = || if is_drawn(rules.sample) { SAMPLED } else { 0 };
        let flags = match (trusted, rules.parent) {
            (None, _) => own(),
            (Some(incoming), ParentSampling::Follow) => incoming.flags,
            (Some(incoming), ParentSampling::Ignore) => incoming.flags & !SAMPLED | own(),
        };
        Arc::new(Self {
            trace: trusted.map_or_else(|| fastrand::u128(1..), |incoming| incoming.trace),
            parent: trusted.map(|incoming| incoming.span),
            root: random_span(),
            page: None,
            begun: Instant::now(),
            flags,
            is_continued: trusted.is_some(),
            asked: AtomicU8::new(0),
            found: Mutex::default(),
        })
    }

    /// The ids of a request for a fragment of a page, whose trace it is part of.
    #[must_use]
    pub fn of_part(page: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            trace: page.trace,
            parent: Some(page.root),
            root: random_span(),
            page: Some(Arc::clone(page)),
            begun: page.begun,
            flags: page.flags,
            is_continued: page.is_continued,
            asked: AtomicU8::new(0),
            found: Mutex::default(),
        })
    }

    /// Whether the trace is kept whatever becomes of the request.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The flags of the trace.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// A fragment of this page has ended.
    pub fn add_part(&self, part: FinishedRequest) {
        let parts = &mut self.found().parts;
        if parts.len() < PARTS_MAX {
            parts.push(part);
        }
    }

    /// The fragments that have ended.
    #[must_use]
    pub fn take_parts(&self) -> Vec<FinishedRequest> {
        std::mem::take(&mut self.found().parts)
    }

    /// The servers that were asked, each by the place of the question.
    #[must_use]
    pub fn take_servers(&self) -> Vec<(u8, Arc<ServerAddress>)> {
        std::mem::take(&mut self.found().servers)
    }

    fn found(&self) -> MutexGuard<'_, FoundMeanwhile> {
        // No code that can panic runs under this lock.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `traceparent` in a request to the origin. What the request asks for itself has a span of its own;
    /// what is asked beside it, such as a question about its session, is in the span of the request.
    pub fn set(&self, headers: &mut HeaderMap, is_beside: bool) {
        if !self.is_continued {
            headers.remove(&TRACESTATE);
        }
        let asked = self.asked.load(Ordering::Relaxed);
        let span = match asked.checked_sub(1) {
            Some(place) if !is_beside => span_of_origin(self.root, place.into()),
            _ => self.root,
        };
        let context = TraceContext { trace: self.trace, span, flags: self.flags };
        headers.insert(&TRACEPARENT, context.value());
    }
}

/// By which a request to the origin tells its span the server that it is sent to.
#[derive(Clone, Debug)]
pub struct OriginSpan {
    ids: Arc<TraceIds>,
    place: u8,
}

impl OriginSpan {
    /// That of the latest question of a request. `None` before the first.
    #[must_use]
    pub fn latest(ids: &Arc<TraceIds>) -> Option<Self> {
        let place = ids.asked.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Self { ids: Arc::clone(ids), place })
    }

    /// The request is sent to a server. The last one counts.
    pub fn sent_to(&self, server: &Arc<ServerAddress>) {
        let servers = &mut self.ids.found().servers;
        match servers.iter_mut().find(|(place, _)| *place == self.place) {
            Some((_, known)) => known.clone_from(server),
            None => servers.push((self.place, Arc::clone(server))),
        }
    }
}

/// A span's id: not 0, and neither are the few that follow it.
fn random_span() -> u64 {
    fastrand::u64(1..u64::MAX - u64::from(u8::MAX))
}

fn is_drawn(sample: Fraction) -> bool {
    sample.has(fastrand::u32(..Fraction::ALL.count()))
}

/// The trace of a request that is being answered.
#[derive(Debug)]
pub struct RequestTrace {
    /// Its ids.
    pub ids: Arc<TraceIds>,
    /// What it asked for, each time.
    pub asked: Vec<Asking>,
}

impl RequestTrace {
    /// The trace with these ids.
    #[must_use]
    pub fn new(ids: Arc<TraceIds>) -> Self {
        Self { ids, asked: Vec::new() }
    }

    /// The request asks for something. Until it is told to ask the origin, it waits for another request's fetch.
    pub fn asks(&mut self) {
        if self.asked.len() < ASKED_MAX {
            self.asked.push(Asking::Another);
            self.ids.asked.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It asks the origin.
    pub fn asks_origin(&mut self, asking: Asking) {
        if let Some(last) = self.asked.last_mut() {
            *last = asking;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCOMING: TraceContext = TraceContext { trace: 7, span: 9, flags: SAMPLED };

    fn rules(sample: Fraction, parent: ParentSampling) -> TraceRules {
        TraceRules { sample, parent, slow: None }
    }

    fn sent(ids: &TraceIds, is_beside: bool) -> TraceContext {
        let mut headers = HeaderMap::new();
        headers.insert(&TRACESTATE, "a=1".parse().unwrap());
        ids.set(&mut headers, is_beside);
        assert_eq!(headers.contains_key(&TRACESTATE), ids.parent.is_some());
        TraceContext::of(&headers).unwrap()
    }

    #[test]
    fn the_flag_of_a_trusted_client_is_followed_or_ignored() {
        let unsampled = TraceContext { flags: 0b10, ..INCOMING };
        let none = Fraction::millionths(0);
        for (sample, parent, incoming, is_sampled) in [
            (none, ParentSampling::Follow, Some(INCOMING), true),
            (none, ParentSampling::Ignore, Some(INCOMING), false),
            (Fraction::ALL, ParentSampling::Follow, Some(unsampled), false),
            (Fraction::ALL, ParentSampling::Ignore, Some(unsampled), true),
            (Fraction::ALL, ParentSampling::Follow, None, true),
            (none, ParentSampling::Follow, None, false),
        ] {
            let ids = TraceIds::begin(&rules(sample, parent), incoming);
            assert_eq!(ids.is_sampled(), is_sampled, "{parent:?} {incoming:?}");
            assert_eq!(ids.parent, incoming.map(|incoming| incoming.span));
            assert_eq!(sent(&ids, false).trace, ids.trace);
            assert_eq!(sent(&ids, false).flags, ids.flags());
        }
    }

    #[test]
    fn each_question_to_the_origin_is_a_span_of_its_own() {
        let ids = TraceIds::begin(&rules(Fraction::ALL, ParentSampling::Follow), None);
        let mut trace = RequestTrace::new(Arc::clone(&ids));
        assert_eq!(sent(&ids, false).span, ids.root);
        let mut spans = Vec::new();
        for _ in 0..3 {
            trace.asks();
            trace.asks_origin(Asking::Fill);
            spans.push(sent(&ids, false).span);
            assert_eq!(sent(&ids, true).span, ids.root);
        }
        spans.dedup();
        assert_eq!(spans.len(), 3);
        for _ in 0..300 {
            trace.asks();
        }
        assert_eq!(trace.asked.len(), ASKED_MAX);
    }

    #[test]
    fn a_fragment_continues_the_trace_of_its_page_only() {
        for incoming in [None, Some(INCOMING)] {
            let page = TraceIds::begin(&rules(Fraction::ALL, ParentSampling::Follow), incoming);
            let part = TraceIds::of_part(&page);
            assert_eq!((part.trace, part.parent), (page.trace, Some(page.root)));
            let mut headers = HeaderMap::new();
            headers.insert(&TRACESTATE, "a=1".parse().unwrap());
            part.set(&mut headers, false);
            assert_eq!(headers.contains_key(&TRACESTATE), incoming.is_some());
            assert_eq!(TraceContext::of(&headers).unwrap().span, part.root);
        }
    }

    #[test]
    fn the_last_server_of_each_question_is_known() {
        let ids = TraceIds::begin(&rules(Fraction::ALL, ParentSampling::Follow), None);
        assert!(OriginSpan::latest(&ids).is_none(), "it has asked for nothing");
        let mut trace = RequestTrace::new(Arc::clone(&ids));
        let server = |port| Arc::new(ServerAddress { host: "app".to_owned(), port: Some(port) });
        for ports in [&[1, 2][..], &[3]] {
            trace.asks();
            let span = OriginSpan::latest(&ids).unwrap();
            ports.iter().for_each(|port| span.sent_to(&server(*port)));
        }
        assert_eq!(ids.take_servers(), [(0, server(2)), (1, server(3))]);
    }
}
