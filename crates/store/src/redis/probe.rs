//! One attempt to use a Redis, a Cluster, or what Sentinels name, for `anteroom check --connect`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionInfo, ErrorKind, InfoDict, RedisError, ServerErrorKind,
};
use tokio::time::timeout;

use super::fault::denial;
use super::rights::{Denials, RedisUse};
use super::topology::cluster::nodes_of;
use super::topology::cluster_nodes::table_of;
use super::topology::sentinel::SentinelKeeper;
use super::topology::slot::SLOTS;
use super::topology::{Primary, ServerAddress};
use super::url::{RedisUrl, Servers};
use crate::OpenError;

/// A Cluster that waits for longer than this before it fails over, in milliseconds, deserves a warning.
const NODE_TIMEOUT_MAX: u64 = 5_000;

/// What a Redis says about itself. Parts that its access rules hide are `None`.
#[derive(Clone, Debug)]
pub struct RedisReport {
    /// Its version.
    pub version: Option<String>,
    /// Which keys it evicts when its memory is full.
    pub policy: Option<String>,
    /// What it is, beyond one server: a Cluster of so many primaries, the primary that Sentinels name.
    pub kind: Option<String>,
    /// What it denies its user.
    pub denials: Denials,
    /// What an operator should change, each a sentence.
    pub warnings: Vec<String>,
}

