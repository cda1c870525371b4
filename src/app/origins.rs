//! From a plan's `[origin]` and `[origins]` to their servers as all threads see them, and as each thread
//! reaches them.

use std::rc::Rc;
use std::sync::Arc;

use ::http::{HeaderValue, Uri};
use arc_swap::ArcSwap;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::StartError;
use super::parts::Shared;
use crate::config::{self, OriginUrl, Plan};
use crate::http::host::Scheme;
use crate::origin::{
    Balance, Check, Http2, Patience, Roster, Rules, Settings as ServerSettings, Tls, TlsRules,
    Upstream, Upstreams,
};
use crate::task::{self, Health};
use crate::telemetry::metrics::{Metrics, Reading, Sheet};

/// All origins: the first is `[origin]`, and the others follow in the order of the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins(Vec<(Arc<Roster>, Vec<ServerSettings>)>);

/// The origins of a plan with their names.
pub(super) fn named(plan: &Plan) -> impl Iterator<Item = (&str, &config::Origin)> {
    let further = plan.origins.iter().map(|(name, origin)| (name.as_str(), origin));
    std::iter::once(("origin", &plan.origin)).chain(further)
}

/// The place of an origin by its name; `None` is the first.
pub(super) fn place(plan: &Plan, name: Option<&str>) -> usize {
    // The check has found each name.
    named(plan).position(|(own, _)| Some(own) == name).unwrap_or_default()
}

impl Origins {
    /// Those of a plan. What an origin of `old` knows of its servers stays known.
    /// Reads the certificates that it names.
    pub(super) fn new(plan: &Plan, old: &Self) -> Result<Self, StartError> {
        let one = |(name, origin): (&str, &config::Origin)| {
            let servers = origin.urls().iter().enumerate().map(|(at, url)| {
                let weight = origin.servers.weights.get(at).copied().unwrap_or(1);
                (label(url), weight)
            });
            let roster = Roster::new(name, servers.collect(), rules(&origin.servers));
            let same = old.0.iter().find(|(old, _)| old.is_like(&roster));
            if let (None, Some((old, _))) = (same, old.0.iter().find(|(old, _)| old.name() == name))
            {
                if roster.is_apart_from(old) {
                    tracing::warn!(
                        origin = name,
                        "an origin has none of its servers any more: where it is another app now, purge"
                    );
                }
                roster.learn_from(old);
            }
            let roster = same.map_or(roster, |(same, _)| Arc::clone(same));
            let servers = origin.urls().iter().map(|url| server(origin, url));
            Ok((roster, servers.collect::<Result<_, StartError>>()?))
        };
        named(plan).map(one).collect::<Result<_, _>>().map(Self)
    }

    /// As one thread reaches them.
    pub(super) fn reach(&self, sheet: &Arc<Sheet>) -> Upstreams {
        (0..self.0.len()).map(|place| self.reach_one(place, sheet)).collect()
    }

    /// The same for a thread that has `reached` the `old` ones: connections to what has not changed stay.
    pub(super) fn reach_on(
        &self,
        old: &Self,
        reached: &Upstreams,
        sheet: &Arc<Sheet>,
    ) -> Upstreams {
        let reach = |(place, (roster, servers)): (usize, &(Arc<Roster>, Vec<ServerSettings>))| {
            let is_same = |(before, settings): &(Arc<Roster>, Vec<ServerSettings>)| {
                Arc::ptr_eq(before, roster) && settings == servers
            };
            let same = old.0.iter().position(is_same);
            same.map_or_else(|| self.reach_one(place, sheet), |same| Rc::clone(&reached[same]))
        };
        self.0.iter().enumerate().map(reach).collect()
    }

    /// One of them, as one thread reaches it.
    fn reach_one(&self, place: usize, sheet: &Arc<Sheet>) -> Rc<Upstream> {
        let (roster, servers) = &self.0[place];
        Upstream::new(Arc::clone(roster), servers.clone(), Arc::clone(sheet))
    }
}

