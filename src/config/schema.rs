//! The schema: every key there is, its form and its bounds, told once.
//!
//! Walking it with a `Reader` reads a plan, with a `Printer` writes one, and what was walked by
//! is the list of valid keys. Defaults live in the plan, contradictions between keys in `check`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::apps::APPS;
use super::credential::{BearerToken, OpenStoreForm, SecretRef, SecretRefs, StoreForm};
use super::form::{Count, Either, Faults, Flag, Form, List, Optional, Size, Span, Text, Words};
use super::fragment::{EsiForm, FragmentForm, SHARES};
use super::node::{Node, Value};
use super::pem::PemFile;
use super::plan::{
    AccessFormat, Admin, Cache, Client, ClientCerts, Cookies, Endpoint, Http2, LeakGuard, Limits,
    Listen, Log, LogTarget, OnExpire, Origin, OriginTls, OriginUrl, Plan, Purge, PurgeToken, Rate,
    Route, Rows, SameSite, SecureCookie, SegmentProof, Session, SetCookie, StatusDetail, Store,
    Tls, TlsVersion, Views, Visitor,
};
use super::{form, rate, servers, sessions, text};
use crate::http::coding::Coding;
use crate::http::host::Scheme;
use crate::http::path::{Branch, PathPattern};
use crate::http::pattern::Pattern;
use crate::http::peer::Peers;
use crate::ident::TokenStorage;

/// The most `[[listen]]`.
const LISTEN_MAX: usize = 64;
/// The most `[[route]]`: they are tried in order.
const ROUTES_MAX: usize = 1_000;

/// The most `[origins.NAME]`.
const ORIGINS_MAX: usize = 64;

/// The most `[[cookies]]`.
const COOKIES_MAX: usize = 64;

/// The most `[[rows]]`.
const ROWS_MAX: usize = 64;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const DAY: Duration = Duration::from_secs(86_400);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

pub(super) const TIMEOUT: Span = Span { min: MS, max: DAY };
const TTL: Span = Span { min: Duration::ZERO, max: DAY.saturating_mul(365) };
/// How long a session, or its cookie, lasts.
const LIFETIME: Span = Span { min: Duration::from_secs(1), max: DAY.saturating_mul(365) };
/// The most sessions that a user may be allowed; the store keeps the same bound.
const PER_USER_MAX: u32 = 1_000;
const OBJECT: Size = Size { min: KIB, max: TIB };

/// What meets every key of the schema in turn.
pub(super) trait Walk: Sized {
    /// A key that holds a value of this form.
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>);

    /// The same, but a key without which there is no plan; `hint` says what to write.
    fn required<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>, hint: &str);

    /// What is the default of keys that are met later, by the value of one that was met. Only who reads a plan
    /// sets it.
    fn preset(&mut self, set: impl FnOnce()) {
        // Whoever else walks finds it in the plan.
        drop(set);
    }

    /// A table of further keys.
    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self));

    /// A list of tables, at most `max`, each begun as `fresh`.
    fn tables<T>(
        &mut self,
        name: &'static str,
        max: usize,
        items: &mut Vec<T>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    );

    /// Tables under names of the operator's, at most `max`, each begun as `fresh`.
    fn named<T>(
        &mut self,
        name: &'static str,
        max: usize,
        items: &mut Vec<(String, T)>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    );
}

/// Meets every key of `plan`.
pub(super) fn walk(at: &mut impl Walk, plan: &mut Plan) {
    at.key("threads", &mut plan.threads, &count(1, 512));
    let nowhere = || Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    at.tables("listen", LISTEN_MAX, &mut plan.listen, nowhere, listen);
    at.section("client", |at| client(at, &mut plan.client));
    at.section("origin", |at| main_origin(at, &mut plan.origin));
    let further = || Origin::further(OriginUrl::default());
    at.named("origins", ORIGINS_MAX, &mut plan.origins, further, origin);
    at.section("store", |at| store(at, &mut plan.store));
    at.section("session", |at| session(at, &mut plan.session));
    at.section("visitor", |at| visitor(at, &mut plan.visitor));
    let app = plan.session.app;
    at.section("cache", |at| {
        at.preset(|| app.into_iter().for_each(|app| app.ignore(&mut plan.cache)));
        cache(at, &mut plan.cache);
    });
    at.section("views", |at| views(at, &mut plan.views));
    at.tables("route", ROUTES_MAX, &mut plan.routes, Route::default, route);
    at.tables("cookies", COOKIES_MAX, &mut plan.cookies, Cookies::default, cookies);
    at.tables("rows", ROWS_MAX, &mut plan.rows, Rows::default, rows);
    at.section("purge", |at| purge(at, &mut plan.purge));
    at.section("admin", |at| admin(at, &mut plan.admin));
    at.section("log", |at| log(at, &mut plan.log));
    at.section("limits", |at| limits(at, &mut plan.limits));
}

