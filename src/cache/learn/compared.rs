//! The answers of one page, compared: which parts all visitors see, and which only some.

use super::text_parts::TextParts;
use crate::cache::purge::PurgeSnapshot;
use crate::cache::rules::leak_kind::LeakKind;

/// The most answers of a page that are compared.
const ANSWERS_MAX: usize = 16;
/// The most answers of one visitor with the same cookies.
const OF_ONE_MAX: usize = 3;
/// The most answers with the same cookies.
const OF_COOKIES_MAX: usize = 6;

/// From how many visitors on it is no chance that each sees something again which others do not see.
const ENOUGH_VISITORS: usize = 2;
/// The most answers that are taken in, those that are replaced later among them.
const TAKEN_MAX: usize = 64;

/// A set of answers, by their places in time.
type Answers = u16;

/// A set of cookies, by their places in the table of names.
pub(super) type CookieSet = u64;

/// What is known of an answer besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSeen {
    /// Whose it is: a keyed hash.
    pub visitor: u64,
    /// The cookies of the request that no key has and that are not known to be harmless everywhere.
    pub cookies: u64,
    /// Whether the visitor would get the page that others get, by the configuration in force.
    pub is_shared: bool,
    /// Whether this visitor's answer could have become the shared page.
    pub could_fill: bool,
    /// What of the visitor's own words stands in it.
    pub finding: Option<LeakKind>,
}

/// How the answers of a page differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Not at all.
    Same,
    /// Even when one visitor asks twice.
    Noise,
    /// By something that is not known yet.
    Unexplained,
    /// By a cookie, by its place in the table of names.
    ByCookie(u32),
    /// By visitor: each sees the same again, and others do not see it.
    ByVisitor,
    /// They hold their visitor's own words.
    OwnWords(LeakKind),
}

/// What the answers of a page say of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CookieEffect {
    /// With it and without it the page is the same.
    Same,
    /// Both others would explain what was seen.
    Unclear,
    /// With it, the page differs.
    Differs,
}

/// What speaks for a difference between two sets of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    None,
    /// What time or chance would explain, too.
    Possible,
    /// What they would not. `is_own`: a part that the first set has; otherwise it lacks one.
    Certain {
        is_own: bool,
    },
}

/// The answers of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct ComparedPage {
    /// In time.
    answers: Vec<AnswerSeen>,
    /// By hash, sorted: the answers that have the part.
    parts: Vec<(u32, Answers)>,
    /// The answers until now, those that were replaced, too.
    taken: usize,
    /// Which purges outdate the answers.
    marks: Option<PurgeSnapshot>,
}

impl ComparedPage {
    /// Whether a further answer would tell something.
    #[must_use]
    pub(super) fn wants(&self, visitor: u64, cookies: CookieSet) -> bool {
        self.has_place(visitor, cookies) || self.replaceable(visitor, cookies).is_some()
    }

    fn has_place(&self, visitor: u64, cookies: CookieSet) -> bool {
        let same = || self.answers.iter().filter(|one| one.cookies == cookies);
        self.answers.len() < ANSWERS_MAX
            && same().count() < OF_COOKIES_MAX
            && same().filter(|one| one.visitor == visitor).count() < OF_ONE_MAX
    }

    /// The answer whose place a further one takes: the first and the last are what shows whether time or a visitor
    /// makes the difference. So one that comes after other cookies, or from a visitor who was here before, replaces
    /// the last one like it.
    fn replaceable(&self, visitor: u64, cookies: CookieSet) -> Option<usize> {
        if self.taken >= TAKEN_MAX {
            return None;
        }
        let is_own = |answer: &AnswerSeen| answer.visitor == visitor && answer.cookies == cookies;
        let own = self.answers.iter().filter(|answer| is_own(answer)).count();
        let returns = (1..OF_ONE_MAX).contains(&own);
        let comes_after = self.answers.last().is_some_and(|last| last.cookies != cookies);
        let is_like = |answer: &AnswerSeen| answer.cookies == cookies && !is_own(answer);
        let like = self.answers.iter().rposition(is_like)?;
        (returns || comes_after && own == 0).then_some(like)
    }

