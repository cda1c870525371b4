//! The keys of `[origin]`, `[origins.NAME]`, `[databases.NAME]` and `[[rows]]`.

use std::time::Duration;

use anteroom_http::host::Scheme;
use anteroom_policy::origin::{Balance, Health, Http2, Overload};
use anteroom_policy::row_schedule::{AllowedPurge, RowIds, SCHEDULED_MAX};

use super::shared::{DAY, MS, TIMEOUT, count, hosts, named};
use crate::credential::{DatabaseForm, SecretRef};
use crate::form::{Either, Flag, List, Optional, Span, Text, Words};
use crate::pem::PemFile;
use crate::plan::{DatabaseConfig, OriginConfig, OriginTls, OriginUrl, Rows, Servers};
use crate::text;
use crate::walk::Walk;

const SECOND: Duration = Duration::from_secs(1);

/// The keys that all origins have, and those of the first one.
pub(super) fn main_origin(at: &mut impl Walk, main: &mut OriginConfig) {
    origin(at, main);
    at.key("hosts", &mut main.hosts, &List::of(hosts()));
}

pub(super) fn origin(at: &mut impl Walk, origin: &mut OriginConfig) {
    let url = || Text { parse: text::origin_url, show: text::show_origin_url };
    urls(at, &mut origin.servers, url());
    if origin.servers.urls.is_empty() {
        let hint = "write url = \"http://127.0.0.1:3000\", or give --origin";
        at.required("url", &mut origin.url, &url(), hint);
    } else {
        at.key("url", &mut origin.url, &url());
    }
    let preserve = |host: &Option<String>| host.clone().unwrap_or_else(|| "preserve".to_owned());
    at.key("host", &mut origin.host, &Text { parse: text::origin_host, show: preserve });
    at.key("connect_timeout", &mut origin.connect_timeout, &TIMEOUT);
    at.key("first_byte_timeout", &mut origin.first_byte_timeout, &TIMEOUT);
    at.key("between_bytes_timeout", &mut origin.between_bytes_timeout, &TIMEOUT);
    at.key("stream_timeout", &mut origin.stream_timeout, &TIMEOUT);
    let http2 = [("auto", Http2::Auto), ("always", Http2::Always), ("never", Http2::Never)];
    at.key("http2", &mut origin.http2, &Words(&http2));
    at.key("http2_ping", &mut origin.http2_ping, &Span { min: 100 * MS, max: DAY });
    at.section("tls", |at| origin_tls(at, &mut origin.tls));
    at.key("keep_idle", &mut origin.keep_idle, &count(0, 10_000));
    at.key("idle_timeout", &mut origin.idle_timeout, &TIMEOUT);
    at.key("head_reuse", &mut origin.head_reuse, &Flag);
    at.key("response_fields", &mut origin.response_fields, &count(1, 10_000));
    at.key("sessions", &mut origin.sessions, &Flag);
    at.key("secret", &mut origin.secret, &Optional(SecretRef));
    servers(at, &mut origin.servers);
}

pub(super) fn origin_tls(at: &mut impl Walk, tls: &mut OriginTls) {
    at.key("ca", &mut tls.ca, &Either("system", PemFile::Certificates));
    at.key("server_name", &mut tls.server_name, &Either("host", named(text::server_name)));
    at.key("cert", &mut tls.cert, &Either("none", PemFile::Certificates));
    at.key("key", &mut tls.key, &Either("none", PemFile::Key));
    at.key("verify", &mut tls.verify, &Flag);
}

