//! Which of the fields that change a request's course it has.
//!
//! Most requests have none of them. The set is made once, so that no stage looks for each field again.

use ::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, PRAGMA, PROXY_AUTHORIZATION, RANGE,
    TRANSFER_ENCODING,
};
use ::http::{HeaderMap, HeaderName};

use super::cdn_loop::CDN_LOOP;

/// A set of request fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u16);

impl FieldSet {
    /// `Authorization`.
    pub const AUTHORIZATION: Self = Self(1);
    /// `Authorization` and `Proxy-Authorization`.
    pub const CREDENTIALS: Self = Self(1 | 1 << 1);
    /// `If-Match` and `If-Unmodified-Since`.
    pub const GUARDS: Self = Self(1 << 2);
    /// All conditions of RFC 9110 §13.1 but `If-Range`.
    pub const CONDITIONS: Self = Self(1 << 2 | 1 << 3);
    /// `Cache-Control`.
    pub const CACHE_CONTROL: Self = Self(1 << 4);
    /// `Cache-Control` and `Pragma`.
    pub const DIRECTIVES: Self = Self(1 << 4 | 1 << 5);
    /// `Range`.
    pub const RANGE: Self = Self(1 << 6);
    /// `Connection`.
    pub const CONNECTION: Self = Self(1 << 7);
    /// `Content-Length`, `Transfer-Encoding` and `Expect`.
    pub const FRAMING: Self = Self(1 << 8);
    /// `Cookie`.
    pub const COOKIE: Self = Self(1 << 9);
    /// `CDN-Loop`.
    pub const CDN_LOOP: Self = Self(1 << 10);

    /// The set's members among these fields.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |set, name| set | Self::bit(name)))
    }

    /// Whether it has any of `fields`.
    #[must_use]
    pub fn has(self, fields: Self) -> bool {
        self.0 & fields.0 != 0
    }

    fn bit(name: &HeaderName) -> u16 {
        match *name {
            AUTHORIZATION => 1,
            PROXY_AUTHORIZATION => 1 << 1,
            IF_MATCH | IF_UNMODIFIED_SINCE => 1 << 2,
            IF_NONE_MATCH | IF_MODIFIED_SINCE => 1 << 3,
            CACHE_CONTROL => 1 << 4,
            PRAGMA => 1 << 5,
            RANGE => 1 << 6,
            CONNECTION => 1 << 7,
            CONTENT_LENGTH | TRANSFER_ENCODING | EXPECT => 1 << 8,
            COOKIE => 1 << 9,
            _ if *name == CDN_LOOP => 1 << 10,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[test]
    fn a_set_has_what_the_request_has() {
        for (name, fields) in [
            (AUTHORIZATION, FieldSet::AUTHORIZATION),
            (PROXY_AUTHORIZATION, FieldSet::CREDENTIALS),
            (IF_MATCH, FieldSet::GUARDS),
            (IF_NONE_MATCH, FieldSet::CONDITIONS),
            (CACHE_CONTROL, FieldSet::CACHE_CONTROL),
            (PRAGMA, FieldSet::DIRECTIVES),
            (RANGE, FieldSet::RANGE),
            (CONNECTION, FieldSet::CONNECTION),
            (EXPECT, FieldSet::FRAMING),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("shop.test"));
            assert_eq!(FieldSet::of(&headers), FieldSet::default());
            headers.insert(&name, HeaderValue::from_static("1"));
            assert!(FieldSet::of(&headers).has(fields), "{name}");
            let only_wider = [PROXY_AUTHORIZATION, IF_NONE_MATCH, PRAGMA].contains(&name);
            assert!(!only_wider || !FieldSet::of(&headers).has(FieldSet(1 | 1 << 2 | 1 << 4)));
        }
    }
}
