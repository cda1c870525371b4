//! The plan: every setting typed, checked and defaulted. Holding one proves that it is valid.
//!
//! Defaults live here, those of an origin's servers in `servers`, and nowhere else. Reading files is not done here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;

use super::apps::App;
use super::fragment::{Esi, Fragment};
use super::secret::Secret;
use super::servers::Servers;
use super::sessions::{Login, Logout, Verify};
use crate::certificate::Sources;
use crate::http::coding::Coding;
use crate::http::extract::Expression;
use crate::http::host::Scheme;
use crate::http::path::{Branch, PathPattern};
use crate::http::pattern::Pattern;
use crate::http::peer::Peers;
use crate::ident::TokenStorage;

/// Everything that the proxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Runtimes that serve clients, one thread each. Default: the cores.
    pub threads: usize,
    /// `[[listen]]`: where clients are served. Default: 127.0.0.1:8080.
    pub listen: Vec<Listen>,
    /// `[client]`
    pub client: Client,
    /// `[origin]`
    pub origin: Origin,
    /// `[origins.NAME]`: further ones, by their names.
    pub origins: Vec<(String, Origin)>,
    /// `[store]`
    pub store: Store,
    /// `[session]`
    pub session: Session,
    /// `[visitor]`
    pub visitor: Visitor,
    /// `[cache]`
    pub cache: Cache,
    /// `[views]`
    pub views: Views,
    /// `[[route]]`, in order: the first match wins.
    pub routes: Vec<Route>,
    /// `[[cookies]]`, in order: the first that names a cookie counts.
    pub cookies: Vec<Cookies>,
    /// `[[rows]]`, in order: the first has the plain names in the store.
    pub rows: Vec<Rows>,
    /// `[purge]`
    pub purge: Purge,
    /// `[admin]`
    pub admin: Admin,
    /// `[log]`
    pub log: Log,
    /// `[limits]`
    pub limits: Limits,
}

/// A `[[listen]]`: where clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// `address`. Required.
    pub address: Address,
    /// `mode`, 0660: who may open the file of a Unix socket.
    pub mode: u32,
    /// `proxy_protocol.from`: the peers that begin with a header of the PROXY protocol.
    pub balancers: Vec<Peers>,
    /// `h2`, true: whether HTTP/2 is spoken, too; in clear text to who begins with its preface.
    pub h2: bool,
    /// `redirect`: the port of https to which visitors are sent; `None` (`"off"`): they are served here.
    pub redirect: Option<u16>,
    /// `redirect_except`, `["/.well-known/acme-challenge/**"]`: what is served here all the same.
    pub redirect_except: Vec<PathPattern>,
    /// `tls`
    pub tls: Tls,
}

/// `[listen.tls]`: how visitors are served by https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// `cert`: files of certificates, or patterns of them. Empty: no TLS here.
    pub cert: Vec<String>,
    /// `key`: the file of their key, where it is neither in theirs nor beside it.
    pub key: Option<PathBuf>,
    /// `default`: whose certificate those are shown who ask for nobody's; `None`: the first.
    pub default: Option<String>,
    /// `client_certs`, `"off"`: whether visitors show certificates of their own.
    pub client_certs: ClientCerts,
    /// `client_ca`: the file of the authorities that these are from.
    pub client_ca: Option<PathBuf>,
    /// `min_version`, `"1.2"`.
    pub min_version: TlsVersion,
    /// `hsts`: for how long browsers come by https only; `None` (`"off"`): nothing is said of it.
    pub hsts: Option<Duration>,
    /// `hsts_subdomains`, false: whether that holds for all names below, too.
    pub hsts_subdomains: bool,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            cert: Vec::new(),
            key: None,
            default: None,
            client_certs: ClientCerts::Off,
            client_ca: None,
            min_version: TlsVersion::V1_2,
            hsts: None,
            hsts_subdomains: false,
        }
    }
}

impl Tls {
    /// Where the certificates lie.
    #[must_use]
    pub fn sources(&self) -> Sources {
        Sources { certificates: self.cert.clone(), key: self.key.clone() }
    }
}

/// Whether visitors show certificates of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCerts {
    /// They are not asked.
    Off,
    /// They may.
    Optional,
    /// They must.
    Required,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2, RFC 5246
    V1_2,
    /// 1.3, RFC 8446
    V1_3,
}

