//! Name patterns with at most one `*`, as the settings use them for cookies and query parameters.
//!
//! Path patterns are in `path.rs`.

use std::fmt;

use percent_encoding::percent_decode;

/// The longest pattern, in bytes.
pub const PATTERN_MAX: usize = 256;

/// A name, or a pattern of names with one `*`. Comparison is case-sensitive, as cookie names are (RFC 6265
/// §5.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Exactly this name.
    Exact(String),
    /// Every name with this prefix and suffix that is at least as long as both together.
    Affix {
        /// The part before the `*`.
        prefix: String,
        /// The part after the `*`.
        suffix: String,
    },
}

impl Pattern {
    /// Parses a pattern: `login`, `wordpress_logged_in_*`, `*_session`.
    ///
    /// # Errors
    /// If `text` is empty, longer than [`PATTERN_MAX`], or has more than one `*`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > PATTERN_MAX {
            return Err(PatternError::TooLong);
        }
        let Some((prefix, suffix)) = text.split_once('*') else {
            return Ok(Self::Exact(text.to_owned()));
        };
        if suffix.contains('*') {
            return Err(PatternError::SecondStar);
        }
        Ok(Self::Affix { prefix: prefix.to_owned(), suffix: suffix.to_owned() })
    }

    /// Whether `name` matches the pattern.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => name == exact.as_bytes(),
            Self::Affix { prefix, suffix } => name
                .strip_prefix(prefix.as_bytes())
                .is_some_and(|rest| rest.ends_with(suffix.as_bytes())),
        }
    }
}

impl Pattern {
    /// Whether an app may read a cookie called `name` as one that the pattern matches. PHP turns `.`, a space
    /// and `[` into `_`, or takes the part before `[` as the name of an array. Other apps ignore case, or
    /// ignore the prefixes of RFC 6265bis §4.1.3. Old ones decode names, skip leading blanks, and stop at a
    /// NUL. This check errs on the side of too many matches.
    #[must_use]
    pub fn may_be_read_as(&self, name: &[u8]) -> bool {
        let pattern = match self {
            Self::Exact(exact) => Self::Exact(folded_text(exact)),
            Self::Affix { prefix, suffix } => {
                Self::Affix { prefix: folded_text(prefix), suffix: folded_text(suffix) }
            }
        };
        let decoded: Vec<u8> = percent_decode(name).collect();
        let blanks = decoded.iter().take_while(|byte| matches!(byte, b' ' | b'+')).count();
        let bare = before(&decoded[blanks..], 0);
        let readings = [name, decoded.as_slice(), before(&decoded, b'['), bare, before(bare, b'[')];
        readings.into_iter().map(folded).any(|name| {
            let bare = [&b"__host-"[..], b"__secure-"].iter().find_map(|it| name.strip_prefix(*it));
            pattern.matches(&name) || bare.is_some_and(|bare| pattern.matches(bare))
        })
    }
}

fn before(name: &[u8], end: u8) -> &[u8] {
    name.split(|byte| *byte == end).next().unwrap_or_default()
}

fn folded(name: &[u8]) -> Vec<u8> {
    let fold = |byte: &u8| match byte {
        b'.' | b' ' | b'+' | b'[' => b'_',
        other => other.to_ascii_lowercase(),
    };
    name.iter().map(fold).collect()
}

fn folded_text(text: &str) -> String {
    text.to_ascii_lowercase().replace(['.', ' ', '+', '['], "_")
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(exact) => f.write_str(exact),
            Self::Affix { prefix, suffix } => write!(f, "{prefix}*{suffix}"),
        }
    }
}

/// Why a text is not a valid pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is empty.
    #[error("a name that is not empty")]
    Empty,
    /// The text is longer than [`PATTERN_MAX`].
    #[error("a name of at most {PATTERN_MAX} bytes")]
    TooLong,
    /// The text has more than one `*`.
    #[error("a pattern with one * at most")]
    SecondStar,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("login", "login", true),
            ("login", "Login", false),
            ("login", "login2", false),
            ("login", "", false),
            ("wordpress_logged_in_*", "wordpress_logged_in_0a1b", true),
            ("wordpress_logged_in_*", "wordpress_logged_in_", true),
            ("wordpress_logged_in_*", "wordpress_logged", false),
            ("*_session", "_shop_session", true),
            ("*_session", "_session", true),
            ("*_session", "session", false),
            ("*_session", "_session_id", false),
            ("ab*ba", "abba", true),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("*", "anything", true),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn invalid_patterns_are_reported() {
        assert_eq!(Pattern::parse(""), Err(PatternError::Empty));
        assert_eq!(Pattern::parse("a*b*"), Err(PatternError::SecondStar));
        assert_eq!(Pattern::parse("**"), Err(PatternError::SecondStar));
        assert_eq!(Pattern::parse(&"x".repeat(PATTERN_MAX + 1)), Err(PatternError::TooLong));
        assert!(Pattern::parse(&"x".repeat(PATTERN_MAX)).is_ok());
    }

    #[test]
    fn names_are_folded_as_apps_fold_them() {
        for (pattern, name, expected) in [
            ("remember_*", "remember_me", true),
            ("remember_*", "remember.me", true),
            ("remember_*", "remember me", true),
            ("remember_*", "remember[me", true),
            ("remember_*", "Remember%2Eme", true),
            ("remember_*", "remember", false),
            ("remember.me", "remember_me", true),
            ("sid", "sid[]", true),
            ("sid", "sid[a]", true),
            ("sid", "SID", true),
            ("PHPSESSID", "phpsessid", true),
            ("sid", "__Host-sid", true),
            ("sid", "__secure-sid[]", true),
            ("__Host-sid", "__Host-sid", true),
            ("__Host-sid", "sid", false),
            ("sid", "sid2", false),
            ("sid", "", false),
            ("express%3Asess", "express%3Asess", true),
            ("PHPSESSID", "%20PHPSESSID", true),
            ("PHPSESSID", "+PHPSESSID%00x", true),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.may_be_read_as(name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn a_matched_name_may_be_read_as_the_pattern(pattern in "[aA.%\\[_-]{1,4}(\\*[aA.%\\[_-]{0,3})?", any in "[aA.%25B\\[_-]{0,4}") {
            let parsed = Pattern::parse(&pattern).unwrap();
            let name = pattern.replace('*', &any);
            prop_assert!(parsed.matches(name.as_bytes()) && parsed.may_be_read_as(name.as_bytes()));
        }

        #[test]
        fn a_pattern_is_printed_as_it_was_read(text in "[a-z_]{1,8}(\\*[a-z_]{0,8})?") {
            prop_assert_eq!(Pattern::parse(&text).unwrap().to_string(), text);
        }

        #[test]
        fn text_in_place_of_the_star_is_matched(a in "[a-z]{0,4}", b in "[a-z]{0,4}", any in "[a-z*]{0,6}") {
            let pattern = Pattern::parse(&format!("{a}*{b}")).unwrap();
            let name = format!("{a}{any}{b}");
            prop_assert!(pattern.matches(name.as_bytes()));
        }
    }
}
