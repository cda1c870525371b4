//! Lists of sessions in Redis: `tokens:<user>` is the index of a user's sessions, `since:` holds when those
//! were first seen that the app wrote.

use redis::pipe;

use super::{Call, Oldest, Pairs, RedisStore};
use crate::ident::{StoredToken, User};
use crate::store::control::behind;
use crate::store::{Bookmark, Session, SessionListing, StoreError, WALK_MAX, Walked};

/// Where a session is known since, by the index and else by what was noted; and when it was seen.
type Times = (Option<f64>, Option<f64>, Option<f64>);

impl RedisStore {
    /// What is known of these sessions, of which `login:` has the user.
    async fn described(&self, held: Vec<(StoredToken, User)>) -> Result<Vec<Session>, StoreError> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.keys();
        let mut look = pipe();
        for (token, user) in &held {
            look.cmd("ZSCORE").arg(keys.tokens(user)).arg(token.as_str());
            look.cmd("ZSCORE").arg(&keys.since).arg(token.as_str());
            look.cmd("ZSCORE").arg(&keys.recent).arg(token.as_str());
        }
        let times: Vec<Option<f64>> = self.query_all(Call::Write, &look).await?;
        let times = times
            .as_chunks::<3>()
            .0
            .iter()
            .map(|[log_in, noted, seen]| -> Times { (*log_in, *noted, *seen) });
        let described =
            held.into_iter().zip(times).map(|((token, user), (log_in, noted, seen))| Session {
                token,
                user,
                since: log_in.or(noted),
                seen,
            });
        Ok(described.collect())
    }

    /// Those of these tokens that somebody has, with him.
    async fn held(&self, tokens: Vec<StoredToken>) -> Result<Vec<(StoredToken, User)>, StoreError> {
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(&self.keys().login);
        for token in &tokens {
            command.arg(token.as_str());
        }
        let users: Vec<Option<Vec<u8>>> = self.query(Call::Write, &command).await?;
        let held = tokens.into_iter().zip(users);
        Ok(held.filter_map(|(token, user)| Some((token, User::from_store(&user?)?))).collect())
    }
}

/// Reads, but none that a page waits for, and not small: they have the budget of a write.
impl SessionListing for RedisStore {
    async fn session(&self, token: &StoredToken) -> Result<Option<Session>, StoreError> {
        let held = self.held(vec![token.clone()]).await?;
        Ok(self.described(held).await?.pop())
    }

    async fn sessions_of(&self, user: &User) -> Result<Vec<Session>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(self.keys().tokens(user)).arg(0).arg(WALK_MAX - 1);
        let found: Vec<Vec<u8>> = self.query(Call::Write, &command).await?;
        let found = found.iter().filter_map(|token| StoredToken::from_store(token)).collect();
        let mut held = self.held(found).await?;
        // Another program may have given a token to somebody else.
        held.retain(|(_, holder)| holder.is_same(user));
        self.described(held).await
    }

    async fn newest(
        &self,
        from: Option<Bookmark>,
        most: usize,
    ) -> Result<Walked<Session>, StoreError> {
        let most = most.clamp(1, WALK_MAX);
        let highest = from.map_or(f64::INFINITY, |from| f64::from_bits(from.at));
        let mut command = redis::cmd("ZRANGE");
        command.arg(&self.keys().recent).arg(highest).arg("-inf").arg("BYSCORE").arg("REV");
        let offset = from.map_or(0, |from| from.offset);
        command.arg("LIMIT").arg(offset.min(i64::MAX as u64)).arg(most).arg("WITHSCORES");
        let found: Oldest = self.query(Call::Write, &command).await?;
        let times: Vec<u64> = found.iter().map(|(_, seen)| seen.to_bits()).collect();
        let tokens = found.iter().filter_map(|(token, _)| StoredToken::from_store(token));
        let met = self.described(self.held(tokens.collect()).await?).await?;
        let next = behind(from, &times).filter(|_| found.len() == most);
        Ok(Walked { met, next })
    }

    async fn walk(
        &self,
        from: Option<Bookmark>,
        prefix: &str,
    ) -> Result<Walked<(StoredToken, User)>, StoreError> {
        let mut command = redis::cmd("HSCAN");
        command.arg(&self.keys().login).arg(from.map_or(0, |from| from.at));
        if !prefix.is_empty() {
            // What a pattern could mean is escaped: a prefix is a prefix.
            let escaped = prefix.chars().flat_map(|c| ['\\', c]);
            command.arg("MATCH").arg(escaped.chain(['*']).collect::<String>());
        }
        command.arg("COUNT").arg(WALK_MAX);
        let (next, found): (u64, Pairs) = self.query(Call::Write, &command).await?;
        let met = found.into_iter().filter_map(|(token, user)| {
            Some((StoredToken::from_store(&token)?, User::from_store(&user)?))
        });
        let next = (next != 0).then_some(Bookmark { at: next, offset: 0 });
        Ok(Walked { met: met.collect(), next })
    }

    async fn forget_user(&self, user: &User) -> Result<usize, StoreError> {
        let (keys, mut from) = (self.keys(), "-".to_owned());
        self.write(pipe().cmd("UNLINK").arg(keys.tokens(user))).await?;
        let mut removed = self.forget_events(user).await?;
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(&keys.expired).arg(&from).arg("+").arg("COUNT").arg(WALK_MAX);
            let entries: Vec<(String, Pairs)> = self.query(Call::Write, &command).await?;
            let is_his = |(_, fields): &&(String, Pairs)| {
                fields.iter().any(|(name, value)| name == b"user" && value == user.as_bytes())
            };
            let his: Vec<&str> = entries.iter().filter(is_his).map(|(id, _)| id.as_str()).collect();
            if !his.is_empty() {
                self.write(pipe().cmd("XDEL").arg(&keys.expired).arg(&his)).await?;
                removed += his.len();
            }
            match entries.last().filter(|_| entries.len() == WALK_MAX) {
                Some((last, _)) => from = format!("({last}"),
                None => return Ok(removed),
            }
        }
    }
}
