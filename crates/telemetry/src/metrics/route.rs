//! What is counted of each route: requests by how the cache answered them, their reasons and times, and what the
//! cache saved.
//!
//! Counters have the name of a route, and so outlive a reload that keeps it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::exemplars::Exemplar;
use super::histogram::{Durations, Histogram, micros};
use super::{Outcome, ThreadMetrics, bump, lock};
use crate::reason::Reason;

/// The most routes that are counted separately, over all reloads.
const ROUTES_MAX: usize = 200;
/// The name under which further ones are counted. A route cannot have it: no path begins so.
const OTHERS: &str = "(others)";
/// The name for requests that no route was found for: refused before, or answered by an endpoint.
const NONE: &str = "(none)";
/// A new duration counts for this part of the running mean.
const MEAN_PART: i64 = 16;

/// How a request was answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredRequest {
    /// The status that was sent.
    pub status: u16,
    /// How the cache answered.
    pub outcome: Outcome,
    /// Why it did not.
    pub reason: Option<Reason>,
    /// When the request's head arrived, in Unix time.
    pub at: f64,
    /// From the head of the request to the end of the response.
    pub took: Duration,
    /// From the head of the request to the head of the origin's response.
    pub origin: Option<Duration>,
    /// Bytes of the body that were sent.
    pub sent: u64,
}

/// What one thread counts of one route. Only this thread writes it.
#[derive(Debug)]
pub(super) struct RouteMetrics {
    name: Arc<str>,
    times: [Histogram; Outcome::ALL.len()],
    reasons: [AtomicU64; Reason::ALL.len()],
    origin: Histogram,
    /// The running mean of the origin's times, in microseconds: what a hit saves. Shared by all threads.
    origin_mean: Arc<AtomicU64>,
    saved_micros: AtomicU64,
    saved_bytes: AtomicU64,
    /// The Unix time of the last hit, as bits; 0: none yet.
    last_hit: AtomicU64,
}

impl RouteMetrics {
    fn new(name: Arc<str>, origin_mean: Arc<AtomicU64>) -> Self {
        Self {
            name,
            times: std::array::from_fn(|_| Histogram::default()),
            reasons: std::array::from_fn(|_| AtomicU64::new(0)),
            origin: Histogram::default(),
            origin_mean,
            saved_micros: AtomicU64::new(0),
            saved_bytes: AtomicU64::new(0),
            last_hit: AtomicU64::new(0),
        }
    }

    fn answered(&self, answered: &AnsweredRequest) {
        self.times[answered.outcome as usize].add(answered.took);
        if let Some(reason) = answered.reason {
            bump(&self.reasons[reason as usize], 1);
        }
        if let Some(took) = answered.origin {
            self.origin.add(took);
            self.learn(took);
        } else if answered.outcome.is_hit() {
            bump(&self.saved_micros, self.origin_mean.load(Ordering::Relaxed));
            bump(&self.saved_bytes, answered.sent);
            self.last_hit.store(answered.at.to_bits(), Ordering::Relaxed);
        }
    }

    /// Takes a duration into the running mean. A duration that another thread takes in meanwhile may be lost.
    fn learn(&self, took: Duration) {
        let mean = self.origin_mean.load(Ordering::Relaxed);
        let took = micros(took);
        let next = if mean == 0 {
            took
        } else {
            mean.saturating_add_signed((took.cast_signed() - mean.cast_signed()) / MEAN_PART)
        };
        self.origin_mean.store(next, Ordering::Relaxed);
    }

    /// What has been counted.
    fn read(&self) -> RouteTotals {
        let last_hit = f64::from_bits(self.last_hit.load(Ordering::Relaxed));
        RouteTotals {
            name: Arc::clone(&self.name),
            times: std::array::from_fn(|place| self.times[place].read()),
            reasons: std::array::from_fn(|place| self.reasons[place].load(Ordering::Relaxed)),
            origin: self.origin.read(),
            saved_micros: self.saved_micros.load(Ordering::Relaxed),
            saved_bytes: self.saved_bytes.load(Ordering::Relaxed),
            last_hit: (last_hit > 0.0).then_some(last_hit),
        }
    }
}

/// The running means of the origin's times by route, over all threads.
#[derive(Debug, Default)]
pub(super) struct OriginMeans(Mutex<HashMap<Arc<str>, Arc<AtomicU64>>>);

impl OriginMeans {
    fn of(&self, name: &Arc<str>) -> Arc<AtomicU64> {
        Arc::clone(lock(&self.0).entry(Arc::clone(name)).or_default())
    }
}

/// What all threads have counted of a route.
#[derive(Clone, Debug)]
pub struct RouteTotals {
    /// The route's name.
    pub name: Arc<str>,
    /// Durations of requests, by how the cache answered: in the order of [`Outcome::ALL`].
    pub times: [Durations; Outcome::ALL.len()],
    /// Requests not answered from the cache: in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Durations to the head of the origin's response.
    pub origin: Durations,
    /// What the origin would have taken for the hits, by its running mean, in microseconds.
    pub saved_micros: u64,
    /// Bytes of the hits.
    pub saved_bytes: u64,
    /// The Unix time of the last hit.
    pub last_hit: Option<f64>,
}

impl RouteTotals {
    fn add(&mut self, other: &Self) {
        self.times.iter_mut().zip(&other.times).for_each(|(own, others)| own.add(others));
        self.reasons.iter_mut().zip(other.reasons).for_each(|(own, others)| *own += others);
        self.origin.add(&other.origin);
        self.saved_micros += other.saved_micros;
        self.saved_bytes += other.saved_bytes;
        let latest = self.last_hit.unwrap_or(0.0).max(other.last_hit.unwrap_or(0.0));
        self.last_hit = (latest > 0.0).then_some(latest);
    }

