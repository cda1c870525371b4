//! `[origin]`, `[origins.NAME]` and `[[rows]]`: the app behind the proxy.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anteroom_http::host::Scheme;
use anteroom_http::host_pattern::HostPattern;
use anteroom_policy::origin::{Balance, Health, Http2, Overload};
use anteroom_policy::row_schedule::{AllowedPurge, RowIds};

use crate::secret::Secret;

/// `[origin]`: the app behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginConfig {
    /// `url`: `http://host[:port]` or `https://host[:port]`, without a path, or `unix:<path>`. Required
    /// without `urls`; otherwise the first of them.
    pub url: OriginUrl,
    /// `host`: the Host that the origin receives; `None` (`"preserve"`): the client's.
    pub host: Option<String>,
    /// `hosts`: the hosts served; empty: any. Others get 421.
    pub hosts: Vec<HostPattern>,
    /// `connect_timeout`, 2 s.
    pub connect_timeout: Duration,
    /// `first_byte_timeout`, 60 s: from the last byte sent to the head of the response.
    pub first_byte_timeout: Duration,
    /// `between_bytes_timeout`, 60 s.
    pub between_bytes_timeout: Duration,
    /// `stream_timeout`, 1 h: the same for event streams, and for gRPC calls in either direction.
    pub stream_timeout: Duration,
    /// `http2`, `"auto"`: whether HTTP/2 is used.
    pub http2: Http2,
    /// `http2_ping`, 310 s: the interval between PINGs on a silent HTTP/2 connection. gRPC servers treat
    /// more than one in five minutes as an attack.
    pub http2_ping: Duration,
    /// `tls`: how the origin is authenticated if its `url` begins with `https:`.
    pub tls: OriginTls,
    /// `keep_idle`, 64: idle connections kept by each thread.
    pub keep_idle: usize,
    /// `idle_timeout`, 4 s: how long an idle connection is kept (below the 5 s after which common app
    /// servers close theirs).
    pub idle_timeout: Duration,
    /// `head_reuse`, false: whether a connection is reused after a HEAD.
    pub head_reuse: bool,
    /// `response_fields`, 100: the most fields in the head of a response over HTTP/1.
    pub response_fields: usize,
    /// `sessions`, true: whether the origin receives the visitor's name, and its `Anteroom-*` fields take
    /// effect.
    pub sessions: bool,
    /// `secret`: the key of the HMAC over user, method, path and time.
    pub secret: Option<Secret>,
    /// How its servers are used.
    pub servers: Servers,
}

impl OriginConfig {
    /// An origin at `url`, otherwise with defaults.
    #[must_use]
    pub fn new(url: OriginUrl) -> Self {
        Self {
            url,
            host: None,
            hosts: Vec::new(),
            connect_timeout: Duration::from_secs(2),
            first_byte_timeout: Duration::from_secs(60),
            between_bytes_timeout: Duration::from_secs(60),
            stream_timeout: Duration::from_secs(3600),
            http2: Http2::Auto,
            http2_ping: Duration::from_secs(310),
            tls: OriginTls::default(),
            keep_idle: 64,
            idle_timeout: Duration::from_secs(4),
            head_reuse: false,
            response_fields: 100,
            sessions: true,
            secret: None,
            servers: Servers::default(),
        }
    }

    /// A further origin, without sessions.
    #[must_use]
    pub fn further(url: OriginUrl) -> Self {
        Self { sessions: false, ..Self::new(url) }
    }

    /// Its servers: those of `urls`, or the one at `url`.
    #[must_use]
    pub fn urls(&self) -> &[OriginUrl] {
        match self.servers.urls.as_slice() {
            [] => std::slice::from_ref(&self.url),
            urls => urls,
        }
    }
}

/// An origin's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginUrl {
    /// The scheme; `https` means TLS.
    pub scheme: Scheme,
    /// Host name or address literal, as in the URL (IPv6 in brackets); `localhost` for a Unix socket.
    pub host: String,
    /// Port; by default 80, or 443 for `https`.
    pub port: u16,
    /// The path of a Unix socket, if the origin listens on one.
    pub socket: Option<PathBuf>,
}

impl OriginUrl {
    /// `http://host:port`.
    #[must_use]
    pub fn http(host: impl Into<String>, port: u16) -> Self {
        Self { scheme: Scheme::Http, host: host.into(), port, socket: None }
    }
}

/// `http://host:port`, or `unix:` and the path.
impl fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "unix:{}", path.display()),
            None => write!(f, "{}://{}:{}", self.scheme.as_str(), self.host, self.port),
        }
    }
}

/// `[origin] tls`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginTls {
    /// `ca`: the PEM file of the authorities that sign the origin's certificate; `None` (`"system"`):
    /// those of the system.
    pub ca: Option<PathBuf>,
    /// `server_name`: the name that the certificate must have, also sent as SNI; `None` (`"host"`): the
    /// host of the `url`.
    pub server_name: Option<String>,
    /// `cert`: the PEM file of the proxy's own certificate; `None` (`"none"`): there is none.
    pub cert: Option<PathBuf>,
    /// `key`: the PEM file of the key of `cert`.
    pub key: Option<PathBuf>,
    /// `verify`, true; false accepts any certificate.
    pub verify: bool,
}