impl Listen {
    /// At an address of TCP, with all else at its default.
    #[must_use]
    pub fn at(address: SocketAddr) -> Self {
        Self {
            address: Address::Tcp(address),
            mode: USUAL_MODE,
            balancers: Vec::new(),
            h2: true,
            redirect: None,
            redirect_except: PathPattern::parse(ACME).into_iter().collect(),
            tls: Tls::default(),
        }
    }

    /// Whether visitors come by https.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        !self.tls.cert.is_empty()
    }
}

/// Where authorities look for the proof that a site is ours (RFC 8555 §8.3): always by http.
const ACME: &str = "/.well-known/acme-challenge/**";

/// The mode of a Unix socket for visitors: our user and group may connect.
pub(super) const USUAL_MODE: u32 = 0o660;

/// What is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Address and port; `[::]` means all addresses, those of IPv4, too.
    Tcp(SocketAddr),
    /// `unix:<path>`
    Unix(PathBuf),
    /// `systemd` or `systemd:<name>`: sockets that systemd opened for us, all or those of a name.
    Systemd(Option<String>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Systemd(None) => f.write_str("systemd"),
            Self::Systemd(Some(name)) => write!(f, "systemd:{name}"),
        }
    }
}

impl Address {
    /// Address and port, where it has one.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) | Self::Systemd(_) => None,
        }
    }

    /// Whether two different addresses cannot both be listened on.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let (Self::Tcp(one), Self::Tcp(other)) = (self, other) else { return false };
        // Port 0 is another port each time.
        let same_port = one.port() == other.port() && one.port() != 0;
        same_port && (covers_address(one.ip(), other.ip()) || covers_address(other.ip(), one.ip()))
    }
}

/// Whether who listens on all addresses of `wide` listens on `narrow`, too: `[::]` serves IPv4.
fn covers_address(wide: IpAddr, narrow: IpAddr) -> bool {
    wide.is_unspecified() && (wide.is_ipv6() || narrow.is_ipv4())
}

/// `[client]`: what is believed of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// `allow`: the networks of those who are served; empty: all.
    pub allow: Vec<IpNet>,
    /// `deny`: the networks of those who are not, whatever `allow` says.
    pub deny: Vec<IpNet>,
    /// Peers whose forwarding headers are believed.
    pub trusted_proxies: Vec<Peers>,
    /// `underscore_headers`: whether request fields with `_` in their names are passed on
    /// (`"pass"`) or dropped (`"drop"`, the default).
    pub pass_underscore_headers: bool,
}

/// `[origin]`: the app behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `url`: `http://host[:port]` or `https://host[:port]`, without a path, or `unix:<path>`. Required
    /// where there are no `urls`, and the first of them where there are.
    pub url: OriginUrl,
    /// `host`: what the origin gets as Host: `None` (`"preserve"`) the client's, else this.
    pub host: Option<String>,
    /// `hosts`: the sites served, lower-case `host[:port]`; empty: any. Others get 421.
    pub hosts: Vec<String>,
    /// `connect_timeout`, 2 s.
    pub connect_timeout: Duration,
    /// `first_byte_timeout`, 60 s: from the last byte sent to the head of the response.
    pub first_byte_timeout: Duration,
    /// `between_bytes_timeout`, 60 s.
    pub between_bytes_timeout: Duration,
    /// `stream_timeout`, 1 h: the same for what is meant to pause: event streams, and calls of gRPC in
    /// either direction.
    pub stream_timeout: Duration,
    /// `http2`, `"auto"`: whether HTTP/2 is spoken with it.
    pub http2: Http2,
    /// `http2_ping`, 310 s: between two PINGs on a connection of HTTP/2 on which nothing comes. Servers
    /// of gRPC take more than one in five minutes for an attack.
    pub http2_ping: Duration,
    /// `tls`: whom we believe that they are the origin, where its `url` begins with `https:`.
    pub tls: OriginTls,
    /// `keep_idle`, 64: idle connections that each thread keeps.
    pub keep_idle: usize,
    /// `idle_timeout`, 4 s: how long an idle connection is kept (below the 5 s at which common
    /// app servers close theirs).
    pub idle_timeout: Duration,
    /// `head_reuse`, false: whether a connection that carried a HEAD is used again.
    pub head_reuse: bool,
    /// `sessions`, true: whether it is told who the visitor is, and its `Anteroom-*` believed.
    pub sessions: bool,
    /// `secret`: the key of the HMAC over user, method, path and time.
    pub secret: Option<Secret>,
    /// How its servers are used.
    pub servers: Servers,
}

