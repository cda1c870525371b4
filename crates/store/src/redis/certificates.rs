//! What proxies share of certificates: the strings `acme:<name>`.

use std::time::Duration;

use bytes::Bytes;

use super::{RedisCall, RedisStore, milliseconds};
use crate::StoreError;
use crate::certificates::{CertificateStore, SEALED_MAX};

impl CertificateStore for RedisStore {
    async fn put_sealed(&self, name: &str, sealed: Bytes, ttl: Duration) -> Result<(), StoreError> {
        if sealed.len() > SEALED_MAX {
            return Err(StoreError::TooLarge);
        }
        let mut command = redis::cmd("SET");
        command.arg(self.keys().sealed(name)).arg(sealed.as_ref()).arg("PX").arg(milliseconds(ttl));
        self.query(RedisCall::Write, &command).await
    }

    async fn sealed(&self, name: &str) -> Result<Option<Bytes>, StoreError> {
        // GETRANGE, not GET: another program's value of any size must not fill our memory.
        let mut command = redis::cmd("GETRANGE");
        command.arg(self.keys().sealed(name)).arg(0).arg(SEALED_MAX - 1);
        let sealed: Vec<u8> = self.query(RedisCall::Read, &command).await?;
        Ok((!sealed.is_empty()).then(|| sealed.into()))
    }
}
