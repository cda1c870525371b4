//! Tokens without a user, remembered for a moment.
//!
//! An app that gives each visitor a session cookie has many tokens that are in no login. The parts of a page
//! arrive together, and need no look-up each.

use quick_cache::sync::Cache;

use anteroom_http::ident::StoredToken;

/// The most tokens remembered; the least used are evicted first.
const UNKNOWN_MAX: usize = 10_000;
/// How long a token is remembered, in seconds.
const UNKNOWN_TTL: f64 = 0.1;

/// Tokens that had no user a moment ago.
#[derive(Debug)]
pub(super) struct UnknownTokens(Cache<StoredToken, f64>);

impl Default for UnknownTokens {
    fn default() -> Self {
        Self(Cache::new(UNKNOWN_MAX))
    }
}

impl UnknownTokens {
    /// The store had no user of `token` when it was asked at this Unix time.
    pub(super) fn remember(&self, token: &StoredToken, at: f64) {
        self.0.insert(token.clone(), at);
    }

    pub(super) fn forget(&self, token: &StoredToken) {
        self.0.remove(token);
    }

    /// A clock that was set back ends it, too.
    pub(super) fn has(&self, token: &StoredToken, now: f64) -> bool {
        self.0.get(token).is_some_and(|at| now >= at && now < at + UNKNOWN_TTL)
    }
}
