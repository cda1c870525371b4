//! Control of sessions: how long they last, how many a user may have, and how they are ended by others
//! than their visitors.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Sessions;
use super::rules::Rules;
use crate::clock::unix_now;
use crate::ident::StoredToken;
use crate::store::{BarStore, LogInStore, Parted, StoreError, Terms};

impl Sessions {
    /// What holds from now on. Who is remembered goes by the old rules for his second.
    pub fn change(&self, rules: Rules) {
        self.rules.store(Arc::new(rules));
    }

    /// When sessions are over, asked at `now`, Unix time in seconds.
    #[must_use]
    pub fn terms(&self, now: f64) -> Terms {
        let Rules { idle, absolute, .. } = **self.rules.load();
        let seconds = |most: Option<Duration>| most.map(|most| most.as_secs_f64());
        Terms {
            idle: seconds(idle),
            absolute: seconds(absolute),
            notes: true,
            ..Terms::endless(now)
        }
    }

    /// Ends a session for its visitor, and hands its cart on: in the store when it returns, and here.
    ///
    /// # Errors
    /// When the store did not say that it is done.
    pub async fn end<S: LogInStore + BarStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        self.bar(store, token).await?;
        self.dismiss(store, token).await?;
        self.forget(token);
        Ok(())
    }

    /// Ends a session of which nothing may be left: nothing is handed on. In the store when it returns, and
    /// here.
    ///
    /// # Errors
    /// When the store did not say that it is done.
    pub async fn erase<S: LogInStore + BarStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        self.bar(store, token).await?;
        store.revoke_token(token).await?;
        self.forget(token);
        Ok(())
    }

    async fn bar<S: BarStore>(&self, store: &S, token: &StoredToken) -> Result<(), StoreError> {
        if self.rules.load().bars {
            store.bar(token, unix_now()).await?;
        }
        Ok(())
    }

    /// Removes a session that its visitor has not ended from the store, and hands its cart on, if carts are.
    pub(super) async fn dismiss<S: LogInStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), StoreError> {
        let farewell = self.rules.load().farewell;
        match farewell {
            Some(farewell) => self.note(store.dismiss_token(token, &farewell).await?),
            None => store.revoke_token(token).await?,
        }
        Ok(())
    }

    /// Notes what became of carts.
    pub(super) fn note(&self, parted: Parted) {
        self.parted.lock().unwrap_or_else(PoisonError::into_inner).add(parted);
    }

    /// What became of the carts of sessions that were ended here since this was asked last, and not cleaned.
    #[must_use]
    pub fn take_parted(&self) -> Parted {
        std::mem::take(&mut *self.parted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears that tokens are nobody's any more.
    pub fn hear_gone(&self, tokens: &[StoredToken]) {
        for token in tokens {
            self.forget(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{TokenStorage, User};
    use crate::session::Before;
    use crate::store::scratch::with_store;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_session_that_is_remembered_ends_in_time() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256);
            sessions.change(Rules { absolute: Some(SECOND * 10), ..Rules::default() });
            let alice = User::new(b"alice").unwrap();
            let token = sessions.log_in(&store, Before::default(), alice, 1_000.0).await.unwrap();
            let token = sessions.stored(&token);
            for (now, lives) in [(1_000.0, true), (1_009.5, true), (1_010.0, false)] {
                // The second look is answered from memory, where it may be.
                for _ in 0..2 {
                    let found = sessions.check_token(&store, &token, now).await.unwrap();
                    assert_eq!(found.is_some(), lives, "{now}");
                }
            }
        });
    }

    #[test]
    fn whom_another_instance_has_ended_is_nobody_as_soon_as_that_is_told() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256);
            let alice = User::new(b"alice").unwrap();
            let token = sessions.log_in(&store, Before::default(), alice, 1_000.0).await.unwrap();
            let token = sessions.stored(&token);
            assert!(sessions.check_token(&store, &token, 1_000.0).await.unwrap().is_some());
            store.revoke_token(&token).await.unwrap();
            assert!(sessions.check_token(&store, &token, 1_000.1).await.unwrap().is_some());
            sessions.hear_gone(std::slice::from_ref(&token));
            assert!(sessions.check_token(&store, &token, 1_000.1).await.unwrap().is_none());
        });
    }
}
