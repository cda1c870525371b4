//! What of a request an answer may depend on, as keyed hashes, for learn mode and the audit.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use ::http::HeaderMap;
use ::http::header::{ACCEPT, ACCEPT_LANGUAGE, HeaderName, REFERER, USER_AGENT};
use ahash::RandomState;
use anteroom_cache::url_patterns::network;
use anteroom_learn::{FIELDS, RequestField};
use anteroom_telemetry::metrics::cookie_label;

use crate::context::RequestContext;

/// How long a name before a number is at least, in bytes: a short one stands for too many.
const STEM_MIN: usize = 8;
/// The same, with a sign between both.
const ID_STEM_MIN: usize = 4;

/// Client hints, and what else a fetch carries on that says something of the client.
static HINTS: [HeaderName; 10] = [
    HeaderName::from_static("save-data"),
    HeaderName::from_static("sec-ch-ua"),
    HeaderName::from_static("sec-ch-ua-mobile"),
    HeaderName::from_static("sec-ch-ua-platform"),
    HeaderName::from_static("sec-ch-prefers-color-scheme"),
    HeaderName::from_static("dpr"),
    HeaderName::from_static("width"),
    HeaderName::from_static("viewport-width"),
    HeaderName::from_static("device-memory"),
    HeaderName::from_static("ect"),
];

/// The values of the fields that an answer may depend on.
pub(super) fn request_fields(cx: &RequestContext<'_>, key: &RandomState) -> [u32; FIELDS.len()] {
    let headers = &cx.head.headers;
    FIELDS.map(|field| match field {
        RequestField::Address => key.hash_one(network(cx.admitted.address)) as u32,
        RequestField::UserAgent => field_value(key, headers, &[USER_AGENT]),
        RequestField::AcceptLanguage => field_value(key, headers, &[ACCEPT_LANGUAGE]),
        RequestField::Accept => field_value(key, headers, &[ACCEPT]),
        RequestField::Referer => field_value(key, headers, &[REFERER]),
        RequestField::ClientHints => field_value(key, headers, &HINTS),
    })
}

/// A keyed hash of the lines of these fields; 0: none came.
fn field_value(key: &RandomState, headers: &HeaderMap, names: &[HeaderName]) -> u32 {
    let lines =
        names.iter().flat_map(|name| headers.get_all(name).iter().map(move |line| (name, line)));
    let mut hasher = key.build_hasher();
    let count = lines.inspect(|line| line.hash(&mut hasher)).count();
    if count == 0 { 0 } else { (hasher.finish() as u32).max(1) }
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

/// A keyed hash of a cookie's value.
pub(super) fn short(key: &RandomState, value: &[u8]) -> u32 {
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
