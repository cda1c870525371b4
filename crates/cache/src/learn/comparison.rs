//! What the answers of a page show: evidence that a visitor, a cookie or noise makes the difference.

use super::answer::{AnswerSeen, Answers, CookieEffect, CookieSet, Difference};
use crate::rules::leak_kind::LeakKind;

/// From how many visitors on it is no chance that each sees something again which others do not see.
const ENOUGH_VISITORS: usize = 2;

/// In how many answers a part of a page with noise stands before it is evidence by itself.
const NOISE_ANSWERS: u32 = 4;

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

/// A part of a page, and the answers that have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartSeen {
    /// Whether it is a field of the head.
    pub(super) is_field: bool,
    pub(super) seen: Answers,
    /// The answers in which it holds the visitor's own words.
    pub(super) own: Answers,
}

/// The answers of a page, side by side.
#[derive(Debug)]
pub(super) struct Comparison<'p> {
    /// In time.
    answers: &'p [AnswerSeen],
    /// For each part the answers that have it; of parts that the same answers have, one.
    parts: Vec<Answers>,
    /// The answers of each visitor who asked twice or more with the same cookies.
    twice: Vec<Answers>,
    /// Whether one of these visitors saw a part once and not again.
    has_noise: bool,
    /// The parts with own words: the answers that have them, and those whose visitor's words these are.
    own: Vec<(Answers, Answers)>,
}

impl<'p> Comparison<'p> {
    pub(super) fn new(answers: &'p [AnswerSeen], parts: impl Iterator<Item = PartSeen>) -> Self {
        let like = |one: &AnswerSeen| {
            those(answers, |other| other.visitor == one.visitor && other.cookies == one.cookies)
        };
        let mut twice: Vec<Answers> = answers.iter().map(like).collect();
        twice.retain(|own| own.count_ones() > 1);
        twice.sort_unstable();
        twice.dedup();
        let (parts, own) = (Vec::new(), parts.collect::<Vec<_>>());
        let mut comparison = Self { answers, parts, twice, has_noise: false, own: Vec::new() };
        // A field that is another each time is the number of the request, or a clock: no page is different by it.
        let matters = |part: &PartSeen| {
            !part.is_field
                || part.own != 0
                || part.seen.count_ones() > 1 && !comparison.is_noise(part.seen, Answers::MAX)
        };
        let parts: Vec<PartSeen> = own.into_iter().filter(matters).collect();
        comparison.own =
            parts.iter().filter(|part| part.own != 0).map(|part| (part.seen, part.own)).collect();
        comparison.parts = parts.iter().map(|part| part.seen).collect();
        comparison.parts.sort_unstable();
        comparison.parts.dedup();
        let is_noise = |seen: &Answers| comparison.is_noise(*seen, Answers::MAX);
        comparison.has_noise = comparison.parts.iter().any(is_noise);
        comparison
    }

    fn those(&self, is_one: impl Fn(&AnswerSeen) -> bool) -> Answers {
        those(self.answers, is_one)
    }

