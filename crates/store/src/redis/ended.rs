//! Tokens that this process has ended lately. After a failover they are ended again: the new primary may not have
//! heard of it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::StoredToken;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{RedisCall, RedisStore, script};
use crate::StoreError;

/// For how long a token is remembered: longer than a failover takes.
const REMEMBERED: Duration = Duration::from_secs(120);
/// The most tokens that are remembered. The oldest are forgotten first.
const MOST: usize = 20_000;
/// How long the new primary has to end them.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before a token is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// How many are ended at a time.
const AT_A_TIME: usize = 16;

/// The tokens, the oldest first.
#[derive(Debug, Default)]
pub(super) struct EndedTokens(Mutex<VecDeque<EndedToken>>);

#[derive(Clone, Debug)]
struct EndedToken {
    at: Instant,
    /// The same as Unix time in seconds.
    ended: f64,
    shard: usize,
    token: StoredToken,
}

impl EndedTokens {
    fn tokens(&self) -> MutexGuard<'_, VecDeque<EndedToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, shard: usize, token: &StoredToken, now: f64) {
        let mut tokens = self.tokens();
        let is_old = |token: &EndedToken| token.at.elapsed() > REMEMBERED;
        while tokens.len() >= MOST || tokens.front().is_some_and(is_old) {
            tokens.pop_front();
        }
        let ended = EndedToken { at: Instant::now(), ended: now, shard, token: token.clone() };
        tokens.push_back(ended);
    }

    fn of(&self, shards: &[usize]) -> Vec<EndedToken> {
        let tokens = self.tokens();
        tokens.iter().filter(|token| shards.contains(&token.shard)).cloned().collect()
    }
}

impl RedisStore {
    /// A token was ended, and that was acknowledged.
    pub(super) fn has_ended(&self, token: &StoredToken) {
        if self.moves() {
            self.handle.address.ended.remember(self.shard, token, unix_now());
        }
    }

    /// Ends the tokens again that were ended lately in these shards, unless they have logged in since.
    pub(super) async fn end_again(&self, shards: &[usize]) {
        let ended = self.handle.address.ended.of(shards);
        if ended.is_empty() {
            return;
        }
        let deadline = Instant::now() + PATIENCE;
        let mut failed = 0;
        for some in ended.chunks(AT_A_TIME) {
            let done = join_all(some.iter().map(|token| self.end_one_again(token, deadline))).await;
            failed += done.iter().filter(|done| done.is_err()).count();
        }
        tracing::info!(
            sessions = ended.len(),
            failed,
            "ended the latest logouts again at the new primary"
        );
    }

    /// Tries until the new primary answers: it may be connecting still.
    async fn end_one_again(
        &self,
        EndedToken { token, shard, ended, .. }: &EndedToken,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let store = self.background().of_shard(*shard);
        let keys = store.keys();
        let mut script = store.script(&script::END_AGAIN);
        script.key("viewed", keys.viewed(token)).key("cart", keys.cart(token));
        script.arg("token", token.as_str()).arg("ended", *ended);
        loop {
            match store.invoke::<Option<u8>>(RedisCall::Write, &script).await {
                Err(error) if !error.is_refusal() && Instant::now() < deadline => {
                    sleep(PAUSE).await;
                }
                done => return done.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_latest_tokens_of_a_shard_are_remembered_for_a_while() {
        let ended = EndedTokens::default();
        let token = |n: usize| StoredToken::from_store(format!("token-{n:08}").as_bytes()).unwrap();
        ended.remember(1, &token(1), 1.0);
        tokio::time::advance(REMEMBERED / 2).await;
        ended.remember(2, &token(2), 2.0);
        ended.remember(1, &token(3), 3.0);
        assert_eq!(ended.of(&[1]).len(), 2);
        tokio::time::advance(REMEMBERED / 2 + Duration::from_secs(1)).await;
        ended.remember(1, &token(4), 4.0);
        assert_eq!(ended.of(&[1, 2]).len(), 3);
        for n in 0..MOST {
            ended.remember(3, &token(n), 5.0);
        }
        assert_eq!((ended.of(&[1, 2]).len(), ended.of(&[3]).len()), (0, MOST));
    }
}
