//! The answers to challenges that an authority may ask for, at any proxy and any thread.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anteroom_store::CertificateStore;
use serde::{Deserialize, Serialize};

use crate::seal::Sealer;

/// How long an answer is kept: an authority asks several times, and from several places.
pub(crate) const ANSWER_LASTS: Duration = Duration::from_secs(3_600);
/// The most answers. An order adds one, and waits for seconds.
const ANSWERS_MAX: usize = 1_000;
/// The longest token or name, in bytes.
const NAME_MAX: usize = 255;

/// What an authority asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChallengeName {
    /// The token of an http-01 challenge (RFC 8555 §8.3).
    Token(String),
    /// The host name of a tls-alpn-01 challenge (RFC 8737 §3).
    Host(String),
}

impl ChallengeName {
    /// The token in a path, if it can be one: base64url (RFC 8555 §8.1).
    #[must_use]
    pub fn token(text: &str) -> Option<Self> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let is_token = (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(fits);
        is_token.then(|| Self::Token(text.to_owned()))
    }

    /// The name that a client requests, if it can be a host.
    #[must_use]
    pub fn host(text: &str) -> Option<Self> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let is_host = (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(fits);
        is_host.then(|| Self::Host(text.to_ascii_lowercase()))
    }

    /// Where the answer is in the store.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Token(token) => format!("token:{token}"),
            Self::Host(host) => format!("name:{host}"),
        }
    }
}

/// The answers of this process.
#[derive(Default)]
pub struct ChallengeAnswers {
    /// Each with the Unix time until which it is kept. The lock is held for a look-up.
    known: Mutex<HashMap<ChallengeName, (String, i64)>>,
}

impl fmt::Debug for ChallengeAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SECURITY: an answer proves a name, to whatever asks.
        f.debug_struct("ChallengeAnswers").finish_non_exhaustive()
    }
}

impl ChallengeAnswers {
    /// Adds an answer (a key authorization, RFC 8555 §8.1). `now` is Unix time.
    pub fn put(&self, name: ChallengeName, answer: &str, now: i64) {
        self.take_in(name, answer.to_owned(), i64::MAX, now);
    }

    /// All answers, each with the Unix time until which it is kept: for a successor. An authority that was asked to look
    /// may ask that one.
    #[must_use]
    pub fn hand_out(&self, now: i64) -> Vec<(ChallengeName, String, i64)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.iter().filter(|(_, (_, until))| *until > now);
        known.map(|(name, (answer, until))| (name.clone(), answer.clone(), *until)).collect()
    }

    /// Adds an answer of the process that this one takes over from, which is kept until this Unix time.
    pub fn take_in(&self, name: ChallengeName, answer: String, until: i64, now: i64) {
        let until = until.min(now + ANSWER_LASTS.as_secs() as i64);
        // No code that can panic runs under this lock.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, until)| *until > now);
        if known.len() < ANSWERS_MAX {
            known.insert(name, (answer, until));
        }
    }

    /// The answer, if there is one at `now`, in Unix time.
    #[must_use]
    pub fn get(&self, name: &ChallengeName, now: i64) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).filter(|(_, until)| *until > now).map(|(answer, _)| answer.clone())
    }
}

/// Finds answers: those of this process, and those of the proxy that orders.
#[derive(Clone, Debug)]
pub struct ChallengeLookup {
    /// Those of this process.
    pub answers: Arc<ChallengeAnswers>,
    /// Opens those of others, if proxies share them.
    pub sealer: Option<Arc<Sealer>>,
}

impl ChallengeLookup {
    /// The answer, if there is one at `now`, in Unix time. A store that is away has none.
    pub async fn find(
        &self,
        store: &impl CertificateStore,
        name: &ChallengeName,
        now: i64,
    ) -> Option<String> {
        if let Some(answer) = self.answers.get(name, now) {
            return Some(answer);
        }
        let sealer = self.sealer.as_ref()?;
        let place = name.place();
        let sealed = store.sealed(&place).await.ok()??;
        String::from_utf8(sealer.open(&place, &sealed).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_for_an_hour_and_there_is_room_for_some() {
        let answers = ChallengeAnswers::default();
        let token = |number: usize| ChallengeName::token(&format!("t-{number}")).unwrap();
        answers.put(token(0), "answer", 10);
        assert_eq!(answers.get(&token(0), 3_609).as_deref(), Some("answer"));
        assert_eq!(answers.get(&token(0), 3_610), None);
        assert_eq!(answers.get(&ChallengeName::host("t-0").unwrap(), 10), None);
        for number in 1..=ANSWERS_MAX {
            answers.put(token(number), "answer", 10);
        }
        assert_eq!(answers.get(&token(ANSWERS_MAX - 1), 10).as_deref(), Some("answer"));
        assert_eq!(answers.get(&token(ANSWERS_MAX), 10), None, "no room");
        answers.put(token(ANSWERS_MAX), "answer", 3_610);
        assert!(answers.get(&token(ANSWERS_MAX), 3_610).is_some(), "the others are over");
    }

    #[test]
    fn a_successor_has_the_answers_for_as_long_as_they_would_have_lasted() {
        let (first, second) = (ChallengeAnswers::default(), ChallengeAnswers::default());
        let name = ChallengeName::host("a.net").unwrap();
        first.put(name.clone(), "answer", 10);
        assert!(first.hand_out(3_610).is_empty(), "it is over");
        for (name, answer, until) in first.hand_out(1_000) {
            second.take_in(name, answer, until, 1_000);
        }
        assert_eq!(second.get(&name, 3_609).as_deref(), Some("answer"));
        assert_eq!(second.get(&name, 3_610), None);
    }

    #[test]
    fn a_path_or_a_name_that_cannot_be_one_asks_nothing() {
        for bad in ["", "a/b", "a b", "..", "a%2f", &"a".repeat(256)] {
            assert_eq!(ChallengeName::token(bad), None, "{bad}");
        }
        assert_eq!(ChallengeName::host("A.net"), Some(ChallengeName::Host("a.net".to_owned())));
        assert_eq!(ChallengeName::host("a:1"), None);
    }
}