/// Adds what is told of servers at each scrape.
pub(super) fn register(origins: &Arc<ArcSwap<Origins>>, metrics: &Metrics) {
    let present = Arc::clone(origins);
    let help = "Whether a server of an origin is asked";
    metrics.gauges("anteroom_origin_server_up", help, move || {
        let mut readings = Vec::new();
        for (roster, _) in &present.load().0 {
            let standings = roster.standings().into_iter();
            readings.extend(standings.map(|(server, is_up)| Reading {
                labels: vec![("origin", roster.name().to_owned()), ("server", server.to_owned())],
                value: u64::from(is_up),
            }));
        }
        readings
    });
    let present = Arc::clone(origins);
    metrics.gauges("anteroom_origin_waiting", "Requests that wait for a server", move || {
        let reading = |(roster, _): &(Arc<Roster>, _)| Reading {
            labels: vec![("origin", roster.name().to_owned())],
            value: roster.waiting() as u64,
        };
        present.load().0.iter().map(reading).collect()
    });
}

/// Starts the checks of health on this thread's runtime, for the origins that have them.
pub(super) fn start_checks(
    plan: &Plan,
    shared: &Shared,
    sheet: &Arc<Sheet>,
    stop: &CancellationToken,
) -> Vec<JoinHandle<()>> {
    let start = |(place, (_, origin)): (usize, (&str, &config::Origin))| {
        let health = &origin.servers.health;
        let target = Uri::try_from(health.path.as_deref()?).ok()?;
        let check = Check {
            target,
            host: host(origin, &plan.origin.hosts),
            timeout: health.timeout,
            status: health.status.clone(),
        };
        let upstream = shared.origins.load().reach_one(place, sheet);
        let checks = Health { upstream, check, every: health.every };
        Some(tokio::task::spawn_local(task::drive(checks, Arc::clone(sheet), stop.clone())))
    };
    named(plan).enumerate().filter_map(start).collect()
}

/// The Host of a request to an origin that no visitor made.
pub(super) fn host(origin: &config::Origin, hosts: &[String]) -> HeaderValue {
    let authority = format!("{}:{}", origin.url.host, origin.url.port);
    let host = origin.host.as_ref().or_else(|| hosts.first()).unwrap_or(&authority);
    // A host of the plan is a field value.
    HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("localhost"))
}

fn rules(servers: &config::Servers) -> Rules {
    Rules {
        balance: match servers.balance {
            config::Balance::RoundRobin => Balance::RoundRobin,
            config::Balance::LeastRequests => Balance::LeastRequests,
            config::Balance::Sticky => Balance::Sticky,
        },
        patience: Patience {
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
    }
}

/// How a server is called in the log and the figures.
fn label(url: &OriginUrl) -> String {
    match &url.socket {
        Some(path) => format!("unix:{}", path.display()),
        None => format!("{}:{}", url.host, url.port),
    }
}

/// How one server of an origin is reached. Reads the certificates that the plan names.
fn server(origin: &config::Origin, url: &OriginUrl) -> Result<ServerSettings, StartError> {
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let http2 = match origin.http2 {
        config::Http2::Auto => Http2::Auto,
        config::Http2::Always => Http2::Always,
        config::Http2::Never => Http2::Never,
    };
    let tls = match url.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(Tls::load(&tls_rules(&origin.tls), host, http2)?),
    };
    Ok(ServerSettings {
        host: host.to_owned(),
        port: url.port,
        socket: url.socket.clone(),
        tls,
        http2,
        http2_ping: origin.http2_ping,
        stream_timeout: origin.stream_timeout,
        connect_timeout: origin.connect_timeout,
        first_byte_timeout: origin.first_byte_timeout,
        between_bytes_timeout: origin.between_bytes_timeout,
        keep_idle: origin.keep_idle,
        idle_timeout: origin.idle_timeout,
        head_reuse: origin.head_reuse,
        has_peers: origin.urls().len() > 1,
    })
}

fn tls_rules(tls: &config::OriginTls) -> TlsRules {
    TlsRules {
        ca: tls.ca.clone(),
        server_name: tls.server_name.clone(),
        identity: tls.cert.clone().zip(tls.key.clone()),
        blind: !tls.verify,
    }
}