/// An origin's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginUrl {
    /// Whether TLS is spoken there.
    pub scheme: Scheme,
    /// Host name or address literal, as it stands in the URL (IPv6 in brackets); `localhost` for a
    /// Unix socket.
    pub host: String,
    /// Port; 80, or 443 for `https`, when the URL names none.
    pub port: u16,
    /// The path of a Unix socket, where the origin listens on one.
    pub socket: Option<PathBuf>,
}

impl OriginUrl {
    /// `http://host:port`.
    #[must_use]
    pub fn http(host: impl Into<String>, port: u16) -> Self {
        Self { scheme: Scheme::Http, host: host.into(), port, socket: None }
    }
}

/// Whether HTTP/2 is spoken with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2 {
    /// Where it is agreed upon over TLS.
    Auto,
    /// Unasked, in clear text, too.
    Always,
    /// Nowhere.
    Never,
}

/// `[origin] tls`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginTls {
    /// `ca`: the PEM file of who signs the origin's certificate; `None` (`"system"`): whom the system
    /// trusts.
    pub ca: Option<PathBuf>,
    /// `server_name`: the name that the certificate must have, and that is asked for (SNI); `None`
    /// (`"host"`): the host of the `url`.
    pub server_name: Option<String>,
    /// `cert`: the PEM file of our own certificate; `None` (`"none"`): there is none.
    pub cert: Option<PathBuf>,
    /// `key`: the PEM file of its key.
    pub key: Option<PathBuf>,
    /// `verify`, true: false believes any certificate.
    pub verify: bool,
}

impl Default for OriginTls {
    fn default() -> Self {
        Self { ca: None, server_name: None, cert: None, key: None, verify: true }
    }
}

/// `[store]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `url`, `embedded:./anteroom-data`.
    pub url: StoreUrl,
    /// `pages_url`: another Redis, for pages alone.
    pub pages_url: Option<StoreUrl>,
    /// `timeout`, 50 ms: the budget of one read.
    pub timeout: Duration,
    /// `pages`, 1 GiB: bytes of pages in the store.
    pub pages: u64,
    /// `max_page`, 1 MiB: larger pages stay in memory only.
    pub max_page: u64,
    /// `prefix`, `""`: goes before every key.
    pub prefix: String,
}

/// Which store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `embedded:<dir>`
    Embedded(PathBuf),
    /// `redis://`, `rediss://` or `redis+unix:`; the URL may hold a password.
    Redis(Secret),
}

/// `[session]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// `app`, `"none"`: what is said of the sessions of a well-known app where nothing else is said.
    pub app: Option<App>,
    /// `cookie`, `"login"`: names, or patterns with one `*`, of the cookies that may mean a
    /// person. The token is the value of the first of them that came.
    pub cookies: Vec<Pattern>,
    /// `mint`, false: only we mint this cookie, at `Anteroom-Login` from the origin.
    pub mint: bool,
    /// `per_host`, false: a log-in of ours counts at the host at which it was made, and at no other.
    pub per_host: bool,
    /// `identity_header`, `X-Anteroom-User`, lower-case here.
    pub identity_header: ::http::HeaderName,
    /// `same_site`, `"Lax"`.
    pub same_site: SameSite,
    /// `secure`, `"auto"`.
    pub secure: SecureCookie,
    /// `cookie_lifetime`, `"session"`: how long the browser keeps our cookie; `None`: until it is closed.
    pub cookie_lifetime: Option<Duration>,
    /// `idle_timeout`, `"off"`: how long a session may go unseen.
    pub idle_timeout: Option<Duration>,
    /// `absolute_timeout`, `"off"`: how long a session may last.
    pub absolute_timeout: Option<Duration>,
    /// `max_per_user`, 0: how many sessions a user may have; 0: any number.
    pub max_per_user: u32,
    /// `token_storage`, `"plain"` or `"sha256"`; default: sha256 on the embedded store, plain
    /// on Redis.
    pub token_storage: TokenStorage,
    /// `max_sessions`, 10,000,000.
    pub max_sessions: u64,
    /// `viewed_items`, 25.
    pub viewed_items: u32,
    /// `clean_batch`, 100.
    pub clean_batch: u32,
    /// `clean_every`, 1 s: how long the cleaner rests when the number of sessions is under the limit.
    pub clean_every: Duration,
    /// `clean_carts`, true: `clean_full_sessions`.
    pub clean_carts: bool,
    /// `on_expire`, `"none"`: where carts go whose sessions are cleaned.
    pub on_expire: OnExpire,
    /// `webhook_secret`: the keys of the HMACs over what a webhook is told, two at most: each signs.
    pub webhook_secret: Vec<Secret>,
    /// `cart_idle`, `"none"`: after how long without a visit a cart is told of while its session goes on.
    pub cart_idle: Option<Duration>,
    /// `token_from`, `"value"` (false) or `"sha256"`: whether the token is the SHA-256 of the cookie.
    pub token_is_digest: bool,
    /// `part`: of which part of it, where not of all.
    pub part: Option<Expression>,
    /// `[session.verify]`: how the app is asked who a visitor is.
    pub verify: Verify,
    /// `[session.login]`: which of its requests log in.
    pub login: Login,
    /// `[session.logout]`: which of its requests log out.
    pub logout: Logout,
}

