//! How many members a set has over all shards, as the cleaner asks every second in every proxy. Far below the limit a
//! look asks a few shards, and takes the others as they were; after sixteen looks all were asked.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::join_all;

use super::ShardedStore;
use crate::StoreError;
use crate::redis::OldestOf;

/// The shards that a look asks far below the limit.
const PART: usize = 4;
/// Far below the limit is this part of it, as a divisor and what is left: nine tenths.
const CALM: (u64, u64) = (10, 9);
/// A limit below this is always looked at exactly: it is reached within some seconds.
const KEEP_MIN: u64 = 10_000;
/// A limit of time that goes ahead of the clock by more seconds than this is another limit.
const AHEAD: f64 = 1.0;

/// How many members each shard has, and how many of those there are over the limit of time.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// `None` for a shard that is away.
    pub(super) of_shards: Vec<Option<u64>>,
    idle: u64,
}

impl Sizes {
    /// How many there are in the shards that answer.
    pub(super) fn all(&self) -> u64 {
        self.of_shards.iter().flatten().sum()
    }

    /// How many have to go in the shards that answer, so that these keep their part of `keep`.
    pub(super) fn over(&self, keep: u64, before: f64) -> u64 {
        let answering = self.of_shards.iter().flatten().count() as u128;
        let shards = self.of_shards.len().max(1) as u128;
        let part = u128::from(keep) * answering / shards;
        let over = self.all().saturating_sub(u64::try_from(part).unwrap_or(u64::MAX));
        over.max(if before > 0.0 { self.idle } else { 0 })
    }

    fn is_far_below(&self, keep: u64) -> bool {
        let is_whole = self.of_shards.iter().all(Option::is_some);
        keep >= KEEP_MIN && is_whole && self.idle == 0 && self.all() < keep / CALM.0 * CALM.1
    }
}

/// What the last looks at a set have found.
#[derive(Debug, Default)]
pub(super) struct LastLooks {
    sessions: Mutex<Option<CalmSizes>>,
    visitors: Mutex<Option<CalmSizes>>,
}

/// The sizes, all far below a limit.
#[derive(Debug)]
struct CalmSizes {
    sizes: Vec<Option<u64>>,
    /// Where the next look begins.
    next: usize,
    keep: u64,
    before: f64,
    since: Instant,
}

impl CalmSizes {
    /// Whether the limits are those of the last looks. That of time goes with the clock.
    fn is_of(&self, keep: u64, before: f64) -> bool {
        let passed = self.since.elapsed().as_secs_f64();
        let is_same_kind = (before > 0.0) == (self.before > 0.0);
        self.keep == keep && is_same_kind && (before - self.before - passed).abs() <= AHEAD
            || (self.keep == keep && before <= 0.0 && self.before <= 0.0)
    }
}

impl LastLooks {
    fn of(&self, set: OldestOf) -> MutexGuard<'_, Option<CalmSizes>> {
        let looks = match set {
            OldestOf::Sessions => &self.sessions,
            OldestOf::Visitors => &self.visitors,
        };
        looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShardedStore {
    /// How many members the shards have.
    ///
    /// # Errors
    /// When no shard answers.
    pub(super) async fn sizes(
        &self,
        set: OldestOf,
        keep: u64,
        before: f64,
    ) -> Result<Sizes, StoreError> {
        let calm = self.looks.of(set).take().filter(|calm| calm.is_of(keep, before));
        if let Some(mut calm) = calm {
            let shards = (0..PART).map(|place| (calm.next + place) % calm.sizes.len());
            let shards: Vec<usize> = shards.collect();
            if let Ok(part) = self.sizes_of(set, before, &shards).await {
                for (shard, size) in shards.into_iter().zip(&part.of_shards) {
                    calm.sizes[shard] = *size;
                }
                let sizes = Sizes { of_shards: calm.sizes.clone(), idle: part.idle };
                if sizes.is_far_below(keep) {
                    calm.next = (calm.next + PART) % calm.sizes.len();
                    *self.looks.of(set) = Some(calm);
                    return Ok(sizes);
                }
            }
        }
        let shards: Vec<usize> = (0..self.any.shards()).collect();
        let sizes = self.sizes_of(set, before, &shards).await?;
        if sizes.is_far_below(keep) {
            *self.looks.of(set) = Some(CalmSizes {
                sizes: sizes.of_shards.clone(),
                next: 0,
                keep,
                before,
                since: Instant::now(),
            });
        }
        Ok(sizes)
    }

    async fn sizes_of(
        &self,
        set: OldestOf,
        before: f64,
        shards: &[usize],
    ) -> Result<Sizes, StoreError> {
        let asked = shards.iter().map(|shard| {
            let shard = self.any.of_shard(*shard);
            async move { shard.size_of(set, before).await }
        });
        let (mut sizes, mut refused) = (Sizes::default(), None);
        for answer in join_all(asked).await {
            match answer {
                Ok((size, idle)) => {
                    sizes.of_shards.push(Some(size));
                    sizes.idle += idle;
                }
                Err(error) => {
                    sizes.of_shards.push(None);
                    refused = Some(error);
                }
            }
        }
        match refused {
            Some(error) if sizes.of_shards.iter().all(Option::is_none) => Err(error),
            _ => Ok(sizes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(of_shards: &[Option<u64>], idle: u64) -> Sizes {
        Sizes { of_shards: of_shards.to_vec(), idle }
    }

    #[test]
    fn shards_that_answer_keep_their_part_of_the_limit() {
        let all = [Some(30), Some(30), Some(30)];
        assert_eq!(sizes(&all, 0).over(90, 0.0), 0);
        assert_eq!(sizes(&all, 0).over(60, 0.0), 30);
        assert_eq!(sizes(&[Some(30), None, Some(30)], 0).over(60, 0.0), 20);
        assert_eq!(sizes(&all, 7).over(90, 1.0), 7);
        assert_eq!(sizes(&all, 7).over(90, 0.0), 0);
    }

    #[test]
    fn far_below_the_limit_is_nine_tenths_of_it_and_nothing_idle() {
        for (of_shards, idle, is_far) in [
            ([Some(4_000), Some(4_999)], 0, true),
            ([Some(4_000), Some(5_000)], 0, false),
            ([Some(4_000), Some(4_000)], 1, false),
            ([Some(4_000), None], 0, false),
        ] {
            assert_eq!(sizes(&of_shards, idle).is_far_below(10_000), is_far, "{of_shards:?}");
        }
        assert!(!sizes(&[Some(1)], 0).is_far_below(KEEP_MIN - 1));
    }

    #[test]
    fn a_limit_of_time_goes_with_the_clock() {
        let calm = |before| CalmSizes {
            sizes: Vec::new(),
            next: 0,
            keep: 10_000,
            before,
            since: Instant::now(),
        };
        assert!(calm(0.0).is_of(10_000, 0.0));
        assert!(!calm(0.0).is_of(10_001, 0.0));
        assert!(!calm(0.0).is_of(10_000, 50.0));
        assert!(calm(50.0).is_of(10_000, 50.5));
        assert!(!calm(50.0).is_of(10_000, 60.0));
        assert!(!calm(50.0).is_of(10_000, 40.0));
    }
}
