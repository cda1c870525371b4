//! From a plan's values to the values that each part wants.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::Duration;

use ::http::uri::PathAndQuery;
use ::http::{HeaderValue, Method};
use arc_swap::ArcSwap;

use super::StartError;
use super::hints::Told;
use super::origins::{self, Origins};
use super::reload::Reloads;
use crate::cache::Pages;
use crate::cache::flight::Flights;
use crate::cache::purge::Purged;
use crate::cache::purger::Purger;
use crate::config::{self, Plan};
use crate::http::harden::Hardening;
use crate::http::pattern::Pattern;
use crate::http::peer::{Guests, Peers};
use crate::http::set_cookie;
use crate::policy::rate_limit::{Counters, Limit, Limits, Rate};
use crate::policy::route::{
    Esi, Fill, Fragment, LeakGuard, QueryValue, Route, Routes, Segment, SetCookie, Share,
};
use crate::proxy::connection::counter::ConnectionCounter;
use crate::proxy::{
    CookieKinds, CookieRules, Endpoint, FragmentLimits, LoginRule, LoginUser, LogoutRule, Matching,
    Minted, OriginRules, PurgeMethod, PurgeToken, Rates, Settings, StatusDetail, Success,
    TokenFrom, Verify, VisitorTokens, Watched,
};
use crate::row::Memo;
use crate::serve::{Caps, Most};
use crate::session::expire::{ExpiredFile, OnExpire};
use crate::session::visit::{Ranks, VisitQueue, VisitorVisits};
use crate::session::{Rules, SameSite, Secure, SessionCookie, Sessions, Verified};
use crate::store::{self, OpenStore};
use crate::task::Expiring;
use crate::telemetry::access_log::{AccessLog, Format, Style, Target};
use crate::telemetry::metrics::Metrics;

/// What all threads share, from the start to the end.
#[derive(Debug)]
pub(super) struct Shared {
    /// The origins of the present turn.
    pub(super) origins: Arc<ArcSwap<Origins>>,
    pub(super) pages: Arc<Pages>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) verified: Arc<Verified>,
    pub(super) visits: Arc<VisitQueue>,
    pub(super) visitor_visits: Arc<VisitorVisits>,
    /// Tokens of visitors in the store.
    pub(super) visitor_tokens: Arc<AtomicU64>,
    pub(super) ranks: Arc<Ranks>,
    pub(super) rows: Arc<Memo>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) caps: Arc<Caps>,
    pub(super) tunnels: Arc<ConnectionCounter>,
    pub(super) reloads: Arc<Reloads>,
    pub(super) hints_told: Arc<Told>,
    /// Carts that wait for their webhook.
    pub(super) events_waiting: Arc<AtomicU64>,
}

impl Shared {
    pub(super) fn new(plan: &Plan, metrics: Arc<Metrics>) -> Arc<Self> {
        let caps = Arc::new(Caps::new(most(plan)));
        let flights = Flights::new(plan.limits.in_flight, plan.limits.waiters);
        let cache = &plan.cache;
        let has_others = matches!(plan.store.url, config::StoreUrl::Redis(_));
        let purged = Arc::new(Purged::new(has_others));
        let variants = plan.limits.variants;
        let pages =
            Arc::new(Pages::new(cache.memory, flights, purged, variants, cache.default_ttl));
        Arc::new(Self {
            origins: Arc::new(ArcSwap::from_pointee(Origins::default())),
            pages,
            sessions: Arc::new(sessions(&plan.session)),
            verified: Arc::default(),
            visits: Arc::new(VisitQueue::new(
                plan.limits.visit_queue,
                plan.session.viewed_items as usize,
            )),
            visitor_visits: Arc::new(VisitorVisits::new(
                plan.limits.visit_queue,
                plan.session.viewed_items as usize,
            )),
            visitor_tokens: Arc::default(),
            ranks: Arc::default(),
            rows: Arc::default(),
            metrics,
            caps,
            tunnels: Arc::default(),
            reloads: Arc::default(),
            hints_told: Arc::default(),
            events_waiting: Arc::default(),
        })
    }

