//! What happened between two readings of the figures.

use std::collections::BTreeMap;

use anteroom::admin::{
    ConnectionStatus, ListedBypass, MemoryStatus, Outcome, RouteStatus, Status, Times,
};
use serde::Serialize;

/// Durations of one kind. Names are stable.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Speed {
    /// How many there were in a second.
    pub(super) per_second: f64,
    /// The median, in milliseconds.
    pub(super) p50_ms: Option<f64>,
    /// What 99 % do not exceed, in milliseconds.
    pub(super) p99_ms: Option<f64>,
}

/// The origins.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OriginRates {
    /// Requests that failed, in a second.
    pub(super) errors_per_second: f64,
    /// To the head of the response.
    #[serde(flatten)]
    pub(super) responses: Speed,
}

/// The store.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StoreRates {
    pub(super) connected: bool,
    /// Calls over their budget, since the start.
    pub(super) timeouts: u64,
    /// Calls that failed, since the start.
    pub(super) failures: u64,
    /// How often the breaker opened, since the start.
    pub(super) breaker_openings: u64,
    /// Whether it opened between the readings.
    pub(super) breaker_opened: bool,
    /// Calls over the network.
    #[serde(flatten)]
    pub(super) calls: Speed,
}

/// A route.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RouteRates {
    pub(super) name: String,
    pub(super) requests_per_second: f64,
    /// The part of its requests for pages that were hits, 0 to 1.
    pub(super) hit_share: Option<f64>,
    /// The part for which the origin confirmed a stored page, 0 to 1.
    pub(super) revalidated_share: Option<f64>,
    /// Why most others were none; if there were none, since the start.
    pub(super) reason: Option<String>,
    /// The Unix time of the last hit.
    pub(super) last_hit: Option<f64>,
    /// How long the origin took on average, in milliseconds.
    pub(super) origin_ms: Option<f64>,
}

/// All figures of the time between two readings. Names are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rates {
    /// The Unix time of the second reading.
    pub(super) at: f64,
    /// How long the time is, in seconds.
    pub(super) seconds: f64,
    pub(super) version: String,
    /// What the cache does on the routes: `serve`, `learn`, `mixed` or `mirror`.
    pub(super) mode: String,
    /// Routes whose requests bypass the cache by order of an operator.
    pub(super) bypasses: Vec<ListedBypass>,
    /// How long the proxy runs, in seconds.
    pub(super) up_seconds: f64,
    pub(super) requests_per_second: f64,
    /// The part of the requests for pages that were hits, 0 to 1.
    pub(super) hit_share: Option<f64>,
    /// The part for which the origin confirmed a stored page, 0 to 1.
    pub(super) revalidated_share: Option<f64>,
    /// How many seconds the origin would have worked for the hits of a second.
    pub(super) origin_seconds_saved_per_second: f64,
    pub(super) sent_bytes_per_second: f64,
    /// Responses in a second, by class of status, those that have occurred since the start.
    pub(super) statuses: BTreeMap<String, f64>,
    /// By how the cache answered, those that have occurred since the start.
    pub(super) results: BTreeMap<String, Speed>,
    pub(super) origin: OriginRates,
    pub(super) store: StoreRates,
    pub(super) connections: ConnectionStatus,
    pub(super) memory: MemoryStatus,
    /// The longest bound of durations, in milliseconds: a percentile that has it may be longer.
    pub(super) longest_ms: f64,
    pub(super) routes: Vec<RouteRates>,
}

impl Rates {
    /// What happened between two readings; `None` if they are of two processes, or not in this order.
    pub(super) fn between(first: &Status, second: &Status) -> Option<Self> {
        let seconds = second.at - first.at;
        #[expect(clippy::float_cmp, reason = "both are the same time, or of two processes")]
        let is_another = first.since != second.since;
        if is_another || seconds <= 0.0 {
            return None;
        }
        let span = Span { seconds };
        let counts = |is_counted| span.counts(&first.results, &second.results, is_counted);
        let shares = Shares {
            hits: counts(is_hit),
            revalidated: counts(is_revalidated),
            pages: counts(is_of_page),
        };
        let status = |(class, count): (&String, &u64)| {
            let before = first.statuses.get(class).copied().unwrap_or_default();
            (class.clone(), span.rate(before, *count))
        };
        let occurred = second.statuses.iter().filter(|(_, count)| **count > 0);
        Some(Self {
            at: second.at,
            seconds,
            version: second.version.clone(),
            mode: second.mode.clone(),
            bypasses: second.bypasses.clone(),
            up_seconds: second.at - second.since,
            requests_per_second: span.rate(0, counts(|_| true)),
            hit_share: shares.of_hits(),
            revalidated_share: shares.of_revalidated(),
            origin_seconds_saved_per_second: (second.saved_seconds - first.saved_seconds).max(0.0)
                / seconds,
            sent_bytes_per_second: span.rate(first.sent_bytes, second.sent_bytes),
            statuses: occurred.map(status).collect(),
            results: span.results(first, second),
            origin: OriginRates {
                errors_per_second: span.rate(first.origin.errors, second.origin.errors),
                responses: span.speed(&first.origin.times, &second.origin.times, &second.bounds),
            },
            store: span.store(first, second),
            connections: second.connections.clone(),
            memory: second.memory.clone(),
            longest_ms: second.bounds.last().copied().unwrap_or_default() * 1e3,
            routes: second.routes.iter().map(|route| span.route(first, route)).collect(),
        })
    }
}

