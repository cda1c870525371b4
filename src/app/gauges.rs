//! The metrics that are read at each scrape.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use anteroom_http::clock::{self, unix_now};
use anteroom_origin::ServerList;
use anteroom_policy::priority::RequestClass;
use anteroom_store::{BypassScope, CALL_BOUNDS, CallTimes, OpenStore};
use anteroom_telemetry::access_log::AccessLog;
use anteroom_telemetry::message_log;
use anteroom_telemetry::metrics::{HistogramReading, Metrics, Reading};
use arc_swap::ArcSwap;

use super::acme;
use super::live_config::LiveConfig;
use super::possible_reasons::may_occur;
use super::shared_state::SharedState;

/// Registers all metrics except those of TLS and the store's state.
pub(super) fn register(
    shared: &SharedState,
    live: &Arc<ArcSwap<LiveConfig>>,
    store: &OpenStore,
    log: Option<&Arc<AccessLog>>,
) {
    let metrics = &*shared.metrics;
    process(metrics);
    let present = Arc::clone(live);
    metrics.show_reasons(move |reason| may_occur(reason, &present.load()));
    origins(live, metrics);
    connections(shared, metrics);
    pages(shared, metrics);
    purges(shared, metrics);
    bypasses(shared, metrics);
    audits(shared, metrics);
    reloads(shared, metrics);
    visits(shared, metrics);
    visitors(shared, metrics);
    sessions(shared, live, metrics);
    self::store(store, metrics);
    fleet(shared, metrics);
    acme::register(&shared.certificates.board, metrics);
    let help = "Messages that did not reach standard error";
    metrics.counter("anteroom_messages_lost", help, message_log::lost);
    let help = "Messages that wait to be written to standard error";
    metrics.gauge("anteroom_messages_waiting", help, message_log::waiting);
    if let Some(log) = log {
        let log = Arc::clone(log);
        metrics.counter("anteroom_log_dropped", "Access-log lines dropped", move || log.dropped());
    }
}

/// Registers the reachability of the store.
pub(super) fn register_store_state(connected: &Arc<AtomicBool>, metrics: &Metrics) {
    let connected = Arc::clone(connected);
    let help = "Whether the store can be reached";
    metrics.gauge("anteroom_store_connected", help, move || u64::from(connected.load(Relaxed)));
}

fn process(metrics: &Metrics) {
    metrics.watch_process(unix_now());
    let version =
        || Reading { labels: vec![("version", env!("CARGO_PKG_VERSION").to_owned())], value: 1 };
    metrics.gauges("anteroom_build_info", "The version that runs", move || vec![version()]);
}

fn origins(live: &Arc<ArcSwap<LiveConfig>>, metrics: &Metrics) {
    let present = Arc::clone(live);
    let help = "Whether a server of an origin is asked";
    metrics.gauges("anteroom_origin_server_up", help, move || {
        let mut readings = Vec::new();
        for server_list in present.load().origins.server_lists() {
            let standings = server_list.standings().into_iter();
            readings.extend(standings.map(|server| Reading {
                labels: vec![
                    ("origin", server_list.name().to_owned()),
                    ("server", server.name.to_owned()),
                ],
                value: u64::from(server.is_up),
            }));
        }
        readings
    });
    let present = Arc::clone(live);
    metrics.gauges("anteroom_origin_waiting", "Requests that wait for a server", move || {
        let live = present.load();
        let reading = |server_list: &Arc<ServerList>| Reading {
            labels: vec![("origin", server_list.name().to_owned())],
            value: server_list.waiting() as u64,
        };
        live.origins.server_lists().map(reading).collect()
    });
    let present = Arc::clone(live);
    let help = "Requests that wait for a server, by class";
    metrics.gauges("anteroom_origin_class_waiting", help, move || {
        let mut readings = Vec::new();
        for server_list in present.load().origins.server_lists() {
            let waiting = RequestClass::ALL.into_iter().zip(server_list.waiting_by_class());
            readings.extend(waiting.map(|(class, waiting)| Reading {
                labels: vec![
                    ("origin", server_list.name().to_owned()),
                    ("class", class.as_str().to_owned()),
                ],
                value: waiting as u64,
            }));
        }
        readings
    });
}

