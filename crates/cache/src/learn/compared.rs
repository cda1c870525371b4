//! The answers of one page: which of them are kept to be compared.

use std::hash::{DefaultHasher, Hasher as _};

use super::answer::{AnswerSeen, Answers, CookieEffect, CookieSet, Difference};
use super::comparison::{Comparison, PartSeen};
use super::text_parts::{TextParts, is_field};
use crate::purge::PurgeSnapshot;

/// The most answers of a page that are compared.
const ANSWERS_MAX: usize = 16;
/// The most answers of one visitor with the same cookies.
const OF_ONE_MAX: usize = 3;
/// The most answers with the same cookies.
const OF_COOKIES_MAX: usize = 6;
/// The most answers that are taken in, those that are replaced later among them.
const TAKEN_MAX: usize = 64;

/// Up to so many answers with a cookie, others make room.
const OF_COOKIE_MIN: usize = 4;
/// How often they do.
const FORCED_MAX: usize = 64;

/// The answers of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct ComparedPage {
    /// In time.
    answers: Vec<AnswerSeen>,
    /// Sorted by hash.
    parts: Vec<ComparedPart>,
    /// The answers until now, those that were replaced, too.
    taken: usize,
    /// Those for which others made room.
    forced: usize,
    /// Which purges outdate the answers.
    marks: Option<PurgeSnapshot>,
    /// How they differ; `None`: there is nothing to compare.
    difference: Option<Difference>,
    /// What they say of cookies, by their places in the table of names.
    effects: Vec<(u32, CookieEffect)>,
}

/// A part of the page.
#[derive(Clone, Copy, Debug)]
struct ComparedPart {
    hash: u32,
    /// The answers that have it.
    seen: Answers,
    /// Those in which it holds the visitor's own words.
    own: Answers,
}

impl ComparedPage {
    /// Whether a further answer would tell something.
    #[must_use]
    pub(super) fn wants(&self, visitor: u64, cookies: CookieSet) -> bool {
        self.has_place(visitor, cookies)
            || self.outdated(visitor, cookies).is_some()
            || self.abundant(cookies).is_some()
    }

    fn has_place(&self, visitor: u64, cookies: CookieSet) -> bool {
        let same = || self.answers.iter().filter(|one| one.cookies == cookies);
        self.answers.len() < ANSWERS_MAX
            && same().count() < OF_COOKIES_MAX
            && same().filter(|one| one.visitor == visitor).count() < OF_ONE_MAX
    }

    /// One that says less than the further one, of the same cookies: the first and the last are what shows whether time
    /// or a visitor makes the difference. So one that comes after other cookies, or from a visitor that was here before,
    /// replaces the last one like it.
    fn outdated(&self, visitor: u64, cookies: CookieSet) -> Option<usize> {
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

    /// One whose cookies many answers have, if the further one has a cookie that few have: so there is room for it
    /// whatever came first.
    fn abundant(&self, cookies: CookieSet) -> Option<usize> {
        if self.answers.len() < ANSWERS_MAX || self.forced >= FORCED_MAX {
            return None;
        }
        let with = |is_one: &dyn Fn(CookieSet) -> bool| {
            self.answers.iter().filter(|one| is_one(one.cookies)).count()
        };
        // How many answers have the rarest of these cookies; of none, how many have none.
        let rarest = |cookies: CookieSet| {
            let counts = bits(cookies).map(|bit| with(&|own| own & bit != 0));
            counts.min().unwrap_or_else(|| with(&|own| own == 0))
        };
        let few = rarest(cookies);
        let places = (0..self.answers.len()).map(|at| (rarest(self.answers[at].cookies), at));
        let (many, place) = places.max()?;
        (cookies != 0 && few < OF_COOKIE_MIN && many > few + 1).then_some(place)
    }

    /// Adds an answer. `marks`: which purges outdate it. `is_current`: whether no purge has.
    pub(super) fn add(
        &mut self,
        answer: AnswerSeen,
        parts: &TextParts,
        marks: &PurgeSnapshot,
        is_current: impl Fn(&PurgeSnapshot) -> bool,
    ) {
        if self.marks.as_ref().is_some_and(|marks| !is_current(marks)) {
            // A change of the page is no difference between visitors.
            *self = Self { taken: self.taken, forced: self.forced, ..Self::default() };
        }
        if !self.has_place(answer.visitor, answer.cookies) {
            let outdated = self.outdated(answer.visitor, answer.cookies);
            let Some(place) = outdated.or_else(|| self.abundant(answer.cookies)) else { return };
            self.forced += usize::from(outdated.is_none());
            self.remove(place);
        }
        self.marks.get_or_insert_with(|| marks.clone());
        self.taken += 1;
        let answer_bit: Answers = 1 << self.answers.len();
        self.answers.push(answer);
        let known = self.parts.len();
        for part in parts.parts() {
            let own = if part.is_own { answer_bit } else { 0 };
            match self.parts[..known].binary_search_by_key(&part.hash, |known| known.hash) {
                Ok(place) => {
                    let known = &mut self.parts[place];
                    (known.seen, known.own) = (known.seen | answer_bit, known.own | own);
                }
                Err(_) => {
                    self.parts.push(ComparedPart { hash: part.hash, seen: answer_bit, own });
                }
            }
        }
        if self.parts.len() > known {
            self.parts.sort_unstable_by_key(|part| part.hash);
        }
        self.compare();
    }

    /// Compares now, once for each answer, so that a report has nothing to find out.
    fn compare(&mut self) {
        let parts = self.parts.iter().map(|part| PartSeen {
            is_field: is_field(part.hash),
            seen: part.seen,
            own: part.own,
        });
        let comparison = Comparison::new(&self.answers, parts);
        let (difference, effects) = (comparison.difference(), comparison.effects());
        (self.difference, self.effects) = (difference, effects);
    }

    /// Takes an answer out; those after it move up.
    fn remove(&mut self, place: usize) {
        self.answers.remove(place);
        let before: Answers = (1 << place) - 1;
        let without = |answers: Answers| answers & before | answers >> 1 & !before;
        for part in &mut self.parts {
            (part.seen, part.own) = (without(part.seen), without(part.own));
        }
        self.parts.retain(|part| part.seen != 0);
    }

    /// Takes out the answers with a cookie whose place another one gets.
    pub(super) fn forget(&mut self, cookie: CookieSet) {
        let before = self.answers.len();
        while let Some(place) = self.answers.iter().position(|one| one.cookies & cookie != 0) {
            self.remove(place);
        }
        if self.answers.len() < before {
            self.compare();
        }
    }

    /// One hash of the first answer but for its fields; `None`: there is none.
    #[must_use]
    pub(super) fn content(&self) -> Option<u64> {
        let first = self.parts.iter().filter(|part| part.seen & 1 != 0 && !is_field(part.hash));
        // The hashes are keyed already.
        let mut content = DefaultHasher::new();
        first.for_each(|part| content.write_u32(part.hash));
        (!self.answers.is_empty()).then(|| content.finish())
    }

    /// How many answers there are.
    #[must_use]
    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }

    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The visitors that they are from.
    pub(super) fn visitors(&self) -> impl Iterator<Item = u64> {
        self.answers.iter().map(|answer| answer.visitor)
    }