    /// Adds the figures that are read at each scrape.
    pub(super) fn register(&self, log: Option<&Arc<AccessLog>>, store: &OpenStore) {
        let metrics = &self.metrics;
        origins::register(&self.origins, metrics);
        let waiting = Arc::clone(&self.events_waiting);
        let help = "Abandoned carts that wait for the webhook";
        metrics.gauge("anteroom_cart_events_waiting", help, move || waiting.load(Relaxed));
        let caps = Arc::clone(&self.caps);
        metrics
            .gauge("anteroom_connections", "Client connections open", move || caps.open() as u64);
        let tunnels = Arc::clone(&self.tunnels);
        metrics.gauge("anteroom_tunnels", "Tunnels open", move || tunnels.open() as u64);
        let pages = Arc::clone(&self.pages);
        metrics.gauge("anteroom_memory_pages_bytes", "Bytes of pages in memory", move || {
            pages.memory().bytes()
        });
        let pages = Arc::clone(&self.pages);
        metrics
            .gauge("anteroom_memory_pages", "Pages in memory", move || pages.memory().len() as u64);
        let flights = Arc::clone(&self.pages.flights);
        metrics.gauge("anteroom_in_flight_bytes", "Bytes of bodies in flight", move || {
            flights.bytes()
        });
        let flights = Arc::clone(&self.pages.flights);
        metrics.gauge("anteroom_waiting", "Requests on others' fetches", move || {
            flights.waiting() as u64
        });
        let pages = Arc::clone(&self.pages);
        metrics.gauge("anteroom_cut_off", "Whether purges by others may be missing", move || {
            u64::from(pages.purged.is_cut_off())
        });
        let pages = Arc::clone(&self.pages);
        metrics.gauge("anteroom_purges_waiting", "Purges that the store lacks", move || {
            pages.purged.waiting().0 as u64
        });
        let pages = Arc::clone(&self.pages);
        metrics.counter("anteroom_purges_late", "Purges that the store did not take at once", {
            move || pages.purged.waiting().1
        });
        self.reloads.register(metrics);
        let visits = Arc::clone(&self.visits);
        metrics.gauge("anteroom_visits_waiting", "Visits that wait for the store", move || {
            visits.backlog() as u64
        });
        let visits = Arc::clone(&self.visits);
        metrics.counter("anteroom_visits_dropped", "Visits and views dropped", move || {
            visits.dropped()
        });
        self.register_visitors();
        let sessions = Arc::clone(&self.sessions);
        metrics.gauge("anteroom_log_outs_waiting", "Log-outs that wait for the store", move || {
            sessions.log_outs_waiting() as u64
        });
        let counters = store.counters();
        let told = Arc::clone(&counters);
        let help = "Bytes of pages in the store, as it said when it last took or lost one";
        metrics.gauge("anteroom_store_pages_bytes", help, move || told.page_bytes());
        let timeouts = Arc::clone(&counters);
        metrics.counter("anteroom_store_timeouts", "Store calls over their budget", move || {
            timeouts.read().timeouts
        });
        metrics.counter("anteroom_store_breaker_openings", "Times the breaker opened", move || {
            counters.read().breaker_openings
        });
        if let Some(log) = log {
            let log = Arc::clone(log);
            metrics
                .counter("anteroom_log_dropped", "Access-log lines dropped", move || log.dropped());
        }
    }

    /// The same of visitors without a login.
    fn register_visitors(&self) {
        let visits = Arc::clone(&self.visitor_visits);
        let help = "Visits of those with a visitor's token dropped";
        self.metrics.counter("anteroom_visitor_visits_dropped", help, move || visits.dropped());
        let kept = Arc::clone(&self.visitor_tokens);
        let help = "Tokens of visitors without a login in the store, as the cleaner last saw";
        self.metrics.gauge("anteroom_visitor_tokens_kept", help, move || kept.load(Relaxed));
    }
}

/// How many connections may be open.
pub(super) fn most(plan: &Plan) -> Most {
    Most {
        all: plan.limits.connections,
        per_address: plan.limits.connections_per_address,
        requests_per_address: plan.limits.requests_at_once_per_address,
        trusted: plan.client.trusted_proxies.clone(),
    }
}

