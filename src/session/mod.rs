//! Sessions: who a token belongs to, and what a log-in and a log-out do.
//!
//! A token that was found is remembered for a second at most, from when the store was asked last: by a
//! look-up, or by a visit, which finds out the same. So a busy session is not looked up. A log-out holds
//! on this instance at once, whatever the store does.

pub mod cart;
pub mod clean;
pub mod control;
mod cookie;
pub mod expire;
mod expired_file;
mod rules;
mod turns;
mod verified;
pub mod visit;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use quick_cache::sync::Cache;

use crate::clock::unix_now;
use crate::ident::{StoredToken, Token, TokenStorage, User, VisitorToken};
use crate::store::{
    BarStore, LogIn, LogInStore, Parted, Rotated, Rotation, StoreError, Terms, TokenStore, Touched,
};

pub use cookie::{SameSite, Secure, SessionCookie};
pub use rules::Rules;
pub use turns::{Asks, Turn};
pub use verified::{Answer, Join, Lead, Remembered, Told, Verified};

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
    rules: ArcSwap<Rules>,
    memo: Cache<StoredToken, Arc<Found>>,
    /// Goes up with every log-in and log-out: a look-up that began before is not remembered.
    epoch: AtomicU64,
    /// Tokens logged out here of which the store does not know yet.
    denied: Mutex<HashMap<StoredToken, Ending>>,
    /// What became of carts since it was asked last.
    parted: Mutex<Parted>,
}

/// How a session is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its token is nobody's, as its visitor wished.
    Removed,
    /// Its token is nobody's, and nobody asked its visitor: his cart is handed on.
    Dismissed,
    /// Its token is an app's own, which may take it for somebody's still: it is barred.
    Barred,
}

/// What is remembered of a token.
#[derive(Debug)]
struct Found {
    user: User,
    /// The bits of the Unix time in seconds: of times after 1970 they are in the same order.
    until: AtomicU64,
    /// The Unix time at which the session is over, however often it is seen.
    ends: f64,
}

impl Found {
    fn new(LogIn { user, ends }: LogIn, at: f64) -> Self {
        Self { user, until: AtomicU64::new((at + MEMO_TTL).to_bits()), ends }
    }