/// Why a Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The address.
    #[error(transparent)]
    Address(#[from] OpenError),
    /// No connection, or no answer to PING.
    #[error("{0}")]
    Redis(RedisError),
    /// No login.
    #[error("{0}")]
    Denied(String),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
    /// None of these servers could be used.
    #[error("none of {0} answers as {1}")]
    None(String, &'static str),
}

impl From<RedisError> for ProbeError {
    fn from(error: RedisError) -> Self {
        match denial(&error) {
            Some(reason) => Self::Denied(reason),
            None if error.is_timeout() => Self::TimedOut,
            None => Self::Redis(error),
        }
    }
}

/// The addresses of a Redis, a Cluster or Sentinels, and the number of a database other than the first; without user
/// and password.
#[must_use]
pub fn label(url: &str) -> String {
    let Ok(RedisUrl { servers, login }) = RedisUrl::parse(url) else {
        return "redis".to_owned();
    };
    let servers = match servers {
        Servers::One => login.addr().to_string(),
        Servers::Cluster(nodes) => names(&nodes),
        Servers::Sentinel { sentinels, master, .. } => {
            format!("{master} at {}", names(&sentinels))
        }
    };
    match login.redis_settings().db() {
        0 => servers,
        database => format!("{servers}, database {database}"),
    }
}

fn names(servers: &[ServerAddress]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Connects, logs in as `url` says, and asks for PING, the version, the eviction policy and what the user is denied; in
/// a Cluster also for what decides a failover.
///
/// # Errors
/// See [`ProbeError`].
pub async fn probe(
    url: &str,
    wanted: &RedisUse<'_>,
    limit: Duration,
) -> Result<RedisReport, ProbeError> {
    let RedisUrl { servers, login } = RedisUrl::parse(url)?;
    let asked = async {
        match servers {
            Servers::One => probe_one(&login, wanted, limit).await,
            Servers::Cluster(seeds) => probe_cluster(&login, &seeds, wanted, limit).await,
            Servers::Sentinel { sentinels, master, login: at_sentinels } => {
                let named = names(&sentinels);
                let keeper = SentinelKeeper::new(sentinels, master, &login, at_sentinels, 1);
                let primary = keeper.primary().await;
                let primary =
                    primary.ok_or(ProbeError::None(named, "a Sentinel that knows the primary"))?;
                probe_named(&login, &primary, wanted, limit).await
            }
        }
    };
    timeout(limit, asked).await.map_err(|_| ProbeError::TimedOut)?
}

async fn probe_one(
    login: &ConnectionInfo,
    wanted: &RedisUse<'_>,
    limit: Duration,
) -> Result<RedisReport, ProbeError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let client = redis::Client::open(login.clone())?;
    let mut on = client.get_multiplexed_async_connection_with_config(&config).await?;
    match redis::cmd("PING").exec_async(&mut on).await {
        // It is told with all that is denied.
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {}
        answer => answer?,
    }
    let (version, policy) = (version(&mut on).await, setting(&mut on, "maxmemory-policy").await);
    let denials = Denials::of(&client, on, wanted).await?;
    Ok(RedisReport { version, policy, kind: None, denials, warnings: Vec::new() })
}

/// The primary that Sentinels name.
async fn probe_named(
    login: &ConnectionInfo,
    primary: &Primary,
    wanted: &RedisUse<'_>,
    limit: Duration,
) -> Result<RedisReport, ProbeError> {
    let at_primary = login.clone().set_addr(primary.address.like(login.addr()));
    let mut report = probe_one(&at_primary, wanted, limit).await?;
    report.kind = Some(format!("the primary is {}", primary.address));
    if !primary.has_replicas {
        report
            .warnings
            .push("the primary has no replica: if it is lost, so are the sessions".into());
    }
    Ok(report)
}

async fn probe_cluster(
    login: &ConnectionInfo,
    seeds: &[ServerAddress],
    wanted: &RedisUse<'_>,
    limit: Duration,
) -> Result<RedisReport, ProbeError> {
    let (mut replies, mut silent, mut on) = (Vec::new(), Vec::new(), None);
    let mut denied = None;
    for seed in seeds {
        match nodes_of(login, seed, None).await {
            Ok((connection, reply)) => {
                replies.push((seed.clone(), reply));
                on.get_or_insert_with(|| (connection, seed.clone()));
            }
            Err(error) => {
                denied = denied.or_else(|| denial(&error));
                silent.push(seed.clone());
            }
        }
    }
    let slots: Vec<u16> = (0..SLOTS).collect();
    let none = || match denied.clone() {
        Some(reason) => ProbeError::Denied(reason),
        None => ProbeError::None(names(seeds), "a node of a Cluster"),
    };
    let (mut on, seed) = on.ok_or_else(none)?;
    let table = table_of(&replies, &slots).ok_or_else(none)?;
    let at_seed = login.clone().set_addr(seed.like(login.addr()));
    let mut report = probe_one(&at_seed, wanted, limit).await?;
    report.kind = Some(format!("a Cluster of {} primaries", table.primaries.len()));
    let mut warn = |text: String| report.warnings.push(text);
    if !silent.is_empty() {
        warn(format!("{} cannot be used as a node of the Cluster", names(&silent)));
    }
    let missing = table.of_shard.iter().filter(|slot| slot.is_none()).count();
    if missing > 0 {
        warn(format!("{missing} of {SLOTS} slots have no primary"));
    }
    let alone = table.primaries.iter().filter(|primary| !primary.has_replicas);
    let alone: Vec<ServerAddress> = alone.map(|primary| primary.address.clone()).collect();
    if !alone.is_empty() {
        warn(format!("{} has no replica: if it is lost, so are its sessions", names(&alone)));
    }
    if setting(&mut on, "cluster-require-full-coverage").await.as_deref() == Some("yes") {
        warn("cluster-require-full-coverage is yes, so one lost primary stops every shard: set it to no".into());
    }
    let node_timeout =
        setting(&mut on, "cluster-node-timeout").await.and_then(|ms| ms.parse().ok());
    if let Some(ms) = node_timeout.filter(|ms: &u64| *ms > NODE_TIMEOUT_MAX) {
        warn(format!(
            "cluster-node-timeout is {ms} ms, and a failover begins only then: set it to 2000"
        ));
    }
    Ok(report)
}

async fn version(on: &mut MultiplexedConnection) -> Option<String> {
    let info: InfoDict = redis::cmd("INFO").arg("server").query_async(on).await.ok()?;
    info.get("redis_version")
}

async fn setting(on: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(name);
    let found: Vec<String> = command.query_async(on).await.ok()?;
    found.into_iter().nth(1)
}
