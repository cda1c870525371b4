//! Finds a text or a sign in an origin's response: in JSON, in a field, in the body, or in a cookie.

use std::fmt;

use ::http::{HeaderMap, HeaderName, StatusCode};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use super::pattern::Pattern;
use super::set_cookie;

/// The largest compiled size of an expression, in bytes.
const COMPILED_MAX: usize = 1 << 20;
/// The longest text that is returned, in bytes.
const FOUND_MAX: usize = 1_024;

/// What makes an expression match different texts, or stand for another character.
const VARYING: [char; 13] = ['.', '+', '*', '?', '|', '(', ')', '[', ']', '{', '}', '\\', '^'];

/// A regular expression. Matching takes linear time in the length of the text.
#[derive(Clone)]
pub struct Expression(Regex);

impl Expression {
    /// Compiles an expression. `.` does not match a line end; `(?s)` and other flags are allowed.
    ///
    /// # Errors
    /// A description of what is wrong with it.
    pub fn new(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).size_limit(COMPILED_MAX).build();
        built.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            error => error.to_string().lines().last().unwrap_or_default().to_owned(),
        })
    }

    /// The source text of the expression.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether the expression matches anywhere in `text`.
    #[must_use]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }

    /// Whether the expression matches anywhere in `text`, and the text of its group `name`, if it has one.
    #[must_use]
    pub fn named<'t>(&self, text: &'t str, name: &str) -> Option<Option<&'t str>> {
        let found = self.0.captures(text.as_bytes())?;
        Some(found.name(name).and_then(|part| std::str::from_utf8(part.as_bytes()).ok()))
    }

    /// Whether the expression has a group of this name.
    #[must_use]
    pub fn has_group(&self, name: &str) -> bool {
        self.0.capture_names().flatten().any(|group| group == name)
    }

    /// The text of the first group, or of the whole match if there is no group.
    #[must_use]
    pub fn find<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        let found = self.0.captures(text)?;
        let whole = if found.len() > 1 { found.get(1) } else { found.get(0) };
        whole.map(|part| part.as_bytes())
    }

    /// The text that [`find`](Self::find) returns for whatever it matches, if that is plainly the same: the first
    /// group, or the expression without a group, has nothing that varies.
    #[must_use]
    pub fn only_text(&self) -> Option<&str> {
        let source = self.as_str();
        let found = if self.0.captures_len() > 1 { first_group(source)? } else { source };
        let found = found.trim_start_matches('^').trim_end_matches('$');
        (!found.is_empty() && !found.contains(VARYING)).then_some(found)
    }
}

/// The source of the first group that captures, up to the first parenthesis that closes.
fn first_group(source: &str) -> Option<&str> {
    let (mut is_escaped, mut is_class) = (false, false);
    for (at, c) in source.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => is_class = true,
            ']' => is_class = false,
            '(' if !is_class => {
                let inner = source.get(at + 1..)?;
                let named = inner.strip_prefix("?P<").or_else(|| inner.strip_prefix("?<"));
                let named = named.and_then(|named| Some(named.split_once('>')?.1));
                let captured =
                    named.or_else(|| Some(inner).filter(|inner| !inner.starts_with('?')));
                if let Some(captured) = captured {
                    return captured.split_once(')').map(|(group, _)| group);
                }
            }
            _ => {}
        }
    }
    None
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A response, as far as it has been read.
#[derive(Clone, Copy, Debug)]
pub struct ResponseParts<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: &'a HeaderMap,
    /// Its body, after content decoding.
    pub body: &'a [u8],
}

/// Where in a response a text is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extractor {
    /// At this pointer into the JSON body (RFC 6901): a string or a number.
    Json(String),
    /// The value of this field.
    Header(HeaderName),
    /// The match of this expression in the body: the first group, or the whole match.
    Regex(Expression),
    /// In the value of a cookie that the response sets.
    SetCookie {
        /// The name of the cookie.
        name: Pattern,
        /// The part of the value; `None` means all of it.
        part: Option<Expression>,
        /// Whether percent-encoding is undone, if the whole value is encoded.
        decode: bool,
    },
}

