//! Entity tags (RFC 9110 §8.8.3): parses and compares them, and makes them for responses without one.
//!
//! What follows from a comparison is decided elsewhere.

use ::http::header::{ETAG, HeaderName};
use ::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::list::{only_line, trim};

/// A well-formed entity tag. A value without quotes, or with bytes that the grammar forbids, is not a tag: it
/// is passed on and never compared.
///
/// There is no `==`, because equality depends on the kind of comparison (RFC 9110 §8.8.3.2).
#[derive(Clone, Copy, Debug)]
pub struct ETag<'h> {
    is_weak: bool,
    /// The tag, with its quotes.
    opaque: &'h [u8],
}

impl<'h> ETag<'h> {
    /// Parses `text`, ignoring whitespace around it.
    #[must_use]
    pub fn parse(text: &'h [u8]) -> Option<Self> {
        let (tag, rest) = Self::read(trim(text))?;
        rest.is_empty().then_some(tag)
    }

    /// The tag of a response, if it is well formed and the only one.
    #[must_use]
    pub fn of(headers: &'h HeaderMap) -> Option<Self> {
        only_line(headers, &ETAG).and_then(Self::parse)
    }

    /// Whether the tag is weak: the sender does not promise identical bytes (§8.8.1).
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Strong comparison (§8.8.3.2): equal, and neither tag is weak.
    #[must_use]
    pub fn is_strongly(&self, other: &ETag<'_>) -> bool {
        !self.is_weak && !other.is_weak && self.opaque == other.opaque
    }

