//! Proves that a page belongs to a segment and not to one of its users: two users were given the very same
//! bytes.
//!
//! A fill for a segment carries one user's session, because an app identifies users and not segments. The
//! response counts as that user's own until another user has been given the same, and more users have been
//! given it than another version. This needs no promise by the operator. While
//! other users send no requests, one person with several accounts in a segment can prove a page with them:
//! one that the app shows to all of these accounts.
//!
//! A few accounts also cannot keep a page from all others. If a user's name is a word of the page (`shop`),
//! and others were given the very same page, then the name there is a coincidence and counts neither for nor
//! against. If the accounts are really given something else, more users with the same page outvote them
//! within a bounded time: each account counts once, and its repetitions send other requests to the origin for
//! one second only ([`Proof::StillPersonal`]).

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ::http::header::{CONTENT_LENGTH, DATE, EXPIRES};
use ::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

use crate::cache::entry::Entry;
use crate::cache::purge::{Marks, Purged};
use crate::cache::recoded;
use crate::http::coding::Coding;
use crate::http::date;
use crate::ident::{PageKey, User};

/// The most pages for which answers are remembered; the least recently used are evicted first.
const PAGES_MAX: usize = 16_384;
/// How long it is remembered what a user was given, in seconds.
const REMEMBERED_FOR: u64 = 3_600;
/// The most users whose answers are remembered for a page; the oldest is dropped first. Fewer than half of
/// them cannot keep the page from the others.
const USERS_MAX: usize = 16;
/// With at least this many remembered users, of whom most were given different versions, a page is personal.
const PERSONAL_FROM: usize = 4;

/// Fields that describe one exchange and not the page. A segment's page is kept without them, because they
/// differ for every response.
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

/// Removes the fields that describe one exchange.
pub fn strip_exchange(headers: &mut HeaderMap) {
    for name in &OF_ONE_EXCHANGE {
        headers.remove(name);
    }
}

/// Identifies a user for the proof: by name, so that two sessions of one user count once; and by place,
/// because the app is told the client's address, which is in no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    user: [u8; 32],
    /// `None`: the app was not told an address.
    place: Option<u128>,
}

impl Witness {
    /// The witness for a user and the address that the app was told.
    #[must_use]
    pub fn new(user: &User, address: Option<IpAddr>) -> Self {
        let place = address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            // One site has a whole /64.
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        });
        Self { user: Sha256::digest(user.as_bytes()).into(), place }
    }

    fn is_same_user(&self, other: &Self) -> bool {
        self.user == other.user
    }

    /// Whether two equal answers to these witnesses show that the page depends on neither the user nor the
    /// address.
    fn is_another(&self, other: &Self) -> bool {
        !self.is_same_user(other) && (self.place.is_none() || self.place != other.place)
    }
}

/// A fingerprint of what a user was given: everything that others would be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Hash of status and fields.
    fields: [u8; 32],
    /// Hash of status, fields and body; `None` if the body was not read.
    whole: Option<[u8; 32]>,
    /// Whether it contains something that may be the user's personal data.
    holds_own: bool,
}

impl Seen {
    /// The fingerprint of a page: its status, fields and decoded body. Fields that hold a date are ignored,
    /// because they tell when the page was made. A body that cannot be decoded within `max_decoded` bytes is
    /// hashed as it is.
    #[must_use]
    pub fn of(head: &Entry, body: &Bytes, max_decoded: usize) -> Self {
        let fields = fields_of(head.status, &head.headers, head.stored_at);
        let mut hash = Sha256::new();
        hash.update(fields);
        let mut field = |bytes: &[u8]| put(&mut hash, bytes);
        field(head.reason.as_deref().unwrap_or_default());
        let coding = Coding::of(&head.headers).filter(|coding| *coding != Coding::Identity);
        let plain = coding.and_then(|coding| recoded::decode(body, coding, max_decoded));
        field(&[u8::from(plain.is_some())]);
        field(plain.as_ref().unwrap_or(body));
        Self { fields, whole: Some(hash.finalize().into()), holds_own: false }
    }

