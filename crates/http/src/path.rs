//! Target paths (RFC 3986 §3.3): detection of paths that two parsers read differently, and the patterns that
//! select routes.
//!
//! Session ids in paths are handled in `query.rs`.

use std::borrow::Cow;
use std::fmt;

use super::extract::Expression;

/// Whether an origin could read `path` as a path other than the one this proxy reads: dot segments in any
/// disguise (`%2e%2e`, `..;x`), backslashes, encoded slashes, control characters, empty segments, broken or
/// double encoding, invalid UTF-8. A response to such a path must not be shared: the key could name one page
/// while the origin sent another.
#[must_use]
pub fn is_odd(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return true;
    };
    // PERF: a path without these bytes needs only the segment check.
    let plain = !path.bytes().any(|b| matches!(b, b'%' | b'\\' | b';') || b.is_ascii_control());
    if plain {
        return has_odd_segment(rest.as_bytes());
    }
    let Some(decoded) = percent_decoded(rest) else {
        return true;
    };
    let slashes = |text: &[u8]| text.iter().filter(|&&b| b == b'/').count();
    slashes(&decoded) != slashes(rest.as_bytes())
        || decoded.iter().any(|b| *b == b'\\' || b.is_ascii_control())
        // Overlong UTF-8 is invalid as well. Routes match the decoded path, so it must be valid.
        || std::str::from_utf8(&decoded).is_err()
        || is_encoded_twice(&decoded)
        || has_odd_segment(&decoded)
}

/// The percent-decoded path; `None` if an encoding is broken or the result is not UTF-8.
#[must_use]
pub fn decoded(path: &str) -> Option<String> {
    if !path.contains('%') {
        return Some(path.to_owned());
    }
    String::from_utf8(percent_decoded(path)?).ok()
}

/// A percent-decoded path as a lenient origin may read it: without parameters (`;x`) and the trailing slash,
/// and in lower case. Windows file names are covered too: without surrounding spaces, trailing dots
/// (`admin.`), and streams (`admin::$DATA`, `admin:$I30:…`).
#[must_use]
pub fn as_read_laxly(path: &str) -> Cow<'_, str> {
    // PERF: most paths are read alike by all.
    if has_one_reading(path) {
        return Cow::Borrowed(path);
    }
    let read: Vec<String> = path.split('/').map(read_laxly).collect();
    let read = read.join("/");
    let trimmed = read.trim_end_matches('/');
    if trimmed.is_empty() { Cow::Borrowed("/") } else { Cow::Owned(trimmed.to_owned()) }
}

/// Whether it is plain that a lax reading of a path is the path itself.
fn has_one_reading(path: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/-_.".contains(&byte);
    path.bytes().all(is_plain)
        && !path.contains("./")
        && !path.is_empty()
        && !path.ends_with(['/', '.'])
}

/// The same for one segment.
fn read_laxly(segment: &str) -> String {
    let segment = without_stream(segment).to_lowercase();
    segment.trim_start_matches(' ').trim_end_matches(BEHIND_NAMES).to_owned()
}

/// Characters that Windows ignores at the end of a name.
const BEHIND_NAMES: [char; 2] = [' ', '.'];

/// A segment without its parameters or its file stream.
fn without_stream(segment: &str) -> &str {
    let end = [";", "::", ":$"].iter().filter_map(|mark| segment.find(mark)).min();
    &segment[..end.unwrap_or(segment.len())]
}

/// Whether a decoded path still contains percent-encoding: an origin that decodes twice reads another path.
#[must_use]
pub fn has_encoding_left(decoded: &str) -> bool {
    decoded
        .as_bytes()
        .windows(3)
        .any(|window| matches!(window, [b'%', high, low] if hex_pair(*high, *low).is_some()))
}

