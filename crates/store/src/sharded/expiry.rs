//! Cleaning over all shards. A small step removes the very oldest. A large one takes from each shard its part by
//! number: tokens spread evenly over the shards, so what a shard keeps is older than what another removes by little,
//! about the time in which the whole site gains as many sessions as the root of those in a shard.
//!
//! A shard that is away keeps its members. Those of the others are cleaned down to their part of the limit.

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream;

use super::ShardedStore;
use crate::redis::{EVICT_BATCH, OldestOf, RedisStore};
use crate::{
    Cursor, EXPIRING_BATCH, Eviction, EvictionResult, ExpiryAction, ExpiryStore, Outbox,
    StoreError, VisitorEviction, VisitorStore as _, VisitorsEvicted,
};

/// Up to this many, the oldest are found one by one. It is also the most that a large step removes by one script: a
/// longer one holds up the other calls of its server.
const EXACT: u64 = 100;
/// A cleaner is far behind when as many steps as this are left to do. Then a step removes a batch of each shard.
const FAR_BEHIND: u64 = 10;
/// The scripts of a step that run at once. Those of one server follow each other, with other calls in between.
const AT_ONCE: usize = 8;

/// What a step may remove.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many stay, over all shards.
    keep: u64,
    /// Those not seen since then go, too, if it is over 0.
    before: f64,
    /// How many go in a step, and by one script at most.
    batch: u32,
    /// How many go in a step that is far behind, at most.
    batch_behind: u64,
}

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
    /// Which part of each shard has to go, so that the limits are kept; of each shard the first `left` are not looked
    /// at.
    async fn shares(
        &self,
        set: OldestOf,
        limits: Limits,
        left: &[u64],
    ) -> Result<Shares, StoreError> {
        let Limits { keep, before, .. } = limits;
        let sizes = self.sizes(set, keep, before).await?;
        let left = |shard: usize| left.get(shard).copied().unwrap_or_default();
        // A shard that is away has nothing to remove.
        let open_of = |(shard, size): (usize, &Option<u64>)| {
            size.map_or(0, |size| size.saturating_sub(left(shard)))
        };
        let open_of: Vec<u64> = sizes.of_shards.iter().enumerate().map(open_of).collect();
        let left_out: u64 = (0..sizes.of_shards.len()).map(left).sum();
        let open = sizes.over(keep, before).saturating_sub(left_out);
        let is_far_behind = open >= FAR_BEHIND * u64::from(limits.batch);
        let batch = open.min(match is_far_behind {
            true => limits.batch_behind.max(limits.batch.into()),
            false => limits.batch.into(),
        });
        if batch == 0 {
            return Ok(Shares { all: sizes.all(), ..Shares::default() });
        }
        let counts = if batch <= EXACT {
            self.oldest_in(set, batch, &open_of, left).await?
        } else {
            let most = EXACT.min(limits.batch.into());
            let parts = parts(&open_of, batch).into_iter();
            parts.map(|part| if is_far_behind { part.min(most) } else { part }).collect()
        };
        let behind = open.saturating_sub(counts.iter().sum());
        let of_shards = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        let of_shards = of_shards.map(|(shard, count)| Share {
            shard,
            keep: open_of[shard] - count.min(open_of[shard]),
            batch: u32::try_from(count).unwrap_or(u32::MAX),
        });
        Ok(Shares { of_shards: of_shards.collect(), all: sizes.all(), behind })
    }

    /// What each share's step has done, some at once. A shard that fails is left out, unless all do.
    async fn carry_out<T, F>(
        &self,
        shares: &Shares,
        step: impl Fn(RedisStore, Share) -> F,
    ) -> Result<Vec<(usize, T)>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let steps = shares.of_shards.iter().map(|share| {
            let done = step(self.shard(share), *share);
            async move { (share.shard, done.await) }
        });
        let answers: Vec<_> = stream::iter(steps).buffer_unordered(AT_ONCE).collect().await;
        let (mut done, mut refused) = (Vec::new(), None);
        for (shard, answer) in answers {
            match answer {
                Ok(answer) => done.push((shard, answer)),
                Err(error) => {
                    tracing::debug!(shard, %error, "a shard was not cleaned");
                    refused = Some(error);
                }
            }
        }
        match refused {
            Some(error) if done.is_empty() => Err(error),
            _ => Ok(done),
        }
    }

    /// How many of the oldest `batch` members each shard has.
    async fn oldest_in(
        &self,
        set: OldestOf,
        batch: u64,
        open_of: &[u64],
        left: impl Fn(usize) -> u64,
    ) -> Result<Vec<u64>, StoreError> {
        let looks = self.all().map(|shard| {
            let (left, open) = (left(shard.index()), open_of[shard.index()]);
            async move {
                match open {
                    0 => Ok(Vec::new()),
                    _ => shard.times_of(set, left, batch.min(open)).await,
                }
            }
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
                let waiting = self.at_those_there(|shard| async move { shard.outbox_size().await });
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
        let limits = self.limits_of_step(how.keep, how.before, how.batch);
        let shares = self.shares(OldestOf::Visitors, limits, &[]).await?;
        let evicted = self.carry_out(&shares, |shard, share| async move {
            let how = VisitorEviction { keep: share.keep, batch: share.batch, before: how.before };
            shard.evict_visitors(how).await
        });
        let removed: usize = evicted.await?.iter().map(|(_, part)| part.removed).sum();
        Ok(VisitorsEvicted { removed, kept: shares.all.saturating_sub(removed as u64) })
    }
}

impl ShardedStore {
    /// The limits of a step without a bound on what it reads.
    fn limits_of_step(&self, keep: u64, before: f64, batch: u32) -> Limits {
        let batch = batch.min(EVICT_BATCH);
        let most = EXACT.min(batch.into());
        Limits { keep, before, batch, batch_behind: most * self.any.shards() as u64 }
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
        let limits = self.limits_of_step(how.keep, how.before, how.batch);
        let shares = self.shares(OldestOf::Sessions, limits, &[]).await?;
        let evicted = self.carry_out(&shares, |shard, share| async move {
            shard.evict_oldest(Eviction { keep: share.keep, batch: share.batch, ..how }).await
        });
        Ok(evicted.await?.into_iter().map(|(_, removed)| removed).sum())
    }

    async fn correct_times(&self, now: f64, batch: u32) -> Result<usize, StoreError> {
        let mut corrected = 0;
        for shard in self.all() {
            corrected += shard.correct_times(now, batch).await?;
        }
        Ok(corrected)
    }

    async fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        expiry_action: &ExpiryAction,
    ) -> Result<EvictionResult, StoreError> {
        let batch = how.batch.clamp(1, EXPIRING_BATCH);
        let (keep, before) = (how.keep, how.before);
        let limits = Limits { keep, before, batch, batch_behind: EXPIRING_BATCH.into() };
        let mut left = from.of_shards.clone();
        left.resize(self.any.shards(), 0);
        let shares = self.shares(OldestOf::Sessions, limits, &left).await?;
        let mut all = EvictionResult { more: shares.behind > 0, ..EvictionResult::default() };
        let mut cursors = Vec::new();
        if !shares.of_shards.is_empty() {
            let action = &self.action_of_shard(expiry_action).await?;
            let before = &left;
            let evicted = self.carry_out(&shares, |shard, share| async move {
                let how = Eviction { keep: share.keep, batch: share.batch, ..how };
                let cursor = Cursor { left: before[share.shard], ..Cursor::default() };
                shard.evict_expiring(how, &cursor, action).await
            });
            for (shard, part) in evicted.await? {
                all.removed += part.removed;
                all.handed_on += part.handed_on;
                all.dropped += part.dropped;
                all.waiting += part.waiting;
                all.more |= part.more;
                all.refusal = part.refusal.or(all.refusal);
                cursors.push((shard, part.cursor.left));
            }
        }
        for (shard, cursor) in cursors {
            left[shard] = cursor;
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