impl Default for OriginTls {
    fn default() -> Self {
        Self { ca: None, server_name: None, cert: None, key: None, verify: true }
    }
}

/// How the servers of an origin are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers {
    /// `urls`: the servers, if there are several; empty: the one at `url`.
    pub urls: Vec<OriginUrl>,
    /// `weights`: the share of each of `urls`; empty: equal shares.
    pub weights: Vec<u32>,
    /// `balance`, `"round_robin"`.
    pub balance: Balance,
    /// `fails`, 3: consecutive failures after which a server rests.
    pub fails: u32,
    /// `fail_window`, 30 s: the window in which they count.
    pub fail_window: Duration,
    /// `rest`, 10 s: the first rest, doubled by each further failure.
    pub rest: Duration,
    /// `slow_start`, 10 s: how long the share of a returning server grows.
    pub slow_start: Duration,
    /// `retry_percent`, 10: the percentage of requests that may be sent again to another server.
    pub retry_percent: u32,
    /// `max_connections`, none: the most requests in progress at a server.
    pub max_connections: Option<u32>,
    /// `max_waiting`, 1,024: the most requests that wait for a server.
    pub max_waiting: u32,
    /// `wait_timeout`, 5 s: how long a request waits.
    pub wait_timeout: Duration,
    /// `max_strangers`, none: the most requests of strangers that all servers work on at once.
    pub max_strangers: Option<u32>,
    /// `max_strangers_per_network`, none: the same for those of one network.
    pub max_strangers_per_network: Option<u32>,
    /// `overload`, `"order"`: what is done where the servers have more to do than they can.
    pub overload: Overload,
    /// `health`
    pub health: Health,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            weights: Vec::new(),
            balance: Balance::RoundRobin,
            fails: 3,
            fail_window: Duration::from_secs(30),
            rest: Duration::from_secs(10),
            slow_start: Duration::from_secs(10),
            retry_percent: 10,
            max_connections: None,
            max_waiting: 1_024,
            wait_timeout: Duration::from_secs(5),
            max_strangers: None,
            max_strangers_per_network: None,
            overload: Overload::Order,
            health: Health::default(),
        }
    }
}

/// A `[databases.NAME]`: a database that rows come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseConfig {
    /// `url`: where it is, with the login. Required.
    pub url: Secret,
    /// `connections`, 4: the most connections of this process to it.
    pub connections: u32,
    /// `timeout`, 2 s: how long a connection may take to open, and a query to run.
    pub timeout: Duration,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self { url: Secret::new(""), connections: 4, timeout: Duration::from_secs(2) }
    }
}

/// A `[[rows]]`: the source of rows that are refreshed at an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// `name`: the name for routes and the command line. Required.
    pub name: String,
    /// `every`, 5 s: the time between two refreshes of a row.
    pub every: Duration,
    /// `path`: the target of a row at the origin, with `{row}` in it. This or `query` is required.
    pub path: Option<String>,
    /// `scheme`, http: the scheme of the requests, which the origin receives in `X-Forwarded-Proto`.
    pub scheme: Scheme,
    /// `origin`: the `[origins.NAME]` that is asked; none: `[origin]`.
    pub origin: Option<String>,
    /// `database`: the `[databases.NAME]` that is asked with `query`.
    pub database: Option<String>,
    /// `query`: the SQL that reads a row, with the row id as its one parameter.
    pub query: Option<String>,
    /// `batch`, 1: the most rows that one query reads; then its parameter is the list of their ids.
    pub batch: u32,
    /// `id`, `"id"`: the column by which the rows of a batch are told apart.
    pub id: String,
    /// `many`: whether the rows that a query returns for one id make an array.
    pub many: bool,
    /// `rows`: ids that are always scheduled.
    pub rows: Vec<RowIds>,
    /// `rows_query`: the SQL that lists the ids of further rows that are scheduled.
    pub rows_query: Option<String>,
    /// `rows_every`, 1 min: the time between two runs of `rows_query`.
    pub rows_every: Duration,
    /// `on_demand`: whether a row is scheduled when a request asks for it.
    pub on_demand: bool,
    /// `idle`, 10 min: how long such a row stays in the schedule without a request.
    pub idle: Duration,
    /// `on_demand_max`, 10,000: no such row is added when this many rows are scheduled.
    pub on_demand_max: u32,
    /// `listen`: the channel on which the database announces changed rows.
    pub listen: Option<String>,
    /// `listen_purges`: tags and paths of pages that may be purged over this channel.
    pub listen_purges: Vec<AllowedPurge>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            name: String::new(),
            every: Duration::from_secs(5),
            path: None,
            scheme: Scheme::Http,
            origin: None,
            database: None,
            query: None,
            batch: 1,
            id: "id".to_owned(),
            many: false,
            rows: Vec::new(),
            rows_query: None,
            rows_every: Duration::from_secs(60),
            on_demand: false,
            idle: Duration::from_secs(600),
            on_demand_max: 10_000,
            listen: None,
            listen_purges: Vec::new(),
        }
    }
}
