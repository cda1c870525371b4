//! What an app says of visitors' cookies, asked once however many wait, and remembered.
//!
//! The store remembers it for all processes, this one for a second at most. Asking is done elsewhere.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quick_cache::sync::Cache;
use tokio::sync::watch;

use super::turns::{Asks, Turn, Turns};
use crate::ident::{CookieHash, User};
use crate::store::{AnswerStore, StoreError};

/// Answers remembered by this process, at most; the least used are forgotten first.
const MEMO_MAX: usize = 100_000;
/// For how long, in seconds.
const MEMO_TTL: f64 = 1.0;
/// Visitors of whom the app is asked at a time, or who wait for that; others are unknown for now.
const ASKING_MAX: usize = 50_000;
/// What was voided lately, as far as that matters to questions under way.
const VOIDED_MAX: usize = 100_000;
/// For how long nobody asks anew what the app has not said, in seconds.
const UNCLEAR_TTL: f64 = 2.0;
/// How long a response waits for the store to forget an answer.
const PATIENCE: Duration = Duration::from_millis(250);
/// After so many questions it is looked at whether the answers are any use.
const WATCHED: u64 = 1_000;
/// They are, where of so many visitors an answer was used: no more are remembered for that.
const ENOUGH: usize = 500;

/// Who a visitor is, by the app's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This user.
    Known(User),
    /// Nobody, by a proof of its own.
    Nobody,
    /// Nobody, whatever it says: he has logged out.
    Barred,
}

/// An answer that is remembered.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// What the app said.
    pub answer: Answer,
    /// When it was asked, in Unix time.
    pub asked: f64,
}

impl Remembered {
    /// As the store keeps it: a letter, whole seconds, and behind a line's end the user.
    fn write(&self) -> Bytes {
        let seconds = self.asked as u64;
        match &self.answer {
            Answer::Known(user) => {
                let mut bytes = format!("k{seconds}\n").into_bytes();
                bytes.extend_from_slice(user.as_stored());
                bytes.into()
            }
            Answer::Nobody => format!("n{seconds}").into(),
            Answer::Barred => format!("b{seconds}").into(),
        }
    }

    /// `None`: it is a mark that something was voided, or another program's.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (seconds, user) = match rest.iter().position(|&byte| byte == b'\n') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let seconds: u64 = std::str::from_utf8(seconds).ok()?.parse().ok()?;
        let answer = match (kind, user) {
            (b'k', Some(user)) => Answer::Known(User::from_store(user)?),
            (b'n', None) => Answer::Nobody,
            (b'b', None) => Answer::Barred,
            _ => return None,
        };
        Some(Self { answer, asked: seconds as f64 })
    }
}

/// What those who wait for an answer are told; `None`: the app could not be asked, or has said neither.
pub type Told = Option<Answer>;

/// What was said of visitors, shared by all threads.
#[derive(Debug)]
pub struct Verified {
    memo: Cache<CookieHash, Arc<(Remembered, f64)>>,
    /// Goes up with everything that is voided: what was recalled before is not remembered here.
    epoch: AtomicU64,
    /// When something was voided last, by the epoch: what was asked before is remembered nowhere.
    voided: Cache<CookieHash, u64>,
    /// What was voided here and not in the store, each with the Unix time.
    unheard: Cache<CookieHash, f64>,
    /// Of whom the app has not said who he is, each with the Unix time.
    unclear: Cache<CookieHash, f64>,
    asking: Mutex<HashMap<CookieHash, watch::Receiver<Option<Told>>>>,
    turns: Turns,
    asked: AtomicU64,
    /// Those of whom an answer was used, as many as it takes, until it is looked at.
    again: Mutex<HashSet<CookieHash>>,
}

impl Default for Verified {
    fn default() -> Self {
        Self {
            memo: Cache::new(MEMO_MAX),
            epoch: AtomicU64::new(0),
            voided: Cache::new(VOIDED_MAX),
            unheard: Cache::new(VOIDED_MAX),
            unclear: Cache::new(VOIDED_MAX),
            asking: Mutex::default(),
            turns: Turns::default(),
            asked: AtomicU64::new(0),
            again: Mutex::default(),
        }
    }
}

/// Whether the app is to be asked, or somebody asks it already.
#[derive(Debug)]
pub enum Join {
    /// It is to be asked, and they are told.
    Lead(Lead, watch::Receiver<Option<Told>>),
    /// Somebody asks.
    Wait(watch::Receiver<Option<Told>>),
    /// Of too many visitors it is asked already.
    Full,
}