fn listen(at: &mut impl Walk, listen: &mut Listen) {
    let address = Text { parse: text::listen_address, show: ToString::to_string };
    let hint = "write address = \"127.0.0.1:8080\"";
    at.required("address", &mut listen.address, &address, hint);
    let mode = Text { parse: text::mode, show: |mode| format!("{mode:04o}") };
    at.key("mode", &mut listen.mode, &mode);
    at.section("proxy_protocol", |at| at.key("from", &mut listen.balancers, &peers()));
    at.key("h2", &mut listen.h2, &Flag);
    let redirect = Text { parse: text::https, show: text::show_https };
    at.key("redirect", &mut listen.redirect, &Either("off", redirect));
    at.key("redirect_except", &mut listen.redirect_except, &List::of(paths()));
    at.section("tls", |at| tls(at, &mut listen.tls));
}

fn tls(at: &mut impl Walk, tls: &mut Tls) {
    at.key("cert", &mut tls.cert, &List::of(named(text::file_pattern)));
    let path = || Text { parse: text::file, show: |path| path.to_string_lossy().into_owned() };
    at.key("key", &mut tls.key, &Optional(path()));
    at.key("default", &mut tls.default, &Optional(named(text::host)));
    let certs = [
        ("off", ClientCerts::Off),
        ("optional", ClientCerts::Optional),
        ("required", ClientCerts::Required),
    ];
    at.key("client_certs", &mut tls.client_certs, &Words(&certs));
    at.key("client_ca", &mut tls.client_ca, &Optional(path()));
    let versions = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
    at.key("min_version", &mut tls.min_version, &Words(&versions));
    let second = Duration::from_secs(1);
    at.key("hsts", &mut tls.hsts, &Either("off", Span { min: second, max: TTL.max * 10 }));
    at.key("hsts_subdomains", &mut tls.hsts_subdomains, &Flag);
}

fn client(at: &mut impl Walk, client: &mut Client) {
    at.key("allow", &mut client.allow, &networks());
    at.key("deny", &mut client.deny, &networks());
    at.key("trusted_proxies", &mut client.trusted_proxies, &peers());
    let words = Words(&[("drop", false), ("pass", true)]);
    at.key("underscore_headers", &mut client.pass_underscore_headers, &words);
}

/// The keys of all origins, and those of the first.
fn main_origin(at: &mut impl Walk, main: &mut Origin) {
    origin(at, main);
    at.key("hosts", &mut main.hosts, &List::of(named(text::host)));
}

fn origin(at: &mut impl Walk, origin: &mut Origin) {
    let url = || Text { parse: text::origin_url, show: text::show_origin_url };
    servers::urls(at, &mut origin.servers, url());
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
    at.key("sessions", &mut origin.sessions, &Flag);
    at.key("secret", &mut origin.secret, &Optional(SecretRef));
    servers::servers(at, &mut origin.servers);
}

fn origin_tls(at: &mut impl Walk, tls: &mut OriginTls) {
    at.key("ca", &mut tls.ca, &Either("system", PemFile::Certificates));
    at.key("server_name", &mut tls.server_name, &Either("host", named(text::server_name)));
    at.key("cert", &mut tls.cert, &Either("none", PemFile::Certificates));
    at.key("key", &mut tls.key, &Either("none", PemFile::Key));
    at.key("verify", &mut tls.verify, &Flag);
}

fn store(at: &mut impl Walk, store: &mut Store) {
    at.key("url", &mut store.url, &StoreForm);
    at.key("pages_url", &mut store.pages_url, &Optional(StoreForm));
    at.key("timeout", &mut store.timeout, &Span { min: MS, max: Duration::from_secs(10) });
    at.key("pages", &mut store.pages, &Size { min: MIB, max: TIB });
    at.key("max_page", &mut store.max_page, &OBJECT);
    at.key("prefix", &mut store.prefix, &named(text::key_prefix));
}