    /// How many requests the cache answered so.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> &Durations {
        &self.times[outcome as usize]
    }

    /// The reasons that occurred, the most frequent first.
    #[must_use]
    pub fn top_reasons(&self) -> Vec<(Reason, u64)> {
        let counted = Reason::ALL.into_iter().zip(self.reasons);
        let mut occurred: Vec<_> = counted.filter(|(_, count)| *count > 0).collect();
        occurred.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        occurred
    }
}

/// The counters of one thread for the routes of a configuration.
#[derive(Debug)]
pub struct RequestCounters {
    thread: Arc<ThreadMetrics>,
    routes: Vec<Arc<RouteMetrics>>,
    none: Arc<RouteMetrics>,
}

impl RequestCounters {
    /// Those of routes with these names, in order.
    #[must_use]
    pub fn new<'n>(thread: &Arc<ThreadMetrics>, names: impl Iterator<Item = &'n Arc<str>>) -> Self {
        Self {
            routes: names.map(|name| thread.route(name)).collect(),
            none: thread.route(&NONE.into()),
            thread: Arc::clone(thread),
        }
    }

    /// The other counters of the thread.
    #[must_use]
    pub fn thread(&self) -> &ThreadMetrics {
        &self.thread
    }

    /// Counts an answered request on the route at this place.
    pub fn answered(&self, place: Option<usize>, answered: &AnsweredRequest) {
        bump(&self.thread.statuses[usize::from(answered.status / 100).min(9)], 1);
        let route = place.and_then(|place| self.routes.get(place));
        route.unwrap_or(&self.none).answered(answered);
    }

    /// Notes the trace of an answered request as an example of how long such a request takes. It arrived at `at`,
    /// in Unix time.
    pub fn traced(
        &self,
        place: Option<usize>,
        outcome: Outcome,
        took: Duration,
        at: f64,
        trace: u128,
    ) {
        let route = place.and_then(|place| self.routes.get(place)).unwrap_or(&self.none);
        let exemplar = Exemplar { route: Arc::clone(&route.name), outcome, took, at, trace };
        lock(&self.thread.exemplars).note(exemplar);
    }
}

impl ThreadMetrics {
    /// The counters of the route with this name.
    fn route(&self, name: &Arc<str>) -> Arc<RouteMetrics> {
        let mut routes = lock(&self.routes);
        let is_full = routes.len() >= ROUTES_MAX;
        let others = Arc::from(OTHERS);
        let known = |name: &str| routes.iter().find(|route| *route.name == *name).map(Arc::clone);
        let found = known(name).or_else(|| is_full.then(|| known(&others)).flatten());
        found.unwrap_or_else(|| {
            let name = if is_full { others } else { Arc::clone(name) };
            let mean = self.origin_means.of(&name);
            let route = Arc::new(RouteMetrics::new(name, mean));
            routes.push(Arc::clone(&route));
            route
        })
    }
}

/// Adds up the routes of all threads, in the order in which they were first counted.
pub(super) fn sum(threads: &[Arc<ThreadMetrics>]) -> Vec<RouteTotals> {
    let mut all: Vec<RouteTotals> = Vec::new();
    for thread in threads {
        for route in lock(&thread.routes).iter() {
            let totals = route.read();
            match all.iter_mut().find(|other| other.name == totals.name) {
                Some(same) => same.add(&totals),
                None => all.push(totals),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(outcome: Outcome, origin_ms: Option<u64>) -> AnsweredRequest {
        AnsweredRequest {
            status: 200,
            outcome,
            reason: None,
            at: 7.0,
            took: Duration::from_millis(1),
            origin: origin_ms.map(Duration::from_millis),
            sent: 10,
        }
    }

    #[test]
    fn a_hit_saves_what_the_origin_takes_for_the_route() {
        let thread = Arc::new(ThreadMetrics::default());
        let counters = RequestCounters::new(&thread, [Arc::from("shop")].iter());
        counters.answered(Some(0), &answered(Outcome::HitMemory, None));
        counters.answered(Some(0), &answered(Outcome::Miss, Some(16)));
        counters.answered(Some(0), &answered(Outcome::HitMemory, None));
        let totals = &sum(&[thread])[0];
        assert_eq!((totals.saved_micros, totals.saved_bytes), (16_000, 20));
        assert_eq!(totals.last_hit, Some(7.0));
        assert_eq!(totals.of(Outcome::HitMemory).count(), 2);
        assert_eq!(totals.origin.count(), 1);
    }

    #[test]
    fn a_route_keeps_its_counters_over_a_reload_and_further_ones_share_theirs() {
        let thread = Arc::new(ThreadMetrics::default());
        let names: Vec<Arc<str>> = (0..300).map(|n| format!("/{n}").into()).collect();
        for _ in 0..2 {
            let counters = RequestCounters::new(&thread, names.iter());
            for place in 0..names.len() {
                counters.answered(Some(place), &answered(Outcome::Bypass, None));
            }
            counters.answered(None, &answered(Outcome::Error, None));
        }
        let all = sum(&[thread]);
        assert_eq!(all[0].of(Outcome::Bypass).count(), 2);
        assert_eq!(all.len(), ROUTES_MAX + 1);
        let others = &all[ROUTES_MAX];
        assert_eq!(&*others.name, OTHERS);
        assert_eq!(others.of(Outcome::Bypass).count(), 200);
        assert_eq!(others.of(Outcome::Error).count(), 2);
    }
}
