//! The settings for answering requests. All threads share them, and a reload replaces them as a whole.

use std::ops::Deref;
use std::sync::{Arc, Once};
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Method};
use anteroom_acme::ChallengeLookup;
use anteroom_cache::purger::Purger;
use anteroom_http::harden::Hardening;
use anteroom_http::host::{Host, Scheme};
use anteroom_http::host_pattern::HostPattern;
use anteroom_http::peer::{AddressRules, Peer, Peers};
use anteroom_http::purge_request::is_purge;
use anteroom_http::query::QueryRules;
use anteroom_policy::answer::{Endpoint, StatusDetail};
use anteroom_policy::error_page::ErrorPages;
use anteroom_policy::listener::ListenerRules;
use anteroom_policy::login::{LoginRules, VerifyRule};
use anteroom_policy::purge_rule::PurgeRule;
use anteroom_policy::rate_limit::{RateLimitCounters, RequestLimits};
use anteroom_policy::route::Routes;
use anteroom_rows::RowNames;
use anteroom_session::SessionCookie;
use governor::DefaultDirectRateLimiter;
use ipnet::IpNet;

use crate::cookie_rules::CookieRules;
use crate::visitor_token::VisitorTokens;

/// The settings for answering requests, shared by all threads.
#[derive(Debug)]
pub struct ProxySettings {
    /// The client addresses that are served.
    pub allowed_addresses: AddressRules,
    /// How many requests are accepted from an address or a session.
    pub rates: Rates,
    /// The peers whose forwarding fields are trusted.
    pub trusted_proxies: Vec<Peers>,
    /// The field with an id of each request, if requests have one.
    pub request_id: Option<HeaderName>,
    /// The pages for the proxy's own errors.
    pub error_pages: ErrorPages,
    /// The sites that are served; empty: all.
    pub hosts: Vec<HostPattern>,
    /// The only site, if there is no other: an HTTP/1.0 client need not name it.
    pub only_site: Option<Host>,
    /// Whether a listener accepts TLS. Visitors may then use https without a proxy in front.
    pub has_tls: bool,
    /// The listeners without TLS. `anteroom explain` uses them, because its request has no listener.
    pub plain_listeners: Vec<Arc<ListenerRules>>,
    /// The answers to an authority that checks whether a name is ours, if certificates are ordered.
    pub challenges: Option<ChallengeLookup>,
    /// Whether pages are kept with the recipes by which the proxy fetches them again.
    pub keeps_recipes: bool,
    /// The longest target, in bytes.
    pub uri_max: usize,
    /// The largest head, in bytes.
    pub head_max: usize,
    /// The largest request body, in bytes.
    pub body_max: Option<u64>,
    /// How long a request body may pause.
    pub stall: Duration,
    /// The most open tunnels.
    pub tunnels: usize,
    /// The most open tunnels of one address.
    pub tunnels_per_address: usize,
    /// How long a tunnel may be idle.
    pub tunnel_idle: Duration,
    /// The meaning of each cookie.
    pub cookies: CookieRules,
    /// The attributes that are added to cookies in responses.
    pub hardening: Vec<Hardening>,
    /// How the app is asked who a visitor is, if it is.
    pub verify: Option<Arc<Verifier>>,
    /// The requests of the app that log in and out.
    pub watched: LoginRules,
    /// The sessions that the proxy creates at logins, if it creates any (`mint`).
    pub minted: Option<SessionCreation>,
    /// The tokens of visitors without a login. With `None`, a cookie of that name has no meaning for the
    /// proxy.
    pub visitor_tokens: Option<VisitorTokens>,
    /// The endpoints under `/_anteroom/`.
    pub endpoints: Vec<Endpoint>,
    /// How routes in learn mode learn.
    pub learn: LearnSettings,
    /// The rules on the queries of stored pages' URLs.
    pub query_rules: QueryRules,
    /// What each origin is sent. Routes refer to origins by index.
    pub origins: Vec<OriginRules>,
    /// How detailed `Cache-Status` is.
    pub status: StatusDetail,
    /// Whether the access log names users.
    pub log_user: bool,
    /// The clients that may purge with the method `PURGE`. With `None`, the method has no special meaning.
    pub purge: Option<PurgeMethod>,
    /// The unsafe requests whose success makes pages stale, besides those of their routes.
    pub purge_rules: Vec<PurgeRule>,
    /// The names of the rows that routes serve.
    pub rows: RowNames,
    /// For each source of rows, whether a row is scheduled when it is asked for.
    pub rows_on_demand: Vec<bool>,
    /// The limits on fragments.
    pub fragments: FragmentLimits,
    /// Routes.
    pub routes: Routes,
}

impl ProxySettings {
    /// The settings of `PURGE` if the request is a purge and they are enabled.
    pub(crate) fn purge_method(&self, method: &Method) -> Option<&PurgeMethod> {
        self.purge.as_ref().filter(|_| is_purge(method))
    }

