//! Whose request it is, and the cookies that its answer may depend on, as keyed hashes.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use ::http::header::{AUTHORIZATION, USER_AGENT};
use ahash::RandomState;
use anteroom_cache::learn::Learning;
use anteroom_http::cookie::{cookies, is_harmless, named};
use anteroom_telemetry::metrics::cookie_label;

use crate::context::RequestContext;

/// The most cookies of a request that are looked at.
pub(super) const COOKIES_MAX: usize = 32;

/// How long a name before a number is at least, in bytes: a short one stands for too many.
const STEM_MIN: usize = 8;
/// The same, with a sign between both.
const ID_STEM_MIN: usize = 4;

/// The visitor of a request.
pub(super) struct SeenVisitor {
    /// A keyed hash of the address, the browser and the cookies.
    pub(super) visitor: u64,
    /// How many cookies were known then that tell no visitors apart.
    pub(super) renewed_known: u32,
    /// The cookies that no key has; `None`: there are too many, or one that has no name to be learned by.
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
        let login = headers.get_all(AUTHORIZATION).iter();
        login.for_each(|line| line.as_bytes().hash(&mut hasher));
        from.hash(&mut hasher);
        let rules = &cx.worker.settings.cookies;
        // A cookie that is set with the first answer, and ignored, makes no other visitor; nor does one that each answer
        // changes.
        let renewed = learning.renewed_cookies();
        let is_renewed = |name: &[u8]| {
            !renewed.is_empty() && learned_name(name).is_some_and(|name| renewed.contains(&name))
        };
        let means_visitor =
            may_matter().filter(|(name, _)| !rules.is_harmless(name) && !is_renewed(name));
        means_visitor.take(COOKIES_MAX).for_each(|pair| pair.hash(&mut hasher));
        let visitor = hasher.finish();
        // A piece without a name may be a secret.
        let have_names = cookies(headers).count() == named(headers).count();
        let learned =
            may_matter().map(|(name, value)| Some((learned_name(name)?, short(&key, value))));
        let learned: Option<Vec<(String, u32)>> = learned.take(COOKIES_MAX + 1).collect();
        let learned = learned.filter(|all| have_names && all.len() <= COOKIES_MAX);
        let cookies = learned.and_then(|all| {
            learning.cookies(from, all.iter().map(|(name, value)| (name.as_str(), *value)))
        });
        Self { visitor, renewed_known: renewed.len() as u32, cookies }
    }
}

/// The name under which a cookie is learned. A number at its end is no part of the name: some apps have a cookie for each
/// page or user. `None`: it has none. A visitor may call a cookie anything, and what is proposed must not stand for
/// more than was seen: so the `*` of a pattern is never the visitor's own, and what is before it is long enough.
pub(super) fn learned_name(name: &[u8]) -> Option<String> {
    let label = cookie_label(name);
    // What is no token is told by another letter.
    if name.is_empty() || name.contains(&b'*') || label.contains('?') {
        return None;
    }
    if let Some(stem) = label.strip_suffix('*') {
        return (stem.len() >= ID_STEM_MIN).then_some(label);
    }
    let stem = label.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_numbered = stem.len() < label.len()
        && (stem.len() >= STEM_MIN || stem.len() >= ID_STEM_MIN && stem.ends_with(['-', '_', '.']));
    Some(if is_numbered { format!("{stem}*") } else { label })
}

fn short(key: &RandomState, value: &[u8]) -> u32 {
    key.hash_one(value) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_end_is_no_part_of_a_name() {
        for (name, learned) in [
            ("wikidbPostEditRevision123", "wikidbPostEditRevision*"),
            ("wp-settings-time-2", "wp-settings-time-*"),
            ("u2", "u2"),
            ("x_1", "x_1"),
            ("cart2", "cart2"),
            ("lang", "lang"),
            ("wordpress_logged_in_5d41402abc4b2a76", "wordpress_logged_in_*"),
        ] {
            assert_eq!(learned_name(name.as_bytes()).as_deref(), Some(learned));
        }
    }

    #[test]
    fn a_name_that_would_stand_for_others_is_not_learned() {
        for name in ["", "*", "se*", "_0123456789ab", "s-deadbeef", "a\\b", "a b?", "wp-*-1"] {
            assert_eq!(learned_name(name.as_bytes()), None, "{name}");
        }
    }
}