/// The one question about a visitor. Dropped without an answer it tells those who wait that there is none.
#[derive(Debug)]
pub struct Lead {
    verified: Arc<Verified>,
    cookies: CookieHash,
    tell: watch::Sender<Option<Told>>,
    /// What had been voided when it was begun.
    voided: Option<u64>,
}

impl Drop for Lead {
    fn drop(&mut self) {
        let mut asking = self.verified.asking();
        // What was voided meanwhile is asked anew by another, whose place this is then.
        if asking.get(&self.cookies).is_some_and(|told| told.same_channel(&self.tell.subscribe())) {
            asking.remove(&self.cookies);
        }
        drop(asking);
        self.tell.send_if_modified(|told| {
            let is_silent = told.is_none();
            *told = Some(told.take().flatten());
            is_silent
        });
    }
}

impl Lead {
    /// Waits for a turn with the app.
    pub async fn turn(&self, asks: Asks) -> Turn<'_> {
        self.verified.turns.take(asks).await
    }

    /// Whether what is being asked was voided meanwhile.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.verified.voided.peek(&self.cookies) != self.voided
    }

    /// What the store remembers before the app is asked: the answer is remembered in its place only.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn before<S: AnswerStore>(&self, store: &S) -> Result<Option<Bytes>, StoreError> {
        store.recall(&self.cookies).await
    }

    /// Remembers the answer for `ttl`, unless it was voided meanwhile. Returns whether it does.
    ///
    /// # Errors
    /// When it cannot be told whether it does.
    pub async fn remember<S: AnswerStore>(
        &self,
        store: &S,
        before: Option<&Bytes>,
        remembered: Remembered,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let Self { verified, cookies, .. } = self;
        let kept = store.remember(cookies, before, remembered.write(), ttl).await?;
        if kept && !self.is_void() {
            verified.unheard.remove(cookies);
            let until = remembered.asked + MEMO_TTL;
            verified.memo.insert(*cookies, Arc::new((remembered, until)));
            if self.is_void() {
                verified.memo.remove(cookies);
            }
        }
        Ok(kept && !self.is_void())
    }

    /// The app has not said who the visitor is, at this Unix time: for a moment nobody asks again, unless it was
    /// voided meanwhile, and there is something new to be said.
    pub fn is_unclear(&self, now: f64) {
        self.verified.unclear.insert(self.cookies, now);
        if self.is_void() {
            self.verified.unclear.remove(&self.cookies);
        }
    }

    /// Tells those who wait.
    pub fn tell(self, told: Told) {
        self.tell.send_replace(Some(told));
    }
}

