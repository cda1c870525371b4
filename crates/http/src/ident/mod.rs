//! Identifiers that all modules share: tokens, users, items and page keys; and which name was meant by another.
//!
//! They are parsed once on entry and trusted afterwards. Stores and sockets are out of scope here.

mod cookie_hash;
mod hex;
mod nearest;
mod token;
mod user;
mod visitor;

use std::net::IpAddr;
use std::sync::Arc;

pub use self::cookie_hash::CookieHash;
pub use self::hex::{hex, put_hex, unhex};
pub use self::nearest::nearest;
pub use self::token::{StoredToken, TOKEN_MAX, TOKEN_MIN, Token, TokenStorage, is_token};
pub use self::user::{ATTRIBUTES_MAX, LogInScope, USER_MAX, User, is_attribute, is_attribute_name};
pub use self::visitor::VisitorToken;

/// The longest item id, in bytes.
pub const ITEM_MAX: usize = 128;
/// The longest row id, in bytes.
pub const ROW_MAX: usize = 128;

/// The id of an item that visitors view: text of 1 to 128 bytes without control characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Item(Arc<str>);

impl Item {
    /// Parses an item id; `None` if it is empty, too long, or has control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        ((1..=ITEM_MAX).contains(&text.len()) && !text.chars().any(char::is_control))
            .then(|| Self(text.into()))
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a cached row: text of 1 to 128 bytes without control characters. For a row of an additional
/// source, it is prefixed with the source's name and a colon.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Row(Arc<str>);

impl Row {
    /// Parses a row id; `None` if it is empty, too long, or has control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        ((1..=ROW_MAX).contains(&text.len()) && !text.chars().any(char::is_control))
            .then(|| Self(text.into()))
    }

    /// The text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The hash that identifies a stored page, as `hash_request` computes it from a request. Its key in the store
/// is `cache:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageKey(pub [u8; 32]);

impl PageKey {
    /// The 64 hex digits, as they stand in the store key after `cache:`.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// The address by which a client is counted. For IPv6 it is the /64 prefix, since one client has a whole /64
/// (RFC 6177). For IPv4, mapped into IPv6 or not, it is the IPv4 address itself.
#[must_use]
pub fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        of_ipv4 @ IpAddr::V4(_) => of_ipv4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_an_address_of_ipv4_or_a_network_of_ipv6() {
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::"),
            ("2001:db8::", "2001:db8::"),
        ] {
            let expected: IpAddr = expected.parse().unwrap();
            assert_eq!(holder(address.parse().unwrap()), expected, "{address}");
        }
    }
}
