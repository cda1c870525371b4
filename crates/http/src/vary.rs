//! `Vary` (RFC 9110 §12.5.5, RFC 9111 §4.1), and the normalised `Accept-Encoding` that is sent to the origin.
//!
//! How variants are stored is decided elsewhere.

use ::http::header::{ACCEPT_ENCODING, ACCEPT_LANGUAGE, VARY};
use ::http::{HeaderMap, HeaderName};

use super::list::{divide, members, trim};
use super::media::is_refused;

/// The most field names that a `Vary` may list. A longer list counts as `*`.
pub const FIELDS_MAX: usize = 16;

/// The request fields on which the choice of a response depended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// No request field.
    None,
    /// Something that a later request cannot be compared with: `*`, too many fields, or invalid field names.
    Any,
    /// These fields, sorted by name and without duplicates.
    Fields(Vec<HeaderName>),
}

impl Vary {
    /// Parses all `Vary` lines. A `*` anywhere takes precedence (RFC 9111 §4.1).
    #[must_use]
    pub fn parse(headers: &HeaderMap) -> Self {
        if !headers.contains_key(VARY) {
            return Self::None;
        }
        let mut fields: Vec<HeaderName> = Vec::new();
        for member in members(headers, &VARY) {
            // `*` is a valid token, and would be accepted as a field name.
            let Some(name) = HeaderName::from_bytes(member).ok().filter(|name| name != "*") else {
                return Self::Any;
            };
            if fields.contains(&name) {
                continue;
            }
            if fields.len() == FIELDS_MAX {
                return Self::Any;
            }
            fields.push(name);
        }
        if fields.is_empty() {
            return Self::None;
        }
        fields.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        Self::Fields(fields)
    }

    /// Whether the field `name` is listed.
    #[must_use]
    pub fn names(&self, name: &HeaderName) -> bool {
        matches!(self, Self::Fields(fields) if fields.contains(name))
    }
}

