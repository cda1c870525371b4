//! Answers about visitors on one machine: in memory, because the app can be asked again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anteroom_http::ident::CookieHash;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use super::EmbeddedStore;
use crate::{AnswerStore, StoreError};

/// The most bytes of answers; the least used are evicted first.
const BYTES_MAX: u64 = 64 << 20;
/// The approximate overhead of an answer.
const BESIDE: u64 = 160;
/// The initial capacity, for answers of the usual short size.
const ABOUT: usize = 150_000;

/// An answer, and when it expires.
#[derive(Clone, Debug)]
struct Kept {
    answer: Bytes,
    until: Instant,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CookieHash, Kept> for ByBytes {
    fn weight(&self, _: &CookieHash, kept: &Kept) -> u64 {
        BESIDE + kept.answer.len() as u64
    }
}

/// The valid answers.
#[derive(Debug)]
pub(super) struct Answers(Mutex<Cache<CookieHash, Kept, ByBytes>>);

impl Default for Answers {
    fn default() -> Self {
        Self(Mutex::new(Cache::with_weighter(ABOUT, BYTES_MAX, ByBytes)))
    }
}

impl Answers {
    fn kept(&self) -> MutexGuard<'_, Cache<CookieHash, Kept, ByBytes>> {
        // No code that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recall(&self, cookies: &CookieHash, now: Instant) -> Option<Bytes> {
        let kept = self.kept();
        kept.get(cookies).filter(|kept| now < kept.until).map(|kept| kept.answer.clone())
    }

    fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        (now, until): (Instant, Instant),
    ) -> bool {
        let mut kept = self.kept();
        let is = kept.get(cookies).filter(|kept| now < kept.until).map(|kept| &kept.answer);
        if is != before {
            return false;
        }
        kept.insert(*cookies, Kept { answer, until });
        true
    }

    fn void(&self, cookies: &[CookieHash], mark: &Bytes, until: Instant) {
        let mut kept = self.kept();
        for cookies in cookies {
            kept.insert(*cookies, Kept { answer: mark.clone(), until });
        }
    }
}

impl AnswerStore for EmbeddedStore {
    async fn recall(&self, cookies: &CookieHash) -> Result<Option<Bytes>, StoreError> {
        Ok(self.0.answers.recall(cookies, Instant::now()))
    }

    async fn remember(
        &self,
        cookies: &CookieHash,
        before: Option<&Bytes>,
        answer: Bytes,
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let now = Instant::now();
        Ok(self.0.answers.remember(cookies, before, answer, (now, now + ttl)))
    }

    async fn void(
        &self,
        cookies: &[CookieHash],
        mark: Bytes,
        ttl: Duration,
    ) -> Result<(), StoreError> {
        self.0.answers.void(cookies, &mark, Instant::now() + ttl);
        Ok(())
    }
}
