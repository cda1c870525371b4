//! Certificates are shared with no other process: the one that has the folder has them in files.

use std::time::Duration;

use bytes::Bytes;

use super::EmbeddedStore;
use crate::StoreError;
use crate::certificates::{CertificateStore, SEALED_MAX};

impl CertificateStore for EmbeddedStore {
    async fn put_sealed(&self, _: &str, sealed: Bytes, _: Duration) -> Result<(), StoreError> {
        if sealed.len() > SEALED_MAX { Err(StoreError::TooLarge) } else { Ok(()) }
    }

    async fn sealed(&self, _: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(None)
    }
}
