//! The end of sessions in Redis, and what becomes of their carts: `expired:`, `expiring:`, `cartevents:`.

use std::time::Duration;

use anteroom_http::clock::FAR;
use anteroom_http::ident::{StoredToken, TokenStorage};

use super::script::Invocation;
use super::{EVICT_BATCH, RedisCall, RedisStore, ScoredMembers, milliseconds, pipe, script};
use crate::{
    CART_MAX, Cursor, EXPIRING_BATCH, EXPIRING_BYTES, Eviction, EvictionResult, ExpiryAction,
    ExpiryStore, LeaseStore, Outbox, StoreError, TaskLease,
};

/// Passes sessions to a script: token, time when it was last seen, and id of each.
pub(super) fn add_sessions(
    script: &mut Invocation,
    sessions: &ScoredMembers,
    storage: Option<TokenStorage>,
) {
    for (token, seen) in sessions {
        // Lua has no SHA-256: the ids are computed here.
        let id = StoredToken::from_store(token)
            .map(|token| storage.map_or_else(|| "-".to_owned(), |how| token.public_id(how)));
        script.another(token).another(*seen).another(id.unwrap_or_default());
    }
}

/// Why a script refused to hand on carts; empty: it did not refuse.
pub(super) fn refusal_of(refusal: &[u8]) -> Option<String> {
    let refusal = String::from_utf8_lossy(refusal).into_owned();
    Some(refusal).filter(|refusal| !refusal.is_empty())
}

/// A set whose oldest members are cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OldestOf {
    /// `recent:`
    Sessions,
    /// `visitors:`
    Visitors,
}

/// What the sharded layout puts together.
impl RedisStore {
    fn set_of(&self, set: OldestOf) -> &str {
        match set {
            OldestOf::Sessions => &self.keys().recent,
            OldestOf::Visitors => &self.keys().visitors,
        }
    }

    /// How many members there are, and how many were last seen before this time.
    pub(crate) async fn size_of(
        &self,
        set: OldestOf,
        before: f64,
    ) -> Result<(u64, u64), StoreError> {
        let mut look = pipe();
        look.cmd("ZCARD").arg(self.set_of(set));
        if before > 0.0 {
            look.cmd("ZCOUNT").arg(self.set_of(set)).arg("-inf").arg(format!("({before}"));
        }
        let counts: Vec<u64> = self.query_all(RedisCall::Write, &look).await?;
        let count = |place: usize| counts.get(place).copied().unwrap_or_default();
        Ok((count(0), count(1)))
    }

    /// How many carts wait in the outbox.
    pub(crate) async fn outbox_size(&self) -> Result<u64, StoreError> {
        let mut command = redis::cmd("LLEN");
        command.arg(&self.keys().expiring);
        self.query(RedisCall::Write, &command).await
    }

    /// When the oldest members were last seen, after the first `left`.
    pub(crate) async fn times_of(
        &self,
        set: OldestOf,
        left: u64,
        most: u64,
    ) -> Result<Vec<f64>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.set_of(set)).arg(left).arg(left + most - 1).arg("WITHSCORES");
        let oldest: ScoredMembers = self.query(RedisCall::Write, &command).await?;
        Ok(oldest.into_iter().map(|(_, seen)| seen).collect())
    }
}

impl RedisStore {
    /// How many sessions are over the limit, and the oldest of them after the first `left`, each
    /// with the time when it was last seen.
    async fn oldest(&self, how: Eviction, left: u64) -> Result<(u64, ScoredMembers), StoreError> {
        let recent = &self.keys().recent;
        let last = left + u64::from(how.batch.clamp(1, EXPIRING_BATCH)) - 1;
        // No transaction: Redis refuses it when memory is full, even if it only reads.
        let mut look = pipe();
        look.cmd("ZCARD").arg(recent);
        look.cmd("ZCOUNT").arg(recent).arg("-inf").arg(format!("({}", how.before));
        look.cmd("ZRANGE").arg(recent).arg(left).arg(last).arg("WITHSCORES");
        let (all, idle, mut oldest): (u64, u64, ScoredMembers) =
            self.query_all(RedisCall::Write, &look).await?;
        // Scores written by other programs can be anything: without a time limit no session is
        // idle.
        let over = all.saturating_sub(how.keep).max(if how.before > 0.0 { idle } else { 0 });
        oldest.truncate(usize::try_from(over.saturating_sub(left)).unwrap_or(usize::MAX));
        Ok((over, oldest))
    }