pub(super) fn store_settings(plan: &Plan) -> store::Settings {
    let url = match &plan.store.url {
        config::StoreUrl::Embedded(folder) => store::Url::Embedded(folder.clone()),
        config::StoreUrl::Redis(url) => store::Url::Redis(url.expose().to_owned()),
    };
    let limits = store::Limits {
        read_timeout: plan.store.timeout,
        write_timeout: Duration::from_secs(2),
        viewed_items: plan.session.viewed_items,
        pages: plan.store.pages,
        max_page: plan.store.max_page,
    };
    store::Settings { url, prefix: plan.store.prefix.clone(), limits }
}

/// The access log and its thread.
type Log = Option<(Arc<AccessLog>, JoinHandle<()>)>;

pub(super) fn access_log(plan: &config::Log) -> Result<Log, StartError> {
    let format = match plan.access {
        config::AccessFormat::Json => Format::Json,
        config::AccessFormat::Combined => Format::Combined,
        config::AccessFormat::Off => return Ok(None),
    };
    let (target, path) = match &plan.to {
        config::LogTarget::Stdout => (Target::Stdout, PathBuf::new()),
        config::LogTarget::File(path) => (Target::File(path.clone()), path.clone()),
    };
    let redact = plan.redact_paths.clone();
    AccessLog::start(&target, Style { format, redact })
        .map(Some)
        .map_err(|source| StartError::Log { path, source })
}

pub(super) fn settings(plan: &Plan, purger: &Arc<Purger>) -> Settings {
    let session = &plan.session;
    let (rates, mut limiting) = rates(plan);
    Settings {
        guests: Guests { allow: plan.client.allow.clone(), deny: plan.client.deny.clone() },
        rates,
        trusted_proxies: plan.client.trusted_proxies.clone(),
        hosts: plan.origin.hosts.clone(),
        has_tls: plan.listen.iter().any(config::Listen::is_secured),
        uri_max: plan.limits.uri,
        body_max: plan.limits.max_body,
        stall: plan.limits.stall_timeout,
        tunnels: plan.limits.tunnels,
        tunnels_per_address: plan.limits.tunnels_per_address,
        tunnel_idle: plan.limits.tunnel_idle,
        cookies: cookie_rules(plan),
        hardening: plan.cookies.iter().map(hardening).collect(),
        verify: verify(session),
        watched: watched(session),
        minted: minted(session),
        visitor_tokens: visitor_tokens(plan),
        endpoints: plan.visitor.endpoints.iter().copied().map(endpoint).collect(),
        ignore_query: plan.cache.ignore_query.clone(),
        origins: origins::named(plan)
            .enumerate()
            .map(|(place, (_, origin))| origin_rules(plan, origin, place))
            .collect(),
        status: match plan.cache.status {
            config::StatusDetail::Full => StatusDetail::Full,
            config::StatusDetail::Short => StatusDetail::Short,
            config::StatusDetail::Off => StatusDetail::Off,
        },
        log_user: plan.log.user,
        purge: purge_method(plan, purger),
        rows: super::rows::names(plan),
        fragments: FragmentLimits {
            count: plan.limits.holes,
            size: plan.limits.hole_size,
            timeout: plan.limits.hole_timeout,
            memory: usize::try_from(plan.limits.hole_memory).unwrap_or(usize::MAX)
                / plan.threads.max(1),
        },
        routes: Routes::new(
            plan.routes.iter().map(|one| route(plan, one, &mut limiting)).collect(),
            Route::rest(plan.cache.trust_public),
        ),
    }
}

fn cookie_rules(plan: &Plan) -> CookieRules {
    CookieRules {
        session: plan.session.cookies.clone(),
        minted: plan.session.mint,
        token: match plan.session.token_is_digest {
            true => TokenFrom::Sha256(plan.session.part.clone()),
            false => TokenFrom::Value(plan.session.part.clone()),
        },
        ignored: plan.cache.ignore_cookies.clone(),
        unknown_bypass: plan.cache.unknown_cookies_bypass,
    }
}

/// What cookies are, on any route.
pub(super) fn cookie_kinds(plan: &Plan) -> CookieKinds {
    let keyed = plan.routes.iter().flat_map(|route| route.key_cookies.iter().cloned());
    CookieKinds { rules: cookie_rules(plan), keyed: keyed.collect() }
}

fn hardening(cookies: &config::Cookies) -> Hardening {
    let same_site = cookies.same_site.map(|site| match site {
        config::SameSite::Lax => "Lax",
        config::SameSite::Strict => "Strict",
        config::SameSite::None => "None",
    });
    let config::Cookies { names, secure, http_only, .. } = cookies.clone();
    Hardening { names, secure, http_only, same_site }
}