    /// Adds an answer. `marks`: which purges outdate it. `is_current`: whether no purge has. Returns whether it was
    /// added.
    pub(super) fn add(
        &mut self,
        answer: AnswerSeen,
        parts: &TextParts,
        marks: &PurgeSnapshot,
        is_current: impl Fn(&PurgeSnapshot) -> bool,
    ) -> bool {
        if self.marks.as_ref().is_some_and(|marks| !is_current(marks)) {
            // A change of the page is no difference between visitors.
            *self = Self { taken: self.taken, ..Self::default() };
        }
        if !self.has_place(answer.visitor, answer.cookies) {
            match self.replaceable(answer.visitor, answer.cookies) {
                Some(place) => self.remove(place),
                None => return false,
            }
        }
        self.marks.get_or_insert_with(|| marks.clone());
        self.taken += 1;
        let own = 1 << self.answers.len();
        self.answers.push(answer);
        let known = self.parts.len();
        for hash in parts.hashes() {
            match self.parts[..known].binary_search_by_key(hash, |(known, _)| *known) {
                Ok(place) => self.parts[place].1 |= own,
                Err(_) => self.parts.push((*hash, own)),
            }
        }
        if self.parts.len() > known {
            self.parts.sort_unstable_by_key(|(hash, _)| *hash);
        }
        true
    }

    /// Takes an answer out; those after it move up.
    fn remove(&mut self, place: usize) {
        self.answers.remove(place);
        let before: Answers = (1 << place) - 1;
        for (_, seen) in &mut self.parts {
            *seen = *seen & before | *seen >> 1 & !before;
        }
        self.parts.retain(|(_, seen)| *seen != 0);
    }

    /// How many answers there are.
    #[must_use]
    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// How many visitors they are from.
    #[must_use]
    pub(super) fn visitors(&self) -> usize {
        visitors(&self.answers).len()
    }

    fn those(&self, is_one: impl Fn(&AnswerSeen) -> bool) -> Answers {
        let places = self.answers.iter().enumerate().filter(|(_, answer)| is_one(answer));
        places.fold(0, |all, (place, _)| all | 1 << place)
    }

    /// How the answers of those who share the page differ. `None`: there are not two visitors to compare, and
    /// nothing was found.
    #[must_use]
    pub(super) fn difference(&self) -> Option<Difference> {
        let fills = self.those(|answer| answer.could_fill && answer.is_shared);
        let shared = self.those(|answer| answer.is_shared);
        let is_same =
            self.parts.iter().all(|(_, seen)| seen & shared == 0 || seen & shared == shared);
        let of_many = visitors_in(&self.answers, shared).len() > 1;
        if is_same {
            let found = self.finding(shared).filter(|_| !of_many);
            return match found {
                Some(found) => Some(Difference::OwnWords(found)),
                None => of_many.then_some(Difference::Same),
            };
        }
        if let Some(found) = self.finding(shared) {
            return Some(Difference::OwnWords(found));
        }
        let by_cookie = (0..CookieSet::BITS)
            .find(|cookie| self.compare_with(*cookie, shared) == Some(CookieEffect::Differs));
        if let Some(cookie) = by_cookie {
            return Some(Difference::ByCookie(cookie));
        }
        let masks = self.masks(shared);
        if masks.iter().any(|mask| self.is_by_visitor(self.with_cookies(*mask) & shared)) {
            return Some(Difference::ByVisitor);
        }
        let is_part = |seen: Answers| seen & fills != 0 && seen & fills != fills;
        let unexplained = |(_, seen): &(u32, Answers)| {
            is_part(*seen) && !self.is_noise(*seen, fills) && !Self::is_passing(*seen, fills)
        };
        if self.parts.iter().any(unexplained) {
            return of_many.then_some(Difference::Unexplained);
        }
        // What was seen by one visitor each is known to be noise only if it is seen again.
        let is_known = |(_, seen): &(u32, Answers)| is_part(*seen) && self.is_noise(*seen, fills);
        self.parts.iter().any(is_known).then_some(Difference::Noise)
    }

    fn finding(&self, among: Answers) -> Option<LeakKind> {
        self.places(among).find_map(|place| self.answers[place].finding)
    }

    /// What the page says of a cookie; `None`: there are no answers to compare.
    #[must_use]
    pub(super) fn effect(&self, cookie: u32) -> Option<CookieEffect> {
        self.compare_with(cookie, Answers::MAX)
    }

    /// Compares answers with the cookie to those with the same other cookies without it. Where there are none, to those
    /// that lack further cookies, too: some always come together.
    fn compare_with(&self, cookie: u32, among: Answers) -> Option<CookieEffect> {
        let (bit, masks) = (1 << cookie, self.masks(among));
        let (mut directly, mut together) = (None, None);
        for with in masks.iter().filter(|mask| *mask & bit != 0) {
            let lacks = |mask: &&CookieSet| *mask & bit == 0 && *mask & with == **mask;
            let Some(without) = masks.iter().filter(lacks).max_by_key(|mask| mask.count_ones())
            else {
                continue;
            };
            let (yes, no) = (self.with_cookies(*with) & among, self.with_cookies(*without) & among);
            let effect = Some(self.compare(yes, no));
            match with & !bit == *without {
                true => directly = directly.max(effect),
                false => together = together.max(effect),
            }
        }
        directly.or(together)
    }

