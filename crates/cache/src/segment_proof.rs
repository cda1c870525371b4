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
use anteroom_http::coding::Coding;
use anteroom_http::date;
use anteroom_http::ident::{PageKey, User};
use bytes::Bytes;
use quick_cache::sync::Cache;
use sha2::{Digest as _, Sha256};

use crate::entry::Entry;
use crate::purge::{PurgeSnapshot, PurgeTable};
use crate::recoded;

/// The most pages for which answers are remembered; the least recently used are evicted first.
const PAGES_MAX: usize = 16_384;
/// How long the answer to a user is remembered, in seconds.
const REMEMBERED_FOR: u64 = 3_600;
/// The most users whose answers are remembered for a page; the oldest is dropped first. Fewer than half of
/// them cannot keep the page from the others.
const USERS_MAX: usize = 16;
/// With at least this many remembered users, most of whom were given different versions, a page is personal.
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

/// Identifies a user for the proof: by name, so that two sessions of one user count once; and by network
/// address, because the app gets the client's address, which is not part of any key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    user: [u8; 32],
    /// `None`: the app got no address.
    address: Option<u128>,
}

impl Witness {
    /// The witness for a user and the address that the app got.
    #[must_use]
    pub fn new(user: &User, address: Option<IpAddr>) -> Self {
        let place = address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            // One site has a whole /64.
            IpAddr::V6(address) => address.to_bits() >> 64 << 64,
        });
        Self { user: Sha256::digest(user.as_bytes()).into(), address: place }
    }

    fn is_same_user(&self, other: &Self) -> bool {
        self.user == other.user
    }

    /// Whether two equal answers to these witnesses show that the page depends on neither the user nor the
    /// address.
    fn is_another(&self, other: &Self) -> bool {
        !self.is_same_user(other) && (self.address.is_none() || self.address != other.address)
    }
}

/// A fingerprint of what a user was given: everything that others would be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFingerprint {
    /// Hash of status and fields.
    fields: [u8; 32],
    /// Hash of status, fields and body; `None` if the body was not read.
    whole: Option<[u8; 32]>,
    /// Whether it contains something that may be the user's personal data.
    holds_own: bool,
}