/// A path pattern, matched segment by segment against the percent-decoded path.
///
/// `*` matches one segment, or a part of one (`*.css`). `**` matches any number of segments, including none,
/// and may occur once (`/feed/**` matches `/feed`, `/feed/` and `/feed/a/b`). `{item}` matches one non-empty
/// segment, or part of one, and captures the item.
///
/// `~` begins a regular expression that matches anywhere in the path; its group `item` captures the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    text: Box<str>,
    matcher: PathMatcher,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathMatcher {
    Segments(PathSegments),
    Expression(Expression),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathSegments {
    /// The segments before `**`; all segments if there is none.
    before: Vec<PathSegment>,
    /// The segments after `**`; `None` if there is none.
    after: Option<Vec<PathSegment>>,
}

/// A path to purge, or with a trailing `/**` also all paths below it; queries are included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgePath {
    /// The path, percent-decoded.
    pub path: Box<str>,
    /// Whether all paths below it are included.
    pub is_whole: bool,
}

impl PurgePath {
    /// Parses a branch; `None` if `text` is not a path, or has other wildcards, a query or a fragment.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (path, is_whole) = match text.strip_suffix("/**") {
            Some("") => ("/", true),
            Some(path) => (path, true),
            None => (text, false),
        };
        let is_plain = path.starts_with('/') && !path.contains(['*', '?', '#', '{', '}']);
        let path = decoded(path).filter(|_| is_plain && !is_odd(path))?;
        Some(Self { path: path.into(), is_whole })
    }
}

impl fmt::Display for PurgePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.is_whole { "/**" } else { "" };
        let path = if self.is_whole { self.path.trim_end_matches('/') } else { &*self.path };
        write!(f, "{path}{below}")
    }
}

/// The result of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMatch<'p> {
    /// The text captured by `{item}`, if the pattern has it.
    pub item: Option<&'p str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathSegment {
    Exact(Box<str>),
    Star { prefix: Box<str>, suffix: Box<str> },
    Item { prefix: Box<str>, suffix: Box<str> },
}

impl PathSegment {
    /// The segment pattern for segments as [`as_read_laxly`] reads them.
    fn laxly(&self) -> Self {
        match self {
            Self::Exact(text) => Self::Exact(read_laxly(text).into()),
            // Everything after the start of a parameter is dropped along with it.
            Self::Star { prefix, .. } | Self::Item { prefix, .. }
                if without_stream(prefix) != &**prefix =>
            {
                Self::Exact(read_laxly(prefix).into())
            }
            // Only the end of the whole segment is read laxly: a prefix with characters after it is part of a
            // longer name.
            Self::Star { prefix, suffix } | Self::Item { prefix, suffix } => {
                let prefix = prefix.to_lowercase();
                let suffix = without_stream(suffix).to_lowercase();
                Self::Star {
                    prefix: prefix.trim_start_matches(' ').into(),
                    suffix: suffix.trim_end_matches(BEHIND_NAMES).into(),
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Exact(text) if text.is_empty())
    }
}

impl PathPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// If `text` does not begin with `/`, has `**` twice or inside a segment, two wildcards in one segment,
    /// `{item}` twice, or other braces. The message is written for the operator.
    pub fn parse(text: &str) -> Result<Self, PatternProblem> {
        let rest = text.strip_prefix('/').ok_or(PatternProblem::NoSlash)?;
        let items = text.matches(ITEM).count();
        if items > 1 {
            return Err(PatternProblem::SecondItem);
        }
        if text.matches('{').count() != items || text.matches('}').count() != items {
            return Err(PatternProblem::Braces);
        }
        let mut parts = rest.split('/');
        let before = parts.by_ref().take_while(|part| *part != "**").map(segment);
        let before = before.collect::<Result<Vec<_>, _>>()?;
        let has_rest = before.len() < rest.split('/').count();
        let after = has_rest.then(|| parts.map(segment).collect::<Result<Vec<_>, _>>());
        let segments = PathSegments { before, after: after.transpose()? };
        Ok(Self { text: text.into(), matcher: PathMatcher::Segments(segments) })
    }

    /// Parses `~` and a regular expression.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_expression(text: &str) -> Result<Self, String> {
        let expression = Expression::new(text.strip_prefix('~').unwrap_or(text).trim_start())?;
        Ok(Self { text: text.into(), matcher: PathMatcher::Expression(expression) })
    }

    /// Whether the pattern is a regular expression.
    #[must_use]
    pub fn is_expression(&self) -> bool {
        matches!(self.matcher, PathMatcher::Expression(_))
    }