/// The time between two readings.
struct Span {
    seconds: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts, shown as rates")]
impl Span {
    fn rate(&self, before: u64, now: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds
    }

    fn counts(
        &self,
        before: &BTreeMap<String, Times>,
        now: &BTreeMap<String, Times>,
        is_counted: fn(&str) -> bool,
    ) -> u64 {
        let since = |(name, times): (&String, &Times)| {
            let before = before.get(name).map_or(0, |times| times.count);
            times.count.saturating_sub(before)
        };
        now.iter().filter(|(name, _)| is_counted(name)).map(since).sum()
    }

    fn speed(&self, before: &Times, now: &Times, bounds: &[f64]) -> Speed {
        let times = now.since(before);
        let millis = |share: f64| times.quantile(bounds, share).map(|seconds| seconds * 1e3);
        Speed { per_second: self.rate(0, times.count), p50_ms: millis(0.5), p99_ms: millis(0.99) }
    }

    fn results(&self, first: &Status, second: &Status) -> BTreeMap<String, Speed> {
        let none = Times::default();
        let occurred = second.results.iter().filter(|(_, times)| times.count > 0);
        occurred
            .map(|(name, times)| {
                let before = first.results.get(name).unwrap_or(&none);
                (name.clone(), self.speed(before, times, &second.bounds))
            })
            .collect()
    }

    fn store(&self, first: &Status, second: &Status) -> StoreRates {
        let (before, now) = (&first.store, &second.store);
        StoreRates {
            connected: now.connected,
            timeouts: now.timeouts,
            failures: now.failures,
            breaker_openings: now.breaker_openings,
            breaker_opened: now.breaker_openings > before.breaker_openings,
            calls: self.speed(&before.calls, &now.calls, &now.bounds),
        }
    }

    fn route(&self, first: &Status, now: &RouteStatus) -> RouteRates {
        let before = first.routes.iter().find(|route| route.name == now.name);
        let count_before = before.map_or(0, |route| route.count);
        let counts = |is_counted: fn(&str) -> bool| {
            let sum = |route: &RouteStatus| -> u64 {
                let counted = route.results.iter().filter(|(name, _)| is_counted(name));
                counted.map(|(_, count)| count).sum()
            };
            sum(now).saturating_sub(before.map_or(0, sum))
        };
        let shares = Shares {
            hits: counts(is_hit),
            revalidated: counts(is_revalidated),
            pages: counts(is_of_page),
        };
        let asked = now.origin_count.saturating_sub(before.map_or(0, |route| route.origin_count));
        let waited = now.origin_seconds - before.map_or(0.0, |route| route.origin_seconds);
        RouteRates {
            name: now.name.clone(),
            requests_per_second: self.rate(count_before, now.count),
            hit_share: shares.of_hits(),
            revalidated_share: shares.of_revalidated(),
            reason: top_reason(before, now),
            last_hit: now.last_hit,
            origin_ms: (asked > 0).then(|| waited.max(0.0) * 1e3 / asked as f64),
        }
    }
}

/// The reason that came most often between two readings, or else since the start.
fn top_reason(before: Option<&RouteStatus>, now: &RouteStatus) -> Option<String> {
    let counted = |reason: &str| {
        let reasons = before.into_iter().flat_map(|route| &route.reasons);
        reasons.filter(|(known, _)| known == reason).map(|(_, count)| *count).sum::<u64>()
    };
    let recent = now.reasons.iter().map(|(reason, count)| {
        let count = count.saturating_sub(counted(reason));
        (reason, count)
    });
    let latest = recent.filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count);
    let reason = latest.map(|(reason, _)| reason).or_else(|| {
        let all = now.reasons.first();
        all.map(|(reason, _)| reason)
    });
    reason.cloned()
}

/// Requests for pages, and how many of them the cache answered without the origin, and with its consent.
struct Shares {
    hits: u64,
    revalidated: u64,
    pages: u64,
}

impl Shares {
    fn of_hits(&self) -> Option<f64> {
        self.of(self.hits)
    }

    fn of_revalidated(&self) -> Option<f64> {
        self.of(self.revalidated)
    }

    #[expect(clippy::cast_precision_loss, reason = "counts, shown as a share")]
    fn of(&self, part: u64) -> Option<f64> {
        (self.pages > 0).then(|| part as f64 / self.pages as f64)
    }
}

fn is_hit(result: &str) -> bool {
    Outcome::parse(result).is_some_and(Outcome::is_hit)
}

