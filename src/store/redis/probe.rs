//! One attempt to use a Redis, for `anteroom check --connect`.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, InfoDict, RedisError};
use tokio::time::timeout;

use crate::store::OpenError;

/// What a Redis says about itself. Parts that its access rules hide are `None`.
#[derive(Clone, Debug)]
pub struct RedisReport {
    /// Its version.
    pub version: Option<String>,
    /// Which keys it evicts when its memory is full.
    pub policy: Option<String>,
}

/// Why a Redis cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The address.
    #[error(transparent)]
    Address(#[from] OpenError),
    /// No connection, no login, or no answer to PING.
    #[error("{0}")]
    Redis(#[from] RedisError),
    /// No answer in time.
    #[error("no answer in time")]
    TimedOut,
}

/// The address of a Redis without user and password.
#[must_use]
pub fn label(url: &str) -> String {
    redis::Client::open(url).map_or_else(
        |_| "redis".to_owned(),
        |client| client.get_connection_info().addr().to_string(),
    )
}

/// Connects, logs in as `url` says, and asks for PING, the version and the eviction policy.
///
/// # Errors
/// See [`ProbeError`].
pub async fn probe(url: &str, limit: Duration) -> Result<RedisReport, ProbeError> {
    let client = redis::Client::open(super::url::RedisUrl::parse(url)?.login)
        .map_err(|error| OpenError::BadUrl(error.into()))?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let asked = async {
        let mut on = client.get_multiplexed_async_connection_with_config(&config).await?;
        redis::cmd("PING").exec_async(&mut on).await?;
        Ok(RedisReport { version: version(&mut on).await, policy: policy(&mut on).await })
    };
    timeout(limit, asked).await.map_err(|_| ProbeError::TimedOut)?.map_err(|error: RedisError| {
        if error.is_timeout() { ProbeError::TimedOut } else { error.into() }
    })
}

async fn version(on: &mut MultiplexedConnection) -> Option<String> {
    let info: InfoDict = redis::cmd("INFO").arg("server").query_async(on).await.ok()?;
    info.get("redis_version")
}

async fn policy(on: &mut MultiplexedConnection) -> Option<String> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("maxmemory-policy");
    let policy: Vec<String> = command.query_async(on).await.ok()?;
    policy.into_iter().nth(1)
}
