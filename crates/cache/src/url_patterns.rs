//! What the responses to the URLs of one pattern were like, so that the first request for a new URL is sent in the
//! right way: as it came, or as a fetch for the cache.
//!
//! A fetch is for all visitors, and an app may do something when a link is opened: log a visitor in by mail, confirm
//! an address. Such a request must reach the app once, and from its visitor. This file decides which requests are
//! sent as they came, by what the responses to similar ones were. It has no clock and no I/O.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::OnceLock;

use ahash::RandomState;
use anteroom_http::query;
use anteroom_http::segments::{has_secret_value, pattern_segments};
use anteroom_telemetry::metrics::AskedAgain;
use quick_cache::sync::Cache;

/// The most patterns that are remembered; those that were not requested for the longest time are forgotten first.
const PATTERNS_MAX: usize = 16_384;
/// How long what a response showed holds against fetches for the cache, in seconds.
const HOLDS: u64 = 120;
/// A pattern is uncacheable after so many fetches that were refused,
const REFUSALS_MIN: usize = 4;
/// of so many URLs,
const URLS_MIN: usize = 3;
/// for visitors of so many networks. One visitor alone cannot switch the cache off.
const NETWORKS_MIN: usize = 3;
/// The most refused fetches that are remembered of a pattern.
const REFUSALS_MAX: usize = 8;
/// One request in so many is fetched for the cache although the pattern is uncacheable.
const TRIALS: u8 = 16;

/// The pattern of a request's URL, with the fields that a fetch would leave out: requests with other fields do not
/// change what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlPattern {
    kind: u64,
    /// The URL alone, where it may be a secret.
    secret: Option<u64>,
}

impl UrlPattern {
    /// Whether the URL may be a secret.
    #[must_use]
    pub fn may_be_secret(&self) -> bool {
        self.secret.is_some()
    }
}

/// The response to a request that was sent as it came, as far as it shows what a fetch would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnResponse {
    /// It could have been shared.
    Shareable {
        /// Whether the origin gave it a freshness lifetime, or the route does.
        has_lifetime: bool,
    },
    /// It could not.
    Unshareable {
        /// Whether it sets cookies or redirects: others of its kind are likely to do the same.
        persists: bool,
    },
}

/// Why a request is sent as it came, although its page could be fetched for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsItCame {
    /// The URL may be a secret, or a fetch would leave out a field, and no response proves yet that a fetch does no harm.
    Unproven,
    /// Recent responses of the pattern could not be shared.
    Uncacheable,
}

/// A fetch for the cache whose response could not be shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Refusal {
    url: u32,
    network: u32,
    at: u64,
}

/// What is known of the URLs of one kind, or of one URL. Times are Unix times in seconds.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// Whether the last response could be shared. Of a kind of URLs that may be secrets: whether one could to which the
    /// origin gave a freshness lifetime. A link that was used is a page like any other, and says nothing of the next.
    is_shareable: bool,
    /// Until when requests are sent as they came, because the origin had to be asked again after a fetch.
    as_it_came_until: u64,
    /// Whether that holds for as long as responses set cookies or redirect.
    persists: bool,
    /// Until when the pattern is uncacheable.
    uncacheable_until: u64,
    /// The last refused fetches since one was shared, the latest overwriting the earliest.
    refusals: [Refusal; REFUSALS_MAX],
    refused: usize,
}

/// The patterns of this process. They take no memory until something is known of one.
#[derive(Debug, Default)]
pub struct UrlPatterns {
    known: OnceLock<Cache<u64, History>>,
    hasher: RandomState,
}

