//! The one language of `Accept-Language` (RFC 9110 §12.5.4) that selects a stored variant of a page.
//!
//! Browsers send hundreds of different lists. With one variant per list, few pages would be shared.

use ::http::HeaderMap;
use ::http::header::ACCEPT_LANGUAGE;

use super::coding::quality;
use super::list::{divide, members, trim};

/// The most members of the field that are read.
const MEMBERS_MAX: usize = 32;

/// The language that the visitor prefers. With `offered` languages, it is the preferred one of these, or the
/// first of them if none matches. Otherwise it is the first subtag of the preferred tag (`de` of `de-AT`), if
/// that has two or three letters.
#[must_use]
pub fn chosen(headers: &HeaderMap, offered: &[String]) -> Option<String> {
    let mut best: Option<(u16, String)> = None;
    for member in members(headers, &ACCEPT_LANGUAGE).take(MEMBERS_MAX) {
        let tag = trim(divide(member, b';').0).to_ascii_lowercase();
        let found = if offered.is_empty() {
            primary(&tag)
        } else {
            offered.iter().find(|one| means(&tag, one.as_bytes())).cloned()
        };
        let wanted = quality(member);
        let is_better = wanted > best.as_ref().map_or(0, |(most, _)| *most);
        if let (true, Some(found)) = (is_better, found) {
            best = Some((wanted, found));
        }
    }
    best.map(|(_, language)| language).or_else(|| offered.first().cloned())
}

/// Whether `offered` satisfies a request for `tag`: both are equal, or one is a more specific form of the
/// other.
fn means(tag: &[u8], offered: &[u8]) -> bool {
    let within = |long: &[u8], short: &[u8]| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest[0] == b'-')
    };
    !tag.is_empty() && (within(tag, offered) || within(offered, tag))
}

fn primary(tag: &[u8]) -> Option<String> {
    let first = divide(tag, b'-').0;
    let is_one = (2..=3).contains(&first.len()) && first.iter().all(u8::is_ascii_lowercase);
    is_one.then(|| String::from_utf8_lossy(first).into_owned())
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[test]
    fn the_language_that_is_wanted_most_is_chosen() {
        let offered =
            |text: &str| text.split_terminator('|').map(str::to_owned).collect::<Vec<_>>();
        for (accept, among, expected) in [
            ("de-AT,de;q=0.9,en;q=0.8", "", Some("de")),
            ("en;q=0.5, FR;q=0.7", "", Some("fr")),
            ("de, en", "", Some("de")),
            ("*", "", None),
            ("de;q=0", "", None),
            ("x\u{e9}, english, i-klingon, 12", "", None),
            ("", "", None),
            ("fr, de-CH;q=0.8, en;q=0.1", "en|de", Some("de")),
            ("fr", "en|de", Some("en")),
            ("", "en|de", Some("en")),
            ("pt", "en|pt-br", Some("pt-br")),
            ("pt-PT", "en|pt-br", Some("en")),
            ("deutsch", "en|de", Some("en")),
        ] {
            let value = HeaderValue::from_bytes(accept.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(ACCEPT_LANGUAGE, value)]);
            assert_eq!(chosen(&headers, &offered(among)).as_deref(), expected, "{accept}");
        }
        assert_eq!(chosen(&HeaderMap::new(), &offered("en|de")).as_deref(), Some("en"));
    }
}
