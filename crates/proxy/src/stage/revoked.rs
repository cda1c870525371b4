//! Whether a request carries a revoked token, in any cookie from which an app may read it.
//!
//! The token itself is looked up when the app is asked about it (`verify`). An app that still accepts a
//! revoked token could also find it in a second cookie of that name, under another spelling of the name,
//! or in another form: percent-encoded, or with the escapes of a quoted string.

use ::http::HeaderMap;
use anteroom_fault::fault;
use anteroom_http::cookie::cookies;
use anteroom_http::ident::{StoredToken, Token};
use anteroom_store::{RevocationStore as _, StoreError};
use futures_util::future::try_join_all;
use percent_encoding::percent_decode;

use crate::context::WorkerContext;
use crate::cookie_rules::CookieRules;

/// The most tokens that are looked up for one request. Browsers never send more. A request with more is
/// treated as if one of them were revoked.
const SUSPECTS_MAX: usize = 128;

/// The tokens that an app may find in a request.
#[derive(Debug)]
pub(crate) enum SuspectTokens {
    /// All of them.
    Few(Vec<StoredToken>),
    /// More than are looked up.
    Many,
}

impl SuspectTokens {
    pub(crate) fn of(worker: &WorkerContext, headers: &HeaderMap) -> Self {
        let rules = &worker.settings.cookies;
        let mut tokens: Vec<Token> = Vec::new();
        for token in read(rules, headers) {
            if tokens.contains(&token) {
                continue;
            }
            if tokens.len() == SUSPECTS_MAX {
                return Self::Many;
            }
            tokens.push(token);
        }
        Self::Few(tokens.iter().map(|token| worker.sessions.stored(token)).collect())
    }

    /// Whether one of the tokens was revoked here, and the store has not confirmed it yet.
    pub(crate) fn are_being_revoked(&self, worker: &WorkerContext) -> bool {
        let Self::Few(tokens) = self else { return true };
        tokens.iter().any(|token| worker.sessions.is_being_revoked(token))
    }

    /// Whether one of the tokens is revoked. `now` is Unix time in seconds.
    pub(crate) async fn are_revoked(
        &self,
        worker: &WorkerContext,
        now: f64,
    ) -> Result<bool, StoreError> {
        let Self::Few(tokens) = self else { return Ok(true) };
        if self.are_being_revoked(worker) {
            return Ok(true);
        }
        let asked = tokens.iter().map(|token| worker.store.is_revoked(token, now));
        Ok(!fault!("revoked") && try_join_all(asked).await?.contains(&true))
    }
}

/// Everything that an app may read as a token.
fn read<'h>(rules: &'h CookieRules, headers: &'h HeaderMap) -> impl Iterator<Item = Token> + 'h {
    cookies(headers)
        .filter(|(name, _)| rules.may_be_session(name))
        .flat_map(|(_, value)| writings(value))
        .filter_map(|value| rules.token.token(&value))
}

/// The forms in which apps read a cookie's value: as it is, percent-decoded (PHP, Rails), or with a
/// quoted string's escapes resolved (Python, Java).
fn writings(value: &[u8]) -> Vec<Vec<u8>> {
    let mut written = vec![value.to_vec()];
    if value.contains(&b'%') || value.contains(&b'+') {
        written.push(percent_decode(value).collect());
        let spaced: Vec<u8> = value.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
        written.push(percent_decode(&spaced).collect());
    }
    if value.contains(&b'\\') {
        written.push(unescaped(value));
    }
    written
}

/// Removes backslash escapes. Before three octal digits a backslash encodes a byte; otherwise it stands
/// for the character after it.
fn unescaped(mut value: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(value.len());
    while let [first, rest @ ..] = value {
        value = match (first, rest) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest
            }
            (b'\\', [next, rest @ ..]) => {
                plain.push(*next);
                rest
            }
            _ => {
                plain.push(*first);
                rest
            }
        };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_in_all_ways_in_which_apps_read_it() {
        for (value, reading) in [
            ("abc", "abc"),
            ("a%62c", "abc"),
            ("a%62+c", "ab c"),
            ("a%62+c", "ab+c"),
            (r"a\142c", "abc"),
            (r"a\bc", "abc"),
            (r"ab\", r"ab\"),
        ] {
            let written = writings(value.as_bytes());
            assert!(written.iter().any(|it| it == reading.as_bytes()), "{value}: {written:?}");
        }
        assert_eq!(writings(b"abc").len(), 1);
    }
}