impl UrlPatterns {
    /// The pattern of a URL of a site: its path without what differs between the pages of one kind, the names of its
    /// query parameters, and the names of the fields that a fetch would leave out.
    pub fn pattern<'f>(
        &self,
        site: &str,
        path: &str,
        query: &str,
        is_secret: bool,
        lost: impl Iterator<Item = &'f str>,
    ) -> UrlPattern {
        let mut hasher = self.hasher.build_hasher();
        (site, is_secret).hash(&mut hasher);
        let mut url = hasher.clone();
        pattern_segments(path).for_each(|segment| segment.hash(&mut hasher));
        // The order of names is no part of the pattern.
        let sum = |names: &mut dyn Iterator<Item = u64>| names.fold(0_u64, u64::wrapping_add);
        let name = |part: &str| match !part.contains('=') && has_secret_value(part) {
            true => 0,
            false => query::names(part).map(|name| self.hasher.hash_one(&*name)).sum(),
        };
        sum(&mut query.split('&').map(name)).hash(&mut hasher);
        sum(&mut lost.map(|name| self.hasher.hash_one(name))).hash(&mut hasher);
        let secret = is_secret.then(|| {
            (path, query).hash(&mut url);
            url.finish()
        });
        UrlPattern { kind: hasher.finish(), secret }
    }

    /// Why a request is sent as it came. `is_delicate`: its URL may be a secret, or a fetch would leave out a field.
    /// `may_try`: whether one of a few is fetched although the last responses were uncacheable.
    #[must_use]
    pub fn as_it_came(
        &self,
        pattern: UrlPattern,
        is_delicate: bool,
        now: u64,
        may_try: bool,
    ) -> Option<AsItCame> {
        let history = |key| self.known.get().and_then(|known| known.get(&key)).unwrap_or_default();
        let kind: History = history(pattern.kind);
        if kind.as_it_came_until > now {
            return Some(AsItCame::Uncacheable);
        }
        if kind.uncacheable_until > now {
            let is_tried = may_try && fastrand::u8(..TRIALS) == 0;
            return (!is_tried).then_some(AsItCame::Uncacheable);
        }
        let is_proven =
            || kind.is_shareable || pattern.secret.is_some_and(|url| history(url).is_shareable);
        (is_delicate && !is_proven()).then_some(AsItCame::Unproven)
    }

    /// Notes the response to a request that was sent as it came.
    pub fn saw_own(&self, pattern: UrlPattern, response: OwnResponse, now: u64) {
        match response {
            OwnResponse::Shareable { has_lifetime } => {
                let shareable = History { is_shareable: true, ..History::default() };
                if let Some(url) = pattern.secret {
                    self.change(url, |history| *history = shareable);
                }
                if pattern.secret.is_none() || has_lifetime {
                    self.change(pattern.kind, |history| *history = shareable);
                }
            }
            OwnResponse::Unshareable { persists: true } if self.knows(pattern.kind) => {
                self.change(pattern.kind, |history| {
                    if history.persists {
                        history.as_it_came_until = now.saturating_add(HOLDS);
                    }
                });
            }
            OwnResponse::Unshareable { .. } => {}
        }
    }

    fn knows(&self, key: u64) -> bool {
        self.known.get().is_some_and(|known| known.peek(&key).is_some())
    }

    /// Notes that the response to a fetch could be shared.
    pub fn saw_shared(&self, pattern: UrlPattern) {
        match pattern.secret {
            None => self.change(pattern.kind, |history| {
                *history = History { is_shareable: true, ..History::default() };
            }),
            Some(url) => {
                self.change(url, |history| history.is_shareable = true);
                if self.knows(pattern.kind) {
                    self.change(pattern.kind, |history| {
                        history.refused = 0;
                        history.refusals = [Refusal::default(); REFUSALS_MAX];
                        history.uncacheable_until = 0;
                    });
                }
            }
        }
    }

    /// Notes that the origin had to be asked again after a fetch.
    pub fn was_asked_again(&self, pattern: UrlPattern, why: AskedAgain, now: u64) {
        self.leave_to_visitors(pattern, why == AskedAgain::Cookie, now);
    }

    /// Notes that a fetch was redirected that had left out what a redirect may lead back to.
    pub fn leads_elsewhere(&self, pattern: UrlPattern, now: u64) {
        self.leave_to_visitors(pattern, true, now);
    }

    fn leave_to_visitors(&self, pattern: UrlPattern, persists: bool, now: u64) {
        if let Some(url) = pattern.secret {
            self.change(url, |history| history.is_shareable = false);
        }
        self.change(pattern.kind, |history| {
            history.is_shareable = false;
            history.as_it_came_until = now.saturating_add(HOLDS);
            history.persists = persists;
        });
    }

    /// Notes that the response to a fetch could not be shared. `url` distinguishes the URLs of a pattern.
    pub fn was_refused(&self, pattern: UrlPattern, url: u32, network: u32, now: u64) {
        if let Some(url) = pattern.secret {
            self.change(url, |history| history.is_shareable = false);
        }
        self.change(pattern.kind, |history| {
            // That a response is private does not show that a fetch spends a link.
            history.is_shareable &= pattern.secret.is_some();
            history.refusals[history.refused % REFUSALS_MAX] = Refusal { url, network, at: now };
            history.refused += 1;
            if history.uncacheable_until > now || history.is_refused_for_all(now) {
                history.uncacheable_until = now.saturating_add(HOLDS);
            }
        });
    }

    fn change(&self, key: u64, change: impl FnOnce(&mut History)) {
        let known = self.known.get_or_init(|| Cache::new(PATTERNS_MAX));
        // Of two changes at the same moment one may be lost.
        let mut history = known.get(&key).unwrap_or_default();
        change(&mut history);
        known.insert(key, history);
    }
}

