//! The figures that the dashboard and `anteroom top` show, and the URLs that the cache does not answer.
//!
//! All counts are from the start of the process: a reader subtracts two readings.

use std::collections::BTreeMap;

use anteroom_http::clock::unix_now;
use anteroom_proxy::{Advice, advice, cookie_report};
use anteroom_store::{CALL_BOUNDS, StoreState};
use anteroom_telemetry::metrics::histogram::{BOUNDS, Durations, quantile, seconds};
use anteroom_telemetry::metrics::{Count, Outcome, RouteTotals};
use anteroom_telemetry::misses::MissedUrl;
use anteroom_telemetry::reason::Reason;
use serde::{Deserialize, Serialize};

use super::bypass::ListedBypass;
use super::commands::Commands;
use super::configuration::RefusedReload;

/// Durations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub seconds: f64,
    /// How many lie between one bound and the next; the last has those over all bounds.
    pub buckets: Vec<u64>,
}

impl Times {
    fn of(durations: &Durations) -> Self {
        Self {
            count: durations.count(),
            seconds: durations.seconds(),
            buckets: durations.buckets.to_vec(),
        }
    }

    /// Those that have come since an earlier reading of the same process.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = earlier.buckets.iter().copied().chain(std::iter::repeat(0));
        let buckets = self.buckets.iter().zip(before);
        Self {
            count: self.count.saturating_sub(earlier.count),
            seconds: (self.seconds - earlier.seconds).max(0.0),
            buckets: buckets.map(|(now, before)| now.saturating_sub(before)).collect(),
        }
    }

    /// What a share (0 to 1) of them does not exceed, in seconds: [`quantile`].
    #[must_use]
    pub fn quantile(&self, bounds: &[f64], share: f64) -> Option<f64> {
        quantile(bounds, &self.buckets, share)
    }
}

/// The origins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OriginStatus {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// From the head of the request to the head of the origin's response.
    #[serde(flatten)]
    pub times: Times,
}

/// The store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Whether it can be reached.
    pub connected: bool,
    /// Calls over their budget.
    pub timeouts: u64,
    /// Calls that failed.
    pub failures: u64,
    /// How often the breaker opened.
    pub breaker_openings: u64,
    /// Bytes of pages in it.
    pub pages_bytes: u64,
    /// The bounds of the durations of calls over the network, in seconds.
    pub bounds: Vec<f64>,
    /// Durations of calls over the network.
    #[serde(flatten)]
    pub calls: Times,
}

/// The connections of clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Open ones.
    pub open: u64,
    /// Open tunnels.
    pub tunnels: u64,
    /// Open ones on each thread.
    pub per_thread: Vec<u64>,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Of the process, as the system counts it.
    pub resident: Option<u64>,
    /// Pages.
    pub pages: u64,
    /// The room for pages. It is smaller than `[cache] memory` while the process is near its memory limit.
    #[serde(default)]
    pub pages_max: u64,
    /// How many pages that are.
    pub page_count: u64,
    /// Bodies in flight.
    pub in_flight: u64,
}

/// A route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteStatus {
    /// Its name; `(none)`: requests that no route was found for.
    pub name: String,
    /// Requests.
    pub count: u64,
    /// How long they took, in all.
    pub seconds: f64,
    /// Requests by how the cache answered.
    pub results: BTreeMap<String, u64>,
    /// Why it did not, the most frequent reason first.
    pub reasons: Vec<(String, u64)>,
    /// The Unix time of the last hit.
    pub last_hit: Option<f64>,
    /// Responses of the origin.
    pub origin_count: u64,
    /// How long they took to come, in all.
    pub origin_seconds: f64,
    /// What the origin would have taken for the hits.
    pub saved_seconds: f64,
    /// Bytes of the hits.
    pub saved_bytes: u64,
    /// What to change.
    pub advice: Option<Advice>,
}

/// All figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The Unix time of the reading.
    pub at: f64,
    /// The Unix time of the start.
    pub since: f64,
    /// The version that runs.
    pub version: String,
    /// What the cache does on the routes: `serve`, `learn`, `mixed` if some learn, or `mirror`.
    pub mode: String,
    /// The bounds of durations, in seconds.
    pub bounds: Vec<f64>,
    /// Durations of requests, by how the cache answered.
    pub results: BTreeMap<String, Times>,
    /// Requests by class of status.
    pub statuses: BTreeMap<String, u64>,
    /// Bytes of bodies sent to clients.
    pub sent_bytes: u64,
    /// Bytes of those that came from the cache.
    pub saved_bytes: u64,
    /// What the origin would have taken for the hits.
    pub saved_seconds: f64,
    /// The origins.
    pub origin: OriginStatus,
    /// The store.
    pub store: StoreStatus,
    /// The connections of clients.
    pub connections: ConnectionStatus,
    /// Memory.
    pub memory: MemoryStatus,
    /// Routes whose requests bypass the cache by order of an operator.
    pub bypasses: Vec<ListedBypass>,
    /// How many patterns of pages the audit has stopped from being shared.
    #[serde(default)]
    pub stopped: u64,
    /// The last reload, if it was refused: the configuration before it is in force.
    #[serde(default)]
    pub refused_reload: Option<RefusedReload>,
    /// Routes that had requests, the busiest first.
    pub routes: Vec<RouteStatus>,
}

