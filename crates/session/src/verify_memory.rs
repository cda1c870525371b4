//! The app's answers about visitors' cookies: requested once for all waiting requests, and
//! remembered.
//!
//! The store keeps an answer for all processes, this process for a second at most. The request to
//! the app is sent elsewhere.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anteroom_fault::{fault, patience};
use anteroom_http::ident::{CookieHash, User};
use anteroom_store::{AnswerStore, StoreError};
use bytes::Bytes;
use quick_cache::sync::Cache;
use tokio::sync::watch;

use super::verify_queue::{VerifyPermit, VerifyQueue, VerifyReason};

/// The most answers in this process; the least used are evicted first.
const MEMO_MAX: usize = 100_000;
/// How long, in seconds.
const MEMO_TTL: f64 = 1.0;
/// The most visitors whose verification runs or waits at a time; further ones are unknown for now.
const ASKING_MAX: usize = 50_000;
/// Recently voided answers, as far as verifications under way need them.
const VOIDED_MAX: usize = 100_000;
/// How long the app is not asked again after an unclear answer, in seconds.
const UNCLEAR_TTL: f64 = 2.0;
/// How long a response waits for the store to void an answer.
const TIMEOUT: Duration = Duration::from_millis(250);
/// After this many questions the use of the answers is evaluated.
const WATCHED: u64 = 1_000;
/// They are useful if an answer was used for this many visitors: no more are recorded.
const ENOUGH: usize = 500;

/// The identity of a visitor, as the app says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyAnswer {
    /// This user.
    Known(User),
    /// No user: the answer has the app's sign for a logged-out visitor.
    Anonymous,
    /// Logged out here: without a user, whatever the app says.
    Revoked,
}

/// A stored answer.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAnswer {
    /// The app's answer.
    pub answer: VerifyAnswer,
    /// When the app was asked, in Unix time.
    pub asked_at: f64,
}

impl StoredAnswer {
    /// The stored form: a letter, whole seconds, and after a newline the user.
    fn write(&self) -> Bytes {
        let seconds = self.asked_at as u64;
        match &self.answer {
            VerifyAnswer::Known(user) => {
                let mut bytes = format!("k{seconds}\n").into_bytes();
                bytes.extend_from_slice(user.as_stored());
                bytes.into()
            }
            VerifyAnswer::Anonymous => format!("n{seconds}").into(),
            VerifyAnswer::Revoked => format!("b{seconds}").into(),
        }
    }

    /// `None`: a void mark, or another program's value.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (seconds, user) = match rest.iter().position(|&byte| byte == b'\n') {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        };
        let seconds: u64 = std::str::from_utf8(seconds).ok()?.parse().ok()?;
        let answer = match (kind, user) {
            (b'k', Some(user)) => VerifyAnswer::Known(User::from_store(user)?),
            (b'n', None) => VerifyAnswer::Anonymous,
            (b'b', None) => VerifyAnswer::Revoked,
            _ => return None,
        };
        Some(Self { answer, asked_at: seconds as f64 })
    }
}

/// The result for waiting requests; `None`: the app could not be asked, or its answer was unclear.
pub type VerifyResult = Option<VerifyAnswer>;

/// The answers about visitors, shared by all threads.
#[derive(Debug)]
pub struct VerifyMemory {
    memo: Cache<CookieHash, Arc<(StoredAnswer, f64)>>,
    /// Goes up with each void: an answer recalled earlier is then not remembered here.
    epoch: AtomicU64,
    /// The epoch of the last void: an answer requested before it is not remembered.
    voided: Cache<CookieHash, u64>,
    /// Voided here and not yet in the store, each with the Unix time.
    unheard: Cache<CookieHash, f64>,
    /// Visitors with an unclear answer from the app, each with the Unix time.
    unclear: Cache<CookieHash, f64>,
    asking: Mutex<HashMap<CookieHash, watch::Receiver<Option<VerifyResult>>>>,
    queue: VerifyQueue,
    asked_at: AtomicU64,
    /// Visitors for which an answer was used, up to the number needed, until the next evaluation.
    again: Mutex<HashSet<CookieHash>>,
}