impl Extractor {
    /// The text, if it is present and not empty.
    #[must_use]
    pub fn find(&self, seen: ResponseParts<'_>) -> Option<Vec<u8>> {
        let found = match self {
            Self::Json(pointer) => match json(seen.body)?.pointer(pointer)? {
                Value::String(text) => text.clone().into_bytes(),
                Value::Number(number) => number.to_string().into_bytes(),
                _ => return None,
            },
            Self::Header(name) => seen.headers.get(name)?.as_bytes().trim_ascii().to_vec(),
            Self::Regex(expression) => expression.find(seen.body)?.to_vec(),
            Self::SetCookie { name, part, decode } => {
                let mut lines = set_cookie::pairs(seen.headers);
                let (_, value) = lines.find(|(set, _)| name.matches(set))?;
                let found = part.as_ref().map_or(Some(value), |part| part.find(value))?;
                if *decode && is_encoded(value) { decoded(found) } else { found.to_vec() }
            }
        };
        (1..=FOUND_MAX).contains(&found.len()).then_some(found)
    }

    /// The text that it finds in whatever response, if its expression plainly finds no other.
    #[must_use]
    pub fn only_text(&self) -> Option<&str> {
        match self {
            Self::Regex(expression) | Self::SetCookie { part: Some(expression), .. } => {
                expression.only_text()
            }
            Self::Json(_) | Self::Header(_) | Self::SetCookie { part: None, .. } => None,
        }
    }

    /// Whether this finder needs the response body.
    #[must_use]
    pub fn reads_body(&self) -> bool {
        matches!(self, Self::Json(_) | Self::Regex(_))
    }
}

/// Whether a whole value is percent-encoded in the way of PHP's `setcookie` and
/// `application/x-www-form-urlencoded`. Any other value stays as it is: otherwise an encoded text and a plain
/// text could become equal.
fn is_encoded(value: &[u8]) -> bool {
    let mut rest = value;
    while let Some((first, behind)) = rest.split_first() {
        rest = match (first, behind) {
            (b'%', [one, other, behind @ ..])
                if one.is_ascii_hexdigit() && other.is_ascii_hexdigit() =>
            {
                behind
            }
            (b'-' | b'.' | b'_' | b'~' | b'*' | b'+', _) => behind,
            (letter, _) if letter.is_ascii_alphanumeric() => behind,
            _ => return false,
        };
    }
    true
}

/// `text` with percent-encoding undone, and `+` as a space.
fn decoded(text: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_encoding::percent_decode(&spaced).collect()
}

/// The value expected at a JSON pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedValue {
    /// This string.
    Text(String),
    /// This number.
    Number(i64),
    /// This boolean.
    Flag(bool),
    /// `null`, written as the text `"null"`.
    Null,
}

/// A sign by which a response is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponseMatcher {
    /// The status is one of these.
    Status(Vec<u16>),
    /// The value at this pointer into the JSON body (RFC 6901) equals this.
    Json(String, ExpectedValue),
    /// This expression matches the body.
    Regex(Expression),
}

impl ResponseMatcher {
    /// Whether the response shows the sign.
    #[must_use]
    pub fn is_borne(&self, seen: ResponseParts<'_>) -> bool {
        match self {
            Self::Status(those) => those.contains(&seen.status.as_u16()),
            Self::Json(pointer, plain) => {
                let Some(json) = json(seen.body) else { return false };
                match (json.pointer(pointer), plain) {
                    (Some(Value::String(is)), ExpectedValue::Text(text)) => is == text,
                    (Some(Value::Number(is)), ExpectedValue::Number(number)) => {
                        is.as_i64() == Some(*number)
                    }
                    (Some(Value::Bool(is)), ExpectedValue::Flag(flag)) => is == flag,
                    (Some(Value::Null), ExpectedValue::Null) => true,
                    _ => false,
                }
            }
            Self::Regex(expression) => expression.is_in(seen.body),
        }
    }
}

