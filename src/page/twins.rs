//! The proof that a page belongs to a segment and to none of its users: two of them were answered with
//! the very same bytes.
//!
//! A fill for a segment carries one user's session, for an app knows nobody by his segment. What came is
//! that user's until another one has been given the same. No promise of an operator's is needed for that,
//! and a page that says anything personal never gets as far.

use std::sync::Mutex;
use std::sync::PoisonError;

use ::http::header::{CONTENT_LENGTH, DATE, EXPIRES};
use ::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

use super::coded;
use super::entry::Entry;
use crate::http::coding::Coding;
use crate::http::date;
use crate::ident::{PageKey, User};

/// Pages of which is remembered who was given what, at most; the least used are forgotten first.
const PAGES_MAX: usize = 16_384;
/// For how long that is remembered, in seconds.
const REMEMBERED_FOR: u64 = 3_600;
/// Users whose answers are remembered of a page. Where so many were given something else each, it is
/// personal.
const USERS_MAX: usize = 4;

/// Fields that tell of one exchange, and of no page: a page of a segment goes without them, for no two
/// users get the same.
static OF_ONE_EXCHANGE: [HeaderName; 21] = [
    HeaderName::from_static("cache-status"),
    HeaderName::from_static("cf-cache-status"),
    HeaderName::from_static("cf-ray"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("request-id"),
    HeaderName::from_static("server-timing"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("traceresponse"),
    HeaderName::from_static("x-amz-cf-id"),
    HeaderName::from_static("x-amzn-requestid"),
    HeaderName::from_static("x-cache"),
    HeaderName::from_static("x-cache-hits"),
    HeaderName::from_static("x-correlation-id"),
    HeaderName::from_static("x-debug-token"),
    HeaderName::from_static("x-debug-token-link"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-response-time"),
    HeaderName::from_static("x-runtime"),
    HeaderName::from_static("x-timer"),
    HeaderName::from_static("x-trace-id"),
];

/// Takes off what tells of one exchange.
pub fn strip_exchange(headers: &mut HeaderMap) {
    for name in &OF_ONE_EXCHANGE {
        headers.remove(name);
    }
}

/// What stands for a user here: his name alone, so that two sessions of his are no two users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness([u8; 32]);

impl Witness {
    /// Who saw a page.
    #[must_use]
    pub fn new(user: &User) -> Self {
        Self(Sha256::digest(user.as_bytes()).into())
    }
}

/// What a user was given: all of it that others would be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen([u8; 32]);

impl Seen {
    /// The status, the fields and the decoded body of a page. Dates do not count where they are dates:
    /// they say when it was made. What cannot be decoded within `max_decoded` bytes counts as it is.
    #[must_use]
    pub fn of(head: &Entry, body: &Bytes, max_decoded: usize) -> Self {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(&head.status.to_be_bytes());
        field(head.reason.as_deref().unwrap_or_default());
        let mut lines: Vec<(&str, &[u8])> = head
            .headers
            .iter()
            .filter(|(name, value)| !is_of_the_moment(name, value.as_bytes(), head.stored_at))
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        // Stable: lines of one name stay in their order.
        lines.sort_by_key(|(name, _)| *name);
        field(&(lines.len() as u64).to_be_bytes());
        for (name, value) in lines {
            field(name.as_bytes());
            field(value);
        }
        let coding = Coding::of(&head.headers).filter(|coding| *coding != Coding::Identity);
        let plain = coding.and_then(|coding| coded::decode(body, coding, max_decoded));
        field(&[u8::from(plain.is_some())]);
        field(plain.as_ref().unwrap_or(body));
        Self(hash.finalize().into())
    }
}

/// Whether a field says when the page was made, or how long it is by its coding.
fn is_of_the_moment(name: &HeaderName, value: &[u8], now: u64) -> bool {
    *name == CONTENT_LENGTH || ([DATE, EXPIRES].contains(name) && date::parse(value, now).is_some())
}

/// What a further answer makes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Two users were given this very page: it is the segment's.
    Given,
    /// It waits for a second user who is given the same.
    Waits,
    /// All users of late were given something else each.
    Personal,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    until: u64,
    /// The page of which there was a proof last. It needs no other one: whoever brings it anew brings
    /// what two users were given.
    proved: Option<Seen>,
    /// Who was given what else since, the oldest first.
    seen: Vec<(Witness, Seen)>,
}

/// Who was given what of which page. Shared by all threads.
#[derive(Debug)]
pub struct Twins {
    pages: Cache<PageKey, Remembered>,
    /// Two answers that come together must see each other.
    turn: Mutex<()>,
}

impl Default for Twins {
    fn default() -> Self {
        Self { pages: Cache::new(PAGES_MAX), turn: Mutex::default() }
    }
}

impl Twins {
    /// A user was given this of the page under `key`, the variant's where it has variants.
    pub fn note(&self, key: PageKey, who: Witness, what: Seen, now: u64) -> Proof {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.pages.get(&key).filter(|known| now < known.until);
        let mut known = known.unwrap_or_default();
        known.until = now.saturating_add(REMEMBERED_FOR);
        let by_another = known.seen.iter().any(|(other, seen)| *seen == what && *other != who);
        let proof = if known.proved == Some(what) || by_another {
            known.proved = Some(what);
            known.seen.clear();
            Proof::Given
        } else {
            known.seen.retain(|(other, _)| *other != who);
            known.seen.push((who, what));
            if known.seen.len() < USERS_MAX {
                Proof::Waits
            } else {
                known.seen.clear();
                Proof::Personal
            }
        };
        self.pages.insert(key, known);
        proof
    }

    /// Whether an answer to this user may be the proof of the page under `key`.
    #[must_use]
    pub fn may_prove(&self, key: &PageKey, who: Witness, now: u64) -> bool {
        let known = self.pages.peek(key).filter(|known| now < known.until);
        known.is_some_and(|known| {
            known.proved.is_some() || known.seen.iter().any(|(other, _)| *other != who)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PageKey = PageKey([1; 32]);

    fn who(name: &str) -> Witness {
        Witness::new(&User::new(name.as_bytes()).unwrap())
    }

    fn what(page: u8) -> Seen {
        Seen([page; 32])
    }

    #[test]
    fn a_page_is_the_segments_once_two_users_were_given_it() {
        let twins = Twins::default();
        let note = |name, page, now| twins.note(KEY, who(name), what(page), now);
        assert!(!twins.may_prove(&KEY, who("alice"), 0));
        assert_eq!(note("alice", 1, 0), Proof::Waits);
        assert!(!twins.may_prove(&KEY, who("alice"), 0));
        assert_eq!(note("alice", 1, 0), Proof::Waits, "the same user proves nothing");
        assert!(twins.may_prove(&KEY, who("bob"), 0));
        assert_eq!(note("bob", 1, 0), Proof::Given);
        assert_eq!(note("bob", 1, 1), Proof::Given, "two were given it");
        assert_eq!(note("carol", 2, 1), Proof::Waits, "the page has changed, or hers is her own");
        assert_eq!(note("dave", 1, 1), Proof::Given);
        assert_eq!(note("carol", 2, 2), Proof::Waits);
        assert_eq!(note("dave", 2, 2), Proof::Given);
        assert_eq!(
            note("carol", 1, 3),
            Proof::Waits,
            "what was proved before it changed is not any more"
        );
    }

    #[test]
    fn the_others_answers_are_waited_for_beside_a_personal_one() {
        let twins = Twins::default();
        let note = |name, page| twins.note(KEY, who(name), what(page), 0);
        assert_eq!(note("alice", 1), Proof::Waits);
        for page in 10..30 {
            assert_eq!(note("mallory", page), Proof::Waits, "one user takes one place");
        }
        assert_eq!(note("bob", 1), Proof::Given);
    }

    #[test]
    fn a_page_that_is_another_for_each_is_personal() {
        let twins = Twins::default();
        let note = |name: &str, page| twins.note(KEY, who(name), what(page), 0);
        let proofs = ["a", "b", "c", "d", "e"].iter().zip(1..).map(|(name, page)| note(name, page));
        use Proof::{Personal, Waits};
        assert_eq!(proofs.collect::<Vec<_>>(), [Waits, Waits, Waits, Personal, Waits]);
    }

    #[test]
    fn what_was_seen_is_forgotten_after_its_time_and_of_another_page_none_is() {
        let twins = Twins::default();
        assert_eq!(twins.note(KEY, who("alice"), what(1), 0), Proof::Waits);
        let late = REMEMBERED_FOR;
        assert_eq!(twins.note(PageKey([2; 32]), who("bob"), what(1), 1), Proof::Waits);
        assert_eq!(twins.note(KEY, who("bob"), what(1), late), Proof::Waits);
    }
}