/// Whether a route serves only some, or counts them.
fn is_watched(route: &config::Route) -> bool {
    let rates = [route.requests_per_address, route.requests_per_session];
    !route.allow_from.is_empty() || rates.iter().any(Option::is_some)
}

/// `place`: the origin's among all.
fn origin_rules(plan: &Plan, origin: &config::Origin, place: usize) -> OriginRules {
    OriginRules {
        host: origin.host.as_deref().and_then(|host| HeaderValue::from_str(host).ok()),
        sessions: origin.sessions,
        // A cookie that we mint is no business of an app without sessions, not even of the first.
        is_apart: !origin.sessions && (place != 0 || plan.session.mint),
        identity: plan.session.identity_header.clone(),
        secret: origin.secret.as_ref().map(|secret| secret.expose().as_bytes().to_vec()),
        pass_underscores: plan.client.pass_underscore_headers,
        no_detours: plan.routes.iter().any(is_watched),
        no_other_method: plan
            .routes
            .iter()
            .any(|route| is_watched(route) && !route.methods.is_empty()),
        call_stall: origin.stream_timeout,
        fill_client_address: plan.cache.fill_client_address,
    }
}

fn purge_method(plan: &Plan, purger: &Arc<Purger>) -> Option<PurgeMethod> {
    let token = plan.admin.token.as_ref().map(|token| token.expose().as_bytes().to_vec());
    plan.purge.method.then(|| PurgeMethod {
        from: plan.purge.purge_from.iter().copied().map(Peers::Network).collect(),
        token: match plan.purge.purge_token {
            // Without a token of ours, which the check refuses, nobody has the right one.
            config::PurgeToken::Admin => Some(PurgeToken(token.unwrap_or_default())),
            config::PurgeToken::None => None,
        },
        purger: Arc::clone(purger),
    })
}

fn sessions(plan: &config::Session) -> Sessions {
    let sessions = Sessions::new(plan.token_storage);
    sessions.change(session_rules(plan));
    sessions
}

/// How long sessions last, and how many a user may have.
pub(super) fn session_rules(plan: &config::Session) -> Rules {
    Rules {
        idle: plan.idle_timeout,
        absolute: plan.absolute_timeout,
        most: plan.max_per_user,
        bars: plan.verify.path.is_some(),
        farewell: on_expire(plan).map(|on_expire| on_expire.farewell(plan.token_storage)),
    }
}

pub(super) fn expiring(session: &config::Session) -> Option<Expiring> {
    let on_expire = on_expire(session)?;
    Some(Expiring::new(on_expire, session.cart_idle, session.token_storage))
}

fn on_expire(session: &config::Session) -> Option<OnExpire> {
    Some(match &session.on_expire {
        config::OnExpire::None => return None,
        config::OnExpire::Stream => OnExpire::Stream,
        config::OnExpire::File(path) => OnExpire::File(ExpiredFile::new(path.clone())),
        config::OnExpire::Webhook(_) => OnExpire::Queue,
    })
}

fn endpoint(endpoint: config::Endpoint) -> Endpoint {
    match endpoint {
        config::Endpoint::Me => Endpoint::Me,
        config::Endpoint::Cart => Endpoint::Cart,
        config::Endpoint::Recent => Endpoint::Recent,
        config::Endpoint::Top => Endpoint::Top,
    }
}

/// Which of the app's own requests log in and out.
fn watched(session: &config::Session) -> Watched {
    let matching = |rule: &config::Matching| Matching {
        methods: rule
            .methods
            .iter()
            .filter_map(|name| Method::from_bytes(name.as_bytes()).ok())
            .collect(),
        paths: rule.paths.clone(),
        query: rule.query.clone(),
    };
    let success = |success: &config::Success| Success {
        status: success.status.clone(),
        set_cookie: success.set_cookie.clone(),
        location: success.location.clone(),
        header: success.header.clone(),
        clears_cookie: success.clears_cookie.clone(),
    };
    let (login, logout) = (&session.login, &session.logout);
    let user = match &login.user {
        _ if login.verify => None,
        None => None,
        Some(config::LoginUser::Answer(finder)) => Some(LoginUser::Answer(finder.clone())),
        Some(config::LoginUser::Form(name)) => Some(LoginUser::Form(name.clone())),
        Some(config::LoginUser::Json(pointer)) => Some(LoginUser::Json(pointer.clone())),
    };
    Watched {
        login: login.matching.as_ref().map(|rule| LoginRule {
            matching: matching(rule),
            success: success(&login.success),
            user,
        }),
        logout: logout
            .matching
            .as_ref()
            .map(|rule| LogoutRule { matching: matching(rule), success: success(&logout.success) }),
    }
}

