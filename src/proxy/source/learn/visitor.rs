//! Whose request it is, and the cookies that its answer may depend on, as keyed hashes.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use ::http::header::USER_AGENT;
use ahash::RandomState;

use crate::cache::learn::Learning;
use crate::http::cookie::{cookies, is_harmless};
use crate::proxy::context::RequestContext;
use crate::telemetry::metrics::cookie_label;

/// The most cookies of a request that are looked at.
const COOKIES_MAX: usize = 32;

/// The visitor of a request.
pub(super) struct SeenVisitor {
    /// A keyed hash of the address, the browser and the cookies.
    pub(super) visitor: u64,
    /// The cookies that no key has; `None`: there are too many.
    pub(super) cookies: Option<u64>,
}

impl SeenVisitor {
    pub(super) fn of(cx: &RequestContext<'_>, learning: &Learning) -> Self {
        let key = learning.hash_key();
        let headers = &cx.head.headers;
        let depends_on = |name: &[u8]| !is_harmless(name) && !cx.route.keys_cookie(name);
        let may_matter = || cookies(headers).filter(move |(name, _)| depends_on(name));
        let mut hasher = key.build_hasher();
        let from = key.hash_one((cx.admitted.address, headers.get(USER_AGENT)));
        from.hash(&mut hasher);
        may_matter().take(COOKIES_MAX).for_each(|pair| pair.hash(&mut hasher));
        let visitor = hasher.finish();
        if may_matter().nth(COOKIES_MAX).is_some() {
            return Self { visitor, cookies: None };
        }
        let named: Vec<(String, u32)> =
            may_matter().map(|(name, value)| (cookie_label(name), short(&key, value))).collect();
        let named = named.iter().map(|(name, value)| (name.as_str(), *value));
        Self { visitor, cookies: learning.cookies(from, named) }
    }
}

fn short(key: &RandomState, value: &[u8]) -> u32 {
    key.hash_one(value) as u32
}
