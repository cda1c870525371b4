//! Form bodies (`application/x-www-form-urlencoded`) and percent-encoded user names.
//!
//! These are pure functions over bytes; the shop reads the body and validates the name.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};

/// The first value of `name` in a form body, decoded. Invalid UTF-8 becomes U+FFFD.
pub(super) fn field(body: &[u8], name: &str) -> Option<String> {
    body.split(|&b| b == b'&')
        .map(|pair| pair.split_at(pair.iter().position(|&b| b == b'=').unwrap_or(pair.len())))
        .find(|(key, _)| decode(key) == name)
        .map(|(_, value)| decode(value.strip_prefix(b"=").unwrap_or(value)))
}

fn decode(bytes: &[u8]) -> String {
    let spaced: Vec<u8> = bytes.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

/// Encodes a user name for a field value: `%` and everything but visible ASCII is percent-encoded, so the
/// result is always a valid field value.
pub(super) fn encode_user(user: &str) -> String {
    percent_encode(user.as_bytes(), NOT_IN_A_FIELD).to_string()
}

/// Decodes the user name of such a field value.
pub(super) fn decode_user(value: &[u8]) -> Cow<'_, str> {
    percent_decode(value).decode_utf8_lossy()
}

const NOT_IN_A_FIELD: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_and_decoded() {
        assert_eq!(field(b"a=1&user=Zo%C3%AB+M%26m&b", "user").as_deref(), Some("Zoë M&m"));
        assert_eq!(field(b"user=first&user=second", "user").as_deref(), Some("first"));
        assert_eq!(field(b"user", "user").as_deref(), Some(""));
        assert_eq!(field(b"user=a=b", "user").as_deref(), Some("a=b"));
    }

    #[test]
    fn a_field_that_is_absent_is_not_found() {
        assert_eq!(field(b"", "user"), None);
        assert_eq!(field(b"username=x&=user", "user"), None);
    }

    #[test]
    fn broken_encodings_do_no_harm() {
        assert_eq!(field(b"user=%zz%4&%", "user").as_deref(), Some("%zz%4"));
        assert_eq!(field(b"user=%ff", "user").as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn a_user_name_survives_the_way_through_a_field() {
        for name in ["ada", "Zoë 100%", "a\r\nSet-Cookie: x", "日本", "\0\x7f"] {
            let carried = encode_user(name);
            assert!(carried.bytes().all(|b| b.is_ascii_graphic()), "{carried}");
            assert_eq!(decode_user(carried.as_bytes()), name);
        }
    }
}
