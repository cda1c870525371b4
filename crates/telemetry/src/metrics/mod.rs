//! The metrics, each defined once with its meaning, and the page that `/metrics` shows.
//!
//! Each thread has counters of its own, without contention; a scrape adds the threads up.

mod classic;
mod cookies;
mod count;
mod exemplars;
pub mod histogram;
mod kinds;
mod origins_page;
mod process;
mod route;
mod routes_page;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anteroom_policy::priority::RequestClass;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use self::cookies::CookieCounts;
use self::exemplars::Exemplars;
use self::route::{OriginMeans, RouteMetrics};
use crate::crowd::{CLASSES, Crowd, CrowdTotals, OriginTime, UrlMemory};
use crate::misses::{self, Miss, MissedUrl, Misses};
use crate::reason::Reason;

pub use cookies::{CookieEvent, CookieEventCounts, CookieTotals, NAMES_MAX, cookie_label};
pub use count::Count;
pub use kinds::{AskedAgain, ConnectionCut, Outcome, TunnelEnd, UnstoredReason};
pub use process::resident_bytes;
pub use route::{AnsweredRequest, RequestCounters, RouteTotals};

/// The most limits that are counted separately.
const LIMITS_MAX: usize = 2_000;
/// The name under which further ones are counted.
const OTHERS: &str = "others";

/// One thread's counters. Only this thread writes them, so that adding needs no locked instruction.
#[derive(Debug)]
#[repr(align(128))]
pub struct ThreadMetrics {
    counts: [AtomicU64; Count::ALL.len()],
    refusals: [AtomicU64; Reason::ALL.len()],
    unstored: [AtomicU64; UnstoredReason::ALL.len()],
    asked_again: [AtomicU64; AskedAgain::ALL.len()],
    tunnel_ends: [AtomicU64; TunnelEnd::ALL.len()],
    cut: [AtomicU64; ConnectionCut::ALL.len()],
    statuses: [AtomicU64; 10],
    /// Client connections that are open on the thread.
    open: AtomicU64,
    /// The counters of each route. Locked where a configuration is taken into use, and by scrapes.
    routes: Mutex<Vec<Arc<RouteMetrics>>>,
    /// Requests over a limit, by its name. Locked by its own thread and by scrapes.
    limited: Mutex<BTreeMap<Arc<str>, u64>>,
    /// What the origin takes, by route. Shared by all threads.
    origin_means: Arc<OriginMeans>,
    /// URLs that the cache did not answer. Locked by its own thread and by readers.
    missed: Mutex<Misses>,
    /// Who takes the origins' time. Locked by its own thread and by readers.
    crowd: Mutex<Crowd>,
    /// The URLs that origins were asked for. Shared by all threads.
    urls: Arc<UrlMemory>,
    /// Requests for which no server was free or up, by class.
    refused_classes: [AtomicU64; CLASSES],
    /// Traces of recent requests. Locked by its own thread and by scrapes.
    exemplars: Mutex<Exemplars>,
    /// Messages that were examined for cookies.
    messages: [AtomicU64; 3],
    /// The cookies' names. Locked by its own thread and by readers of the totals.
    cookie_counts: Mutex<CookieCounts>,
}

impl Default for ThreadMetrics {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            refusals: std::array::from_fn(|_| AtomicU64::new(0)),
            unstored: std::array::from_fn(|_| AtomicU64::new(0)),
            asked_again: std::array::from_fn(|_| AtomicU64::new(0)),
            tunnel_ends: std::array::from_fn(|_| AtomicU64::new(0)),
            cut: std::array::from_fn(|_| AtomicU64::new(0)),
            statuses: std::array::from_fn(|_| AtomicU64::new(0)),
            open: AtomicU64::new(0),
            routes: Mutex::default(),
            limited: Mutex::default(),
            origin_means: Arc::default(),
            missed: Mutex::default(),
            crowd: Mutex::default(),
            urls: Arc::default(),
            refused_classes: std::array::from_fn(|_| AtomicU64::new(0)),
            exemplars: Mutex::default(),
            messages: std::array::from_fn(|_| AtomicU64::new(0)),
            cookie_counts: Mutex::default(),
        }
    }
}