fn connections(shared: &SharedState, metrics: &Metrics) {
    let open = Arc::clone(&shared.connections);
    metrics.gauge("anteroom_connections", "Client connections open", move || open.open() as u64);
    let tunnels = Arc::clone(&shared.tunnels);
    metrics.gauge("anteroom_tunnels", "Tunnels open", move || tunnels.open() as u64);
    let of_all = Arc::downgrade(&shared.metrics);
    metrics.gauges(
        "anteroom_thread_connections",
        "Client connections open, by thread",
        move || {
            let open =
                of_all.upgrade().map(|metrics| metrics.open_connections()).unwrap_or_default();
            let reading = |(thread, value)| Reading {
                labels: vec![("thread", usize::to_string(&thread))],
                value,
            };
            open.into_iter().enumerate().map(reading).collect()
        },
    );
}

fn pages(shared: &SharedState, metrics: &Metrics) {
    let pages = Arc::clone(&shared.pages);
    metrics.gauge("anteroom_memory_pages_bytes", "Bytes of pages in memory", move || {
        pages.memory().bytes()
    });
    let pages = Arc::clone(&shared.pages);
    let help = "Room for pages in memory; smaller near the process's memory limit";
    metrics.gauge("anteroom_memory_pages_max_bytes", help, move || pages.memory().capacity());
    let pages = Arc::clone(&shared.pages);
    metrics.gauge("anteroom_memory_pages", "Pages in memory", move || pages.memory().len() as u64);
    let flights = Arc::clone(&shared.pages.flights);
    metrics.gauge("anteroom_in_flight_bytes", "Bytes of bodies in flight", move || flights.bytes());
    let flights = Arc::clone(&shared.pages.flights);
    metrics.gauge("anteroom_waiting", "Requests that wait for another one's fetch", move || {
        flights.waiting() as u64
    });
}

fn purges(shared: &SharedState, metrics: &Metrics) {
    let purged = Arc::clone(&shared.pages.purged);
    metrics.gauge("anteroom_cut_off", "Whether purges by others may be missing", move || {
        u64::from(purged.is_cut_off())
    });
    let purged = Arc::clone(&shared.pages.purged);
    metrics.gauge("anteroom_purges_waiting", "Purges that the store lacks", move || {
        purged.waiting().0 as u64
    });
    let purged = Arc::clone(&shared.pages.purged);
    metrics.counter("anteroom_purges_late", "Purges that the store did not take at once", {
        move || purged.waiting().1
    });
}

/// `*` stands for all routes, and always has a reading.
fn bypasses(shared: &SharedState, metrics: &Metrics) {
    let purged = Arc::clone(&shared.pages.purged);
    let help = "Whether a route is switched to bypass; * is all routes";
    metrics.gauges("anteroom_bypass", help, move || {
        let reading =
            |route: &str, value| Reading { labels: vec![("route", route.to_owned())], value };
        let mut list = purged.bypass.list();
        list.dedup_by(|a, b| a.scope == b.scope);
        let routes = list.iter().filter_map(|one| one.scope.route());
        let is_on = list.iter().any(|one| one.scope == BypassScope::All);
        let of_routes = routes.map(|route| reading(route, 1));
        [reading("*", u64::from(is_on))].into_iter().chain(of_routes).collect()
    });
}

/// What the audit of hits has found, and what it has stopped.
fn audits(shared: &SharedState, metrics: &Metrics) {
    let audits = Arc::clone(&shared.audits);
    let help = "Hits that were compared with the app's own answer";
    metrics.counter("anteroom_audit_compared", help, move || audits.totals().compared);
    let audits = Arc::clone(&shared.audits);
    let help = "Hits for which the app answered something else";
    metrics.counter("anteroom_audit_differed", help, move || audits.totals().differed);
    let audits = Arc::clone(&shared.audits);
    let help = "Stored pages that held a visitor's own words";
    metrics.counter("anteroom_audit_leaks", help, move || audits.totals().leaks);
    let purged = Arc::clone(&shared.pages.purged);
    let help = "Patterns of URLs that the audit has stopped from being shared";
    metrics.gauge("anteroom_audit_stopped", help, move || purged.bypass.stopped().len() as u64);
}