    /// Weak comparison (§8.8.3.2): equal, whether weak or strong.
    #[must_use]
    pub fn is_weakly(&self, other: &ETag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// Reads a tag at the start of `text`, and returns the rest. `W/` is case-sensitive, and a backslash is
    /// an ordinary character: tags are not quoted strings.
    fn read(text: &'h [u8]) -> Option<(Self, &'h [u8])> {
        let (is_weak, quoted) = match text {
            [b'W', b'/', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let [b'"', inner @ ..] = quoted else {
            return None;
        };
        let length = inner.iter().position(|&byte| !is_etagc(byte))?;
        (inner[length] == b'"').then(|| {
            let (opaque, rest) = quoted.split_at(length + 2);
            (Self { is_weak, opaque }, rest)
        })
    }
}

/// The well-formed tags in all lines of a list field such as `If-None-Match` (§13.1.2). Commas inside quotes
/// do not separate members; malformed members are skipped.
pub fn tags<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = ETag<'h>> + use<'h> {
    headers.get_all(name).iter().flat_map(|line| {
        let mut rest = line.as_bytes();
        std::iter::from_fn(move || {
            while !rest.is_empty() {
                let (tag, behind) = first_member(rest);
                rest = behind;
                if tag.is_some() {
                    return tag;
                }
            }
            None
        })
    })
}

/// A strong tag for `body`, derived from its bytes.
#[must_use]
pub fn of_body(body: &[u8]) -> HeaderValue {
    let digest = Sha256::digest(body);
    let tag = format!("\"{}\"", BASE64_URL_SAFE_NO_PAD.encode(&digest[..16]));
    HeaderValue::try_from(tag).expect("base64 is visible ASCII")
}

/// The tag of a response whose body this proxy recodes. The recoded bytes differ but mean the same, so the
/// tag becomes weak (§8.8.1). It gets no suffix for the coding, so that it matches the origin's own tag by
/// weak comparison. `None` if `tag` is malformed: it must then be removed.
#[must_use]
pub fn recoded(tag: &HeaderValue) -> Option<HeaderValue> {
    let parsed = ETag::parse(tag.as_bytes())?;
    HeaderValue::from_bytes(&[b"W/", parsed.opaque].concat()).ok()
}

/// The first member of a list, if it is a tag, and the rest after its comma. After a malformed member the
/// list continues at the next comma, even inside quotes.
fn first_member(text: &[u8]) -> (Option<ETag<'_>>, &[u8]) {
    let text = trim(text);
    if let Some((tag, rest)) = ETag::read(text) {
        match trim(rest) {
            [] => return (Some(tag), &[]),
            [b',', rest @ ..] => return (Some(tag), rest),
            _ => {}
        }
    }
    let comma = text.iter().position(|&byte| byte == b',');
    (None, comma.map_or(&[], |at| &text[at + 1..]))
}

/// Whether a byte is an `etagc` (§8.8.3): visible ASCII except the quote, or obs-text.
fn is_etagc(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x7e | 0x80..=0xff)
}

#[cfg(test)]
mod tests {
    use ::http::header::IF_NONE_MATCH;
    use proptest::prelude::*;

    use super::*;

    fn found(lines: &[&[u8]]) -> Vec<(bool, Vec<u8>)> {
        let headers: HeaderMap = lines
            .iter()
            .map(|line| (IF_NONE_MATCH, HeaderValue::from_bytes(line).unwrap()))
            .collect();
        tags(&headers, &IF_NONE_MATCH).map(|tag| (tag.is_weak, tag.opaque.to_vec())).collect()
    }

    #[test]
    fn tags_have_quotes_and_maybe_a_weakness() {
        for (text, expected) in [
            (&b"\"a\""[..], Some((false, &b"\"a\""[..]))),
            (b"W/\"a\"", Some((true, b"\"a\""))),
            (b"\"\"", Some((false, b"\"\""))),
            (b"W/\"\"", Some((true, b"\"\""))),
            (b" \"a\"\t", Some((false, b"\"a\""))),
            (b"\"a,b\"", Some((false, b"\"a,b\""))),
            (b"\"W/\"", Some((false, b"\"W/\""))),
            (b"\"a\\\"", Some((false, b"\"a\\\""))),
            (
                b"\"!#$%&'()*+-./:;<=>?@[]^_`{|}~\"",
                Some((false, b"\"!#$%&'()*+-./:;<=>?@[]^_`{|}~\"")),
            ),
            (b"\"\x80\xff\"", Some((false, b"\"\x80\xff\""))),
            (b"", None),
            (b"\"", None),
            (b"W/", None),
            (b"W/\"", None),
            (b"a", None),
            (b"*", None),
            (b"\"a", None),
            (b"a\"", None),
            (b"'a'", None),
            (b"w/\"a\"", None),
            (b"W/a", None),
            (b"W\"a\"", None),
            (b"W/ \"a\"", None),
            (b"W/W/\"a\"", None),
            (b"\"a b\"", None),
            (b"\"a\tb\"", None),
            (b"\"a\x7f\"", None),
            (b"\"a\"b\"", None),
            (b"\"a\"b", None),
            (b"\"a\\\"b\"", None),
            (b"\"a\", \"b\"", None),
        ] {
            let tag = ETag::parse(text).map(|tag| (tag.is_weak(), tag.opaque));
            assert_eq!(tag, expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn tags_are_compared_by_bytes_strongly_or_weakly() {
        // The table of RFC 9110 §8.8.3.2, and further cases.
        for (one, other, strongly, weakly) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
            ("\"1\"", "\"2\"", false, false),
            ("\"a\"", "\"A\"", false, false),
            ("\"1\"", "\"1 \"", false, false),
            ("\"1\"", "\"01\"", false, false),
            ("\"\"", "\"\"", true, true),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                let (Some(a), Some(b)) =
                    (ETag::parse(one.as_bytes()), ETag::parse(other.as_bytes()))
                else {
                    assert!(!strongly && !weakly);
                    continue;
                };
                assert_eq!(a.is_strongly(&b), strongly, "{one} {other}");
                assert_eq!(a.is_weakly(&b), weakly, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_response_has_one_tag_or_none() {
        for (lines, expected) in [
            (&[][..], false),
            (&["\"a\""], true),
            (&["W/\"a\""], true),
            (&["a"], false),
            (&[""], false),
            (&["\"a\"", "\"b\""], false),
            (&["\"a\"", "\"a\""], false),
            (&["\"a\", \"b\""], false),
        ] {
            let headers: HeaderMap =
                lines.iter().map(|line| (ETAG, HeaderValue::from_static(line))).collect();
            assert_eq!(ETag::of(&headers).is_some(), expected, "{lines:?}");
        }
    }

    #[test]
    fn lists_are_divided_outside_of_quotes() {
        let strong = |tag: &str| (false, tag.as_bytes().to_vec());
        let weak = |tag: &str| (true, tag.as_bytes().to_vec());
        for (lines, expected) in [
            (&[][..], vec![]),
            (&[&b""[..]], vec![]),
            (&[b" , ,,"], vec![]),
            (&[b"*"], vec![]),
            (&[b"\"a\""], vec![strong("\"a\"")]),
            (&[b"\"a\",\"b\""], vec![strong("\"a\""), strong("\"b\"")]),
            (&[b" , \"a\" \t,, W/\"b\" ,"], vec![strong("\"a\""), weak("\"b\"")]),
            (&[b"\"a\"", b"W/\"b\""], vec![strong("\"a\""), weak("\"b\"")]),
            (&[b"\"a,b\", \"c\""], vec![strong("\"a,b\""), strong("\"c\"")]),
            (&[b"\"a\\\", \"b\""], vec![strong("\"a\\\""), strong("\"b\"")]),
            (&[b"a, \"b\""], vec![strong("\"b\"")]),
            (&[b"\"a\" \"b\", \"c\""], vec![strong("\"c\"")]),
            (&[b"\"a\"b, \"c\""], vec![strong("\"c\"")]),
            (&[b"w/\"a\", \"c\""], vec![strong("\"c\"")]),
            (&[b"\"a b\", \"c\""], vec![strong("\"c\"")]),
            (&[b"\"a"], vec![]),
            (&[b"\"a, \"b\""], vec![strong("\"b\"")]),
            (&[b"\"a", b"b\""], vec![]),
            (&[b"\"\xe4\""], vec![(false, b"\"\xe4\"".to_vec())]),
        ] {
            assert_eq!(found(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_body_has_a_strong_tag_of_its_own() {
        let (one, other) = (of_body(b"one"), of_body(b"other"));
        assert_eq!(one, of_body(b"one"));
        assert_ne!(one, other);
        assert_eq!(of_body(b""), "\"47DEQpj8HBSa-_TImW-5JA\"");
        assert!(!ETag::parse(one.as_bytes()).unwrap().is_weak());
    }

    #[test]
    fn a_recoded_body_has_a_weak_tag_that_matches_the_old_tag() {
        for (tag, expected) in [
            (&b"\"a\""[..], Some(&b"W/\"a\""[..])),
            (b"W/\"a\"", Some(b"W/\"a\"")),
            (b"\"\xe4\"", Some(b"W/\"\xe4\"")),
            (b"a", None),
            (b"", None),
            (b"\"a\", \"b\"", None),
        ] {
            let recoded = recoded(&HeaderValue::from_bytes(tag).unwrap());
            assert_eq!(recoded.as_ref().map(HeaderValue::as_bytes), expected);
            if let Some(recoded) = recoded {
                let (old, new) =
                    (ETag::parse(tag).unwrap(), ETag::parse(recoded.as_bytes()).unwrap());
                assert!(new.is_weak() && new.is_weakly(&old) && !new.is_strongly(&old));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = ETag::parse(&line);
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let _ = recoded(&value);
                let headers: HeaderMap = [(IF_NONE_MATCH, value)].into_iter().collect();
                prop_assert!(tags(&headers, &IF_NONE_MATCH).count() <= line.len());
            }
        }

        #[test]
        fn lists_of_such_signs_are_read(line in "[W/\", a\\\\]{0,24}") {
            let _ = found(&[line.as_bytes()]);
        }

        #[test]
        fn a_tag_is_found_behind_any_other(before in "(W/)?\"[!#-~]{0,8}\"", tag in "\"[!#-~]{0,8}\"") {
            let found = found(&[format!("{before} , {tag}").as_bytes()]);
            prop_assert_eq!(found.len(), 2);
            prop_assert_eq!(&found[1].1, tag.as_bytes());
        }

        #[test]
        fn a_body_is_weakly_its_recoded_self(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let tag = of_body(&body);
            let weak = recoded(&tag).unwrap();
            let (strong, weak) = (ETag::parse(tag.as_bytes()).unwrap(), ETag::parse(weak.as_bytes()).unwrap());
            prop_assert!(strong.is_strongly(&strong) && weak.is_weakly(&strong) && weak.is_weak());
        }
    }
}