/// How the app is asked who a visitor is. The check has seen that all is there which that needs.
fn verify(session: &config::Session) -> Option<Arc<Verify>> {
    let verify = &session.verify;
    let target = PathAndQuery::try_from(verify.path.as_deref()?).ok()?;
    Some(Arc::new(Verify {
        target,
        user: verify.user.clone()?,
        nobody: verify.nobody.clone()?,
        attributes: verify.attributes.clone(),
        every: verify.verify_every,
        timeout: verify.timeout,
        loss: Once::new(),
    }))
}

fn minted(session: &config::Session) -> Option<Minted> {
    let (true, [Pattern::Exact(name)]) = (session.mint, &session.cookies[..]) else {
        return None;
    };
    let cookie = our_cookie(name, session.cookie_lifetime, session);
    Some(Minted { cookie, per_host: session.per_host })
}

/// A cookie that we make.
fn our_cookie(name: &str, lifetime: Option<Duration>, session: &config::Session) -> SessionCookie {
    SessionCookie {
        name: name.to_owned(),
        same_site: match session.same_site {
            config::SameSite::Lax => SameSite::Lax,
            config::SameSite::Strict => SameSite::Strict,
            config::SameSite::None => SameSite::None,
        },
        lifetime,
        secure: match session.secure {
            _ if set_cookie::needs_secure(name) => Secure::Always,
            config::SecureCookie::Auto => Secure::Auto,
            config::SecureCookie::Always => Secure::Always,
            config::SecureCookie::Never => Secure::Never,
        },
    }
}

/// The tokens of visitors without a login. Their cookie is ours also where none is given out any more: browsers
/// keep it. But it may be a session's then.
fn visitor_tokens(plan: &Plan) -> Option<VisitorTokens> {
    let (visitor, gives) = (&plan.visitor, plan.gives_visitor_tokens());
    let is_session = |cookie: &Pattern| cookie.matches(visitor.cookie.as_bytes());
    if !gives && plan.session.cookies.iter().any(is_session) {
        return None;
    }
    let mut cookie = our_cookie(&visitor.cookie, Some(visitor.token_lifetime), &plan.session);
    // Who comes by a link would not bring it, and be given another in its place.
    if cookie.same_site == SameSite::Strict {
        cookie.same_site = SameSite::Lax;
    }
    Some(VisitorTokens::new(cookie, gives))
}

/// The limits of all requests, and what makes those of the routes.
fn rates(plan: &Plan) -> (Rates, Limiting) {
    let limits = &plan.limits;
    let counters = is_limited(plan).then(|| Counters::new(limits.requests_counted));
    let mut limiting = Limiting { counters: counters.clone(), number: 0 };
    let rates = Rates {
        exempt: limits.requests_exempt.clone(),
        all: limiting.limits("*", limits.requests_per_address, limits.requests_per_session),
        counters,
    };
    (rates, limiting)
}

fn is_limited(plan: &Plan) -> bool {
    let limits = &plan.limits;
    let of_routes = plan.routes.iter().map(|r| [r.requests_per_address, r.requests_per_session]);
    let all = [limits.requests_per_address, limits.requests_per_session];
    of_routes.chain([all]).flatten().any(|rate| rate.is_some())
}

/// Makes limits, each with a number of its own on counters that they share.
struct Limiting {
    counters: Option<Arc<Counters>>,
    number: u32,
}

impl Limiting {
    fn limits(
        &mut self,
        name: &str,
        address: Option<config::Rate>,
        session: Option<config::Rate>,
    ) -> Limits {
        let mut limit = |rate: config::Rate| {
            let counters = Arc::clone(self.counters.as_ref()?);
            self.number += 1;
            let rate = Rate { requests: rate.requests, per: rate.per, burst: rate.burst };
            Some(Arc::new(Limit::new(name.into(), rate, (counters, self.number))))
        };
        Limits { address: address.and_then(&mut limit), session: session.and_then(&mut limit) }
    }
}