impl Default for VerifyMemory {
    fn default() -> Self {
        Self {
            memo: Cache::new(MEMO_MAX),
            epoch: AtomicU64::new(0),
            voided: Cache::new(VOIDED_MAX),
            unheard: Cache::new(VOIDED_MAX),
            unclear: Cache::new(VOIDED_MAX),
            asking: Mutex::default(),
            queue: VerifyQueue::default(),
            asked_at: AtomicU64::new(0),
            again: Mutex::default(),
        }
    }
}

/// Whether this caller is to ask the app, or another one does already.
#[derive(Debug)]
pub enum Join {
    /// Ask the app; the waiting requests get the result.
    Lead(VerifyLeader, watch::Receiver<Option<VerifyResult>>),
    /// Another caller asks.
    Wait(watch::Receiver<Option<VerifyResult>>),
    /// Too many visitors are being verified.
    Full,
}

/// The one question about a visitor. Dropped without an answer, it reports to the waiting requests
/// that there is none.
#[derive(Debug)]
pub struct VerifyLeader {
    verified: Arc<VerifyMemory>,
    cookies: CookieHash,
    sender: watch::Sender<Option<VerifyResult>>,
    /// The last void when it was begun.
    voided: Option<u64>,
}

impl Drop for VerifyLeader {
    fn drop(&mut self) {
        let mut asking = self.verified.asking();
        // After a void another caller asks again, and this entry is then that caller's.
        if asking
            .get(&self.cookies)
            .is_some_and(|receiver| receiver.same_channel(&self.sender.subscribe()))
        {
            asking.remove(&self.cookies);
        }
        drop(asking);
        self.sender.send_if_modified(|result| {
            let is_silent = result.is_none();
            *result = Some(result.take().flatten());
            is_silent
        });
    }
}

impl VerifyLeader {
    /// Waits for permission to ask the app.
    pub async fn permit(&self, asks: VerifyReason) -> VerifyPermit<'_> {
        self.verified.queue.take(asks).await
    }

    /// Whether the question under way was voided.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.verified.voided.peek(&self.cookies) != self.voided
    }

    /// What the store has before the app is asked: the answer may replace only this value.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn before<S: AnswerStore>(&self, store: &S) -> Result<Option<Bytes>, StoreError> {
        store.recall(&self.cookies).await
    }

    /// Stores the answer for `ttl`, unless it was voided meanwhile. Returns whether it was stored.
    ///
    /// # Errors
    /// When this is unknown.
    pub async fn remember<S: AnswerStore>(
        &self,
        store: &S,
        before: Option<&Bytes>,
        remembered: StoredAnswer,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let Self { verified, cookies, .. } = self;
        let kept = store.remember(cookies, before, remembered.write(), ttl).await?;
        if kept && !self.is_void() {
            verified.unheard.remove(cookies);
            let until = remembered.asked_at + MEMO_TTL;
            verified.memo.insert(*cookies, Arc::new((remembered, until)));
            if self.is_void() {
                verified.memo.remove(cookies);
            }
        }
        Ok(kept && !self.is_void())
    }

    /// The app's answer was unclear at this Unix time: it is not asked again for a moment, unless
    /// the question was voided meanwhile and a new answer is possible.
    pub fn is_unclear(&self, now: f64) {
        self.verified.unclear.insert(self.cookies, now);
        if self.is_void() {
            self.verified.unclear.remove(&self.cookies);
        }
    }

    /// Reports the result to the waiting requests.
    pub fn send(self, result: VerifyResult) {
        self.sender.send_replace(Some(result));
    }
}

