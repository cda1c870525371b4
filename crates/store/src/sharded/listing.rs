//! Lists of sessions. A user's sessions are indexed in the shards of their tokens.

use anteroom_http::ident::{StoredToken, User};
use futures_util::future::try_join_all;

use super::ShardedStore;
use crate::control::behind;
use crate::{Bookmark, Session, SessionListing, StoreError, WALK_MAX, WalkStep};

impl SessionListing for ShardedStore {
    async fn session(&self, token: &StoredToken) -> Result<Option<Session>, StoreError> {
        self.of(token.as_str()).session(token).await
    }

    async fn sessions_of(&self, user: &User) -> Result<Vec<Session>, StoreError> {
        let found = self.at_all(|shard| async move { shard.sessions_of(user).await }).await?;
        Ok(in_order(found))
    }

    /// The order is by time, and among sessions of one time by token, over all shards.
    async fn newest(
        &self,
        from: Option<Bookmark>,
        most: usize,
    ) -> Result<WalkStep<Session>, StoreError> {
        let most = most.clamp(1, WALK_MAX);
        let highest = from.map_or(f64::INFINITY, |from| f64::from_bits(from.at));
        let offset = usize::try_from(from.map_or(0, |from| from.offset)).unwrap_or(usize::MAX);
        let looked_at = most.saturating_add(offset);
        let found =
            self.at_all(|shard| async move { shard.seen_until(highest, 0, looked_at).await });
        let mut found: Vec<(Vec<u8>, f64)> = found.await?.into_iter().flatten().collect();
        found.sort_by(|(token, seen), (other, later)| {
            later.total_cmp(seen).then_with(|| other.cmp(token))
        });
        let found: Vec<_> = found.into_iter().skip(offset).take(most).collect();
        let times: Vec<u64> = found.iter().map(|(_, seen)| seen.to_bits()).collect();
        let next = behind(from, &times).filter(|_| found.len() == most);
        let tokens: Vec<_> =
            found.iter().filter_map(|(token, _)| StoredToken::from_store(token)).collect();
        Ok(WalkStep { met: self.described(&tokens).await?, next })
    }

    async fn walk(
        &self,
        from: Option<Bookmark>,
        prefix: &str,
    ) -> Result<WalkStep<(StoredToken, User)>, StoreError> {
        // The second number of the bookmark is the shard.
        let shard = usize::try_from(from.map_or(0, |from| from.offset)).unwrap_or(usize::MAX);
        if shard >= self.any.shards() {
            return Ok(WalkStep { met: Vec::new(), next: None });
        }
        let inside = from.map(|from| Bookmark { at: from.at, offset: 0 });
        let WalkStep { met, next } = self.any.of_shard(shard).walk(inside, prefix).await?;
        let next_shard =
            (shard + 1 < self.any.shards()).then_some(Bookmark { at: 0, offset: shard as u64 + 1 });
        let next = next.map(|next| Bookmark { offset: shard as u64, ..next }).or(next_shard);
        Ok(WalkStep { met, next })
    }

    async fn forget_user(&self, user: &User) -> Result<usize, StoreError> {
        let removed = self.at_all(|shard| async move { shard.forget_user(user).await }).await?;
        Ok(removed.into_iter().sum())
    }
}

/// The sessions of all shards, the oldest login first.
fn in_order(found: Vec<Vec<Session>>) -> Vec<Session> {
    let mut sessions: Vec<Session> = found.into_iter().flatten().collect();
    sessions.sort_by(|one, other| {
        let since = |session: &Session| session.since.unwrap_or_default();
        let (first, second) = (one.token.as_str(), other.token.as_str());
        since(one).total_cmp(&since(other)).then_with(|| first.cmp(second))
    });
    sessions.truncate(WALK_MAX);
    sessions
}

impl ShardedStore {
    /// A user's sessions in the shards that answer.
    pub(super) async fn sessions_within_reach(
        &self,
        user: &User,
    ) -> Result<Vec<Session>, StoreError> {
        let found = self.at_those_there(|shard| async move { shard.sessions_of(user).await });
        Ok(in_order(found.await?))
    }

    /// The data of these sessions, in their order.
    async fn described(&self, tokens: &[StoredToken]) -> Result<Vec<Session>, StoreError> {
        let by_shard = self.by_shard(tokens, |token| token.as_str());
        let described = by_shard.into_iter().map(|(shard, tokens)| async move {
            shard.sessions_at(tokens.into_iter().map(|(_, token)| token.clone()).collect()).await
        });
        let mut sessions: Vec<Session> =
            try_join_all(described).await?.into_iter().flatten().collect();
        let place = |session: &Session| tokens.iter().position(|token| *token == session.token);
        sessions.sort_by_cached_key(place);
        Ok(sessions)
    }
}