/// PERF: each counter has one writer, so a load and a store suffice; a locked add would cost four times as
/// much.
fn bump(cell: &AtomicU64, by: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl ThreadMetrics {
    /// Adds one.
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `by`.
    pub fn add(&self, what: Count, by: u64) {
        bump(&self.counts[what as usize], by);
    }

    /// Counts a response to a fetch for the cache that was not stored.
    pub fn refused(&self, reason: Reason) {
        bump(&self.refusals[reason as usize], 1);
    }

    /// Counts a client connection as open, until the guard is dropped.
    #[must_use]
    pub fn connected(self: &Arc<Self>) -> OpenConnection {
        bump(&self.open, 1);
        OpenConnection(Arc::clone(self))
    }

    /// Counts a visitor's request that was sent to the origin after a fetch for the cache, whose response was not
    /// for this visitor.
    pub fn asked_again(&self, why: AskedAgain) {
        bump(&self.asked_again[why as usize], 1);
    }

    /// Counts a page that the store had no room for.
    pub fn unstored(&self, why: UnstoredReason) {
        bump(&self.unstored[why as usize], 1);
    }

    /// Counts a tunnel that has ended.
    pub fn tunnel_ended(&self, end: TunnelEnd) {
        bump(&self.tunnel_ends[end as usize], 1);
    }

    /// Counts an HTTP/2 connection that was cut.
    pub fn cut(&self, why: ConnectionCut) {
        bump(&self.cut[why as usize], 1);
    }

    /// Counts a request over a limit. Beyond the maximum of names, which exceeds that of any configuration,
    /// further ones are counted as one.
    pub fn limited(&self, limit: &Arc<str>) {
        let mut limited = lock(&self.limited);
        let is_known = limited.contains_key(limit) || limited.len() < LIMITS_MAX;
        let name = if is_known { Arc::clone(limit) } else { OTHERS.into() };
        *limited.entry(name).or_default() += 1;
    }

    /// Counts a request that the cache did not answer.
    pub fn missed(&self, miss: &Miss<'_>) {
        lock(&self.missed).count(miss);
    }

    /// Counts what a request took of its origin's time. Returns for how many requests it stands in the tables of the crowd;
    /// `None`: another one does for it.
    pub(crate) fn used_origin(
        &self,
        origin: &Arc<str>,
        class: RequestClass,
        took: Duration,
    ) -> Option<f64> {
        lock(&self.crowd).count(origin, class, took)
    }

    /// Adds a request to the tables of the crowd.
    pub(crate) fn add_to_crowd(&self, time: &OriginTime<'_>, now: Instant) {
        lock(&self.crowd).add(time, now);
    }

    /// Whether the origins were not asked for this URL before.
    pub(crate) fn is_new_url(&self, path: &str, query: Option<&str>) -> bool {
        self.urls.is_new(path, query)
    }

    /// Counts a request for which no server of the origin was free or up.
    pub fn refused_at_origin(&self, class: RequestClass) {
        self.count(Count::OriginRefused);
        bump(&self.refused_classes[class as usize], 1);
    }

    /// Counts a message, and the names of its cookies.
    pub fn cookies<'n>(&self, what: CookieEvent, names: impl Iterator<Item = &'n [u8]>) {
        bump(&self.messages[what as usize], 1);
        let mut names = names.peekable();
        // PERF: most requests for a page in the cache carry no cookies.
        if names.peek().is_some() {
            lock(&self.cookie_counts).count(what, names);
        }
    }
}

/// Counts a connection as open, on the thread that it is on.
#[derive(Debug)]
pub struct OpenConnection(Arc<ThreadMetrics>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let open = &self.0.open;
        open.store(open.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
    }
}

/// No exemplar labels.
type NoLabels = [(&'static str, &'static str); 0];

/// A number read at the moment of a scrape.
type Figure = Box<dyn Fn() -> u64 + Send + Sync>;

/// One of several numbers under one name, distinguished by labels with the operator's values.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The labels.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: u64,
}

/// A histogram read at the moment of a scrape.
#[derive(Clone, Debug)]
pub struct HistogramReading {
    /// The upper bounds, in seconds.
    pub bounds: &'static [f64],
    /// How many lie between one bound and the next; the last has those over all bounds.
    pub buckets: Vec<u64>,
    /// The sum, in microseconds.
    pub micros: u64,
}

