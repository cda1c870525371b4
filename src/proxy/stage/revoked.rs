//! Whether a visitor brings a token that was logged out, in whatever cookie an app may read it from.
//!
//! The token itself is looked up when the app is asked about it (`verify`). An app that believes in it still
//! would also find it in a second cookie of that name, under another spelling of the name, or written
//! otherwise: percent-encoded, or with a string's escapes.

use ::http::HeaderMap;
use futures_util::future::try_join_all;
use percent_encoding::percent_decode;

use crate::http::cookie::cookies;
use crate::ident::{StoredToken, Token};
use crate::proxy::context::WorkerContext;
use crate::proxy::cookie_rules::CookieRules;
use crate::store::{BarStore as _, StoreError};

/// The most tokens that are looked up for one request. Who brings more is taken for one who brings a barred
/// one: no browser does.
const SUSPECTS_MAX: usize = 128;

/// The tokens that an app may find in a request.
#[derive(Debug)]
pub(in crate::proxy) enum Suspects {
    /// These.
    Few(Vec<StoredToken>),
    /// More than are looked up.
    Many,
}

impl Suspects {
    pub(in crate::proxy) fn of(worker: &WorkerContext, headers: &HeaderMap) -> Self {
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

    /// Whether one of them is barred; `now` is Unix time in seconds.
    pub(in crate::proxy) async fn are_barred(
        &self,
        worker: &WorkerContext,
        now: f64,
    ) -> Result<bool, StoreError> {
        let Self::Few(tokens) = self else { return Ok(true) };
        let asked = tokens.iter().map(|token| worker.store.is_barred(token, now));
        Ok(try_join_all(asked).await?.contains(&true))
    }
}

/// All that an app may read as tokens.
fn read<'h>(rules: &'h CookieRules, headers: &'h HeaderMap) -> impl Iterator<Item = Token> + 'h {
    cookies(headers)
        .filter(|(name, _)| rules.may_be_session(name))
        .flat_map(|(_, value)| writings(value))
        .filter_map(|value| rules.token.token(&value))
}

/// What apps make of a cookie's value: as it is, percent-decoded (PHP, Rails), or with a quoted string's
/// escapes resolved (Python, Java).
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

/// Without backslashes: before three octal digits they mean a byte, else what stands behind them.
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
