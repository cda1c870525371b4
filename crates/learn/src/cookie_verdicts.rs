//! What the cookies are, by what all pages show of them.

use std::collections::HashMap;

use crate::causes::CookieSet;
use crate::cookies::LearnedCookie;
use crate::judgement::CookieEffect;
use crate::report::{LearnedCookieReport, ReportContext, pages_are};
use crate::sample::FieldNames;
use crate::state::LearnedState;

/// From how many pages that are the same with different values of a cookie on it counts as harmless.
const SURE_PAGES: u64 = 3;
/// The same, of addresses and browsers that it came from: one visitor alone may make a cookie up.
const SURE_VISITORS: usize = 2;
/// A cookie is suspected if it may be the cause on one of so many pages that differ by what is not known, or more: on
/// fewer, chance makes it look so.
const SUSPECT_PART: u64 = 10;
/// Where a cookie would explain a page that chance explains as well, so many times more pages must be the same with it: of
/// few pages, the one that differs counts.
const POSSIBLE_PART: u64 = 20;

/// The cookies, by their places.
pub(crate) fn cookies(
    learned: &LearnedState,
    context: &ReportContext,
    noisy: &FieldNames,
) -> Vec<(u8, LearnedCookieReport)> {
    let class = |place: u8| context.of(&learned.cookies.all()[usize::from(place)].name).class;
    let count_of = learned.cookies.all().len() as u8;
    let mut known = (0..count_of).filter(|place| class(*place) == "session").fold(0, with);
    let mut counts = count(learned, known, &class, noisy);
    let differ = counts.iter().filter(|(_, counts)| counts.differ > 0);
    let found = differ.map(|(place, _)| *place).fold(known, with);
    if found != known {
        known = found;
        counts = count(learned, known, &class, noisy);
    }
    let told = learned.cookies.all().iter().zip(0..).map(|(cookie, place)| {
        let counts = counts.remove(&place).unwrap_or_default();
        (place, told_cookie(learned, cookie, counts, context))
    });
    told.collect()
}

/// The most paths that are told of the pages that differ by a cookie.
const EXAMPLES_MAX: usize = 3;

fn with(set: CookieSet, place: u8) -> CookieSet {
    set | 1 << place
}

/// What all pages say of each cookie. `known`: cookies on which pages are known to depend.
fn count(
    learned: &LearnedState,
    known: CookieSet,
    class: &dyn Fn(u8) -> &'static str,
    noisy: &FieldNames,
) -> HashMap<u8, EffectCounts> {
    let mut counts: HashMap<u8, EffectCounts> = HashMap::new();
    for page in learned.pages.values() {
        for (place, effect) in page.compared.effects(known, noisy) {
            // What a cookie does on pages that are never shared is no reason not to ignore it any more.
            if class(place) != "harmless" || page.simulated.is_stored() {
                let cookie = &learned.cookies.all()[usize::from(place)];
                counts.entry(place).or_default().add(effect, cookie, &page.name.path);
            }
        }
    }
    counts
}

/// What pages say of a cookie.
#[derive(Clone, Debug, Default)]
struct EffectCounts {
    same: u64,
    differ: u64,
    suspect: u64,
    /// Where it would explain a difference as well as chance.
    possible: u64,
    /// Where it has to do with a difference.
    involved: u64,
    unclear: u64,
    /// Where no visitor has asked again.
    unreturned: u64,
    /// Paths of some pages that differ, and of some that may.
    examples: [Vec<String>; 2],
}

impl EffectCounts {
    fn add(&mut self, effect: CookieEffect, cookie: &LearnedCookie, path: &str) {
        match effect {
            CookieEffect::Same => self.same += 1,
            // A cookie of several values may do nothing with one of them.
            CookieEffect::SameWithout => self.same += u64::from(cookie.values.len() == 1),
            CookieEffect::Unclear => self.unclear += 1,
            CookieEffect::Unreturned => self.unreturned += 1,
            CookieEffect::Possible => self.possible += 1,
            CookieEffect::Suspect => self.suspect += 1,
            CookieEffect::Involved => self.involved += 1,
            CookieEffect::Differs => self.differ += 1,
        }
        let examples = match effect {
            CookieEffect::Differs => &mut self.examples[0],
            CookieEffect::Possible | CookieEffect::Suspect | CookieEffect::Involved => {
                &mut self.examples[1]
            }
            CookieEffect::Same
            | CookieEffect::SameWithout
            | CookieEffect::Unclear
            | CookieEffect::Unreturned => return,
        };
        if examples.len() < EXAMPLES_MAX {
            examples.push(path.to_owned());
        }
    }

