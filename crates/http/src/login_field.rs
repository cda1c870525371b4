//! `Anteroom-Login: alice; group=trade; name="Alice B"`: the field with which an app logs a user in.

use percent_encoding::percent_decode;

use super::list;
use crate::ident::User;

/// Why a value of the field logs in no user.
#[derive(Debug, PartialEq, Eq)]
pub enum InvalidLogin {
    /// The name is empty or too long.
    Name,
    /// The part after the name is malformed, or has too many attributes or too long ones.
    Attributes,
}

/// Parses the value: the name, then attributes as parameters (RFC 9110 §5.6.6), all percent-decoded.
pub fn read(value: &[u8]) -> Result<User, InvalidLogin> {
    let mut parts = list::split(value, b';');
    // The list iterator skips an empty first part, which would make the first attribute the name.
    let name = if list::trim(value).starts_with(b";") { None } else { parts.next() };
    let user = name.and_then(|name| User::new(&decoded(name))).ok_or(InvalidLogin::Name)?;
    let attributes: Option<Vec<_>> = parts.map(attribute).collect();
    let with = attributes.and_then(|attributes| user.with_attributes(&attributes));
    with.ok_or(InvalidLogin::Attributes)
}

fn attribute(part: &[u8]) -> Option<(String, String)> {
    let (name, value) = list::divide(part, b'=');
    let value = list::trim(value?);
    let value = if list::is_string(value) { unquoted(value) } else { value.to_vec() };
    let name = std::str::from_utf8(list::trim(name)).ok()?.to_ascii_lowercase();
    Some((name, String::from_utf8(decoded(&value)).ok()?))
}

fn decoded(text: &[u8]) -> Vec<u8> {
    percent_decode(text).collect()
}

/// The content of a quoted string, without quotes and backslashes (RFC 9110 §5.6.4).
fn unquoted(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut is_escaped = false;
    for &byte in &text[1..text.len() - 1] {
        if byte == b'\\' && !is_escaped {
            is_escaped = true;
        } else {
            is_escaped = false;
            plain.push(byte);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(value: &str) -> Option<(String, Vec<(String, String)>)> {
        let user = read(value.as_bytes()).ok()?;
        let pairs = user.attributes().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some((String::from_utf8(user.as_bytes().to_vec()).unwrap(), pairs.collect()))
    }

    #[test]
    fn name_and_attributes_are_read() {
        for (value, name, attributes) in [
            ("alice", "alice", vec![]),
            (" alice ", "alice", vec![]),
            ("al%3Bice%20b", "al;ice b", vec![]),
            ("al ice", "al ice", vec![]),
            ("alice;", "alice", vec![]),
            (
                "alice; group=trade; name=\"Alice B\"",
                "alice",
                vec![("group", "trade"), ("name", "Alice B")],
            ),
            (
                "alice;Group = tr%C3%A4de ;name=\"a;\\\"b\\\\\"",
                "alice",
                vec![("group", "tr\u{e4}de"), ("name", "a;\"b\\")],
            ),
            ("alice; name=\"\u{e4}\"; empty=", "alice", vec![("empty", ""), ("name", "\u{e4}")]),
        ] {
            let expected =
                attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            assert_eq!(told(value), Some((name.to_owned(), expected.collect())), "{value}");
        }
    }

    #[test]
    fn an_invalid_name_is_no_log_in() {
        for value in ["", "  ", ";group=trade", "%00", "a%00group=admin", &"x".repeat(257)] {
            assert_eq!(read(value.as_bytes()), Err(InvalidLogin::Name), "{value}");
        }
    }

    #[test]
    fn attributes_that_are_none_are_told() {
        for value in [
            "alice; x",
            "alice; group",
            "alice; =x",
            "alice; gr%6Fup=x",
            "alice; group=a; group=b",
            "alice; group=a%00admin=1",
            "alice; group=%FF",
        ] {
            assert_eq!(read(value.as_bytes()), Err(InvalidLogin::Attributes), "{value}");
        }
    }
}
