//! What operators and other parts of the process see of ordered certificates, and what they may ask for.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anteroom_policy::listener::AwaitedCertificates;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use crate::answers::ChallengeAnswers;

/// What is going on with the certificate of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateState {
    /// The first certificate is not there yet: a self-signed one is shown.
    SelfSigned,
    /// A certificate is in use, and nothing is to be done.
    InUse,
    /// A certificate is in use, and the next one is ordered.
    Renewing,
    /// The certificate in use has expired.
    Expired,
}

/// A name with its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameStatus {
    /// The name.
    pub name: String,
    /// What is going on.
    pub state: CertificateState,
    /// How the name is proved.
    pub challenge: String,
    /// The authority that has issued the certificate.
    pub issuer: Option<String>,
    /// The Unix time until which the certificate in use is valid; `None`: it is self-signed.
    pub not_after: Option<i64>,
    /// The Unix time at which it is renewed.
    pub renew_at: Option<i64>,
    /// The Unix time before which nothing is tried, after a failure.
    pub next_try: Option<i64>,
    /// The failures since the last certificate.
    pub failures: u32,
    /// The reason of the last failure.
    pub last_error: Option<String>,
    /// The Unix time of the last failure since the last certificate.
    pub failed_at: Option<i64>,
}

/// Shared by all threads, from start to end.
#[derive(Debug, Default)]
pub struct CertificateBoard {
    /// The answers to challenges.
    pub answers: Arc<ChallengeAnswers>,
    /// The names whose first certificate is not there yet.
    pub awaited: Arc<AwaitedCertificates>,
    /// Wakes the task that orders.
    pub wake: Notify,
    serves: watch::Sender<bool>,
    statuses: Mutex<Vec<NameStatus>>,
    /// The names that operators want renewed, each with whether the certifier has seen it.
    wishes: Mutex<BTreeMap<String, bool>>,
    issued: AtomicU64,
    failed: AtomicU64,
}

impl CertificateBoard {
    /// All names, as they are now. A certificate that an operator wants renewed counts as ordered.
    #[must_use]
    pub fn statuses(&self) -> Vec<NameStatus> {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wishes = self.open_wishes();
        for one in &mut statuses {
            if one.state == CertificateState::InUse && wishes.contains_key(&one.name) {
                one.state = CertificateState::Renewing;
            }
        }
        statuses
    }

    pub(crate) fn put_statuses(&self, statuses: Vec<NameStatus>) {
        let is_awaited = |one: &NameStatus| one.state == CertificateState::SelfSigned;
        let names = statuses.iter().map(|one| (one.name.clone(), is_awaited(one)));
        self.awaited.set(names.collect());
        *self.statuses.lock().unwrap_or_else(PoisonError::into_inner) = statuses;
    }

    /// Takes over the names of another configuration: each with whether its first certificate is not there yet.
    pub fn expect(&self, names: HashMap<String, bool>) {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.retain(|one| names.contains_key(&one.name));
        drop(statuses);
        self.awaited.set(names);
    }

    /// Whether this process serves. Before, and when another one has taken over, it is that one which orders: an authority
    /// asks the process that serves.
    #[must_use]
    pub fn serves(&self) -> watch::Receiver<bool> {
        self.serves.subscribe()
    }

    /// This process serves from now on, or leaves.
    pub fn set_serves(&self, serves: bool) {
        // A step is not broken off by what is known already.
        self.serves.send_if_modified(|served| std::mem::replace(served, serves) != serves);
        self.wake.notify_one();
    }

    /// Asks for other certificates for these names, which are ordered soon.
    ///
    /// # Errors
    /// With the first that no certificate is ordered for here. Nothing is ordered then.
    pub fn wish_renewals(&self, names: Vec<String>) -> Result<(), String> {
        let known = self.statuses();
        let is_strange = |name: &&String| !known.iter().any(|one| one.name == **name);
        if let Some(strange) = names.iter().find(is_strange) {
            return Err(strange.clone());
        }
        // Asked for again, a renewal is new: it does not wait behind a failure.
        self.open_wishes().extend(names.into_iter().map(|name| (name, false)));
        self.wake.notify_one();
        Ok(())
    }

    /// The renewals that operators want and that are not saved with the state of their names yet, for a successor.
    #[must_use]
    pub fn wishes(&self) -> Vec<String> {
        self.open_wishes().keys().cloned().collect()
    }

    /// Adds wishes. A name that no certificate is ordered for is passed over later.
    pub fn put_wishes(&self, names: Vec<String>) {
        let mut wishes = self.open_wishes();
        for name in names {
            wishes.entry(name).or_insert(false);
        }
    }

    /// The wishes, each with whether the certifier has seen it.
    pub(crate) fn seen_wishes(&self) -> Vec<(String, bool)> {
        self.open_wishes().iter().map(|(name, is_seen)| (name.clone(), *is_seen)).collect()
    }

    /// The certifier has seen a wish, which stays.
    pub(crate) fn see_wish(&self, name: &str) {
        if let Some(is_seen) = self.open_wishes().get_mut(name) {
            *is_seen = true;
        }
    }

    /// The certifier orders for all from now on: wishes that it has passed on until now are new to it.
    pub(crate) fn renew_wishes(&self) {
        self.open_wishes().values_mut().for_each(|is_seen| *is_seen = false);
    }

    /// A wish is saved, or there is a certificate that is newer.
    pub(crate) fn end_wish(&self, name: &str) {
        self.open_wishes().remove(name);
    }

    /// Whether the certifier has seen this wish, which is not ended.
    pub(crate) fn has_seen_wish(&self, name: &str) -> bool {
        self.open_wishes().get(name).copied().unwrap_or_default()
    }

    /// No code that can panic runs under this lock.
    fn open_wishes(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificates that were issued to this process.
    #[must_use]
    pub fn issued(&self) -> u64 {
        self.issued.load(Ordering::Relaxed)
    }

    /// The steps that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn count_issued(&self) {
        self.issued.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_wanted_counts_as_ordered() {
        let status = |name: &str, state| NameStatus {
            name: name.to_owned(),
            state,
            challenge: "http-01".to_owned(),
            issuer: None,
            not_after: None,
            renew_at: None,
            next_try: None,
            failures: 0,
            last_error: None,
            failed_at: None,
        };
        let board = CertificateBoard::default();
        let first =
            [CertificateState::InUse, CertificateState::InUse, CertificateState::SelfSigned];
        let names = ["a.net", "b.net", "c.net"];
        board.put_statuses(
            names.into_iter().zip(first).map(|(name, state)| status(name, state)).collect(),
        );
        board.wish_renewals(vec!["b.net".to_owned(), "c.net".to_owned()]).unwrap();
        let states: Vec<_> = board.statuses().into_iter().map(|one| one.state).collect();
        let [in_use, _, self_signed] = first;
        assert_eq!(states, [in_use, CertificateState::Renewing, self_signed]);
        board.end_wish("b.net");
        assert_eq!(board.statuses()[1].state, CertificateState::InUse);
    }
}
