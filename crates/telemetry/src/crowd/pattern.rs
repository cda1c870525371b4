//! The pattern of a URL as operators see it: `*` where pages of one kind differ, and the names of the query's parameters.

use std::hash::{BuildHasher as _, Hasher as _};

use ahash::RandomState;
use anteroom_http::segments::{has_secret_value, pattern_segments};

/// The longest path of a pattern, in bytes. That of a longer one ends in a sign that no path has.
const PATH_MAX: usize = 200;
/// The longest name of a parameter, in bytes, and the most names.
const NAME_MAX: usize = 48;
const NAMES_MAX: usize = 8;
/// What ends a path that was cut.
pub(super) const CUT: char = '…';

/// The names of a query's parameters, each once, in the order of the alphabet.
struct Names<'q> {
    names: [&'q str; NAMES_MAX],
    count: usize,
}

impl<'q> Names<'q> {
    fn of(query: Option<&'q str>) -> Self {
        let mut found = Self { names: [""; NAMES_MAX], count: 0 };
        for part in query.unwrap_or_default().split('&') {
            // Without `=` a part may be a value: an id, or a session.
            let Some((name, _)) = part.split_once('=') else { continue };
            let name = if has_secret_value(name) { "*" } else { name };
            let name = &name[..name.floor_char_boundary(NAME_MAX)];
            if !name.is_empty() && !found.all().contains(&name) {
                found.names[found.count] = name;
                found.count += 1;
            }
            if found.count == NAMES_MAX {
                break;
            }
        }
        let count = found.count;
        found.names[..count].sort_unstable();
        found
    }

    fn all(&self) -> &[&'q str] {
        &self.names[..self.count]
    }
}

/// A segment as operators see it: addresses of mail name persons.
fn shown(segment: &str) -> &str {
    let is_address = segment.contains('@') || segment.contains("%40");
    if is_address { "*" } else { segment }
}

/// The hash of the pattern. PERF: it makes no text.
pub(super) fn pattern_hash(hasher: &RandomState, path: &str, query: Option<&str>) -> u64 {
    let mut hash = hasher.build_hasher();
    for (segment, rest) in pattern_segments(path) {
        hash.write(shown(segment).as_bytes());
        hash.write(rest.as_bytes());
        hash.write_u8(b'/');
    }
    for name in Names::of(query).all() {
        hash.write(name.as_bytes());
        hash.write_u8(b'&');
    }
    hash.finish()
}

/// The pattern, such as `/shop/*?color&page`.
pub(super) fn pattern_text(path: &str, query: Option<&str>) -> String {
    let segments =
        pattern_segments(path).map(|(segment, rest)| format!("/{}{rest}", shown(segment)));
    let mut pattern: String = segments.collect();
    // The last segment says whether the path ends in a slash.
    if pattern.len() > 1 && pattern.ends_with('/') {
        pattern.pop();
    }
    if pattern.len() > PATH_MAX {
        pattern.truncate(pattern.floor_char_boundary(PATH_MAX));
        pattern.push(CUT);
    }
    let names = Names::of(query);
    if names.count > 0 {
        pattern.push('?');
        pattern += &names.all().join("&");
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(target: &str) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        pattern_text(path, Some(query))
    }

    #[test]
    fn a_pattern_has_no_values() {
        for (target, pattern) in [
            ("/", "/"),
            ("/about", "/about"),
            ("/shop/shirts?page=2&color=red", "/shop/*?color&page"),
            ("/shop/17/?q=a&q=b&deadbeef", "/shop/*/"),
            ("/calendar/2024/05", "/calendar/*/*"),
            ("/search?4fd8a1c09be2773f4fd8=1", "/search?*"),
        ] {
            let pattern = match target.contains("?q=") {
                true => format!("{pattern}?q"),
                false => pattern.to_owned(),
            };
            assert_eq!(text(target), pattern, "{target}");
        }
    }

    #[test]
    fn a_pattern_is_bounded_and_its_hash_goes_with_it() {
        let many: String = (0..100).map(|n| format!("n{n}=1&")).collect();
        assert_eq!(text(&format!("/a?{many}")).matches('&').count(), NAMES_MAX - 1);
        let long = text(&format!("/{}/b", "a-".repeat(500)));
        assert!(long.len() < PATH_MAX + 8 && long.ends_with(CUT), "{long}");

        let hasher = RandomState::with_seeds(1, 2, 3, 4);
        let hash = |path: &str, query: &str| pattern_hash(&hasher, path, Some(query));
        assert_eq!(hash("/shop/1", "b=1&a=2"), hash("/shop/2", "a=3&b=4"));
        assert_ne!(hash("/shop/1", "a=2"), hash("/shop/1", "b=2"));
        assert_ne!(hash("/shop/1", "a=2"), hash("/shop/1", ""));
    }
}
