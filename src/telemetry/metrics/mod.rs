//! What is counted, named once with its meaning, and the page that `/metrics` shows.
//!
//! Each thread counts on a sheet of its own, without contention; a scrape adds the sheets up.

mod cookies;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use self::cookies::Jar;
use crate::telemetry::reason::Reason;

pub use cookies::{Cookies, Crumb, NAMES_MAX, Tally};

/// How a request was answered, as far as the cache goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// From this process's memory.
    HitMemory,
    /// From the store.
    HitStore,
    /// From a fetch that another request began.
    HitFlight,
    /// A page that is fresh no more, while it is fetched anew or the origin fails.
    HitStale,
    /// A page of which the origin said, by a 304, that it is right still.
    Revalidated,
    /// From the origin, through a fetch for the cache.
    Miss,
    /// Forwarded.
    Bypass,
    /// Answered by us, as an endpoint under `/_anteroom/`.
    Endpoint,
    /// Answered by us with an error.
    Error,
}

impl Outcome {
    const ALL: [(Self, &'static str); 9] = [
        (Self::HitMemory, "hit_memory"),
        (Self::HitStore, "hit_store"),
        (Self::HitFlight, "hit_flight"),
        (Self::HitStale, "hit_stale"),
        (Self::Revalidated, "revalidated"),
        (Self::Miss, "miss"),
        (Self::Bypass, "bypass"),
        (Self::Endpoint, "endpoint"),
        (Self::Error, "error"),
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Plain counters, one family each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Count {
    /// Connections accepted.
    Accepted,
    /// Connections refused because a cap was reached.
    ConnectionsRefused,
    /// Connections of peers that `[client] allow` and `deny` keep out.
    ConnectionsDenied,
    /// Connections whose client was too slow, silent or idle for too long.
    ConnectionsTimedOut,
    /// Idle connections of which nothing but the socket was kept, for as long as nothing came.
    ConnectionsLaidAside,
    /// Connections of load balancers that did not begin with a header of the PROXY protocol.
    ProxyHeadersRefused,
    /// Handshakes of TLS with clients.
    TlsHandshakes,
    /// Handshakes of TLS that failed.
    TlsHandshakesFailed,
    /// Requests that the HTTP parser refused (bare 400, 414 or 431).
    ParseErrors,
    /// Responses over HTTP/2 that the client did not take.
    StreamsStalled,
    /// Requests over HTTP/2 that were refused because a cap was reached.
    StreamsRefused,
    /// Bytes of bodies sent to clients.
    BytesSent,
    /// Requests sent to the origin.
    OriginRequests,
    /// Connections opened to the origin.
    OriginConnections,
    /// Requests sent again on a fresh connection, because a kept one had died.
    OriginRetries,
    /// Requests sent again to another server of the origin, because one had failed.
    OriginRetriesElsewhere,
    /// Requests that no server of the origin had room for, or was up for.
    OriginRefused,
    /// Requests to the origin that failed.
    OriginErrors,
    /// Idle connections to the origin that broke or said something unasked.
    OriginIdleErrors,
    /// Interim responses of the origin that the client could not be given.
    InterimDropped,
    /// Holes in pages that were filled.
    HolesFilled,
    /// Holes in pages that could not be filled.
    HolesUnfilled,
    /// Pages stored.
    Stored,
    /// Pages that the store refused or failed to take.
    StoreWriteErrors,
    /// Reads from the store that failed or took too long.
    StoreReadErrors,
    /// Visits noted.
    Visits,
    /// Log-ins minted.
    LogIns,
    /// Log-outs.
    LogOuts,
    /// Questions to an app who a visitor is.
    VerifyQuestions,
    /// Those of them that were not answered clearly.
    VerifyUnclear,
    /// Sessions cleaned.
    SessionsCleaned,
    /// Tokens given to visitors without a login.
    VisitorTokens,
    /// Times that there were too many for one address, so that none was given.
    VisitorTokensRefused,
    /// Those whose carts and views went to a session.
    VisitorTokensMerged,
    /// Those that were cleaned.
    VisitorTokensCleaned,
    /// Carts handed on before their sessions were cleaned.
    CartsHandedOn,
    /// Times that a cart could not be handed on, so that its session waits.
    CartsRefused,
    /// Carts that could not be handed on, and went with sessions that could not wait.
    CartsLost,
    /// Events that a webhook took.
    CartEventsDelivered,
    /// Times that a webhook did not take one.
    CartEventsFailed,
    /// Events that went for want of room before a webhook took them.
    CartEventsDropped,
    /// Events that a webhook refused, or failed with alone, until they were given up.
    CartEventsGivenUp,
    /// Rows fetched and kept.
    RowsFetched,
    /// Rows that could not be fetched.
    RowsFailed,
    /// Rows fetched in vain, because they were stopped, scheduled anew or taken meanwhile.
    RowsDropped,
    /// Runs of background tasks that failed.
    TaskErrors,
    /// Tunnels opened.
    TunnelsOpened,
    /// Tunnels refused because as many as may be were open.
    TunnelsRefused,
    /// Bytes that clients sent through tunnels.
    TunnelBytesReceived,
    /// Bytes sent to clients through tunnels.
    TunnelBytesSent,
}

impl Count {
    const ALL: [(Self, &'static str, &'static str); 50] = [
        (Self::Accepted, "anteroom_connections_accepted", "Client connections accepted"),
        (Self::ConnectionsRefused, "anteroom_connections_refused", "Client connections over a cap"),
        (
            Self::ConnectionsDenied,
            "anteroom_connections_denied",
            "Client connections not for their addresses",
        ),
        (
            Self::ConnectionsTimedOut,
            "anteroom_connections_timed_out",
            "Client connections closed at a deadline",
        ),
        (
            Self::ConnectionsLaidAside,
            "anteroom_connections_laid_aside",
            "Times that an idle client connection was reduced to its socket",
        ),
        (
            Self::ProxyHeadersRefused,
            "anteroom_proxy_headers_refused",
            "Connections of load balancers without a header of the PROXY protocol",
        ),
        (Self::TlsHandshakes, "anteroom_tls_handshakes", "TLS handshakes with clients"),
        (Self::TlsHandshakesFailed, "anteroom_tls_handshakes_failed", "TLS handshakes that failed"),
        (Self::ParseErrors, "anteroom_parse_errors", "Requests that the HTTP parser refused"),
        (
            Self::StreamsStalled,
            "anteroom_http2_streams_stalled",
            "Responses over HTTP/2 that the client did not take",
        ),
        (Self::StreamsRefused, "anteroom_http2_streams_refused", "Requests over HTTP/2 over a cap"),
        (Self::BytesSent, "anteroom_sent_bytes", "Bytes of bodies sent to clients"),
        (Self::OriginRequests, "anteroom_origin_requests", "Requests sent to the origin"),
        (
            Self::OriginConnections,
            "anteroom_origin_connections",
            "Connections opened to the origin",
        ),
        (Self::OriginRetries, "anteroom_origin_retries", "Requests sent again to the origin"),
        (
            Self::OriginRetriesElsewhere,
            "anteroom_origin_retries_elsewhere",
            "Requests sent again to another server of an origin",
        ),
        (
            Self::OriginRefused,
            "anteroom_origin_refused",
            "Requests for which no server of an origin was free or up",
        ),
        (Self::OriginErrors, "anteroom_origin_errors", "Requests that failed at the origin"),
        (
            Self::OriginIdleErrors,
            "anteroom_origin_idle_errors",
            "Idle origin connections that broke or spoke unasked",
        ),
        (
            Self::InterimDropped,
            "anteroom_interim_dropped",
            "Interim responses of the origin not passed on",
        ),
        (Self::HolesFilled, "anteroom_holes_filled", "Holes in pages that were filled"),
        (
            Self::HolesUnfilled,
            "anteroom_holes_unfilled",
            "Holes in pages that failed, and showed their fallback",
        ),
        (Self::Stored, "anteroom_pages_stored", "Pages stored"),
        (Self::StoreWriteErrors, "anteroom_store_write_errors", "Pages not taken by the store"),
        (Self::StoreReadErrors, "anteroom_store_read_errors", "Store reads failed or late"),
        (Self::Visits, "anteroom_visits", "Visits noted"),
        (Self::LogIns, "anteroom_log_ins", "Sessions minted"),
        (Self::LogOuts, "anteroom_log_outs", "Sessions ended by the origin"),
        (
            Self::VerifyQuestions,
            "anteroom_verify_questions",
            "Questions to the origin who a visitor is",
        ),
        (Self::VerifyUnclear, "anteroom_verify_unclear", "Those that it did not answer clearly"),
        (Self::SessionsCleaned, "anteroom_sessions_cleaned", "Sessions cleaned"),
        (
            Self::VisitorTokens,
            "anteroom_visitor_tokens",
            "Tokens given to visitors without a login",
        ),
        (
            Self::VisitorTokensRefused,
            "anteroom_visitor_tokens_refused",
            "Times that one address had been given too many of them",
        ),
        (
            Self::VisitorTokensMerged,
            "anteroom_visitor_tokens_merged",
            "Those that came to a log-in, and are no more",
        ),
        (Self::VisitorTokensCleaned, "anteroom_visitor_tokens_cleaned", "Those that were cleaned"),
        (Self::CartsHandedOn, "anteroom_carts_handed_on", "Abandoned carts handed on"),
        (
            Self::CartsRefused,
            "anteroom_carts_refused",
            "Times that an abandoned cart could not be handed on",
        ),
        (
            Self::CartsLost,
            "anteroom_carts_lost",
            "Abandoned carts that could not be handed on, of sessions that could not wait",
        ),
        (
            Self::CartEventsDelivered,
            "anteroom_cart_events_delivered",
            "Abandoned carts that the webhook took",
        ),
        (
            Self::CartEventsFailed,
            "anteroom_cart_events_failed",
            "Times that the webhook did not take one",
        ),
        (
            Self::CartEventsDropped,
            "anteroom_cart_events_dropped",
            "Abandoned carts that went for want of room before the webhook took them",
        ),
        (
            Self::CartEventsGivenUp,
            "anteroom_cart_events_given_up",
            "Abandoned carts that the webhook did not take for days, until they went",
        ),
        (Self::RowsFetched, "anteroom_rows_fetched", "Rows fetched and kept"),
        (Self::RowsFailed, "anteroom_rows_failed", "Rows that could not be fetched"),
        (Self::RowsDropped, "anteroom_rows_dropped", "Rows fetched in vain"),
        (Self::TaskErrors, "anteroom_task_errors", "Background runs that failed"),
        (Self::TunnelsOpened, "anteroom_tunnels_opened", "Tunnels opened (WebSocket and the like)"),
        (Self::TunnelsRefused, "anteroom_tunnels_refused", "Tunnels over the bound"),
        (
            Self::TunnelBytesReceived,
            "anteroom_tunnel_received_bytes",
            "Bytes that clients sent through tunnels",
        ),
        (Self::TunnelBytesSent, "anteroom_tunnel_sent_bytes", "Bytes sent to clients in tunnels"),
    ];
}

/// Why the store did not take a page: for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Unstored {
    /// Over `[store] max_page`.
    TooLarge,
    /// The store is nearly full, and the page was asked for only once.
    NearlyFull,
    /// The store is full.
    Full,
}

impl Unstored {
    const ALL: [(Self, &'static str); 3] =
        [(Self::TooLarge, "too-large"), (Self::NearlyFull, "nearly-full"), (Self::Full, "full")];
}

/// What ended a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TunnelEnd {
    /// The client ended it first, or broke off.
    Client,
    /// The origin did.
    Origin,
    /// Nothing moved for `[limits] tunnel_idle`.
    Idle,
    /// We stopped.
    Cut,
}

impl TunnelEnd {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Client, "client"),
        (Self::Origin, "origin"),
        (Self::Idle, "idle"),
        (Self::Cut, "cut"),
    ];
}

/// Why a connection of HTTP/2 was cut: its client kept us busy for nothing, or broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// Too many frames of data without data.
    Data,
    /// Too many priorities.
    Priority,
    /// Too many requests taken back.
    Reset,
    /// Too many settings.
    Settings,
    /// Too many pings.
    Ping,
    /// Too many windows opened.
    WindowUpdate,
    /// Heads in too many parts.
    Continuation,
    /// Too many frames that mean nothing.
    Other,
    /// What the library has a bound for: resets, errors of streams, small frames, heads.
    Calm,
    /// The protocol was broken.
    Protocol,
}

