//! Converts a plan's values into the settings of each part.

use std::sync::{Arc, Once};
use std::time::Duration;

use ::http::HeaderValue;
use anteroom_acme::CertificateBoard;
use anteroom_cache::purger::Purger;
use anteroom_config::{self, Plan, page_rules};
use anteroom_http::host::Host;
use anteroom_http::host_pattern::HostPattern;
use anteroom_http::pattern::Pattern;
use anteroom_http::peer::{AddressRules, Peers};
use anteroom_http::query::{QueryRule, QueryRules};
use anteroom_http::request_fields::IdentityHeaders;
use anteroom_http::set_cookie;
use anteroom_policy::cookie::{SameSite, Secure};
use anteroom_policy::login::LoginRules;
use anteroom_policy::rate_limit::{RateLimitBuilder, RateLimitCounters};
use anteroom_policy::route::{Route, Routes, SetCookie};
use anteroom_proxy::{
    CookieKinds, CookieRules, FragmentLimits, LearnSettings, OriginRules, ProxySettings,
    PurgeMethod, PurgeToken, Rates, SessionCreation, TokenFrom, Verifier, VisitorTokens,
};
use anteroom_session::SessionCookie;

use super::{acme, origins, tls};

pub(super) fn settings(
    plan: &Plan,
    purger: &Arc<Purger>,
    certificates: &CertificateBoard,
) -> ProxySettings {
    let session = &plan.session;
    let (rates, mut limiting) = rates(plan);
    ProxySettings {
        keeps_recipes: plan.cache.warm_after_purge > 0 || audits(plan),
        allowed_addresses: AddressRules {
            allow: plan.client.allow.clone(),
            deny: plan.client.deny.clone(),
        },
        rates,
        trusted_proxies: plan.client.trusted_proxies.clone(),
        request_id: plan.client.request_id.clone(),
        error_pages: plan.errors.pages.clone(),
        hosts: plan.origin.hosts.clone(),
        only_site: only_site(&plan.origin.hosts),
        has_tls: plan.listen.iter().any(anteroom_config::Listen::is_secured),
        plain_listeners: plan
            .listen
            .iter()
            .filter(|one| !one.is_secured())
            .map(|one| tls::entry(one, &certificates.awaited))
            .collect(),
        challenges: acme::lookup(plan, certificates),
        uri_max: plan.limits.uri,
        head_max: plan.limits.request_head,
        body_max: plan.limits.max_body,
        stall: plan.limits.stall_timeout,
        tunnels: plan.limits.tunnels,
        tunnels_per_address: plan.limits.tunnels_per_address,
        tunnel_idle: plan.limits.tunnel_idle,
        cookies: cookie_rules(plan),
        hardening: plan.cookies.clone(),
        verify: session
            .verify
            .rule()
            .map(|rule| Arc::new(Verifier { rule, dropped_attributes_logged: Once::new() })),
        watched: LoginRules { login: session.login.rule(), logout: session.logout.rule() },
        minted: minted(session),
        visitor_tokens: visitor_tokens(plan),
        endpoints: plan.visitor.endpoints.clone(),
        learn: LearnSettings {
            is_mirror: plan.learn.mirror,
            probes: plan.learn.probe.then(|| plan.learn.probe_rate.limiter()),
        },
        query_rules: query_rules(plan),
        origins: origins::named(plan)
            .enumerate()
            .map(|(place, (_, origin))| origin_rules(plan, origin, place))
            .collect(),
        status: plan.cache.status,
        log_user: plan.log.user,
        purge: purge_method(plan, purger),
        purge_rules: plan.purge.after.clone(),
        rows: super::rows::names(plan),
        rows_on_demand: plan.rows.iter().map(|rows| rows.on_demand).collect(),
        fragments: FragmentLimits {
            count: plan.limits.fragments,
            size: plan.limits.fragment_size,
            timeout: plan.limits.fragment_timeout,
            memory: usize::try_from(plan.limits.fragment_memory).unwrap_or(usize::MAX)
                / plan.threads.max(1),
        },
        routes: routes(plan, &mut limiting),
    }
}

/// Whether some hits are held against the app: then it is known how a page was filled.
fn audits(plan: &Plan) -> bool {
    let rates = plan.routes.iter().map(|route| route.audit).chain([plan.cache.audit]);
    rates.into_iter().any(|rate| rate.hits().is_some())
}

fn routes(plan: &Plan, limiting: &mut RateLimitBuilder) -> Routes {
    let origins: Vec<&str> = plan.origins.iter().map(|(name, _)| name.as_str()).collect();
    let query_rule = QueryRule { ignore: plan.cache.ignore_query.clone(), keep: None };
    let rest = Route::rest(plan.cache.trust_public, query_rule);
    let rest = Route {
        refresh_ahead: plan.cache.refresh_ahead,
        audit: plan.cache.audit,
        mode: plan.cache.mode,
        identity_headers: Arc::new(IdentityHeaders::new(plan.cache.identity_headers.clone())),
        ..rest
    };
    let mut rules = page_rules(plan).into_iter().map(Arc::from);
    let mut with_rules = |route| Route { rules: rules.next().unwrap_or_default(), ..route };
    let listed = plan.routes.iter().cloned().map(&mut with_rules).collect();
    Routes::new(listed, with_rules(rest), &origins, limiting)
}

