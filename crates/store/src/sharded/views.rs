//! Views: a session's in the shard of its token, the popularity of an item in the shard of the item.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anteroom_http::ident::{Item, StoredToken};

use super::ShardedStore;
use crate::{RescaleResult, Rescaling, StoreError, TopBound, ViewStore};

/// How often all shards are asked whether they are to be rescaled. In between the first is: all begin together, and
/// one that was away is late.
const LOOK_AT_ALL: Duration = Duration::from_secs(60);

/// When all shards were last found to need no rescaling.
#[derive(Debug, Default)]
pub(super) struct LastRescaling(Mutex<Option<Instant>>);

impl LastRescaling {
    fn is_recent(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() < LOOK_AT_ALL)
    }

    fn note(&self, is_over: bool) {
        let last = is_over.then(Instant::now);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}

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

    async fn bound_of_top(&self, top: u64) -> Result<Option<TopBound>, StoreError> {
        let bound = match top <= EXACT {
            true => self.exact_bound(top).await?,
            false => self.bound_by_parts(top).await?,
        };
        Ok(Some(bound.map_or(TopBound::Every, TopBound::Score)))
    }

    async fn ranks_within(
        &self,
        item: &Item,
        _top: u64,
        bound: TopBound,
    ) -> Result<bool, StoreError> {
        match bound {
            TopBound::Every => Ok(true),
            TopBound::Score(bound) => {
                Ok(self.of(item.as_str()).score_of(item).await?.is_some_and(|score| score <= bound))
            }
        }
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
    async fn rescale_views(&self, how: Rescaling) -> Result<RescaleResult, StoreError> {
        if self.rescaling.is_recent() && !self.first().is_rescaling_due(how).await? {
            return Ok(RescaleResult::NotYet);
        }
        self.rescaling.note(false);
        let kept = self.kept_of_shards(how.keep_top).await?;
        let done = self.at_all(|shard| {
            let part = Rescaling { keep_top: kept[shard.index()], ..how };
            async move { shard.rescale_views(part).await }
        });
        let done = done.await?;
        self.rescaling.note(!done.contains(&RescaleResult::Begun));
        Ok(if done.contains(&RescaleResult::Begun) {
            RescaleResult::Begun
        } else if done.contains(&RescaleResult::Done) {
            RescaleResult::Done
        } else {
            RescaleResult::NotYet
        })
    }
}

/// Up to this many items are kept, and ranked, exactly.
const EXACT: u64 = 1_000;
/// How many more than its part a shard is asked for, to find an exact rank.
const MARGIN: u64 = 16;

/// The score at the end of the `top` lowest; `None` if there are fewer.
fn bound_of(found: &[(usize, Vec<f64>)], top: u64) -> Option<f64> {
    let mut scores: Vec<f64> = found.iter().flat_map(|(_, scores)| scores).copied().collect();
    scores.sort_by(f64::total_cmp);
    scores.get(usize::try_from(top.checked_sub(1)?).ok()?).copied()
}

impl ShardedStore {
    /// The score of the item at the end of the `top` most viewed; `None` while fewer are known.
    async fn exact_bound(&self, top: u64) -> Result<Option<f64>, StoreError> {
        let asked = top.min(2 * top.div_ceil(self.any.shards() as u64) + MARGIN);
        let found = self.at_those_there(|shard| async move {
            let scores = shard.scores_from(0, asked - 1).await?;
            Ok((shard.index(), scores))
        });
        let mut found = found.await?;
        let bound = bound_of(&found, top);
        // A shard may have more of the most viewed than it was asked for.
        let has_more = |scores: &[f64]| {
            scores.len() as u64 == asked
                && bound.is_none_or(|bound| scores.last().is_some_and(|last| *last <= bound))
        };
        let mut all_are_known = true;
        for (shard, scores) in &mut found {
            if asked < top && has_more(scores) {
                *scores = self.any.of_shard(*shard).scores_from(0, top - 1).await?;
                all_are_known = false;
            }
        }
        Ok(if all_are_known { bound } else { bound_of(&found, top) })
    }

    /// About the same, by the items at the end of each shard's part: the middle one of them.
    async fn bound_by_parts(&self, top: u64) -> Result<Option<f64>, StoreError> {
        let last = top.div_ceil(self.any.shards() as u64) - 1;
        let found = self.at_those_there(|shard| async move { shard.scores_from(last, last).await });
        let found = found.await?.into_iter();
        let mut ends: Vec<f64> =
            found.map(|scores| scores.first().copied().unwrap_or(f64::INFINITY)).collect();
        ends.sort_by(f64::total_cmp);
        Ok(ends.get(ends.len() / 2).copied().filter(|end| end.is_finite()))
    }

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