    /// How the answers of those who share the page differ. `None`: there are not two visitors to compare, and
    /// nothing was found.
    #[must_use]
    pub(super) fn difference(&self) -> Option<Difference> {
        self.difference
    }

    /// What the page says of a cookie; `None`: there are no answers to compare.
    #[must_use]
    pub(super) fn effect(&self, cookie: u32) -> Option<CookieEffect> {
        let effect = self.effects.iter().find(|(place, _)| *place == cookie);
        effect.map(|(_, effect)| *effect)
    }
}

/// The cookies of a set, one by one.
fn bits(cookies: CookieSet) -> impl Iterator<Item = CookieSet> {
    (0..CookieSet::BITS).map(|place| 1 << place).filter(move |bit| cookies & bit != 0)
}

#[cfg(test)]
mod tests {
    use ::http::HeaderMap;
    use ahash::RandomState;

    use super::super::text_parts::AnswerText;
    use super::*;

    const COOKIE: CookieSet = 1 << 5;

    fn parts_of(key: &RandomState, text: &str) -> TextParts {
        let fields = HeaderMap::new();
        let answer =
            AnswerText { head: b"", fields: &fields, body: text.as_bytes(), is_text: true };
        TextParts::of(key, &answer, None)
    }

    fn page(answers: &[(u64, CookieSet, &str)]) -> ComparedPage {
        let key = RandomState::with_seeds(1, 2, 3, 4);
        let mut page = ComparedPage::default();
        for (visitor, cookies, text) in answers {
            let seen = AnswerSeen {
                visitor: *visitor,
                renewed_known: 0,
                cookies: *cookies,
                is_shared: true,
                could_fill: true,
                finding: None,
            };
            let parts = parts_of(&key, text);
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
        let seen = AnswerSeen {
            visitor: 3,
            renewed_known: 0,
            cookies: 0,
            is_shared: true,
            could_fill: true,
            finding: None,
        };
        compared.add(seen, &parts_of(&key, "new"), &PurgeSnapshot::default(), |_| false);
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
        let once = [(1, 0, "plain"), (2, COOKIE, "dark"), (3, 0, "plain"), (4, COOKIE, "dark")];
        assert_eq!(page(&once).effect(5), Some(CookieEffect::Unclear), "chance may do the same");
        let page = page(&[&once[..], &once[..]].concat());
        assert_eq!(page.difference(), Some(Difference::ByCookie(5)));
        assert_eq!(page.effect(5), Some(CookieEffect::Differs));
        assert_eq!(page.effect(6), None);
    }

    #[test]
    fn a_cookie_of_one_visitor_is_not_said_to_have_no_effect() {
        let page = page(&[(1, 0, "en"), (2, COOKIE, "de"), (1, 0, "en"), (2, COOKIE, "de")]);
        assert_eq!(page.effect(5), Some(CookieEffect::Likely));
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
    fn a_page_full_of_other_cookies_has_room_for_one_that_no_answer_has() {
        let others = (0..40_u64).map(|set| (set, set << 10, "x"));
        let (ann, bob) = ((90, COOKIE, "x\nAnn"), (91, COOKIE, "x\nBob"));
        let (one, other) = ((1, 1 << 10, "x"), (2, 0, "x"));
        let later = [ann, one, bob, other].repeat(4);
        let page = page(&others.chain(later).collect::<Vec<_>>());
        assert!(page.difference() >= Some(Difference::ByCookie(5)), "{:?}", page.difference());
        assert_eq!(page.answers(), ANSWERS_MAX);
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