impl History {
    fn is_refused_for_all(&self, now: u64) -> bool {
        let recent =
            || self.refusals.iter().filter(|one| one.at > 0 && now.saturating_sub(one.at) < HOLDS);
        let different = |of: fn(&Refusal) -> u32| {
            let mut all: Vec<_> = recent().map(of).collect();
            all.sort_unstable();
            all.dedup();
            all.len()
        };
        recent().count() >= REFUSALS_MIN
            && different(|one| one.url) >= URLS_MIN
            && different(|one| one.network) >= NETWORKS_MIN
    }
}

/// The network of a client, as a number: a /24 of IPv4, a /48 of IPv6.
#[must_use]
pub fn network(address: Option<IpAddr>) -> u32 {
    match address.map(|address| address.to_canonical()) {
        None => 0,
        Some(IpAddr::V4(address)) => u32::from(address) >> 8,
        Some(IpAddr::V6(address)) => {
            let start = (u128::from(address) >> 80) as u64;
            // Two networks of the same number are unlikely, and only count as one.
            (start ^ (start >> 32)) as u32 | 1 << 31
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: OwnResponse = OwnResponse::Shareable { has_lifetime: false };
    const REDIRECT: OwnResponse = OwnResponse::Unshareable { persists: true };

    fn patterns() -> (UrlPatterns, UrlPattern) {
        let patterns = UrlPatterns::default();
        let pattern = patterns.pattern("shop.test", "/product/1", "", false, std::iter::empty());
        (patterns, pattern)
    }

    fn sent(
        patterns: &UrlPatterns,
        pattern: UrlPattern,
        is_delicate: bool,
        now: u64,
    ) -> Option<AsItCame> {
        patterns.as_it_came(pattern, is_delicate, now, false)
    }

    #[test]
    fn urls_of_one_kind_have_one_pattern() {
        let patterns = UrlPatterns::default();
        let of = |path, query, lost: &[&'static str]| {
            patterns.pattern("shop.test", path, query, false, lost.iter().copied())
        };
        let product = of("/product/1", "", &[]);
        for (path, query, lost, is_same) in [
            ("/product/blue-shirt", "", &[][..], true),
            ("/product/1/", "", &[], false),
            ("/product/1/reviews", "", &[], false),
            ("/item/1", "", &[], false),
            ("/product/1.png", "", &[], false),
            ("/product/1", "a=1", &[], false),
            ("/product/1", "", &["x-a"], false),
        ] {
            assert_eq!(of(path, query, lost) == product, is_same, "{path}?{query} {lost:?}");
        }
        assert_eq!(of("/a", "x=1&y=2", &["p", "q"]), of("/a", "y=3&x=", &["q", "p"]));
        assert_ne!(of("/login", "", &[]), of("/about", "", &[]), "a path of one segment");
        let elsewhere = patterns.pattern("other.test", "/product/1", "", false, std::iter::empty());
        assert_ne!(elsewhere, product);
        let secret =
            |path, query| patterns.pattern("shop.test", path, query, true, std::iter::empty());
        assert_ne!(secret("/confirm/1", ""), secret("/confirm/2", ""), "each is one of its own");
        assert_ne!(secret("/confirm", "t=1"), secret("/confirm", "t=2"));
        assert_ne!(secret("/product/1", ""), product);
        let kind = |path, query| secret(path, query).kind;
        assert_eq!(kind("/confirm/1", ""), kind("/confirm/2", ""));
        assert_eq!(kind("/login", "4fd8a1c09be2773f"), kind("/login", "8be2773f4fd8a1c0"));
    }

    #[test]
    fn a_delicate_request_is_sent_as_it_came_until_a_response_could_be_shared() {
        let (patterns, pattern) = patterns();
        assert_eq!(sent(&patterns, pattern, false, 10), None);
        assert_eq!(sent(&patterns, pattern, true, 10), Some(AsItCame::Unproven));
        patterns.saw_own(pattern, REDIRECT, 10);
        assert_eq!(sent(&patterns, pattern, true, 10), Some(AsItCame::Unproven));
        assert_eq!(sent(&patterns, pattern, false, 10), None, "a cookie alone says nothing");
        patterns.saw_own(pattern, PAGE, 10);
        assert_eq!(sent(&patterns, pattern, true, 10_000), None);
        patterns.was_refused(pattern, 1, 1, 10_000);
        assert_eq!(sent(&patterns, pattern, true, 10_000), Some(AsItCame::Unproven));
        assert_eq!(sent(&patterns, pattern, false, 10_000), None);
    }

    #[test]
    fn a_secret_is_proven_by_its_own_response_or_by_a_lifetime_of_its_kind() {
        let patterns = UrlPatterns::default();
        let of = |path| patterns.pattern("shop.test", path, "", true, std::iter::empty());
        let [used, fresh] = ["/confirm/4fd8a1c09be2773f", "/confirm/8be2773f4fd8a1c0"].map(of);
        patterns.saw_own(used, PAGE, 10);
        assert_eq!(sent(&patterns, used, true, 10), None);
        assert_eq!(sent(&patterns, fresh, true, 10), Some(AsItCame::Unproven));
        patterns.saw_shared(used);
        assert_eq!(sent(&patterns, fresh, true, 10), Some(AsItCame::Unproven));
        patterns.saw_own(used, OwnResponse::Shareable { has_lifetime: true }, 10);
        assert_eq!(sent(&patterns, fresh, true, 10), None);
        patterns.was_refused(used, 1, 1, 10);
        assert_eq!(sent(&patterns, fresh, true, 10), None, "it was the visitor's response");
        patterns.was_asked_again(used, AskedAgain::Cookie, 10);
        assert_eq!(sent(&patterns, fresh, true, 10), Some(AsItCame::Uncacheable));
        assert_eq!(sent(&patterns, fresh, true, 130), Some(AsItCame::Unproven));
    }

    #[test]
    fn after_a_second_question_requests_are_sent_as_they_came_for_two_minutes() {
        let (patterns, pattern) = patterns();
        patterns.was_asked_again(pattern, AskedAgain::Refusal, 10);
        assert_eq!(sent(&patterns, pattern, false, 129), Some(AsItCame::Uncacheable));
        patterns.saw_own(pattern, REDIRECT, 120);
        assert_eq!(sent(&patterns, pattern, false, 130), None);
        patterns.was_asked_again(pattern, AskedAgain::Field, 130);
        patterns.saw_own(pattern, PAGE, 131);
        assert_eq!(sent(&patterns, pattern, false, 131), None, "it could have been shared");
    }

    #[test]
    fn a_pattern_that_sets_cookies_is_left_to_its_visitors_for_as_long() {
        let (patterns, pattern) = patterns();
        patterns.was_asked_again(pattern, AskedAgain::Cookie, 10);
        for now in (100..1_000).step_by(100) {
            assert_eq!(sent(&patterns, pattern, false, now), Some(AsItCame::Uncacheable));
            patterns.saw_own(pattern, REDIRECT, now);
        }
        patterns.saw_own(pattern, PAGE, 1_000);
        assert_eq!(sent(&patterns, pattern, false, 1_000), None);
    }

    #[test]
    fn a_pattern_is_uncacheable_after_refusals_of_several_urls_for_several_networks() {
        for (refusals, is_uncacheable) in [
            (&[(1, 1), (2, 2), (3, 3)][..], false),
            (&[(1, 1), (2, 2), (3, 3), (3, 3)], true),
            (&[(1, 1), (2, 2), (2, 3), (1, 4)], false),
            (&[(1, 1), (2, 1), (3, 2), (4, 2), (5, 1), (6, 2)], false),
            (&[(1, 7), (2, 7), (3, 7), (4, 7), (5, 7), (6, 7), (7, 7), (8, 7), (9, 7)], false),
        ] {
            let (patterns, pattern) = patterns();
            for (url, network) in refusals {
                patterns.was_refused(pattern, *url, *network, 10);
            }
            let expected = is_uncacheable.then_some(AsItCame::Uncacheable);
            assert_eq!(sent(&patterns, pattern, false, 11), expected, "{refusals:?}");
            assert_eq!(sent(&patterns, pattern, false, 130), None);
            patterns.saw_shared(pattern);
            assert_eq!(sent(&patterns, pattern, false, 11), None);
        }
    }

    #[test]
    fn old_refusals_do_not_count() {
        let (patterns, pattern) = patterns();
        for at in [10, 60, 110, 160] {
            patterns.was_refused(pattern, at as u32, at as u32, at);
        }
        assert_eq!(sent(&patterns, pattern, false, 160), None);
    }

    #[test]
    fn one_request_of_some_is_fetched_although_the_pattern_is_uncacheable() {
        let (patterns, pattern) = patterns();
        (1..=4).for_each(|one| patterns.was_refused(pattern, one, one, 10));
        let fetched =
            (0..10_000).filter(|_| patterns.as_it_came(pattern, false, 11, true).is_none());
        let fetched = fetched.count();
        assert!((400..900).contains(&fetched), "{fetched}");
    }

    #[test]
    fn addresses_of_one_network_count_once() {
        let of = |text: &str| network(Some(text.parse().unwrap()));
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8:0:ffff::1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:1::1"));
        assert_eq!(network(None), 0);
    }
}