/// Several numbers read at the moment of a scrape.
type Readings = Box<dyn Fn() -> Vec<Reading> + Send + Sync>;

/// Whether a reason may occur.
type MayOccur = Box<dyn Fn(Reason) -> bool + Send + Sync>;

/// A histogram, likewise.
type ReadHistogram = Box<dyn Fn() -> HistogramReading + Send + Sync>;

/// The counters of all threads, and the numbers read at a scrape.
#[derive(Default)]
pub struct Metrics {
    threads: Mutex<Vec<Arc<ThreadMetrics>>>,
    origin_means: Arc<OriginMeans>,
    urls: Arc<UrlMemory>,
    gauges: Mutex<Vec<(&'static str, &'static str, Figure)>>,
    counters: Mutex<Vec<(&'static str, &'static str, Figure)>>,
    families: Mutex<Vec<(&'static str, &'static str, Readings)>>,
    histograms: Mutex<Vec<(&'static str, &'static str, ReadHistogram)>>,
    /// Which reasons may occur; unset: all.
    may_occur: OnceLock<MayOccur>,
    /// When the process began, in Unix time.
    started_at: OnceLock<f64>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic while holding these locks leaves the lists intact: each change is one push.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Counters for one more thread.
    #[must_use]
    pub fn thread_metrics(&self) -> Arc<ThreadMetrics> {
        let (origin_means, urls) = (Arc::clone(&self.origin_means), Arc::clone(&self.urls));
        let thread_metrics =
            Arc::new(ThreadMetrics { origin_means, urls, ..ThreadMetrics::default() });
        lock(&self.threads).push(Arc::clone(&thread_metrics));
        thread_metrics
    }