    fn compare(&self, yes: Answers, no: Answers) -> CookieEffect {
        let (all, mut certain) = (yes | no, 0);
        let together = self.dividing(yes, no, all);
        let mut is_there = together != Evidence::None;
        for visitor in visitors_in(&self.answers, yes) {
            let own = self.those(|answer| answer.visitor == visitor) & yes;
            let evidence = self.dividing(own, no, all);
            is_there |= evidence != Evidence::None;
            certain += self.weight(evidence, own);
        }
        match is_there {
            false => CookieEffect::Same,
            true if certain.max(self.weight(together, yes)) >= ENOUGH_VISITORS => {
                CookieEffect::Differs
            }
            true => CookieEffect::Unclear,
        }
    }

    /// Whether visitors see again and again what no other visitor among these answers sees.
    fn is_by_visitor(&self, among: Answers) -> bool {
        let weight = |visitor| {
            let own = self.those(|answer| answer.visitor == visitor) & among;
            match self.dividing(own, among & !own, among) {
                Evidence::Certain { is_own: true } => self.weight_of(own),
                Evidence::Certain { is_own: false } | Evidence::Possible | Evidence::None => 0,
            }
        };
        let visitors = visitors_in(&self.answers, among).into_iter();
        visitors.map(weight).sum::<usize>() >= ENOUGH_VISITORS
    }

    /// Looks for parts that the answers of one set always have, and those of the other never. Noise among all of them
    /// is left out. The clock does not go back: what is seen, not seen and seen again is no matter of time, and what is
    /// seen twice is no nonce.
    fn dividing(&self, one: Answers, other: Answers, all: Answers) -> Evidence {
        let mut found = Evidence::None;
        if one == 0 || other == 0 {
            return found;
        }
        for (_, seen) in self.parts.iter().filter(|(_, seen)| !self.is_noise(*seen, all)) {
            let (mine, others) = (seen & one, seen & other);
            let evidence = match (mine == one && others == 0, mine == 0 && others == other) {
                (true, _) if surrounds(one, other) => Evidence::Certain { is_own: true },
                (_, true) if surrounds(other, one) => Evidence::Certain { is_own: false },
                (true, _) | (_, true) => Evidence::Possible,
                (false, false) => continue,
            };
            found = found.max(evidence);
        }
        found
    }

    /// For how many visitors the evidence of these answers counts.
    fn weight(&self, evidence: Evidence, answers: Answers) -> usize {
        match evidence {
            Evidence::Certain { .. } => self.weight_of(answers),
            Evidence::Possible | Evidence::None => 0,
        }
    }

    /// A visitor who saw something three times counts for two: noise of few values, such as a time in milliseconds, may
    /// be the same twice by chance.
    fn weight_of(&self, answers: Answers) -> usize {
        let visitors = visitors_in(&self.answers, answers).len();
        visitors.max(usize::from(answers.count_ones() > 2) * ENOUGH_VISITORS)
    }

    /// Whether the part was there for a time, or once: a change of the page, a clock or a nonce explains it.
    fn is_passing(seen: Answers, among: Answers) -> bool {
        !surrounds(seen & among, among & !seen)
    }

    /// Whether a visitor who asks twice with the same cookies sees the part once.
    fn is_noise(&self, seen: Answers, among: Answers) -> bool {
        self.places(among).any(|place| {
            let one = self.answers[place];
            let own =
                self.those(|other| other.visitor == one.visitor && other.cookies == one.cookies);
            let own = own & among;
            seen & own != 0 && seen & own != own
        })
    }

    fn with_cookies(&self, cookies: CookieSet) -> Answers {
        self.those(|answer| answer.cookies == cookies)
    }

    fn masks(&self, among: Answers) -> Vec<CookieSet> {
        let mut masks: Vec<_> =
            self.places(among).map(|place| self.answers[place].cookies).collect();
        masks.sort_unstable();
        masks.dedup();
        masks
    }

    fn places(&self, among: Answers) -> impl Iterator<Item = usize> {
        (0..self.answers.len()).filter(move |place| among & 1 << place != 0)
    }
}

fn visitors(answers: &[AnswerSeen]) -> Vec<u64> {
    let mut visitors: Vec<_> = answers.iter().map(|answer| answer.visitor).collect();
    visitors.sort_unstable();
    visitors.dedup();
    visitors
}