fn session(at: &mut impl Walk, session: &mut Session) {
    at.key("app", &mut session.app, &Words(&APPS));
    at.preset(|| session.app.into_iter().for_each(|app| app.set(session)));
    let cookies = List::of(Text { parse: text::cookie_pattern, show: Pattern::to_string });
    at.key("cookie", &mut session.cookies, &cookies);
    at.key("mint", &mut session.mint, &Flag);
    at.key("per_host", &mut session.per_host, &Flag);
    let identity = Text { parse: text::identity_header, show: ToString::to_string };
    at.key("identity_header", &mut session.identity_header, &identity);
    let sites = [("Lax", SameSite::Lax), ("Strict", SameSite::Strict), ("None", SameSite::None)];
    at.key("same_site", &mut session.same_site, &Words(&sites));
    let secure = [
        ("auto", SecureCookie::Auto),
        ("always", SecureCookie::Always),
        ("never", SecureCookie::Never),
    ];
    at.key("secure", &mut session.secure, &Words(&secure));
    at.key("cookie_lifetime", &mut session.cookie_lifetime, &Either("session", LIFETIME));
    at.key("idle_timeout", &mut session.idle_timeout, &Either("off", LIFETIME));
    at.key("absolute_timeout", &mut session.absolute_timeout, &Either("off", LIFETIME));
    at.key("max_per_user", &mut session.max_per_user, &count(0, PER_USER_MAX.into()));
    let storage = [("plain", TokenStorage::Plain), ("sha256", TokenStorage::Sha256)];
    at.key("token_storage", &mut session.token_storage, &Words(&storage));
    at.key("max_sessions", &mut session.max_sessions, &count(1, 1_000_000_000));
    at.key("viewed_items", &mut session.viewed_items, &count(1, 1_000));
    at.key("clean_batch", &mut session.clean_batch, &count(1, 10_000));
    at.key("clean_every", &mut session.clean_every, &TIMEOUT);
    at.key("clean_carts", &mut session.clean_carts, &Flag);
    at.key("on_expire", &mut session.on_expire, &Text { parse: on_expire, show: show_on_expire });
    at.key("webhook_secret", &mut session.webhook_secret, &SecretRefs);
    at.key("cart_idle", &mut session.cart_idle, &Either("none", LIFETIME));
    let token_from = [("value", false), ("sha256", true)];
    at.key("token_from", &mut session.token_is_digest, &Words(&token_from));
    at.key("part", &mut session.part, &Optional(sessions::expression()));
    at.section("verify", |at| sessions::verify(at, &mut session.verify));
    at.section("login", |at| sessions::login(at, &mut session.login));
    at.section("logout", |at| sessions::logout(at, &mut session.logout));
}

fn visitor(at: &mut impl Walk, visitor: &mut Visitor) {
    let endpoints = [
        ("me", Endpoint::Me),
        ("cart", Endpoint::Cart),
        ("recent", Endpoint::Recent),
        ("top", Endpoint::Top),
    ];
    at.key("endpoints", &mut visitor.endpoints, &List::of(Words(&endpoints)));
    at.key("cookie", &mut visitor.cookie, &named(text::cookie_name));
    at.key("token_lifetime", &mut visitor.token_lifetime, &LIFETIME);
    at.key("max_tokens", &mut visitor.max_tokens, &count(1, 1_000_000_000));
}

fn cache(at: &mut impl Walk, cache: &mut Cache) {
    at.key("default_ttl", &mut cache.default_ttl, &TTL);
    at.key("stale_while_revalidate", &mut cache.stale_while_revalidate, &TTL);
    at.key("stale_if_error", &mut cache.stale_if_error, &TTL);
    let directives = [("ignore", false), ("honour", true)];
    at.key("client_directives", &mut cache.client_directives, &Words(&directives));
    let unknown = [("bypass", true), ("ignore", false)];
    at.key("unknown_cookies", &mut cache.unknown_cookies_bypass, &Words(&unknown));
    at.key("trust_public", &mut cache.trust_public, &Flag);
    at.key("static_for_all", &mut cache.static_for_all, &Flag);
    at.key("fill_client_address", &mut cache.fill_client_address, &Flag);
    let cookies = List::of(Text { parse: text::cookie_pattern, show: Pattern::to_string });
    at.key("ignore_cookies", &mut cache.ignore_cookies, &cookies);
    let parameters = List::of(Text { parse: text::query_pattern, show: Pattern::to_string });
    at.key("ignore_query", &mut cache.ignore_query, &parameters);
    at.key("memory", &mut cache.memory, &Size { min: MIB, max: TIB });
    at.key("max_object", &mut cache.max_object, &OBJECT);
    let codings = [Coding::Zstd, Coding::Brotli, Coding::Gzip];
    let codings = codings.map(|coding| (coding.as_str(), coding));
    at.key("compress", &mut cache.compress, &List::of(Words(&codings)));
    let detail =
        [("full", StatusDetail::Full), ("short", StatusDetail::Short), ("off", StatusDetail::Off)];
    at.key("status", &mut cache.status, &Words(&detail));
}

