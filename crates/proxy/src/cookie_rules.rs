//! The meaning of cookies: session cookies, harmless cookies, and cookies that no rule names.

use anteroom_http::cookie::is_harmless;
use anteroom_http::extract::Expression;
use anteroom_http::ident::{CookieHash, Token};
use anteroom_http::pattern::Pattern;

use anteroom_policy::route::Route;

/// The rules for cookies.
#[derive(Clone, Debug)]
pub struct CookieRules {
    /// Patterns of session cookies, in order of rank. The token comes from the cookie with the highest rank
    /// in the request.
    pub session: Vec<Pattern>,
    /// Whether only the proxy creates the session cookie.
    pub minted: bool,
    /// How the token is extracted from a session cookie.
    pub token: TokenFrom,
    /// Harmless cookies, in addition to the built-in list.
    pub ignored: Vec<Pattern>,
    /// Whether any other cookie makes the visitor unknown.
    pub unknown_bypass: bool,
}

impl CookieRules {
    /// The class of a cookie on a route.
    pub(crate) fn class(&self, name: &[u8], route: &Route) -> CookieClass {
        match self.session.iter().position(|pattern| pattern.matches(name)) {
            Some(rank) => CookieClass::Session(rank),
            None if self.is_harmless(name) => CookieClass::Harmless,
            None if route.keys_cookie(name) => CookieClass::Keyed,
            None => CookieClass::Unknown,
        }
    }

    /// Whether a cookie is a session cookie.
    pub(crate) fn is_session(&self, name: &[u8]) -> bool {
        self.session.iter().any(|pattern| pattern.matches(name))
    }

    /// The name of the session cookie with the highest rank, which gives the token.
    pub(crate) fn leading<'c>(&self, cookies: &[(&'c [u8], &[u8])]) -> Option<&'c [u8]> {
        let rank = |name: &[u8]| self.session.iter().position(|pattern| pattern.matches(name));
        let ranked = cookies.iter().filter_map(|(name, _)| Some((rank(name)?, *name)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, name)| name)
    }

    /// The token of the session cookie with the highest rank. `None` if several cookies have its name,
    /// because an app may use any of them.
    pub(crate) fn only_token_of(&self, cookies: &[(&[u8], &[u8])]) -> Option<Token> {
        let leading = self.leading(cookies)?;
        let mut values = cookies.iter().filter(|(name, _)| *name == leading);
        let (_, value) = values.next().filter(|_| values.next().is_none())?;
        self.token.token(value)
    }

    /// Whether an app may take the cookie for a session cookie.
    pub(crate) fn may_be_session(&self, name: &[u8]) -> bool {
        self.session.iter().any(|pattern| pattern.may_be_read_as(name))
    }

    /// Whether the origin ignores the cookie: only scripts in the browser read it, or the configuration lists
    /// it.
    pub(crate) fn is_harmless(&self, name: &[u8]) -> bool {
        is_harmless(name) || self.ignored.iter().any(|pattern| pattern.matches(name))
    }
}

/// How a token is extracted from the value of a session cookie.
#[derive(Clone, Debug)]
pub enum TokenFrom {
    /// The whole value, or the match of the expression if there is one.
    Value(Option<Expression>),
    /// The SHA-256 of the same.
    Sha256(Option<Expression>),
}

impl Default for TokenFrom {
    fn default() -> Self {
        Self::Value(None)
    }
}

impl TokenFrom {
    /// The token in a cookie's value.
    pub(crate) fn token(&self, value: &[u8]) -> Option<Token> {
        let lasting = self.lasting(value).filter(|part| !part.is_empty())?;
        match self {
            Self::Value(_) => Token::parse(lasting),
            Self::Sha256(_) => Some(Token::digest(lasting)),
        }
    }

    /// The part of the value that stays the same for the whole session.
    fn lasting<'v>(&self, value: &'v [u8]) -> Option<&'v [u8]> {
        match self {
            Self::Value(None) | Self::Sha256(None) => Some(value),
            Self::Value(Some(part)) | Self::Sha256(Some(part)) => part.find(value),
        }
    }

    /// The hash of the session cookies at a host, for the origin `site`. It is the key of the app's
    /// remembered answer about the visitor. It includes origin and host, because two apps may know the same
    /// token as different users.
    pub(crate) fn hash(&self, site: &str, host: &str, cookies: &[(&[u8], &[u8])]) -> CookieHash {
        let lasting = |&(name, value)| (name, self.lasting(value).unwrap_or(value));
        let mut cookies: Vec<(&[u8], &[u8])> = cookies.iter().map(lasting).collect();
        // A cookie's name is never empty and never contains an equals sign.
        cookies.extend([(&b""[..], site.as_bytes()), (b"=", host.as_bytes())]);
        CookieHash::of(&mut cookies)
    }
}

/// The class of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieClass {
    /// A session cookie. The number is the index of its pattern.
    Session(usize),
    /// No origin reads the cookie.
    Harmless,
    /// Part of the key on this route.
    Keyed,
    /// No rule names the cookie.
    Unknown,
}
