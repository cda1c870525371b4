//! The token of a visitor without a login.

use std::fmt;

use anteroom_fault::fault;

use super::token::{StoredToken, Token};

/// The prefix of the digest. Session tokens contain no comma, so they never equal a visitor token.
const PREFIX: &str = "v,";
/// The length of a token made by [`Token::mint`], in bytes.
const MINTED: usize = 43;
/// The number of hex digits of a SHA-256.
const DIGITS: usize = 64;

/// A visitor token in the form of the store: `v,` and the lower-case hex SHA-256 of the cookie's value,
/// whatever the form of session tokens. It identifies the visitor's data but no session: session look-ups do
/// not accept it. It is a secret, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VisitorToken(StoredToken);

impl VisitorToken {
    /// The stored form of a token that was made for a visitor.
    #[must_use]
    pub fn of(minted: &Token) -> Self {
        let digest = Token::digest(if fault!("one") { b"" } else { minted.as_str().as_bytes() });
        Self(StoredToken(format!("{PREFIX}{}", digest.as_str()).into()))
    }

    /// The stored form for a cookie value; `None` if the value cannot come from [`Token::mint`].
    #[must_use]
    pub fn of_cookie(value: &[u8]) -> Option<Self> {
        let is_minted = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let token = Token::parse(value).filter(|_| value.len() == MINTED)?;
        value.iter().all(is_minted).then(|| Self::of(&token))
    }

    /// Parses a visitor token read from the store; `None` if it is invalid.
    #[must_use]
    pub fn from_store(bytes: &[u8]) -> Option<Self> {
        let digits = bytes.strip_prefix(PREFIX.as_bytes())?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_one = digits.len() == DIGITS && digits.iter().all(is_digit);
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_one)?;
        Some(Self(StoredToken(text.into())))
    }

    /// The token as it stands in the keys of the visitor's cart and views.
    #[must_use]
    pub fn as_stored(&self) -> &StoredToken {
        &self.0
    }

    /// The text as it stands in store keys.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for VisitorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VisitorToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ident::{TokenStorage, is_token};

    #[test]
    fn no_session_is_ever_called_like_a_visitor() {
        let minted = Token::mint().unwrap();
        let visitor = VisitorToken::of(&minted);
        assert!(!is_token(visitor.as_str().as_bytes()));
        assert_eq!(StoredToken::from_store(visitor.as_str().as_bytes()), None);
        for how in [TokenStorage::Plain, TokenStorage::Sha256] {
            assert_ne!(minted.stored(how), *visitor.as_stored());
        }
        let read = VisitorToken::from_store(visitor.as_str().as_bytes());
        assert_eq!(read.as_ref(), Some(&visitor));
        assert_eq!(VisitorToken::of_cookie(minted.as_str().as_bytes()), Some(visitor));
    }

    #[test]
    fn a_foreign_value_is_no_visitor_token() {
        let minted = Token::mint().unwrap().as_str().to_owned();
        let (short, long) = (minted[1..].to_owned(), format!("{minted}x"));
        let odd = minted.replacen(&minted[..1], "!", 1);
        for value in ["", "x", &short, &long, &odd] {
            assert_eq!(VisitorToken::of_cookie(value.as_bytes()), None, "{value}");
        }
        let digits = "0".repeat(64);
        for member in ["", "v,", &digits, &format!("v,{digits}0"), &format!("v,{}G", &digits[1..])]
        {
            assert_eq!(VisitorToken::from_store(member.as_bytes()), None, "{member}");
        }
    }
}
