//! What is known of the servers of an origin: the string `overload:<version>:<origin>`.

use std::time::Duration;

use bytes::Bytes;

use super::{RedisCall, RedisStore, milliseconds};
use crate::StoreError;
use crate::overload::{KNOWN_SERVERS_MAX, OverloadStore};

impl OverloadStore for RedisStore {
    async fn put_known_servers(
        &self,
        version: u32,
        origin: &str,
        known: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        if known.len() > KNOWN_SERVERS_MAX {
            return Err(StoreError::TooLarge);
        }
        let key = self.keys().known_servers(version, origin);
        let mut command = redis::cmd("SET");
        command.arg(key).arg(known.as_ref()).arg("PX").arg(milliseconds(ttl));
        self.query(RedisCall::Write, &command).await
    }

    async fn known_servers(&self, version: u32, origin: &str) -> Result<Option<Bytes>, StoreError> {
        let key = self.keys().known_servers(version, origin);
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let mut command = redis::cmd("GETRANGE");
        command.arg(key).arg(0).arg(KNOWN_SERVERS_MAX - 1);
        let known: Vec<u8> = self.query(RedisCall::Read, &command).await?;
        Ok((!known.is_empty()).then(|| known.into()))
    }
}