impl Verified {
    fn asking(&self) -> MutexGuard<'_, HashMap<CookieHash, watch::Receiver<Option<Told>>>> {
        // No code that can panic runs under this lock.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of a visitor; `now` is Unix time in seconds.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn recall<S: AnswerStore>(
        &self,
        store: &S,
        cookies: &CookieHash,
        now: f64,
    ) -> Result<Option<Remembered>, StoreError> {
        if let Some(memo) = self.memo.get(cookies)
            && now < memo.1
            && now >= memo.1 - MEMO_TTL - 1.0
        {
            return Ok(Some(memo.0.clone()));
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let answer = store.recall(cookies).await?;
        let Some(remembered) = answer.and_then(|answer| Remembered::read(&answer)) else {
            return Ok(None);
        };
        // Whole seconds are remembered.
        if self.unheard.get(cookies).is_some_and(|voided| remembered.asked <= voided) {
            return Ok(None);
        }
        if self.epoch.load(Ordering::Acquire) == epoch {
            self.memo.insert(*cookies, Arc::new((remembered.clone(), now + MEMO_TTL)));
            if self.epoch.load(Ordering::Acquire) != epoch {
                self.memo.remove(cookies);
            }
        }
        Ok(Some(remembered))
    }

    /// Forgets what this process remembers of all visitors: the store is asked again. For sessions that end
    /// without their cookies, by which alone an answer is found.
    pub fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.memo.clear();
    }

    /// Whether a visitor is nobody by what the store remembers now. Where it does not say, he may be somebody.
    pub async fn is_nobody<S: AnswerStore>(&self, store: &S, cookies: &CookieHash) -> bool {
        let Ok(Some(answer)) = store.recall(cookies).await else { return false };
        Remembered::read(&answer).is_some_and(|it| !matches!(it.answer, Answer::Known(_)))
    }

    /// Whether the app has just not said who a visitor is.
    #[must_use]
    pub fn was_unclear(&self, cookies: &CookieHash, now: f64) -> bool {
        self.unclear.get(cookies).is_some_and(|at| now >= at && now < at + UNCLEAR_TTL)
    }

    fn again(&self) -> MutexGuard<'_, HashSet<CookieHash>> {
        // No code that can panic runs under this lock.
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a visitor of whom a request was answered by what is remembered: once, however busy he is.
    pub fn count_use(&self, cookies: &CookieHash) {
        if self.asked.load(Ordering::Relaxed) >= WATCHED {
            return;
        }
        let mut again = self.again();
        if again.len() < ENOUGH {
            again.insert(*cookies);
        }
    }

    /// Counts a question about a visitor of whom nothing is remembered. Returns how many there were, once:
    /// where most visitors did not come again.
    #[must_use]
    pub fn count_question(&self) -> Option<u64> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if asked != WATCHED {
            return None;
        }
        let again = std::mem::take(&mut *self.again());
        (again.len() < ENOUGH).then_some(asked)
    }

    /// Joins those who wait for the app's answer about a visitor, or is the one to ask.
    pub fn join(self: &Arc<Self>, cookies: CookieHash) -> Join {
        let mut asking = self.asking();
        if let Some(told) = asking.get(&cookies) {
            return Join::Wait(told.clone());
        }
        if asking.len() >= ASKING_MAX {
            return Join::Full;
        }
        let (tell, told) = watch::channel(None);
        asking.insert(cookies, told.clone());
        let voided = self.voided.peek(&cookies);
        drop(asking);
        Join::Lead(Lead { verified: Arc::clone(self), cookies, tell, voided }, told)
    }

    /// Forgets what was said of visitors: here at once, in the store before this returns, or as soon as
    /// it is asked again. What is being asked about them counts no more. `ttl`: how long answers are
    /// remembered.
    pub async fn void<S: AnswerStore>(
        &self,
        store: &S,
        cookies: &[CookieHash],
        ttl: Duration,
        now: f64,
    ) {
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        for one in cookies {
            self.voided.insert(*one, epoch);
            self.asking().remove(one);
            self.memo.remove(one);
            self.unclear.remove(one);
        }
        let mark = Bytes::from(format!("v{:032x}", fastrand::u128(..)));
        let voiding = store.void(cookies, mark, ttl);
        let is_done = matches!(tokio::time::timeout(PATIENCE, voiding).await, Ok(Ok(())));
        for one in cookies {
            if is_done {
                self.memo.remove(one);
            } else {
                self.unheard.insert(*one, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::AnyStore;
    use crate::store::scratch::with_store;

    const TTL: Duration = Duration::from_secs(60);

    fn cookies(number: u8) -> CookieHash {
        CookieHash([number; 32])
    }

    fn alice() -> Answer {
        Answer::Known(User::new(b"alice").unwrap())
    }

    fn lead(verified: &Arc<Verified>, number: u8) -> Lead {
        match verified.join(cookies(number)) {
            Join::Lead(lead, _) => lead,
            other => panic!("nobody asks yet: {other:?}"),
        }
    }

    async fn remember(
        verified: &Arc<Verified>,
        store: &AnyStore,
        answer: Answer,
        asked: f64,
    ) -> bool {
        let lead = lead(verified, 1);
        let before = lead.before(store).await.unwrap();
        let remembered = Remembered { answer, asked };
        lead.remember(store, before.as_ref(), remembered, TTL).await.unwrap()
    }

    async fn recall(verified: &Verified, store: &AnyStore, now: f64) -> Option<Answer> {
        let recalled = verified.recall(store, &cookies(1), now).await.unwrap();
        recalled.map(|remembered| remembered.answer)
    }

    #[test]
    fn what_is_remembered_comes_back_from_the_store() {
        let with = User::new(b"al\nice").unwrap();
        let with = with.with_attributes(&[("group".into(), "trade".into())]).unwrap();
        for answer in [alice(), Answer::Known(with), Answer::Nobody, Answer::Barred] {
            let remembered = Remembered { answer, asked: 1_000.0 };
            assert_eq!(Remembered::read(&remembered.write()), Some(remembered));
        }
        for junk in ["", "v0123", "k12", "n12\nalice", "nx", "k1\n"] {
            assert_eq!(Remembered::read(junk.as_bytes()), None, "{junk}");
        }
    }

    #[test]
    fn an_answer_is_remembered_until_it_is_voided() {
        with_store(async |store| {
            let verified = Arc::<Verified>::default();
            assert_eq!(recall(&verified, &store, 1_000.0).await, None);
            assert!(remember(&verified, &store, alice(), 1_000.0).await);
            for now in [1_000.5, 1_001.5] {
                assert_eq!(recall(&verified, &store, now).await, Some(alice()), "{now}");
            }
            verified.void(&store, &[cookies(1)], TTL, 1_001.6).await;
            assert_eq!(recall(&verified, &store, 1_001.6).await, None);
            assert!(remember(&verified, &store, Answer::Nobody, 1_002.0).await);
            assert_eq!(recall(&verified, &store, 1_002.0).await, Some(Answer::Nobody));
        });
    }

    #[test]
    fn another_process_learns_within_a_second_that_an_answer_was_voided() {
        with_store(async |store| {
            let (one, other) = (Arc::<Verified>::default(), Arc::<Verified>::default());
            assert!(remember(&one, &store, Answer::Nobody, 1_000.0).await);
            assert_eq!(recall(&other, &store, 1_000.0).await, Some(Answer::Nobody));
            one.void(&store, &[cookies(1)], TTL, 1_000.1).await;
            assert_eq!(recall(&other, &store, 1_000.9).await, Some(Answer::Nobody));
            assert_eq!(recall(&other, &store, 1_001.0).await, None);
        });
    }

    #[test]
    fn what_was_voided_while_it_was_asked_is_not_remembered() {
        with_store(async |store| {
            let (one, other) = (Arc::<Verified>::default(), Arc::<Verified>::default());
            for voids in [&one, &other] {
                let lead = lead(&one, 1);
                let before = lead.before(&store).await.unwrap();
                voids.void(&store, &[cookies(1)], TTL, 1_000.0).await;
                let nobody = Remembered { answer: Answer::Nobody, asked: 1_000.0 };
                assert!(!lead.remember(&store, before.as_ref(), nobody, TTL).await.unwrap());
                drop(lead);
                assert_eq!(recall(&one, &store, 1_000.0).await, None);
            }
        });
    }

    #[test]
    fn who_comes_behind_a_void_asks_anew() {
        with_store(async |store| {
            let verified = Arc::<Verified>::default();
            let first = lead(&verified, 1);
            let Join::Wait(mut waits) = verified.join(cookies(1)) else { panic!("one asks") };
            verified.void(&store, &[cookies(1)], TTL, 1_000.0).await;
            let second = lead(&verified, 1);
            drop(first);
            assert_eq!(*waits.wait_for(Option::is_some).await.unwrap(), Some(None));
            let Join::Wait(mut waits) = verified.join(cookies(1)) else { panic!("one asks") };
            second.tell(Some(alice()));
            assert_eq!(*waits.wait_for(Option::is_some).await.unwrap(), Some(Some(alice())));
            assert!(verified.asking().is_empty());
        });
    }

    #[test]
    fn who_was_voided_while_he_was_asked_about_is_asked_about_at_once() {
        with_store(async |store| {
            let verified = Arc::<Verified>::default();
            let outdated = lead(&verified, 1);
            verified.void(&store, &[cookies(1)], TTL, 1_000.0).await;
            outdated.is_unclear(1_000.1);
            assert!(!verified.was_unclear(&cookies(1), 1_000.2));
            lead(&verified, 1).is_unclear(1_000.3);
            assert!(verified.was_unclear(&cookies(1), 1_000.4));
        });
    }

    #[test]
    fn most_answers_that_are_used_by_nobody_are_told_of_once() {
        let told = |visitors: u64, uses: u64| {
            let verified = Arc::<Verified>::default();
            for visitor in 0..visitors {
                let mut hash = [0; 32];
                hash[..8].copy_from_slice(&visitor.to_be_bytes());
                (0..uses).for_each(|_| verified.count_use(&CookieHash(hash)));
            }
            let told = (0..3_000).filter_map(|_| verified.count_question()).collect::<Vec<_>>();
            assert!(verified.again().is_empty());
            told
        };
        assert_eq!(told(10, 1), [1_000]);
        assert_eq!(told(10, 2_000), [1_000], "a few busy ones hide nothing");
        assert_eq!(told(499, 3), [1_000]);
        assert_eq!(told(500, 1), [0; 0]);
        assert_eq!(told(2_000, 1), [0; 0]);
    }
}
