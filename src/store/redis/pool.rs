//! Exclusive connections for administration: few, made when they are wanted, and let go soon.
//!
//! What visitors wait for never comes here: a check-out costs several times a multiplexed call.

use std::time::Duration;

use bb8_redis::RedisConnectionManager;

use crate::store::StoreError;

/// Connections at a time.
const SIZE: u32 = 2;
/// How long to wait for one. bb8's own default is half a minute.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one may rest.
const REST: Duration = Duration::from_secs(30);

/// The pool.
#[derive(Debug)]
pub(super) struct Pool(bb8::Pool<RedisConnectionManager>);

impl Pool {
    /// Connects nowhere yet.
    pub(super) fn new(client: &redis::Client) -> Result<Self, redis::RedisError> {
        let manager = RedisConnectionManager::new(client.get_connection_info().clone())?;
        let pool = bb8::Pool::builder()
            .max_size(SIZE)
            .connection_timeout(PATIENCE)
            .idle_timeout(Some(REST))
            .build_unchecked(manager);
        Ok(Self(pool))
    }

    /// What Redis does when its memory is full; `None` where it does not tell.
    pub(super) async fn eviction_policy(&self) -> Result<Option<String>, StoreError> {
        let mut connection = self.0.get().await.map_err(|error| match error {
            bb8::RunError::TimedOut => StoreError::TimedOut,
            bb8::RunError::User(error) => StoreError::Failed(error.into()),
        })?;
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg("maxmemory-policy");
        let told: Vec<String> = command
            .query_async(&mut *connection)
            .await
            .map_err(|error| StoreError::Failed(error.into()))?;
        Ok(told.into_iter().nth(1))
    }
}
