//! The proof that a page belongs to a segment and to none of its users: two of them were answered with
//! the very same bytes.
//!
//! A fill for a segment carries one user's session, for an app knows nobody by his segment. What came is
//! that user's until another one has been given the same, and more users than were given another one. No
//! promise of an operator's is needed for that. Who may have several accounts of one segment may prove with
//! them what he likes while nobody else asks: what the app shows all of them.
//!
//! Nor may he keep a page from all others by a few accounts. A user whose name is a word of the page (`shop`) was
//! given no page of his own where others were given the very same: that says nothing, neither for nor against.
//! And where his accounts are given something else indeed, more users than these outvote them, which takes a
//! bounded time: one account says its word once, and what it repeats turns others away for a second only
//! ([`Proof::StillPersonal`]).

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

/// Pages of which is remembered who was given what, at most; the least used are forgotten first.
const PAGES_MAX: usize = 16_384;
/// For how long it is remembered what a user was given, in seconds.
const REMEMBERED_FOR: u64 = 3_600;
/// Users whose answers are remembered of a page; the oldest is forgotten first. Fewer than half of them cannot
/// keep the page from the others.
const USERS_MAX: usize = 16;
/// Where so many users are remembered, and most were given something else each, it is personal.
const PERSONAL_FROM: usize = 4;

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

/// What stands for a user here: his name, so that two sessions of his are no two users; and where he was, for
/// the app is told his address, and no key holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    user: [u8; 32],
    /// `None`: the app was told no address either.
    place: Option<u128>,
}

impl Witness {
    /// Who saw a page, and the address that the app was told of.
    #[must_use]
    pub fn new(user: &User, address: Option<IpAddr>) -> Self {
        let place = address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            // One site has so many.
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        });
        Self { user: Sha256::digest(user.as_bytes()).into(), place }
    }

    fn is_same_user(&self, other: &Self) -> bool {
        self.user == other.user
    }

    /// Whether both being given the same says that it hangs on neither of them, nor on his address.
    fn is_another(&self, other: &Self) -> bool {
        !self.is_same_user(other) && (self.place.is_none() || self.place != other.place)
    }
}

/// What a user was given: all of it that others would be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Status and fields.
    fields: [u8; 32],
    /// These and the body; `None`: that was not read.
    whole: Option<[u8; 32]>,
    /// Whether something in it may be the user's own.
    holds_own: bool,
}

impl Seen {
    /// The status, the fields and the decoded body of a page. Dates do not count where they are dates:
    /// they say when it was made. What cannot be decoded within `max_decoded` bytes counts as it is.
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

    /// The same of a page in which something may be the user's own: his name, or a word that is spelt like it.
    #[must_use]
    pub fn with_own(self) -> Self {
        Self { holds_own: true, ..self }
    }

    /// An answer whose fields hold something that may be the user's own, at a Unix time. Its body was not read.
    #[must_use]
    pub fn of_own_fields(status: u16, headers: &HeaderMap, now: u64) -> Self {
        Self { fields: fields_of(status, headers, now), whole: None, holds_own: true }
    }

    /// Whether what may be the user's own stands in a page that another one was given, as far as it was read:
    /// it is there by chance.
    fn is_chance(&self, page: &Self) -> bool {
        let is_same = match self.whole {
            Some(_) => self.whole == page.whole,
            None => self.fields == page.fields,
        };
        self.holds_own && !page.holds_own && is_same
    }
}

/// A status and fields. Lines of one name stay in their order.
fn fields_of(status: u16, headers: &HeaderMap, now: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    put(&mut hash, &status.to_be_bytes());
    let mut lines: Vec<(&str, &[u8])> = headers
        .iter()
        .filter(|(name, value)| !is_of_the_moment(name, value.as_bytes(), now))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    // Stable.
    lines.sort_by_key(|(name, _)| *name);
    put(&mut hash, &(lines.len() as u64).to_be_bytes());
    for (name, value) in lines {
        put(&mut hash, name.as_bytes());
        put(&mut hash, value);
    }
    hash.finalize().into()
}

/// Behind its length, so that no two lists are the same bytes.
fn put(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

/// Whether a field says when the page was made, or how long it is by its coding.
fn is_of_the_moment(name: &HeaderName, value: &[u8], now: u64) -> bool {
    *name == CONTENT_LENGTH || ([DATE, EXPIRES].contains(name) && date::parse(value, now).is_some())
}

/// What a further answer makes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Two users were given this very page, and more users than were given another one: it is the segment's.
    Given,
    /// It waits for a further user who is given the same.
    Waits,
    /// Most users of late were given something else each. What was believed before is so no more.
    Personal,
    /// The same, and this user was given something of late already: it is no news. Who asks again and again must
    /// not keep all others from being asked for.
    StillPersonal,
}