impl Cut {
    const ALL: [(Self, &'static str); 10] = [
        (Self::Data, "data"),
        (Self::Priority, "priority"),
        (Self::Reset, "reset"),
        (Self::Settings, "settings"),
        (Self::Ping, "ping"),
        (Self::WindowUpdate, "window-update"),
        (Self::Continuation, "continuation"),
        (Self::Other, "other"),
        (Self::Calm, "calm"),
        (Self::Protocol, "protocol"),
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}
/// The most limits that are counted apart.
const LIMITS_MAX: usize = 2_000;
/// Under which name further ones are counted.
const OTHERS: &str = "others";

/// Upper bounds of the response-time buckets, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

/// One thread's counters. Only its thread writes, so that adding needs no locked instruction.
#[derive(Debug)]
#[repr(align(128))]
pub struct Sheet {
    counts: [AtomicU64; Count::ALL.len()],
    outcomes: [AtomicU64; Outcome::ALL.len()],
    reasons: [AtomicU64; Reason::ALL.len()],
    refusals: [AtomicU64; Reason::ALL.len()],
    unstored: [AtomicU64; Unstored::ALL.len()],
    tunnel_ends: [AtomicU64; TunnelEnd::ALL.len()],
    cut: [AtomicU64; Cut::ALL.len()],
    statuses: [AtomicU64; 10],
    durations: [AtomicU64; BUCKETS.len() + 1],
    duration_us: AtomicU64,
    /// Requests over a limit, by its name. Locked by its own thread and by scrapes.
    limited: Mutex<BTreeMap<Arc<str>, u64>>,
    /// Messages in which cookies were looked for.
    messages: [AtomicU64; 3],
    /// The cookies' names. Locked by its own thread and by who asks for them.
    jar: Mutex<Jar>,
}

impl Default for Sheet {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            reasons: std::array::from_fn(|_| AtomicU64::new(0)),
            refusals: std::array::from_fn(|_| AtomicU64::new(0)),
            unstored: std::array::from_fn(|_| AtomicU64::new(0)),
            tunnel_ends: std::array::from_fn(|_| AtomicU64::new(0)),
            cut: std::array::from_fn(|_| AtomicU64::new(0)),
            statuses: std::array::from_fn(|_| AtomicU64::new(0)),
            durations: std::array::from_fn(|_| AtomicU64::new(0)),
            duration_us: AtomicU64::new(0),
            limited: Mutex::default(),
            messages: std::array::from_fn(|_| AtomicU64::new(0)),
            jar: Mutex::default(),
        }
    }
}