fn reloads(shared: &SharedState, metrics: &Metrics) {
    let reloads = Arc::clone(&shared.reloads);
    metrics.counter("anteroom_reloads", "Configurations put into force by a reload", move || {
        reloads.done.load(Relaxed)
    });
    let reloads = Arc::clone(&shared.reloads);
    metrics.counter("anteroom_reloads_refused", "Reloads that changed nothing", move || {
        reloads.refused.load(Relaxed)
    });
    let failed = Arc::clone(&shared.upgrades_failed);
    let help = "Processes that wanted to take over and did not";
    metrics.counter("anteroom_upgrades_failed", help, move || failed.load(Relaxed));
}

fn visits(shared: &SharedState, metrics: &Metrics) {
    let visits = Arc::clone(&shared.visits);
    metrics.gauge("anteroom_visits_waiting", "Visits that wait for the store", move || {
        visits.backlog() as u64
    });
    let visits = Arc::clone(&shared.visits);
    metrics
        .counter("anteroom_visits_dropped", "Visits and views dropped", move || visits.dropped());
}

/// The metrics of anonymous visitors.
fn visitors(shared: &SharedState, metrics: &Metrics) {
    let visits = Arc::clone(&shared.visitor_visits);
    let help = "Visits with a visitor token that were dropped";
    metrics.counter("anteroom_visitor_visits_dropped", help, move || visits.dropped());
    let kept = Arc::clone(&shared.visitor_tokens);
    let help = "Visitor tokens in the store, as the cleaner last saw";
    metrics.gauge("anteroom_visitor_tokens_kept", help, move || kept.load(Relaxed));
}

fn sessions(shared: &SharedState, live: &Arc<ArcSwap<LiveConfig>>, metrics: &Metrics) {
    let present = Arc::clone(live);
    metrics.gauge("anteroom_log_outs_waiting", "Logouts that wait for the store", move || {
        present.load().sessions.log_outs_waiting() as u64
    });
    let waiting = Arc::clone(&shared.events_waiting);
    let help = "Abandoned carts that wait for the webhook";
    metrics.gauge("anteroom_cart_events_waiting", help, move || waiting.load(Relaxed));
}

fn store(store: &OpenStore, metrics: &Metrics) {
    let bytes = store.clone();
    let help = "Bytes of pages in the store, as it last said";
    metrics.gauge("anteroom_store_pages_bytes", help, move || bytes.counters().page_bytes());
    let calls = store.clone();
    metrics.histogram("anteroom_store_seconds", "Time of calls of a store in Redis", move || {
        let CallTimes { buckets, micros } = calls.counters().calls();
        HistogramReading { bounds: &CALL_BOUNDS, buckets: buckets.to_vec(), micros }
    });
    let timeouts = store.clone();
    metrics.counter("anteroom_store_timeouts", "Store calls over their budget", move || {
        timeouts.counters().read().timeouts
    });
    let openings = store.clone();
    metrics.counter("anteroom_store_breaker_openings", "Times the breaker opened", move || {
        openings.counters().read().breaker_openings
    });
}

fn fleet(shared: &SharedState, metrics: &Metrics) {
    let fleet = Arc::clone(&shared.fleet);
    let help = "Proxies on the store, this one included, as last seen";
    metrics.gauge("anteroom_fleet_proxies", help, move || fleet.proxies());
    let fleet = Arc::clone(&shared.fleet);
    let help = "Proxies on the store that differ in settings that must be alike";
    metrics.gauge("anteroom_fleet_differing", help, move || fleet.mismatched());
    let help = "Seconds between this machine's clock and the time in use, without a sign";
    metrics.gauge("anteroom_clock_difference_seconds", help, || clock::difference().abs() as u64);
}
