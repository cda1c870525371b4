//! Operators' purges: turns an order into marks in the table of purges, and reports how far the purge has
//! spread.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use anteroom_http::query::QueryRules;
use anteroom_store::{AnyStore, Generation, PURGE_MARKS_MAX, PurgeStore as _, StoreError};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use crate::Pages;
use crate::purge::PurgeTable;
use crate::purge::scope::{PurgeTarget, Scope};
use crate::purge_order::{InvalidOrder, OrderedKind, OrderedTargets, PurgeOrder};
use crate::warm_queue::WarmOccasion;

/// How long to wait for the store.
const TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for other processes. After this time, a process that has not learnt of the purge is cut
/// off from the store, and stops showing pages for long.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The first and the longest interval between checks: a process that is cut off keeps many callers waiting.
const LOOKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// The result of a purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeDone {
    /// How many pages in the memory of the answering process it hit.
    pub pages: usize,
    /// Whether all processes have confirmed the purge. A process that has not is cut off from the store:
    /// there the purge takes effect within a second.
    pub confirmed: bool,
    /// Why no page was hit, if the order names a host that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The result of a purge by a request with the method `PURGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPurge {
    /// As [`PurgeDone::confirmed`].
    pub confirmed: bool,
    /// Whether no page in the memory of the answering process was hit, as far as that is known.
    pub hit_nothing: bool,
}

/// What an order would purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgePreview {
    /// Says that nothing was purged.
    pub dry_run: bool,
    /// How many pages in the memory of the answering process it would hit.
    pub pages: usize,
    /// The same by what the order names, in its order: the first 100.
    pub touches: Vec<PurgeEffect>,
    /// How many pages it would hit that are in the store alone. `None`: the store has pages by digests of their
    /// keys, and would have to read each of them.
    pub only_in_store: Option<usize>,
    /// Why no page would be hit, if the order names a host that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What one of the things that an order names would purge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeEffect {
    /// What it is.
    pub kind: OrderedKind,
    /// As the order names it.
    pub name: String,
    /// How many pages in the memory of the answering process it would hit.
    pub pages: usize,
}

