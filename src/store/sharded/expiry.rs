//! Cleaning over all shards. A small step removes the very oldest. A large one takes from each shard its part by
//! number: tokens spread evenly over the shards, so what a shard keeps is older than what another removes by little,
//! about the time in which the whole site gains as many sessions as the root of those in a shard.

use futures_util::future::try_join_all;

use super::ShardedStore;
use crate::store::redis::{EVICT_BATCH, OldestOf, RedisStore};
use crate::store::{
    Cursor, EXPIRING_BATCH, Evicted, Eviction, ExpiryAction, ExpiryStore, Outbox, StoreError,
    VisitorEviction, VisitorStore as _, VisitorsEvicted,
};

/// Up to this many, the oldest are found one by one.
const EXACT: u64 = 100;

/// What a step removes of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    shard: usize,
    /// How many of the shard stay.
    keep: u64,
    /// How many go.
    batch: u32,
}

/// What a step removes of all shards.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shares {
    of_shards: Vec<Share>,
    /// How many there are in all.
    all: u64,
    /// How many are over the limit, and neither go now nor were left before.
    behind: u64,
}

impl ShardedStore {
    /// Which part of each shard has to go, so that `keep` stay in all, and none from before `before`; of each shard
    /// the first `left` are not looked at.
    async fn shares(
        &self,
        set: OldestOf,
        (keep, before, batch): (u64, f64, u32),
        left: &[u64],
    ) -> Result<Shares, StoreError> {
        let sizes = self.at_all(|shard| async move { shard.size_of(set, before).await }).await?;
        let all: u64 = sizes.iter().map(|(size, _)| size).sum();
        let idle: u64 = sizes.iter().map(|(_, idle)| idle).sum();
        let over = all.saturating_sub(keep).max(if before > 0.0 { idle } else { 0 });
        let open = over.saturating_sub(left.iter().sum());
        let batch = open.min(u64::from(batch));
        if batch == 0 {
            return Ok(Shares { all, ..Shares::default() });
        }
        let left = |shard: usize| left.get(shard).copied().unwrap_or_default();
        let counts = if batch <= EXACT {
            self.oldest_in(set, batch, left).await?
        } else {
            parts(
                &sizes
                    .iter()
                    .enumerate()
                    .map(|(shard, (size, _))| size.saturating_sub(left(shard)))
                    .collect::<Vec<_>>(),
                batch,
            )
        };
        let of_shards = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let of_shards = of_shards.map(|(shard, count)| Share {
            shard,
            keep: sizes[shard].0.saturating_sub(left(shard) + count),
            batch: u32::try_from(count).unwrap_or(u32::MAX),
        });
        Ok(Shares { of_shards: of_shards.collect(), all, behind: open - batch })
    }

    /// How many of the oldest `batch` members each shard has.
    async fn oldest_in(
        &self,
        set: OldestOf,
        batch: u64,
        left: impl Fn(usize) -> u64,
    ) -> Result<Vec<u64>, StoreError> {
        let looks = self.all().map(|shard| {
            let left = left(shard.index());
            async move { shard.times_of(set, left, batch).await }
        });
        let times = try_join_all(looks).await?;
        let mut oldest: Vec<(f64, usize)> = times
            .iter()
            .enumerate()
            .flat_map(|(shard, times)| times.iter().map(move |time| (*time, shard)))
            .collect();
        oldest.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut counts = vec![0; times.len()];
        for (_, shard) in oldest.into_iter().take(usize::try_from(batch).unwrap_or(usize::MAX)) {
            counts[shard] += 1;
        }
        Ok(counts)
    }

    fn shard(&self, share: &Share) -> RedisStore {
        self.any.of_shard(share.shard)
    }

    /// What a shard does with carts: it keeps its part of the bound. While any outbox waits to be emptied, sessions
    /// with carts stay, as they do where there is one outbox.
    pub(super) async fn action_of_shard(
        &self,
        action: &ExpiryAction,
    ) -> Result<ExpiryAction, StoreError> {
        let part = |keep: u64| keep.div_ceil(self.any.shards() as u64);
        Ok(match *action {
            ExpiryAction::Keep => ExpiryAction::Keep,
            ExpiryAction::Stream { storage, keep } => {
                ExpiryAction::Stream { storage, keep: part(keep) }
            }
            ExpiryAction::Queue { storage, keep } => {
                ExpiryAction::Queue { storage, keep: part(keep) }
            }
            ExpiryAction::Outbox { .. } => {
                let waiting = self.at_all(|shard| async move { shard.outbox_size().await });
                match waiting.await?.into_iter().sum::<u64>() {
                    0 => *action,
                    _ => ExpiryAction::Keep,
                }
            }
        })
    }

