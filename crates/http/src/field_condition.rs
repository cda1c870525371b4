//! Conditions on the fields of a request, as routes have them.
//!
//! The notation is that of paths: a text stands for itself, one `*` for any text, and `~` begins a regular expression.

use std::borrow::Cow;
use std::fmt;

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::extract::Expression;
use super::pattern::Pattern;

/// A condition on a request field: the field is there, and its value matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldCondition {
    /// The name of the field.
    pub name: HeaderName,
    text: Box<str>,
    matcher: ValueMatcher,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueMatcher {
    Pattern(Pattern),
    Expression(Expression),
}

impl FieldCondition {
    /// Parses the condition on the field `name`.
    ///
    /// # Errors
    /// What is expected instead of `text`, in words for the operator.
    pub fn parse(name: HeaderName, text: &str) -> Result<Self, String> {
        let matcher = match text.strip_prefix('~') {
            Some(expression) => Expression::new(expression.trim_start())
                .map(ValueMatcher::Expression)
                .map_err(|why| format!("~ and a regular expression ({why})"))?,
            None => {
                let pattern = Pattern::parse(text).map_err(|why| match text {
                    "" => "a value, or \"*\" for any".to_owned(),
                    _ => format!("{why}, or ~ and a regular expression"),
                });
                ValueMatcher::Pattern(pattern?)
            }
        };
        Ok(Self { name, text: text.into(), matcher })
    }

    /// Whether the request with these fields meets the condition. Of several lines, the combined value counts (RFC 9110
    /// §5.3).
    #[must_use]
    pub fn is_met(&self, headers: &HeaderMap) -> bool {
        let Some(value) = combined(headers, &self.name) else { return false };
        match &self.matcher {
            ValueMatcher::Pattern(pattern) => pattern.matches(&value),
            ValueMatcher::Expression(expression) => expression.is_in(&value),
        }
    }

    /// Whether all requests that meet the condition have the same value.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self.matcher, ValueMatcher::Pattern(Pattern::Exact(_)))
    }

    /// The condition on the value, as the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for FieldCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The lines of a field, joined by `, `; `None` if the field is absent.
fn combined<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, [u8]>> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = lines.next()?;
    let mut combined = Cow::Borrowed(first);
    for line in lines {
        let text = combined.to_mut();
        text.extend_from_slice(b", ");
        text.extend_from_slice(line);
    }
    Some(combined)
}

#[cfg(test)]
mod tests {
    use ::http::header::{ACCEPT, USER_AGENT};

    use super::*;

    fn is_met(name: &HeaderName, text: &str, lines: &[&'static str]) -> bool {
        let lines = lines.iter().map(|line| (name.clone(), HeaderValue::from_static(line)));
        let headers: HeaderMap = lines.collect();
        FieldCondition::parse(name.clone(), text).unwrap().is_met(&headers)
    }

    #[test]
    fn a_value_is_a_text_a_pattern_or_an_expression() {
        for (text, value, expected) in [
            ("curl/8.5", "curl/8.5", true),
            ("curl/8.5", "curl/8.50", false),
            ("curl/8.5", "Curl/8.5", false),
            ("curl/*", "curl/8.5", true),
            ("curl/*", "a curl/8.5", false),
            ("*", "", true),
            ("~ (?i)bytespider|gptbot", "Mozilla/5.0 (compatible; GPTBot/1.2)", true),
            ("~(?i)bytespider|gptbot", "Mozilla/5.0 (Bytespider)", true),
            ("~ (?i)bytespider|gptbot", "Mozilla/5.0", false),
            ("~ ^Mozilla", "a Mozilla", false),
            ("~ ^$", "", true),
        ] {
            assert_eq!(is_met(&USER_AGENT, text, &[value]), expected, "{text}: {value}");
        }
    }

    #[test]
    fn an_absent_field_never_matches_and_lines_are_joined() {
        for text in ["*", "~", "~ ^$", "a"] {
            assert!(!is_met(&ACCEPT, text, &[]), "{text}");
        }
        assert!(is_met(&ACCEPT, "text/html, text/plain", &["text/html", "text/plain"]));
        assert!(!is_met(&ACCEPT, "text/html", &["text/html", "text/plain"]));
        assert!(is_met(&ACCEPT, "~ plain$", &["text/html", "text/plain"]));
    }

    #[test]
    fn an_invalid_condition_is_refused_in_words() {
        let why = |text: &str| FieldCondition::parse(USER_AGENT, text).unwrap_err();
        assert!(why("a*b*").contains("one * at most, or ~"), "{}", why("a*b*"));
        assert!(why("").contains("\"*\" for any"));
        assert!(why("~ (").starts_with("~ and a regular expression ("));
        assert!(why("~ (a{1000}){1000}{1000}").contains("too large"));
    }

    #[test]
    fn only_a_plain_text_is_exact() {
        let is_exact = |text: &str| FieldCondition::parse(ACCEPT, text).unwrap().is_exact();
        assert!(is_exact("XMLHttpRequest"));
        assert!(!is_exact("XML*") && !is_exact("~ ^XML$"));
    }
}
