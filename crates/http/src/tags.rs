//! Surrogate tags: `Surrogate-Key`, `Cache-Tag`, `xkey` and others. An origin tags its pages with them, so that they
//! can be purged together. The fields are meant for the cache and are removed before a response goes to a
//! client.

use ::http::{HeaderMap, HeaderName};

use super::remove::remove_fields;

/// The most tags that a page may have: a list of products has one for each, and Drupal's pages have hundreds.
pub const TAGS_MAX: usize = 500;
/// The longest accepted tag, in bytes.
pub const TAG_MAX: usize = 256;

/// The field names, and the bytes that separate the tags in each.
pub(super) static FIELDS: [(HeaderName, &[u8]); 7] = [
    (HeaderName::from_static("surrogate-key"), b" \t"),
    (HeaderName::from_static("cache-tag"), b","),
    (HeaderName::from_static("xkey"), b" \t,"),
    (HeaderName::from_static("x-cache-tags"), b","),
    // Magento.
    (HeaderName::from_static("x-magento-tags"), b","),
    // Drupal's modules varnish_purge_tags and purge_purger_http_tagsheader.
    (HeaderName::from_static("cache-tags"), b" \t,"),
    (HeaderName::from_static("purge-cache-tags"), b" \t,"),
];

/// A response has more than [`TAGS_MAX`] tags, or a tag longer than [`TAG_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {TAGS_MAX} tags, or one over {TAG_MAX} bytes")]
pub struct TooManyTags;

/// The tags in a response's fields.
///
/// # Errors
/// [`TooManyTags`]: a tag that was left out could not be purged.
pub fn tags(headers: &HeaderMap) -> Result<Vec<&[u8]>, TooManyTags> {
    let mut tags: Vec<&[u8]> = Vec::new();
    for (name, dividers) in &FIELDS {
        for line in headers.get_all(name) {
            let parts = line.as_bytes().split(|byte| dividers.contains(byte));
            for tag in parts.map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty()) {
                if tags.contains(&tag) {
                    continue;
                }
                if tags.len() == TAGS_MAX || tag.len() > TAG_MAX {
                    return Err(TooManyTags);
                }
                tags.push(tag);
            }
        }
    }
    Ok(tags)
}

/// Whether a field of this name holds tags.
#[must_use]
pub fn holds_tags(name: &HeaderName) -> bool {
    FIELDS.iter().any(|(field, _)| field == name)
}

/// Removes the tag fields.
pub fn strip_tags(headers: &mut HeaderMap) {
    remove_fields(headers, holds_tags);
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn every_field_has_its_own_dividers() {
        let headers = headers(&[
            ("surrogate-key", "a  b,c"),
            ("surrogate-key", "d"),
            ("cache-tag", "e f , g,,"),
            ("xkey", "h,i  a"),
            ("x-magento-tags", "cat_p_1,cms_b"),
            ("cache-tags", "node:1 node_list"),
            ("purge-cache-tags", "node:2"),
        ]);
        let wanted: [&[u8]; 12] = [
            b"a",
            b"b,c",
            b"d",
            b"e f",
            b"g",
            b"h",
            b"i",
            b"cat_p_1",
            b"cms_b",
            b"node:1",
            b"node_list",
            b"node:2",
        ];
        assert_eq!(tags(&headers).unwrap(), wanted);
    }

    #[test]
    fn tags_have_bounds_and_are_consumed() {
        let list = |count: usize| (0..count).map(|n| format!("t{n} ")).collect::<String>();
        let most = headers(&[("surrogate-key", &list(TAGS_MAX))]);
        assert_eq!(tags(&most).unwrap().len(), TAGS_MAX);
        assert_eq!(tags(&headers(&[("surrogate-key", &list(TAGS_MAX + 1))])), Err(TooManyTags));
        let twice = headers(&[("xkey", &list(TAGS_MAX)), ("surrogate-key", &list(TAGS_MAX))]);
        assert_eq!(tags(&twice).unwrap().len(), TAGS_MAX, "the same tag counts once");
        assert!(tags(&headers(&[("xkey", &"x".repeat(256))])).is_ok());
        let mut long = headers(&[("xkey", &"x".repeat(257)), ("etag", "\"1\"")]);
        assert_eq!(tags(&long), Err(TooManyTags));
        strip_tags(&mut long);
        assert_eq!(long.len(), 1);
    }
}
