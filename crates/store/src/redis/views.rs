//! Views in Redis: `viewed:<token>` of a session, `viewed:` of all.

use anteroom_http::ident::{Item, StoredToken};

use super::{RedisCall, RedisStore, milliseconds, pipe, script};
use crate::{RescaleResult, Rescaling, StoreError, ViewStore};

/// The most items that one step removes from the popularity set: other calls wait during it.
pub(super) const TRIM: u64 = 5_000;

/// Members of a ZSET that are items, in their order.
fn items_of(found: Vec<(Vec<u8>, f64)>) -> Vec<(Item, f64)> {
    let entry =
        |(item, score): (Vec<u8>, f64)| Some((Item::new(std::str::from_utf8(&item).ok()?)?, score));
    found.into_iter().filter_map(entry).collect()
}

/// What the sharded layout puts together.
impl RedisStore {
    /// The score of an item: minus its views.
    pub(crate) async fn score_of(&self, item: &Item) -> Result<Option<f64>, StoreError> {
        let mut command = redis::cmd("ZSCORE");
        command.arg(&self.keys().popularity).arg(item.as_str());
        self.query(RedisCall::Read, &command).await
    }

    /// How many items of this shard have a popularity.
    pub(crate) async fn items_known(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("ZCARD");
        command.arg(&self.keys().popularity);
        self.query(RedisCall::Read, &command).await
    }

    /// The scores of the most viewed items of this shard from one rank to another, the most viewed first.
    pub(crate) async fn scores_from(&self, first: u64, last: u64) -> Result<Vec<f64>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(&self.keys().popularity).arg(first).arg(last).arg("WITHSCORES");
        let found: Vec<(Vec<u8>, f64)> = self.query(RedisCall::Read, &command).await?;
        Ok(found.into_iter().map(|(_, score)| score).collect())
    }

    /// Whether [`ViewStore::rescale_views`] would do more than look.
    pub(crate) async fn is_rescaling_due(&self, how: Rescaling) -> Result<bool, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(&self.keys().rescaled);
        let last: Option<String> = self.query(RedisCall::Write, &command).await?;
        let last = last.and_then(|last| last.parse::<f64>().ok());
        // Clocks differ a little; one that was set back by a whole period begins again.
        Ok(last.is_none_or(|last| (how.now - last).abs() >= how.every.as_secs_f64()))
    }

    /// How many items of this shard were viewed more than one with this score.
    pub(crate) async fn items_better_than(&self, score: f64) -> Result<u64, StoreError> {
        let mut command = redis::cmd("ZCOUNT");
        command.arg(&self.keys().popularity).arg("-inf").arg(format!("({score}"));
        self.query(RedisCall::Read, &command).await
    }
}

impl ViewStore for RedisStore {
    async fn viewed(&self, token: &StoredToken) -> Result<Vec<(Item, f64)>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command
            .arg(self.keys().viewed(token))
            .arg(0)
            .arg(i64::from(self.limits().viewed_items) - 1);
        command.arg("REV").arg("WITHSCORES");
        Ok(items_of(self.query(RedisCall::Read, &command).await?))
    }

    async fn ranks_under(&self, item: &Item, top: u64) -> Result<bool, StoreError> {
        let popularity = &self.keys().popularity;
        let mut look = pipe();
        look.cmd("ZRANK").arg(popularity).arg(item.as_str());
        look.cmd("ZCARD").arg(popularity);
        let (rank, known): (Option<u64>, u64) = self.query_all(RedisCall::Read, &look).await?;
        Ok(known < top || rank.is_some_and(|rank| rank < top))
    }

    async fn top(&self, most: u32) -> Result<Vec<(Item, f64)>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(&self.keys().popularity).arg(0).arg(i64::from(most) - 1).arg("WITHSCORES");
        let found = items_of(self.query(RedisCall::Read, &command).await?);
        Ok(found.into_iter().map(|(item, score)| (item, -score)).collect())
    }

    async fn rescale_views(&self, how: Rescaling) -> Result<RescaleResult, StoreError> {
        let mut script = self.script(&script::RESCALE);
        script.arg("keep", how.keep_top).arg("every", how.every.as_secs_f64()).arg("now", how.now);
        script.arg("kept_ms", milliseconds(how.every * 2)).arg("factor", how.factor);
        script.arg("most", TRIM);
        Ok(match self.run(&script).await? {
            0 => RescaleResult::NotYet,
            1 => RescaleResult::Done,
            _ => RescaleResult::Begun,
        })
    }
}
