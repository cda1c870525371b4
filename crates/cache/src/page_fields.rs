//! The field lines of a stored page, in the form in which HTTP/1.1 sends them.
//!
//! A page in memory needs no map of its fields, and a hit sends the lines as they are. What a hit has to know of
//! them is found out once, when the page is stored or loaded.

use std::sync::Arc;

use ::http::header::{
    ACCEPT_ENCODING, AGE, CONNECTION, DATE, ETAG, TRAILER, TRANSFER_ENCODING, VARY,
};
use ::http::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use anteroom_http::coding::Coding;
use anteroom_http::conditional::validators;
use anteroom_http::recoding_terms::RecodingTerms;
use anteroom_http::targeted::CDN_CACHE_CONTROL;
use anteroom_http::vary::Vary;
use anteroom_http::{field_line, hop};

/// The fields that are not sent as they are stored: they are replaced, depend on the body, or are the cache's own.
static NEVER_AS_STORED: [&HeaderName; 5] =
    [&AGE, &CONNECTION, &TRAILER, &TRANSFER_ENCODING, &CDN_CACHE_CONTROL];

/// The field lines of a stored page.
#[derive(Clone, PartialEq, Eq)]
pub struct PageFields {
    /// `name: value` with a CRLF each (RFC 9112 §5), names in lower case.
    lines: Arc<[u8]>,
    /// What they say about recoding.
    pub recodable: RecodingTerms,
    /// The one coding of the body; `None`: unknown, or several.
    pub coding: Option<Coding>,
    /// Whether they have a validator (RFC 9110 §8.8).
    pub has_validator: bool,
    /// Whether they have a `Date`.
    pub has_date: bool,
    /// Whether their `Vary` covers `Accept-Encoding`.
    pub varies_by_coding: bool,
    /// Where the last line of `Vary` ends, if there is one.
    vary_end: Option<usize>,
    /// The length of the body with which the lines may be sent as they are.
    fits: FittingLength,
}

/// With which bodies field lines may be sent as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FittingLength {
    /// With each: they state no length.
    Any,
    /// With a body of so many bytes.
    Stated(u64),
    /// With none.
    Never,
}

impl PageFields {
    /// The lines of these fields, and what they say.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let size = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let (mut lines, mut vary_end) = (Vec::with_capacity(size), None);
        for (name, value) in headers {
            field_line::put(&mut lines, name.as_str(), value.as_bytes());
            if *name == VARY {
                vary_end = Some(lines.len());
            }
        }
        let vary = Vary::parse(headers);
        Self {
            lines: lines.into(),
            recodable: RecodingTerms::of(headers),
            coding: Coding::of(headers),
            has_validator: !validators(headers).is_empty(),
            has_date: headers.contains_key(DATE),
            varies_by_coding: vary == Vary::Any || vary.names(&ACCEPT_ENCODING),
            vary_end,
            fits: FittingLength::of(headers),
        }
    }

    /// These fields, which have no `ETag`, with one.
    #[must_use]
    pub fn tagged(&self, tag: &HeaderValue) -> Self {
        let mut lines = self.lines.to_vec();
        field_line::put(&mut lines, ETAG.as_str(), tag.as_bytes());
        Self { lines: lines.into(), has_validator: true, ..self.clone() }
    }

    /// The lines as bytes, each with its CRLF.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.lines
    }

    /// The lines to the last one of `Vary`, and those after it. Without a `Vary` the first part is empty.
    #[must_use]
    pub fn around_vary(&self) -> (&[u8], &[u8]) {
        self.lines.split_at(self.vary_end.unwrap_or(0))
    }

    /// Name and value of each line, in their order.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &*self.lines;
        std::iter::from_fn(move || {
            // A value has no line feed, and a name no colon.
            let end = memchr::memchr(b'\n', rest)?;
            let (line, next) = rest.split_at(end + 1);
            rest = next;
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], &line[colon + 2..end - 1]))
        })
    }

    /// Whether there is a line of `name`.
    #[must_use]
    pub fn has(&self, name: &HeaderName) -> bool {
        self.get(name).is_some()
    }

    /// The value of the first line of `name`.
    #[must_use]
    pub fn get(&self, name: &HeaderName) -> Option<&[u8]> {
        let wanted = name.as_str().as_bytes();
        self.lines().find(|(name, _)| *name == wanted).map(|(_, value)| value)
    }

    /// The fields as a map, whose values share the lines' bytes.
    #[must_use]
    pub fn map(&self) -> HeaderMap {
        self.mapped(self.lines().count(), |_| true)
    }

    /// Those of these names as a map.
    #[must_use]
    pub fn some(&self, names: &[HeaderName]) -> HeaderMap {
        let is_wanted = |name: &[u8]| names.iter().any(|wanted| wanted.as_str().as_bytes() == name);
        self.mapped(names.len(), is_wanted)
    }

    fn mapped(&self, capacity: usize, is_wanted: impl Fn(&[u8]) -> bool) -> HeaderMap {
        let bytes = Bytes::from_owner(Arc::clone(&self.lines));
        let mut map = HeaderMap::with_capacity(capacity);
        for (name, value) in self.lines().filter(|(name, _)| is_wanted(name)) {
            // The lines were made from a map.
            let name = HeaderName::from_bytes(name).expect("the bytes of a name are a name");
            let value = HeaderValue::from_maybe_shared(bytes.slice_ref(value));
            map.append(name, value.expect("the bytes of a value are a value"));
        }
        map
    }

    /// Whether lines that may be sent as they are have a `Content-Length`.
    #[must_use]
    pub fn states_length(&self) -> bool {
        matches!(self.fits, FittingLength::Stated(_))
    }

    /// Whether a response with a body of `length` bytes may have the lines as they are stored.
    #[must_use]
    pub fn fit(&self, length: usize) -> bool {
        match self.fits {
            FittingLength::Any => true,
            FittingLength::Stated(stated) => stated == length as u64,
            FittingLength::Never => false,
        }
    }
}

