//! The cookies that came with requests, and what the compared pages say of them.

use std::collections::HashSet;

use super::answer::CookieSet;

/// The most names that are followed: a set of them is one number.
pub(super) const NAMES_MAX: usize = CookieSet::BITS as usize;
/// From how many addresses and browsers one visitor may come.
const OF_ONE_MAX: usize = 8;
/// The most values of a cookie that are told apart.
const VALUES_MAX: usize = 256;

/// A cookie that came with requests.
#[derive(Clone, Debug)]
pub(super) struct LearnedCookie {
    /// The name, or the pattern that stands for it.
    pub(super) name: String,
    /// Requests that it came with.
    pub(super) requests: u64,
    /// Keyed hashes of its values.
    pub(super) values: HashSet<u32>,
    /// Keyed hashes of the addresses and browsers that it came with.
    pub(super) visitors: HashSet<u32>,
}

/// The cookies, at most [`NAMES_MAX`].
#[derive(Clone, Debug, Default)]
pub(super) struct LearnedCookies {
    names: Vec<LearnedCookie>,
    /// Requests with a cookie that has no place any more.
    pub(super) beyond: u64,
}

impl LearnedCookies {
    /// Notes the cookies of a request: names with hashes of their values. `None`: one of them has no place, and
    /// the answer cannot be compared.
    ///
    /// `from`: a keyed hash of the address and the browser.
    pub(super) fn note<'c>(
        &mut self,
        from: u64,
        cookies: impl Iterator<Item = (&'c str, u32)>,
    ) -> Option<CookieSet> {
        let mut set = Some(0);
        for (name, value) in cookies {
            match self.place(name) {
                Some(place) => {
                    set = set.map(|set| set | 1 << place);
                    self.names[place].note(from, value);
                }
                None => {
                    self.beyond += 1;
                    set = None;
                }
            }
        }
        set
    }

    fn place(&mut self, name: &str) -> Option<usize> {
        let known = self.names.iter().position(|cookie| cookie.name == name);
        known.or_else(|| {
            let place = self.names.len();
            (place < NAMES_MAX).then(|| {
                self.names.push(LearnedCookie {
                    name: name.to_owned(),
                    requests: 0,
                    values: HashSet::new(),
                    visitors: HashSet::new(),
                });
                place
            })
        })
    }

    pub(super) fn all(&self) -> &[LearnedCookie] {
        &self.names
    }

    pub(super) fn name(&self, place: u32) -> Option<&str> {
        self.names.get(place as usize).map(|cookie| cookie.name.as_str())
    }
}

impl LearnedCookie {
    fn note(&mut self, from: u64, value: u32) {
        self.requests += 1;
        if self.values.len() < VALUES_MAX {
            self.values.insert(value);
        }
        if self.visitors.len() < VALUES_MAX {
            self.visitors.insert(from as u32);
        }
    }

    /// Whether nearly each visitor has a value of its own: the value means the visitor, or something that belongs to the
    /// visitor. In doubt it does: a session is never shared.
    pub(super) fn is_own(&self) -> bool {
        self.values.len() >= 2 && self.values.len() * OF_ONE_MAX > self.visitors.len()
    }
}