    pub(super) async fn evict_visitors_of_all(
        &self,
        how: VisitorEviction,
    ) -> Result<VisitorsEvicted, StoreError> {
        let limits = (how.keep, how.before, how.batch.min(EVICT_BATCH));
        let shares = self.shares(OldestOf::Visitors, limits, &[]).await?;
        let evicted = shares.of_shards.iter().map(|share| {
            let how = VisitorEviction { keep: share.keep, batch: share.batch, before: how.before };
            let shard = self.shard(share);
            async move { shard.evict_visitors(how).await }
        });
        let removed: usize = try_join_all(evicted).await?.iter().map(|part| part.removed).sum();
        Ok(VisitorsEvicted { removed, kept: shares.all.saturating_sub(removed as u64) })
    }
}

/// The part of each shard in `batch`, by its size; what the rounding leaves goes to the first that have more.
fn parts(sizes: &[u64], batch: u64) -> Vec<u64> {
    let all: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    if all == 0 {
        return vec![0; sizes.len()];
    }
    let batch = u64::try_from(all).unwrap_or(u64::MAX).min(batch);
    let part = |size: &u64| (u128::from(*size) * u128::from(batch) / all) as u64;
    let mut parts: Vec<u64> = sizes.iter().map(part).collect();
    let mut missing = batch - parts.iter().sum::<u64>();
    for (part, size) in parts.iter_mut().zip(sizes) {
        if missing > 0 && *part < *size {
            *part += 1;
            missing -= 1;
        }
    }
    parts
}

impl ExpiryStore for ShardedStore {
    async fn evict_oldest(&self, how: Eviction) -> Result<usize, StoreError> {
        let limits = (how.keep, how.before, how.batch.min(EVICT_BATCH));
        let shares = self.shares(OldestOf::Sessions, limits, &[]).await?;
        let evicted = shares.of_shards.iter().map(|share| {
            let (how, shard) =
                (Eviction { keep: share.keep, batch: share.batch, ..how }, self.shard(share));
            async move { shard.evict_oldest(how).await }
        });
        Ok(try_join_all(evicted).await?.into_iter().sum())
    }

    async fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        expiry_action: &ExpiryAction,
    ) -> Result<Evicted, StoreError> {
        let limits = (how.keep, how.before, how.batch.clamp(1, EXPIRING_BATCH));
        let action = &self.action_of_shard(expiry_action).await?;
        let mut left = from.of_shards.clone();
        left.resize(self.any.shards(), 0);
        let shares = self.shares(OldestOf::Sessions, limits, &left).await?;
        let evicted = shares.of_shards.iter().map(|share| {
            let how = Eviction { keep: share.keep, batch: share.batch, ..how };
            let cursor = Cursor { left: left[share.shard], ..Cursor::default() };
            let shard = self.shard(share);
            async move {
                Ok::<_, StoreError>((
                    shard.index(),
                    shard.evict_expiring(how, &cursor, action).await?,
                ))
            }
        });
        let mut all = Evicted { more: shares.behind > 0, ..Evicted::default() };
        for (shard, part) in try_join_all(evicted).await? {
            all.removed += part.removed;
            all.handed_on += part.handed_on;
            all.dropped += part.dropped;
            all.waiting += part.waiting;
            all.more |= part.more;
            all.refusal = part.refusal.or(all.refusal);
            left[shard] = part.cursor.left;
        }
        all.cursor = Cursor { of_shards: left, ..Cursor::default() };
        Ok(all)
    }

    /// The first records of all shards, until they are a batch.
    async fn outbox(&self) -> Result<Outbox, StoreError> {
        let boxes = self.at_those_there(|shard| async move {
            Ok(Outbox { shard: shard.index(), ..shard.outbox().await? })
        });
        let mut all = Outbox::default();
        for mut outbox in boxes.await?.into_iter().filter(|outbox| !outbox.is_empty()) {
            if all.records >= EXPIRING_BATCH as usize {
                all.more = true;
                break;
            }
            all.expired.append(&mut outbox.expired);
            all.more |= outbox.more;
            all.records += outbox.records;
            all.of_shards.push(outbox);
        }
        Ok(all)
    }

    async fn clear_outbox(&self, outbox: &Outbox) -> Result<bool, StoreError> {
        let cleared = outbox.of_shards.iter().map(|part| {
            let shard = self.any.of_shard(part.shard);
            async move { shard.clear_outbox(part).await }
        });
        Ok(try_join_all(cleared).await?.contains(&true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_its_part_of_a_batch() {
        assert_eq!(parts(&[100, 200, 100], 100), [25, 50, 25]);
        assert_eq!(parts(&[1, 1, 1], 2), [1, 1, 0]);
        assert_eq!(parts(&[0, 5, 0], 9), [0, 5, 0]);
        assert_eq!(parts(&[0, 0], 9), [0, 0]);
    }
}
