//! The cookies that came with requests, and what the compared pages say of them.

use std::collections::{HashMap, HashSet};

use crate::causes::{CookieSet, CookieValue};

/// The most names that are followed: a set of them is one number.
pub(crate) const COOKIES_MAX: usize = CookieSet::BITS as usize;
/// The most values of a cookie that says something of a page, such as its currency.
pub(crate) const FEW_VALUES: usize = 16;
/// From how many addresses and browsers a value may come and still be one visitor's, where there are more values.
const OF_ONE_MAX: usize = 8;
/// The same where there are few: most come from one.
const OF_ONE_OF_FEW_MAX: usize = 2;
/// The most values of a cookie that are told apart.
const VALUES_MAX: usize = 256;
/// The most names without a place that are counted.
const CANDIDATES_MAX: usize = 64;
/// How often a name must come at least before another one makes room for it.
const REQUESTS_MIN: u64 = 16;
/// From how many requests on it is known that answers change a cookie.
const RENEWED_MIN: u64 = 3;
/// The most names of cookies that are set for a moment.
const BRIEF_MAX: usize = 64;
/// A cookie that is set for less than this, in seconds, is a message to the next pages.
const BRIEF: u64 = 300;

/// A cookie that came with requests.
#[derive(Clone, Debug)]
pub(crate) struct LearnedCookie {
    /// The name, or the pattern that stands for it.
    pub(crate) name: String,
    /// Requests that it came with.
    pub(crate) requests: u64,
    /// The same, since names without a place are counted.
    lately: u64,
    /// Those whose answer set it to another value.
    renewed: u64,
    /// Whether most did, once that was known.
    is_renewed: bool,
    /// Keyed hashes of its values.
    pub(crate) values: HashSet<u32>,
    /// Keyed hashes of the addresses and browsers that it came with.
    pub(crate) visitors: HashSet<u32>,
}

/// The cookies, at most [`COOKIES_MAX`].
///
/// Visitors may make names up. A name without a place is counted, and takes the place of one that came less often since
/// then: so the names in use have places, whatever came first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LearnedCookies {
    names: Vec<LearnedCookie>,
    /// Names without a place, with the requests that each came with.
    candidates: HashMap<String, u64>,
    /// The names that the app sets for a moment, with the shortest time in seconds.
    brief: HashMap<String, u64>,
}

/// The cookies of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotedCookies {
    /// `None`: one of them has no place, and the answer cannot be compared.
    pub(crate) values: Option<Vec<CookieValue>>,
    /// Those whose place now belongs to another one.
    pub(crate) gone: CookieSet,
}

impl LearnedCookies {
    /// Notes the cookies of a request: names with hashes of their values.
    ///
    /// `from`: a keyed hash of the address and the browser.
    pub(crate) fn note<'c>(
        &mut self,
        from: u64,
        cookies: impl Iterator<Item = (&'c str, u32)>,
    ) -> NotedCookies {
        let (mut values, mut gone) = (Some(Vec::new()), 0);
        for (name, value) in cookies {
            let Some(place) = self.place(name, &mut gone) else {
                values = None;
                continue;
            };
            let cookie = &mut self.names[place];
            cookie.note(from, value);
            // A value that each answer changes says no more than that the cookie is there.
            let value = if cookie.is_renewed { 1 } else { value.max(1) };
            if let Some(values) = &mut values {
                // There are at most 64 places.
                values.push(CookieValue { place: place as u8, value });
            }
        }
        // A list that was begun before a place changed may name the wrong cookie.
        let mut values = values.filter(|_| gone == 0);
        if let Some(values) = &mut values {
            values.sort_unstable();
            // Of two cookies of one name, and of two that one pattern stands for, the page may depend on either.
            values.dedup_by(|later, kept| {
                let is_same = later.place == kept.place;
                if is_same {
                    kept.value = kept.value.rotate_left(5) ^ later.value | 1;
                }
                is_same
            });
        }
        NotedCookies { values, gone }
    }

    fn place(&mut self, name: &str, gone: &mut CookieSet) -> Option<usize> {
        if let Some(place) = self.names.iter().position(|cookie| cookie.name == name) {
            return Some(place);
        }
        if self.names.len() < COOKIES_MAX {
            self.names.push(LearnedCookie::new(name));
            return Some(self.names.len() - 1);
        }
        let came = self.count(name);
        let least = self.names.iter().enumerate().min_by_key(|(_, cookie)| cookie.lately);
        let (place, least) = least?;
        if came < REQUESTS_MIN || came <= least.lately {
            return None;
        }
        self.candidates.clear();
        self.names[place] = LearnedCookie::new(name);
        self.names.iter_mut().for_each(|cookie| cookie.lately = 0);
        *gone |= 1 << place;
        Some(place)
    }

    /// Counts a name without a place. Where there are too many, each loses half.
    fn count(&mut self, name: &str) -> u64 {
        if self.candidates.len() == CANDIDATES_MAX && !self.candidates.contains_key(name) {
            self.candidates.retain(|_, came| {
                *came /= 2;
                *came > 0
            });
            self.names.iter_mut().for_each(|cookie| cookie.lately /= 2);
            if self.candidates.len() == CANDIDATES_MAX {
                return 0;
            }
        }
        let came = self.candidates.entry(name.to_owned()).or_default();
        *came += 1;
        *came
    }

