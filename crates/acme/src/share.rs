//! What proxies on one store share: sealed, each value under the name of its place, which is a part of the seal.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anteroom_store::{AnyStore, CertificateStore, LeaseStore, StoreError, TaskLease};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answers::{ANSWER_LASTS, ChallengeName};
use crate::failure::StepFailure;
use crate::seal::Sealer;
use crate::state::{AccountRecord, NameState};

/// How long a proxy alone orders, unless it says so again.
const LEASE: Duration = Duration::from_secs(60);
/// How long what is in use is kept: longer than any certificate that an authority issues today.
const IN_USE: Duration = Duration::from_secs(400 * 86_400);
/// How long the state of an order is kept.
const IN_WORK: Duration = Duration::from_secs(30 * 86_400);
/// How long a wish for a renewal is kept.
const WISHED: Duration = Duration::from_secs(3_600);

/// How long a process has the lease that it gives up.
const GIVEN_UP: Duration = Duration::from_millis(1);

const ACCOUNT: &str = "account";
const INDEX: &str = "index";
const RENEW: &str = "renew";

/// The certificates that proxies share, by name.
pub(crate) type SharedIndex = BTreeMap<String, SharedCertificate>;

/// A certificate in the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedCertificate {
    /// The SHA-256 of the certificate, in hex.
    pub(crate) digest: String,
    /// The Unix time from which on it is valid: of two, the later one counts. One that was ordered counts as later than
    /// the one that it has replaced.
    pub(crate) not_before: i64,
}

/// Sharing with the other proxies on a store.
#[derive(Debug)]
pub struct Share<S = AnyStore> {
    store: S,
    sealer: Arc<Sealer>,
    process_id: u64,
    /// Whether the log has reported that a value does not open.
    is_told: Cell<bool>,
}

impl<S: CertificateStore + LeaseStore> Share<S> {
    /// Shares through `store`, which is for background work, what `sealer` has sealed.
    #[must_use]
    pub fn new(store: S, sealer: Arc<Sealer>, process_id: u64) -> Self {
        Self { store, sealer, process_id, is_told: Cell::default() }
    }

    /// Whether this process orders for all of them.
    pub(crate) async fn leads(&self) -> Result<bool, StoreError> {
        self.store.take_lease(TaskLease::Certifier, self.process_id, LEASE).await
    }

    /// Lets another process order at once, instead of after the lease.
    pub(crate) async fn give_up(&self) -> Result<(), StoreError> {
        let store = &self.store;
        store.take_lease(TaskLease::Certifier, self.process_id, GIVEN_UP).await.map(drop)
    }

    async fn put(&self, place: &str, value: &[u8], lasts: Duration) -> Result<(), StepFailure> {
        let sealed = self.sealer.seal(place, value).map_err(|error| StepFailure::here(&error))?;
        let put = self.store.put_sealed(place, sealed.into(), lasts).await;
        put.map_err(|error| StepFailure::here(&error))
    }

    /// A value; one that does not open counts as none, so that what it was for is ordered again.
    async fn get(&self, place: &str) -> Result<Option<Vec<u8>>, StepFailure> {
        let sealed = self.store.sealed(place).await.map_err(|error| StepFailure::here(&error))?;
        let Some(sealed) = sealed else { return Ok(None) };
        match self.sealer.open(place, &sealed) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                if !self.is_told.replace(true) {
                    tracing::warn!(place, %error, "not all proxies on this store share certificates");
                }
                Ok(None)
            }
        }
    }

    async fn put_json(
        &self,
        place: &str,
        value: &impl Serialize,
        lasts: Duration,
    ) -> Result<(), StepFailure> {
        let text = serde_json::to_vec(value).map_err(|error| StepFailure::here(&error))?;
        self.put(place, &text, lasts).await
    }

    /// A value that another version has written otherwise counts as none.
    async fn json<T: DeserializeOwned>(&self, place: &str) -> Result<Option<T>, StepFailure> {
        let found = self.get(place).await?;
        Ok(found.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    pub(crate) async fn account(&self) -> Result<Option<AccountRecord>, StepFailure> {
        self.json(ACCOUNT).await
    }

    pub(crate) async fn put_account(&self, account: &AccountRecord) -> Result<(), StepFailure> {
        self.put_json(ACCOUNT, account, IN_USE).await
    }

    pub(crate) async fn state(&self, name: &str) -> Result<Option<NameState>, StepFailure> {
        self.json(&format!("order:{name}")).await
    }

    pub(crate) async fn put_state(&self, name: &str, state: &NameState) -> Result<(), StepFailure> {
        self.put_json(&format!("order:{name}"), state, IN_WORK).await
    }

    pub(crate) async fn index(&self) -> Result<SharedIndex, StepFailure> {
        Ok(self.json(INDEX).await?.unwrap_or_default())
    }

    /// Whether there is an index, also one that does not open.
    pub(crate) async fn has_index(&self) -> Result<bool, StepFailure> {
        let sealed = self.store.sealed(INDEX).await.map_err(|error| StepFailure::here(&error))?;
        Ok(sealed.is_some())
    }

    /// Shares a certificate with its key. The index names it only once it is there.
    pub(crate) async fn put_certificate(
        &self,
        name: &str,
        pem: &str,
        entry: SharedCertificate,
    ) -> Result<(), StepFailure> {
        self.put(&format!("cert:{name}"), pem.as_bytes(), IN_USE).await?;
        let mut index = self.index().await?;
        index.insert(name.to_owned(), entry);
        self.put_json(INDEX, &index, IN_USE).await
    }

    pub(crate) async fn certificate(&self, name: &str) -> Result<Option<String>, StepFailure> {
        let found = self.get(&format!("cert:{name}")).await?;
        Ok(found.and_then(|pem| String::from_utf8(pem).ok()))
    }

    pub(crate) async fn put_answer(
        &self,
        name: &ChallengeName,
        answer: &str,
    ) -> Result<(), StepFailure> {
        self.put(&name.place(), answer.as_bytes(), ANSWER_LASTS).await
    }

    /// Tells the proxy that orders which names an operator wants renewed.
    pub(crate) async fn wish_renewals(&self, names: &[String]) -> Result<(), StepFailure> {
        let mut all = self.wishes().await?;
        let fresh: Vec<String> = names.iter().filter(|name| !all.contains(name)).cloned().collect();
        if fresh.is_empty() {
            return Ok(());
        }
        all.extend(fresh);
        self.put_json(RENEW, &all, WISHED).await
    }

    /// The names that operators at other proxies want renewed.
    pub(crate) async fn wishes(&self) -> Result<Vec<String>, StepFailure> {
        Ok(self.json(RENEW).await?.unwrap_or_default())
    }

    /// These wishes are noted.
    pub(crate) async fn end_wishes(&self, noted: &[String]) -> Result<(), StepFailure> {
        let mut rest = self.wishes().await?;
        rest.retain(|name| !noted.contains(name));
        self.put_json(RENEW, &rest, WISHED).await
    }
}
