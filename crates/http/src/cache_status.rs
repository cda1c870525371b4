//! The `Cache-Status` field of the proxy's responses (RFC 9211).
//!
//! The reason for an outcome is decided elsewhere; here it is a word to write.

use ::http::{HeaderName, HeaderValue};
use bytes::Bytes;

/// `cache-status`
pub static CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// The longest detail that is written, in bytes. Longer ones are cut.
const DETAIL_MAX: usize = 128;

/// Why a request was forwarded to the origin (RFC 9211 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache was configured not to handle this request.
    Bypass,
    /// The method's semantics require it.
    Method,
    /// Nothing is stored under this URI.
    UriMiss,
    /// A response is stored under this URI, but no stored variant matches.
    VaryMiss,
    /// No stored response matches, and the reason is not stated.
    Miss,
    /// A fresh response is stored, but the request's directives ruled it out.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is only a part.
    Partial,
}

impl Forward {
    /// The token as the field carries it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

/// The source of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheResult {
    /// From the cache, without contacting the origin (§2.1).
    Hit,
    /// From the origin, for this reason (§2.2).
    Forwarded(Forward),
    /// From the proxy itself: it neither looked for a page nor asked the origin.
    Own,
}

/// The content of the field for one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// Whether it was a hit or forwarded.
    pub outcome: CacheResult,
    /// The origin's status, if it differs from the response's (§2.3).
    pub forwarded_status: Option<u16>,
    /// Whether the response was stored (§2.5).
    pub stored: bool,
    /// Whether the request shared another request's fetch from the origin (§2.6).
    pub collapsed: bool,
    /// Seconds of freshness left; negative for a stale response (§2.4).
    pub ttl: Option<i64>,
    /// The tier of a hit, or the reason for a miss (§2.8).
    pub detail: Option<&'a str>,
}

impl<'a> CacheStatus<'a> {
    /// A hit with `ttl` seconds left, from `detail` (`memory`, `store`).
    #[must_use]
    pub fn hit(ttl: i64, detail: &'a str) -> Self {
        Self { ttl: Some(ttl), detail: Some(detail), ..Self::of(CacheResult::Hit) }
    }

    /// A forwarded request, with `detail` as its reason.
    #[must_use]
    pub fn forwarded(why: Forward, detail: Option<&'a str>) -> Self {
        Self { detail, ..Self::of(CacheResult::Forwarded(why)) }
    }

    /// A request that the proxy carried out itself; `detail` says which kind.
    #[must_use]
    pub fn own(detail: &'a str) -> Self {
        Self { detail: Some(detail), ..Self::of(CacheResult::Own) }
    }

    /// The same with another detail.
    #[must_use]
    pub fn with_detail(self, detail: &'a str) -> Self {
        Self { detail: Some(detail), ..self }
    }

    fn of(outcome: CacheResult) -> Self {
        Self {
            outcome,
            forwarded_status: None,
            stored: false,
            collapsed: false,
            ttl: None,
            detail: None,
        }
    }

    /// The full field value.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        // PERF: one buffer, which becomes the value without a copy.
        let detail = self.detail.map(|detail| &detail[..detail.floor_char_boundary(DETAIL_MAX)]);
        let mut text = Vec::with_capacity(96 + detail.map_or(0, str::len));
        self.put_outcome(&mut text);
        if let Some(status) = self.forwarded_status {
            put_number(&mut text, "; fwd-status=", status);
        }
        if self.stored {
            text.extend_from_slice(b"; stored");
        }
        if self.collapsed {
            text.extend_from_slice(b"; collapsed");
        }
        if let Some(ttl) = self.ttl {
            put_number(&mut text, "; ttl=", ttl);
        }
        if let Some(detail) = detail {
            text.extend_from_slice(b"; detail=");
            put_detail(&mut text, detail);
        }
        into_value(text)
    }

    /// The field value with only `hit` or `fwd`.
    #[must_use]
    pub fn short_value(&self) -> HeaderValue {
        let mut text = Vec::with_capacity(32);
        self.put_outcome(&mut text);
        into_value(text)
    }

    fn put_outcome(&self, text: &mut Vec<u8>) {
        text.extend_from_slice(b"anteroom");
        match self.outcome {
            CacheResult::Own => {}
            CacheResult::Hit => text.extend_from_slice(b"; hit"),
            CacheResult::Forwarded(why) => {
                text.extend_from_slice(b"; fwd=");
                text.extend_from_slice(why.as_str().as_bytes());
            }
        }
    }
}