    /// The listener rules for requests of a scheme, for a request without a listener of its own. If only some
    /// listeners redirect to https, the request counts as not redirected.
    pub(crate) fn listener_of(&self, scheme: Scheme) -> Arc<ListenerRules> {
        let redirects = |listener: &Arc<ListenerRules>| listener.redirect.is_some();
        let is_redirected = scheme == Scheme::Http && self.plain_listeners.iter().all(redirects);
        self.plain_listeners.first().filter(|_| is_redirected).cloned().unwrap_or_default()
    }

    /// Whether to accept a connection. It is refused if all its requests would be refused.
    #[must_use]
    pub fn may_connect(&self, peer: Peer) -> bool {
        let is_open = self.allowed_addresses == AddressRules::default();
        is_open
            || peer.is_among(&self.trusted_proxies)
            || self.allowed_addresses.may_come(peer.own_address())
    }

    /// Whether a connection of `peer` may carry requests of many visitors. True for a trusted proxy, and for
    /// a load balancer that does not state the client.
    #[must_use]
    pub fn may_carry_many_clients(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Carried(_)) || peer.is_among(&self.trusted_proxies)
    }
}

/// The rate limits by address and by session.
#[derive(Debug)]
pub struct Rates {
    /// The networks whose requests are not counted.
    pub exempt: Vec<IpNet>,
    /// The limits that apply to all requests.
    pub all: RequestLimits,
    /// The counters; `None` if there is no limit at all, not even on a route.
    pub counters: Option<Arc<RateLimitCounters>>,
}

/// The sessions that the proxy creates when the app names the user at a login.
#[derive(Clone, Debug)]
pub struct SessionCreation {
    /// The session cookie.
    pub cookie: SessionCookie,
    /// Whether a login is valid at its own host only. Otherwise it is valid at every host.
    pub per_host: bool,
}

/// How the app is asked for the visitor's user name.
#[derive(Debug)]
pub struct Verifier {
    /// The rule.
    pub rule: VerifyRule,
    /// Whether a warning about users without their attributes has been logged.
    pub dropped_attributes_logged: Once,
}

impl Deref for Verifier {
    type Target = VerifyRule;

    fn deref(&self) -> &VerifyRule {
        &self.rule
    }
}

/// The rules on what an origin is sent.
#[derive(Clone)]
pub struct OriginRules {
    /// The `Host` that the origin gets; `None`: the client's.
    pub host: Option<HeaderValue>,
    /// Whether the origin is sent the visitor's identity, and its `Anteroom-*` fields are trusted.
    pub sessions: bool,
    /// Whether session cookies are withheld from the origin and removed from its responses. This applies to
    /// further origins that take no part in sessions. The first origin may have sessions of its own under the
    /// same cookie name, unless the proxy creates the sessions (`mint`).
    pub is_apart: bool,
    /// The field with the user's name.
    pub identity: HeaderName,
    /// The key of the signature.
    pub secret: Option<Vec<u8>>,
    /// Whether request fields with `_` in their names are passed on.
    pub pass_underscores: bool,
    /// Whether to drop client fields that override path or host (such as `X-Original-URL`), because some
    /// paths are restricted.
    pub no_detours: bool,
    /// Whether to drop client fields that override the method, because some methods are restricted or have
    /// rate limits.
    pub no_other_method: bool,
    /// Whether a fill states the visitor's address instead of the proxy's own.
    pub fill_client_address: bool,
    /// How long a body may pause in a gRPC call.
    pub call_stall: Duration,
}

impl std::fmt::Debug for OriginRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OriginRules").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// How routes in learn mode learn.
#[derive(Debug, Default)]
pub struct LearnSettings {
    /// Whether this proxy is the target of a mirror, and forwards nothing.
    pub is_mirror: bool,
    /// How often the origin may be asked as a visitor without cookies; `None`: never.
    pub probes: Option<DefaultDirectRateLimiter>,
}

/// Limits on fragments.
#[derive(Clone, Copy, Debug)]
pub struct FragmentLimits {
    /// The most fragments of one page.
    pub count: usize,
    /// The largest fragment, in bytes.
    pub size: usize,
    /// How long one fragment may take.
    pub timeout: Duration,
    /// The most bytes of fragments that wait for their pages on one thread.
    pub memory: usize,
}

/// The clients that may use the method `PURGE`.
#[derive(Debug)]
pub struct PurgeMethod {
    /// The peers that may purge, by the address of the connection, or the one that a load balancer states for
    /// it. Forwarding fields of the request are ignored.
    pub from: Vec<Peers>,
    /// The token that they need; `None`: no token.
    pub token: Option<PurgeToken>,
    /// Carries out the purges.
    pub purger: Arc<Purger>,
}

impl PurgeMethod {
    /// Whether a peer may purge. Its purges are exempt from rate limits.
    pub(crate) fn is_for(&self, peer: Peer) -> bool {
        peer.is_among(&self.from)
    }
}

/// A token that debug output conceals.
pub struct PurgeToken(pub Vec<u8>);

impl std::fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PurgeToken(…)")
    }
}