/// Where carts go whose sessions are cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnExpire {
    /// Nowhere.
    None,
    /// To the stream `expired:` in Redis.
    Stream,
    /// To this file, a line of JSON each.
    File(PathBuf),
    /// To this URL, in a POST each.
    Webhook(WebhookUrl),
}

/// Who is told of carts whose sessions are cleaned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    /// Whom to connect to.
    pub server: OriginUrl,
    /// Path and query.
    pub target: String,
}

/// The `SameSite` attribute of our cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// `Lax`
    Lax,
    /// `Strict`
    Strict,
    /// `None`
    None,
}

/// When our cookie gets `Secure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureCookie {
    /// When the visitor's scheme is https.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// `[visitor]`: what the visitor's browser may ask us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// `endpoints`, `["me", "cart", "recent"]`: what is answered under `/_anteroom/`.
    pub endpoints: Vec<Endpoint>,
    /// `cookie`, `"anteroom_visitor"`: the one that carries the token of a visitor without a login.
    pub cookie: String,
    /// `token_lifetime`, 30 days: how long a browser keeps it, and what its visitor has is kept unseen.
    pub token_lifetime: Duration,
    /// `max_tokens`, 100,000: of more, those that were not seen for the longest go.
    pub max_tokens: u64,
}

impl Plan {
    /// Whether visitors without a login are given tokens anywhere.
    #[must_use]
    pub fn gives_visitor_tokens(&self) -> bool {
        self.routes.iter().any(|route| route.visitor_token)
    }
}

/// What is answered under `/_anteroom/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Who the visitor is.
    Me,
    /// The visitor's cart.
    Cart,
    /// The items that the visitor viewed last.
    Recent,
    /// The items that all visitors view most: business data, and so off by default.
    Top,
}

/// `[cache]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// `default_ttl`, 300 s; zero: the origin's word only.
    pub default_ttl: Duration,
    /// `stale_while_revalidate`, 0: how long a page that is no longer fresh is still served while it is
    /// fetched anew, where the origin does not say.
    pub stale_while_revalidate: Duration,
    /// `stale_if_error`, 1 h: how long it is served while the origin fails, where that does not say.
    pub stale_if_error: Duration,
    /// `client_directives`, `"ignore"` (false) or `"honour"`: whether a visitor's `no-cache`, `max-age`
    /// and `min-fresh` make the app be asked.
    pub client_directives: bool,
    /// `unknown_cookies`, `"bypass"` (true) or `"ignore"`.
    pub unknown_cookies_bypass: bool,
    /// `trust_public`, false.
    pub trust_public: bool,
    /// `static_for_all`, true.
    pub static_for_all: bool,
    /// `fill_client_address`, false: whether a fill carries the visitor's address.
    pub fill_client_address: bool,
    /// `ignore_cookies`, beside the built-in list.
    pub ignore_cookies: Vec<Pattern>,
    /// `ignore_query`: names, or patterns with one `*`, of query parameters that are removed.
    pub ignore_query: Vec<Pattern>,
    /// `memory`, 256 MiB of pages.
    pub memory: u64,
    /// `max_object`, 8 MiB.
    pub max_object: u64,
    /// `compress`, `["zstd", "br", "gzip"]`: the codings that we make, the most liked first. Empty:
    /// pages go out in the codings in which they came.
    pub compress: Vec<Coding>,
    /// `status`, `"full"`.
    pub status: StatusDetail,
}

