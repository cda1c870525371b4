//! The answers of one page, compared: which parts all visitors see, and which only some.

use crate::cache::rules::leak_kind::LeakKind;

use super::text_parts::TextParts;

/// The most answers of a page that are compared.
const ANSWERS_MAX: usize = 16;
/// The most answers of one visitor with the same cookies.
const OF_ONE_MAX: usize = 3;
/// The most answers with the same cookies.
const OF_COOKIES_MAX: usize = 6;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CookieEffect {
    /// With it and without it the page is the same.
    Same,
    /// With it, the page differs.
    Differs,
    /// Both would explain what was seen.
    Unclear,
}

/// The answers of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct ComparedPage {
    answers: Vec<AnswerSeen>,
    /// By hash, sorted: the answers that have the part.
    parts: Vec<(u32, Answers)>,
}

impl ComparedPage {
    /// Whether a further answer would tell something.
    #[must_use]
    pub(super) fn wants(&self, visitor: u64, cookies: u64) -> bool {
        let same = || self.answers.iter().filter(|one| one.cookies == cookies);
        self.answers.len() < ANSWERS_MAX
            && same().count() < OF_COOKIES_MAX
            && same().filter(|one| one.visitor == visitor).count() < OF_ONE_MAX
    }

    /// Adds an answer. Returns how many parts are new.
    pub(super) fn add(&mut self, answer: AnswerSeen, parts: &TextParts) -> usize {
        if !self.wants(answer.visitor, answer.cookies) {
            return 0;
        }
        let own = 1 << self.answers.len();
        self.answers.push(answer);
        let known = self.parts.len();
        for hash in parts.hashes() {
            match self.parts[..known].binary_search_by_key(hash, |(known, _)| *known) {
                Ok(place) => self.parts[place].1 |= own,
                Err(_) => self.parts.push((*hash, own)),
            }
        }
        let added = self.parts.len() - known;
        if added > 0 {
            self.parts.sort_unstable_by_key(|(hash, _)| *hash);
        }
        added
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
            return found.map(Difference::OwnWords).or(of_many.then_some(Difference::Same));
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
        let unexplained = |(_, seen): &(u32, Answers)| {
            seen & fills != 0 && seen & fills != fills && !self.is_noise(*seen, fills)
        };
        if self.parts.iter().any(unexplained) {
            return of_many.then_some(Difference::Unexplained);
        }
        Some(Difference::Noise)
    }

    fn finding(&self, among: Answers) -> Option<LeakKind> {
        self.places(among).find_map(|place| self.answers[place].finding)
    }

    /// What the page says of a cookie; `None`: there are no answers to compare.
    #[must_use]
    pub(super) fn effect(&self, cookie: u32) -> Option<CookieEffect> {
        self.compare_with(cookie, Answers::MAX)
    }

    /// Compares answers with the cookie to those with the same other cookies without it.
    fn compare_with(&self, cookie: u32, among: Answers) -> Option<CookieEffect> {
        let bit = 1 << cookie;
        let mut found = None;
        for with in self.masks(among).into_iter().filter(|mask| mask & bit != 0) {
            let (yes, no) =
                (self.with_cookies(with) & among, self.with_cookies(with & !bit) & among);
            if no == 0 {
                continue;
            }
            match self.compare(yes, no) {
                CookieEffect::Differs => return Some(CookieEffect::Differs),
                CookieEffect::Unclear => found = Some(CookieEffect::Unclear),
                CookieEffect::Same => found = found.or(Some(CookieEffect::Same)),
            }
        }
        found
    }

    fn compare(&self, yes: Answers, no: Answers) -> CookieEffect {
        let mut effect = CookieEffect::Same;
        for visitor in visitors_in(&self.answers, yes) {
            let own = self.those(|answer| answer.visitor == visitor) & yes;
            // A part that one side always has, and the other never. The clock does not go back: what is seen, not
            // seen and seen again is no matter of time, and what is seen twice is no nonce.
            let (mut divides, mut is_sure) = (false, false);
            for (_, seen) in &self.parts {
                let (mine, others) = (seen & own, seen & no);
                if mine == own && others == 0 {
                    divides = true;
                    is_sure |= surrounds(own, no);
                } else if mine == 0 && others == no {
                    divides = true;
                    is_sure |= surrounds(no, own);
                }
            }
            match (divides, is_sure) {
                (true, true) => return CookieEffect::Differs,
                (true, false) => effect = CookieEffect::Unclear,
                (false, _) => {}
            }
        }
        effect
    }

    /// Whether a visitor sees again and again what no other visitor among these answers sees.
    fn is_by_visitor(&self, among: Answers) -> bool {
        visitors_in(&self.answers, among).into_iter().any(|visitor| {
            let own = self.those(|answer| answer.visitor == visitor) & among;
            let others = among & !own;
            let is_own = |(_, seen): &(u32, Answers)| seen & own == own && seen & others == 0;
            surrounds(own, others) && self.parts.iter().any(is_own)
        })
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
            page.add(seen, &TextParts::of(&key, b"", text.as_bytes(), true));
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
        let two = page(&[(1, 0, "Ann\nx"), (2, 0, "Bob\nx"), (1, 0, "Ann\nx")]);
        assert_eq!(two.difference(), Some(Difference::ByVisitor));
        let once = page(&[(1, 0, "Ann\nx"), (2, 0, "Bob\nx")]);
        assert_eq!(once.difference(), Some(Difference::Unexplained));
    }

    #[test]
    fn a_nonce_and_a_clock_are_noise() {
        let nonce = page(&[(1, 0, "n1\nx"), (2, 0, "n2\nx"), (1, 0, "n3\nx"), (2, 0, "n4\nx")]);
        assert_eq!(nonce.difference(), Some(Difference::Noise));
        let clock = page(&[(1, 0, "t1\nx"), (1, 0, "t1\nx"), (2, 0, "t2\nx"), (2, 0, "t2\nx")]);
        assert_eq!(clock.difference(), Some(Difference::Unexplained), "the clock does not go back");
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
        let page = page(&[(1, 0, "n1\nAnn\n"), (2, 0, "n2\nBob\n"), (1, 0, "n3\nAnn\n")]);
        assert_eq!(page.difference(), Some(Difference::ByVisitor));
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
        ]);
        assert_eq!(page.effect(5), Some(CookieEffect::Same));
        assert_eq!(page.effect(0), Some(CookieEffect::Differs));
    }

    #[test]
    fn the_answers_of_a_page_are_bounded() {
        let many: Vec<_> = (0..1_000).map(|visitor| (visitor, visitor % 3, "x")).collect();
        assert_eq!(page(&many).answers(), ANSWERS_MAX);
        let of_one: Vec<_> = (0..100).map(|_| (7, 0, "x")).collect();
        assert_eq!(page(&of_one).answers(), OF_ONE_MAX);
    }
}