    /// The same fingerprint for a page with possible personal data: the user's name, or a word with the same
    /// spelling.
    #[must_use]
    pub fn with_own(self) -> Self {
        Self { holds_own: true, ..self }
    }

    /// The fingerprint of a response whose fields contain possible personal data, at a Unix time. Its body
    /// was not read.
    #[must_use]
    pub fn of_own_fields(status: u16, headers: &HeaderMap, now: u64) -> Self {
        Self { fields: fields_of(status, headers, now), whole: None, holds_own: true }
    }

    /// Whether the possible personal data also stands in a page that another user was given, as far as it was
    /// read: it is then a coincidence.
    fn is_chance(&self, page: &Self) -> bool {
        let is_same = match self.whole {
            Some(_) => self.whole == page.whole,
            None => self.fields == page.fields,
        };
        self.holds_own && !page.holds_own && is_same
    }
}

/// Hash of a status and fields. Lines of one name keep their order.
fn fields_of(status: u16, headers: &HeaderMap, now: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    put(&mut hash, &status.to_be_bytes());
    let mut lines: Vec<(&str, &[u8])> = headers
        .iter()
        .filter(|(name, value)| !is_of_the_moment(name, value.as_bytes(), now))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    // A stable sort.
    lines.sort_by_key(|(name, _)| *name);
    put(&mut hash, &(lines.len() as u64).to_be_bytes());
    for (name, value) in lines {
        put(&mut hash, name.as_bytes());
        put(&mut hash, value);
    }
    hash.finalize().into()
}

/// Hashes bytes with a length prefix, so that different lists never have the same encoding.
fn put(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// Whether a field tells when the page was made, or how long it is in its coding.
fn is_of_the_moment(name: &HeaderName, value: &[u8], now: u64) -> bool {
    *name == CONTENT_LENGTH || ([DATE, EXPIRES].contains(name) && date::parse(value, now).is_some())
}

/// The effect of a further answer on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Two users were given this very page, and more users than were given another one: it is the segment's
    /// page.
    Given,
    /// The page waits for a second user with the same answer.
    Waits,
    /// Most recent users were given different versions. An earlier proof no longer holds.
    Personal,
    /// The same, but this user was given something recently already, so it is no new evidence. Repeated
    /// requests by one user must not stop fills for all others.
    StillPersonal,
}

/// What one user was given.
#[derive(Clone, Copy, Debug)]
struct Sight {
    who: Witness,
    what: Seen,
    /// When the user was last given it, in Unix time.
    at: u64,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    /// The position of the latest of them in the order of purges. An answer from before a purge proves
    /// nothing after it.
    marks: Arc<Marks>,
    /// The version of the page that was proved last.
    proved: Option<Seen>,
    /// Who was given what, in the order in which each user was first given it.
    seen: Vec<Sight>,
}

impl Remembered {
    /// Forgets answers that are too old or were purged.
    fn forget_old(&mut self, purged: &Purged, now: u64) {
        if !purged.is_current(&self.marks) {
            *self = Self::default();
        }
        self.seen.retain(|sight| now < sight.at.saturating_add(REMEMBERED_FOR));
        // A proof expires with the answers that support it.
        self.proved = self.proved.filter(|proved| self.count(proved) > 0);
    }

    /// Whether the possible personal data is a coincidence. The user was then given the common page, so
    /// earlier answers to this user are dropped as evidence.
    fn is_chance(&mut self, who: &Witness, what: &Seen) -> bool {
        let others = self.seen.iter().filter(|sight| !sight.who.is_same_user(who));
        let is_chance = others.into_iter().any(|sight| what.is_chance(&sight.what));
        if is_chance {
            self.seen.retain(|sight| !sight.who.is_same_user(who));
        }
        is_chance
    }

