//! Answers about visitors on one machine: in memory, because the app can be asked again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anteroom_http::ident::{CookieHash, hex, unhex};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;

use super::EmbeddedStore;
use crate::{ANSWER_MAX, AnswerStore, StoreError};

/// The most bytes of answers; the least used are evicted first.
const BYTES_MAX: u64 = 64 << 20;
/// The approximate overhead of an answer.
const BESIDE: u64 = 160;
/// The initial capacity, for answers of the usual short size.
const ABOUT: usize = 150_000;

/// An answer, and when it expires.
#[derive(Clone, Debug)]
struct AnswerEntry {
    answer: Bytes,
    until: Instant,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CookieHash, AnswerEntry> for ByBytes {
    fn weight(&self, _: &CookieHash, kept: &AnswerEntry) -> u64 {
        BESIDE + kept.answer.len() as u64
    }
}

/// The valid answers.
#[derive(Debug)]
pub(super) struct Answers(Mutex<Cache<CookieHash, AnswerEntry, ByBytes>>);

impl Default for Answers {
    fn default() -> Self {
        Self(Mutex::new(Cache::with_weighter(ABOUT, BYTES_MAX, ByBytes)))
    }
}

impl Answers {
    fn kept(&self) -> MutexGuard<'_, Cache<CookieHash, AnswerEntry, ByBytes>> {
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
        now: Instant,
        until: Instant,
    ) -> bool {
        let mut kept = self.kept();
        let is = kept.get(cookies).filter(|kept| now < kept.until).map(|kept| &kept.answer);
        if is != before {
            return false;
        }
        kept.insert(*cookies, AnswerEntry { answer, until });
        true
    }

    fn void(&self, cookies: &[CookieHash], mark: &Bytes, until: Instant) {
        let mut kept = self.kept();
        for cookies in cookies {
            kept.insert(*cookies, AnswerEntry { answer: mark.clone(), until });
        }
    }

    /// Those that are valid at `now` in lines, for [`Self::read`]: the cookies, the milliseconds left, and the answer.
    pub(super) fn lines(&self, now: Instant) -> impl Iterator<Item = String> + use<> {
        let valid: Vec<(CookieHash, AnswerEntry)> = {
            let kept = self.kept();
            let valid = kept.iter().filter(|(_, kept)| now < kept.until);
            valid.map(|(cookies, kept)| (*cookies, kept.clone())).collect()
        };
        valid.into_iter().map(move |(cookies, AnswerEntry { answer, until })| {
            let left = until.saturating_duration_since(now).as_millis();
            format!("{} {left} {}", cookies.hex(), hex(&answer))
        })
    }

    /// Takes in a line that was written just before `now`. One that is wrong is passed over: the app can be asked.
    pub(super) fn read(&self, line: &str, now: Instant) {
        if let Some((cookies, kept)) = read_line(line, now) {
            self.kept().insert(cookies, kept);
        }
    }
}

fn read_line(line: &str, now: Instant) -> Option<(CookieHash, AnswerEntry)> {
    let mut words = line.split(' ');
    let cookies = CookieHash(unhex(words.next()?)?.try_into().ok()?);
    let left = Duration::from_millis(words.next()?.parse().ok()?);
    let answer = unhex(words.next()?)?;
    let until = now.checked_add(left)?;
    (answer.len() <= ANSWER_MAX).then(|| (cookies, AnswerEntry { answer: answer.into(), until }))
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
        Ok(self.0.answers.remember(cookies, before, answer, now, now + ttl))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_handed_on_for_as_long_as_they_are_valid() {
        let (now, answers, next) = (Instant::now(), Answers::default(), Answers::default());
        let [short, long] = [1, 2].map(|byte| CookieHash([byte; 32]));
        let second = Duration::from_secs(1);
        let answer = Bytes::from_static(b"ann\0\xff");
        assert!(answers.remember(&short, None, answer.clone(), now, now + second));
        answers.void(&[long], &Bytes::new(), now + 3 * second);

        let later = now + 2 * second;
        answers.lines(now).for_each(|line| next.read(&line, now));
        assert_eq!(next.recall(&short, now), Some(answer));
        assert_eq!(next.recall(&short, now + second), None);
        assert_eq!(next.recall(&long, later), Some(Bytes::new()));
        assert_eq!(answers.lines(later).count(), 1, "what is over stays behind");
    }

    #[test]
    fn a_line_that_is_wrong_is_passed_over() {
        let now = Instant::now();
        let cookies = CookieHash([1; 32]);
        let answers = Answers::default();
        let digits = cookies.hex();
        let long = "00".repeat(ANSWER_MAX + 1);
        for wrong in ["", "00 1 00", &digits, &format!("{digits} x 00"), &format!("{digits} 9 0")] {
            answers.read(wrong, now);
        }
        answers.read(&format!("{digits} 9 {long}"), now);
        assert_eq!(answers.lines(now).count(), 0);
    }
}