/// `[views]`: how the popularity of items is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Views {
    /// `rescale_every`, 300 s: how often scores are halved.
    pub rescale_every: Duration,
    /// `keep_top`, 20,000: the items that stay then.
    pub keep_top: u64,
    /// `rescale_percent`, 50: what is left of each score then.
    pub rescale_percent: u32,
}

/// How much `Cache-Status` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDetail {
    /// Hit or forwarded, with TTL and the reason.
    Full,
    /// Hit or forwarded only.
    Short,
    /// No field at all.
    Off,
}

/// A `[[route]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// `name`: for logs and metrics; default: its first path pattern, or `/**`. Not empty, at
    /// most 128 bytes, not always unique.
    pub name: String,
    /// `match.path`: patterns; empty: any path. `*` is one segment, `**` at the end any number,
    /// `{item}` one segment that names the item viewed.
    pub paths: Vec<PathPattern>,
    /// `match.host`: lower-case hosts; empty: any.
    pub hosts: Vec<String>,
    /// `match.method`: upper-case methods; empty: any.
    pub methods: Vec<String>,
    /// `match.query`: parameters that must be there, each with a literal value or `"{item}"`.
    pub query: Vec<(String, String)>,
    /// `share`, `"anonymous"`.
    pub share: Share,
    /// `segment`, `["logged_in"]`: by what pages may differ with `share = "segment"`.
    pub segment: Vec<Trait>,
    /// `segment_proof`, `"twins"`.
    pub segment_proof: SegmentProof,
    /// `ttl`: the default where the origin is silent, for any type.
    pub ttl: Option<Duration>,
    /// `override_ttl`: instead of the origin's word.
    pub override_ttl: Option<Duration>,
    /// `override_private`, false.
    pub override_private: bool,
    /// `stale_while_revalidate`; default: what `[cache]` says.
    pub stale_while_revalidate: Option<Duration>,
    /// `stale_if_error`; default: what `[cache]` says.
    pub stale_if_error: Option<Duration>,
    /// `only_top`: only pages of the items that are viewed most are cached: this many.
    pub only_top: Option<u64>,
    /// `trust_public`; default: what `[cache]` says.
    pub trust_public: bool,
    /// `set_cookie`, `"keep"`: what becomes of pages that set cookies.
    pub set_cookie: SetCookie,
    /// `strip_set_cookie`: cookies that a fill may lose.
    pub strip_set_cookie: Vec<String>,
    /// `leak_guard`, `"full"`: what is looked for in a page before it is shared.
    pub leak_guard: LeakGuard,
    /// `key_cookies`: cookies that are part of the page key, and so sent on a fill.
    pub key_cookies: Vec<String>,
    /// `key_headers`: request fields that are part of the page key, and so sent on a fill.
    pub key_headers: Vec<::http::HeaderName>,
    /// `send_headers`: request fields that a fill sends beside the usual ones, so that the page may
    /// vary by them.
    pub send_headers: Vec<::http::HeaderName>,
    /// `purges`: paths, or with `/**` all below them, that are stale once an unsafe request to this
    /// route has succeeded.
    pub purges: Vec<Branch>,
    /// `fragments`: elements of its pages that are filled for each visitor.
    pub fragments: Vec<Fragment>,
    /// `esi`, false: whether the tags of ESI in its answers are carried out.
    pub esi: Esi,
    /// `visitor_token`, false: whether visitors without a login are given a token of their own here, when
    /// there is something to remember.
    pub visitor_token: bool,
    /// `rows`: the `[[rows]]` that this route is answered from.
    pub rows: Option<String>,
    /// `origin`: the `[origins.NAME]` that is asked; none: `[origin]`.
    pub origin: Option<String>,
    /// `allow_from`: the networks of those who are served; empty: the route says nothing of it.
    pub allow_from: Vec<IpNet>,
    /// `requests_per_address`: how many one address may send.
    pub requests_per_address: Option<Rate>,
    /// `requests_per_session`: how many one session may send.
    pub requests_per_session: Option<Rate>,
}

