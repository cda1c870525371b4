//! Sessions: the user of a token, and logins and logouts.
//!
//! A token that was found is remembered for a second at most, counted from the last call to the
//! store: a look-up, or a visit, which gives the same answer. So a busy session needs no look-up. That a
//! token has no user is remembered for 100 ms, for the parts of a page. A logout takes effect in this process at
//! once, whatever the store does. A token that cannot be looked up is unknown, and never anonymous.
//!
//! Nothing here knows pages, or what a request asks for.

pub mod cart;
pub mod clean;
pub mod control;
mod cookie;
pub mod expire;
mod expired_file;
mod rules;
pub mod token_memo;
mod unknown;
mod verify_memory;
mod verify_queue;
pub mod visit;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteroom_fault::{fault, patience};
use anteroom_http::clock::unix_now;
use anteroom_http::ident::{StoredToken, Token, TokenStorage, User, VisitorToken};
use anteroom_store::{
    EndedCarts, LogIn, LogInStore, RevocationStore, Rotation, RotationResult, SessionLifetimes,
    StoreError, TokenStore, VisitResult,
};
use futures_util::stream::{self, StreamExt as _};
use quick_cache::sync::Cache;

use self::token_memo::TokenMemo;
use self::unknown::UnknownTokens;

pub use cookie::SessionCookie;
pub use rules::Rules;
pub use verify_memory::{
    Join, StoredAnswer, VerifyAnswer, VerifyLeader, VerifyMemory, VerifyResult,
};
pub use verify_queue::{VerifyPermit, VerifyReason};

/// The most tokens remembered; the least used are evicted first.
const MEMO_MAX: usize = 100_000;
/// How long a token is remembered, in seconds.
const MEMO_TTL: f64 = 1.0;
/// How many logouts that wait are retried at a time.
const LOG_OUTS_AT_ONCE: usize = 32;
/// How long a response waits for the store to take a logout, which is already in effect here.
const LOG_OUT_TIMEOUT: Duration = Duration::from_millis(250);
/// Logouts that may wait for the store.
const LOG_OUTS_MAX: usize = 100_000;

/// The sessions, under the rules of one configuration.
#[derive(Debug)]
pub struct Sessions {
    storage: TokenStorage,
    rules: Rules,
    memory: Arc<SessionMemory>,
}

/// What this process knows of sessions, independent of their rules. All threads share it.
#[derive(Debug)]
pub struct SessionMemory {
    memo: Cache<StoredToken, Arc<RememberedToken>>,
    /// Tokens that had no user a moment ago.
    unknown: UnknownTokens,
    /// Goes up with every login and logout: the result of an earlier look-up is then not
    /// remembered.
    epoch: AtomicU64,
    /// Tokens logged out here that the store does not have yet.
    unwritten: Mutex<HashMap<StoredToken, Ending>>,
    /// What happened to carts since the last report.
    ended_carts: Mutex<EndedCarts>,
}

impl Default for SessionMemory {
    fn default() -> Self {
        Self {
            memo: Cache::new(MEMO_MAX),
            unknown: UnknownTokens::default(),
            epoch: AtomicU64::new(0),
            unwritten: Mutex::default(),
            ended_carts: Mutex::default(),
        }
    }
}

/// How a session is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The user logged out: the token is invalid.
    LoggedOut,
    /// It ended without its user: the token is invalid, and its cart is handed on.
    Ended,
    /// The token is an app's own, and the app may still accept it: it is revoked.
    Revoked,
}

/// What is remembered of a token.
#[derive(Debug)]
struct RememberedToken {
    user: User,
    /// The bits of the Unix time in seconds: times after 1970 sort as their bits do.
    until: AtomicU64,
    /// The Unix time at which the session is over, even in use.
    ends: f64,
}

impl RememberedToken {
    fn new(LogIn { user, ends }: LogIn, at: f64) -> Self {
        Self { user, until: AtomicU64::new((at + MEMO_TTL).to_bits()), ends }
    }

    /// A clock that was set back ends it, too.
    fn holds(&self, now: f64) -> bool {
        let until = f64::from_bits(self.until.load(Ordering::Relaxed));
        now < until && now >= until - MEMO_TTL && now < self.ends
    }

    fn renew(&self, at: f64) {
        self.until.fetch_max((at + MEMO_TTL).to_bits(), Ordering::Relaxed);
    }
}

