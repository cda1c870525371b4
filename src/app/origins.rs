//! Converts a plan's `[origin]` and `[origins]` into the servers that all threads share, and each thread's
//! connections to them.

use std::rc::Rc;
use std::sync::Arc;

use ::http::{HeaderValue, Uri};
use anteroom_config::{self, OriginUrl, Plan};
use anteroom_http::host::Scheme;
use anteroom_http::host_pattern::{HostPattern, first_host};
use anteroom_origin::{
    FailureRules, HealthCheck, OriginTlsConnector, ServerList, ServerRules, ServerSettings,
    StrangerLimits, TlsRules, Upstream, Upstreams,
};
use anteroom_policy::route::Route;
use anteroom_telemetry::metrics::ThreadMetrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::start_error::StartError;
use crate::task::{self, HealthChecks};

/// All origins: `[origin]` first, then the others in the order of the plan.
#[derive(Debug, Default)]
pub(super) struct Origins(Vec<(Arc<ServerList>, Vec<ServerSettings>)>);

/// The origins of a plan with their names.
pub(super) fn named(plan: &Plan) -> impl Iterator<Item = (&str, &anteroom_config::OriginConfig)> {
    let further = plan.origins.iter().map(|(name, origin)| (name.as_str(), origin));
    std::iter::once(("origin", &plan.origin)).chain(further)
}

/// The place of an origin by its name; `None` is the first.
pub(super) fn origin_index(plan: &Plan, name: Option<&str>) -> usize {
    // The check has verified each name.
    named(plan).position(|(own, _)| Some(own) == name).unwrap_or_default()
}

impl Origins {
    /// The origins of a plan. The health of servers that are also in `old` is kept. Reads the certificates
    /// that the plan names.
    pub(super) fn new(plan: &Plan, old: &Self) -> Result<Self, StartError> {
        let one = |(name, origin): (&str, &anteroom_config::OriginConfig)| {
            let servers = origin.urls().iter().enumerate().map(|(at, url)| {
                let weight = origin.servers.weights.get(at).copied().unwrap_or(1);
                (label(url), weight)
            });
            let server_list = ServerList::new(name, servers.collect(), rules(plan, name, origin));
            let same = old.0.iter().find(|(old, _)| old.is_like(&server_list));
            if let (None, Some((old, _))) = (same, old.0.iter().find(|(old, _)| old.name() == name))
            {
                if server_list.is_apart_from(old) {
                    tracing::warn!(
                        origin = name,
                        "all servers of an origin were replaced: purge its pages if it is another app now"
                    );
                }
                server_list.learn_from(old);
            }
            let server_list = same.map_or(server_list, |(same, _)| Arc::clone(same));
            let servers = origin.urls().iter().map(|url| server(origin, url));
            Ok((server_list, servers.collect::<Result<_, StartError>>()?))
        };
        named(plan).map(one).collect::<Result<_, _>>().map(Self)
    }

    /// The server lists, which all threads share.
    pub(super) fn server_lists(&self) -> impl Iterator<Item = &Arc<ServerList>> {
        self.0.iter().map(|(server_list, _)| server_list)
    }

    /// One thread's view of the origins.
    pub(super) fn reach(&self, thread_metrics: &Arc<ThreadMetrics>) -> Upstreams {
        (0..self.0.len()).map(|place| self.reach_one(place, thread_metrics)).collect()
    }

    /// The same for a thread that has `reached` the `old` origins: connections to unchanged servers are
    /// kept.
    pub(super) fn reach_on(
        &self,
        old: &Self,
        reached: &Upstreams,
        thread_metrics: &Arc<ThreadMetrics>,
    ) -> Upstreams {
        let reach =
            |(place, (server_list, servers)): (usize, &(Arc<ServerList>, Vec<ServerSettings>))| {
                let is_same = |(before, settings): &(Arc<ServerList>, Vec<ServerSettings>)| {
                    Arc::ptr_eq(before, server_list) && settings == servers
                };
                let same = old.0.iter().position(is_same);
                same.map_or_else(
                    || self.reach_one(place, thread_metrics),
                    |same| Rc::clone(&reached[same]),
                )
            };
        self.0.iter().enumerate().map(reach).collect()
    }