    /// Whether the pattern captures an item.
    #[must_use]
    pub fn names_item(&self) -> bool {
        match &self.matcher {
            PathMatcher::Segments(_) => self.text.contains(ITEM),
            PathMatcher::Expression(expression) => expression.has_group(ITEM_GROUP),
        }
    }

    /// Matches a percent-decoded path; `None` if it does not match.
    #[must_use]
    pub fn matches<'p>(&self, path: &'p str) -> Option<PathMatch<'p>> {
        match &self.matcher {
            PathMatcher::Segments(segments) => segments.matches(path),
            PathMatcher::Expression(expression) => {
                let item = expression.named(path, ITEM_GROUP)?;
                Some(PathMatch { item: item.filter(|item| !item.is_empty()) })
            }
        }
    }

    /// The pattern for paths [as they are read laxly](as_read_laxly). If the original matches a path, this
    /// one matches the laxly read form of that path; a regular expression promises nothing of the kind.
    #[must_use]
    pub fn laxly(&self) -> Self {
        let matcher = match &self.matcher {
            PathMatcher::Segments(segments) => PathMatcher::Segments(segments.laxly()),
            PathMatcher::Expression(expression) => PathMatcher::Expression(expression.clone()),
        };
        Self { text: self.text.clone(), matcher }
    }

    /// The pattern as the operator wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches every path.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        match &self.matcher {
            PathMatcher::Segments(PathSegments { before, after }) => {
                before.is_empty() && after.as_ref().is_some_and(Vec::is_empty)
            }
            PathMatcher::Expression(expression) => {
                ["", "^", ".*", "^.*", "^/", "/", "^.*$", "^/.*", "^/.*$"]
                    .contains(&expression.as_str())
            }
        }
    }
}

impl PathPattern {
    /// Whether every path that `other` matches matches this pattern, too, as far as the patterns tell: this one is
    /// the same, or all below a branch (`/shop/**`) that `other` begins with.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let (PathMatcher::Segments(own), PathMatcher::Segments(others)) =
            (&self.matcher, &other.matcher)
        else {
            return self == other;
        };
        let is_branch = own.after.as_ref().is_some_and(Vec::is_empty);
        let is_plain = own.before.iter().all(|segment| matches!(segment, PathSegment::Exact(_)));
        self == other || (is_branch && is_plain && others.before.starts_with(&own.before))
    }

    /// A path of which all matching paths are, or lie below it: the segments before the first wildcard, without a
    /// slash at the end. Empty: all paths.
    #[must_use]
    pub fn branch(&self) -> String {
        let PathMatcher::Segments(PathSegments { before, .. }) = &self.matcher else {
            return String::new();
        };
        let plain = before.iter().map_while(|segment| match segment {
            PathSegment::Exact(text) => Some(text),
            PathSegment::Star { .. } | PathSegment::Item { .. } => None,
        });
        let branch: String = plain.flat_map(|text| ["/", text]).collect();
        branch.trim_end_matches('/').to_owned()
    }

    /// Whether the pattern matches every path, or every path but few, such as `/**/*`.
    #[must_use]
    pub fn is_nearly_everything(&self) -> bool {
        let is_any = |segment: &PathSegment| match segment {
            PathSegment::Star { prefix, suffix } | PathSegment::Item { prefix, suffix } => {
                prefix.is_empty() && suffix.is_empty()
            }
            PathSegment::Exact(_) => false,
        };
        match &self.matcher {
            PathMatcher::Segments(PathSegments { before, after: Some(after) }) => {
                before.iter().chain(after).all(is_any)
            }
            PathMatcher::Segments(_) => false,
            PathMatcher::Expression(_) => self.is_everything(),
        }
    }
}

