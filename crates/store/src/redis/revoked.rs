//! Revoked tokens in Redis: `barred:<hash of the token>`, each with a time to live.

use anteroom_http::ident::StoredToken;
use redis::pipe;

use super::{Carriage, RedisCall, RedisStore};
use crate::{REVOKED_FOR, RevocationStore, StoreError};

impl RevocationStore for RedisStore {
    async fn mark_revoked(&self, token: &StoredToken, _now: f64) -> Result<(), StoreError> {
        let mut set = pipe();
        let revoked = set.cmd("SET").arg(self.keys().revoked(token));
        revoked.arg("1").arg("EX").arg(REVOKED_FOR.as_secs());
        self.write_over(Carriage::Confirmed, &set).await
    }

    async fn is_revoked(&self, token: &StoredToken, _now: f64) -> Result<bool, StoreError> {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.keys().revoked(token));
        self.query(RedisCall::Read, &command).await
    }
}