/// A URL that the cache did not answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedMiss {
    /// The site.
    pub host: String,
    /// The path.
    pub path: String,
    /// Names of query parameters.
    pub parameters: Vec<String>,
    /// The route.
    pub route: Option<String>,
    /// The reason of the last such request.
    pub reason: String,
    /// How many requests there were.
    pub count: u64,
    /// How long their answers took, in all.
    pub seconds: f64,
    /// The Unix time of the last one.
    pub last: f64,
}

/// The URLs that the cache did not answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MissesListing {
    /// The most missed first.
    pub misses: Vec<ListedMiss>,
}

impl Commands {
    /// The figures now.
    pub(super) fn status(&self) -> Status {
        let parts = &self.status_parts;
        let metrics = &parts.metrics;
        let routes = metrics.routes();
        let mut origin = Durations::default();
        routes.iter().for_each(|route| origin.add(&route.origin));
        let counters = parts.store.counters();
        let (counted, calls) = (counters.read(), counters.calls());
        let pages = parts.pages.memory();
        Status {
            at: unix_now(),
            since: parts.since,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            mode: self.cache_mode().to_owned(),
            bounds: BOUNDS.to_vec(),
            results: results(&routes),
            statuses: metrics.statuses().into_iter().collect(),
            sent_bytes: metrics.total(Count::BytesSent),
            saved_bytes: routes.iter().map(|route| route.saved_bytes).sum(),
            saved_seconds: routes.iter().map(|route| seconds(route.saved_micros)).sum(),
            origin: OriginStatus {
                requests: metrics.total(Count::OriginRequests),
                errors: metrics.total(Count::OriginErrors),
                times: Times::of(&origin),
            },
            store: StoreStatus {
                connected: self.store.state() == StoreState::Connected,
                timeouts: counted.timeouts,
                failures: counted.failures,
                breaker_openings: counted.breaker_openings,
                pages_bytes: counters.page_bytes(),
                bounds: CALL_BOUNDS.to_vec(),
                calls: Times {
                    count: calls.buckets.iter().sum(),
                    seconds: seconds(calls.micros),
                    buckets: calls.buckets.to_vec(),
                },
            },
            connections: ConnectionStatus {
                open: parts.connections.open() as u64,
                tunnels: parts.tunnels.open() as u64,
                per_thread: metrics.open_connections(),
            },
            memory: MemoryStatus {
                resident: anteroom_telemetry::metrics::resident_bytes(),
                pages: pages.bytes(),
                pages_max: pages.capacity(),
                page_count: pages.len() as u64,
                in_flight: parts.pages.flights.bytes(),
            },
            bypasses: self.list_bypasses().bypasses,
            stopped: self.worker.pages.purged.bypass.stopped().len() as u64,
            refused_reload: self.reloads.last_refused(),
            routes: self.routes_status(&routes),
        }
    }

    fn routes_status(&self, routes: &[RouteTotals]) -> Vec<RouteStatus> {
        let cookies = cookie_report(&self.kinds, &self.metrics.cookies());
        let misses = self.metrics.misses();
        let settings = &self.worker.settings;
        let has_default_ttl = !self.worker.filler.policy.default_ttl.is_zero();
        let status = |route: &RouteTotals| RouteStatus {
            advice: advice(settings, has_default_ttl, route, &misses, &cookies),
            ..route_status(route)
        };
        let mut all: Vec<_> = routes.iter().map(status).filter(|route| route.count > 0).collect();
        all.sort_by_key(|route| std::cmp::Reverse(route.count));
        all
    }

    /// The URLs that the cache did not answer.
    pub(super) fn misses(&self) -> MissesListing {
        let missed = |url: MissedUrl| ListedMiss {
            host: url.host,
            path: url.path,
            parameters: url.parameters,
            route: url.route.map(|name| name.to_string()),
            reason: url.reason.as_str().to_owned(),
            count: url.count,
            seconds: url.took.as_secs_f64(),
            last: url.last,
        };
        MissesListing { misses: self.metrics.misses().into_iter().map(missed).collect() }
    }
}

/// Durations over all routes.
fn results(routes: &[RouteTotals]) -> BTreeMap<String, Times> {
    let sum = |outcome: Outcome| {
        let mut all = Durations::default();
        routes.iter().for_each(|route| all.add(route.of(outcome)));
        (outcome.as_str().to_owned(), Times::of(&all))
    };
    Outcome::ALL.into_iter().map(sum).collect()
}

/// What is told of a route, without advice.
fn route_status(route: &RouteTotals) -> RouteStatus {
    let counted = |outcome: Outcome| {
        let count = route.of(outcome).count();
        (count > 0).then(|| (outcome.as_str().to_owned(), count))
    };
    let reasons = route.top_reasons().into_iter();
    RouteStatus {
        name: route.name.to_string(),
        count: route.times.iter().map(Durations::count).sum(),
        seconds: route.times.iter().map(Durations::seconds).sum(),
        results: Outcome::ALL.into_iter().filter_map(counted).collect(),
        reasons: reasons
            .map(|(reason, count)| (Reason::as_str(reason).to_owned(), count))
            .collect(),
        last_hit: route.last_hit,
        origin_count: route.origin.count(),
        origin_seconds: route.origin.seconds(),
        saved_seconds: seconds(route.saved_micros),
        saved_bytes: route.saved_bytes,
        advice: None,
    }
}