impl PathSegments {
    fn matches<'p>(&self, path: &'p str) -> Option<PathMatch<'p>> {
        let mut rest = path.strip_prefix('/')?.split('/');
        let mut item = None;
        let Some(after) = &self.after else {
            all_match(&self.before, &mut rest, &mut item)?;
            return rest.next().is_none().then_some(PathMatch { item });
        };
        // A trailing `/**` also matches its parent without the slash: `/feed` has fewer segments than
        // `/feed/**`, and the root has one empty segment.
        all_match(&self.before, &mut rest, &mut item)?;
        let tail: Vec<_> = rest.collect();
        let skipped = tail.len().checked_sub(after.len())?;
        all_match(after, &mut tail.into_iter().skip(skipped), &mut item)?;
        Some(PathMatch { item })
    }

    fn laxly(&self) -> Self {
        let lax =
            |segments: &[PathSegment]| segments.iter().map(PathSegment::laxly).collect::<Vec<_>>();
        let (mut before, mut after) = (lax(&self.before), self.after.as_deref().map(lax));
        // Trailing empty segments are dropped, except that of the root.
        let (last, least) = match &mut after {
            Some(after) => (after, 0),
            None => (&mut before, 1),
        };
        while last.len() > least && last.last().is_some_and(PathSegment::is_empty) {
            last.pop();
        }
        Self { before, after }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a valid path pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternProblem {
    /// It does not begin with `/`.
    #[error("a path that begins with `/`")]
    NoSlash,
    /// It has `**` twice.
    #[error("`**` once at most")]
    SecondRest,
    /// It has `**` in a segment with other text.
    #[error("`**` as a whole segment, as in `/feed/**`")]
    RestInside,
    /// It has two wildcards in one segment.
    #[error("one wildcard in a segment at most")]
    SecondWildcard,
    /// It has `{item}` twice.
    #[error("`{{item}}` once at most")]
    SecondItem,
    /// It has braces other than `{item}`.
    #[error("no other name in braces than `{{item}}`")]
    Braces,
}

const ITEM: &str = "{item}";

/// The group of a regular expression that captures the item.
const ITEM_GROUP: &str = "item";

fn segment(text: &str) -> Result<PathSegment, PatternProblem> {
    match text {
        // This parses only the part after the first `**`.
        "**" => return Err(PatternProblem::SecondRest),
        _ if text.contains("**") => return Err(PatternProblem::RestInside),
        _ => {}
    }
    let stars = text.matches('*').count();
    let parts = |(prefix, suffix): (&str, &str)| (prefix.into(), suffix.into());
    match (text.split_once(ITEM).map(parts), text.split_once('*').map(parts)) {
        (Some((prefix, suffix)), None) => Ok(PathSegment::Item { prefix, suffix }),
        (None, Some((prefix, suffix))) if stars == 1 => Ok(PathSegment::Star { prefix, suffix }),
        (None, None) => Ok(PathSegment::Exact(text.into())),
        _ => Err(PatternProblem::SecondWildcard),
    }
}

/// Matches the next segments of `path`, and records the item among them.
fn all_match<'p>(
    segments: &[PathSegment],
    path: &mut impl Iterator<Item = &'p str>,
    item: &mut Option<&'p str>,
) -> Option<()> {
    for segment in segments {
        let part = path.next()?;
        match segment {
            PathSegment::Exact(exact) => (part == &**exact).then_some(())?,
            // A wildcard for a whole segment needs at least one character; a wildcard for a part may match
            // none.
            PathSegment::Star { prefix, suffix } => {
                (!part.is_empty()).then_some(())?;
                part.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
            }
            PathSegment::Item { prefix, suffix } => {
                let found = part.strip_prefix(&**prefix)?.strip_suffix(&**suffix)?;
                *item = Some(Some(found).filter(|found| !found.is_empty())?);
            }
        }
    }
    Some(())
}

/// Whether a path without its first slash, decoded or not, has a segment that parsers read differently.
fn has_odd_segment(path: &[u8]) -> bool {
    let mut segments = path.split(|&b| b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        // Servlet containers read `..;x` as `..`.
        let bare = segment.split(|&b| b == b';').next().unwrap_or_default();
        // The last segment may be empty: `/` and `/a/`. With parameters it may not: `/a/;x`.
        let empty = bare.is_empty() && !(is_last && segment.is_empty());
        if empty || matches!(bare, b"." | b"..") {
            return true;
        }
    }
    false
}

