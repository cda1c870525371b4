//! Why else a response is not stored. The verdict ends at the first reason; behind it, others may keep the page out of
//! the cache just the same.

use ::http::header::{
    AGE, CACHE_CONTROL, CONTENT_DISPOSITION, DATE, EXPIRES, PRAGMA, REFRESH, SET_COOKIE, VARY,
    WWW_AUTHENTICATE,
};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use anteroom_http::list;
use anteroom_http::set_cookie::CLEAR_SITE_DATA;
use anteroom_http::targeted::CDN_CACHE_CONTROL;
use anteroom_telemetry::reason::Reason;

/// The most reasons that are remembered beside the first.
const FURTHER_MAX: usize = 6;

/// Why a response was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalReasons {
    /// The reason that the verdict found first.
    pub first: Reason,
    /// Those that would be found if it and those before them were not there.
    further: [Option<Reason>; FURTHER_MAX],
}

impl From<Reason> for RefusalReasons {
    fn from(first: Reason) -> Self {
        Self { first, further: [None; FURTHER_MAX] }
    }
}

impl RefusalReasons {
    /// All reasons for which a response is refused; the first is known. `judge` says why the response is refused
    /// without what the reasons so far are about.
    #[must_use]
    pub fn find(
        first: Reason,
        mut head: StrippedHead,
        judge: impl Fn(&StrippedHead) -> Option<Reason>,
    ) -> Self {
        let mut reasons = Self::from(first);
        let mut last = first;
        while head.strip(last) {
            match judge(&head) {
                Some(next) if reasons.add(next) => last = next,
                Some(_) | None => break,
            }
        }
        reasons
    }

    /// The reasons beside the first.
    pub fn further(self) -> impl Iterator<Item = Reason> {
        self.further.into_iter().flatten()
    }

    /// Adds a reason; false if it is known, or there are too many.
    fn add(&mut self, reason: Reason) -> bool {
        let is_known = reason == self.first || self.further.contains(&Some(reason));
        let free = self.further.iter_mut().find(|place| place.is_none() && !is_known);
        free.is_some_and(|place| place.replace(reason).is_none())
    }
}

/// The head of a response, from which the causes of refusals are taken away.
#[derive(Clone, Debug)]
pub struct StrippedHead {
    /// Its fields.
    pub headers: HeaderMap,
    /// The length of the body, if it is known.
    pub length: Option<u64>,
    /// Whether only the end of the connection ends the body.
    pub unframed: bool,
}

impl StrippedHead {
    /// Takes away what a reason is about; false if that cannot be taken away.
    fn strip(&mut self, reason: Reason) -> bool {
        match reason {
            Reason::SetCookie => self.remove(&[SET_COOKIE]),
            Reason::Private => self.cut_directives(&["private"]),
            Reason::NoStore => self.cut_directives(&["no-store"]),
            Reason::NoCache => self.cut_directives(&["no-cache"]),
            Reason::Stale => {
                self.cut_directives(&["max-age", "s-maxage"]);
                self.remove(&[EXPIRES, AGE, DATE]);
            }
            Reason::VaryAny | Reason::Vary => self.remove(&[VARY]),
            Reason::ResponseField => {
                self.remove(&[PRAGMA, REFRESH, WWW_AUTHENTICATE, CONTENT_DISPOSITION]);
                self.remove(&[CLEAR_SITE_DATA, CDN_CACHE_CONTROL.clone()]);
            }
            Reason::Unframed => self.unframed = false,
            Reason::TooLarge => self.length = None,
            _ => return false,
        }
        true
    }

    fn remove(&mut self, names: &[HeaderName]) {
        for name in names {
            self.headers.remove(name);
        }
    }

    fn cut_directives(&mut self, names: &[&str]) {
        for field in [CACHE_CONTROL, CDN_CACHE_CONTROL.clone()] {
            let is_kept = |member: &&[u8]| {
                let (directive, _) = list::divide(member, b'=');
                !names.iter().any(|name| directive.eq_ignore_ascii_case(name.as_bytes()))
            };
            let kept: Vec<&[u8]> = list::members(&self.headers, &field).filter(is_kept).collect();
            let line = HeaderValue::from_bytes(&kept.join(&b", "[..]));
            self.headers.remove(&field);
            if let Ok(line) = line
                && !line.is_empty()
            {
                self.headers.insert(field, line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fields: &[(&'static str, &'static str)]) -> StrippedHead {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        StrippedHead { headers, length: None, unframed: false }
    }

    /// The first of these reasons that the head still has.
    fn judge(head: &StrippedHead) -> Option<Reason> {
        let says = |directive: &str| {
            list::members(&head.headers, &CACHE_CONTROL).any(|one| one == directive.as_bytes())
        };
        let has = |name: &HeaderName| head.headers.contains_key(name);
        let found = [
            (has(&SET_COOKIE), Reason::SetCookie),
            (says("no-store"), Reason::NoStore),
            (says("no-cache"), Reason::NoCache),
            (has(&EXPIRES), Reason::Stale),
            (has(&PRAGMA), Reason::ResponseField),
            (head.unframed, Reason::Unframed),
        ];
        found.into_iter().find(|(is_found, _)| *is_found).map(|(_, reason)| reason)
    }

    fn all(head: StrippedHead) -> Vec<Reason> {
        let first = judge(&head).unwrap();
        let reasons = RefusalReasons::find(first, head, judge);
        std::iter::once(reasons.first).chain(reasons.further()).collect()
    }

    #[test]
    fn each_reason_is_found_behind_the_one_before() {
        let session = head(&[
            ("set-cookie", "PHPSESSID=1"),
            ("cache-control", "no-store, no-cache, must-revalidate"),
            ("expires", "Thu, 19 Nov 1981 08:52:00 GMT"),
            ("pragma", "no-cache"),
        ]);
        let expected = [
            Reason::SetCookie,
            Reason::NoStore,
            Reason::NoCache,
            Reason::Stale,
            Reason::ResponseField,
        ];
        assert_eq!(all(session), expected);
        let unframed = StrippedHead { unframed: true, ..head(&[("set-cookie", "a=1")]) };
        assert_eq!(all(unframed), [Reason::SetCookie, Reason::Unframed]);
        assert_eq!(all(head(&[("set-cookie", "a=1")])), [Reason::SetCookie]);
    }

    #[test]
    fn a_reason_that_stays_ends_the_search() {
        let stays = RefusalReasons::find(Reason::Stale, head(&[]), |_| Some(Reason::Stale));
        assert_eq!(stays, RefusalReasons::from(Reason::Stale));
        let lasting = RefusalReasons::find(Reason::Status, head(&[]), |_| Some(Reason::Stale));
        assert_eq!(lasting.further().count(), 0);
    }

    #[test]
    fn other_directives_stay_as_they_are() {
        let mut head = head(&[
            ("cache-control", "no-store, max-age=5"),
            ("cache-control", "private=\"a, b\", public"),
        ]);
        head.cut_directives(&["no-store", "private"]);
        assert_eq!(head.headers[CACHE_CONTROL], "max-age=5, public");
        head.cut_directives(&["max-age", "public"]);
        assert!(!head.headers.contains_key(CACHE_CONTROL));
    }
}