fn json(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use ::http::header::SET_COOKIE;

    use super::*;

    fn headers() -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-user", HeaderValue::from_static(" ann "));
        headers.append(SET_COOKIE, HeaderValue::from_static("other=1"));
        headers.append(
            SET_COOKIE,
            HeaderValue::from_static("wordpress_logged_in_0f=ann%7C17|x; path=/; HttpOnly"),
        );
        headers
    }

    fn expression(text: &str) -> Expression {
        Expression::new(text).unwrap()
    }

    #[test]
    fn a_text_is_found_where_it_stands() {
        let headers = headers();
        let body = br#"{"query":{"userinfo":{"id":7,"name":"ann","none":null,"empty":""}}}"#;
        let seen = ResponseParts { status: StatusCode::OK, headers: &headers, body };
        let cookie = Pattern::parse("wordpress_logged_in_*").unwrap();
        for (finder, expected) in [
            (Extractor::Json("/query/userinfo/name".into()), Some("ann")),
            (Extractor::Json("/query/userinfo/id".into()), Some("7")),
            (Extractor::Json("/query/userinfo/none".into()), None),
            (Extractor::Json("/query/userinfo/empty".into()), None),
            (Extractor::Json("/query/userinfo".into()), None),
            (Extractor::Json("/nowhere".into()), None),
            (Extractor::Header(HeaderName::from_static("x-user")), Some("ann")),
            (Extractor::Header(HeaderName::from_static("x-other")), None),
            (Extractor::Regex(expression(r#""name":"([^"]*)""#)), Some("ann")),
            (Extractor::Regex(expression("an+")), Some("ann")),
            (Extractor::Regex(expression("bob")), None),
            (
                Extractor::SetCookie { name: cookie.clone(), part: None, decode: false },
                Some("ann%7C17|x"),
            ),
            (
                Extractor::SetCookie {
                    name: cookie,
                    part: Some(expression("^([^|%]+)")),
                    decode: false,
                },
                Some("ann"),
            ),
        ] {
            let found = finder.find(seen).map(|found| String::from_utf8(found).unwrap());
            assert_eq!(found.as_deref(), expected, "{finder:?}");
        }
    }

    #[test]
    fn a_cookie_that_is_encoded_is_decoded_and_no_other() {
        let part = || Some(expression("^(.+?)(?:%7[Cc]|\\|)"));
        let name = |value: &str| {
            let mut headers = HeaderMap::new();
            headers
                .insert(SET_COOKIE, HeaderValue::try_from(format!("n={value}; path=/")).unwrap());
            let pattern = Pattern::parse("n").unwrap();
            let finder = Extractor::SetCookie { name: pattern, part: part(), decode: true };
            let found =
                finder.find(ResponseParts { status: StatusCode::OK, headers: &headers, body: b"" });
            found.map(|found| String::from_utf8(found).unwrap())
        };
        for (value, expected) in [
            ("ann%40example.org%7C17%7Ctok", "ann@example.org"),
            ("ann%2540example.org%7C17", "ann%40example.org"),
            ("ann+o%7C17", "ann o"),
            ("ann%20o%7C17", "ann o"),
            ("ann%2Bo%7C17", "ann+o"),
            ("J%C3%B6rg%7c17", "J\u{f6}rg"),
            // These values stay as the app wrote them: each is a different user.
            ("ann%40example.org|17", "ann%40example.org"),
            ("ann+o|17", "ann+o"),
            ("ann@b%20%7C17", "ann@b%20"),
            ("ann%4%7C17", "ann%4"),
        ] {
            assert_eq!(name(value).as_deref(), Some(expected), "{value}");
        }
    }

    #[test]
    fn a_sign_is_borne_or_not() {
        let headers = HeaderMap::new();
        let body = br#"{"id":0,"name":"","in":false,"user":null}"#;
        let seen = ResponseParts { status: StatusCode::UNAUTHORIZED, headers: &headers, body };
        let json = |pointer: &str, plain| ResponseMatcher::Json(pointer.to_owned(), plain);
        for (sign, expected) in [
            (ResponseMatcher::Status(vec![302, 401]), true),
            (ResponseMatcher::Status(vec![302]), false),
            (json("/id", ExpectedValue::Number(0)), true),
            (json("/id", ExpectedValue::Text("0".into())), false),
            (json("/name", ExpectedValue::Text(String::new())), true),
            (json("/in", ExpectedValue::Flag(false)), true),
            (json("/in", ExpectedValue::Flag(true)), false),
            (json("/user", ExpectedValue::Null), true),
            (json("/nowhere", ExpectedValue::Null), false),
            (ResponseMatcher::Regex(expression("\"id\":0\\b")), true),
        ] {
            assert_eq!(sign.is_borne(seen), expected, "{sign:?}");
        }
    }

    #[test]
    fn an_expression_that_finds_one_text_alone_is_recognised() {
        for (text, only) in [
            ("^1$", Some("1")),
            ("Log out", Some("Log out")),
            ("name=(member);", Some("member")),
            ("[(]x[)] \\( (?:a|b) (?P<user>ada)", Some("ada")),
            ("(?:a) (?<user>ada)", Some("ada")),
            ("^(.+)$", None),
            ("user ([0-9]+)", None),
            ("(ada|bob)", None),
            ("\\w+", None),
            ("^$", None),
            ("(?i)ada", None),
        ] {
            assert_eq!(expression(text).only_text(), only, "{text}");
        }
    }

    #[test]
    fn an_expression_that_is_none_says_why() {
        assert!(Expression::new("a(").unwrap_err().contains("unclosed group"));
        assert_eq!(Expression::new("(?:a{1000}){1000}").unwrap_err(), "it is too large");
    }
}