    /// Notes that an answer sets a cookie of its request to another value. Returns its place when that is known to be a
    /// habit: until then the value has told visitors apart, and one has been taken for many.
    pub(crate) fn is_renewed(&mut self, name: &str) -> CookieSet {
        let known = self.names.iter_mut().zip(0..).find(|(cookie, _)| cookie.name == name);
        let Some((cookie, place)) = known else { return 0 };
        cookie.renewed += 1;
        let is_habit = cookie.requests >= RENEWED_MIN && cookie.renewed * 4 > cookie.requests * 3;
        let is_new = is_habit && !cookie.is_renewed;
        cookie.is_renewed |= is_habit;
        if is_new { 1 << place } else { 0 }
    }

    /// The names whose values most answers change: such a value is not the visitor's for long.
    pub(crate) fn renewed(&self) -> impl Iterator<Item = &str> {
        self.names.iter().filter(|cookie| cookie.is_renewed).map(|cookie| cookie.name.as_str())
    }

    /// Notes that the app sets a cookie for so many seconds.
    pub(crate) fn is_set(&mut self, name: &str, seconds: u64) {
        if seconds >= BRIEF {
            return;
        }
        if let Some(known) = self.brief.get_mut(name) {
            *known = seconds.min(*known);
        } else if self.brief.len() < BRIEF_MAX {
            self.brief.insert(name.to_owned(), seconds);
        }
    }

    /// For how many seconds the app sets a cookie, if that is a moment.
    pub(crate) fn lives_for(&self, name: &str) -> Option<u64> {
        self.brief.get(name).copied()
    }

    pub(crate) fn all(&self) -> &[LearnedCookie] {
        &self.names
    }

    pub(crate) fn name(&self, place: u8) -> Option<&str> {
        self.names.get(usize::from(place)).map(|cookie| cookie.name.as_str())
    }
}

impl LearnedCookie {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            requests: 0,
            lately: 0,
            renewed: 0,
            is_renewed: false,
            values: HashSet::new(),
            visitors: HashSet::new(),
        }
    }

    fn note(&mut self, from: u64, value: u32) {
        self.requests += 1;
        self.lately += 1;
        if self.values.len() < VALUES_MAX {
            self.values.insert(value);
        }
        if self.visitors.len() < VALUES_MAX {
            self.visitors.insert(from as u32);
        }
    }

    /// Whether nearly each visitor has a value of its own: the value means the visitor, or something that belongs to the
    /// visitor. In doubt it does: a session is never shared.
    pub(crate) fn is_own(&self) -> bool {
        let values = self.values.len();
        let most = if values > FEW_VALUES { OF_ONE_MAX } else { OF_ONE_OF_FEW_MAX };
        values >= 2 && values * most > self.visitors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(cookies: &mut LearnedCookies, name: &str) -> NotedCookies {
        cookies.note(1, std::iter::once((name, 7)))
    }

    #[test]
    fn names_that_were_made_up_leave_room_for_those_in_use() {
        let mut cookies = LearnedCookies::default();
        for n in 0..10_000 {
            note(&mut cookies, &format!("made-up-{n}"));
        }
        assert_eq!(cookies.all().len(), COOKIES_MAX);
        assert!(cookies.candidates.len() <= CANDIDATES_MAX);
        let mut gone = 0;
        for n in 0..100 {
            gone |= note(&mut cookies, "sid").gone;
            note(&mut cookies, &format!("further-{n}"));
        }
        assert_eq!(gone.count_ones(), 1, "one place has another name");
        let place = gone.trailing_zeros() as u8;
        let sid = Some(vec![CookieValue { place, value: 7 }]);
        let noted = note(&mut cookies, "sid");
        assert_eq!((&noted.values, noted.gone), (&sid, 0));
        for n in 0..10_000 {
            note(&mut cookies, &format!("flood-{n}"));
            note(&mut cookies, "sid");
        }
        assert_eq!(note(&mut cookies, "sid").values, sid, "a flood takes no place in use");
    }

    #[test]
    fn a_value_of_its_own_is_one_that_nearly_no_other_visitor_has() {
        let is_own = |visitors: u64, values: u32| {
            let mut cookies = LearnedCookies::default();
            for n in 0..visitors {
                cookies.note(n, std::iter::once(("c", 1 + n as u32 % values)));
            }
            cookies.all()[0].is_own()
        };
        assert!(!is_own(6, 3) && !is_own(1_000, 3) && !is_own(1, 1));
        assert!(is_own(6, 6) && is_own(6, 4) && is_own(1_000, 1_000));
    }

    #[test]
    fn cookies_that_are_set_for_a_moment_are_known_and_bounded() {
        let mut cookies = LearnedCookies::default();
        cookies.is_set("UseDC", 10);
        cookies.is_set("theme", 31_536_000);
        for n in 0..1_000 {
            cookies.is_set(&format!("n{n}"), 1);
        }
        assert_eq!((cookies.lives_for("UseDC"), cookies.lives_for("theme")), (Some(10), None));
        assert_eq!(cookies.brief.len(), BRIEF_MAX);
    }
}
