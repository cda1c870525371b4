//! The store in the sharded layout: 64 shards, each with the keys of a small store of its own. What belongs to a token
//! is in the token's shard, so a step on one token stays one atomic step; what concerns several shards is put
//! together here. Each shard is a [`RedisStore`]; this folder may use that, and knows no commands.
//!
//! What is not one step here, and is one in the chapter's layout: a login that replaces a token of another shard
//! (`rotation`), the limit of a user's sessions, and views, which are counted after a login.

mod expiry;
mod listing;
mod other;
mod rotation;
mod sessions;
mod sizes;
mod transfer;
mod views;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anteroom_http::ident::StoredToken;
use futures_util::future::{join_all, try_join_all};

use super::redis::{RedisStore, shard_of};
use super::{CounterReading, StoreError, StoreState};

/// The shard of what exists once: purges, leases and rows.
const FIRST: usize = 0;

/// One thread's handle. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct ShardedStore {
    any: RedisStore,
    /// The shards in which an event was put back, each with its place in their order: the others come first.
    put_back: Arc<Mutex<HashMap<u64, u64>>>,
    /// What was last found of the sets that are cleaned.
    looks: Arc<sizes::LastLooks>,
    /// When the popularity of all shards was last looked at, to be rescaled.
    rescaling: Arc<views::LastRescaling>,
}

impl ShardedStore {
    /// The shards behind this handle.
    pub(super) fn new(any: RedisStore) -> Self {
        Self { any, put_back: Arc::default(), looks: Arc::default(), rescaling: Arc::default() }
    }

    /// The same store by connections of its own.
    pub(super) fn separate(&self) -> Self {
        Self::new(self.any.separate())
    }

    pub(super) fn background(&self) -> Self {
        Self { any: self.any.background(), ..self.clone() }
    }

    pub(super) fn state(&self) -> StoreState {
        self.any.state()
    }

    pub(super) fn counted(&self) -> CounterReading {
        self.any.counted()
    }

    pub(super) async fn connected(&self) {
        self.any.connected().await;
    }

    pub(super) async fn purge_announced(&self) {
        self.any.purge_announced().await;
    }

    pub(super) async fn ended_sessions(&self) -> Vec<StoredToken> {
        self.any.ended_sessions().await
    }

    fn put_back(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.put_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> RedisStore {
        self.any.of_shard(FIRST)
    }

    /// The shard of a name: of a token, an item, or a key.
    fn of(&self, name: &str) -> RedisStore {
        self.any.of_shard(shard_of(name, self.any.shards()))
    }

    fn index_of(&self, name: &str) -> usize {
        shard_of(name, self.any.shards())
    }

    fn all(&self) -> impl Iterator<Item = RedisStore> + '_ {
        (0..self.any.shards()).map(|shard| self.any.of_shard(shard))
    }

    /// One call at every shard, all at once. The first error is the answer.
    async fn at_all<T, F>(&self, call: impl Fn(RedisStore) -> F) -> Result<Vec<T>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        try_join_all(self.all().map(call)).await
    }

    /// One call at every shard, all at once. What does not answer is left out, unless none does.
    async fn at_those_there<T, F>(
        &self,
        call: impl Fn(RedisStore) -> F,
    ) -> Result<Vec<T>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut answers = Vec::new();
        let mut refused = None;
        for answer in join_all(self.all().map(call)).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => refused = Some(error),
            }
        }
        match refused {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }

    /// Entries by their shard, each with its place in the list.
    fn by_shard<'a, T>(
        &self,
        entries: &'a [T],
        name: impl Fn(&T) -> &str,
    ) -> Vec<(RedisStore, Vec<(usize, &'a T)>)> {
        let mut by_shard = vec![Vec::new(); self.any.shards()];
        for (place, entry) in entries.iter().enumerate() {
            by_shard[self.index_of(name(entry))].push((place, entry));
        }
        self.all().zip(by_shard).filter(|(_, entries)| !entries.is_empty()).collect()
    }
}