fn views(at: &mut impl Walk, views: &mut Views) {
    let every = Span { min: Duration::from_secs(1), max: DAY.saturating_mul(365) };
    at.key("rescale_every", &mut views.rescale_every, &every);
    at.key("keep_top", &mut views.keep_top, &count(1, 1_000_000));
    at.key("rescale_percent", &mut views.rescale_percent, &count(1, 100));
}

fn route(at: &mut impl Walk, route: &mut Route) {
    at.key("name", &mut route.name, &named(text::route_name));
    at.section("match", |at| {
        at.key("path", &mut route.paths, &List::of(paths()));
        at.key("host", &mut route.hosts, &List::of(named(text::host)));
        at.key("method", &mut route.methods, &List::of(named(text::method)));
        at.key("query", &mut route.query, &Parameters);
    });
    at.key("share", &mut route.share, &Words(&SHARES));
    let traits = List::of(Text { parse: text::segment_trait, show: ToString::to_string });
    at.key("segment", &mut route.segment, &traits);
    let proofs = [("twins", SegmentProof::Twins), ("none", SegmentProof::None)];
    at.key("segment_proof", &mut route.segment_proof, &Words(&proofs));
    at.key("ttl", &mut route.ttl, &Optional(TTL));
    at.key("override_ttl", &mut route.override_ttl, &Optional(TTL));
    at.key("override_private", &mut route.override_private, &Flag);
    at.key("stale_while_revalidate", &mut route.stale_while_revalidate, &Optional(TTL));
    at.key("stale_if_error", &mut route.stale_if_error, &Optional(TTL));
    at.key("only_top", &mut route.only_top, &Optional(count(1, 1_000_000)));
    at.key("trust_public", &mut route.trust_public, &Flag);
    let cookies = List::of(named(text::cookie_name));
    let words = [("keep", SetCookie::Keep), ("strip_for_anonymous", SetCookie::StripForAnonymous)];
    at.key("set_cookie", &mut route.set_cookie, &Words(&words));
    at.key("strip_set_cookie", &mut route.strip_set_cookie, &cookies);
    let words = [("full", LeakGuard::Full), ("marks", LeakGuard::Marks), ("off", LeakGuard::Off)];
    at.key("leak_guard", &mut route.leak_guard, &Words(&words));
    at.key("key_cookies", &mut route.key_cookies, &cookies);
    let fields = List::of(Text { parse: text::key_header, show: ToString::to_string });
    at.key("key_headers", &mut route.key_headers, &fields);
    let fields = List::of(Text { parse: text::send_header, show: ToString::to_string });
    at.key("send_headers", &mut route.send_headers, &fields);
    let branches = List::of(Text { parse: text::branch, show: Branch::to_string });
    at.key("purges", &mut route.purges, &branches);
    at.key("fragments", &mut route.fragments, &List::of(FragmentForm));
    at.key("esi", &mut route.esi, &EsiForm);
    at.key("visitor_token", &mut route.visitor_token, &Flag);
    at.key("rows", &mut route.rows, &Optional(named(text::rows_name)));
    at.key("origin", &mut route.origin, &Optional(named(text::rows_name)));
    at.key("allow_from", &mut route.allow_from, &networks());
    at.key("requests_per_address", &mut route.requests_per_address, &Optional(RATE));
    at.key("requests_per_session", &mut route.requests_per_session, &Optional(RATE));
}