/// The rules on the queries of stored pages' URLs: that of `[cache]`, and those of routes.
pub(super) fn query_rules(plan: &Plan) -> QueryRules {
    let usual = QueryRule { ignore: plan.cache.ignore_query.clone(), keep: None };
    QueryRules::new(usual, plan.routes.iter().map(|route| route.query_rule.clone()))
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

/// The classes of cookies, on any route.
pub(super) fn cookie_kinds(plan: &Plan) -> CookieKinds {
    let keyed = plan.routes.iter().flat_map(|route| route.key_cookies.iter().cloned());
    let stripped = plan.routes.iter().flat_map(|route| route.strip_set_cookie.iter().cloned());
    CookieKinds {
        rules: cookie_rules(plan),
        keyed: keyed.collect(),
        stripped: stripped.collect(),
        strips_for_anonymous: plan
            .routes
            .iter()
            .any(|route| route.set_cookie == SetCookie::StripForAnonymous),
    }
}

/// `place`: the origin's index among all.
fn origin_rules(plan: &Plan, origin: &anteroom_config::OriginConfig, place: usize) -> OriginRules {
    OriginRules {
        host: origin.host.as_deref().and_then(|host| HeaderValue::from_str(host).ok()),
        sessions: origin.sessions,
        // The cookie of minted sessions is withheld from an app without sessions, even from the first one.
        is_apart: !origin.sessions && (place != 0 || plan.session.mint),
        identity: plan.session.identity_header.clone(),
        secret: origin.secret.as_ref().map(|secret| secret.expose().as_bytes().to_vec()),
        pass_underscores: plan.client.pass_underscore_headers,
        no_detours: plan.routes.iter().any(Route::is_watched),
        no_other_method: plan
            .routes
            .iter()
            .any(|route| route.is_watched() && !route.methods.is_empty()),
        call_stall: origin.stream_timeout,
        fill_client_address: plan.cache.fill_client_address,
    }
}

fn purge_method(plan: &Plan, purger: &Arc<Purger>) -> Option<PurgeMethod> {
    let token = plan.admin.token.as_ref().map(|token| token.expose().as_bytes().to_vec());
    plan.purge.method.then(|| PurgeMethod {
        from: plan.purge.purge_from.iter().copied().map(Peers::Network).collect(),
        token: match plan.purge.purge_token {
            // The check refuses this without a token; an empty one matches no request.
            anteroom_config::PurgeAuthorization::Admin => {
                Some(PurgeToken(token.unwrap_or_default()))
            }
            anteroom_config::PurgeAuthorization::None => None,
        },
        purger: Arc::clone(purger),
    })
}

fn minted(session: &anteroom_config::SessionConfig) -> Option<SessionCreation> {
    let (true, [Pattern::Exact(name)]) = (session.mint, &session.cookies[..]) else {
        return None;
    };
    let cookie = our_cookie(name, session.cookie_lifetime, session);
    Some(SessionCreation { cookie, per_host: session.per_host })
}

/// A cookie that the proxy sets.
fn our_cookie(
    name: &str,
    lifetime: Option<Duration>,
    session: &anteroom_config::SessionConfig,
) -> SessionCookie {
    SessionCookie {
        name: name.to_owned(),
        same_site: session.same_site,
        lifetime,
        secure: match set_cookie::needs_secure(name) {
            true => Secure::Always,
            false => session.secure,
        },
    }
}

/// Tokens of anonymous visitors. Their cookie stays reserved after the last route stops issuing tokens,
/// because browsers keep it; it may then also be a session cookie.
fn visitor_tokens(plan: &Plan) -> Option<VisitorTokens> {
    let (visitor, gives) = (&plan.visitor, plan.gives_visitor_tokens());
    let is_session = |cookie: &Pattern| cookie.matches(visitor.cookie.as_bytes());
    if !gives && plan.session.cookies.iter().any(is_session) {
        return None;
    }
    let mut cookie = our_cookie(&visitor.cookie, Some(visitor.token_lifetime), &plan.session);
    // With `Strict`, a visitor that follows a link would arrive without the cookie, and get another in its
    // place.
    if cookie.same_site == SameSite::Strict {
        cookie.same_site = SameSite::Lax;
    }
    Some(VisitorTokens::new(cookie, gives))
}

/// The limits of all requests, and the builder of those of the routes.
fn rates(plan: &Plan) -> (Rates, RateLimitBuilder) {
    let limits = &plan.limits;
    let counters = is_limited(plan).then(|| RateLimitCounters::new(limits.requests_counted));
    let mut limiting = RateLimitBuilder::new(counters.clone());
    let rates = Rates {
        exempt: limits.requests_exempt.clone(),
        all: limiting.limits("*", limits.requests_per_address, limits.requests_per_session),
        counters,
    };
    (rates, limiting)
}

fn is_limited(plan: &Plan) -> bool {
    let limits = &plan.limits;
    let all = [limits.requests_per_address, limits.requests_per_session];
    all.iter().any(Option::is_some) || plan.routes.iter().any(Route::is_limited)
}

/// The only site that is served, if no other is.
fn only_site(hosts: &[HostPattern]) -> Option<Host> {
    match hosts {
        [host] if !host.is_wildcard() => Host::parse(host.as_str().as_bytes()).ok(),
        _ => None,
    }
}