    /// One thread's view of one origin.
    fn reach_one(&self, place: usize, thread_metrics: &Arc<ThreadMetrics>) -> Rc<Upstream> {
        let (server_list, servers) = &self.0[place];
        Upstream::new(Arc::clone(server_list), servers.clone(), Arc::clone(thread_metrics))
    }
}

/// Starts the health checks on this thread's runtime, for the origins that have them.
pub(super) fn start_checks(
    plan: &Plan,
    origins: &Origins,
    thread_metrics: &Arc<ThreadMetrics>,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let start = |(place, (_, origin)): (usize, (&str, &anteroom_config::OriginConfig))| {
        let health = &origin.servers.health;
        let target = Uri::try_from(health.path.as_deref()?).ok()?;
        let check = HealthCheck {
            target,
            host: host(origin, &plan.origin.hosts),
            timeout: health.timeout,
            status: health.status.clone(),
        };
        let upstream = origins.reach_one(place, thread_metrics);
        let checks = HealthChecks { upstream, check, every: health.every };
        Some(tokio::task::spawn_local(task::drive(
            checks,
            Arc::clone(thread_metrics),
            stop.clone(),
        )))
    };
    named(plan).enumerate().filter_map(start).collect()
}

/// The Host of the proxy's own requests to an origin.
pub(super) fn host(origin: &anteroom_config::OriginConfig, hosts: &[HostPattern]) -> HeaderValue {
    let authority = format!("{}:{}", origin.url.host, origin.url.port);
    let host = origin.host.as_deref().or_else(|| first_host(hosts)).unwrap_or(&authority);
    // A host of the plan is a valid field value.
    HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("localhost"))
}

fn rules(plan: &Plan, name: &str, origin: &anteroom_config::OriginConfig) -> ServerRules {
    let servers = &origin.servers;
    let limits_strangers = |route: &Route| {
        route.max_strangers.is_some() && route.origin.as_deref().unwrap_or("origin") == name
    };
    ServerRules {
        balance: servers.balance,
        failure_rules: FailureRules {
            fails: servers.fails,
            fail_window: servers.fail_window,
            rest: servers.rest,
            slow_start: servers.slow_start,
            healthy_after: servers.health.healthy_after,
            unhealthy_after: servers.health.unhealthy_after,
        },
        retry_percent: servers.retry_percent,
        max_busy: servers.max_connections,
        max_waiting: servers.max_waiting as usize,
        wait_timeout: servers.wait_timeout,
        overload: servers.overload,
        patience: origin.first_byte_timeout,
        strangers: StrangerLimits {
            max: servers.max_strangers,
            max_per_network: servers.max_strangers_per_network,
            of_routes: plan.routes.iter().any(limits_strangers),
        },
    }
}

/// The name of a server in the log and the metrics.
fn label(url: &OriginUrl) -> String {
    match &url.socket {
        Some(path) => format!("unix:{}", path.display()),
        None => format!("{}:{}", url.host, url.port),
    }
}

/// How to reach one server of an origin. Reads the certificates that the plan names.
fn server(
    origin: &anteroom_config::OriginConfig,
    url: &OriginUrl,
) -> Result<ServerSettings, StartError> {
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let tls = match url.scheme {
        Scheme::Http => None,
        Scheme::Https => {
            Some(OriginTlsConnector::load(&tls_rules(&origin.tls), host, origin.http2)?)
        }
    };
    Ok(ServerSettings {
        host: host.to_owned(),
        port: url.port,
        socket: url.socket.clone(),
        tls,
        http2: origin.http2,
        http2_ping: origin.http2_ping,
        stream_timeout: origin.stream_timeout,
        connect_timeout: origin.connect_timeout,
        first_byte_timeout: origin.first_byte_timeout,
        between_bytes_timeout: origin.between_bytes_timeout,
        keep_idle: origin.keep_idle,
        idle_timeout: origin.idle_timeout,
        head_reuse: origin.head_reuse,
        response_fields: origin.response_fields,
        has_peers: origin.urls().len() > 1,
    })
}

fn tls_rules(tls: &anteroom_config::OriginTls) -> TlsRules {
    TlsRules {
        ca: tls.ca.clone(),
        server_name: tls.server_name.clone(),
        identity: tls.cert.clone().zip(tls.key.clone()),
        blind: !tls.verify,
    }
}