fn cookies(at: &mut impl Walk, cookies: &mut Cookies) {
    let names = List::of(Text { parse: text::any_cookie, show: Pattern::to_string });
    at.required("name", &mut cookies.names, &names, "write name = [\"PHPSESSID\"]");
    at.key("secure", &mut cookies.secure, &Words(&[("keep", false), ("auto", true)]));
    at.key("http_only", &mut cookies.http_only, &Words(&[("keep", false), ("always", true)]));
    let sites = [
        ("keep", None),
        ("Lax", Some(SameSite::Lax)),
        ("Strict", Some(SameSite::Strict)),
        ("None", Some(SameSite::None)),
    ];
    at.key("same_site", &mut cookies.same_site, &Words(&sites));
}

fn rows(at: &mut impl Walk, rows: &mut Rows) {
    at.required("name", &mut rows.name, &named(text::rows_name), "write name = \"inventory\"");
    at.key("every", &mut rows.every, &Span { min: 100 * MS, max: DAY.saturating_mul(365) });
    let hint = "write path = \"/api/inventory/{row}\"";
    at.required("path", &mut rows.path, &named(text::rows_path), hint);
    let schemes = [("http", Scheme::Http), ("https", Scheme::Https)];
    at.key("scheme", &mut rows.scheme, &Words(&schemes));
    at.key("origin", &mut rows.origin, &Optional(named(text::rows_name)));
}

/// Meets what says where the socket of the data commands is.
pub(super) fn walk_socket(at: &mut impl Walk, plan: &mut Plan) {
    at.section("store", |at| at.key("url", &mut plan.store.url, &OpenStoreForm));
    at.section("admin", |at| socket(at, &mut plan.admin));
}

fn socket(at: &mut impl Walk, admin: &mut Admin) {
    let path = Text { parse: socket_path, show: |path| path.to_string_lossy().into_owned() };
    at.key("socket", &mut admin.socket, &Either("off", path));
}

fn purge(at: &mut impl Walk, purge: &mut Purge) {
    at.key("method", &mut purge.method, &Flag);
    at.key("purge_from", &mut purge.purge_from, &networks());
    let tokens = [("admin", PurgeToken::Admin), ("none", PurgeToken::None)];
    at.key("purge_token", &mut purge.purge_token, &Words(&tokens));
}

fn admin(at: &mut impl Walk, admin: &mut Admin) {
    at.key("address", &mut admin.address, &Either("off", ADDRESS));
    at.key("token", &mut admin.token, &Optional(BearerToken));
    socket(at, admin);
}

fn log(at: &mut impl Walk, log: &mut Log) {
    let formats = [
        ("json", AccessFormat::Json),
        ("combined", AccessFormat::Combined),
        ("off", AccessFormat::Off),
    ];
    at.key("access", &mut log.access, &Words(&formats));
    at.key("to", &mut log.to, &Text { parse: log_target, show: show_log_target });
    at.key("user", &mut log.user, &Flag);
    at.key("redact_paths", &mut log.redact_paths, &List::of(paths()));
}

fn limits(at: &mut impl Walk, limits: &mut Limits) {
    // hyper refuses to read heads into less than 8 KiB.
    at.key("request_head", &mut limits.request_head, &Size { min: 8 * KIB, max: MIB });
    at.key("uri", &mut limits.uri, &Size { min: 256, max: MIB });
    at.key("max_body", &mut limits.max_body, &Either("none", Size { min: 0, max: u64::MAX }));
    at.key("head_timeout", &mut limits.head_timeout, &TIMEOUT);
    at.key("idle_timeout", &mut limits.idle_timeout, &TIMEOUT);
    at.key("stall_timeout", &mut limits.stall_timeout, &TIMEOUT);
    at.key("connections", &mut limits.connections, &count(1, 10_000_000));
    at.key("connections_per_address", &mut limits.connections_per_address, &count(1, 10_000_000));
    let at_once = &mut limits.requests_at_once_per_address;
    at.key("requests_at_once_per_address", at_once, &count(1, 10_000_000));
    at.key("requests_per_address", &mut limits.requests_per_address, &Either("none", RATE));
    at.key("requests_per_session", &mut limits.requests_per_session, &Either("none", RATE));
    at.key("requests_exempt", &mut limits.requests_exempt, &networks());
    at.key("requests_counted", &mut limits.requests_counted, &count(1_000, 10_000_000));
    at.key("in_flight", &mut limits.in_flight, &Size { min: MIB, max: TIB });
    at.key("holes", &mut limits.holes, &count(1, 1_000));
    at.key("hole_size", &mut limits.hole_size, &Size { min: KIB, max: 64 * MIB });
    at.key("hole_timeout", &mut limits.hole_timeout, &TIMEOUT);
    at.key("hole_memory", &mut limits.hole_memory, &Size { min: MIB, max: TIB });
    at.key("waiters", &mut limits.waiters, &count(0, 10_000_000));
    // The stored index of a page's variants names no more.
    at.key("variants", &mut limits.variants, &count(1, 256));
    at.key("visit_queue", &mut limits.visit_queue, &count(1, 10_000_000));
    at.key("tunnels", &mut limits.tunnels, &count(0, 10_000_000));
    at.key("tunnels_per_address", &mut limits.tunnels_per_address, &count(1, 10_000_000));
    at.key("tunnel_idle", &mut limits.tunnel_idle, &TIMEOUT);
    at.key("drain_timeout", &mut limits.drain_timeout, &Span { min: Duration::ZERO, max: DAY });
}