/// When the store was asked about tokens.
#[derive(Clone, Copy, Debug)]
pub struct LookupTimes {
    /// Unix time in seconds.
    at: f64,
    epoch: u64,
}

/// What a visitor had before the login.
#[derive(Clone, Debug, Default)]
pub struct PreviousIdentity {
    /// The session of the token in the cookie: removed everywhere by the login.
    pub session: Option<StoredToken>,
    /// The data kept without a login: it moves to the new session.
    pub visitor: Option<VisitorToken>,
}

/// Why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LogInError {
    /// The operating system gave no random bytes.
    #[error("no token could be generated")]
    Random(#[source] getrandom::Error),
    /// The store did not take the session.
    #[error("the session could not be stored")]
    Store(#[source] StoreError),
}

/// Too many logouts wait for the store already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many logouts wait for the store")]
pub struct TooManyLogOuts;

impl Sessions {
    /// Sessions under these rules, with tokens stored as `storage` says. A token in the `memory`
    /// follows the rules of the time when it was remembered.
    #[must_use]
    pub fn new(storage: TokenStorage, rules: Rules, memory: Arc<SessionMemory>) -> Self {
        Self { storage, rules, memory }
    }

    fn unwritten(&self) -> MutexGuard<'_, HashMap<StoredToken, Ending>> {
        self.memory.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How tokens are stored.
    #[must_use]
    pub fn storage(&self) -> TokenStorage {
        self.storage
    }

    /// The token in its stored form.
    #[must_use]
    pub fn stored(&self, token: &Token) -> StoredToken {
        token.stored(self.storage)
    }

    /// The same for the token of a request: this thread may have met it before.
    #[must_use]
    pub fn stored_by(&self, memo: &TokenMemo, token: &Token) -> StoredToken {
        memo.stored(token, self.storage)
    }

    /// The user of a token, if it is logged in and not over; `now` is Unix time in seconds.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn check_token<S: TokenStore>(
        &self,
        store: &S,
        token: &StoredToken,
        now: f64,
    ) -> Result<Option<User>, StoreError> {
        self.check_token_for(store, token, now, || false).await
    }

    /// The same for a request that may be for a part of a page: if `is_part`, the store is not asked about a token
    /// that had no user in the last 100 ms.
    ///
    /// Another program, or a login at another proxy, may have written a user since. So a page is always looked
    /// up, and what the look-up finds is known to its parts.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn check_token_for<S: TokenStore>(
        &self,
        store: &S,
        token: &StoredToken,
        now: f64,
        is_part: impl FnOnce() -> bool,
    ) -> Result<Option<User>, StoreError> {
        if let Some(answer) = self.remembered(self.memory.memo.get(token), token, now) {
            return Ok(answer);
        }
        if self.memory.unknown.has(token, now) && is_part() {
            return Ok(None);
        }
        let LookupTimes { at, epoch } = self.asking(now);
        let found = store.live_token(token, &self.terms(now)).await?;
        let Some(found) = found else {
            self.note_unknown(token, LookupTimes { at, epoch });
            return Ok(None);
        };
        if self.unwritten().contains_key(token) {
            return Ok(None);
        }
        self.memory.unknown.forget(token);
        let user = found.user.clone();
        if self.memory.epoch.load(Ordering::Acquire) == epoch {
            self.memory.memo.insert(token.clone(), Arc::new(RememberedToken::new(found, at)));
            // A logout between the comparison and the insertion has looked for the memo too soon.
            if self.memory.epoch.load(Ordering::Acquire) != epoch {
                self.memory.memo.remove(token);
            }
        }
        Ok(Some(user))
    }

    fn note_unknown(&self, token: &StoredToken, asked: LookupTimes) {
        if self.memory.epoch.load(Ordering::Acquire) != asked.epoch {
            return;
        }
        self.memory.unknown.remember(token, asked.at);
        // A login between the comparison and the insertion has forgotten the token too soon.
        if self.memory.epoch.load(Ordering::Acquire) != asked.epoch {
            self.memory.unknown.forget(token);
        }
    }

    /// A request of this token may log its visitor in, or may have done so: look-ups of before are void.
    pub fn may_log_in(&self, token: &StoredToken) {
        self.forget(token);
    }

    /// The same, and the result is not remembered.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn peek_token<S: TokenStore>(
        &self,
        store: &S,
        token: &StoredToken,
        now: f64,
    ) -> Result<Option<User>, StoreError> {
        match self.remembered(self.memory.memo.peek(token), token, now) {
            Some(answer) => Ok(answer),
            None => {
                let terms = SessionLifetimes { notes: false, ..self.terms(now) };
                let found = store.live_token(token, &terms).await?;
                Ok(found.map(|found| found.user).filter(|_| !self.unwritten().contains_key(token)))
            }
        }
    }

    /// What is known of a token without the store: its user, or that it is gone.
    fn remembered(
        &self,
        found: Option<Arc<RememberedToken>>,
        token: &StoredToken,
        now: f64,
    ) -> Option<Option<User>> {
        match found.filter(|found| found.holds(now)) {
            Some(found) => Some(Some(found.user.clone())),
            None => self.unwritten().contains_key(token).then_some(None),
        }
    }

    /// Call this right before asking the store about tokens; `now` is Unix time in seconds.
    #[must_use]
    pub fn asking(&self, now: f64) -> LookupTimes {
        LookupTimes { at: now, epoch: self.memory.epoch.load(Ordering::Acquire) }
    }

    /// Learns the users of tokens from visits: a remembered token is remembered for longer, and one
    /// that is gone or another user's is forgotten. `asked` is from before the visits were passed
    /// to the store.
    pub fn renew(&self, touched: &[VisitResult], asked: LookupTimes) {
        for VisitResult { token, user, held } in touched {
            let Some(found) = self.memory.memo.peek(token) else { continue };
            if !held || !found.user.is_same(user) {
                self.memory.memo.remove(token);
            } else if self.memory.epoch.load(Ordering::Acquire) == asked.epoch
                // A visit does not check the app's current attributes, or what the login is bound
                // to.
                && found.user.attributes().next().is_none()
                && !found.user.is_bound()
                && !self.unwritten().contains_key(token)
            {
                // Nothing is inserted: if a logout removes the entry right now it stays away, and
                // this renews an unreachable value.
                found.renew(asked.at);
            }
        }
    }

    /// Logs a user in: a new token, and the old one removed everywhere. In the store when it
    /// returns.
    ///
    /// # Errors
    /// When the store has not confirmed it. If it was away, nothing has changed for the visitor; if
    /// the connection was lost during the step, the result is unknown, and the visitor keeps the
    /// old cookies.
    pub async fn log_in<S: LogInStore>(
        &self,
        store: &S,
        PreviousIdentity { session: old, visitor }: PreviousIdentity,
        user: User,
        now: f64,
    ) -> Result<Token, LogInError> {
        let token = Token::mint().map_err(LogInError::Random)?;
        let Rules { most, expiry_action, .. } = self.rules;
        let rotation =
            Rotation { old, new: self.stored(&token), user, now, most, expiry_action, visitor };
        let RotationResult { gone, ended_carts } =
            store.rotate_token(&rotation).await.map_err(LogInError::Store)?;
        self.note(ended_carts);
        for token in rotation.old.iter().chain(&gone) {
            self.forget(token);
        }
        Ok(token)
    }

    /// A login to the app itself: maps its new token to a user, and removes the old one
    /// everywhere. In the store when it returns.
    ///
    /// # Errors
    /// When it is not in the store.
    pub async fn take_over<S: LogInStore>(
        &self,
        store: &S,
        PreviousIdentity { session: old, visitor }: PreviousIdentity,
        new: &StoredToken,
        user: &User,
        now: f64,
    ) -> Result<(), StoreError> {
        // The app decides itself which of its sessions it ends.
        let (new, user, expiry_action) = (new.clone(), user.clone(), self.rules.expiry_action);
        let rotation = Rotation { old, new, user, now, most: 0, expiry_action, visitor };
        self.note(store.rotate_token(&rotation).await?.ended_carts);
        rotation.old.iter().chain([&rotation.new]).for_each(|token| self.forget(token));
        Ok(())
    }

    /// Maps a token of the app's own to the user that the app has named. In the store when it
    /// returns.
    ///
    /// # Errors
    /// When it is not in the store.
    pub async fn adopt<S: LogInStore>(
        &self,
        store: &S,
        token: &StoredToken,
        user: &User,
        now: f64,
    ) -> Result<(), StoreError> {
        self.take_over(store, PreviousIdentity::default(), token, user, now).await
    }

    /// Whether a token was logged out here, and the store does not have it yet.
    #[must_use]
    pub fn is_ended_here(&self, token: &StoredToken) -> bool {
        self.unwritten().contains_key(token)
    }

    /// Whether a token was revoked here, and the store does not have it yet.
    #[must_use]
    pub fn is_being_revoked(&self, token: &StoredToken) -> bool {
        self.unwritten().get(token) == Some(&Ending::Revoked)
    }

    /// Logs a token out: here at once, in the store now or as soon as it is reachable.
    ///
    /// # Errors
    /// When too many logouts already wait for the store.
    pub async fn log_out<S: LogInStore + RevocationStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), TooManyLogOuts> {
        self.end_as(store, token, Ending::LoggedOut).await
    }

    /// The same, ended as `how` says.
    ///
    /// # Errors
    /// When too many logouts already wait for the store.
    pub async fn end_as<S: LogInStore + RevocationStore>(
        &self,
        store: &S,
        token: &StoredToken,
        how: Ending,
    ) -> Result<(), TooManyLogOuts> {
        {
            let mut unwritten = self.unwritten();
            if unwritten.len() >= LOG_OUTS_MAX {
                return Err(TooManyLogOuts);
            }
            unwritten.insert(token.clone(), how);
        }
        if !fault!("at-once") {
            self.forget(token);
        }
        let ending = self.end_in_store(store, token, how);
        if tokio::time::timeout(patience(LOG_OUT_TIMEOUT), ending).await.is_err() {
            tracing::debug!("a logout is queued: the store did not answer in time");
        }
        Ok(())
    }

    async fn end_in_store<S: LogInStore + RevocationStore>(
        &self,
        store: &S,
        token: &StoredToken,
        how: Ending,
    ) -> bool {
        let ending = async {
            match how {
                Ending::LoggedOut => store.revoke_token(token).await,
                Ending::Ended => self.end(store, token).await,
                Ending::Revoked => {
                    store.mark_revoked(token, unix_now()).await?;
                    store.revoke_token(token).await
                }
            }
        };
        let ended = ending.await;
        if let Err(error) = &ended {
            tracing::debug!(%error, "a logout waits for the store");
            if fault!("lost") {
                self.unwritten().remove(token);
            }
            return false;
        }
        if !fault!("at-once") {
            self.forget(token);
        }
        self.unwritten().remove(token);
        true
    }

    fn forget(&self, token: &StoredToken) {
        self.memory.epoch.fetch_add(1, Ordering::AcqRel);
        self.memory.memo.remove(token);
        self.memory.unknown.forget(token);
    }

    /// Logouts that wait for the store.
    #[must_use]
    pub fn log_outs_waiting(&self) -> usize {
        self.unwritten().len()
    }

    /// Retries the waiting logouts. Returns whether none is left.
    pub async fn flush_log_outs<S: LogInStore + RevocationStore>(&self, store: &S) -> bool {
        let waiting: Vec<_> =
            self.unwritten().iter().map(|(token, how)| (token.clone(), *how)).collect();
        // Side by side: one may wait for a shard that is away, and another not.
        let ending = waiting.iter().map(|(token, how)| self.end_in_store(store, token, *how));
        let ended: Vec<bool> =
            stream::iter(ending).buffer_unordered(LOG_OUTS_AT_ONCE).collect().await;
        ended.into_iter().all(|is_ended| is_ended)
    }
}