    /// How the answers of those who share the page differ. `None`: there are not two visitors to compare, and
    /// nothing was found.
    #[must_use]
    pub(super) fn difference(&self) -> Option<Difference> {
        let fills = self.those(|answer| answer.could_fill && answer.is_shared);
        let shared = self.those(|answer| answer.is_shared);
        let is_same = self.parts.iter().all(|seen| seen & shared == 0 || seen & shared == shared);
        let of_many = visitors_in(self.answers, shared).len() > 1;
        if is_same {
            let found = self.findings(shared).next().filter(|_| !of_many);
            return match found {
                Some((_, found)) => Some(Difference::OwnWords(found)),
                None => of_many.then_some(Difference::Same),
            };
        }
        let counts = |place: usize| !of_many || !self.is_said_to_all(place, shared);
        if let Some((_, found)) = self.findings(shared).find(|(place, _)| counts(*place)) {
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
        let unexplained = |seen: &Answers| {
            is_part(*seen) && !self.is_noise(*seen, fills) && !Self::is_passing(*seen, fills)
        };
        if self.parts.iter().any(unexplained) {
            // As long as no visitor has asked twice, all of it may be noise.
            let is_judged = of_many && self.twice.iter().any(|own| own & fills != 0);
            return is_judged.then_some(Difference::Unexplained);
        }
        // What was seen by one visitor each is known to be noise only if it is seen again.
        let is_known = |seen: &Answers| is_part(*seen) && self.is_noise(*seen, fills);
        self.parts.iter().any(is_known).then_some(Difference::Noise)
    }

    fn findings(&self, among: Answers) -> impl Iterator<Item = (usize, LeakKind)> {
        self.places(among).filter_map(|place| Some((place, self.answers[place].finding?)))
    }

    /// Whether the words that are the visitor's own in this answer stand in all of them alike: a cookie's value may be a
    /// word of the page.
    fn is_said_to_all(&self, place: usize, among: Answers) -> bool {
        let mut parts = self.own.iter().filter(|(_, own)| own & 1 << place != 0).peekable();
        parts.peek().is_some() && parts.all(|(seen, _)| seen & among == among)
    }

    /// What the page says of the cookies that came, by their places in the table of names.
    pub(super) fn effects(&self) -> Vec<(u32, CookieEffect)> {
        let came = self.answers.iter().fold(0, |all, answer| all | answer.cookies);
        let came = (0..CookieSet::BITS).filter(|cookie| came & 1 << cookie != 0);
        came.filter_map(|cookie| Some((cookie, self.compare_with(cookie, Answers::MAX)?))).collect()
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
        for visitor in visitors_in(self.answers, yes) {
            let own = self.those(|answer| answer.visitor == visitor) & yes;
            let evidence = self.dividing(own, no, all);
            is_there |= evidence != Evidence::None;
            certain += self.weight(evidence, own);
        }
        match certain.max(self.weight(together, yes)) {
            ENOUGH_VISITORS.. => CookieEffect::Differs,
            1.. => CookieEffect::Likely,
            0 if is_there => CookieEffect::Unclear,
            0 => CookieEffect::Same,
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
        let visitors = visitors_in(self.answers, among).into_iter();
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
        let is_of_one = visitors_in(self.answers, one).len() == 1;
        for seen in self.parts.iter().filter(|seen| !self.is_noise(**seen, all)) {
            let (mine, others) = (seen & one, seen & other);
            let evidence = match (mine == one && others == 0, mine == 0 && others == other) {
                // What one visitor has is weighed with what others have.
                (true, _) if surrounds(one, other) && (is_of_one || self.outweighs_noise(one)) => {
                    Evidence::Certain { is_own: true }
                }
                (_, true) if surrounds(other, one) && self.outweighs_noise(other) => {
                    Evidence::Certain { is_own: false }
                }
                (true, _) | (_, true) => Evidence::Possible,
                (false, false) => continue,
            };
            found = found.max(evidence);
        }
        found
    }

    /// Whether so many answers have a part that it is no noise of few values, where the page has noise, or no visitor has
    /// asked twice, so that it is not known to have none.
    fn outweighs_noise(&self, answers: Answers) -> bool {
        !self.has_noise && !self.twice.is_empty()
            || answers.count_ones() >= NOISE_ANSWERS
                && visitors_in(self.answers, answers).len() >= ENOUGH_VISITORS
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
        let visitors = visitors_in(self.answers, answers).len();
        visitors.max(usize::from(answers.count_ones() > 2) * ENOUGH_VISITORS)
    }

    /// Whether the part was there for a time, or once: a change of the page, a clock or a nonce explains it.
    fn is_passing(seen: Answers, among: Answers) -> bool {
        !surrounds(seen & among, among & !seen)
    }

    /// Whether a visitor who asks twice with the same cookies sees the part once.
    fn is_noise(&self, seen: Answers, among: Answers) -> bool {
        self.twice.iter().map(|own| own & among).any(|own| seen & own != 0 && seen & own != own)
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

fn those(answers: &[AnswerSeen], is_one: impl Fn(&AnswerSeen) -> bool) -> Answers {
    let places = answers.iter().enumerate().filter(|(_, answer)| is_one(answer));
    places.fold(0, |all, (place, _)| all | 1 << place)
}

fn visitors_in(answers: &[AnswerSeen], among: Answers) -> Vec<u64> {
    let is_in = |(place, _): &(usize, &AnswerSeen)| among & 1 << place != 0;
    let mut visitors: Vec<u64> =
        answers.iter().enumerate().filter(is_in).map(|(_, one)| one.visitor).collect();
    visitors.sort_unstable();
    visitors.dedup();
    visitors
}

/// Whether an answer of `inner` lies between two of `outer`.
fn surrounds(outer: Answers, inner: Answers) -> bool {
    let (first, last) = (outer.trailing_zeros(), Answers::BITS - outer.leading_zeros());
    outer.count_ones() > 1 && (first..last).any(|place| inner & 1 << place != 0)
}