impl FittingLength {
    fn of(headers: &HeaderMap) -> Self {
        if NEVER_AS_STORED.iter().any(|name| headers.contains_key(*name)) {
            return Self::Never;
        }
        match hop::content_length(headers) {
            Ok(None) => Self::Any,
            Ok(Some(length)) => Self::Stated(length),
            Err(_) => Self::Never,
        }
    }
}

impl Default for PageFields {
    fn default() -> Self {
        Self::of(&HeaderMap::new())
    }
}

impl std::fmt::Debug for PageFields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.map().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use ::http::header::{CONTENT_TYPE, SET_COOKIE};
    use proptest::prelude::*;

    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> PageFields {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        PageFields::of(&headers)
    }

    #[test]
    fn the_lines_are_those_of_a_response() {
        let some = fields(&[("content-type", "text/html"), ("x-a", ""), ("x-b", "a: b")]);
        assert_eq!(some.as_bytes(), b"content-type: text/html\r\nx-a: \r\nx-b: a: b\r\n");
        assert_eq!(some.get(&CONTENT_TYPE), Some(&b"text/html"[..]));
        assert_eq!(some.get(&HeaderName::from_static("x-b")), Some(&b"a: b"[..]));
        assert!(!some.has(&SET_COOKIE) && !some.has(&HeaderName::from_static("x")));
        assert!(PageFields::default().map().is_empty());
    }

    #[test]
    fn lines_fit_the_body_that_they_describe() {
        for (lines, lengths) in [
            (&[("etag", "\"a\"")][..], [true, true]),
            (&[("content-length", "5")], [true, false]),
            (&[("content-length", "5"), ("content-length", "5")], [false, false]),
            (&[("content-length", "+5")], [false, false]),
            (&[("age", "5")], [false, false]),
            (&[("trailer", "etag")], [false, false]),
            (&[("transfer-encoding", "chunked")], [false, false]),
            (&[("connection", "close")], [false, false]),
            (&[("cdn-cache-control", "max-age=5")], [false, false]),
        ] {
            let fields = fields(lines);
            assert_eq!([fields.fit(5), fields.fit(6)], lengths, "{lines:?}");
        }
    }

    #[test]
    fn a_tag_is_added_as_to_a_map() {
        let tag = HeaderValue::from_static("\"a\"");
        let before = fields(&[("content-type", "text/html"), ("vary", "*"), ("date", "now")]);
        let mut map = before.map();
        map.insert(ETAG, tag.clone());
        assert_eq!(before.tagged(&tag), PageFields::of(&map));
    }

    #[test]
    fn a_vary_covers_the_coding_by_its_name_or_by_a_star() {
        for (value, expected) in [
            ("Accept-Encoding", true),
            ("accept-language", false),
            ("a, accept-encoding", true),
            ("*", true),
        ] {
            assert_eq!(fields(&[("vary", value)]).varies_by_coding, expected, "{value}");
        }
        assert!(!fields(&[]).varies_by_coding);
    }

    #[test]
    fn a_map_of_them_copies_no_value() {
        let some = fields(&[("vary", "a"), ("vary", "b"), ("age", "1")]);
        assert_eq!(some.some(&[VARY]), fields(&[("vary", "a"), ("vary", "b")]).map());
        let range = some.as_bytes().as_ptr_range();
        assert!(
            some.map().get_all(VARY).iter().all(|line| range.contains(&line.as_bytes().as_ptr()))
        );
    }

    proptest! {
        #[test]
        fn a_map_comes_back(
            lines in proptest::collection::vec(
                ("[a-z-]{1,8}", proptest::collection::vec(0x20..=0xff_u8, 0..20)), 0..12),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in &lines {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(name.parse::<HeaderName>().unwrap(), value);
                }
            }
            let stored = PageFields::of(&headers);
            prop_assert_eq!(stored.map(), headers.clone());
            for name in headers.keys() {
                prop_assert_eq!(stored.get(name), headers.get(name).map(HeaderValue::as_bytes));
            }
        }
    }
}