/// Why a purge failed.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The order is invalid.
    #[error(transparent)]
    PurgeOrder(#[from] InvalidOrder),
    /// The order says that nothing is to be purged.
    #[error("a dry run purges nothing")]
    DryRun,
    /// The store does not have the purge yet. It is in effect in this process, and is sent again.
    #[error("only this process knows of the purge, until the store takes it: {0}")]
    Store(#[from] StoreError),
}

impl PurgeError {
    /// The HTTP status for the error.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::PurgeOrder(_) | Self::DryRun => StatusCode::BAD_REQUEST,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Carries out purges for operators and requests.
#[derive(Debug)]
pub struct Purger {
    /// The pages of this process.
    pub pages: Arc<Pages>,
    /// The rules on the queries of stored pages' URLs.
    pub query_rules: QueryRules,
    /// `warm_after_purge`: how many of the hottest pages that a purge hits are fetched again.
    pub warm_after_purge: usize,
}

impl Purger {
    /// Purges what an order names, in all processes.
    ///
    /// # Errors
    /// If the order is invalid or a dry run, or the store does not take it.
    pub async fn carry_out(
        &self,
        store: &AnyStore,
        order: &PurgeOrder,
    ) -> Result<PurgeDone, PurgeError> {
        if order.dry_run {
            return Err(PurgeError::DryRun);
        }
        let targets = self.targets(order)?;
        let pages = self.pages.count_hit(&targets);
        let confirmed = self.purge_and_warm(store, &targets).await?;
        Ok(PurgeDone { pages, confirmed, note: None })
    }

    /// What an order would purge.
    ///
    /// # Errors
    /// If the order is invalid.
    pub fn preview(&self, order: &PurgeOrder) -> Result<PurgePreview, PurgeError> {
        let OrderedTargets { targets, items } = order.read(&self.query_rules)?;
        let pages = self.pages.count_hit(&targets.into_iter().collect::<Vec<_>>());
        let groups: Vec<_> = items.iter().map(|item| &*item.targets).collect();
        let counts = self.pages.count_hit_by_each(&groups);
        let touches = items.into_iter().zip(counts).map(|(item, pages)| {
            let (kind, name) = (item.kind, item.name);
            PurgeEffect { kind, name, pages }
        });
        let touches = touches.collect();
        Ok(PurgePreview { dry_run: true, pages, touches, only_in_store: None, note: None })
    }

    /// Whether an order is valid.
    ///
    /// # Errors
    /// If it is not, and why.
    pub fn check(&self, order: &PurgeOrder) -> Result<(), PurgeError> {
        self.targets(order).map(drop)
    }

    /// Purges the page at a URL; `query` is the original one.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn purge_url(
        &self,
        store: &AnyStore,
        site: &str,
        path: &str,
        query: &str,
    ) -> Result<RequestPurge, PurgeError> {
        let forms = self.query_rules.forms(query);
        let targets: Vec<_> = forms
            .iter()
            .map(|query| Scope::Url { site, path, query }.purge_target(false))
            .collect();
        let hit_nothing = self.pages.has_no_hit(&targets);
        let confirmed = self.purge_and_warm(store, &targets).await?;
        Ok(RequestPurge { confirmed, hit_nothing })
    }

    /// Purges the pages of some scopes, at most [`PURGE_MARKS_MAX`], softly.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn purge_scopes(
        &self,
        store: &AnyStore,
        scopes: &[Scope<'_>],
    ) -> Result<RequestPurge, PurgeError> {
        let targets: Vec<_> = scopes.iter().map(|scope| scope.purge_target(false)).collect();
        let hit_nothing = self.pages.has_no_hit(&targets);
        let confirmed = self.purge(store, &targets).await?;
        Ok(RequestPurge { confirmed, hit_nothing })
    }

    /// Purges the pages of one user, and those of some sessions. If the store does not take the purge in
    /// time, it is in effect here and is sent again.
    pub async fn purge_own<'t>(
        &self,
        store: &AnyStore,
        user: Option<&'t [u8]>,
        tokens: impl Iterator<Item = &'t str>,
    ) {
        let scopes = user.map(Scope::User).into_iter().chain(tokens.map(Scope::Session));
        let targets: Vec<_> = scopes.map(|scope| scope.purge_target(true)).collect();
        for some in targets.chunks(PURGE_MARKS_MAX) {
            match timeout(TIMEOUT, self.pages.purged.purge(store, some)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a purge of sessions waits for the store")
                }
                Err(_) => tracing::debug!("a purge of sessions waits for the store"),
            }
        }
    }

    /// Purges, and then has the hottest of the purged pages fetched again. Pages that only the store or another
    /// process has are not among them.
    async fn purge_and_warm(
        &self,
        store: &AnyStore,
        targets: &[PurgeTarget],
    ) -> Result<bool, PurgeError> {
        let hottest = self.pages.hottest_hit_by(targets, self.warm_after_purge);
        let confirmed = self.purge(store, targets).await?;
        self.pages.warm_queue.add(hottest, WarmOccasion::Purged);
        Ok(confirmed)
    }

    async fn purge(&self, store: &AnyStore, targets: &[PurgeTarget]) -> Result<bool, PurgeError> {
        let purging = self.pages.purged.purge(store, targets);
        let Ok(purged) = timeout(TIMEOUT, purging).await else {
            return Err(StoreError::TimedOut.into());
        };
        Ok(is_confirmed(store, &self.pages.purged, purged?).await)
    }

    fn targets(&self, order: &PurgeOrder) -> Result<Vec<PurgeTarget>, PurgeError> {
        Ok(order.read(&self.query_rules)?.targets.into_iter().collect())
    }
}

/// Waits for all other processes, for a limited time.
async fn is_confirmed(store: &AnyStore, purged: &PurgeTable, purge: Generation) -> bool {
    let is_seen = async || match purged.stands_as(purge) {
        Some(purge) => store.is_seen(purge).await.unwrap_or(false),
        None => false,
    };
    let all = async {
        let (mut pause, longest) = LOOKS;
        while !is_seen().await {
            sleep(pause).await;
            pause = (pause * 5 / 4).min(longest);
        }
    };
    timeout(OTHERS_TIMEOUT, all).await.is_ok()
}
