//! Sessions: who a token belongs to, and what a log-in and a log-out do.
//!
//! A token that was found is remembered for a second at most. A log-out holds on this instance at
//! once, whatever the store does.

pub mod cart;
pub mod clean;
mod cookie;
pub mod expire;
mod expired_file;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;

use crate::ident::{StoredToken, Token, TokenStorage, User};
use crate::store::{Rotation, SessionStore, StoreError};

pub use cookie::{SameSite, Secure, SessionCookie};

/// Tokens remembered, at most; the least used are forgotten first.
const MEMO_MAX: usize = 100_000;
/// How long a token is remembered, in seconds.
const MEMO_TTL: f64 = 1.0;
/// How long a visitor waits for the store to take his log-out, which holds here already.
const LOG_OUT_PATIENCE: Duration = Duration::from_millis(250);
/// Log-outs that may wait for the store.
const LOG_OUTS_MAX: usize = 100_000;

/// The sessions, shared by all threads.
#[derive(Debug)]
pub struct Sessions {
    storage: TokenStorage,
    memo: Cache<StoredToken, (User, f64)>,
    /// Goes up with every log-in and log-out: a look-up that began before is not remembered.
    epoch: AtomicU64,
    /// Tokens logged out here of which the store does not know yet.
    denied: Mutex<HashSet<StoredToken>>,
}

/// Why a visitor was not logged in.
#[derive(Debug, thiserror::Error)]
pub enum LogInError {
    /// The operating system gave no random bytes.
    #[error("no token could be made")]
    Random(#[source] getrandom::Error),
    /// The store did not take the session.
    #[error("the session could not be stored")]
    Store(#[source] StoreError),
}

/// Too many log-outs wait for the store already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many log-outs wait for the store")]
pub struct TooManyLogOuts;

impl Sessions {
    /// Sessions whose tokens stand in the store as `storage` says.
    #[must_use]
    pub fn new(storage: TokenStorage) -> Self {
        Self {
            storage,
            memo: Cache::new(MEMO_MAX),
            epoch: AtomicU64::new(0),
            denied: Mutex::default(),
        }
    }

    fn denied(&self) -> MutexGuard<'_, HashSet<StoredToken>> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token as it stands in the store.
    #[must_use]
    pub fn stored(&self, token: &Token) -> StoredToken {
        token.stored(self.storage)
    }

    /// The user of a token, if it is logged in; `now` is Unix time in seconds.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn check_token<S: SessionStore>(
        &self,
        store: &S,
        token: &StoredToken,
        now: f64,
    ) -> Result<Option<User>, StoreError> {
        match self.memo.get(token) {
            Some((user, until)) if now < until && now >= until - MEMO_TTL => return Ok(Some(user)),
            _ => {}
        }
        if self.denied().contains(token) {
            return Ok(None);
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let user = store.check_token(token).await?;
        let Some(user) = user else { return Ok(None) };
        if self.denied().contains(token) {
            return Ok(None);
        }
        if self.epoch.load(Ordering::Acquire) == epoch {
            self.memo.insert(token.clone(), (user.clone(), now + MEMO_TTL));
            // A log-out between the comparison and the insertion has looked for the memo too soon.
            if self.epoch.load(Ordering::Acquire) != epoch {
                self.memo.remove(token);
            }
        }
        Ok(Some(user))
    }

    /// Logs a user in: a new token, and the old one gone everywhere. In the store when it returns.
    ///
    /// # Errors
    /// When it is not in the store; then nothing has changed for the visitor.
    pub async fn log_in<S: SessionStore>(
        &self,
        store: &S,
        old: Option<StoredToken>,
        user: User,
        now: f64,
    ) -> Result<Token, LogInError> {
        let token = Token::mint().map_err(LogInError::Random)?;
        let rotation = Rotation { old, new: self.stored(&token), user, now };
        store.rotate_token(&rotation).await.map_err(LogInError::Store)?;
        if let Some(old) = &rotation.old {
            self.forget(old);
        }
        Ok(token)
    }

    /// Logs a token out: here at once, in the store now or as soon as it can be reached.
    ///
    /// # Errors
    /// When too many log-outs wait for the store already.
    pub async fn log_out<S: SessionStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), TooManyLogOuts> {
        {
            let mut denied = self.denied();
            if denied.len() >= LOG_OUTS_MAX {
                return Err(TooManyLogOuts);
            }
            denied.insert(token.clone());
        }
        self.forget(token);
        if tokio::time::timeout(LOG_OUT_PATIENCE, self.revoke(store, token)).await.is_err() {
            tracing::debug!("a log-out waits for the store, and its visitor does not");
        }
        Ok(())
    }

    async fn revoke<S: SessionStore>(&self, store: &S, token: &StoredToken) -> bool {
        let revoked = store.revoke_token(token).await;
        if let Err(error) = &revoked {
            tracing::debug!(%error, "a log-out waits for the store");
            return false;
        }
        self.forget(token);
        self.denied().remove(token);
        true
    }

    fn forget(&self, token: &StoredToken) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.memo.remove(token);
    }

    /// Log-outs that wait for the store.
    #[must_use]
    pub fn log_outs_waiting(&self) -> usize {
        self.denied().len()
    }

    /// Tries the log-outs that wait, until one fails. Returns whether none is left.
    pub async fn flush_log_outs<S: SessionStore>(&self, store: &S) -> bool {
        let waiting: Vec<StoredToken> = self.denied().iter().cloned().collect();
        for token in waiting {
            if !self.revoke(store, &token).await {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::scratch::with_store;

    #[test]
    fn a_log_out_holds_at_once_though_the_token_was_remembered() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256);
            let user = User::new(b"alice").unwrap();
            let token = sessions.log_in(&store, None, user.clone(), 1_000.0).await.unwrap();
            let stored = sessions.stored(&token);
            for now in [1_000.0, 1_000.5] {
                let found = sessions.check_token(&store, &stored, now).await.unwrap();
                assert_eq!(found, Some(user.clone()));
            }
            sessions.log_out(&store, &stored).await.unwrap();
            let found = sessions.check_token(&store, &stored, 1_000.6).await.unwrap();
            assert_eq!(found, None);
            assert_eq!(sessions.log_outs_waiting(), 0);
        });
    }
}