    /// Not where the clock was set back either.
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
pub struct Asked {
    /// Unix time in seconds.
    at: f64,
    epoch: u64,
}

/// What a visitor had before he logged in.
#[derive(Clone, Debug, Default)]
pub struct Before {
    /// The session whose token his cookie carried: gone everywhere afterwards.
    pub session: Option<StoredToken>,
    /// What he had without a login: it goes to the new session.
    pub visitor: Option<VisitorToken>,
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
            rules: ArcSwap::default(),
            memo: Cache::new(MEMO_MAX),
            epoch: AtomicU64::new(0),
            denied: Mutex::default(),
            parted: Mutex::default(),
        }
    }

    fn denied(&self) -> MutexGuard<'_, HashMap<StoredToken, Ending>> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How tokens stand in the store.
    #[must_use]
    pub fn storage(&self) -> TokenStorage {
        self.storage
    }

    /// The token as it stands in the store.
    #[must_use]
    pub fn stored(&self, token: &Token) -> StoredToken {
        token.stored(self.storage)
    }

    /// The user of a token, if it is logged in and not over; `now` is Unix time in seconds.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn check_token<S: TokenStore>(
        &self,
        store: &S,
        token: &StoredToken,
        now: f64,
    ) -> Result<Option<User>, StoreError> {
        if let Some(answer) = self.remembered(self.memo.get(token), token, now) {
            return Ok(answer);
        }
        let Asked { at, epoch } = self.asking(now);
        let found = store.live_token(token, &self.terms(now)).await?;
        let Some(found) = found else { return Ok(None) };
        if self.denied().contains_key(token) {
            return Ok(None);
        }
        let user = found.user.clone();
        if self.epoch.load(Ordering::Acquire) == epoch {
            self.memo.insert(token.clone(), Arc::new(Found::new(found, at)));
            // A log-out between the comparison and the insertion has looked for the memo too soon.
            if self.epoch.load(Ordering::Acquire) != epoch {
                self.memo.remove(token);
            }
        }
        Ok(Some(user))
    }

    /// The same, and nothing is remembered of it.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn peek_token<S: TokenStore>(
        &self,
        store: &S,
        token: &StoredToken,
        now: f64,
    ) -> Result<Option<User>, StoreError> {
        match self.remembered(self.memo.peek(token), token, now) {
            Some(answer) => Ok(answer),
            None => {
                let terms = Terms { notes: false, ..self.terms(now) };
                let found = store.live_token(token, &terms).await?;
                Ok(found.map(|found| found.user).filter(|_| !self.denied().contains_key(token)))
            }
        }
    }

    /// What is known of a token without the store: whose it is, or that it is nobody's any more.
    fn remembered(
        &self,
        found: Option<Arc<Found>>,
        token: &StoredToken,
        now: f64,
    ) -> Option<Option<User>> {
        match found.filter(|found| found.holds(now)) {
            Some(found) => Some(Some(found.user.clone())),
            None => self.denied().contains_key(token).then_some(None),
        }
    }

    /// To be called right before the store is asked about tokens; `now` is Unix time in seconds.
    #[must_use]
    pub fn asking(&self, now: f64) -> Asked {
        Asked { at: now, epoch: self.epoch.load(Ordering::Acquire) }
    }

    /// Learns from visits whose tokens these are: those that are remembered are so for longer, those
    /// that are nobody's or somebody else's are not any more. `asked` is from before they were
    /// handed to the store.
    pub fn renew(&self, touched: &[Touched], asked: Asked) {
        for Touched { token, user, held } in touched {
            let Some(found) = self.memo.peek(token) else { continue };
            if !held || !found.user.is_same(user) {
                self.memo.remove(token);
            } else if self.epoch.load(Ordering::Acquire) == asked.epoch
                // What the app says of him now, or what his log-in is bound to, a visit does not find out.
                && found.user.attributes().next().is_none()
                && !found.user.is_bound()
                && !self.denied().contains_key(token)
            {
                // Nothing is inserted: what a log-out removes right now stays away, and this renews
                // what nobody will find.
                found.renew(asked.at);
            }
        }
    }

    /// Logs a user in: a new token, and the old one gone everywhere. In the store when it returns.
    ///
    /// # Errors
    /// When the store does not say that it has it. Where it was away nothing has changed for the visitor; where it
    /// was lost amid the step nobody knows, and the visitor has his old cookies.
    pub async fn log_in<S: LogInStore>(
        &self,
        store: &S,
        Before { session: old, visitor }: Before,
        user: User,
        now: f64,
    ) -> Result<Token, LogInError> {
        let token = Token::mint().map_err(LogInError::Random)?;
        let Rules { most, farewell, .. } = **self.rules.load();
        let rotation =
            Rotation { old, new: self.stored(&token), user, now, most, farewell, visitor };
        let Rotated { gone, parted } =
            store.rotate_token(&rotation).await.map_err(LogInError::Store)?;
        self.note(parted);
        for token in rotation.old.iter().chain(&gone) {
            self.forget(token);
        }
        Ok(token)
    }

    /// A log-in to the app itself: its new token is taken for a user, and the old one is gone everywhere. In
    /// the store when it returns.
    ///
    /// # Errors
    /// When it is not in the store.
    pub async fn take_over<S: LogInStore>(
        &self,
        store: &S,
        Before { session: old, visitor }: Before,
        new: &StoredToken,
        user: &User,
        now: f64,
    ) -> Result<(), StoreError> {
        // Which of its sessions an app ends is its own business.
        let (new, user, farewell) = (new.clone(), user.clone(), self.rules.load().farewell);
        let rotation = Rotation { old, new, user, now, most: 0, farewell, visitor };
        self.note(store.rotate_token(&rotation).await?.parted);
        rotation.old.iter().chain([&rotation.new]).for_each(|token| self.forget(token));
        Ok(())
    }

    /// Takes a token of the app's own for a user, whom the app has named. In the store when it returns.
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
        self.take_over(store, Before::default(), token, user, now).await
    }

    /// Whether a token was logged out here, which the store does not know yet.
    #[must_use]
    pub fn is_denied(&self, token: &StoredToken) -> bool {
        self.denied().contains_key(token)
    }

    /// Logs a token out: here at once, in the store now or as soon as it can be reached.
    ///
    /// # Errors
    /// When too many log-outs wait for the store already.
    pub async fn log_out<S: LogInStore + BarStore>(
        &self,
        store: &S,
        token: &StoredToken,
    ) -> Result<(), TooManyLogOuts> {
        self.put_out(store, token, Ending::Removed).await
    }

    /// The same, and `how`.
    ///
    /// # Errors
    /// When too many log-outs wait for the store already.
    pub async fn put_out<S: LogInStore + BarStore>(
        &self,
        store: &S,
        token: &StoredToken,
        how: Ending,
    ) -> Result<(), TooManyLogOuts> {
        {
            let mut denied = self.denied();
            if denied.len() >= LOG_OUTS_MAX {
                return Err(TooManyLogOuts);
            }
            denied.insert(token.clone(), how);
        }
        self.forget(token);
        if tokio::time::timeout(LOG_OUT_PATIENCE, self.revoke(store, token, how)).await.is_err() {
            tracing::debug!("a log-out waits for the store, and its visitor does not");
        }
        Ok(())
    }

    async fn revoke<S: LogInStore + BarStore>(
        &self,
        store: &S,
        token: &StoredToken,
        how: Ending,
    ) -> bool {
        let revoking = async {
            match how {
                Ending::Removed => store.revoke_token(token).await,
                Ending::Dismissed => self.dismiss(store, token).await,
                Ending::Barred => {
                    store.bar(token, unix_now()).await?;
                    store.revoke_token(token).await
                }
            }
        };
        let revoked = revoking.await;
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
    pub async fn flush_log_outs<S: LogInStore + BarStore>(&self, store: &S) -> bool {
        let waiting: Vec<_> =
            self.denied().iter().map(|(token, how)| (token.clone(), *how)).collect();
        for (token, how) in waiting {
            if !self.revoke(store, &token, how).await {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::AnyStore;
    use crate::store::scratch::with_store;

    /// Sessions with one visitor, who logged in and was looked up at 1000.
    struct Room<'s> {
        sessions: Sessions,
        store: &'s AnyStore,
        token: StoredToken,
    }

    impl<'s> Room<'s> {
        async fn open(store: &'s AnyStore) -> Self {
            let sessions = Sessions::new(TokenStorage::Sha256);
            let token = sessions.log_in(store, Before::default(), alice(), 1_000.0).await.unwrap();
            let token = sessions.stored(&token);
            let room = Self { sessions, store, token };
            assert!(room.knows(1_000.0).await);
            room
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

        fn renew(&self, asked: Asked, held: bool) {
            self.renew_for(alice(), asked, held);
        }

        fn renew_for(&self, user: User, asked: Asked, held: bool) {
            let token = self.token.clone();
            self.sessions.renew(&[Touched { token, user, held }], asked);
        }

        fn remembers(&self, now: f64) -> bool {
            self.sessions.memo.peek(&self.token).is_some_and(|found| found.holds(now))
        }
    }

    fn alice() -> User {
        User::new(b"alice").unwrap()
    }

    #[test]
    fn a_log_out_holds_at_once_though_the_token_was_remembered() {
        with_store(async |store| {
            let sessions = Sessions::new(TokenStorage::Sha256);
            let user = User::new(b"alice").unwrap();
            let token =
                sessions.log_in(&store, Before::default(), user.clone(), 1_000.0).await.unwrap();
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
            let room = Room::open(&store).await;
            room.sessions.memo.remove(&room.token);
            let peek =
                async |now| room.sessions.peek_token(&store, &room.token, now).await.unwrap();
            assert_eq!(peek(1_000.0).await, Some(alice()));
            assert!(!room.remembers(1_000.0));
            assert!(room.knows(1_000.0).await);
            room.revoke().await;
            assert_eq!(peek(1_000.9).await, Some(alice()), "as who asks is answered");
            assert_eq!(peek(1_001.0).await, None);
            room.sessions.denied().insert(room.token.clone(), Ending::Removed);
            room.sessions.forget(&room.token);
            assert_eq!(peek(1_000.5).await, None);
        });
    }

    #[test]
    fn a_visit_renews_what_is_remembered_from_when_it_was_sent() {
        with_store(async |store| {
            let room = Room::open(&store).await;
            let asked = room.sessions.asking(1_000.9);
            room.revoke().await;
            room.renew(asked, true);
            for (now, knows) in [(1_000.95, true), (1_001.85, true), (1_001.9, false)] {
                assert_eq!(room.knows(now).await, knows, "{now}");
            }
        });
    }

    #[test]
    fn a_visit_that_took_long_renews_for_what_is_left_and_takes_nothing_away() {
        with_store(async |store| {
            let room = Room::open(&store).await;
            let long_ago = room.sessions.asking(999.0);
            room.renew(long_ago, true);
            assert!(room.remembers(1_000.9), "the look-up was later");
            let asked = room.sessions.asking(1_000.5);
            assert!(room.knows(1_003.0).await);
            room.renew(asked, true);
            assert!(room.remembers(1_003.9));
            assert!(!room.remembers(1_004.0));
        });
    }

    #[test]
    fn what_has_run_out_is_remembered_again_without_a_look_up() {
        with_store(async |store| {
            let room = Room::open(&store).await;
            assert!(!room.remembers(1_005.0));
            room.renew(room.sessions.asking(1_005.0), true);
            assert!(room.remembers(1_005.5));
        });
    }

    #[test]
    fn only_what_was_looked_up_is_renewed() {
        with_store(async |store| {
            let room = Room::open(&store).await;
            room.sessions.memo.remove(&room.token);
            room.renew(room.sessions.asking(1_000.0), true);
            assert!(room.sessions.memo.is_empty());
        });
    }

    #[test]
    fn a_visit_finds_out_that_somebody_is_gone_or_somebody_else() {
        with_store(async |store| {
            for (user, held) in [(alice(), false), (User::new(b"bob").unwrap(), true)] {
                let room = Room::open(&store).await;
                let asked = room.sessions.asking(1_000.1);
                room.revoke().await;
                assert!(room.knows(1_000.2).await, "remembered");
                room.renew_for(user, asked, held);
                assert!(!room.knows(1_000.2).await);
            }
        });
    }

    #[test]
    fn a_log_out_that_waits_for_the_store_is_not_undone() {
        with_store(async |store| {
            let room = Room::open(&store).await;
            room.sessions.denied().insert(room.token.clone(), Ending::Removed);
            // Between the two halves of a log-out, and behind them.
            room.renew(room.sessions.asking(1_002.0), true);
            assert!(!room.remembers(1_002.0));
            room.sessions.forget(&room.token);
            room.renew(room.sessions.asking(1_002.0), true);
            assert!(!room.knows(1_002.0).await);
        });
    }

    #[test]
    fn whatever_a_visit_and_look_ups_come_between_a_log_out_wins() {
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
                let room = Room::open(&store).await;
                let (mut asked, mut is_in) = (None, true);
                for act in order {
                    match act {
                        Ask => asked = Some(room.sessions.asking(1_000.5)),
                        Renew => room.renew(asked.unwrap(), true),
                        LogOut => {
                            room.log_out().await;
                            is_in = false;
                        }
                        LookUp => assert_eq!(room.knows(1_000.6).await, is_in, "{order:?}"),
                    }
                    assert!(is_in || !room.remembers(1_000.6), "{order:?}");
                }
                assert!(!room.knows(1_000.7).await, "{order:?}");
            }
        });
    }

    #[test]
    fn what_a_log_out_removes_while_it_is_renewed_stays_away() {
        with_store(async |store| {
            let room = Room::open(&store).await;
            let (sessions, token) = (&room.sessions, &room.token);
            let is_done = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let token = token.clone();
                    let touched = [Touched { token, user: alice(), held: true }];
                    while !is_done.load(Ordering::Relaxed) {
                        sessions.renew(&touched, sessions.asking(1_000.0));
                    }
                });
                let lost = (0..2_000).find(|_| {
                    let found = LogIn { user: alice(), ends: f64::INFINITY };
                    sessions.memo.insert(token.clone(), Arc::new(Found::new(found, 1_000.0)));
                    sessions.forget(token);
                    std::thread::yield_now();
                    sessions.memo.peek(token).is_some()
                });
                is_done.store(true, Ordering::Relaxed);
                assert_eq!(lost, None);
            });
        });
    }
}