/// What becomes of a page that sets cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCookie {
    /// It is not stored.
    Keep,
    /// It is stored without them, where it was fetched for visitors without a login.
    StripForAnonymous,
}

/// What the leak guard looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeakGuard {
    /// CSRF fields, session ids in links, and what is the visitor's own for whom a page was fetched.
    Full,
    /// CSRF fields and session ids in links.
    Marks,
    /// Nothing.
    Off,
}

/// So many requests in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests.
    pub requests: NonZeroU32,
    /// The span of time.
    pub per: Duration,
    /// Requests at once; as many as `requests` where it is not said.
    pub burst: NonZeroU32,
}

/// A `[[cookies]]`: what is added to cookies of the origin's that do not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    /// `name`: which cookies. Required.
    pub names: Vec<Pattern>,
    /// `secure`, `"keep"`: whether `Secure` is added where the visitor came by https.
    pub secure: bool,
    /// `http_only`, `"keep"`: whether `HttpOnly` is added.
    pub http_only: bool,
    /// `same_site`, `"keep"`: the `SameSite` that is added.
    pub same_site: Option<SameSite>,
}

/// A `[[rows]]`: where rows that are refreshed every few seconds come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// `name`: what routes and the command line call it. Required.
    pub name: String,
    /// `every`, 5 s: between two refreshes of a row.
    pub every: Duration,
    /// `path`: where the origin has a row, with `{row}` in it. Required.
    pub path: String,
    /// `scheme`, http: the one by which the origin is told that it was asked.
    pub scheme: Scheme,
    /// `origin`: the `[origins.NAME]` that has them; none: `[origin]`.
    pub origin: Option<String>,
}

/// With whom a route's pages may be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Share {
    /// Visitors without a login.
    Anonymous,
    /// All visitors.
    Everyone,
    /// Visitors of one segment.
    Segment,
    /// One visitor.
    User,
    /// Nobody: never stored.
    None,
}

/// What makes a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trait {
    /// `logged_in`: whether there is a login, by which pages of segments always differ.
    LoggedIn,
    /// `attribute:NAME`: what the app said of the user under that name.
    Attribute(String),
    /// `cookie:NAME`: the value of a cookie that is not a session's.
    Cookie(String),
    /// `language`, or `language:de|en` with those that there are, the first for all who want none of them.
    Language(Vec<String>),
}

impl fmt::Display for Trait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoggedIn => f.write_str("logged_in"),
            Self::Attribute(name) => write!(f, "attribute:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Language(offered) if offered.is_empty() => f.write_str("language"),
            Self::Language(offered) => write!(f, "language:{}", offered.join("|")),
        }
    }
}

/// What has to show that a page is a segment's, and holds nothing of the user who was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentProof {
    /// Two users are answered the very same.
    Twins,
    /// Nothing: the operator promises it.
    None,
}

/// `[purge]`: purges by visitors' way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// `method`, false: whether the method PURGE on the public listener purges a URL.
    pub method: bool,
    /// `purge_from`: the peers that may.
    pub purge_from: Vec<IpNet>,
    /// `purge_token`, `"admin"`.
    pub purge_token: PurgeToken,
}

/// Which token a PURGE needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PurgeToken {
    /// That of `[admin]`.
    #[default]
    Admin,
    /// None: only for peers in networks of our own.
    None,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// `address`, 127.0.0.1:9180; `"off"`: none.
    pub address: Option<SocketAddr>,
    /// `token`: what all but health and metrics need.
    pub token: Option<Secret>,
    /// `socket`, `admin.sock` in the embedded store's folder, or in `./anteroom-data` with Redis;
    /// `"off"`: none. What the data commands speak to.
    pub socket: Option<PathBuf>,
}

impl Admin {
    /// The socket in a data folder.
    pub(super) fn socket_in(folder: &Path) -> PathBuf {
        folder.join("admin.sock")
    }
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// `access`, `"json"`.
    pub access: AccessFormat,
    /// `to`, `"stdout"` or a file's path.
    pub to: LogTarget,
    /// `user`, false: whether the access log names the user.
    pub user: bool,
    /// `redact_paths`: path patterns whose wildcards are hidden in the log.
    pub redact_paths: Vec<PathPattern>,
}

