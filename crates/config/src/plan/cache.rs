//! `[cache]`, `[views]` and `[purge]`.

use std::time::Duration;

use anteroom_http::coding::Coding;
use anteroom_http::pattern::Pattern;
use anteroom_http::request_fields::IdentityHeaders;
use ipnet::IpNet;

use anteroom_policy::answer::StatusDetail;
use anteroom_policy::audit::AuditRate;
use anteroom_policy::learn::CacheMode;
use anteroom_policy::purge_rule::PurgeRule;

const MIB: u64 = 1 << 20;
/// `memory = "auto"` is no more than this.
const AUTO_MEMORY_MAX: u64 = 256 * MIB;
/// The least that it is: less would hold too few pages to be of use.
const AUTO_MEMORY_MIN: u64 = 16 * MIB;

/// `[cache]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// `mode`, `"serve"`: whether the cache serves, or it is learned what it would do.
    pub mode: CacheMode,
    /// `default_ttl`, 300 s; zero: only lifetimes set by the origin.
    pub default_ttl: Duration,
    /// `stale_while_revalidate`, 0: how long a stale page is served while it is revalidated, if the origin
    /// does not set it.
    pub stale_while_revalidate: Duration,
    /// `stale_if_error`, 1 h: how long a stale page is served while the origin fails, if the origin does
    /// not set it.
    pub stale_if_error: Duration,
    /// `audit`, 1/1000: which part of the hits is held against the app.
    pub audit: AuditRate,
    /// `refresh_ahead`, false: whether popular pages are fetched again before they expire.
    pub refresh_ahead: bool,
    /// `warm_after_purge`, 0: how many of the hottest pages that a purge hits are fetched again.
    pub warm_after_purge: usize,
    /// `client_directives`, `"ignore"` (false) or `"honour"`: whether a visitor's `no-cache`, `max-age`
    /// and `min-fresh` cause a new fetch.
    pub client_directives: bool,
    /// `unknown_cookies`, `"bypass"` (true) or `"ignore"`.
    pub unknown_cookies_bypass: bool,
    /// `trust_public`, false.
    pub trust_public: bool,
    /// `static_for_all`, true.
    pub static_for_all: bool,
    /// `fill_client_address`, false: whether a fill carries the visitor's address.
    pub fill_client_address: bool,
    /// `ignore_cookies`, in addition to the built-in list.
    pub ignore_cookies: Vec<Pattern>,
    /// `ignore_query`: names, or patterns with one `*`, of query parameters that are removed.
    pub ignore_query: Vec<Pattern>,
    /// `identity_headers`: names, or patterns with one `*`, of request fields that name the sender of a request.
    pub identity_headers: Vec<Pattern>,
    /// `memory`, bytes of pages; none, `"auto"`: see [`Self::auto_memory`].
    pub memory: Option<u64>,
    /// `warm_start`, 2 s: how long the start may read the pages that were in use before into memory; zero: not at all.
    pub warm_start: Duration,
    /// `max_object`, 8 MiB.
    pub max_object: u64,
    /// `compress`, `["zstd", "br", "gzip"]`: the content codings that the proxy produces, in order of
    /// preference. Empty: pages keep the coding that they came in.
    pub compress: Vec<Coding>,
    /// `status`, `"full"`.
    pub status: StatusDetail,
}

impl Default for Cache {
    fn default() -> Self {
        let exact = |name: &str| Pattern::Exact(name.to_owned());
        Self {
            mode: CacheMode::Serve,
            default_ttl: Duration::from_secs(300),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::from_secs(3600),
            audit: AuditRate::DEFAULT,
            refresh_ahead: false,
            warm_after_purge: 0,
            client_directives: false,
            unknown_cookies_bypass: true,
            trust_public: false,
            static_for_all: true,
            fill_client_address: false,
            ignore_cookies: Vec::new(),
            ignore_query: vec![
                Pattern::Affix { prefix: "utm_".to_owned(), suffix: String::new() },
                exact("gclid"),
                exact("fbclid"),
                exact("msclkid"),
                exact("mc_cid"),
            ],
            identity_headers: IdentityHeaders::default().patterns().to_vec(),
            memory: None,
            warm_start: Duration::from_secs(2),
            max_object: 8 * MIB,
            compress: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            status: StatusDetail::Full,
        }
    }
}

impl Cache {
    /// What `memory = "auto"` is for a process that may use `limit` bytes: 256 MiB, or two fifths of a small limit.
    /// The rest is for connections, for bodies in flight (`[limits] in_flight`, 64 MiB), and for what an allocator
    /// loses between pages.
    #[must_use]
    pub fn auto_memory(limit: Option<u64>) -> u64 {
        limit.map_or(AUTO_MEMORY_MAX, |bytes| {
            (bytes / 5 * 2 / MIB * MIB).clamp(AUTO_MEMORY_MIN, AUTO_MEMORY_MAX)
        })
    }

    /// The bytes for pages in memory of a process that may use `limit` bytes.
    #[must_use]
    pub fn memory_within(&self, limit: Option<u64>) -> u64 {
        self.memory.unwrap_or_else(|| Self::auto_memory(limit))
    }
}

/// `[views]`: how the popularity of items is tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewsConfig {
    /// `rescale_every`, 300 s: how often scores are halved.
    pub rescale_every: Duration,
    /// `keep_top`, 20,000: the items that are kept then.
    pub keep_top: u64,
    /// `rescale_percent`, 50: the percentage of each score that remains then.
    pub rescale_percent: u32,
}

impl Default for ViewsConfig {
    fn default() -> Self {
        Self { rescale_every: Duration::from_secs(300), keep_top: 20_000, rescale_percent: 50 }
    }
}

/// `[purge]`: purges over the public listener, and after requests of the app's users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purge {
    /// `method`, false: whether the method PURGE on the public listener purges a URL.
    pub method: bool,
    /// `purge_from`: the peers that may purge.
    pub purge_from: Vec<IpNet>,
    /// `purge_token`, `"admin"`.
    pub purge_token: PurgeAuthorization,
    /// `after`: unsafe requests whose success makes pages stale.
    pub after: Vec<PurgeRule>,
}

/// The token that a PURGE needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PurgeAuthorization {
    /// The token in `[admin]`.
    #[default]
    Admin,
    /// None: only for peers in private networks.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_memory_is_two_fifths_of_a_small_limit() {
        let auto = |limit_mib: u64| Cache::auto_memory(Some(limit_mib * MIB)) / MIB;
        assert_eq!([10, 64, 200, 512, 640, 24_000].map(auto), [16, 25, 80, 204, 256, 256]);
        assert_eq!(Cache::auto_memory(None), 256 * MIB);
        let said = Cache { memory: Some(512 * MIB), ..Cache::default() };
        assert_eq!(said.memory_within(Some(200 * MIB)), 512 * MIB);
    }
}