/// Who is of one segment on a route.
fn segment(route: &config::Route) -> Segment {
    let mut segment = Segment::default();
    if route.share != config::Share::Segment {
        return segment;
    }
    segment.is_promised = route.segment_proof == config::SegmentProof::None;
    for by in &route.segment {
        match by {
            config::Trait::Attribute(name) => segment.attributes.push(name.clone()),
            config::Trait::Language(offered) => segment.language = Some(offered.clone()),
            // By login pages differ anyway, and cookies are keyed as others are.
            config::Trait::LoggedIn | config::Trait::Cookie(_) => {}
        }
    }
    segment
}

fn key_cookies(route: &config::Route) -> Vec<String> {
    let mut names = route.key_cookies.clone();
    let is_segment = route.share == config::Share::Segment;
    for by in route.segment.iter().filter(|_| is_segment) {
        if let config::Trait::Cookie(name) = by
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    }
    names
}

fn share(share: config::Share) -> Share {
    match share {
        config::Share::Anonymous => Share::Anonymous,
        config::Share::Everyone => Share::Everyone,
        config::Share::Segment => Share::Segment,
        config::Share::User => Share::User,
        config::Share::None => Share::None,
    }
}

fn fragment(one: &config::Fragment) -> Fragment {
    Fragment {
        selector: one.selector.clone(),
        fill: match &one.fill {
            config::Fill::From(from) => Fill::From(from.as_str().into()),
            config::Fill::User => Fill::User,
            config::Fill::CartCount => Fill::CartCount,
            config::Fill::Recent(template) => Fill::Recent(template.clone()),
        },
        share: one.share.map(share),
        fallback: one.fallback.as_deref().map(Arc::from),
        only_sessions: one.only_sessions,
    }
}

fn route(plan: &Plan, route: &config::Route, limiting: &mut Limiting) -> Route {
    let query = route.query.iter().map(|(name, value)| {
        let value = match value.as_str() {
            "{item}" => QueryValue::Item,
            text => QueryValue::Exactly(text.to_owned()),
        };
        (name.clone(), value)
    });
    Route {
        name: route.name.as_str().into(),
        paths: route.paths.clone(),
        hosts: route.hosts.clone(),
        methods: route
            .methods
            .iter()
            .filter_map(|name| Method::from_bytes(name.as_bytes()).ok())
            .collect(),
        query: query.collect(),
        share: share(route.share),
        segment: segment(route),
        ttl: route.ttl,
        override_ttl: route.override_ttl,
        override_private: route.override_private,
        stale_while_revalidate: route.stale_while_revalidate,
        stale_if_error: route.stale_if_error,
        only_top: route.only_top,
        trust_public: route.trust_public,
        set_cookie: match route.set_cookie {
            config::SetCookie::Keep => SetCookie::Keep,
            config::SetCookie::StripForAnonymous => SetCookie::StripForAnonymous,
        },
        strip_set_cookie: route.strip_set_cookie.clone(),
        leak_guard: match route.leak_guard {
            config::LeakGuard::Full => LeakGuard::Full,
            config::LeakGuard::Marks => LeakGuard::Marks,
            config::LeakGuard::Off => LeakGuard::Off,
        },
        key_cookies: key_cookies(route),
        key_headers: route.key_headers.clone(),
        send_headers: route.send_headers.clone(),
        purges: route.purges.clone(),
        fragments: route.fragments.iter().map(fragment).collect(),
        esi: match route.esi {
            config::Esi::Off => Esi::Off,
            config::Esi::Said => Esi::Said,
            config::Esi::Always => Esi::Always,
        },
        visitor_token: route.visitor_token,
        rows: route.rows.as_deref().map(Arc::from),
        origin: origins::place(plan, route.origin.as_deref()),
        site: route.origin.as_deref().unwrap_or_default().into(),
        allow_from: route.allow_from.clone(),
        limits: limiting.limits(
            &route.name,
            route.requests_per_address,
            route.requests_per_session,
        ),
    }
}