fn visitors_in(answers: &[AnswerSeen], among: Answers) -> Vec<u64> {
    let is_in = |(place, _): &(usize, &AnswerSeen)| among & 1 << place != 0;
    let chosen: Vec<_> = answers.iter().enumerate().filter(is_in).map(|(_, one)| *one).collect();
    visitors(&chosen)
}

/// Whether an answer of `inner` lies between two of `outer`.
fn surrounds(outer: Answers, inner: Answers) -> bool {
    let (first, last) = (outer.trailing_zeros(), Answers::BITS - outer.leading_zeros());
    outer.count_ones() > 1 && (first..last).any(|place| inner & 1 << place != 0)
}

#[cfg(test)]
mod tests {
    use ahash::RandomState;

    use super::*;

    const COOKIE: CookieSet = 1 << 5;

    fn page(answers: &[(u64, CookieSet, &str)]) -> ComparedPage {
        let key = RandomState::with_seeds(1, 2, 3, 4);
        let mut page = ComparedPage::default();
        for (visitor, cookies, text) in answers {
            let seen = AnswerSeen {
                visitor: *visitor,
                cookies: *cookies,
                is_shared: true,
                could_fill: true,
                finding: None,
            };
            let parts = TextParts::of(&key, b"", text.as_bytes(), true);
            page.add(seen, &parts, &PurgeSnapshot::default(), |_| true);
        }
        page
    }

    #[test]
    fn a_page_that_is_the_same_for_all_is_the_same() {
        assert_eq!(page(&[(1, 0, "a"), (1, 0, "a")]).difference(), None, "one visitor only");
        assert_eq!(page(&[(1, 0, "a"), (2, 0, "a")]).difference(), Some(Difference::Same));
        assert_eq!(page(&[(1, 0, "a"), (2, COOKIE, "a")]).difference(), Some(Difference::Same));
    }

    #[test]
    fn what_a_visitor_sees_again_and_others_do_not_is_the_visitors() {
        let (ann, bob) = ((1, 0, "Ann\nx"), (2, 0, "Bob\nx"));
        assert_eq!(page(&[ann, bob, ann, bob]).difference(), Some(Difference::ByVisitor));
        assert_eq!(page(&[ann, bob, ann, ann]).difference(), Some(Difference::ByVisitor));
        assert_eq!(
            page(&[ann, bob, ann]).difference(),
            Some(Difference::Unexplained),
            "by chance?"
        );
        let once = page(&[ann, bob, (3, 0, "Cid\nx")]);
        assert_eq!(once.difference(), None, "each may be a nonce");
    }

    #[test]
    fn a_page_that_was_changed_is_not_said_to_differ() {
        let changed =
            page(&[(1, 0, "old\nx"), (2, 0, "old\nx"), (3, 0, "new\nx"), (4, 0, "new\nx")]);
        assert_eq!(changed.difference(), None);
        let again = page(&[(1, 0, "old\nx"), (2, 0, "old\nx"), (2, 0, "new\nx"), (4, 0, "new\nx")]);
        assert_eq!(again.difference(), Some(Difference::Noise));
    }

    #[test]
    fn a_purge_begins_the_comparison_again() {
        let mut compared = page(&[(1, 0, "old"), (2, 0, "old")]);
        let key = RandomState::with_seeds(1, 2, 3, 4);
        let seen =
            AnswerSeen { visitor: 3, cookies: 0, is_shared: true, could_fill: true, finding: None };
        compared.add(
            seen,
            &TextParts::of(&key, b"", b"new", true),
            &PurgeSnapshot::default(),
            |_| false,
        );
        assert_eq!((compared.answers(), compared.difference()), (1, None));
    }

    #[test]
    fn a_nonce_and_a_clock_are_noise() {
        let nonce = page(&[(1, 0, "n1\nx"), (2, 0, "n2\nx"), (1, 0, "n3\nx"), (2, 0, "n4\nx")]);
        assert_eq!(nonce.difference(), Some(Difference::Noise));
        let clock = page(&[(1, 0, "t1\nx"), (1, 0, "t1\nx"), (2, 0, "t2\nx"), (2, 0, "t2\nx")]);
        assert_eq!(clock.difference(), None, "the clock does not go back");
        let later = page(&[
            (1, 0, "t1\nx"),
            (1, 0, "t1\nx"),
            (2, 0, "t2\nx"),
            (2, 0, "t2\nx"),
            (1, 0, "t3\nx"),
            (2, 0, "t3\nx"),
        ]);
        assert_eq!(later.difference(), Some(Difference::Noise));
    }