    /// Removes those of these sessions that are unchanged and still over the limit.
    async fn part(
        &self,
        how: Eviction,
        oldest: &ScoredMembers,
        expiry_action: &ExpiryAction,
    ) -> Result<EvictionResult, StoreError> {
        let mut script = self.script(&script::EVICT_EXPIRING);
        let storage = self.add_fate(&mut script, Some(expiry_action));
        script.arg("keep", how.keep).arg("before", how.before).arg("bytes_max", EXPIRING_BYTES);
        add_sessions(&mut script, oldest, storage);
        type Reply = (usize, usize, usize, usize, u8, Vec<u8>);
        let (removed, handed_on, dropped, waiting, more, refusal): Reply =
            self.invoke(RedisCall::Write, &script).await?;
        Ok(EvictionResult {
            removed,
            handed_on,
            dropped,
            waiting,
            more: more > 0,
            refusal: refusal_of(&refusal),
            ..EvictionResult::default()
        })
    }

    /// Passes a script the expiry action and its limits. Returns how tokens are stored, if their
    /// ids are needed.
    pub(super) fn add_fate(
        &self,
        script: &mut Invocation,
        expiry_action: Option<&ExpiryAction>,
    ) -> Option<TokenStorage> {
        let (action, entries) = match expiry_action {
            None => ("none", 0),
            Some(ExpiryAction::Keep) => ("keep", 0),
            Some(ExpiryAction::Stream { keep, .. }) => ("stream", *keep),
            Some(ExpiryAction::Outbox { .. }) => ("outbox", 0),
            Some(ExpiryAction::Queue { keep, .. }) => ("queue", *keep),
        };
        script.arg("action", action).arg("entries", entries).arg("cart_max", CART_MAX);
        script.arg("views_max", self.limits().viewed_items);
        expiry_action.and_then(ExpiryAction::storage)
    }
}

impl ExpiryStore for RedisStore {
    async fn evict_oldest(&self, how: Eviction) -> Result<usize, StoreError> {
        let mut script = self.script(&script::EVICT);
        script.arg("keep", how.keep).arg("before", how.before);
        script.arg("batch", how.batch.min(EVICT_BATCH)).arg("with_carts", u8::from(how.carts));
        self.run(&script).await
    }

    async fn correct_times(&self, now: f64, batch: u32) -> Result<usize, StoreError> {
        let recent = &self.keys().recent;
        let mut look = redis::cmd("ZRANGEBYSCORE");
        look.arg(recent).arg(format!("({}", now + FAR)).arg("+inf").arg("LIMIT").arg(0);
        let late: Vec<Vec<u8>> =
            self.query(RedisCall::Write, look.arg(batch.min(EVICT_BATCH))).await?;
        if late.is_empty() {
            return Ok(0);
        }
        // A session that has ended meanwhile does not come back.
        let mut set = redis::cmd("ZADD");
        set.arg(recent).arg("XX").arg("LT");
        for token in &late {
            set.arg(now).arg(token);
        }
        let _: u64 = self.query(RedisCall::Write, &set).await?;
        Ok(late.len())
    }

    async fn evict_expiring(
        &self,
        how: Eviction,
        from: &Cursor,
        expiry_action: &ExpiryAction,
    ) -> Result<EvictionResult, StoreError> {
        let (over, oldest) = self.oldest(how, from.left).await?;
        if oldest.is_empty() {
            return Ok(EvictionResult { cursor: from.clone(), ..EvictionResult::default() });
        }
        let behind = over > from.left + oldest.len() as u64;
        let mut evicted = self.part(how, &oldest, expiry_action).await?;
        evicted.more |= behind;
        evicted.cursor = Cursor { left: from.left + evicted.waiting as u64, ..Cursor::default() };
        Ok(evicted)
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        let mut script = self.script(&script::OUTBOX);
        script.arg("most", EXPIRING_BATCH).arg("bytes_max", EXPIRING_BYTES);
        // A read, but a large one that no request waits for.
        let (records, all): (Vec<Vec<u8>>, u64) = self.invoke(RedisCall::Write, &script).await?;
        Ok(Outbox::of(records, all))
    }

    async fn clear_outbox(&self, outbox: &Outbox) -> Result<bool, StoreError> {
        let mut script = self.script(&script::CLEAR_OUTBOX);
        script.arg("first", &outbox.first).arg("count", outbox.records);
        Ok(self.run(&script).await? > 0)
    }
}

impl LeaseStore for RedisStore {
    async fn take_lease(
        &self,
        task: TaskLease,
        process_id: u64,
        time: Duration,
    ) -> Result<bool, StoreError> {
        let lease = match task {
            TaskLease::Cleaner => &self.keys().cleaner,
            TaskLease::Certifier => &self.keys().certifier,
            TaskLease::Deliverer => &self.keys().deliverer,
            TaskLease::Scheduler => &self.keys().scheduler,
        };
        let mut script = self.script(&script::TAKE_LEASE);
        script.key("lease", lease).arg("who", process_id).arg("ms", milliseconds(time));
        Ok(self.run(&script).await? > 0)
    }
}
