//! Control of sessions: their lifetime, how many a user may have, and ending them on an operator's order.

use std::sync::PoisonError;
use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::StoredToken;
use anteroom_store::{EndedCarts, LogInStore, RevocationStore, SessionLifetimes, StoreError};

use super::Sessions;
use super::rules::Rules;

impl Sessions {
    /// When sessions are over, checked at `now`, Unix time in seconds.
    #[must_use]
    pub fn terms(&self, now: f64) -> SessionLifetimes {
        let Rules { idle, absolute, .. } = self.rules;
        let seconds = |most: Option<Duration>| most.map(|most| most.as_secs_f64());
        SessionLifetimes {
            idle: seconds(idle),
            absolute: seconds(absolute),
            notes: true,
            ..SessionLifetimes::endless(now)
        }
    }

    /// Ends a session on an operator's order, and hands its cart on: in the store when it returns, and in
    /// this process.
    ///
    /// # Errors
    /// When the store has not confirmed it.
    pub async fn revoke<S: LogInStore + RevocationStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        self.mark_revoked(store, token).await?;
        self.end(store, token).await?;
        self.forget(token);
        Ok(())
    }

    /// Ends a session without a trace: nothing is handed on. In the store when it returns, and in
    /// this process.
    ///
    /// # Errors
    /// When the store has not confirmed it.
    pub async fn erase<S: LogInStore + RevocationStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        self.mark_revoked(store, token).await?;
        store.revoke_token(token).await?;
        self.forget(token);
        Ok(())
    }

    async fn mark_revoked<S: RevocationStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        if self.rules.marks_revoked {
            store.mark_revoked(token, unix_now()).await?;
        }
        Ok(())
    }

    /// Removes a session that its user does not end from the store, and hands its cart on, if configured.
    pub(super) async fn end<S: LogInStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        match self.rules.expiry_action {
            Some(expiry_action) => self.note(store.dismiss_token(token, &expiry_action).await?),
            None => store.revoke_token(token).await?,
        }
        Ok(())
    }

    /// Adds up what happened to carts.
    pub(super) fn note(&self, ended_carts: EndedCarts) {
        self.memory.ended_carts.lock().unwrap_or_else(PoisonError::into_inner).add(ended_carts);
    }

    /// What happened to the carts of sessions that were ended here, and not cleaned, since the last
    /// call.
    #[must_use]
    pub fn take_ended_carts(&self) -> EndedCarts {
        std::mem::take(&mut *self.memory.ended_carts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in that these tokens are gone.
    pub fn hear_gone(&self, tokens: &[StoredToken]) {
        for token in tokens {
            self.forget(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anteroom_http::ident::{TokenStorage, User};
    use anteroom_store::scratch::with_store;

    use super::*;
    use crate::PreviousIdentity;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_that_is_remembered_ends_in_time() {
        with_store(async |store| {
            let rules = Rules { absolute: Some(SECOND * 10), ..Rules::default() };
            let sessions = Sessions::new(TokenStorage::Sha256, rules, Arc::default());
            let alice = User::new(b"alice").unwrap();
            let token =
                sessions.log_in(&store, PreviousIdentity::default(), alice, 1_000.0).await.unwrap();
            let token = sessions.stored(&token);
            for (now, lives) in [(1_000.0, true), (1_009.5, true), (1_010.0, false)] {
                // The second look-up is answered from memory, if it may be.
                for _ in 0..2 {
                    let found = sessions.check_token(&store, &token, now).await.unwrap();
                    assert_eq!(found.is_some(), lives, "{now}");
                }
            }
        });
    }

    #[test]
    fn a_session_ended_elsewhere_is_forgotten_on_notification() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            let alice = User::new(b"alice").unwrap();
            let token =
                sessions.log_in(&store, PreviousIdentity::default(), alice, 1_000.0).await.unwrap();
            let token = sessions.stored(&token);
            assert!(sessions.check_token(&store, &token, 1_000.0).await.unwrap().is_some());
            store.revoke_token(&token).await.unwrap();
            assert!(sessions.check_token(&store, &token, 1_000.1).await.unwrap().is_some());
            sessions.hear_gone(std::slice::from_ref(&token));
            assert!(sessions.check_token(&store, &token, 1_000.1).await.unwrap().is_none());
        });
    }
}
