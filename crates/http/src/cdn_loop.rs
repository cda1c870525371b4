//! `CDN-Loop` (RFC 8586): tells a request that comes back to the process that has sent it.
//!
//! `Via` cannot tell: two tiers of proxies have one pseudonym, and their order is legal. So is a request that an app
//! passes on to another site or path of the same proxy. What comes back for the same site and path goes round.

use std::sync::LazyLock;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use ahash::RandomState;

use super::list;

/// `CDN-Loop`.
pub static CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");

/// What begins the member of a proxy.
const BEGIN: &[u8] = b"anteroom;id=";

/// The digits behind it, in hexadecimal: half of them are the process's, the others those of site and path.
const DIGITS: usize = 16;

/// The length of a member, in bytes.
const LENGTH: usize = BEGIN.len() + DIGITS;

/// A request that has come back so often goes round, whatever its sites and paths were.
const RETURNS_MAX: usize = 8;

/// The most marks of other processes that a fetch for the cache carries. A longer way than that goes round.
const CARRIED_MAX: usize = 8;

/// A number that no other process has, and the hasher of sites and paths.
static OWN: LazyLock<(u32, RandomState)> =
    LazyLock::new(|| (fastrand::u32(..), RandomState::default()));

/// Whether this process has already sent the request on for this site and path, or for too many others.
#[must_use]
pub fn has_come_round(headers: &HeaderMap, site: &str, path: &str) -> bool {
    let this = member(site, path);
    let own = &this[..LENGTH - DIGITS / 2];
    let mut returns = 0;
    list::members(headers, &CDN_LOOP).any(|member| {
        returns += usize::from(is_mark(member) && member.starts_with(own));
        member == this || returns == RETURNS_MAX
    })
}

/// Adds the mark of this process for a request for this site and path.
pub fn mark(headers: &mut HeaderMap, site: &str, path: &str) {
    if let Ok(value) = HeaderValue::from_bytes(&member(site, path)) {
        headers.append(&CDN_LOOP, value);
    }
}

/// Copies the last marks of `from` to a fetch for the cache. All other members stay out: they could carry any text to a
/// page that others get.
pub fn carry_marks(from: &HeaderMap, to: &mut HeaderMap) {
    let marks = || list::members(from, &CDN_LOOP).filter(|member| is_mark(member));
    for member in marks().skip(marks().count().saturating_sub(CARRIED_MAX)) {
        if let Ok(value) = HeaderValue::from_bytes(member) {
            to.append(&CDN_LOOP, value);
        }
    }
}

fn member(site: &str, path: &str) -> [u8; LENGTH] {
    let (process, hasher) = &*OWN;
    let mut number = u64::from(*process) << 32 | hasher.hash_one((site, path)) >> 32;
    let mut text = [0; LENGTH];
    let (begin, digits) = text.split_at_mut(BEGIN.len());
    begin.copy_from_slice(BEGIN);
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
    text
}

fn is_mark(member: &[u8]) -> bool {
    member.strip_prefix(BEGIN).is_some_and(|digits| {
        digits.len() == DIGITS
            && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: &str = "shop.test";

    fn fields(lines: &[&str]) -> HeaderMap {
        let line = |text: &&str| (CDN_LOOP.clone(), HeaderValue::try_from(*text).unwrap());
        lines.iter().map(line).collect()
    }

    fn own(path: &str) -> String {
        String::from_utf8(member(SITE, path).to_vec()).unwrap()
    }

    #[test]
    fn a_request_that_was_sent_from_here_is_known() {
        let mut headers = fields(&["cloudflare"]);
        assert!(!has_come_round(&headers, SITE, "/a"));
        mark(&mut headers, SITE, "/a");
        assert!(has_come_round(&headers, SITE, "/a"));
        let own = own("/a");
        assert!(is_mark(own.as_bytes()), "{own}");
        for (lines, has_come) in [
            (&[&*format!("fastly, {own} , other")][..], true),
            (&["fastly", &own], true),
            (&[&*format!("x=\"{own}\"")], false),
            (&[&*format!("x=\", {own}\"")], false),
            (&[&*format!("{own}0")], false),
            (&["anteroom"], false),
            (&[], false),
        ] {
            assert_eq!(has_come_round(&fields(lines), SITE, "/a"), has_come, "{lines:?}");
        }
    }

    #[test]
    fn another_site_or_path_is_no_way_round_unless_there_are_many() {
        let headers = fields(&[&own("/a")]);
        assert!(!has_come_round(&headers, SITE, "/b"));
        assert!(!has_come_round(&headers, "api.test", "/a"));
        let ways: Vec<_> = (0..RETURNS_MAX).map(|way| own(&format!("/{way}"))).collect();
        let ways: Vec<&str> = ways.iter().map(String::as_str).collect();
        assert!(!has_come_round(&fields(&ways[1..]), SITE, "/a"));
        assert!(has_come_round(&fields(&ways), SITE, "/a"));
        assert!(!has_come_round(&fields(&["anteroom;id=0123456789abcdef"; 20]), SITE, "/a"));
    }

    #[test]
    fn a_fetch_carries_marks_and_nothing_else() {
        let mark = "anteroom;id=0123456789abcdef";
        for (lines, carried) in [
            (&["cloudflare, anteroom;id=0123456789abcdef"][..], 1),
            (&["anteroom;id=0123456789abcde", "anteroom;id=0123456789ABCDEF"], 0),
            (&["anteroom;id=0123456789abcdef;a=\"<b>\"", "anteroom;id=<script>1234567"], 0),
            (&[&["anteroom;id=0000000000000000"; 12][..], &[mark; CARRIED_MAX]].concat(), 8),
        ] {
            let mut headers = HeaderMap::new();
            carry_marks(&fields(lines), &mut headers);
            assert_eq!(headers.len(), carried, "{lines:?}");
            assert!(headers.values().all(|value| value == mark), "the last are kept");
        }
    }
}
