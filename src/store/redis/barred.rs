//! Barred tokens in Redis: `barred:<hash of the token>`, each with a time to live.

use super::{Call, RedisStore};
use crate::ident::StoredToken;
use crate::store::{BARRED_FOR, BarStore, StoreError};

impl BarStore for RedisStore {
    async fn bar(&self, token: &StoredToken, _now: f64) -> Result<(), StoreError> {
        let mut command = redis::cmd("SET");
        command.arg(self.keys().barred(token)).arg("1").arg("EX").arg(BARRED_FOR.as_secs());
        self.query(Call::Write, &command).await
    }

    async fn is_barred(&self, token: &StoredToken, _now: f64) -> Result<bool, StoreError> {
        let mut command = redis::cmd("EXISTS");
        command.arg(self.keys().barred(token));
        self.query(Call::Read, &command).await
    }
}