    #[test]
    fn a_nonce_does_not_hide_a_name() {
        let page = page(&[
            (1, 0, "n1\nAnn\n"),
            (2, 0, "n2\nBob\n"),
            (1, 0, "n3\nAnn\n"),
            (2, 0, "n4\nBob\n"),
        ]);
        assert_eq!(page.difference(), Some(Difference::ByVisitor));
    }

    #[test]
    fn noise_of_few_values_is_no_difference_between_visitors() {
        let times = page(&[(1, 0, "27\n"), (2, 0, "28\n"), (1, 0, "27\n"), (2, 0, "27\n")]);
        assert_eq!(times.difference(), Some(Difference::Noise));
        let cookie =
            page(&[(1, 0, "28\n"), (2, COOKIE, "27\n"), (1, 0, "28\n"), (2, COOKIE, "27\n")]);
        assert_ne!(cookie.effect(5), Some(CookieEffect::Same));
        let more = page(&[
            (1, 0, "28\n"),
            (2, COOKIE, "27\n"),
            (1, 0, "28\n"),
            (2, COOKIE, "27\n"),
            (3, COOKIE, "28\n"),
            (3, COOKIE, "27\n"),
        ]);
        assert_eq!(more.effect(5), Some(CookieEffect::Same));
    }

    #[test]
    fn a_page_that_differs_by_a_cookie_names_it() {
        let page =
            page(&[(1, 0, "plain"), (2, COOKIE, "dark"), (3, 0, "plain"), (4, COOKIE, "dark")]);
        assert_eq!(page.difference(), Some(Difference::ByCookie(5)));
        assert_eq!(page.effect(5), Some(CookieEffect::Differs));
        assert_eq!(page.effect(6), None);
    }

    #[test]
    fn a_cookie_without_effect_is_known_as_such() {
        let page =
            page(&[(1, 0, "n1\nx"), (2, COOKIE, "n2\nx"), (1, 0, "n3\nx"), (2, COOKIE, "n4\nx")]);
        assert_eq!(page.effect(5), Some(CookieEffect::Same));
        let once = page_of_strangers();
        assert_eq!(once.effect(5), Some(CookieEffect::Unclear), "a nonce may be anything");
    }

    fn page_of_strangers() -> ComparedPage {
        page(&[(1, 0, "n1\nx"), (2, COOKIE, "n2\nx"), (3, 0, "n3\nx")])
    }

    #[test]
    fn a_cookie_that_came_with_another_is_told_from_it() {
        let both = COOKIE | 1;
        let page = page(&[
            (1, 0, "x"),
            (2, COOKIE, "x"),
            (3, both, "x\nAnn"),
            (2, COOKIE, "x"),
            (3, both, "x\nAnn"),
            (4, both, "x\nBob"),
            (2, COOKIE, "x"),
            (4, both, "x\nBob"),
        ]);
        assert_eq!(page.effect(5), Some(CookieEffect::Same));
        assert_eq!(page.effect(0), Some(CookieEffect::Differs));
    }

    #[test]
    fn cookies_that_come_together_are_judged_together() {
        let (session, both) = (1, 1 | COOKIE | 2);
        let page = page(&[
            (1, 0, "x"),
            (2, session, "x"),
            (3, both, "x\nAnn"),
            (2, session, "x"),
            (3, both, "x\nAnn"),
            (2, session, "x"),
            (3, both, "x\nAnn"),
        ]);
        assert_eq!(page.effect(0), Some(CookieEffect::Same));
        assert_eq!(page.effect(5), Some(CookieEffect::Differs));
        assert_eq!(page.effect(1), Some(CookieEffect::Differs));
    }

    #[test]
    fn a_busy_page_has_room_for_what_comes_later() {
        let strangers = (0..50).map(|visitor| (visitor, 0, "x"));
        let ann = (90, COOKIE, "x\nAnn");
        let later = [ann, (7, 0, "x"), ann, (8, 0, "x"), ann];
        let page = page(&strangers.chain(later).collect::<Vec<_>>());
        assert_eq!(page.effect(5), Some(CookieEffect::Differs));
    }

    #[test]
    fn the_answers_of_a_page_are_bounded() {
        let many: Vec<_> = (0..1_000).map(|visitor| (visitor, visitor % 3, "x")).collect();
        let many = page(&many);
        assert_eq!((many.answers(), many.taken), (ANSWERS_MAX, TAKEN_MAX));
        let of_one: Vec<_> = (0..100).map(|_| (7, 0, "x")).collect();
        assert_eq!(page(&of_one).answers(), OF_ONE_MAX);
    }
}
