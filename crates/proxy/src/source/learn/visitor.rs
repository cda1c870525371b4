//! Whose request it is, and the cookies that its answer may depend on, as keyed hashes.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use ::http::header::{AUTHORIZATION, USER_AGENT};
use anteroom_http::cookie::{cookies, is_harmless, named};
use anteroom_learn::{Causes, Learning};

use crate::context::RequestContext;
use crate::source::causes::{learned_name, request_fields, short};

/// The most cookies of a request that are looked at.
pub(super) const COOKIES_MAX: usize = 32;

/// The visitor of a request.
pub(super) struct SeenVisitor {
    /// A keyed hash of the address, the browser and the cookies.
    pub(super) visitor: u64,
    /// How many cookies were known then that tell no visitors apart.
    pub(super) renewed_known: u32,
    /// What the answer may depend on; `None`: there are too many cookies, or one that has no name to be learned by.
    pub(super) causes: Option<Causes>,
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
        let causes = cookies.map(|cookies| Causes { fields: request_fields(cx, &key), cookies });
        Self { visitor, renewed_known: renewed.len() as u32, causes }
    }
}
