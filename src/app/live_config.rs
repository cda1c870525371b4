//! The configuration in force, as one value. A reload makes the next one and swaps the two.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anteroom_cache::purger::Purger;
use anteroom_cache::rules::verdict::CacheSettings;
use anteroom_config::{Cache, LimitsConfig, LoadedPlan, Plan};
use anteroom_proxy::serve::io::Deadlines;
use anteroom_proxy::serve::{self, Caps, Most};
use anteroom_proxy::{ProxySettings, Recompressor};
use anteroom_session::Sessions;
use anteroom_telemetry::traces::Traces;

use super::origins::Origins;
use super::shared_state::SharedState;
use super::start_error::StartError;
use super::{acme, parts, sessions, traces, webhook};

/// How long a request may be on its way on a connection when the server drains, also without a `drain_delay`: some round
/// trips. A client that has got its answer before does not know that it is the last one.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

/// Everything that a reload may change, made from one plan. It is immutable; longer-lived state is in
/// [`SharedState`].
#[derive(Debug)]
pub(super) struct LiveConfig {
    /// Each has another.
    pub(super) number: u64,
    pub(super) plan: Plan,
    /// What was warned of when the plan was read.
    pub(super) warnings: Vec<String>,
    pub(super) settings: Arc<ProxySettings>,
    pub(super) recompressor: Arc<Recompressor>,
    pub(super) purger: Arc<Purger>,
    pub(super) origins: Origins,
    /// How to reach the webhook of abandoned carts, if there is one.
    pub(super) webhook: Option<anteroom_origin::ServerSettings>,
    /// Which requests are traced, if there is a receiver of traces, and how to reach it.
    pub(super) traces: Option<Arc<Traces>>,
    pub(super) traces_receiver: Option<anteroom_origin::ServerSettings>,
    /// TLS towards the authority that certificates are ordered from, if any are.
    pub(super) authority_tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) policy: CacheSettings,
    pub(super) sessions: Arc<Sessions>,
    pub(super) connection: serve::ConnectionSettings,
    pub(super) caps: Arc<Caps>,
}

impl LiveConfig {
    /// Builds the configuration of `plan`, and reads the certificates that it names. The health of servers
    /// that are also in the `old` origins is kept.
    pub(super) fn new(
        loaded: LoadedPlan,
        shared: &SharedState,
        old: &Origins,
    ) -> Result<Arc<Self>, StartError> {
        let LoadedPlan { plan, warnings } = loaded;
        let purger = Arc::new(Purger {
            pages: Arc::clone(&shared.pages),
            query_rules: parts::query_rules(&plan),
            warm_after_purge: plan.cache.warm_after_purge,
        });
        let (storage, rules) = (plan.session.token_storage, sessions::rules(&plan.session));
        let (connections, requests) = (&shared.connections, &shared.requests);
        Ok(Arc::new(Self {
            number: shared.configs.fetch_add(1, Ordering::Relaxed),
            settings: Arc::new(parts::settings(&plan, &purger, &shared.certificates.board)),
            recompressor: Recompressor::new(plan.cache.compress.clone(), plan.cache.max_object),
            purger,
            origins: Origins::new(&plan, old)?,
            webhook: webhook::settings(&plan)?,
            traces: traces::traces(&plan.traces, &shared.traces),
            traces_receiver: traces::settings(&plan.traces)?,
            authority_tls: acme::authority_tls(&plan)?,
            policy: policy(&plan.cache),
            sessions: Arc::new(Sessions::new(storage, rules, Arc::clone(&shared.sessions))),
            connection: connection(&plan.limits),
            caps: Arc::new(Caps::new(most(&plan), Arc::clone(connections), Arc::clone(requests))),
            plan,
            warnings,
        }))
    }

    /// Tells which rules pages are under now: what the audit has stopped under others is shared again.
    pub(super) fn tell_rules(&self, shared: &SharedState) {
        let rules = self.settings.routes.all().map(|route| route.rules.to_string());
        shared.pages.purged.bypass.put_rules(rules.collect());
    }
}

fn connection(limits: &LimitsConfig) -> serve::ConnectionSettings {
    serve::ConnectionSettings {
        deadlines: Deadlines {
            head: limits.head_timeout,
            idle: limits.idle_timeout,
            stall: limits.stall_timeout,
        },
        request_head: limits.request_head,
        last_requests: LAST_REQUESTS,
    }
}

/// The limits on open connections.
fn most(plan: &Plan) -> Most {
    Most {
        all: plan.limits.connections,
        per_address: plan.limits.connections_per_address,
        requests_per_address: plan.limits.requests_at_once_per_address,
        trusted: plan.client.trusted_proxies.clone(),
    }
}

fn policy(cache: &Cache) -> CacheSettings {
    CacheSettings {
        default_ttl: cache.default_ttl,
        stale_while_revalidate: cache.stale_while_revalidate,
        stale_if_error: cache.stale_if_error,
        static_for_all: cache.static_for_all,
        max_object: cache.max_object,
        client_directives: cache.client_directives,
    }
}