    /// Records an answer. Each user takes one place, whatever the answers are.
    fn see(&mut self, who: Witness, what: Seen, at: u64) {
        let is_same = |sight: &&mut Sight| sight.who.is_same_user(&who) && sight.what == what;
        if let Some(same) = self.seen.iter_mut().find(is_same) {
            (same.who, same.at) = (who, at);
            return;
        }
        self.seen.retain(|sight| !sight.who.is_same_user(&who));
        if self.seen.len() >= USERS_MAX {
            self.seen.remove(0);
        }
        self.seen.push(Sight { who, what, at });
    }

    fn count(&self, what: &Seen) -> usize {
        self.seen.iter().filter(|sight| sight.what == *what).count()
    }

    /// The number of users who were given this page with a coincidence in it.
    fn count_chance(&self, what: &Seen) -> usize {
        self.seen.iter().filter(|sight| sight.what.is_chance(what)).count()
    }

    /// The number of users who were given this page, with one counted per address.
    fn count_apart(&self, what: &Seen) -> usize {
        let agreeing = self.seen.iter().filter(|sight| sight.what == *what);
        let all: Vec<Witness> = agreeing.map(|sight| sight.who).collect();
        let is_first = |(at, who): &(usize, &Witness)| all[..*at].iter().all(|o| o.is_another(who));
        all.iter().enumerate().filter(is_first).count()
    }

    /// The number of answers that match the segment's page before it changed to `what`: they do not count
    /// against the new version.
    fn before_it_changed(&self, what: &Seen) -> usize {
        let Some(proved) = self.proved.filter(|proved| proved != what) else { return 0 };
        let before = self.seen.iter().take_while(|sight| sight.what != *what);
        before.filter(|sight| sight.what == proved).count()
    }

    /// Whether most remembered users, and at least two, were given this page.
    fn is_most(&self, what: &Seen) -> bool {
        // A page with personal data proves nothing, even if two users were given it.
        if what.holds_own {
            return false;
        }
        let apart = self.count(what) + self.count_chance(what) + self.before_it_changed(what);
        let dissent = self.seen.len() - apart;
        let agree = self.count_apart(what);
        agree >= 2 && agree > dissent
    }

    /// Judges an answer that has just come, to a user who `is_known` from before.
    fn judge(&mut self, what: Seen, is_known: bool) -> Proof {
        if self.is_most(&what) {
            if let Some(outdated) = self.proved.replace(what).filter(|proved| *proved != what) {
                self.seen.retain(|sight| sight.what != outdated);
            }
            return Proof::Given;
        }
        let is_most = |sight: &Sight| self.is_most(&sight.what);
        // Users who agree but share an address may still be joined by a user at another address.
        let agrees = |sight: &Sight| sight.what == what || sight.what.is_chance(&what);
        let all_agree = self.seen.iter().all(agrees);
        if self.seen.len() < PERSONAL_FROM || all_agree || self.seen.iter().any(is_most) {
            return Proof::Waits;
        }
        // The answers stay remembered, so that a few users who agree do not outvote the others later.
        self.proved = None;
        if is_known { Proof::StillPersonal } else { Proof::Personal }
    }
}

/// The answers given for each page. Shared by all threads.
#[derive(Debug)]
pub struct Twins {
    pages: Cache<PageKey, Remembered>,
    /// Serialises two answers that arrive together, so that each takes the other into account.
    turn: Mutex<()>,
}

impl Default for Twins {
    fn default() -> Self {
        Self { pages: Cache::new(PAGES_MAX), turn: Mutex::default() }
    }
}

