//! The trace of one request: its ids, and what has been noted for its spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ::http::HeaderMap;

use super::TraceRules;
use super::spans::{Asking, span_of_origin};
use crate::http::trace_context::{SAMPLED, TRACEPARENT, TRACESTATE, TraceContext};
use crate::policy::traces::{Fraction, ParentSampling};

/// The most times that a request asks the origin, or waits for the fetch of another, which have spans of their own.
const ASKED_MAX: usize = 8;

/// The ids of a request's trace, which its record and its requests to the origin share.
#[derive(Debug)]
pub struct TraceIds {
    /// The trace.
    pub trace: u128,
    /// The span of the client, if the trace goes on.
    pub parent: Option<u64>,
    /// The span of the request. Those of its parts follow it.
    pub root: u64,
    flags: u8,
    /// How often the request has asked so far.
    asked: AtomicU8,
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
            // Not 0, and neither are the few that follow it.
            root: fastrand::u64(1..u64::MAX - u64::from(u8::MAX)),
            flags,
            asked: AtomicU8::new(0),
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

    /// Sets `traceparent` in a request to the origin. What the request asks for itself has a span of its own;
    /// what is asked beside it, such as a fragment, is in the span of the request.
    pub fn set(&self, headers: &mut HeaderMap, is_beside: bool) {
        if self.parent.is_none() {
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
}
