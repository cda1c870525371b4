//! The identifiers that every module shares: tokens, users, items and page keys.
//!
//! Parsed once at the edge and trusted afterwards. Nothing here talks to a store or a socket.

mod user;
mod visitor;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

pub use self::user::{ATTRIBUTES_MAX, Bond, USER_MAX, User, is_attribute, is_attribute_name};
pub use self::visitor::VisitorToken;

/// The shortest session token that is taken for one, in bytes.
pub const TOKEN_MIN: usize = 8;
/// The longest session token that is taken for one, in bytes.
pub const TOKEN_MAX: usize = 256;
/// The longest item id, in bytes.
pub const ITEM_MAX: usize = 128;
/// The longest row id, in bytes.
pub const ROW_MAX: usize = 128;

/// A session token as the visitor's cookie carries it: 8 to 256 bytes of visible ASCII without
/// `;`, `,`, `"`, `\` or braces. It is a secret: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// The token in `bytes`, or `None` where they are none by the grammar above.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        is_token(bytes).then(|| std::str::from_utf8(bytes).ok().map(|text| Self(text.into())))?
    }

    /// A new token: 256 random bits from the operating system, in URL-safe base64 (43 bytes).
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn mint() -> Result<Self, getrandom::Error> {
        let mut bits = [0_u8; 32];
        getrandom::fill(&mut bits)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bits).into()))
    }

    /// The token of a cookie that is longer than a token, or of which only a part stays: the lower-case hex
    /// SHA-256 of that.
    #[must_use]
    pub fn digest(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)).into())
    }

    /// The token's text. Keep it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The token as the store holds it.
    #[must_use]
    pub fn stored(&self, how: TokenStorage) -> StoredToken {
        match how {
            TokenStorage::Plain => StoredToken(Arc::clone(&self.0)),
            TokenStorage::Sha256 => StoredToken(hex(&Sha256::digest(self.0.as_bytes())).into()),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Whether `bytes` follow the token grammar. A member of `recent:` that does not is junk: `""`
/// above all, for `viewed:` + `""` is the popularity set itself.
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    (TOKEN_MIN..=TOKEN_MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"' | b'\\' | b'{' | b'}'))
}

/// How tokens stand in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStorage {
    /// As they are: the layout of the book, shared with an app that speaks it.
    Plain,
    /// As the lower-case hex SHA-256 of the token: the store never sees a usable one.
    Sha256,
}

/// A token in the form in which it stands in the store's keys. It still follows the token grammar.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredToken(Arc<str>);

impl StoredToken {
    /// Takes a token as read from the store; `None` where it is junk.
    #[must_use]
    pub fn from_store(bytes: &[u8]) -> Option<Self> {
        Token::parse(bytes).map(|token| Self(token.0))
    }

    /// What a session is called where its token must not stand: the first 16 hex digits of the
    /// token's SHA-256.
    #[must_use]
    pub fn public_id(&self, how: TokenStorage) -> String {
        const DIGITS: usize = 16;
        match how {
            TokenStorage::Sha256 => self.0.chars().take(DIGITS).collect(),
            TokenStorage::Plain => hex(&Sha256::digest(self.0.as_bytes())[..DIGITS / 2]),
        }
    }

    /// The lower-case hex SHA-256 of it, for what must not mention it.
    #[must_use]
    pub fn digest(&self) -> String {
        hex(&Sha256::digest(self.0.as_bytes()))
    }

    /// The text that stands in keys.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredToken(…)")
    }
}

/// The id of an item that visitors view: 1 to 128 bytes of text without control characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Item(Arc<str>);

impl Item {
    /// The item named by `text`; `None` when empty, too long, or with control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        ((1..=ITEM_MAX).contains(&text.len()) && !text.chars().any(char::is_control))
            .then(|| Self(text.into()))
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a cached row: 1 to 128 bytes of text without control characters. A row of a further
/// source stands behind that source's name and a colon.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Row(Arc<str>);

impl Row {
    /// The row named by `text`; `None` when empty, too long, or with control characters.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        ((1..=ROW_MAX).contains(&text.len()) && !text.chars().any(char::is_control))
            .then(|| Self(text.into()))
    }

    /// The id's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The hash that names a stored page: what `hash_request` made of a request. In the store it
/// stands as `cache:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PageKey(pub [u8; 32]);

impl PageKey {
    /// The 64 hex digits behind `cache:`.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

/// A hash over all session cookies that a visitor carries: SHA-256 of their names and values. What an
/// app says of one visitor is remembered under it, and his token alone need not tell him from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CookieHash(pub [u8; 32]);

impl CookieHash {
    /// The hash of these names and values, whatever their order.
    #[must_use]
    pub fn of(cookies: &mut [(&[u8], &[u8])]) -> Self {
        cookies.sort_unstable();
        let mut hash = Sha256::new();
        for part in cookies.iter().flat_map(|(name, value)| [name, value]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The 64 lower-case hex digits behind `answer:`.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

impl fmt::Debug for CookieHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieHash(…)")
    }
}

/// Whose an address is, where clients are counted by it: of IPv6 the whole /64, which one client has
/// (RFC 6177); of IPv4 the address itself, also where it is mapped into IPv6.
#[must_use]
pub fn holder(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        of_ipv4 @ IpAddr::V4(_) => of_ipv4,
    }
}

/// Lower-case hex digits of `bytes`.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from)
        .collect()
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

    #[test]
    fn the_token_grammar_has_its_bounds() {
        for good in ["12345678", "abc-DEF_0.9~!", &"x".repeat(256)] {
            assert!(Token::parse(good.as_bytes()).is_some(), "{good}");
        }
        let long = "x".repeat(257);
        for bad in [
            "",
            "1234567",
            "with space",
            "semi;colon",
            "com,ma12",
            "quo\"te12",
            "back\\slash",
            "bra{ce}12",
            "ümlaut123",
            "ctl\u{1}12345",
            long.as_str(),
        ] {
            assert!(Token::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn minted_tokens_are_tokens_and_differ() {
        let (one, two) = (Token::mint().unwrap(), Token::mint().unwrap());
        assert!(is_token(one.as_str().as_bytes()));
        assert_ne!(one, two);
    }

    #[test]
    fn a_hashed_token_is_not_the_token() {
        let token = Token::parse(b"password1").unwrap();
        assert_eq!(token.stored(TokenStorage::Plain).as_str(), "password1");
        assert_eq!(
            token.stored(TokenStorage::Sha256).as_str(),
            "0b14d501a594442a01c6859541bcb3e8164d183d32937b851835442f69d5c94e"
        );
        for how in [TokenStorage::Plain, TokenStorage::Sha256] {
            assert_eq!(token.stored(how).public_id(how), "0b14d501a594442a");
        }
    }
}
