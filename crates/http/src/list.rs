//! Comma-separated lists in field values (RFC 9110 §5.6.1), as bytes and without allocation.
//!
//! This file knows the syntax only; callers interpret the members.

use ::http::{HeaderMap, HeaderName};

/// The members of the list field `name` over all its lines, trimmed, without empty ones. Commas inside quoted
/// strings do not separate members.
pub fn members<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h [u8]> + use<'h> {
    headers.get_all(name).iter().flat_map(|line| split(line.as_bytes(), b','))
}

/// The value of the field `name`, if it has exactly one line.
pub fn only_line<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    lines.next().is_none().then_some(line.as_bytes())
}

/// The parts of `text` between `separator`s outside quoted strings, trimmed, without empty ones. An unclosed
/// string extends to the end.
pub fn split(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quotes = Quotes::default();
    text.split(move |&byte| !quotes.hold(byte) && byte == separator)
        .map(trim)
        .filter(|part| !part.is_empty())
}

/// Whether `text` is a quoted string, closed by its last byte.
pub fn is_string(text: &[u8]) -> bool {
    let mut quotes = Quotes::default();
    text.first() == Some(&b'"')
        && text.iter().position(|&byte| !quotes.hold(byte)) == Some(text.len() - 1)
}

/// Tracks where quoted strings begin and end (RFC 9110 §5.6.4).
#[derive(Default)]
struct Quotes {
    is_open: bool,
    is_escaped: bool,
}

impl Quotes {
    /// Whether `byte`, the next byte, is inside a quoted string.
    fn hold(&mut self, byte: u8) -> bool {
        if self.is_escaped {
            self.is_escaped = false;
        } else if self.is_open && byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            self.is_open = !self.is_open;
        }
        self.is_open
    }
}

/// Whether there is a line of `name`. PERF: where a message has few fields, and most likely not this one, comparing
/// their names is cheaper than hashing it.
pub fn has_line(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|present| present == name)
}

/// `text` without the optional whitespace (OWS, RFC 9110 §5.6.3) around it.
pub fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The parts of `text` before and after the first `separator`; the second is `None` without a separator.
pub fn divide(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// The number in `digits`: one or more digits and nothing else. Numbers larger than `most` become `most` (RFC
/// 9111 §1.2.2).
pub fn saturating_digits(digits: &[u8], most: u64) -> Option<u64> {
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then(|| {
        digits.iter().fold(0, |sum: u64, digit| {
            sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')).min(most)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        split(text.as_bytes(), b',').map(|part| std::str::from_utf8(part).unwrap()).collect()
    }

    #[test]
    fn lists_split_at_commas_outside_quotes() {
        for (text, expected) in [
            ("", vec![]),
            (" , ,, ", vec![]),
            ("a", vec!["a"]),
            ("a,b", vec!["a", "b"]),
            (" a\t, b ", vec!["a", "b"]),
            ("a=\"x,y\",b", vec!["a=\"x,y\"", "b"]),
            ("a=\"x\\\",y\",b", vec!["a=\"x\\\",y\"", "b"]),
            ("a\\,b", vec!["a\\", "b"]),
            ("a=\"never closed, b", vec!["a=\"never closed, b"]),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_string_ends_at_its_last_byte() {
        for (text, expected) in [
            ("", false),
            ("a", false),
            ("\"", false),
            ("\"\"", true),
            ("\"a, b\"", true),
            ("\"a\\\"", false),
            ("\"a\\\\\"", true),
            ("\"a", false),
            ("\"a\"b", false),
            ("\"a\"\"b\"", false),
        ] {
            assert_eq!(is_string(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn digits_saturate_and_garbage_is_none() {
        for (text, expected) in [
            ("0", Some(0)),
            ("007", Some(7)),
            ("4294967296", Some(1 << 31)),
            ("99999999999999999999999999", Some(1 << 31)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            (" 1", None),
        ] {
            assert_eq!(saturating_digits(text.as_bytes(), 1 << 31), expected, "{text}");
        }
    }
}