/// Form of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessFormat {
    /// One JSON object a line.
    Json,
    /// The Combined Log Format, with the cache result behind it.
    Combined,
    /// None.
    Off,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

/// `[limits]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `request_head`, 32 KiB.
    pub request_head: usize,
    /// `uri`, 16 KiB.
    pub uri: usize,
    /// `max_body`, `"none"`.
    pub max_body: Option<u64>,
    /// `head_timeout`, 10 s.
    pub head_timeout: Duration,
    /// `idle_timeout`, 75 s.
    pub idle_timeout: Duration,
    /// `stall_timeout`, 30 s: a body, read or written, that does not move.
    pub stall_timeout: Duration,
    /// `connections`, 20,000.
    pub connections: usize,
    /// `connections_per_address`, 1,000 of an address or a /64 of IPv6, as all that is counted by address;
    /// trusted proxies are not counted, nor who has no address.
    pub connections_per_address: usize,
    /// `requests_at_once_per_address`, 2,000: requests of HTTP/2; trusted proxies are not counted.
    pub requests_at_once_per_address: usize,
    /// `requests_per_address`, `"none"`: how many one address may send.
    pub requests_per_address: Option<Rate>,
    /// `requests_per_session`, `"none"`: how many one session may send.
    pub requests_per_session: Option<Rate>,
    /// `requests_exempt`: networks whose requests are not counted.
    pub requests_exempt: Vec<IpNet>,
    /// `requests_counted`, 100,000: addresses and sessions that are counted at a time.
    pub requests_counted: usize,
    /// `in_flight`, 64 MiB: bodies being stored or shared while in flight.
    pub in_flight: u64,
    /// `holes`, 32: what is filled in one page for one visitor.
    pub holes: usize,
    /// `hole_size`, 256 KiB: the largest content of one.
    pub hole_size: usize,
    /// `hole_timeout`, 5 s: how long one may take.
    pub hole_timeout: Duration,
    /// `hole_memory`, 64 MiB: contents that wait for their pages, in all.
    pub hole_memory: u64,
    /// `waiters`, 10,000: requests that wait for others' fetches, in all.
    pub waiters: usize,
    /// `variants`, 32 for one URL.
    pub variants: usize,
    /// `visit_queue`, 100,000.
    pub visit_queue: usize,
    /// `tunnels`, 10,000: connections that speak another protocol than HTTP, in all.
    pub tunnels: usize,
    /// `tunnels_per_address`, 1,000; trusted proxies are not counted.
    pub tunnels_per_address: usize,
    /// `tunnel_idle`, 1 h: how long one of them may rest.
    pub tunnel_idle: Duration,
    /// `drain_timeout`, 30 s.
    pub drain_timeout: Duration,
}

/// Where data lie unless something else is said.
const DATA: &str = "./anteroom-data";
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Plan {
    /// The plan of an operator who said nothing but where the origin is.
    #[must_use]
    pub fn new(origin: OriginUrl) -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from).min(512),
            listen: vec![Listen::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))],
            client: Client::default(),
            origin: Origin::new(origin),
            origins: Vec::new(),
            store: Store::default(),
            session: Session::default(),
            visitor: Visitor::default(),
            cache: Cache::default(),
            views: Views::default(),
            routes: Vec::new(),
            cookies: Vec::new(),
            rows: Vec::new(),
            purge: Purge::default(),
            admin: Admin::default(),
            log: Log::default(),
            limits: Limits::default(),
        }
    }
}

impl Origin {
    /// The origin at `url`, all else at its default.
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
            sessions: true,
            secret: None,
            servers: Servers::default(),
        }
    }

    /// A further origin: it is told of no session.
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

impl Default for Store {
    fn default() -> Self {
        Self {
            url: StoreUrl::Embedded(PathBuf::from(DATA)),
            pages_url: None,
            timeout: Duration::from_millis(50),
            pages: GIB,
            max_page: MIB,
            prefix: String::new(),
        }
    }
}

