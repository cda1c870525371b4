//! What cookies mean: which of them is the session, which are harmless, and which no rule names.

use crate::http::cookie::is_harmless;
use crate::http::extract::Expression;
use crate::http::pattern::Pattern;
use crate::ident::{CookieHash, Token};
use crate::policy::route::Route;

/// Which cookies mean what.
#[derive(Clone, Debug)]
pub struct CookieRules {
    /// Cookies whose presence may mean a person; the token is the first of them that came.
    pub session: Vec<Pattern>,
    /// Whether the session cookie is one that only we mint.
    pub minted: bool,
    /// What of a session cookie is its token.
    pub token: TokenFrom,
    /// Harmless ones, beside the built-in list.
    pub ignored: Vec<Pattern>,
    /// Whether a cookie that is none of these makes its visitor unknown.
    pub unknown_bypass: bool,
}

impl CookieRules {
    /// What a cookie is on a route.
    pub(in crate::proxy) fn class(&self, name: &[u8], route: &Route) -> CookieClass {
        match self.session.iter().position(|pattern| pattern.matches(name)) {
            Some(rank) => CookieClass::Session(rank),
            None if self.is_harmless(name) => CookieClass::Harmless,
            None if route.keys_cookie(name) => CookieClass::Keyed,
            None => CookieClass::Unknown,
        }
    }

    /// Whether a cookie may mean a person.
    pub(in crate::proxy) fn is_session(&self, name: &[u8]) -> bool {
        self.session.iter().any(|pattern| pattern.matches(name))
    }

    /// The name of the first of session cookies by rank: of that which gives the token.
    pub(in crate::proxy) fn leading<'c>(&self, cookies: &[(&'c [u8], &[u8])]) -> Option<&'c [u8]> {
        let rank = |name: &[u8]| self.session.iter().position(|pattern| pattern.matches(name));
        let ranked = cookies.iter().filter_map(|(name, _)| Some((rank(name)?, *name)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
    }

    /// The token of session cookies: of the first of them by rank. `None` where there are several of its
    /// name, of which an app may take either.
    pub(in crate::proxy) fn only_token_of(&self, cookies: &[(&[u8], &[u8])]) -> Option<Token> {
        let leading = self.leading(cookies)?;
        let mut values = cookies.iter().filter(|(name, _)| *name == leading);
        let (_, value) = values.next().filter(|_| values.next().is_none())?;
        self.token.token(value)
    }

    /// Whether an app may take the cookie for one that may mean a person.
    pub(in crate::proxy) fn may_be_session(&self, name: &[u8]) -> bool {
        self.session.iter().any(|pattern| pattern.may_be_read_as(name))
    }

    /// Whether no origin reads the cookie: scripts in the browser do, or the operator said so.
    pub(in crate::proxy) fn is_harmless(&self, name: &[u8]) -> bool {
        is_harmless(name) || self.ignored.iter().any(|pattern| pattern.matches(name))
    }
}

/// What of a session cookie's value is the token.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// All of it, or where the expression is given what that finds.
    Value(Option<Expression>),
    /// The SHA-256 of that.
    Sha256(Option<Expression>),
}

impl Default for TokenFrom {
    fn default() -> Self {
        Self::Value(None)
    }
}

impl TokenFrom {
    /// The token in a cookie's value.
    pub(in crate::proxy) fn token(&self, value: &[u8]) -> Option<Token> {
        let lasting = self.lasting(value).filter(|part| !part.is_empty())?;
        match self {
            Self::Value(_) => Token::parse(lasting),
            Self::Sha256(_) => Some(Token::digest(lasting)),
        }
    }

    /// What of the value stays the same while the session does.
    fn lasting<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        match self {
            Self::Value(None) | Self::Sha256(None) => Some(value),
            Self::Value(Some(part)) | Self::Sha256(Some(part)) => part.find(value),
        }
    }

    /// The hash of session cookies at a host for the origin `site`, under which it is remembered what the app said
    /// of their visitor: apps at two hosts, or two of one host, may each know somebody else by the same token.
    pub(in crate::proxy) fn hash(
        &self,
        (site, host): (&str, &str),
        cookies: &[(&[u8], &[u8])],
    ) -> CookieHash {
        let lasting = |&(name, value)| (name, self.lasting(value).unwrap_or(value));
        let mut cookies: Vec<(&[u8], &[u8])> = cookies.iter().map(lasting).collect();
        // No cookie has an empty name, nor one that holds an equals sign.
        cookies.extend([(&b""[..], site.as_bytes()), (b"=", host.as_bytes())]);
        CookieHash::of(&mut cookies)
    }
}

/// What a cookie is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::proxy) enum CookieClass {
    /// A session's, by the pattern in this place.
    Session(usize),
    /// No origin reads it.
    Harmless,
    /// Part of the key on this route.
    Keyed,
    /// No rule names it.
    Unknown,
}
