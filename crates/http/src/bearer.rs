//! `Authorization: Bearer …` (RFC 6750 §2.1).

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};

use super::list;

/// Whether the request carries this bearer token. The comparison takes constant time, so its duration reveals
/// nothing about the token.
#[must_use]
pub fn carries(headers: &HeaderMap, token: &[u8]) -> bool {
    self::token(headers).is_some_and(|given| {
        let [given, token] = [given, token].map(Sha256::digest);
        is_same(&given.into(), &token.into())
    })
}

/// The bearer token of a request. It is never empty.
#[must_use]
pub fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let line = list::only_line(headers, &AUTHORIZATION)?;
    let (scheme, given) = list::divide(line, b' ');
    let given = given.map(list::trim).unwrap_or_default();
    (scheme.eq_ignore_ascii_case(b"bearer") && !given.is_empty()).then_some(given)
}

/// Whether two digests are the same, in constant time.
#[must_use]
pub fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[test]
    fn only_the_whole_token_under_its_scheme_counts() {
        for (lines, carried) in [
            (&["Bearer secret"][..], true),
            (&["bearer   secret"], true),
            (&["Bearer secre"], false),
            (&["Bearer secrets"], false),
            (&["Bearer"], false),
            (&["Basic secret"], false),
            (&["secret"], false),
            (&["Bearer secret", "Bearer secret"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, HeaderValue::from_static(line));
            }
            assert_eq!(carries(&headers, b"secret"), carried, "{headers:?}");
            assert!(!carries(&headers, b""), "{headers:?}");
        }
    }
}