const ADDRESS: Text<SocketAddr> = Text { parse: text::address, show: ToString::to_string };

const RATE: Text<Rate> = Text { parse: rate::parse, show: rate::show };

fn networks() -> List<IpNet, Text<IpNet>> {
    List::of(Text { parse: text::network, show: ToString::to_string })
}

fn peers() -> List<Peers, Text<Peers>> {
    List::of(Text { parse: text::peers, show: ToString::to_string })
}

pub(super) const fn count(min: u64, max: u64) -> Count {
    Count { min, max }
}

pub(super) fn paths() -> Text<PathPattern> {
    Text { parse: text::path_pattern, show: PathPattern::to_string }
}

/// A text that stands for itself.
pub(super) fn named(parse: fn(&str) -> Result<String, String>) -> Text<String> {
    Text { parse, show: String::clone }
}

fn on_expire(text: &str) -> Result<OnExpire, String> {
    if let Some(url) = text.strip_prefix("webhook:") {
        return text::webhook_url(url).map(OnExpire::Webhook);
    }
    match (text, text.strip_prefix("file:")) {
        ("none", _) => Ok(OnExpire::None),
        ("stream", _) => Ok(OnExpire::Stream),
        (_, Some(path)) if !path.is_empty() => Ok(OnExpire::File(PathBuf::from(path))),
        _ => Err(r#""none", "stream", "file:" and a path, or "webhook:" and a URL"#.to_owned()),
    }
}

fn show_on_expire(on_expire: &OnExpire) -> String {
    match on_expire {
        OnExpire::None => "none".to_owned(),
        OnExpire::Stream => "stream".to_owned(),
        OnExpire::File(path) => format!("file:{}", path.to_string_lossy()),
        OnExpire::Webhook(url) => format!("webhook:{}", text::show_webhook_url(url)),
    }
}

fn log_target(text: &str) -> Result<LogTarget, String> {
    match text {
        "stdout" => Ok(LogTarget::Stdout),
        "" => Err("\"stdout\", or the path of a file".to_owned()),
        path => Ok(LogTarget::File(PathBuf::from(path))),
    }
}

fn show_log_target(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::File(path) => path.to_string_lossy().into_owned(),
    }
}

fn socket_path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("the path of a socket".to_owned()),
        path => Ok(PathBuf::from(path)),
    }
}

/// Query parameters with the values that they must have: `{ id = "{item}" }`.
pub(super) struct Parameters;

impl Form<Vec<(String, String)>> for Parameters {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(String, String)>> {
        let Value::Table(table) = &node.value else {
            return faults.expected(node, r#"a table such as { id = "{item}" }"#);
        };
        let value = named(text::query_value);
        let mut read = Vec::new();
        for (name, node) in table {
            if let Err(why) = text::query_name(name) {
                faults.add::<()>(node, format!("found {}; expected {why}", form::string(name)));
            }
            read.push(value.read(node, faults).map(|value| (name.clone(), value)));
        }
        read.into_iter().collect()
    }

    fn write(&self, parameters: &Vec<(String, String)>) -> Option<String> {
        let pair = |(name, value): &(String, String)| {
            format!("{} = {}", form::string(name), form::string(value))
        };
        let pairs: Vec<String> = parameters.iter().map(pair).collect();
        (!pairs.is_empty()).then(|| format!("{{ {} }}", pairs.join(", ")))
    }
}