    fn is_suspect(&self) -> bool {
        self.involved > 0
            || self.suspect * SUSPECT_PART > self.suspect + self.unclear()
            || self.suspect + self.possible > 0
                && (self.suspect + self.possible) * POSSIBLE_PART >= self.same
    }

    /// The pages that time or chance would explain.
    fn unclear(&self) -> u64 {
        self.possible + self.unclear + self.unreturned
    }
}

fn told_cookie(
    learned: &LearnedState,
    cookie: &LearnedCookie,
    counts: EffectCounts,
    context: &ReportContext,
) -> LearnedCookieReport {
    let (verdict, text) = verdict(learned, cookie, &counts, context);
    LearnedCookieReport {
        name: cookie.name.clone(),
        class: context.of(&cookie.name).class.to_owned(),
        requests: cookie.requests,
        set_by: context.of(&cookie.name).set_by,
        pages_same: counts.same,
        pages_differ: counts.differ,
        pages_unclear: counts.involved + counts.suspect + counts.unclear(),
        examples: counts.examples.into_iter().find(|paths| !paths.is_empty()).unwrap_or_default(),
        verdict: verdict.to_owned(),
        text,
    }
}

/// What a cookie is, and why.
fn verdict(
    learned: &LearnedState,
    cookie: &LearnedCookie,
    counts: &EffectCounts,
    context: &ReportContext,
) -> (&'static str, String) {
    let EffectCounts { same, differ, ref examples, .. } = *counts;
    let suspect = counts.possible + counts.suspect + counts.involved;
    let such_as = |count: u64, paths: &[String]| {
        let more = if count > paths.len() as u64 { ", …" } else { "" };
        format!("{}{more}", paths.join(", "))
    };
    if differ > 0 {
        let paths = such_as(differ, &examples[0]);
        let pages = format!("{}: {paths}", pages_differ(differ, same + differ));
        return match cookie.is_own() || context.of(&cookie.name).means_session {
            true => ("session", format!("nearly each visitor has a value of its own, and {pages}")),
            false => ("keyed", format!("few values for many visitors, and {pages}")),
        };
    }
    let same_pages = format!("{} the same with different values of it", pages_are(same));
    if counts.is_suspect() {
        let paths = such_as(suspect, &examples[1]);
        return ("unclear", format!("{same_pages}, {suspect} may differ by it: {paths}"));
    }
    if same < SURE_PAGES {
        let text = format!("{same_pages}; {SURE_PAGES} are needed to say that it is harmless");
        return ("unclear", text);
    }
    if context.of(&cookie.name).means_session {
        let why = "but its name is that of a session, in which an app may keep a cart or a login";
        return ("unclear", format!("{same_pages}, {why}"));
    }
    if cookie.visitors.len() < SURE_VISITORS {
        return ("unclear", format!("{same_pages}, but one visitor alone has sent it"));
    }
    if cookie.is_own() && context.of(&cookie.name).set_by > 0 && counts.unreturned > 0 {
        let why = "but the app sets it, nearly each visitor has a value of its own, and pages differ that no visitor asked for again";
        return ("unclear", format!("{same_pages}, {why}: {} of them", counts.unreturned));
    }
    if let Some(seconds) = learned.cookies.lives_for(&cookie.name) {
        let why =
            format!("but the app sets it for {seconds} s only, to say something to the next pages");
        return ("unclear", format!("{same_pages}, {why}"));
    }
    ("harmless", same_pages)
}

/// `1 of 3 pages differs by it`.
fn pages_differ(differ: u64, all: u64) -> String {
    let pages = if all == 1 { "page" } else { "pages" };
    let verb = if differ == 1 { "differs" } else { "differ" };
    format!("{differ} of {all} {pages} {verb} by it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_said_in_the_singular() {
        assert_eq!([pages_are(1), pages_are(0)], ["1 page is", "0 pages are"]);
        assert_eq!(pages_differ(1, 1), "1 of 1 page differs by it");
        assert_eq!(pages_differ(1, 3), "1 of 3 pages differs by it");
        assert_eq!(pages_differ(17, 17), "17 of 17 pages differ by it");
    }

    #[test]
    fn of_few_pages_the_one_that_a_cookie_would_explain_counts() {
        let of = |same, possible| EffectCounts { same, possible, ..EffectCounts::default() };
        assert!(of(10, 1).is_suspect() && of(20, 1).is_suspect());
        assert!(!of(21, 1).is_suspect() && !of(3, 0).is_suspect());
    }
}