/// Visits the keys, except `urls`.
pub(super) fn servers(at: &mut impl Walk, servers: &mut Servers) {
    at.key("weights", &mut servers.weights, &List::of(count(1, 100)));
    let ways = [
        ("round_robin", Balance::RoundRobin),
        ("least_requests", Balance::LeastRequests),
        ("sticky", Balance::Sticky),
    ];
    at.key("balance", &mut servers.balance, &Words(&ways));
    at.key("fails", &mut servers.fails, &count(1, 1_000));
    at.key("fail_window", &mut servers.fail_window, &TIMEOUT);
    at.key("rest", &mut servers.rest, &Span { min: MS, max: Duration::from_secs(300) });
    at.key("slow_start", &mut servers.slow_start, &Span { min: Duration::ZERO, max: DAY });
    at.key("retry_percent", &mut servers.retry_percent, &count(0, 100));
    let most = Either("none", count(1, 1_000_000));
    at.key("max_connections", &mut servers.max_connections, &most);
    at.key("max_waiting", &mut servers.max_waiting, &count(0, 10_000));
    at.key("wait_timeout", &mut servers.wait_timeout, &TIMEOUT);
    at.key("max_strangers", &mut servers.max_strangers, &most);
    at.key("max_strangers_per_network", &mut servers.max_strangers_per_network, &most);
    at.key(
        "overload",
        &mut servers.overload,
        &Words(&[
            ("order", Overload::Order),
            ("shed", Overload::Shed),
            ("watch", Overload::Watch),
            ("off", Overload::Off),
        ]),
    );
    at.section("health", |at| health(at, &mut servers.health));
}

pub(super) fn health(at: &mut impl Walk, health: &mut Health) {
    at.key("path", &mut health.path, &Optional(named(text::health_path)));
    at.key("every", &mut health.every, &Span { min: 100 * MS, max: DAY });
    at.key("timeout", &mut health.timeout, &TIMEOUT);
    at.key("status", &mut health.status, &List::of(count(100, 599)));
    at.key("healthy_after", &mut health.healthy_after, &count(1, 1_000));
    at.key("unhealthy_after", &mut health.unhealthy_after, &count(1, 1_000));
}

/// Visits `urls`.
pub(super) fn urls(at: &mut impl Walk, servers: &mut Servers, url: Text<OriginUrl>) {
    at.key("urls", &mut servers.urls, &List::of(url));
}

pub(super) fn database(at: &mut impl Walk, database: &mut DatabaseConfig) {
    let hint = "write url = \"postgres://user@host/database\"";
    at.required("url", &mut database.url, &DatabaseForm, hint);
    at.key("connections", &mut database.connections, &count(1, 4));
    // A fetch of rows is given up after nine seconds.
    at.key("timeout", &mut database.timeout, &Span { min: 10 * MS, max: Duration::from_secs(8) });
}

pub(super) fn rows(at: &mut impl Walk, rows: &mut Rows) {
    at.required("name", &mut rows.name, &named(text::rows_name), "write name = \"inventory\"");
    at.key("every", &mut rows.every, &Span { min: 100 * MS, max: DAY.saturating_mul(365) });
    at.key("path", &mut rows.path, &Optional(named(text::rows_path)));
    let schemes = [("http", Scheme::Http), ("https", Scheme::Https)];
    at.key("scheme", &mut rows.scheme, &Words(&schemes));
    at.key("origin", &mut rows.origin, &Optional(named(text::origin_reference)));
    at.key("database", &mut rows.database, &Optional(named(text::database_reference)));
    at.key("query", &mut rows.query, &Optional(named(text::rows_query)));
    at.key("batch", &mut rows.batch, &count(1, 1_000));
    at.key("id", &mut rows.id, &named(text::column_name));
    at.key("many", &mut rows.many, &Flag);
    let ids = Text { parse: text::row_ids, show: RowIds::to_string };
    at.key("rows", &mut rows.rows, &List::of(ids));
    at.key("rows_query", &mut rows.rows_query, &Optional(named(text::rows_query)));
    at.key("rows_every", &mut rows.rows_every, &Span { min: SECOND, max: DAY });
    at.key("on_demand", &mut rows.on_demand, &Flag);
    at.key("idle", &mut rows.idle, &Span { min: SECOND, max: DAY.saturating_mul(365) });
    at.key("on_demand_max", &mut rows.on_demand_max, &count(1, SCHEDULED_MAX));
    at.key("listen", &mut rows.listen, &Optional(named(text::channel)));
    let purges = Text { parse: text::allowed_purge, show: AllowedPurge::to_string };
    at.key("listen_purges", &mut rows.listen_purges, &List::of(purges));
}
