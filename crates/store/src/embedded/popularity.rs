//! Ranks: the most viewed items. A B-tree has no ranks, so the whole table is read now and then and
//! sorted.
//!
//! Reading takes time, so it runs on a thread of its own, and takes a twentieth of the time at
//! most: with few items at nearly each look-up, with a hundred thousand every few seconds.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use ahash::RandomState;
use anteroom_http::ident::Item;
use redb::{ReadTransaction, ReadableTable as _};
use tokio::sync::Mutex;

use super::disk::Disk;
use super::tables::POPULARITY;
use crate::StoreError;

/// A ranking is kept for this many times as long as it took to make.
const KEPT_FOR: u32 = 20;

/// The newest ranking.
#[derive(Debug, Default)]
pub(super) struct NewestRanking {
    newest: RwLock<Option<DatedRanking>>,
    /// Held while the next one is made.
    making: Arc<Mutex<()>>,
}

#[derive(Clone, Debug)]
struct DatedRanking {
    ranking: Arc<Ranking>,
    good_until: Instant,
}

impl NewestRanking {
    /// The newest ranking. If it is too old, the next one is started in the background.
    pub(super) async fn recent(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
    ) -> Result<Arc<Ranking>, StoreError> {
        let Some(made) = self.newest() else { return self.current(disk).await };
        if made.good_until <= Instant::now()
            && let Ok(place) = Arc::clone(&self.making).try_lock_owned()
        {
            let (this, disk) = (Arc::clone(self), Arc::clone(disk));
            tokio::task::spawn_blocking(move || {
                let _place = place;
                // After a failure the next call tries again.
                this.make(&disk)
                    .inspect_err(|error| tracing::debug!(%error, "the ranking cannot be updated"))
            });
        }
        Ok(made.ranking)
    }

    /// A ranking that is nearly new.
    pub(super) async fn current(
        self: &Arc<Self>,
        disk: &Arc<Disk>,
    ) -> Result<Arc<Ranking>, StoreError> {
        let place = Arc::clone(&self.making).lock_owned().await;
        if let Some(made) = self.newest().filter(|made| Instant::now() < made.good_until) {
            return Ok(made.ranking);
        }
        let (this, disk) = (Arc::clone(self), Arc::clone(disk));
        let making = tokio::task::spawn_blocking(move || {
            let _place = place;
            this.make(&disk)
        });
        making.await.map_err(|error| StoreError::Failed(error.into()))?
    }

    fn make(&self, disk: &Disk) -> Result<Arc<Ranking>, StoreError> {
        let begun = Instant::now();
        let ranking = Arc::new(disk.read(Ranking::read)?);
        let took = begun.elapsed();
        let good_until = begun + took + took * KEPT_FOR;
        let made = DatedRanking { ranking: Arc::clone(&ranking), good_until };
        *self.newest.write().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(ranking)
    }

    fn newest(&self) -> Option<DatedRanking> {
        self.newest.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All items ordered by score, as `viewed:` has them in Redis: the most viewed first, and items
/// with equal views by id.
#[derive(Debug)]
pub(super) struct Ranking {
    items: Vec<(Item, f64)>,
    ranks: HashMap<Item, usize, RandomState>,
}

impl Ranking {
    fn read(txn: &ReadTransaction) -> Result<Self, redb::Error> {
        let mut items = Vec::new();
        for entry in txn.open_table(POPULARITY)?.iter()? {
            let (item, score) = entry?;
            let item = std::str::from_utf8(item.value()).ok().and_then(Item::new);
            items.extend(item.map(|item| (item, score.value())));
        }
        items.sort_unstable_by(|(a, low), (b, high)| low.total_cmp(high).then_with(|| a.cmp(b)));
        let ranks =
            items.iter().enumerate().map(|(rank, (item, _))| (item.clone(), rank)).collect();
        Ok(Self { items, ranks })
    }

    /// Whether the item is among the `top` most viewed; while fewer are known, every item is.
    pub(super) fn ranks_under(&self, item: &Item, top: u64) -> bool {
        let top = usize::try_from(top).unwrap_or(usize::MAX);
        self.items.len() < top || self.ranks.get(item).is_some_and(|rank| *rank < top)
    }

    /// The most viewed, with their views.
    pub(super) fn top(&self, most: u32) -> Vec<(Item, f64)> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.items.iter().take(most).map(|(item, score)| (item.clone(), -score)).collect()
    }
}