    /// Adds a gauge that `read` supplies at each scrape.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        lock(&self.gauges).push((name, help, Box::new(read)));
    }

    /// Adds gauges of one name that `read` supplies at each scrape.
    pub fn gauges(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<Reading> + Send + Sync + 'static,
    ) {
        lock(&self.families).push((name, help, Box::new(read)));
    }

    /// Adds a histogram that `read` supplies at each scrape.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> HistogramReading + Send + Sync + 'static,
    ) {
        lock(&self.histograms).push((name, help, Box::new(read)));
    }

    /// Adds a counter that `read` supplies at each scrape.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        lock(&self.counters).push((name, help, Box::new(read)));
    }

    /// Of the reasons that have not occurred, only those are shown that `may_occur`. The first call counts.
    pub fn show_reasons(&self, may_occur: impl Fn(Reason) -> bool + Send + Sync + 'static) {
        self.may_occur.get_or_init(|| Box::new(may_occur));
    }

    fn may_occur(&self, reason: Reason) -> bool {
        self.may_occur.get().is_none_or(|may_occur| may_occur(reason))
    }

    /// Adds the metrics of the process, which began at `started_at` (Unix time). The first call counts.
    pub fn watch_process(&self, started_at: f64) {
        self.started_at.get_or_init(|| started_at);
    }

    /// The metrics page, in OpenMetrics text.
    ///
    /// # Errors
    /// If the text cannot be formatted.
    pub fn page(self: &Arc<Self>) -> Result<String, std::fmt::Error> {
        let threads = lock(&self.threads);
        let exemplars = exemplars::newest(threads.iter().map(|thread| lock(&thread.exemplars)));
        drop(threads);
        self.plain_page().map(|page| exemplars::add(page, &exemplars))
    }

    /// The page without exemplars.
    fn plain_page(self: &Arc<Self>) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ThreadCollector(Arc::clone(self))));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The metrics page in the text format before OpenMetrics.
    ///
    /// # Errors
    /// If the text cannot be formatted.
    pub fn classic_page(self: &Arc<Self>) -> Result<String, std::fmt::Error> {
        self.plain_page().map(|page| classic::classic(&page))
    }

    fn sum(&self, of: impl Fn(&ThreadMetrics) -> &AtomicU64) -> u64 {
        lock(&self.threads)
            .iter()
            .map(|thread_metrics| of(thread_metrics).load(Ordering::Relaxed))
            .sum()
    }

    /// What was counted of cookies.
    #[must_use]
    pub fn cookies(&self) -> CookieTotals {
        let messages =
            |what: CookieEvent| self.sum(|thread_metrics| &thread_metrics.messages[what as usize]);
        let routes = self.routes();
        let hits = routes.iter().flat_map(|route| {
            let hits = Outcome::ALL.into_iter().filter(|outcome| outcome.is_hit());
            hits.map(|outcome| route.of(outcome).count())
        });
        let threads = lock(&self.threads);
        let per_thread: Vec<_> =
            threads.iter().map(|thread_metrics| lock(&thread_metrics.cookie_counts)).collect();
        let (names, others) = cookies::sum(per_thread.iter().map(|cookie_counts| &**cookie_counts));
        drop(per_thread);
        drop(threads);
        CookieTotals {
            requests: messages(CookieEvent::Came),
            hits: hits.sum(),
            pages: messages(CookieEvent::Set),
            names,
            others,
        }
    }

    /// What was counted of each route.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteTotals> {
        route::sum(&lock(&self.threads))
    }

    /// The URLs that the cache did not answer, the most missed first.
    #[must_use]
    pub fn misses(&self) -> Vec<MissedUrl> {
        let threads = lock(&self.threads);
        let locked: Vec<_> = threads.iter().map(|thread| lock(&thread.missed)).collect();
        misses::sum(locked.iter().map(|misses| &**misses))
    }

    /// Who takes the origins' time.
    #[must_use]
    pub fn crowd(&self, now: Instant) -> CrowdTotals {
        let threads = lock(&self.threads);
        let locked: Vec<_> = threads.iter().map(|thread| lock(&thread.crowd)).collect();
        CrowdTotals::sum(locked.iter().map(|crowd| &**crowd), now)
    }

    /// Microseconds that requests took of each origin's time since the start, by class.
    fn origin_micros(&self) -> BTreeMap<Arc<str>, [u64; CLASSES]> {
        let mut sum = BTreeMap::new();
        for thread in lock(&self.threads).iter() {
            lock(&thread.crowd).add_micros(&mut sum);
        }
        sum
    }

    /// Requests by class of status, as `2xx`.
    #[must_use]
    pub fn statuses(&self) -> Vec<(String, u64)> {
        let count = |class: usize| {
            (format!("{class}xx"), self.sum(|thread_metrics| &thread_metrics.statuses[class]))
        };
        (1..10).map(count).collect()
    }

    /// Client connections that are open on each thread that serves any.
    #[must_use]
    pub fn open_connections(&self) -> Vec<u64> {
        let threads = lock(&self.threads);
        let serving = threads.iter().filter(|thread| !lock(&thread.routes).is_empty());
        serving.map(|thread| thread.open.load(Ordering::Relaxed)).collect()
    }

    /// The sum of one counter over all threads.
    #[must_use]
    pub fn total(&self, what: Count) -> u64 {
        self.sum(|thread_metrics| &thread_metrics.counts[what as usize])
    }
}

/// One value of a family, with its label.
struct Sample {
    kind: MetricType,
    value: u64,
}

impl EncodeMetric for Sample {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self.kind {
            MetricType::Gauge => {
                encoder.encode_gauge(&i64::try_from(self.value).unwrap_or(i64::MAX))
            }
            _ => encoder.encode_counter::<NoLabels, _, u64>(&self.value, None),
        }
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

#[derive(Debug)]
struct ThreadCollector(Arc<Metrics>);

/// The counters of one thread that are indexed by an enum.
type Cells = fn(&ThreadMetrics) -> &[AtomicU64];

impl Collector for ThreadCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.plain(&mut encoder)?;
        self.labelled(&mut encoder)?;
        self.cookies(&mut encoder)?;
        origins_page::encode(&mut encoder, &self.0.origin_micros())?;
        routes_page::encode(&mut encoder, &self.0.routes(), &|reason| self.0.may_occur(reason))?;
        self.0.started_at.get().map_or(Ok(()), |at| process::encode(&mut encoder, *at))
    }
}

