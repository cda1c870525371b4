//! Session tokens: the form in the visitor's cookie, and the form in the store.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::hex::hex;

/// The shortest accepted session token, in bytes.
pub const TOKEN_MIN: usize = 8;
/// The longest accepted session token, in bytes.
pub const TOKEN_MAX: usize = 256;
/// A session token as the visitor's cookie carries it: 8 to 256 bytes of visible ASCII without `;`, `,`, `"`,
/// `\` or braces. It is a secret, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Token(Arc<str>);

impl Token {
    /// Parses a token; `None` if `bytes` do not follow this grammar.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        is_token(bytes).then(|| std::str::from_utf8(bytes).ok().map(|text| Self(text.into())))?
    }

    /// Makes a new token: 256 random bits from the operating system, in URL-safe base64 (43 bytes).
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn mint() -> Result<Self, getrandom::Error> {
        let mut bits = [0_u8; 32];
        getrandom::fill(&mut bits)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bits).into()))
    }

    /// The token for a cookie value that is longer than a token, or of which only a part stays the same: the
    /// lower-case hex SHA-256 of these bytes.
    #[must_use]
    pub fn digest(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)).into())
    }

    /// The text of the token. Keep it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The token in the form for the store.
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

/// Whether `bytes` follow the token grammar. Members of `recent:` that do not are invalid. The empty string
/// is the important case: `viewed:` + `""` is the key of the popularity set.
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    (TOKEN_MIN..=TOKEN_MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b';' | b',' | b'"' | b'\\' | b'{' | b'}'))
}

/// The form of tokens in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenStorage {
    /// Unchanged, as in the chapter's layout (Redis in Action, chapter 2), so that an app can read it.
    Plain,
    /// As the lower-case hex SHA-256 of the token: the store never holds a usable token.
    Sha256,
}

/// A token in the form of the store's keys. It still follows the token grammar.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoredToken(pub(super) Arc<str>);

impl StoredToken {
    /// Parses a token read from the store; `None` if it is invalid.
    #[must_use]
    pub fn from_store(bytes: &[u8]) -> Option<Self> {
        Token::parse(bytes).map(|token| Self(token.0))
    }

    /// An id of the session for places that must not contain its token: the first 16 hex digits of the
    /// token's SHA-256.
    #[must_use]
    pub fn public_id(&self, how: TokenStorage) -> String {
        const DIGITS: usize = 16;
        match how {
            TokenStorage::Sha256 => self.0.chars().take(DIGITS).collect(),
            TokenStorage::Plain => hex(&Sha256::digest(self.0.as_bytes())[..DIGITS / 2]),
        }
    }

    /// The lower-case hex SHA-256 of the token, for places that must not contain the token.
    #[must_use]
    pub fn digest(&self) -> String {
        hex(&Sha256::digest(self.0.as_bytes()))
    }

    /// The text as it stands in store keys.
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