impl VerifyMemory {
    fn asking(&self) -> MutexGuard<'_, HashMap<CookieHash, watch::Receiver<Option<VerifyResult>>>> {
        // No code that can panic runs under this lock.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stored answer about a visitor; `now` is Unix time in seconds.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn recall<S: AnswerStore>(
        &self,
        store: &S,
        cookies: &CookieHash,
        now: f64,
    ) -> Result<Option<StoredAnswer>, StoreError> {
        if let Some(memo) = self.memo.get(cookies)
            && now < memo.1
            && now >= memo.1 - MEMO_TTL - 1.0
        {
            return Ok(Some(memo.0.clone()));
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let answer = store.recall(cookies).await?;
        let Some(remembered) = answer.and_then(|answer| StoredAnswer::read(&answer)) else {
            return Ok(None);
        };
        // Stored times are whole seconds.
        if self.unheard.get(cookies).is_some_and(|voided| remembered.asked_at <= voided) {
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

    /// Forgets this process's answers about all visitors: the store is asked again. For sessions
    /// that end without their cookies, which are the only key to an answer.
    pub fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.memo.clear();
    }

    /// Whether the store now says that a visitor has no user. Without an answer the visitor may
    /// have one.
    pub async fn is_anonymous<S: AnswerStore>(&self, store: &S, cookies: &CookieHash) -> bool {
        let Ok(Some(answer)) = store.recall(cookies).await else { return false };
        StoredAnswer::read(&answer).is_some_and(|it| !matches!(it.answer, VerifyAnswer::Known(_)))
    }

    /// Whether the app's answer about a visitor was unclear a moment ago.
    #[must_use]
    pub fn was_unclear(&self, cookies: &CookieHash, now: f64) -> bool {
        self.unclear.get(cookies).is_some_and(|at| now >= at && now < at + UNCLEAR_TTL)
    }

    fn again(&self) -> MutexGuard<'_, HashSet<CookieHash>> {
        // No code that can panic runs under this lock.
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a visitor for which a stored answer was used: once, however many requests.
    pub fn count_use(&self, cookies: &CookieHash) {
        if self.asked_at.load(Ordering::Relaxed) >= WATCHED {
            return;
        }
        let mut again = self.again();
        if again.len() < ENOUGH {
            again.insert(*cookies);
        }
    }

    /// Counts a question about a visitor without a stored answer. Returns their number, once, if
    /// most visitors did not return.
    #[must_use]
    pub fn count_question(&self) -> Option<u64> {
        let asked = self.asked_at.fetch_add(1, Ordering::Relaxed) + 1;
        if asked != WATCHED {
            return None;
        }
        let again = std::mem::take(&mut *self.again());
        (again.len() < ENOUGH).then_some(asked)
    }

    /// The answer that this process remembers about a visitor: it may have come since the store was asked.
    #[must_use]
    pub fn remembered(&self, cookies: &CookieHash, now: f64) -> Option<VerifyAnswer> {
        let memo = self.memo.get(cookies)?;
        let is_of_now = now < memo.1 && now >= memo.1 - MEMO_TTL - 1.0;
        is_of_now.then(|| memo.0.answer.clone())
    }

    /// Joins the requests that wait for the app's answer about a visitor, or becomes the one that
    /// asks.
    pub fn join(self: &Arc<Self>, cookies: CookieHash) -> Join {
        let mut asking = self.asking();
        if let Some(receiver) = asking.get(&cookies) {
            return Join::Wait(receiver.clone());
        }
        if asking.len() >= ASKING_MAX {
            return Join::Full;
        }
        let (sender, receiver) = watch::channel(None);
        asking.insert(cookies, receiver.clone());
        let voided = self.voided.peek(&cookies);
        drop(asking);
        Join::Lead(VerifyLeader { verified: Arc::clone(self), cookies, sender, voided }, receiver)
    }

    /// Takes in that the answers about visitors are void: here at once. Questions under way about them are void, too. For
    /// what another process voids in the store.
    pub fn hear_void(&self, cookies: &[CookieHash]) {
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        for one in cookies {
            self.voided.insert(*one, epoch);
            self.asking().remove(one);
            if !fault!("at-once") {
                self.memo.remove(one);
            }
            self.unclear.remove(one);
        }
    }

    /// Voids the answers about visitors: here at once, in the store before this returns, or as soon
    /// as the store is asked again. Questions under way about them are void, too. `ttl`: how long
    /// answers are stored.
    pub async fn void<S: AnswerStore>(
        &self,
        store: &S,
        cookies: &[CookieHash],
        ttl: Duration,
        now: f64,
    ) {
        if fault!("nobody") {
            return;
        }
        self.hear_void(cookies);
        let mark = Bytes::from(format!("v{:032x}", fastrand::u128(..)));
        let voiding = store.void(cookies, mark, ttl);
        let is_done = matches!(tokio::time::timeout(patience(TIMEOUT), voiding).await, Ok(Ok(())));
        for one in cookies {
            if is_done {
                if !fault!("at-once") {
                    self.memo.remove(one);
                }
            } else {
                self.unheard.insert(*one, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_store::AnyStore;
    use anteroom_store::scratch::with_store;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    fn cookies(number: u8) -> CookieHash {
        CookieHash([number; 32])
    }

    fn alice() -> VerifyAnswer {
        VerifyAnswer::Known(User::new(b"alice").unwrap())
    }

    fn lead(verified: &Arc<VerifyMemory>, number: u8) -> VerifyLeader {
        match verified.join(cookies(number)) {
            Join::Lead(lead, _) => lead,
            other => panic!("no question is open yet: {other:?}"),
        }
    }

    async fn remember(
        verified: &Arc<VerifyMemory>,
        store: &AnyStore,
        answer: VerifyAnswer,
        asked: f64,
    ) -> bool {
        let lead = lead(verified, 1);
        let before = lead.before(store).await.unwrap();
        let remembered = StoredAnswer { answer, asked_at: asked };
        lead.remember(store, before.as_ref(), remembered, TTL).await.unwrap()
    }

    async fn recall(verified: &VerifyMemory, store: &AnyStore, now: f64) -> Option<VerifyAnswer> {
        let recalled = verified.recall(store, &cookies(1), now).await.unwrap();
        recalled.map(|remembered| remembered.answer)
    }

    #[test]
    fn a_remembered_answer_reads_back_from_the_store() {
        let with = User::new(b"al\nice").unwrap();
        let with = with.with_attributes(&[("group".into(), "trade".into())]).unwrap();
        for answer in
            [alice(), VerifyAnswer::Known(with), VerifyAnswer::Anonymous, VerifyAnswer::Revoked]
        {
            let remembered = StoredAnswer { answer, asked_at: 1_000.0 };
            assert_eq!(StoredAnswer::read(&remembered.write()), Some(remembered));
        }
        for junk in ["", "v0123", "k12", "n12\nalice", "nx", "k1\n"] {
            assert_eq!(StoredAnswer::read(junk.as_bytes()), None, "{junk}");
        }
    }

    #[test]
    fn an_answer_is_remembered_until_it_is_voided() {
        with_store(async |store| {
            let verified = Arc::<VerifyMemory>::default();
            assert_eq!(recall(&verified, &store, 1_000.0).await, None);
            assert!(remember(&verified, &store, alice(), 1_000.0).await);
            for now in [1_000.5, 1_001.5] {
                assert_eq!(recall(&verified, &store, now).await, Some(alice()), "{now}");
            }
            verified.void(&store, &[cookies(1)], TTL, 1_001.6).await;
            assert_eq!(recall(&verified, &store, 1_001.6).await, None);
            assert!(remember(&verified, &store, VerifyAnswer::Anonymous, 1_002.0).await);
            assert_eq!(recall(&verified, &store, 1_002.0).await, Some(VerifyAnswer::Anonymous));
        });
    }

    #[test]
    fn another_process_learns_within_a_second_that_an_answer_was_voided() {
        with_store(async |store| {
            let (one, other) = (Arc::<VerifyMemory>::default(), Arc::<VerifyMemory>::default());
            assert!(remember(&one, &store, VerifyAnswer::Anonymous, 1_000.0).await);
            assert_eq!(recall(&other, &store, 1_000.0).await, Some(VerifyAnswer::Anonymous));
            one.void(&store, &[cookies(1)], TTL, 1_000.1).await;
            assert_eq!(recall(&other, &store, 1_000.9).await, Some(VerifyAnswer::Anonymous));
            assert_eq!(recall(&other, &store, 1_001.0).await, None);
        });
    }

    #[test]
    fn what_another_process_voids_is_void_here_once_it_is_heard() {
        with_store(async |store| {
            let (one, other) = (Arc::<VerifyMemory>::default(), Arc::<VerifyMemory>::default());
            assert!(remember(&one, &store, VerifyAnswer::Anonymous, 1_000.0).await);
            assert_eq!(recall(&other, &store, 1_000.0).await, Some(VerifyAnswer::Anonymous));
            let open = lead(&other, 1);
            one.void(&store, &[cookies(1)], TTL, 1_000.1).await;
            other.hear_void(&[cookies(1)]);
            assert_eq!(recall(&other, &store, 1_000.1).await, None);
            assert!(open.is_void());
        });
    }

    #[test]
    fn an_answer_voided_during_its_question_is_not_remembered() {
        with_store(async |store| {
            let (one, other) = (Arc::<VerifyMemory>::default(), Arc::<VerifyMemory>::default());
            for voids in [&one, &other] {
                let lead = lead(&one, 1);
                let before = lead.before(&store).await.unwrap();
                voids.void(&store, &[cookies(1)], TTL, 1_000.0).await;
                let anonymous = StoredAnswer { answer: VerifyAnswer::Anonymous, asked_at: 1_000.0 };
                assert!(!lead.remember(&store, before.as_ref(), anonymous, TTL).await.unwrap());
                drop(lead);
                assert_eq!(recall(&one, &store, 1_000.0).await, None);
            }
        });
    }

    #[test]
    fn a_request_after_a_void_asks_again() {
        with_store(async |store| {
            let verified = Arc::<VerifyMemory>::default();
            let first = lead(&verified, 1);
            let Join::Wait(mut waits) = verified.join(cookies(1)) else { panic!("one asks") };
            verified.void(&store, &[cookies(1)], TTL, 1_000.0).await;
            let second = lead(&verified, 1);
            drop(first);
            assert_eq!(*waits.wait_for(Option::is_some).await.unwrap(), Some(None));
            let Join::Wait(mut waits) = verified.join(cookies(1)) else { panic!("one asks") };
            second.send(Some(alice()));
            assert_eq!(*waits.wait_for(Option::is_some).await.unwrap(), Some(Some(alice())));
            assert!(verified.asking().is_empty());
        });
    }

    #[test]
    fn a_visitor_voided_during_a_question_is_asked_about_at_once() {
        with_store(async |store| {
            let verified = Arc::<VerifyMemory>::default();
            let outdated = lead(&verified, 1);
            verified.void(&store, &[cookies(1)], TTL, 1_000.0).await;
            outdated.is_unclear(1_000.1);
            assert!(!verified.was_unclear(&cookies(1), 1_000.2));
            lead(&verified, 1).is_unclear(1_000.3);
            assert!(verified.was_unclear(&cookies(1), 1_000.4));
        });
    }

    #[test]
    fn mostly_unused_answers_are_reported_once() {
        let reports = |visitors: u64, uses: u64| {
            let verified = Arc::<VerifyMemory>::default();
            for visitor in 0..visitors {
                let mut hash = [0; 32];
                hash[..8].copy_from_slice(&visitor.to_be_bytes());
                (0..uses).for_each(|_| verified.count_use(&CookieHash(hash)));
            }
            let reports = (0..3_000).filter_map(|_| verified.count_question()).collect::<Vec<_>>();
            assert!(verified.again().is_empty());
            reports
        };
        assert_eq!(reports(10, 1), [1_000]);
        assert_eq!(reports(10, 2_000), [1_000], "a few busy ones hide nothing");
        assert_eq!(reports(499, 3), [1_000]);
        assert_eq!(reports(500, 1), [0; 0]);
        assert_eq!(reports(2_000, 1), [0; 0]);
    }
}