impl StoreUrl {
    /// How tokens stand in this store unless `token_storage` says otherwise: as they are on
    /// Redis, which an app may share; hashed in the embedded store, which is ours alone.
    #[must_use]
    pub fn usual_token_storage(&self) -> TokenStorage {
        match self {
            Self::Embedded(_) => TokenStorage::Sha256,
            Self::Redis(_) => TokenStorage::Plain,
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self {
            app: None,
            cookies: vec![Pattern::Exact("login".to_owned())],
            mint: false,
            per_host: false,
            identity_header: ::http::HeaderName::from_static("x-anteroom-user"),
            same_site: SameSite::Lax,
            secure: SecureCookie::Auto,
            cookie_lifetime: None,
            idle_timeout: None,
            absolute_timeout: None,
            max_per_user: 0,
            token_storage: TokenStorage::Sha256,
            max_sessions: 10_000_000,
            viewed_items: 25,
            clean_batch: 100,
            clean_every: Duration::from_secs(1),
            clean_carts: true,
            on_expire: OnExpire::None,
            webhook_secret: Vec::new(),
            cart_idle: None,
            token_is_digest: false,
            part: None,
            verify: Verify::default(),
            login: Login::default(),
            logout: Logout::default(),
        }
    }
}

impl Default for Visitor {
    fn default() -> Self {
        Self {
            endpoints: vec![Endpoint::Me, Endpoint::Cart, Endpoint::Recent],
            cookie: "anteroom_visitor".to_owned(),
            token_lifetime: Duration::from_secs(30 * 86_400),
            max_tokens: 100_000,
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        let exact = |name: &str| Pattern::Exact(name.to_owned());
        Self {
            default_ttl: Duration::from_secs(300),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::from_secs(3600),
            client_directives: false,
            unknown_cookies_bypass: true,
            trust_public: false,
            static_for_all: true,
            fill_client_address: false,
            ignore_cookies: Vec::new(),
            ignore_query: vec![
                Pattern::Affix { prefix: "utm_".to_owned(), suffix: String::new() },
                exact("gclid"),
                exact("fbclid"),
                exact("msclkid"),
                exact("mc_cid"),
            ],
            memory: 256 * MIB,
            max_object: 8 * MIB,
            compress: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            status: StatusDetail::Full,
        }
    }
}

impl Default for Views {
    fn default() -> Self {
        Self { rescale_every: Duration::from_secs(300), keep_top: 20_000, rescale_percent: 50 }
    }
}

impl Default for Route {
    fn default() -> Self {
        Self {
            name: String::new(),
            paths: Vec::new(),
            hosts: Vec::new(),
            methods: Vec::new(),
            query: Vec::new(),
            share: Share::Anonymous,
            segment: vec![Trait::LoggedIn],
            segment_proof: SegmentProof::Twins,
            ttl: None,
            override_ttl: None,
            override_private: false,
            stale_while_revalidate: None,
            stale_if_error: None,
            only_top: None,
            trust_public: false,
            set_cookie: SetCookie::Keep,
            strip_set_cookie: Vec::new(),
            leak_guard: LeakGuard::Full,
            key_cookies: Vec::new(),
            key_headers: Vec::new(),
            send_headers: Vec::new(),
            purges: Vec::new(),
            fragments: Vec::new(),
            esi: Esi::Off,
            visitor_token: false,
            rows: None,
            origin: None,
            allow_from: Vec::new(),
            requests_per_address: None,
            requests_per_session: None,
        }
    }
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            name: String::new(),
            every: Duration::from_secs(5),
            path: String::new(),
            scheme: Scheme::Http,
            origin: None,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            address: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9180))),
            token: None,
            socket: Some(Self::socket_in(Path::new(DATA))),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            access: AccessFormat::Json,
            to: LogTarget::Stdout,
            user: false,
            redact_paths: Vec::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_head: 32 << 10,
            uri: 16 << 10,
            max_body: None,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            connections: 20_000,
            connections_per_address: 1_000,
            requests_at_once_per_address: 2_000,
            requests_per_address: None,
            requests_per_session: None,
            requests_exempt: Vec::new(),
            requests_counted: 100_000,
            in_flight: 64 * MIB,
            holes: 32,
            hole_size: 256 << 10,
            hole_timeout: Duration::from_secs(5),
            hole_memory: 64 * MIB,
            waiters: 10_000,
            variants: 32,
            visit_queue: 100_000,
            tunnels: 10_000,
            tunnels_per_address: 1_000,
            tunnel_idle: Duration::from_secs(3_600),
            drain_timeout: Duration::from_secs(30),
        }
    }
}