/// The lines of the field `name` as one text for comparison (RFC 9111 §4.1): members joined by `, `, without
/// surrounding whitespace; languages in lower case (RFC 4647 §2). `None` if the field is absent.
#[must_use]
pub fn selecting_value(headers: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    if !headers.contains_key(name) {
        return None;
    }
    let mut text = Vec::new();
    for (at, member) in members(headers, name).enumerate() {
        if at > 0 {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(member);
    }
    if *name == ACCEPT_LANGUAGE {
        text.make_ascii_lowercase();
    }
    Some(text)
}

/// The `Accept-Encoding` sent in place of the client's: the codings that this proxy can decode and the client
/// accepts, in a fixed order; `None` if there are none. Hundreds of spellings become four, so that `Vary:
/// Accept-Encoding` splits a page into four variants at most.
#[must_use]
pub fn normalised_accept_encoding(headers: &HeaderMap) -> Option<&'static str> {
    let (mut gzip, mut br, mut others) = (None, None, None);
    for member in members(headers, &ACCEPT_ENCODING) {
        let coding = trim(divide(member, b';').0);
        let slot = match coding {
            b"*" => &mut others,
            _ if coding.eq_ignore_ascii_case(b"gzip") => &mut gzip,
            // RFC 9110 §8.4.1.3: `x-gzip` is equivalent to `gzip`.
            _ if coding.eq_ignore_ascii_case(b"x-gzip") => &mut gzip,
            _ if coding.eq_ignore_ascii_case(b"br") => &mut br,
            _ => continue,
        };
        // A coding that is listed twice is accepted only if no member refuses it.
        *slot = Some(slot.unwrap_or(true) && !is_refused(member));
    }
    match (gzip.or(others).unwrap_or(false), br.or(others).unwrap_or(false)) {
        (true, true) => Some("gzip, br"),
        (true, false) => Some("gzip"),
        (false, true) => Some("br"),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use ::http::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE};
    use proptest::prelude::*;

    use super::*;

    fn with(name: &HeaderName, lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (name.clone(), HeaderValue::from_str(line).unwrap())).collect()
    }

    #[test]
    fn fields_are_sorted_and_named_once() {
        for (lines, expected) in [
            (&["Accept-Language"][..], vec![ACCEPT_LANGUAGE]),
            (&["Cookie, accept-language"], vec![ACCEPT_LANGUAGE, COOKIE]),
            (&["accept-language", "COOKIE"], vec![ACCEPT_LANGUAGE, COOKIE]),
            (&["Cookie,cookie , Cookie"], vec![COOKIE]),
            (&[" , Cookie,,"], vec![COOKIE]),
        ] {
            assert_eq!(Vary::parse(&with(&VARY, lines)), Vary::Fields(expected), "{lines:?}");
        }
    }

    #[test]
    fn nothing_named_is_none() {
        for lines in [&[][..], &[""], &[" , "]] {
            assert_eq!(Vary::parse(&with(&VARY, lines)), Vary::None, "{lines:?}");
        }
    }

    #[test]
    fn a_star_anywhere_is_any() {
        let many = (0..=FIELDS_MAX).map(|n| format!("x-{n}")).collect::<Vec<_>>();
        for lines in [
            &["*"][..],
            &["*, *"],
            &["Cookie, *"],
            &["*, Cookie"],
            &["Cookie", "*"],
            &["Cookie", "Accept, *"],
            &["no name"],
            &["\"Cookie\""],
            &[many.join(",").as_str()],
        ] {
            assert_eq!(Vary::parse(&with(&VARY, lines)), Vary::Any, "{lines:?}");
        }
        let Vary::Fields(most) = Vary::parse(&with(&VARY, &[&many[1..].join(",")])) else {
            panic!("{FIELDS_MAX} fields are not too many");
        };
        assert_eq!(most.len(), FIELDS_MAX);
    }

    #[test]
    fn named_fields_are_found() {
        let vary = Vary::parse(&with(&VARY, &["Cookie"]));
        assert!(vary.names(&COOKIE) && !vary.names(&ACCEPT));
        assert!(!Vary::Any.names(&COOKIE) && !Vary::None.names(&COOKIE));
    }

    #[test]
    fn values_are_compared_by_members() {
        for (lines, expected) in [
            (&[][..], None),
            (&[""], Some("")),
            (&["a,b"], Some("a, b")),
            (&["a ,  b"], Some("a, b")),
            (&["a", "b"], Some("a, b")),
            (&["b, a"], Some("b, a")),
            (&["a=\"x,y\" , b"], Some("a=\"x,y\", b")),
        ] {
            let found = selecting_value(&with(&ACCEPT, lines), &ACCEPT);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{lines:?}");
        }
    }

    #[test]
    fn many_spellings_become_four() {
        for (lines, expected) in [
            (&[][..], None),
            (&[""], None),
            (&["identity"], None),
            (&["deflate, zstd"], None),
            (&["gzip"], Some("gzip")),
            (&["GZIP;q=0.5"], Some("gzip")),
            (&["x-gzip"], Some("gzip")),
            (&["gzip, deflate"], Some("gzip")),
            (&["br"], Some("br")),
            (&["gzip, deflate, br, zstd"], Some("gzip, br")),
            (&["br;q=1.0, gzip;q=0.8, *;q=0.1"], Some("gzip, br")),
            (&["br", "gzip"], Some("gzip, br")),
            (&["*"], Some("gzip, br")),
            (&["*;q=0"], None),
            (&["gzip;q=0"], None),
            (&["gzip;q=0, *"], Some("br")),
            (&["gzip; q=0.000, br"], Some("br")),
            (&["gzip, gzip;q=0"], None),
            (&["gzip;q=0.001"], Some("gzip")),
        ] {
            let found = normalised_accept_encoding(&with(&ACCEPT_ENCODING, lines));
            assert_eq!(found, expected, "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..48)) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                let headers: HeaderMap =
                    [(VARY, value.clone()), (ACCEPT_ENCODING, value)].into_iter().collect();
                let _ = (Vary::parse(&headers), normalised_accept_encoding(&headers));
                let _ = selecting_value(&headers, &VARY);
            }
        }

        #[test]
        fn a_normalised_accept_encoding_normalises_to_itself(line in "(gzip|br|\\*|x)(;q=(0|1|0\\.5))?(, (gzip|br)(;q=0)?)?") {
            if let Some(ours) = normalised_accept_encoding(&with(&ACCEPT_ENCODING, &[&line])) {
                prop_assert_eq!(normalised_accept_encoding(&with(&ACCEPT_ENCODING, &[ours])), Some(ours));
            }
        }
    }
}