impl ThreadCollector {
    fn plain(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (what, name, help) in Count::ALL {
            let value = self.0.total(*what);
            one(encoder, name, help, MetricType::Counter, value)?;
        }
        for (name, help, read) in lock(&self.0.counters).iter() {
            one(encoder, name, help, MetricType::Counter, read())?;
        }
        for (name, help, read) in lock(&self.0.gauges).iter() {
            one(encoder, name, help, MetricType::Gauge, read())?;
        }
        for (name, help, read) in lock(&self.0.families).iter() {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for Reading { labels, value } in read() {
                let figure = Sample { kind: MetricType::Gauge, value };
                figure.encode(metric.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in lock(&self.0.histograms).iter() {
            let kind = MetricType::Histogram;
            let metric = encoder.encode_descriptor(name, help, None, kind)?;
            let HistogramReading { bounds, buckets, micros } = read();
            routes_page::histogram(metric, bounds, &buckets, micros)?;
        }
        Ok(())
    }

    fn labelled(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let by = |all: &mut dyn Iterator<Item = &'static str>, cells: Cells| {
            let sum = |(at, word): (usize, &str)| {
                (word.to_owned(), self.0.sum(|thread_metrics| &cells(thread_metrics)[at]))
            };
            all.enumerate().map(sum).collect::<Vec<_>>()
        };
        let refusals = by(&mut Reason::ALL.map(Reason::as_str).into_iter(), |of| &of.refusals);
        let shown = |(reason, (_, count)): &(Reason, (String, u64))| {
            *count > 0 || self.0.may_occur(*reason)
        };
        let refusals = Reason::ALL.into_iter().zip(refusals).filter(shown).map(|(_, one)| one);
        let help = "Pages fetched for the cache and not stored, by reason";
        family(encoder, "anteroom_pages_refused", help, "reason", refusals)?;
        let unstored =
            by(&mut UnstoredReason::ALL.map(UnstoredReason::as_str).into_iter(), |of| &of.unstored);
        let help = "Pages kept in memory only, for lack of room in the store, by reason";
        family(encoder, "anteroom_pages_unstored", help, "reason", unstored)?;
        let again =
            by(&mut AskedAgain::ALL.map(AskedAgain::as_str).into_iter(), |of| &of.asked_again);
        let help = "Requests sent to the origin again, after a fetch that was not for their visitor, by reason";
        family(encoder, "anteroom_origin_asked_again", help, "reason", again)?;
        let ends = by(&mut TunnelEnd::ALL.map(TunnelEnd::as_str).into_iter(), |of| &of.tunnel_ends);
        family(encoder, "anteroom_tunnels_ended", "Tunnels by what ended them", "by", ends)?;
        let cut = by(&mut ConnectionCut::ALL.map(ConnectionCut::as_str).into_iter(), |of| &of.cut);
        let help = "HTTP/2 connections closed for a flood or a broken protocol, by cause";
        family(encoder, "anteroom_http2_connections_cut", help, "cause", cut)?;
        let help = "Requests over a rate limit, by the route that has it; * is [limits]";
        let mut limited = BTreeMap::<Arc<str>, u64>::new();
        for thread_metrics in lock(&self.0.threads).iter() {
            for (name, count) in lock(&thread_metrics.limited).iter() {
                *limited.entry(Arc::clone(name)).or_default() += count;
            }
        }
        let limited = limited.into_iter().map(|(name, count)| (name.to_string(), count));
        family(encoder, "anteroom_rate_limited", help, "route", limited)?;
        let classes = &mut RequestClass::ALL.map(RequestClass::as_str).into_iter();
        let refused = by(classes, |of| &of.refused_classes);
        let help = "Requests for which no server of the origin was free or up, by class";
        family(encoder, "anteroom_origin_class_refused", help, "class", refused)?;
        let help = "Requests by status class";
        family(encoder, "anteroom_requests", help, "status", self.0.statuses())
    }

    /// A name that was displaced and comes again starts at zero, as after a restart.
    fn cookies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counted = self.0.cookies();
        let all = || {
            let names = counted.names.iter().map(|(name, tally)| (name.as_str(), *tally));
            // No cookie name contains parentheses.
            names.chain([("(other)", counted.others)])
        };
        let of = |read: fn(CookieEventCounts) -> u64| {
            all().map(move |(name, tally)| (name.to_owned(), read(tally)))
        };
        let help = "Requests with which a cookie came";
        family(encoder, "anteroom_cookie_requests", help, "cookie", of(|tally| tally.seen))?;
        let help = "Html pages of the app that set a cookie";
        family(encoder, "anteroom_cookie_pages", help, "cookie", of(|tally| tally.set))?;
        let help = "Requests that a cookie kept from the cache";
        family(encoder, "anteroom_cookie_bypasses", help, "cookie", of(|tally| tally.blocked))
    }
}

fn one(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    value: u64,
) -> Result<(), std::fmt::Error> {
    let metric = encoder.encode_descriptor(name, help, None, kind)?;
    Sample { kind, value }.encode(metric)
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    values: impl IntoIterator<Item = (String, u64)>,
) -> Result<(), std::fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (word, value) in values {
        let labels = [(label, word)];
        Sample { kind: MetricType::Counter, value }.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_in_their_own_order() {
        for (place, (what, ..)) in Count::ALL.iter().enumerate() {
            assert_eq!(place, *what as usize, "{what:?}");
        }
    }

    #[test]
    fn a_scrape_adds_the_sheets_of_all_threads() {
        let metrics = Arc::new(Metrics::default());
        let (one, two) = (metrics.thread_metrics(), metrics.thread_metrics());
        one.count(Count::Accepted);
        two.add(Count::Accepted, 2);
        let counters = RequestCounters::new(&two, [Arc::from("shop")].iter());
        counters.answered(
            Some(0),
            &AnsweredRequest {
                status: 404,
                outcome: Outcome::Bypass,
                reason: Some(Reason::Login),
                at: 0.0,
                took: Duration::from_millis(3),
                origin: Some(Duration::from_millis(2)),
                sent: 9,
            },
        );
        metrics.gauge("anteroom_test", "A test", || 7);
        let labels = vec![("origin", "blog".to_owned()), ("server", "a:1".to_owned())];
        let reading = move || vec![Reading { labels: labels.clone(), value: 1 }];
        metrics.gauges("anteroom_tests", "Tests", reading);
        for (thread_metrics, name) in [(&one, "login"), (&two, "login"), (&two, "*")] {
            thread_metrics.limited(&name.into());
        }
        let page = metrics.page().unwrap();
        for line in [
            "anteroom_connections_accepted_total 3",
            "anteroom_cache_results_total{result=\"bypass\"} 1",
            "anteroom_cache_reasons_total{reason=\"login\"} 1",
            "anteroom_requests_total{status=\"4xx\"} 1",
            "anteroom_rate_limited_total{route=\"login\"} 2",
            "anteroom_rate_limited_total{route=\"*\"} 1",
            "anteroom_route_reasons_total{route=\"shop\",reason=\"login\"} 1",
            "anteroom_request_seconds_bucket{le=\"0.001\",route=\"shop\",result=\"bypass\"} 0",
            "anteroom_request_seconds_bucket{le=\"0.005\",route=\"shop\",result=\"bypass\"} 1",
            "anteroom_request_seconds_bucket{le=\"+Inf\",route=\"shop\",result=\"bypass\"} 1",
            "anteroom_request_seconds_count{route=\"shop\",result=\"bypass\"} 1",
            "anteroom_origin_first_byte_seconds_count{route=\"shop\"} 1",
            "anteroom_saved_seconds_total{route=\"shop\"} 0.0",
            "anteroom_saved_bytes_total{route=\"shop\"} 0",
            "anteroom_test 7",
            "anteroom_tests{origin=\"blog\",server=\"a:1\"} 1",
        ] {
            assert!(page.contains(line), "{line} is missing in:\n{page}");
        }
        assert!(!page.contains("process_"), "no process is watched");
    }

    #[test]
    fn the_process_is_shown_once_it_is_watched() {
        let metrics = Arc::new(Metrics::default());
        metrics.watch_process(1_700_000_000.5);
        metrics.watch_process(1_800_000_000.0);
        let page = metrics.page().unwrap();
        assert!(page.contains("\nprocess_start_time_seconds 1700000000.5\n"), "{page}");
        for (name, kind) in [
            ("process_cpu_seconds", "counter"),
            ("process_resident_memory_bytes", "gauge"),
            ("process_virtual_memory_bytes", "gauge"),
            ("process_threads", "gauge"),
            ("process_open_fds", "gauge"),
            ("process_max_fds", "gauge"),
            ("process_start_time_seconds", "gauge"),
        ] {
            assert!(page.contains(&format!("# TYPE {name} {kind}\n")), "{name} in\n{page}");
            assert!(page.contains(&format!("# HELP {name} ")), "{name} in\n{page}");
        }
    }
}