impl Twins {
    /// Records that a user was given this as the page under `key`, which is the variant's key if there are
    /// variants. `marks` are the page's, for purges.
    pub fn note(
        &self,
        key: PageKey,
        (who, what): (Witness, Seen),
        (marks, purged): (&Arc<Marks>, &Purged),
        now: u64,
    ) -> Proof {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // The page was purged while the answer was on its way.
        if !purged.is_current(marks) {
            return Proof::Waits;
        }
        let mut known = self.pages.get(&key).unwrap_or_default();
        known.forget_old(purged, now);
        known.marks = Arc::clone(marks);
        let proof = if known.is_chance(&who, &what) {
            Proof::Waits
        } else {
            let is_known = known.seen.iter().any(|sight| sight.who.is_same_user(&who));
            known.see(who, what, now);
            known.judge(what, is_known)
        };
        self.pages.insert(key, known);
        proof
    }

    /// Whether an answer to this user may prove the page under `key`.
    #[must_use]
    pub fn may_prove(&self, key: &PageKey, who: Witness, purged: &Purged, now: u64) -> bool {
        self.pages.peek(key).is_some_and(|mut known| {
            known.forget_old(purged, now);
            known.seen.iter().any(|sight| sight.who.is_another(&who))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::purge::scope::Scope;

    use Proof::{Given, Personal, StillPersonal, Waits};

    const KEY: PageKey = PageKey([1; 32]);

    fn who(name: &str) -> Witness {
        Witness::new(&User::new(name.as_bytes()).unwrap(), None)
    }

    fn at(name: &str, address: &str) -> Witness {
        Witness::new(&User::new(name.as_bytes()).unwrap(), Some(address.parse().unwrap()))
    }

    fn what(page: u8) -> Seen {
        Seen { fields: [page / 10; 32], whole: Some([page; 32]), holds_own: false }
    }

    /// An answer with possible personal data in its fields only.
    fn in_fields(page: u8) -> Seen {
        Seen { whole: None, ..what(page).with_own() }
    }

    struct Stage {
        twins: Twins,
        purged: Purged,
        marks: Arc<Marks>,
    }

    impl Stage {
        fn new() -> Self {
            let purged = Purged::new(false);
            let marks = Arc::new(purged.now(&[Scope::Tag(b"a").digest()]));
            Self { twins: Twins::default(), purged, marks }
        }

        fn note(&self, name: &str, page: u8, now: u64) -> Proof {
            self.give(name, what(page), now)
        }

        fn give(&self, name: &str, what: Seen, now: u64) -> Proof {
            self.twins.note(KEY, (who(name), what), (&self.marks, &self.purged), now)
        }

        fn may_prove(&self, name: &str) -> bool {
            self.twins.may_prove(&KEY, who(name), &self.purged, 0)
        }

        /// Checks the results of answers in order, each to the user with this letter.
        #[track_caller]
        fn play(steps: &[(&str, u8, Proof)]) {
            let stage = Self::new();
            for (at, (name, page, proof)) in steps.iter().enumerate() {
                assert_eq!(stage.note(name, *page, 0), *proof, "step {at}: {name} {page}");
            }
        }
    }

    #[test]
    fn a_page_is_the_segments_once_two_users_were_given_it() {
        let stage = Stage::new();
        assert!(!stage.may_prove("alice"));
        assert_eq!(stage.note("alice", 1, 0), Waits);
        assert!(!stage.may_prove("alice"));
        assert_eq!(stage.note("alice", 1, 0), Waits, "the same user proves nothing");
        assert!(stage.may_prove("bob"));
        assert_eq!(stage.note("bob", 1, 0), Given);
        assert_eq!(stage.note("bob", 1, 1), Given, "two were given it");
        assert_eq!(stage.note("carol", 2, 1), Waits, "the page has changed, or hers is her own");
        assert_eq!(stage.note("dave", 1, 1), Given);
        assert_eq!(stage.note("carol", 2, 2), Waits);
        assert_eq!(stage.note("dave", 2, 2), Given);
        let late = "what was proved before it changed is not any more";
        assert_eq!(stage.note("carol", 1, 3), Waits, "{late}");
    }

    #[test]
    fn two_at_one_address_prove_nothing() {
        for (one, other, is_proof) in [
            ("192.0.2.1", "192.0.2.2", true),
            ("192.0.2.1", "192.0.2.1", false),
            ("192.0.2.1", "::ffff:192.0.2.1", false),
            ("2001:db8::1", "2001:db8::2", false),
            ("2001:db8::1", "2001:db8:0:1::1", true),
        ] {
            let stage = Stage::new();
            let note =
                |who| stage.twins.note(KEY, (who, what(1)), (&stage.marks, &stage.purged), 0);
            assert_eq!(note(at("alice", one)), Waits);
            let may_prove = stage.twins.may_prove(&KEY, at("bob", other), &stage.purged, 0);
            assert_eq!(may_prove, is_proof, "{one} {other}");
            assert_eq!(note(at("bob", other)) == Given, is_proof, "{one} {other}");
            assert_eq!(note(at("alice", "198.51.100.1")), Given, "she asks from elsewhere");
        }
    }

    #[test]
    fn users_at_one_address_who_agree_wait_for_one_elsewhere() {
        let stage = Stage::new();
        let note = |who| stage.twins.note(KEY, (who, what(1)), (&stage.marks, &stage.purged), 0);
        for name in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(note(at(name, "192.0.2.1")), Waits, "{name}");
        }
        assert_eq!(note(at("g", "192.0.2.2")), Given);
    }

    #[test]
    fn a_page_that_changes_is_the_segments_again_by_the_next_two() {
        let many = ["a", "b", "c", "d", "e", "f"];
        let mut steps: Vec<_> = many.iter().map(|name| (*name, 1, Given)).collect();
        steps[0].2 = Waits;
        steps.extend([("g", 2, Waits), ("h", 2, Given), ("a", 2, Given)]);
        steps.extend([("a", 3, Waits), ("b", 3, Given), ("c", 3, Given)]);
        Stage::play(&steps);
    }

    #[test]
    fn two_who_agree_outvote_nobody() {
        Stage::play(&[
            ("carol", 1, Waits),
            ("dave", 2, Waits),
            ("mallory", 9, Waits),
            ("mallory-2", 9, Personal),
            ("mallory", 9, StillPersonal),
            ("mallory-3", 9, Given),
            ("erin", 3, Personal),
            ("mallory", 9, StillPersonal),
        ]);
    }

    #[test]
    fn who_is_given_something_else_later_takes_the_proof_back() {
        Stage::play(&[
            ("mallory", 9, Waits),
            ("mallory-2", 9, Given),
            ("carol", 1, Waits),
            ("dave", 2, Personal),
            ("mallory", 9, StillPersonal),
            ("mallory-2", 9, StillPersonal),
        ]);
    }

    #[test]
    fn the_others_answers_are_waited_for_beside_a_personal_one() {
        let stage = Stage::new();
        assert_eq!(stage.note("alice", 1, 0), Waits);
        for page in 10..30 {
            assert_eq!(stage.note("mallory", page, 0), Waits, "one user takes one place");
        }
        assert_eq!(stage.note("bob", 1, 0), Given);
    }

    #[test]
    fn users_whose_names_are_words_of_a_page_do_not_keep_it_from_others() {
        let stage = Stage::new();
        let words = ["shop", "admin", "cart", "home"];
        // One page alone does not decide it.
        for (name, what) in words.iter().zip([what(11).with_own(), in_fields(11)].iter().cycle()) {
            assert_ne!(stage.give(name, *what, 0), Given, "{name}");
        }
        stage.note("alice", 11, 0);
        assert_eq!(stage.note("bob", 11, 0), Given);
        for _ in 0..3 {
            for name in words {
                assert_eq!(stage.give(name, what(11).with_own(), 0), Waits);
                assert_eq!(stage.give(name, in_fields(11), 0), Waits);
            }
        }
        assert_eq!(stage.note("carol", 11, 0), Given);
        assert_eq!(stage.give("shop", what(12).with_own(), 0), Waits, "he says otherwise");
        assert_eq!(stage.give("shop", what(11).with_own(), 0), Waits, "and takes it back");
    }

    #[test]
    fn what_two_were_given_with_something_of_theirs_in_it_is_no_proof() {
        let stage = Stage::new();
        for name in ["mallory", "mallory-2", "mallory-3"] {
            assert_eq!(stage.give(name, what(9).with_own(), 0), Waits, "{name}");
        }
        // It is no evidence either against the users with the same answer, at least two of them.
        assert_eq!(stage.note("alice", 9, 0), Waits);
        assert_eq!(stage.note("bob", 9, 0), Given);
        // A user with personal data on the page counts against two who agree.
        let stage = Stage::new();
        stage.give("alice", what(11).with_own(), 0);
        stage.give("bob", in_fields(21), 0);
        stage.note("mallory", 9, 0);
        assert_ne!(stage.note("mallory-2", 9, 0), Given);
    }

    #[test]
    fn a_few_who_are_given_pages_of_their_own_are_outvoted() {
        let stage = Stage::new();
        let mut given = 0;
        let few = ["m1", "m2", "m3", "m4", "m5", "m6", "m7"];
        for round in 0_u8..12 {
            for (at, name) in few.iter().enumerate() {
                // A different page each time.
                let proof = stage.note(name, 100 + round * 7 + at as u8, 0);
                assert!(round == 0 || proof != Personal, "{name}: it is no news");
            }
            given += usize::from(stage.note(&format!("user-{round}"), 1, 0) == Given);
        }
        assert!(given >= 4, "{given}");
    }

    #[test]
    fn a_page_that_is_another_for_each_is_personal() {
        Stage::play(&[
            ("a", 1, Waits),
            ("b", 2, Waits),
            ("c", 3, Waits),
            ("d", 4, Personal),
            ("e", 5, Personal),
        ]);
    }

    #[test]
    fn what_was_seen_is_forgotten_after_its_time_and_of_another_page_none_is() {
        let stage = Stage::new();
        assert_eq!(stage.note("alice", 1, 0), Waits);
        let of = (&stage.marks, &stage.purged);
        let other = stage.twins.note(PageKey([2; 32]), (who("bob"), what(1)), of, 1);
        assert_eq!(other, Waits);
        assert_eq!(stage.note("bob", 1, REMEMBERED_FOR), Waits);
        assert_eq!(stage.note("carol", 1, REMEMBERED_FOR + 1), Given);
        assert_eq!(
            stage.note("carol", 1, 2 * REMEMBERED_FOR),
            Waits,
            "a proof is as old as the last of those who gave it with another"
        );
    }

    #[test]
    fn a_purge_takes_the_proof_and_all_that_was_seen_along() {
        let mut stage = Stage::new();
        let purge = |stage: &mut Stage| {
            stage.purged.purge_later(&[Scope::Tag(b"a").aim(false)]);
            std::mem::replace(
                &mut stage.marks,
                Arc::new(stage.purged.now(&[Scope::Tag(b"a").digest()])),
            )
        };
        assert_eq!(stage.note("alice", 1, 0), Waits);
        purge(&mut stage);
        assert!(!stage.may_prove("bob"));
        assert_eq!(stage.note("bob", 1, 0), Waits);
        assert_eq!(stage.note("alice", 1, 0), Given);
        let from_before = purge(&mut stage);
        assert_eq!(stage.note("alice", 1, 0), Waits);
        let marks = std::mem::replace(&mut stage.marks, from_before);
        assert_eq!(stage.note("bob", 1, 0), Waits, "it was purged on its way");
        stage.marks = marks;
        assert_eq!(stage.note("carol", 1, 0), Given);
    }
}