/// PERF: one writer to a sheet, so load and store do; a locked add would cost four times as much.
fn bump(cell: &AtomicU64, by: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Sheet {
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

    /// Counts a page that the store had no room for.
    pub fn unstored(&self, why: Unstored) {
        bump(&self.unstored[why as usize], 1);
    }

    /// Counts a tunnel that has ended.
    pub fn tunnel_ended(&self, end: TunnelEnd) {
        bump(&self.tunnel_ends[end as usize], 1);
    }

    /// Counts a connection of HTTP/2 that was cut.
    pub fn cut(&self, why: Cut) {
        bump(&self.cut[why as usize], 1);
    }

    /// Counts a request over a limit. Past so many names, which is more than a configuration has,
    /// others are counted as one.
    pub fn limited(&self, limit: &Arc<str>) {
        let mut limited = lock(&self.limited);
        let is_known = limited.contains_key(limit) || limited.len() < LIMITS_MAX;
        let name = if is_known { Arc::clone(limit) } else { OTHERS.into() };
        *limited.entry(name).or_default() += 1;
    }

    /// Counts a message, and the names of its cookies.
    pub fn cookies<'n>(&self, what: Crumb, names: impl Iterator<Item = &'n [u8]>) {
        bump(&self.messages[what as usize], 1);
        let mut names = names.peekable();
        // PERF: most who come to a page that is in the cache have none.
        if names.peek().is_some() {
            lock(&self.jar).count(what, names);
        }
    }

    /// Counts an answered request.
    pub fn answered(&self, status: u16, outcome: Outcome, reason: Option<Reason>, took: Duration) {
        bump(&self.statuses[usize::from(status / 100).min(9)], 1);
        bump(&self.outcomes[outcome as usize], 1);
        if let Some(reason) = reason {
            bump(&self.reasons[reason as usize], 1);
        }
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|top| seconds <= *top).unwrap_or(BUCKETS.len());
        bump(&self.durations[bucket], 1);
        bump(&self.duration_us, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
}

/// No exemplar labels.
type NoLabels = [(&'static str, &'static str); 0];

/// A number read at the moment of a scrape.
type Figure = Box<dyn Fn() -> u64 + Send + Sync>;

/// One of several numbers of a name, told apart by labels whose values the operator has chosen.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The labels.
    pub labels: Vec<(&'static str, String)>,
    /// The number.
    pub value: u64,
}

/// Several numbers read at the moment of a scrape.
type Readings = Box<dyn Fn() -> Vec<Reading> + Send + Sync>;

/// All sheets, and what else is read at a scrape.
#[derive(Default)]
pub struct Metrics {
    sheets: Mutex<Vec<Arc<Sheet>>>,
    gauges: Mutex<Vec<(&'static str, &'static str, Figure)>>,
    counters: Mutex<Vec<(&'static str, &'static str, Figure)>>,
    families: Mutex<Vec<(&'static str, &'static str, Readings)>>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic while holding these locks leaves the lists whole: each change is one push.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// A sheet for one more thread.
    #[must_use]
    pub fn sheet(&self) -> Arc<Sheet> {
        let sheet = Arc::new(Sheet::default());
        lock(&self.sheets).push(Arc::clone(&sheet));
        sheet
    }

    /// Adds a gauge that `read` tells at each scrape.
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        lock(&self.gauges).push((name, help, Box::new(read)));
    }

    /// Adds gauges of one name that `read` tells at each scrape.
    pub fn gauges(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Vec<Reading> + Send + Sync + 'static,
    ) {
        lock(&self.families).push((name, help, Box::new(read)));
    }

    /// Adds a counter that `read` tells at each scrape.
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        lock(&self.counters).push((name, help, Box::new(read)));
    }

    /// The metrics page, in OpenMetrics text.
    ///
    /// # Errors
    /// When the text cannot be formatted.
    pub fn page(self: &Arc<Self>) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape(Arc::clone(self))));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn sum(&self, of: impl Fn(&Sheet) -> &AtomicU64) -> u64 {
        lock(&self.sheets).iter().map(|sheet| of(sheet).load(Ordering::Relaxed)).sum()
    }

    /// What was counted of cookies.
    #[must_use]
    pub fn cookies(&self) -> Cookies {
        let messages = |what: Crumb| self.sum(|sheet| &sheet.messages[what as usize]);
        let hits = [Outcome::HitMemory, Outcome::HitStore, Outcome::HitFlight, Outcome::HitStale];
        let hits = hits.map(|outcome| self.sum(|sheet| &sheet.outcomes[outcome as usize]));
        let sheets = lock(&self.sheets);
        let jars: Vec<_> = sheets.iter().map(|sheet| lock(&sheet.jar)).collect();
        let (names, others) = cookies::sum(jars.iter().map(|jar| &**jar));
        drop(jars);
        drop(sheets);
        Cookies {
            requests: messages(Crumb::Came),
            hits: hits.iter().sum(),
            pages: messages(Crumb::Set),
            names,
            others,
        }
    }

    /// The sum of one counter over all threads.
    #[must_use]
    pub fn total(&self, what: Count) -> u64 {
        self.sum(|sheet| &sheet.counts[what as usize])
    }
}