fn is_revalidated(result: &str) -> bool {
    Outcome::parse(result) == Some(Outcome::Revalidated)
}

fn is_of_page(result: &str) -> bool {
    Outcome::parse(result).is_some_and(Outcome::is_of_page)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A reading at a time, with so many hits and misses on the route `shop`.
    pub(crate) fn reading(at: f64, hits: u64, misses: u64) -> Status {
        let text = serde_json::json!({
            "at": at, "since": 1000.0, "version": "0.1.0", "mode": "serve", "bounds": [0.001, 0.01],
            "results": {
                "hit_memory": { "count": hits, "seconds": 0.1, "buckets": [hits, 0, 0] },
                "miss": { "count": misses, "seconds": 0.1, "buckets": [0, misses, 0] },
                "bypass": { "count": 0, "seconds": 0.0, "buckets": [0, 0, 0] },
            },
            "statuses": { "2xx": hits, "5xx": misses },
            "sent_bytes": hits * 100, "saved_bytes": 0, "saved_seconds": hits as f64 / 10.0,
            "origin": {
                "requests": misses, "errors": misses, "count": misses, "seconds": 0.0,
                "buckets": [0, misses, 0],
            },
            "store": {
                "connected": true, "timeouts": 0, "failures": 0, "breaker_openings": misses,
                "pages_bytes": 0, "bounds": [0.001], "count": 0, "seconds": 0.0, "buckets": [0, 0],
            },
            "connections": { "open": 3, "tunnels": 0, "per_thread": [1, 2] },
            "bypasses": [],
            "memory": { "resident": 1 << 27, "pages": 1 << 20, "page_count": 7, "in_flight": 0 },
            "routes": [{
                "name": "shop", "count": hits + misses, "seconds": 0.0,
                "results": { "hit_memory": hits, "miss": misses },
                "reasons": [["miss", misses], ["rank", 1]], "last_hit": at - 2.0,
                "origin_count": misses, "origin_seconds": misses as f64 / 100.0,
                "saved_seconds": 0.0, "saved_bytes": 0, "advice": null,
            }],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let rates = Rates::between(&reading(2000.0, 100, 4), &reading(2002.0, 118, 6)).unwrap();
        let is = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
        is(rates.seconds, 2.0);
        is(rates.up_seconds, 1002.0);
        is(rates.requests_per_second, 10.0);
        is(rates.hit_share.unwrap(), 0.9);
        is(rates.origin_seconds_saved_per_second, 0.9);
        is(rates.sent_bytes_per_second, 900.0);
        is(rates.statuses["5xx"], 1.0);
        is(rates.results["hit_memory"].p50_ms.unwrap(), 0.5);
        is(rates.results["miss"].p99_ms.unwrap(), 9.91);
        assert!(!rates.results.contains_key("bypass"), "it has never occurred");
        is(rates.origin.errors_per_second, 1.0);
        assert!(rates.store.breaker_opened);
        let route = &rates.routes[0];
        is(route.requests_per_second, 10.0);
        is(route.hit_share.unwrap(), 0.9);
        is(route.origin_ms.unwrap(), 10.0);
        assert_eq!(route.reason.as_deref(), Some("miss"));
    }

    #[test]
    fn a_hit_is_an_answer_without_the_origin_and_counts_among_requests_for_pages() {
        let (first, mut second) = (reading(2000.0, 0, 0), reading(2001.0, 4, 2));
        for (result, count) in
            [("hit_stale", 1), ("revalidated", 2), ("bypass", 1), ("endpoint", 9)]
        {
            let times = serde_json::json!({ "count": count, "seconds": 0.0, "buckets": [0, 0, 0] });
            second.results.insert(result.to_owned(), serde_json::from_value(times).unwrap());
            second.routes[0].results.insert(result.to_owned(), count);
        }
        let rates = Rates::between(&first, &second).unwrap();
        let route = &rates.routes[0];
        assert_eq!((rates.hit_share, rates.revalidated_share), (Some(0.5), Some(0.2)));
        assert_eq!((route.hit_share, route.revalidated_share), (Some(0.5), Some(0.2)));
    }

    #[test]
    fn without_requests_there_is_no_share_and_the_reason_is_that_of_all_time() {
        let rates = Rates::between(&reading(2000.0, 100, 4), &reading(2001.0, 100, 4)).unwrap();
        assert_eq!((rates.hit_share, rates.results["miss"].p50_ms), (None, None));
        let route = &rates.routes[0];
        assert_eq!((route.hit_share, route.origin_ms), (None, None));
        assert_eq!(route.reason.as_deref(), Some("miss"));
    }

    #[test]
    fn readings_of_two_processes_make_no_rates() {
        let first = reading(2000.0, 100, 4);
        let restarted = Status { since: 2000.5, ..reading(2001.0, 1, 0) };
        assert!(Rates::between(&first, &restarted).is_none());
        assert!(Rates::between(&first, &first).is_none());
    }
}