fn put_number(text: &mut Vec<u8>, before: &str, number: impl itoa::Integer) {
    text.extend_from_slice(before.as_bytes());
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends `detail` as a token if it is one (RFC 9651 §3.3.4), else as a string (§3.3.3). In a string, bytes
/// other than visible ASCII become `?`.
fn put_detail(text: &mut Vec<u8>, detail: &str) {
    let starts = detail.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*');
    if starts && detail.bytes().all(is_token_byte) {
        text.extend_from_slice(detail.as_bytes());
        return;
    }
    text.push(b'"');
    for byte in detail.bytes() {
        match byte {
            b'"' | b'\\' => text.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => text.push(byte),
            _ => text.push(b'?'),
        }
    }
    text.push(b'"');
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

fn into_value(text: Vec<u8>) -> HeaderValue {
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .expect("tokens, numbers and escaped strings are visible ASCII")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_field_reads_as_the_rfc_s_examples_do() {
        let miss = CacheStatus::forwarded(Forward::UriMiss, None);
        for (status, full, short) in [
            (
                CacheStatus::hit(123, "memory"),
                "anteroom; hit; ttl=123; detail=memory",
                "anteroom; hit",
            ),
            (CacheStatus::hit(-7, "store"), "anteroom; hit; ttl=-7; detail=store", "anteroom; hit"),
            (miss, "anteroom; fwd=uri-miss", "anteroom; fwd=uri-miss"),
            (
                CacheStatus { stored: true, ttl: Some(300), ..miss },
                "anteroom; fwd=uri-miss; stored; ttl=300",
                "anteroom; fwd=uri-miss",
            ),
            (
                CacheStatus { collapsed: true, forwarded_status: Some(304), ..miss },
                "anteroom; fwd=uri-miss; fwd-status=304; collapsed",
                "anteroom; fwd=uri-miss",
            ),
            (CacheStatus::own("method"), "anteroom; detail=method", "anteroom"),
            (
                CacheStatus::forwarded(Forward::Bypass, Some("unknown-cookie")),
                "anteroom; fwd=bypass; detail=unknown-cookie",
                "anteroom; fwd=bypass",
            ),
            (
                CacheStatus::forwarded(Forward::Stale, Some("a \"b\"\\ü\n")),
                "anteroom; fwd=stale; detail=\"a \\\"b\\\"\\\\???\"",
                "anteroom; fwd=stale",
            ),
        ] {
            assert_eq!(status.value(), full);
            assert_eq!(status.short_value(), short);
        }
    }

    #[test]
    fn details_are_tokens_or_strings() {
        for (detail, expected) in [
            ("memory", "memory"),
            ("*", "*"),
            ("a:b/c.d", "a:b/c.d"),
            ("", "\"\""),
            ("1st", "\"1st\""),
            ("a b", "\"a b\""),
            ("a;b", "\"a;b\""),
            ("a,b", "\"a,b\""),
        ] {
            let value = CacheStatus::forwarded(Forward::Miss, Some(detail)).value();
            assert_eq!(value, format!("anteroom; fwd=miss; detail={expected}"));
        }
    }

    proptest! {
        #[test]
        fn any_detail_gives_a_bounded_value(detail in "\\PC{0,300}", ttl: i64) {
            let value = CacheStatus::hit(ttl, &detail).value();
            prop_assert!(value.len() < 96 + 2 * DETAIL_MAX + 2);
            prop_assert!(value.to_str().is_ok());
        }
    }
}
