//! What the configuration says of how requests are answered. All threads share it; a reload swaps it whole.

use std::sync::{Arc, Once};
use std::time::Duration;

use ::http::uri::PathAndQuery;
use ::http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;

use crate::cache::purger::Purger;
use crate::http::extract::{Finder, Sign};
use crate::http::harden::Hardening;
use crate::http::pattern::Pattern;
use crate::http::peer::{Guests, Peer, Peers};
use crate::policy::rate_limit::{Counters, Limits};
use crate::policy::route::Routes;
use crate::proxy::cookie_rules::CookieRules;
use crate::proxy::login_rules::Watched;
use crate::proxy::visitor_token::VisitorTokens;
use crate::row::Names;
use crate::session::SessionCookie;

/// What all threads share for answering requests.
#[derive(Debug)]
pub struct Settings {
    /// Who is served.
    pub guests: Guests,
    /// How many requests are accepted from an address or a session.
    pub rates: Rates,
    /// Whose forwarding fields are believed.
    pub trusted_proxies: Vec<Peers>,
    /// Sites that are served, lower-case; empty: any.
    pub hosts: Vec<String>,
    /// Whether visitors may come by https without a proxy that says so.
    pub has_tls: bool,
    /// The longest target, in bytes.
    pub uri_max: usize,
    /// The largest request body, in bytes.
    pub body_max: Option<u64>,
    /// How long a request body may pause.
    pub stall: Duration,
    /// How many tunnels may be open.
    pub tunnels: usize,
    /// How many of them one address may have.
    pub tunnels_per_address: usize,
    /// How long a tunnel may rest.
    pub tunnel_idle: Duration,
    /// Which cookies mean what.
    pub cookies: CookieRules,
    /// What is added to cookies on their way out.
    pub hardening: Vec<Hardening>,
    /// How the app is asked who a visitor is, if it is.
    pub verify: Option<Arc<Verify>>,
    /// Which of the app's own requests log in and out.
    pub watched: Watched,
    /// The log-ins that we make sessions of, when we do (`mint`).
    pub minted: Option<Minted>,
    /// The tokens of visitors without a login; `None`: a cookie of that name is none of ours.
    pub visitor_tokens: Option<VisitorTokens>,
    /// What is answered under `/_anteroom/`.
    pub endpoints: Vec<Endpoint>,
    /// Query parameters that are removed from shared pages' requests.
    pub ignore_query: Vec<Pattern>,
    /// What each origin is sent, in the places by which routes name them.
    pub origins: Vec<OriginRules>,
    /// How much `Cache-Status` says.
    pub status: StatusDetail,
    /// Whether the access log names users.
    pub log_user: bool,
    /// Who may purge by the method `PURGE`; `None`: it is a method like others.
    pub purge: Option<PurgeMethod>,
    /// The names of rows that routes are answered from.
    pub rows: Names,
    /// What may be filled in a page for one visitor.
    pub fragments: FragmentLimits,
    /// Routes.
    pub routes: Routes,
}

impl Settings {
    /// Whether a request is a purge, where the operator has turned that on.
    pub(in crate::proxy) fn purge_method(&self, method: &Method) -> Option<&PurgeMethod> {
        self.purge.as_ref().filter(|_| method.as_str() == "PURGE")
    }

    /// Whether a connection is served: not where all its requests would be refused.
    #[must_use]
    pub fn may_connect(&self, peer: Peer) -> bool {
        let is_open = self.guests == Guests::default();
        is_open || peer.is_among(&self.trusted_proxies) || self.guests.may_come(peer.own_address())
    }

    /// Whether a connection of `peer` may be that of many visitors: a trusted proxy's, or that of a load
    /// balancer that does not say whom it carries.
    #[must_use]
    pub fn carries_many(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Carried(_)) || peer.is_among(&self.trusted_proxies)
    }
}

/// How many requests are accepted from an address or a session.
#[derive(Debug)]
pub struct Rates {
    /// Whose are not counted.
    pub exempt: Vec<IpNet>,
    /// The limits of all requests.
    pub all: Limits,
    /// What counts; `None` where there is no limit, in no route either.
    pub counters: Option<Arc<Counters>>,
}

/// The log-ins that we make sessions of, when the app names who it is.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The session's cookie.
    pub cookie: SessionCookie,
    /// Whether a log-in counts at its host alone. Else it does at every host.
    pub per_host: bool,
}

/// How the app is asked who a visitor is.
#[derive(Debug)]
pub struct Verify {
    /// What is asked for.
    pub target: PathAndQuery,
    /// Where the answer names the user.
    pub user: Finder,
    /// The sign by which the answer says that no user is logged in.
    pub nobody: Sign,
    /// Where the answer has attributes of the user.
    pub attributes: Vec<(String, Finder)>,
    /// How long an answer counts.
    pub every: Duration,
    /// How long a visitor waits for it.
    pub timeout: Duration,
    /// Whether it was told that users come without their attributes.
    pub loss: Once,
}

/// How much `Cache-Status` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusDetail {
    /// With TTL and reason.
    Full,
    /// Hit or forwarded only.
    Short,
    /// No field at all.
    Off,
}

/// What the origin is told.
#[derive(Clone)]
pub struct OriginRules {
    /// The Host that it gets; `None`: the client's.
    pub host: Option<HeaderValue>,
    /// Whether it is told who the visitor is, and its `Anteroom-*` believed.
    pub sessions: bool,
    /// Whether sessions are kept from it, in cookies too: it is a further origin that has no part in them.
    /// The first one without a part may have sessions of its own under that name.
    pub is_apart: bool,
    /// The field with the user's name.
    pub identity: HeaderName,
    /// The key of the signature.
    pub secret: Option<Vec<u8>>,
    /// Whether request fields with `_` in their names are passed on.
    pub pass_underscores: bool,
    /// Whether no client may name another path or host than that of its request: some are guarded.
    pub no_detours: bool,
    /// Whether no client may name another method: some are guarded or counted by it.
    pub no_other_method: bool,
    /// Whether a fill names the visitor's address, and not ours.
    pub fill_client_address: bool,
    /// How long a body may pause where it is one side of a call (gRPC).
    pub call_stall: Duration,
}

impl std::fmt::Debug for OriginRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OriginRules").field("identity", &self.identity).finish_non_exhaustive()
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
    /// The items that all visitors view most.
    Top,
}

/// What holes may take.
#[derive(Clone, Copy, Debug)]
pub struct FragmentLimits {
    /// What is filled in one page.
    pub count: usize,
    /// The largest content, in bytes.
    pub size: usize,
    /// How long one may take.
    pub timeout: Duration,
    /// The contents that wait for their pages on one thread, in bytes.
    pub memory: usize,
}

/// Who may purge by it.
#[derive(Debug)]
pub struct PurgeMethod {
    /// Peers; the address of the connection counts (or what a load balancer tells of it), and what
    /// a request says of its client does not.
    pub from: Vec<Peers>,
    /// The token that they need; `None`: none.
    pub token: Option<PurgeToken>,
    /// What purges.
    pub purger: Arc<Purger>,
}

impl PurgeMethod {
    /// Whether a peer's purges are not counted: nobody else may purge.
    pub(in crate::proxy) fn is_for(&self, peer: Peer) -> bool {
        peer.is_among(&self.from)
    }
}

/// A token that is not shown.
pub struct PurgeToken(pub Vec<u8>);

impl std::fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PurgeToken(…)")
    }
}