#[cfg(test)]
mod tests {
    use anteroom_store::AnyStore;
    use anteroom_store::scratch::with_store;

    use super::*;

    /// Sessions with one visitor, logged in and looked up at 1000.
    struct Fixture<'s> {
        sessions: Sessions,
        store: &'s AnyStore,
        token: StoredToken,
    }

    impl<'s> Fixture<'s> {
        async fn open(store: &'s AnyStore) -> Self {
            let sessions = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            let token = sessions
                .log_in(store, PreviousIdentity::default(), alice(), 1_000.0)
                .await
                .unwrap();
            let token = sessions.stored(&token);
            let fixture = Self { sessions, store, token };
            assert!(fixture.knows(1_000.0).await);
            fixture
        }

        async fn knows(&self, now: f64) -> bool {
            let found = self.sessions.check_token(self.store, &self.token, now).await.unwrap();
            found.inspect(|user| assert_eq!(*user, alice())).is_some()
        }

        async fn log_out(&self) {
            self.sessions.log_out(self.store, &self.token).await.unwrap();
        }

        /// As another instance does it.
        async fn revoke(&self) {
            self.store.revoke_token(&self.token).await.unwrap();
        }

        fn renew(&self, asked: LookupTimes, held: bool) {
            self.renew_for(alice(), asked, held);
        }

        fn renew_for(&self, user: User, asked: LookupTimes, held: bool) {
            let token = self.token.clone();
            self.sessions.renew(&[VisitResult { token, user, held }], asked);
        }

        fn remembers(&self, now: f64) -> bool {
            self.sessions.memory.memo.peek(&self.token).is_some_and(|found| found.holds(now))
        }
    }

    fn alice() -> User {
        User::new(b"alice").unwrap()
    }

    #[test]
    fn a_log_out_holds_at_once_though_the_token_was_remembered() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            let user = User::new(b"alice").unwrap();
            let token = sessions
                .log_in(&store, PreviousIdentity::default(), user.clone(), 1_000.0)
                .await
                .unwrap();
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

    #[test]
    fn a_peek_says_the_same_and_remembers_nothing() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            fixture.sessions.memory.memo.remove(&fixture.token);
            let peek =
                async |now| fixture.sessions.peek_token(&store, &fixture.token, now).await.unwrap();
            assert_eq!(peek(1_000.0).await, Some(alice()));
            assert!(!fixture.remembers(1_000.0));
            assert!(fixture.knows(1_000.0).await);
            fixture.revoke().await;
            assert_eq!(peek(1_000.9).await, Some(alice()), "as a request is answered");
            assert_eq!(peek(1_001.0).await, None);
            fixture.sessions.unwritten().insert(fixture.token.clone(), Ending::LoggedOut);
            fixture.sessions.forget(&fixture.token);
            assert_eq!(peek(1_000.5).await, None);
        });
    }

    #[test]
    fn a_token_without_a_user_is_remembered_for_a_moment() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            let token = sessions.stored(&Token::mint().unwrap());
            let check = async |now| sessions.check_token(&store, &token, now).await.unwrap();
            let unknown = |now| sessions.memory.unknown.has(&token, now);
            assert!(!unknown(1_000.0));
            assert_eq!(check(1_000.0).await, None);
            for (now, was_unknown) in
                [(1_000.0, true), (1_000.09, true), (1_000.1, false), (999.9, false)]
            {
                assert_eq!(unknown(now), was_unknown, "{now}");
            }
            sessions.may_log_in(&token);
            assert!(!unknown(1_000.0));
            assert_eq!(check(1_000.0).await, None);
            // As another proxy does it.
            let other = Sessions::new(TokenStorage::Sha256, Rules::default(), Arc::default());
            other.adopt(&store, &token, &alice(), 1_000.0).await.unwrap();
            assert!(unknown(1_000.05), "which this one is not told of");
            let of_part = sessions.check_token_for(&store, &token, 1_000.05, || true).await;
            assert_eq!(of_part.unwrap(), None);
            assert_eq!(check(1_000.05).await, Some(alice()), "a page is looked up");
            let of_part = sessions.check_token_for(&store, &token, 1_000.05, || true).await;
            assert_eq!(of_part.unwrap(), Some(alice()));
            let asked = sessions.asking(1_000.0);
            sessions.may_log_in(&token);
            sessions.note_unknown(&token, asked);
            assert!(!unknown(1_000.0), "the look-up had begun before");
        });
    }

    #[test]
    fn a_visit_renews_what_is_remembered_from_when_it_was_sent() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            let asked = fixture.sessions.asking(1_000.9);
            fixture.revoke().await;
            fixture.renew(asked, true);
            for (now, knows) in [(1_000.95, true), (1_001.85, true), (1_001.9, false)] {
                assert_eq!(fixture.knows(now).await, knows, "{now}");
            }
        });
    }

    #[test]
    fn a_visit_that_took_long_renews_for_what_is_left_and_takes_nothing_away() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            let long_ago = fixture.sessions.asking(999.0);
            fixture.renew(long_ago, true);
            assert!(fixture.remembers(1_000.9), "the look-up was later");
            let asked = fixture.sessions.asking(1_000.5);
            assert!(fixture.knows(1_003.0).await);
            fixture.renew(asked, true);
            assert!(fixture.remembers(1_003.9));
            assert!(!fixture.remembers(1_004.0));
        });
    }

    #[test]
    fn an_expired_session_is_remembered_again_without_a_look_up() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            assert!(!fixture.remembers(1_005.0));
            fixture.renew(fixture.sessions.asking(1_005.0), true);
            assert!(fixture.remembers(1_005.5));
        });
    }

    #[test]
    fn only_what_was_looked_up_is_renewed() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            fixture.sessions.memory.memo.remove(&fixture.token);
            fixture.renew(fixture.sessions.asking(1_000.0), true);
            assert!(fixture.sessions.memory.memo.is_empty());
        });
    }

    #[test]
    fn a_visit_reveals_that_a_session_is_gone_or_has_another_user() {
        with_store(async |store| {
            for (user, held) in [(alice(), false), (User::new(b"bob").unwrap(), true)] {
                let fixture = Fixture::open(&store).await;
                let asked = fixture.sessions.asking(1_000.1);
                fixture.revoke().await;
                assert!(fixture.knows(1_000.2).await, "remembered");
                fixture.renew_for(user, asked, held);
                assert!(!fixture.knows(1_000.2).await);
            }
        });
    }

    #[test]
    fn a_log_out_that_waits_for_the_store_is_not_undone() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            fixture.sessions.unwritten().insert(fixture.token.clone(), Ending::LoggedOut);
            // Between the two halves of a logout, and after them.
            fixture.renew(fixture.sessions.asking(1_002.0), true);
            assert!(!fixture.remembers(1_002.0));
            fixture.sessions.forget(&fixture.token);
            fixture.renew(fixture.sessions.asking(1_002.0), true);
            assert!(!fixture.knows(1_002.0).await);
        });
    }

    #[test]
    fn a_log_out_wins_in_any_order_of_visits_and_look_ups() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Act {
            Ask,
            Renew,
            LogOut,
            LookUp,
        }
        use Act::{Ask, LogOut, LookUp, Renew};
        let orders = |acts: [Act; 4]| {
            let places = (0..24).map(move |mut number| {
                let mut left = acts.to_vec();
                [4, 3, 2, 1].map(|count| {
                    let act = left.remove(number % count);
                    number /= count;
                    act
                })
            });
            places.filter(|order| {
                let place = |act| order.iter().position(|other| *other == act);
                place(Ask) < place(Renew)
            })
        };
        assert_eq!(orders([Ask, Renew, LogOut, LookUp]).count(), 12);
        with_store(async |store| {
            for order in orders([Ask, Renew, LogOut, LookUp]) {
                let fixture = Fixture::open(&store).await;
                let (mut asked, mut is_in) = (None, true);
                for act in order {
                    match act {
                        Ask => asked = Some(fixture.sessions.asking(1_000.5)),
                        Renew => fixture.renew(asked.unwrap(), true),
                        LogOut => {
                            fixture.log_out().await;
                            is_in = false;
                        }
                        LookUp => assert_eq!(fixture.knows(1_000.6).await, is_in, "{order:?}"),
                    }
                    assert!(is_in || !fixture.remembers(1_000.6), "{order:?}");
                }
                assert!(!fixture.knows(1_000.7).await, "{order:?}");
            }
        });
    }

    #[test]
    fn a_session_logged_out_during_its_renewal_stays_removed() {
        with_store(async |store| {
            let fixture = Fixture::open(&store).await;
            let (sessions, token) = (&fixture.sessions, &fixture.token);
            let is_done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let token = token.clone();
                    let touched = [VisitResult { token, user: alice(), held: true }];
                    while !is_done.load(Ordering::Relaxed) {
                        sessions.renew(&touched, sessions.asking(1_000.0));
                    }
                });
                let lost = (0..2_000).find(|_| {
                    let found = LogIn { user: alice(), ends: f64::INFINITY };
                    sessions
                        .memory
                        .memo
                        .insert(token.clone(), Arc::new(RememberedToken::new(found, 1_000.0)));
                    sessions.forget(token);
                    std::thread::yield_now();
                    sessions.memory.memo.peek(token).is_some()
                });
                is_done.store(true, Ordering::Relaxed);
                assert_eq!(lost, None);
            });
        });
    }
}