impl ResponseFingerprint {
    /// The fingerprint of a page: its status, fields and decoded body. Fields that hold a date are ignored,
    /// because they tell when the page was made. A body that cannot be decoded within `max_decoded` bytes is
    /// hashed as it is.
    #[must_use]
    pub fn of(head: &Entry, body: &Bytes, max_decoded: usize) -> Self {
        let fields = fields_of(head.status, &head.fields.map(), head.stored_at);
        let mut hash = Sha256::new();
        hash.update(fields);
        let mut field = |bytes: &[u8]| put(&mut hash, bytes);
        field(head.reason.as_deref().unwrap_or_default());
        let coding = head.fields.coding.filter(|coding| *coding != Coding::Identity);
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

/// Whether a field states when the page was made, or the length of the page in its coding.
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
struct Sighting {
    who: Witness,
    what: ResponseFingerprint,
    /// When the user was last given it, in Unix time.
    at: u64,
}

#[derive(Clone, Debug, Default)]
struct ProofRecord {
    /// The position of the latest of them in the order of purges. An answer from before a purge proves
    /// nothing after it.
    purge_snapshot: Arc<PurgeSnapshot>,
    /// The version of the page that was proved last.
    proved: Option<ResponseFingerprint>,
    /// What each user was given, in the order in which each was first given it.
    seen: Vec<Sighting>,
}

impl ProofRecord {
    /// Forgets answers that are too old or were purged.
    fn forget_old(&mut self, purged: &PurgeTable, now: u64) {
        if !purged.is_current(&self.purge_snapshot) {
            *self = Self::default();
        }
        self.seen.retain(|sight| now < sight.at.saturating_add(REMEMBERED_FOR));
        // A proof expires with the answers that support it.
        self.proved = self.proved.filter(|proved| self.count(proved) > 0);
    }

    /// Whether the possible personal data is a coincidence. The user was then given the common page, so
    /// earlier answers to this user are dropped as evidence.
    fn is_chance(&mut self, who: &Witness, what: &ResponseFingerprint) -> bool {
        let others = self.seen.iter().filter(|sight| !sight.who.is_same_user(who));
        let is_chance = others.into_iter().any(|sight| what.is_chance(&sight.what));
        if is_chance {
            self.seen.retain(|sight| !sight.who.is_same_user(who));
        }
        is_chance
    }

    /// Records an answer. Each user takes one place, for any number of answers.
    fn see(&mut self, who: Witness, what: ResponseFingerprint, at: u64) {
        let is_same = |sight: &&mut Sighting| sight.who.is_same_user(&who) && sight.what == what;
        if let Some(same) = self.seen.iter_mut().find(is_same) {
            (same.who, same.at) = (who, at);
            return;
        }
        self.seen.retain(|sight| !sight.who.is_same_user(&who));
        if self.seen.len() >= USERS_MAX {
            self.seen.remove(0);
        }
        self.seen.push(Sighting { who, what, at });
    }

    fn count(&self, what: &ResponseFingerprint) -> usize {
        self.seen.iter().filter(|sight| sight.what == *what).count()
    }

    /// The number of users who were given this page with a coincidence in it.
    fn count_chance(&self, what: &ResponseFingerprint) -> usize {
        self.seen.iter().filter(|sight| sight.what.is_chance(what)).count()
    }

    /// The number of users who were given this page, with one counted per address.
    fn count_apart(&self, what: &ResponseFingerprint) -> usize {
        let agreeing = self.seen.iter().filter(|sight| sight.what == *what);
        let all: Vec<Witness> = agreeing.map(|sight| sight.who).collect();
        let is_first = |(at, who): &(usize, &Witness)| all[..*at].iter().all(|o| o.is_another(who));
        all.iter().enumerate().filter(is_first).count()
    }

    /// The number of answers that match the segment's page before it changed to `what`: they do not count
    /// against the new version.
    fn before_it_changed(&self, what: &ResponseFingerprint) -> usize {
        let Some(proved) = self.proved.filter(|proved| proved != what) else { return 0 };
        let before = self.seen.iter().take_while(|sight| sight.what != *what);
        before.filter(|sight| sight.what == proved).count()
    }

    /// Whether most remembered users, and at least two, were given this page.
    fn is_most(&self, what: &ResponseFingerprint) -> bool {
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
    fn judge(&mut self, what: ResponseFingerprint, is_known: bool) -> Proof {
        if self.is_most(&what) {
            if let Some(outdated) = self.proved.replace(what).filter(|proved| *proved != what) {
                self.seen.retain(|sight| sight.what != outdated);
            }
            return Proof::Given;
        }
        let is_most = |sight: &Sighting| self.is_most(&sight.what);
        // Users with equal answers but one address may still be joined by a user at another address.
        let agrees = |sight: &Sighting| sight.what == what || sight.what.is_chance(&what);
        let all_agree = self.seen.iter().all(agrees);
        if self.seen.len() < PERSONAL_FROM || all_agree || self.seen.iter().any(is_most) {
            return Proof::Waits;
        }
        // The answers stay remembered, so that a few users with equal answers do not outvote the others
        // later.
        self.proved = None;
        if is_known { Proof::StillPersonal } else { Proof::Personal }
    }
}

/// The answers given for each page. Shared by all threads.
#[derive(Debug)]
pub struct SegmentProofs {
    pages: Cache<PageKey, ProofRecord>,
    /// Serialises two answers that arrive together, so that each takes the other into account.
    turn: Mutex<()>,
}

impl Default for SegmentProofs {
    fn default() -> Self {
        Self { pages: Cache::new(PAGES_MAX), turn: Mutex::default() }
    }
}

impl SegmentProofs {
    /// Records that a user was given this as the page under `key`, which is the variant's key if there are
    /// variants. `snapshot` is the page's, for purges.
    pub fn note(
        &self,
        key: PageKey,
        who: Witness,
        what: ResponseFingerprint,
        snapshot: &Arc<PurgeSnapshot>,
        purged: &PurgeTable,
        now: u64,
    ) -> Proof {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // The page was purged while the answer was on its way.
        if !purged.is_current(snapshot) {
            return Proof::Waits;
        }
        let mut known = self.pages.get(&key).unwrap_or_default();
        known.forget_old(purged, now);
        known.purge_snapshot = Arc::clone(snapshot);
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
    pub fn may_prove(&self, key: &PageKey, who: Witness, purged: &PurgeTable, now: u64) -> bool {
        self.pages.peek(key).is_some_and(|mut known| {
            known.forget_old(purged, now);
            known.seen.iter().any(|sight| sight.who.is_another(&who))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purge::scope::Scope;

    use Proof::{Given, Personal, StillPersonal, Waits};

    const KEY: PageKey = PageKey([1; 32]);

    fn who(name: &str) -> Witness {
        Witness::new(&User::new(name.as_bytes()).unwrap(), None)
    }

    fn at(name: &str, address: &str) -> Witness {
        Witness::new(&User::new(name.as_bytes()).unwrap(), Some(address.parse().unwrap()))
    }

    fn what(page: u8) -> ResponseFingerprint {
        ResponseFingerprint { fields: [page / 10; 32], whole: Some([page; 32]), holds_own: false }
    }

    /// An answer with possible personal data in its fields only.
    fn in_fields(page: u8) -> ResponseFingerprint {
        ResponseFingerprint { whole: None, ..what(page).with_own() }
    }

    struct ProofStage {
        segment_proofs: SegmentProofs,
        purged: PurgeTable,
        snapshot: Arc<PurgeSnapshot>,
    }

    impl ProofStage {
        fn new() -> Self {
            let purged = PurgeTable::new(false);
            let snapshot = Arc::new(purged.now(&[Scope::Tag(b"a").digest()]));
            Self { segment_proofs: SegmentProofs::default(), purged, snapshot }
        }

        fn note(&self, name: &str, page: u8, now: u64) -> Proof {
            self.give(name, what(page), now)
        }

        fn give(&self, name: &str, what: ResponseFingerprint, now: u64) -> Proof {
            self.segment_proofs.note(KEY, who(name), what, &self.snapshot, &self.purged, now)
        }

        fn may_prove(&self, name: &str) -> bool {
            self.segment_proofs.may_prove(&KEY, who(name), &self.purged, 0)
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
        let stage = ProofStage::new();
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
            let stage = ProofStage::new();
            let note = |who| {
                stage.segment_proofs.note(KEY, who, what(1), &stage.snapshot, &stage.purged, 0)
            };
            assert_eq!(note(at("alice", one)), Waits);
            let may_prove =
                stage.segment_proofs.may_prove(&KEY, at("bob", other), &stage.purged, 0);
            assert_eq!(may_prove, is_proof, "{one} {other}");
            assert_eq!(note(at("bob", other)) == Given, is_proof, "{one} {other}");
            assert_eq!(note(at("alice", "198.51.100.1")), Given, "she asks from elsewhere");
        }
    }

    #[test]
    fn users_at_one_address_wait_for_a_user_at_another_address() {
        let stage = ProofStage::new();
        let note =
            |who| stage.segment_proofs.note(KEY, who, what(1), &stage.snapshot, &stage.purged, 0);
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
        ProofStage::play(&steps);
    }

    #[test]
    fn two_equal_answers_do_not_outvote_the_others() {
        ProofStage::play(&[
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
    fn a_different_later_answer_revokes_the_proof() {
        ProofStage::play(&[
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
        let stage = ProofStage::new();
        assert_eq!(stage.note("alice", 1, 0), Waits);
        for page in 10..30 {
            assert_eq!(stage.note("mallory", page, 0), Waits, "one user takes one place");
        }
        assert_eq!(stage.note("bob", 1, 0), Given);
    }

    #[test]
    fn users_named_like_words_of_a_page_do_not_block_its_proof() {
        let stage = ProofStage::new();
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
        assert_eq!(stage.give("shop", what(12).with_own(), 0), Waits, "that answer differs");
        assert_eq!(stage.give("shop", what(11).with_own(), 0), Waits, "and takes it back");
    }

    #[test]
    fn answers_with_personal_data_are_no_proof() {
        let stage = ProofStage::new();
        for name in ["mallory", "mallory-2", "mallory-3"] {
            assert_eq!(stage.give(name, what(9).with_own(), 0), Waits, "{name}");
        }
        // Nor is it evidence against the users with the same answer, at least two of them.
        assert_eq!(stage.note("alice", 9, 0), Waits);
        assert_eq!(stage.note("bob", 9, 0), Given);
        // A user with personal data on the page counts against two users with equal answers.
        let stage = ProofStage::new();
        stage.give("alice", what(11).with_own(), 0);
        stage.give("bob", in_fields(21), 0);
        stage.note("mallory", 9, 0);
        assert_ne!(stage.note("mallory-2", 9, 0), Given);
    }

    #[test]
    fn a_few_users_with_personal_pages_are_outvoted() {
        let stage = ProofStage::new();
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
        ProofStage::play(&[
            ("a", 1, Waits),
            ("b", 2, Waits),
            ("c", 3, Waits),
            ("d", 4, Personal),
            ("e", 5, Personal),
        ]);
    }

    #[test]
    fn an_answer_expires_and_does_not_count_for_another_page() {
        let stage = ProofStage::new();
        assert_eq!(stage.note("alice", 1, 0), Waits);
        let (proofs, snapshot, purged) = (&stage.segment_proofs, &stage.snapshot, &stage.purged);
        let other = proofs.note(PageKey([2; 32]), who("bob"), what(1), snapshot, purged, 1);
        assert_eq!(other, Waits);
        assert_eq!(stage.note("bob", 1, REMEMBERED_FOR), Waits);
        assert_eq!(stage.note("carol", 1, REMEMBERED_FOR + 1), Given);
        assert_eq!(
            stage.note("carol", 1, 2 * REMEMBERED_FOR),
            Waits,
            "a proof is as old as the last of its answers"
        );
    }

    #[test]
    fn a_purge_takes_the_proof_and_all_that_was_seen_along() {
        let mut stage = ProofStage::new();
        let purge = |stage: &mut ProofStage| {
            stage.purged.purge_later(&[Scope::Tag(b"a").purge_target(false)]);
            std::mem::replace(
                &mut stage.snapshot,
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
        let snapshot = std::mem::replace(&mut stage.snapshot, from_before);
        assert_eq!(stage.note("bob", 1, 0), Waits, "it was purged on its way");
        stage.snapshot = snapshot;
        assert_eq!(stage.note("carol", 1, 0), Given);
    }
}
