//! Session tokens: as a cookie carries them, and as the store holds them.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::hex::hex;

/// The shortest session token that is taken for one, in bytes.
pub const TOKEN_MIN: usize = 8;
/// The longest session token that is taken for one, in bytes.
pub const TOKEN_MAX: usize = 256;
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
pub struct StoredToken(pub(super) Arc<str>);

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

#[cfg(test)]
mod tests {
    use super::*;

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