/// That a user was given something.
#[derive(Clone, Copy, Debug)]
struct Sight {
    who: Witness,
    what: Seen,
    /// When he was given it last, in Unix time.
    at: u64,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    /// When the last of them was fetched, in the order of purges. What was seen before a purge proves nothing
    /// behind it.
    marks: Arc<Marks>,
    /// The page of which there was a proof last.
    proved: Option<Seen>,
    /// Who was given what, in the order in which each was first given that.
    seen: Vec<Sight>,
}

impl Remembered {
    /// Forgets what is too old, or was purged.
    fn forget_old(&mut self, purged: &Purged, now: u64) {
        if !purged.is_current(&self.marks) {
            *self = Self::default();
        }
        self.seen.retain(|sight| now < sight.at.saturating_add(REMEMBERED_FOR));
        // It ages with those who were given it.
        self.proved = self.proved.filter(|proved| self.count(proved) > 0);
    }

    /// Whether what may be the user's own stands there by chance. He was given nothing of his own then, and has
    /// not said otherwise before.
    fn is_chance(&mut self, who: &Witness, what: &Seen) -> bool {
        let others = self.seen.iter().filter(|sight| !sight.who.is_same_user(who));
        let is_chance = others.into_iter().any(|sight| what.is_chance(&sight.what));
        if is_chance {
            self.seen.retain(|sight| !sight.who.is_same_user(who));
        }
        is_chance
    }

    /// One user takes one place, whatever he is given.
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

    /// How many were given it, and something that may be their own in it by chance.
    fn count_chance(&self, what: &Seen) -> usize {
        self.seen.iter().filter(|sight| sight.what.is_chance(what)).count()
    }

    /// How many were given it, of all at one address one.
    fn count_apart(&self, what: &Seen) -> usize {
        let agreeing = self.seen.iter().filter(|sight| sight.what == *what);
        let all: Vec<Witness> = agreeing.map(|sight| sight.who).collect();
        let is_first = |(at, who): &(usize, &Witness)| all[..*at].iter().all(|o| o.is_another(who));
        all.iter().enumerate().filter(is_first).count()
    }

    /// The sights of the page that was the segment's until it changed to `what`: those say nothing against it.
    fn before_it_changed(&self, what: &Seen) -> usize {
        let Some(proved) = self.proved.filter(|proved| proved != what) else { return 0 };
        let before = self.seen.iter().take_while(|sight| sight.what != *what);
        before.filter(|sight| sight.what == proved).count()
    }

    /// Whether a page is that of most who are remembered, of two at least.
    fn is_most(&self, what: &Seen) -> bool {
        // What holds something of its user's own proves nothing, were it given to two.
        if what.holds_own {
            return false;
        }
        let apart = self.count(what) + self.count_chance(what) + self.before_it_changed(what);
        let dissent = self.seen.len() - apart;
        let agree = self.count_apart(what);
        agree >= 2 && agree > dissent
    }

    /// What is to be made of the page that has come, to a user who `is_known` from before.
    fn judge(&mut self, what: Seen, is_known: bool) -> Proof {
        if self.is_most(&what) {
            if let Some(outdated) = self.proved.replace(what).filter(|proved| *proved != what) {
                self.seen.retain(|sight| sight.what != outdated);
            }
            return Proof::Given;
        }
        let is_most = |sight: &Sight| self.is_most(&sight.what);
        // All who agree at one address may yet be joined by somebody else.
        let agrees = |sight: &Sight| sight.what == what || sight.what.is_chance(&what);
        let all_agree = self.seen.iter().all(agrees);
        if self.seen.len() < PERSONAL_FROM || all_agree || self.seen.iter().any(is_most) {
            return Proof::Waits;
        }
        // Who was given what stays, so that a few who agree outvote nobody later.
        self.proved = None;
        if is_known { Proof::StillPersonal } else { Proof::Personal }
    }
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
    /// A user was given this of the page under `key`, the variant's where it has variants. `marks` are the
    /// page's, by which purges hit it.
    pub fn note(
        &self,
        key: PageKey,
        (who, what): (Witness, Seen),
        (marks, purged): (&Arc<Marks>, &Purged),
        now: u64,
    ) -> Proof {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // It was purged on its way.
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

    /// Whether an answer to this user may be the proof of the page under `key`.
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

    /// In whose fields alone something is found that may be his own.
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

        /// What becomes of answers in order, each of a user by his letter.
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
        // Of one page alone it cannot be told.
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
        // Nor is it any against those who were given the same, who are two at least.
        assert_eq!(stage.note("alice", 9, 0), Waits);
        assert_eq!(stage.note("bob", 9, 0), Given);
        // Whoever was given something of his own says so, beside two who agree.
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
                // Another one each time.
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