/// Whether a second decoding would yield a byte that changes the path.
fn is_encoded_twice(decoded: &[u8]) -> bool {
    decoded.windows(3).any(|window| match window {
        [b'%', high, low] => hex_pair(*high, *low).is_some_and(|b| {
            matches!(b, b'.' | b'/' | b'\\' | b'%' | b';') || b.is_ascii_control()
        }),
        _ => false,
    })
}

/// Decodes strictly: every `%` must be followed by two hex digits.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return Some(decoded),
            [b'%', tail @ ..] => {
                let [high, low, tail @ ..] = tail else {
                    return None;
                };
                decoded.push(hex_pair(*high, *low)?);
                tail
            }
            [byte, tail @ ..] => {
                decoded.push(*byte);
                tail
            }
        };
    }
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_branch_is_a_path_or_all_below_one() {
        for (text, path, is_whole) in [
            ("/", "/", false),
            ("/**", "/", true),
            ("/feed/**", "/feed", true),
            ("/a/", "/a/", false),
            ("/caf%C3%A9", "/caf\u{e9}", false),
        ] {
            let branch = PurgePath::parse(text).unwrap();
            assert_eq!((&*branch.path, branch.is_whole), (path, is_whole), "{text}");
            assert_eq!(PurgePath::parse(&branch.to_string()), Some(branch), "{text}");
        }
        for text in ["", "a", "/a*", "/*/a", "/**/a", "/a?b", "/a#b", "/{item}", "/a/../b", "/%zz"]
        {
            assert_eq!(PurgePath::parse(text), None, "{text}");
        }
    }

    #[test]
    fn paths_that_may_mean_another_are_odd() {
        for path in [
            "",
            "*",
            "a",
            "//",
            "/a//b",
            "//a",
            "/a//",
            "/.",
            "/..",
            "/./a",
            "/a/..",
            "/a/../b",
            "/%2e",
            "/%2E%2e/a",
            "/.%2e",
            "/a/..;/b",
            "/a/..;x=1",
            "/a/.;/b",
            "/;/a",
            "/a/;x",
            "/a/%3b/b",
            "/a\\b",
            "/a%5cb",
            "/a%2fb",
            "/a%2Fb",
            "/a%00",
            "/a%0d%0aX",
            "/a%7f",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%%32",
            "/%252e%252e/a",
            "/a%252fb",
            "/a%255cb",
            "/a%25252f",
            "/a%2500",
            "/%c0%ae%c0%ae/",
            "/a%253bx",
        ] {
            assert!(is_odd(path), "{path}");
        }
    }

    #[test]
    fn plain_paths_are_not_odd() {
        for path in [
            "/",
            "/a",
            "/a/",
            "/a/b.css",
            "/a.b/..c",
            "/...",
            "/.well-known/x",
            "/a;v=1",
            "/a;v=1/b",
            "/%C3%BC",
            "/ü",
            "/a%20b",
            "/100%25",
            "/100%25/a",
            "/a%2Bb",
            "/%7Euser",
            "/a:b@c",
            "/a,b(c)",
            "/a%25zz",
            "/%41",
        ] {
            assert!(!is_odd(path), "{path}");
        }
    }

    #[test]
    fn decoding_is_strict() {
        for (path, expected) in [
            ("/a", Some("/a")),
            ("/%C3%BC+%41", Some("/ü+A")),
            ("/a%2Fb", Some("/a/b")),
            ("/%", None),
            ("/%4", None),
            ("/%4g", None),
            ("/%+4", None),
            ("/%ff", None),
        ] {
            assert_eq!(decoded(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn patterns_match_segment_by_segment() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/A", false),
            ("/a", "/ab", false),
            ("/a/", "/a/", true),
            ("/a/", "/a", false),
            ("/*", "/a", true),
            ("/*", "/", false),
            ("/*", "/a/b", false),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a//c", false),
            ("/a/*/c", "/a/b/b/c", false),
            ("/*.css", "/a.css", true),
            ("/*.css", "/.css", true),
            ("/*.css", "/a.css/b", false),
            ("/a*b", "/ab", true),
            ("/a*a", "/a", false),
            ("/**", "/", true),
            ("/**", "/a", true),
            ("/**", "/a/b/", true),
            ("/feed/**", "/feed", true),
            ("/feed/**", "/feed/", true),
            ("/feed/**", "/feed/a/b", true),
            ("/feed/**", "/feeds", false),
            ("/feed/**", "/", false),
            ("/**/*.css", "/a.css", true),
            ("/**/*.css", "/x/y/a.css", true),
            ("/**/*.css", "/a.js", false),
            ("/a/**/z", "/a/z", true),
            ("/a/**/z", "/a/b/c/z", true),
            ("/a/**/z", "/a", false),
            ("/a/**/a", "/a", false),
            ("/ü", "/ü", true),
            ("/a", "a", false),
            ("/a", "", false),
        ] {
            let parsed = PathPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(path).is_some(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_lax_pattern_matches_what_is_read_laxly() {
        for (pattern, path, expected) in [
            ("/", "/", true),
            ("/Admin", "/ADMIN/", true),
            ("/admin/", "/admin", true),
            ("/admin/", "/", false),
            ("/Admin/**", "/admin/x", true),
            ("/**/Admin/", "/a/admin", true),
            ("/**/Admin/", "/a", false),
            ("/A-*.PHP", "/a-b.php", true),
            ("/a;v=1/b", "/a/b", true),
            ("/a;v=*/b", "/a;v=2/b", true),
            ("/*.php;x", "/a.php", true),
            ("/User/{item}", "/user/Bob", true),
            ("/user/{item}", "/user", false),
            ("/admin/**", "/admin./x", true),
            ("/admin/**", "/ admin /x", true),
            ("/admin/**", "/admin::$DATA/x", true),
            ("/admin/**", "/admin:$I30:$INDEX_ALLOCATION/x", true),
            ("/admin/**", "/admin:x/x", false),
            ("/*.php", "/a.php. .", true),
            ("/**/.*", "/.git/config", false),
            ("/**/.*", "/.env", true),
            ("/**/.*", "/about", false),
            ("/login.*", "/Login.php", true),
            ("/login.*", "/login-help", false),
        ] {
            let lax = PathPattern::parse(pattern).unwrap().laxly();
            assert_eq!(lax.matches(&as_read_laxly(path)).is_some(), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn an_expression_matches_anywhere_in_the_path() {
        let parse = |text| PathPattern::parse_expression(text).unwrap();
        for (text, path, matches) in [
            ("~^/[0-9]+$", "/12", true),
            ("~^/[0-9]+$", "/12/a", false),
            ("~ /archive/", "/a/archive/b", true),
            (r"~\.(css|js)$", "/a/b.css", true),
            (r"~\.(css|js)$", "/a/b.CSS", false),
            (r"~(?i)\.(css|js)$", "/a/b.CSS", true),
        ] {
            assert_eq!(parse(text).matches(path).is_some(), matches, "{text} {path}");
        }
        let named = parse("~^/p/(?P<item>[^/]*)/");
        assert!(named.names_item() && named.is_expression() && !named.is_everything());
        assert_eq!(named.matches("/p/mug/x").unwrap().item, Some("mug"));
        assert_eq!(named.matches("/p//x").unwrap().item, None);
        assert!(parse("~^/").is_everything() && !parse("~^/").names_item());
        assert_eq!(named.to_string(), "~^/p/(?P<item>[^/]*)/");
        assert!(PathPattern::parse_expression("~(").unwrap_err().contains("unclosed"));
    }

    #[test]
    fn a_branch_covers_what_begins_with_it() {
        let covers = |one, other| {
            let [one, other] = [one, other].map(|text| PathPattern::parse(text).unwrap());
            one.covers(&other)
        };
        for (one, other, expected) in [
            ("/shop/**", "/shop/cart/**", true),
            ("/shop/**", "/shop/*.css", true),
            ("/shop/**", "/shop", true),
            ("/shop/**", "/shop/**", true),
            ("/**", "/a/{item}", true),
            ("/shop/**", "/shopping/**", false),
            ("/shop/**", "/**", false),
            ("/shop/cart/**", "/shop/**", false),
            ("/*/a/**", "/b/a/c", false),
            ("/shop/*", "/shop/a", false),
        ] {
            assert_eq!(covers(one, other), expected, "{one} {other}");
        }
        for (text, expected) in
            [("/**/*", true), ("/**", true), ("/*/**", true), ("/**/*.css", false), ("/*", false)]
        {
            assert_eq!(
                PathPattern::parse(text).unwrap().is_nearly_everything(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn all_matches_lie_on_the_branch() {
        for (pattern, branch) in [
            ("/", ""),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a/b/*.css", "/a/b"),
            ("/a/**", "/a"),
            ("/**/b", ""),
            ("/shop/{item}/x", "/shop"),
        ] {
            assert_eq!(PathPattern::parse(pattern).unwrap().branch(), branch, "{pattern}");
        }
        assert_eq!(PathPattern::parse_expression("~ ^/a").unwrap().branch(), "");
    }

    #[test]
    fn the_item_is_found() {
        for (pattern, path, expected) in [
            ("/item/{item}", "/item/7", Some("7")),
            ("/item/{item}", "/item/", None),
            ("/item/{item}", "/item", None),
            ("/item/{item}", "/item/7/8", None),
            ("/item/{item}/**", "/item/7/reviews/2", Some("7")),
            ("/item/{item}/**", "/item/7", Some("7")),
            ("/**/{item}", "/a/b/7", Some("7")),
            ("/{item}.html", "/7.html", Some("7")),
            ("/{item}.html", "/.html", None),
            ("/p-{item}", "/p-a b", Some("a b")),
        ] {
            let found = PathPattern::parse(pattern).unwrap().matches(path).map(|m| m.item);
            assert_eq!(found, expected.map(Some), "{pattern} {path}");
        }
        assert_eq!(PathPattern::parse("/a").unwrap().matches("/a"), Some(PathMatch { item: None }));
    }

    #[test]
    fn invalid_path_patterns_are_reported() {
        for (text, problem) in [
            ("", PatternProblem::NoSlash),
            ("a", PatternProblem::NoSlash),
            ("/**/a/**", PatternProblem::SecondRest),
            ("/a**", PatternProblem::RestInside),
            ("/***", PatternProblem::RestInside),
            ("/a*b*c", PatternProblem::SecondWildcard),
            ("/*{item}", PatternProblem::SecondWildcard),
            ("/{item}/{item}", PatternProblem::SecondItem),
            ("/{items}", PatternProblem::Braces),
            ("/{", PatternProblem::Braces),
            ("/{item}}", PatternProblem::Braces),
        ] {
            assert_eq!(PathPattern::parse(text), Err(problem), "{text}");
        }
    }

    #[test]
    fn only_the_widest_pattern_is_everything() {
        assert!(PathPattern::parse("/**").unwrap().is_everything());
        for text in ["/", "/*", "/a/**", "/**/a"] {
            assert!(!PathPattern::parse(text).unwrap().is_everything(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_path_with_one_reading_is_read_laxly_as_it_is(path in "(/[a-zA-Z0-9 ._;-]{0,3}){1,4}") {
            let segments: Vec<String> = path.split('/').map(read_laxly).collect();
            let read = segments.join("/");
            let expected = Some(read.trim_end_matches('/')).filter(|read| !read.is_empty());
            prop_assert_eq!(&*as_read_laxly(&path), expected.unwrap_or("/"));
        }

        #[test]
        fn no_text_breaks_it(path in "\\PC{0,24}", pattern in "/[a*{}item/]{0,12}") {
            let _ = (is_odd(&path), decoded(&path));
            if let Ok(pattern) = PathPattern::parse(&pattern) {
                let _ = pattern.matches(&path);
                prop_assert!(PathPattern::parse("/**").unwrap().matches(pattern.as_str()).is_some());
            }
        }

        #[test]
        fn encoding_every_byte_changes_nothing(path in "[a-z]{1,8}(/[a-z]{1,8}){0,3}") {
            let coded: String = path.bytes().map(|b| match b {
                b'/' => "/".to_owned(),
                _ => format!("%{b:02x}"),
            }).collect();
            prop_assert_eq!(decoded(&coded).unwrap(), path);
        }
    }
}
