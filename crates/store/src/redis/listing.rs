//! Lists of sessions in Redis: `tokens:<user>` is the index of a user's sessions, `since:` holds
//! when sessions that the app wrote were first seen.

use anteroom_http::ident::{StoredToken, User};
use redis::pipe;

use super::{Pairs, RedisCall, RedisStore, ScoredMembers};
use crate::control::behind;
use crate::{Bookmark, Session, SessionListing, StoreError, WALK_MAX, WalkStep};

/// When a session began, by the index and by `since:`; and when it was last seen.
type Times = (Option<f64>, Option<f64>, Option<f64>);

impl RedisStore {
    /// The data of these sessions, with their users from `login:`.
    async fn described(
        &self,
        found_users: Vec<(StoredToken, User)>,
    ) -> Result<Vec<Session>, StoreError> {
        if found_users.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys();
        let mut look = pipe();
        for (token, user) in &found_users {
            look.cmd("ZSCORE").arg(keys.tokens(user)).arg(token.as_str());
            look.cmd("ZSCORE").arg(&keys.since).arg(token.as_str());
            look.cmd("ZSCORE").arg(&keys.recent).arg(token.as_str());
        }
        let times: Vec<Option<f64>> = self.query_all(RedisCall::Write, &look).await?;
        let times = times
            .as_chunks::<3>()
            .0
            .iter()
            .map(|[log_in, noted, seen]| -> Times { (*log_in, *noted, *seen) });
        let described =
            found_users.into_iter().zip(times).map(|((token, user), (log_in, noted, seen))| {
                Session { token, user, since: log_in.or(noted), seen }
            });
        Ok(described.collect())
    }

    /// Those of these tokens that have a user, with the user.
    async fn with_users(
        &self,
        tokens: Vec<StoredToken>,
    ) -> Result<Vec<(StoredToken, User)>, StoreError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(&self.keys().login);
        for token in &tokens {
            command.arg(token.as_str());
        }
        let users: Vec<Option<Vec<u8>>> = self.query(RedisCall::Write, &command).await?;
        let found_users = tokens.into_iter().zip(users);
        Ok(found_users
            .filter_map(|(token, user)| Some((token, User::from_store(&user?)?)))
            .collect())
    }
}

/// What the sharded layout puts together.
impl RedisStore {
    /// Tokens by the time when they were last seen, the latest first, from this time on.
    pub(crate) async fn seen_until(
        &self,
        highest: f64,
        offset: u64,
        most: usize,
    ) -> Result<ScoredMembers, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(&self.keys().recent).arg(highest).arg("-inf").arg("BYSCORE").arg("REV");
        command.arg("LIMIT").arg(offset.min(i64::MAX as u64)).arg(most).arg("WITHSCORES");
        self.query(RedisCall::Write, &command).await
    }

    /// The data of those of these tokens that have a user.
    pub(crate) async fn sessions_at(
        &self,
        tokens: Vec<StoredToken>,
    ) -> Result<Vec<Session>, StoreError> {
        self.described(self.with_users(tokens).await?).await
    }
}

/// These reads are large, and no page waits for them: they have the budget of a write.
impl SessionListing for RedisStore {
    async fn session(&self, token: &StoredToken) -> Result<Option<Session>, StoreError> {
        let found_users = self.with_users(vec![token.clone()]).await?;
        Ok(self.described(found_users).await?.pop())
    }

    async fn sessions_of(&self, user: &User) -> Result<Vec<Session>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys().tokens(user)).arg(0).arg(WALK_MAX - 1);
        let found: Vec<Vec<u8>> = self.query(RedisCall::Write, &command).await?;
        let found = found.iter().filter_map(|token| StoredToken::from_store(token)).collect();
        let mut found_users = self.with_users(found).await?;
        // Another program may have given a token to another user.
        found_users.retain(|(_, holder)| holder.is_same(user));
        self.described(found_users).await
    }

    async fn newest(
        &self,
        from: Option<Bookmark>,
        most: usize,
    ) -> Result<WalkStep<Session>, StoreError> {
        let most = most.clamp(1, WALK_MAX);
        let highest = from.map_or(f64::INFINITY, |from| f64::from_bits(from.at));
        let offset = from.map_or(0, |from| from.offset);
        let found = self.seen_until(highest, offset, most).await?;
        let times: Vec<u64> = found.iter().map(|(_, seen)| seen.to_bits()).collect();
        let tokens = found.iter().filter_map(|(token, _)| StoredToken::from_store(token));
        let met = self.sessions_at(tokens.collect()).await?;
        let next = behind(from, &times).filter(|_| found.len() == most);
        Ok(WalkStep { met, next })
    }

    async fn walk(
        &self,
        from: Option<Bookmark>,
        prefix: &str,
    ) -> Result<WalkStep<(StoredToken, User)>, StoreError> {
        let mut command = redis::cmd("HSCAN");
        command.arg(&self.keys().login).arg(from.map_or(0, |from| from.at));
        if !prefix.is_empty() {
            // Pattern characters are escaped: a prefix is a prefix.
            let escaped = prefix.chars().flat_map(|c| ['\\', c]);
            command.arg("MATCH").arg(escaped.chain(['*']).collect::<String>());
        }
        command.arg("COUNT").arg(WALK_MAX);
        let (next, found): (u64, Pairs) = self.query(RedisCall::Write, &command).await?;
        let met = found.into_iter().filter_map(|(token, user)| {
            Some((StoredToken::from_store(&token)?, User::from_store(&user)?))
        });
        let next = (next != 0).then_some(Bookmark { at: next, offset: 0 });
        Ok(WalkStep { met: met.collect(), next })
    }

    async fn forget_user(&self, user: &User) -> Result<usize, StoreError> {
        let (keys, mut from) = (self.keys(), "-".to_owned());
        self.write(pipe().cmd("UNLINK").arg(keys.tokens(user))).await?;
        let mut removed = self.forget_events(user).await?;
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(&keys.expired).arg(&from).arg("+").arg("COUNT").arg(WALK_MAX);
            let entries: Vec<(String, Pairs)> = self.query(RedisCall::Write, &command).await?;
            let is_of_user = |(_, fields): &&(String, Pairs)| {
                fields.iter().any(|(name, value)| name == b"user" && value == user.as_bytes())
            };
            let of_user: Vec<&str> =
                entries.iter().filter(is_of_user).map(|(id, _)| id.as_str()).collect();
            if !of_user.is_empty() {
                self.write(pipe().cmd("XDEL").arg(&keys.expired).arg(&of_user)).await?;
                removed += of_user.len();
            }
            match entries.last().filter(|_| entries.len() == WALK_MAX) {
                Some((last, _)) => from = format!("({last}"),
                None => return Ok(removed),
            }
        }
    }
}
