//! The cache directives of a request (RFC 9111 §5.2.1). Pure.

use ::http::HeaderMap;
use ::http::header::{CACHE_CONTROL, PRAGMA};
use anteroom_http::cache_control::CacheControl;

use crate::entry::Entry;

/// What a request requires of a stored response. `max-stale` is excluded: the origin and the configuration
/// decide how long a stale response is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `only-if-cached` (§5.2.1.7): only a stored response will do.
    pub only_if_cached: bool,
    /// `no-cache` (§5.2.1.4): only a response that the origin has just validated will do.
    validated: bool,
    /// `max-age` (§5.2.1.1), in seconds.
    age_max: Option<u64>,
    /// `min-fresh` (§5.2.1.3), in seconds.
    ttl_min: Option<u64>,
}

impl RequestDirectives {
    /// Reads the directives of a request. If they are not honoured, `only-if-cached` alone counts: it spares
    /// the origin, while the others let any visitor cause a request to it.
    #[must_use]
    pub fn of(headers: &HeaderMap, honours: bool) -> Self {
        if !headers.contains_key(CACHE_CONTROL) {
            // §5.4: `Pragma: no-cache` counts only without Cache-Control.
            let is_no_cache = |value: &::http::HeaderValue| {
                value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"no-cache")
            };
            let validated = honours && headers.get_all(PRAGMA).iter().any(is_no_cache);
            return Self { validated, ..Self::default() };
        }
        let control = CacheControl::parse(headers, &CACHE_CONTROL);
        let only_if_cached = control.only_if_cached;
        if !honours {
            return Self { only_if_cached, ..Self::default() };
        }
        Self {
            only_if_cached,
            validated: control.no_cache,
            age_max: control.max_age,
            ttl_min: control.min_fresh,
        }
    }

    /// Whether a stored response may answer the request at `now` without contacting the origin.
    #[must_use]
    pub fn is_met_by(&self, entry: &Entry, now: u64) -> bool {
        let is_young = self.age_max.is_none_or(|most| entry.age(now) <= most);
        let ttl = u64::try_from(entry.ttl(now)).unwrap_or(0);
        !self.validated && is_young && self.ttl_min.is_none_or(|least| ttl >= least)
    }
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderName, HeaderValue};

    use super::*;
    use crate::entry::tests::entry;

    fn of(lines: &[(&'static str, &'static str)], honours: bool) -> RequestDirectives {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        RequestDirectives::of(&lines.iter().map(line).collect(), honours)
    }

    #[test]
    fn a_page_meets_what_is_asked_of_its_age() {
        // Fresh for 60 seconds, and 20 seconds old.
        let page = Entry { stored_at: 1_000, initial_age: 10, lifetime: 60, ..entry() };
        for (name, value, met) in [
            ("accept", "*/*", true),
            ("cache-control", "", true),
            ("cache-control", "no-cache", false),
            ("cache-control", "max-age=0", false),
            ("cache-control", "max-age=19", false),
            ("cache-control", "max-age=20", true),
            ("cache-control", "min-fresh=40", true),
            ("cache-control", "min-fresh=41", false),
            ("cache-control", "max-stale=5", true),
            ("cache-control", "only-if-cached", true),
            ("cache-control", "foo=\"no-cache\"", true),
            ("pragma", "No-Cache", false),
            ("pragma", "x", true),
        ] {
            assert_eq!(of(&[(name, value)], true).is_met_by(&page, 1_010), met, "{name}: {value}");
            assert!(of(&[(name, value)], false).is_met_by(&page, 1_010), "{name}: {value}");
        }
        let both = [("pragma", "no-cache"), ("cache-control", "max-age=60")];
        assert!(of(&both, true).is_met_by(&page, 1_010), "Pragma counts alone only");
    }

    #[test]
    fn only_if_cached_is_read_from_the_request() {
        for honours in [true, false] {
            assert!(of(&[("cache-control", "max-age=1, Only-If-Cached")], honours).only_if_cached);
            assert!(!of(&[("cache-control", "max-age=1")], honours).only_if_cached);
        }
    }
}