/// One value of a family, with its label.
struct Value {
    kind: MetricType,
    value: u64,
}

impl EncodeMetric for Value {
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
struct Scrape(Arc<Metrics>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.plain(&mut encoder)?;
        self.labelled(&mut encoder)?;
        self.cookies(&mut encoder)?;
        self.durations(&mut encoder)
    }
}

impl Scrape {
    fn plain(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (what, name, help) in &Count::ALL {
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
                let figure = Value { kind: MetricType::Gauge, value };
                figure.encode(metric.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn labelled(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let outcomes = Outcome::ALL.iter().map(|(outcome, word)| {
            ((*word).to_owned(), self.0.sum(|sheet| &sheet.outcomes[*outcome as usize]))
        });
        let help = "Requests by how the cache answered them";
        family(encoder, "anteroom_cache_results", help, "result", outcomes)?;
        let reasons = Reason::ALL.iter().map(|reason| {
            (reason.as_str().to_owned(), self.0.sum(|sheet| &sheet.reasons[*reason as usize]))
        });
        let help = "Requests not answered from the cache, by reason";
        family(encoder, "anteroom_cache_reasons", help, "reason", reasons)?;
        let refusals = Reason::ALL.iter().map(|reason| {
            (reason.as_str().to_owned(), self.0.sum(|sheet| &sheet.refusals[*reason as usize]))
        });
        let help = "Pages fetched for the cache and not stored, by reason";
        family(encoder, "anteroom_pages_refused", help, "reason", refusals)?;
        let unstored = Unstored::ALL.iter().map(|(why, word)| {
            ((*word).to_owned(), self.0.sum(|sheet| &sheet.unstored[*why as usize]))
        });
        let help = "Pages kept in memory only for want of room in the store, by reason";
        family(encoder, "anteroom_pages_unstored", help, "reason", unstored)?;
        let ends = TunnelEnd::ALL.iter().map(|(end, word)| {
            ((*word).to_owned(), self.0.sum(|sheet| &sheet.tunnel_ends[*end as usize]))
        });
        family(encoder, "anteroom_tunnels_ended", "Tunnels by what ended them", "by", ends)?;
        let cut = Cut::ALL
            .iter()
            .map(|(why, word)| ((*word).to_owned(), self.0.sum(|sheet| &sheet.cut[*why as usize])));
        let help = "Connections of HTTP/2 cut for a flood of frames or a broken protocol, by cause";
        family(encoder, "anteroom_http2_connections_cut", help, "cause", cut)?;
        let help = "Requests over a rate limit, by the route that has it; * is [limits]";
        let mut limited = BTreeMap::<Arc<str>, u64>::new();
        for sheet in lock(&self.0.sheets).iter() {
            for (name, count) in lock(&sheet.limited).iter() {
                *limited.entry(Arc::clone(name)).or_default() += count;
            }
        }
        let limited = limited.into_iter().map(|(name, count)| (name.to_string(), count));
        family(encoder, "anteroom_rate_limited", help, "route", limited)?;
        let statuses =
            (1..10).map(|class| (format!("{class}xx"), self.0.sum(|sheet| &sheet.statuses[class])));
        family(encoder, "anteroom_requests", "Requests by status class", "status", statuses)
    }

    /// A name that came in and went again begins anew, as after a restart.
    fn cookies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counted = self.0.cookies();
        let all = || {
            let names = counted.names.iter().map(|(name, tally)| (name.as_str(), *tally));
            // No name has such brackets.
            names.chain([("(other)", counted.others)])
        };
        let of =
            |read: fn(Tally) -> u64| all().map(move |(name, tally)| (name.to_owned(), read(tally)));
        let help = "Requests with which a cookie came";
        family(encoder, "anteroom_cookie_requests", help, "cookie", of(|tally| tally.came))?;
        let help = "Html pages of the app that set a cookie";
        family(encoder, "anteroom_cookie_pages", help, "cookie", of(|tally| tally.set))?;
        let help = "Requests that a cookie kept from the cache";
        family(encoder, "anteroom_cookie_bypasses", help, "cookie", of(|tally| tally.blocked))
    }

    fn durations(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let buckets: Vec<(f64, u64)> = BUCKETS
            .iter()
            .copied()
            .chain([f64::MAX])
            .enumerate()
            .map(|(place, top)| (top, self.0.sum(|sheet| &sheet.durations[place])))
            .collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        #[expect(clippy::cast_precision_loss, reason = "a sum of microseconds, shown in seconds")]
        let sum = self.0.sum(|sheet| &sheet.duration_us) as f64 / 1e6;
        let help = "Time to answer requests, to the end of the body";
        let mut metric = encoder.encode_descriptor(
            "anteroom_request_seconds",
            help,
            None,
            MetricType::Histogram,
        )?;
        metric.encode_histogram::<NoLabels>(sum, count, &buckets, None)
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
    Value { kind, value }.encode(metric)
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    values: impl Iterator<Item = (String, u64)>,
) -> Result<(), std::fmt::Error> {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (word, value) in values {
        let labels = [(label, word)];
        Value { kind: MetricType::Counter, value }.encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_in_their_own_order() {
        for (place, (what, ..)) in Count::ALL.iter().enumerate() {
            assert_eq!(place, *what as usize);
        }
        for (place, (what, _)) in Outcome::ALL.iter().enumerate() {
            assert_eq!(place, *what as usize);
        }
        for (place, (what, _)) in TunnelEnd::ALL.iter().enumerate() {
            assert_eq!(place, *what as usize);
        }
        for (place, (what, _)) in Unstored::ALL.iter().enumerate() {
            assert_eq!(place, *what as usize);
        }
        for (place, (what, _)) in Cut::ALL.iter().enumerate() {
            assert_eq!(place, *what as usize);
        }
    }

    #[test]
    fn a_scrape_adds_the_sheets_of_all_threads() {
        let metrics = Arc::new(Metrics::default());
        let (one, two) = (metrics.sheet(), metrics.sheet());
        one.count(Count::Accepted);
        two.add(Count::Accepted, 2);
        two.answered(404, Outcome::Bypass, Some(Reason::Login), Duration::from_millis(3));
        metrics.gauge("anteroom_test", "A test", || 7);
        let labels = vec![("origin", "blog".to_owned()), ("server", "a:1".to_owned())];
        let reading = move || vec![Reading { labels: labels.clone(), value: 1 }];
        metrics.gauges("anteroom_tests", "Tests", reading);
        for (sheet, name) in [(&one, "login"), (&two, "login"), (&two, "*")] {
            sheet.limited(&name.into());
        }
        let page = metrics.page().unwrap();
        for line in [
            "anteroom_connections_accepted_total 3",
            "anteroom_cache_results_total{result=\"bypass\"} 1",
            "anteroom_cache_reasons_total{reason=\"login\"} 1",
            "anteroom_requests_total{status=\"4xx\"} 1",
            "anteroom_rate_limited_total{route=\"login\"} 2",
            "anteroom_rate_limited_total{route=\"*\"} 1",
            "anteroom_request_seconds_bucket{le=\"0.005\"} 1",
            "anteroom_request_seconds_count 1",
            "anteroom_test 7",
            "anteroom_tests{origin=\"blog\",server=\"a:1\"} 1",
        ] {
            assert!(page.contains(line), "{line} is missing in:\n{page}");
        }
    }
}
