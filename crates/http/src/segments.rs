//! The segments of a path: which of them stand for one page among many of a kind, and which may be secrets.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::media::has_static_extension;

/// The shortest segment that may be a secret, in bytes.
const SECRET_MIN: usize = 16;
/// How often letters, capitals and digits change within the words of a secret, at least.
const CHANGES_MIN: usize = 4;

/// The segments of a path, each as it is or, where pages of one kind differ in it, as `*`: numbers, what may be a
/// secret, and the last segment unless it is the only one. The last one keeps its extension.
pub fn pattern_segments(path: &str) -> impl Iterator<Item = (&str, &str)> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let bare = path.strip_suffix('/').unwrap_or(path);
    let end = if bare.len() < path.len() { "/" } else { "" };
    let mut left = Some(bare);
    let segments = std::iter::from_fn(move || {
        let path = left?;
        // PERF: one walk over the bytes; segments are too short for a search by words.
        let slash = path.bytes().position(|byte| byte == b'/');
        let segment = slash.map_or(path, |at| &path[..at]);
        left = slash.map(|at| &path[at + 1..]);
        let (is_last, is_first) = (slash.is_none(), path.len() == bare.len());
        let differs = is_last && !is_first || is_number(segment) || may_be_secret(segment);
        Some(match (differs, is_last) {
            (true, true) => ("*", extension(segment)),
            (true, false) => ("*", ""),
            (false, _) => (segment, ""),
        })
    });
    segments.chain(std::iter::once((end, "")))
}

/// Whether a path has a segment that may be a secret, such as the token of a link that was sent by mail. The names of
/// static files carry digests, which are none.
#[must_use]
pub fn has_secret(path: &str) -> bool {
    // PERF: most segments are short.
    path.split('/').any(may_be_secret) && !has_static_extension(path)
}

/// Whether the value of a query parameter, or a parameter that has none, may be a secret.
#[must_use]
pub fn has_secret_value(query: &str) -> bool {
    let value = |part| str::split_once(part, '=').map_or(part, |(_, value)| value);
    query.split(['&', ';']).map(value).any(may_be_secret)
}

fn is_number(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit())
}

fn extension(segment: &str) -> &str {
    segment.rfind('.').map_or("", |at| &segment[at..])
}

/// Whether a segment may be random. A product's name that is taken for a secret costs little: its first request is
/// sent as it came.
fn may_be_secret(segment: &str) -> bool {
    if segment.len() < SECRET_MIN {
        return false;
    }
    // The digits of an encoded `|` or `/` are no part of a word.
    let decoded: Cow<'_, [u8]> = percent_decode_str(segment).into();
    let words = || decoded.split(|byte| !byte.is_ascii_alphanumeric());
    words().any(is_random) || words().map(changes).sum::<usize>() >= CHANGES_MIN
}

/// Whether one word is as long as a secret, and no word of a language: it has digits or capitals among its letters, or
/// hardly a vowel.
fn is_random(word: &[u8]) -> bool {
    let is_mixed = || word.iter().any(u8::is_ascii_digit) || changes(word) > 1;
    let vowels = || word.iter().filter(|byte| b"aeiouyAEIOUY".contains(byte)).count();
    word.len() >= SECRET_MIN && (is_mixed() || vowels() * 4 < word.len())
}

/// How often the kind of character changes within a word.
fn changes(word: &[u8]) -> usize {
    let kind = |byte: &u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase());
    word.windows(2).filter(|pair| kind(&pair[0]) != kind(&pair[1])).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(path: &str) -> String {
        let parts: Vec<_> =
            pattern_segments(path).map(|(segment, rest)| format!("{segment}{rest}")).collect();
        parts.join("|")
    }

    #[test]
    fn pages_of_one_kind_have_one_pattern() {
        for (path, expected) in [
            ("/", "|"),
            ("/about", "about|"),
            ("/about/", "about|/"),
            ("/17", "*|"),
            ("/product/17", "product|*|"),
            ("/product/blue-shirt", "product|*|"),
            ("/product/17/", "product|*|/"),
            ("/product/17/reviews", "product|*|*|"),
            ("/product/blue-shirt/reviews", "product|blue-shirt|*|"),
            ("/a/550e8400-e29b-41d4-a716-446655440000/b", "a|*|*|"),
            ("/img/cat.png", "img|*.png|"),
            ("/confirm-4fd8a1c09be2773f", "*|"),
            ("//a", "|*|"),
            ("", "|"),
        ] {
            assert_eq!(pattern(path), expected, "{path}");
        }
    }

    #[test]
    fn random_segments_may_be_secrets() {
        for (path, expected) in [
            ("/login/4fd8a1c09be2773f", true),
            ("/login/550e8400-e29b-41d4-a716-446655440000", true),
            ("/confirm/aGVsbG8gd29ybGQhIQ", true),
            ("/confirm/VmYwQ-x8_kLpZ9sTa3", true),
            ("/u/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", true),
            ("/u/kqzwvxbtrpmnhgfd", true),
            ("/u/1234567890123456", true),
            ("/verify/mzxw6ytboi4tqmrq2dsn", true),
            ("/magic/abc", false),
            ("/news/how-to-train-your-dragon-at-home", false),
            ("/news/internationalization", false),
            ("/p/iphone-15-pro-max-256gb-blue", false),
            ("/p/galaxy-s24-ultra-5g-titanium", false),
            ("/wiki/JavaScriptObjectNotation", true),
            ("/static/app.4fd8a1c09be2773f.js", false),
            ("/2026/11/28/a-day-in-november", false),
            ("/", false),
        ] {
            assert_eq!(has_secret(path), expected, "{path}");
        }
    }

    #[test]
    fn values_of_parameters_may_be_secrets() {
        for (query, expected) in [
            ("c=4fd8a1c09be2773f", true),
            ("a=1&b=VmYwQ-x8_kLpZ9sTa3", true),
            ("4fd8a1c09be2773f", true),
            ("a=1&VmYwQ-x8_kLpZ9sTa3", true),
            ("q=how+to+train+your+dragon", false),
            ("modules=ext.cite.styles%7Cskins.vector%7Csite.styles%7Cuser", false),
            ("next=%2Faccount%2Forders%2Flatest%2F", false),
            ("c=aGVsbG8%2Bd29ybGQ%2FeWVhaA%3D%3D", true),
            ("page=2&sort=price", false),
            ("", false),
        ] {
            assert_eq!(has_secret_value(query), expected, "{query}");
        }
    }

    proptest! {
        #[test]
        fn any_path_has_a_pattern(path in "\\PC{0,40}") {
            let _ = (pattern_segments(&path).count(), has_secret(&path));
        }
    }
}
