//! Views: a session's in the shard of its token, the popularity of an item in the shard of the item.

use super::ShardedStore;
use crate::ident::{Item, StoredToken};
use crate::store::{Rescaled, Rescaling, StoreError, ViewStore};

impl ViewStore for ShardedStore {
    async fn viewed(&self, token: &StoredToken) -> Result<Vec<(Item, f64)>, StoreError> {
        self.of(token.as_str()).viewed(token).await
    }

    async fn ranks_under(&self, item: &Item, top: u64) -> Result<bool, StoreError> {
        let Some(score) = self.of(item.as_str()).score_of(item).await? else {
            let known: u64 = self
                .at_all(|shard| async move { shard.items_known().await })
                .await?
                .into_iter()
                .sum();
            return Ok(known < top);
        };
        let better =
            self.at_all(|shard| async move { shard.items_better_than(score).await }).await?;
        Ok(better.into_iter().sum::<u64>() < top)
    }

    async fn top(&self, most: u32) -> Result<Vec<(Item, f64)>, StoreError> {
        let found = self.at_all(|shard| async move { shard.top(most).await }).await?;
        let mut top: Vec<(Item, f64)> = found.into_iter().flatten().collect();
        top.sort_by(|(one, views), (other, others)| {
            others.total_cmp(views).then_with(|| one.as_str().cmp(other.as_str()))
        });
        top.truncate(most as usize);
        Ok(top)
    }

    /// Few items are kept exactly. Of many, each shard keeps its part, rounded up.
    async fn rescale_views(&self, how: Rescaling) -> Result<Rescaled, StoreError> {
        let kept = self.kept_of_shards(how.keep_top).await?;
        let done = self.at_all(|shard| {
            let part = Rescaling { keep_top: kept[shard.index()], ..how };
            async move { shard.rescale_views(part).await }
        });
        let done = done.await?;
        Ok(if done.contains(&Rescaled::Begun) {
            Rescaled::Begun
        } else if done.contains(&Rescaled::Done) {
            Rescaled::Done
        } else {
            Rescaled::NotYet
        })
    }
}

/// Up to this many items are kept exactly.
const EXACT: u64 = 1_000;

impl ShardedStore {
    /// How many of its most viewed items each shard keeps.
    async fn kept_of_shards(&self, keep: u64) -> Result<Vec<u64>, StoreError> {
        if keep > EXACT {
            return Ok(vec![keep.div_ceil(self.any.shards() as u64); self.any.shards()]);
        }
        let most = u32::try_from(keep).unwrap_or(u32::MAX);
        let mut kept = vec![0; self.any.shards()];
        for (item, _) in self.top(most).await? {
            kept[self.index_of(item.as_str())] += 1;
        }
        Ok(kept)
    }
}
