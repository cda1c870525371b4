//! Queries of targets, as raw text (RFC 3986 §3.4, with names as in `application/x-www-form-urlencoded`):
//! removes, finds and hides parameters.
//!
//! Which parameters a site ignores is decided elsewhere.

use std::borrow::Cow;
use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;

use super::list::divide;
use super::pattern::Pattern;

/// `query` without the parameters that `ignored` matches. The others keep their order and bytes; a query with
/// only ignored parameters becomes empty. Names are percent-decoded for the comparison, because otherwise
/// `utm%5Fsource` would split the cache.
///
/// A parameter that is removed from the key must also be removed from the request to the origin: frameworks
/// disagree on whether `;` separates parameters, so an ignored parameter could hide another one.
#[must_use]
pub fn without<'q>(query: &'q str, ignored: &[Pattern]) -> Cow<'q, str> {
    let is_ignored = |part: &str| {
        let name = name_of(part);
        ignored.iter().any(|pattern| pattern.matches(&name))
    };
    if ignored.is_empty() { Cow::Borrowed(query) } else { without_parts(query, is_ignored) }
}

fn without_parts(query: &str, is_ignored: impl Fn(&str) -> bool) -> Cow<'_, str> {
    // PERF: most queries lose nothing, and are not copied.
    if query.is_empty() || !query.split('&').any(&is_ignored) {
        return Cow::Borrowed(query);
    }
    let mut kept = String::with_capacity(query.len());
    for part in query.split('&').filter(|part| !is_ignored(part)) {
        if !kept.is_empty() {
            kept.push('&');
        }
        kept.push_str(part);
    }
    Cow::Owned(kept)
}

/// Which query parameters belong to a page's URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRule {
    /// Parameters on which pages do not depend.
    pub ignore: Vec<Pattern>,
    /// The only parameters on which pages depend; `None`: all that are not ignored.
    pub keep: Option<Vec<Pattern>>,
}

impl QueryRule {
    /// The query without the parameters that do not belong to the URL, as [`without`].
    #[must_use]
    pub fn kept<'q>(&self, query: &'q str) -> Cow<'q, str> {
        match &self.keep {
            None => without(query, &self.ignore),
            Some(_) => without_parts(query, |part| !self.is_kept(&name_of(part))),
        }
    }

    /// Whether a parameter belongs to the URL.
    #[must_use]
    pub fn is_kept(&self, name: &[u8]) -> bool {
        let is_listed = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        !is_listed(&self.ignore) && self.keep.as_deref().is_none_or(is_listed)
    }
}

/// The rules by which pages may be stored, each once.
#[derive(Clone, Debug)]
pub struct QueryRules(Vec<QueryRule>);

impl QueryRules {
    /// The usual rule, and those of routes.
    #[must_use]
    pub fn new(usual: QueryRule, further: impl Iterator<Item = QueryRule>) -> Self {
        let mut rules = vec![usual];
        for rule in further {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        Self(rules)
    }

    /// Every form that a query may have in the URL of a stored page.
    #[must_use]
    pub fn forms<'q>(&self, query: &'q str) -> BTreeSet<Cow<'q, str>> {
        self.0.iter().map(|rule| rule.kept(query)).collect()
    }
}

/// The names of the parameters, percent-decoded, with `+` as a space. Empty pieces are skipped.
pub fn names(query: &str) -> impl Iterator<Item = Cow<'_, [u8]>> {
    query.split('&').filter(|part| !part.is_empty()).map(name_of)
}

/// The first value of the parameter `name`, percent-decoded; `None` if it is absent or not UTF-8.
#[must_use]
pub fn value(query: &str, name: &str) -> Option<String> {
    let part = query.split('&').find(|part| *name_of(part) == *name.as_bytes())?;
    let (_, value) = part.split_once('=')?;
    String::from_utf8(decoded(value).into_owned()).ok()
}

/// Whether a parameter shows that the page is specific to one person or one moment: a login code or state, a
/// token, a signed URL, a preview. Such a page gets no default freshness lifetime.
#[must_use]
pub fn has_uncacheable_parameter(query: &str) -> bool {
    // `;` also separates here: a false match costs only a default lifetime, and no listed name is missed.
    query.split(['&', ';']).map(name_of).any(|name| {
        UNCACHEABLE.iter().any(|listed| name.eq_ignore_ascii_case(listed))
            || starts_with_ignore_case(&name, b"x-amz-")
    })
}

/// Whether the path or the query contains a session id: `;jsessionid=…` or `;PHPSESSID=…` in the path, a
/// segment `(S(…))` (ASP.NET), or such a query parameter; in any case, encoded or not.
#[must_use]
pub fn session_id_in(path: &str, query: &str) -> bool {
    path_has_session_id(path) || query.split(['&', ';']).any(|part| is_session_name(&name_of(part)))
}

/// The path with each session id replaced by `-`, for logs.
#[must_use]
pub fn path_without_session_id(path: &str) -> Cow<'_, str> {
    if !path_has_session_id(path) {
        return Cow::Borrowed(path);
    }
    let segments: Vec<_> = path.split('/').map(segment_without_session_id).collect();
    Cow::Owned(segments.join("/"))
}

/// The query without values: `a=&b=`. A piece without `=` may be a value itself and becomes `-`.
#[must_use]
pub fn without_values(query: &str) -> String {
    let mut names = String::new();
    for part in query.split(['&', ';']).filter(|part| !part.is_empty()) {
        if !names.is_empty() {
            names.push('&');
        }
        match part.split_once('=') {
            Some((name, _)) => names.extend([name, "="]),
            None => names.push('-'),
        }
    }
    names
}

/// Whether a link, a path or a query contains a session id, for text that is not a parsed target: the leak
/// guard checks links in pages with it. Case is ignored.
pub fn text_has_session_id(text: &[u8]) -> bool {
    let text: Cow<'_, [u8]> = percent_encoding::percent_decode(text).into();
    has_assignment(&text, SESSION_NAMES_IN_LINKS)
        || text.contains(&b'(') && text.split(|b| b"/?#'\" ".contains(b)).any(is_cookieless_segment)
}

/// Whether a form field of this name carries a session id. `sid` is excluded, because forms use it for other
/// purposes.
pub fn is_session_field(name: &[u8]) -> bool {
    SESSION_NAMES_IN_LINKS.iter().any(|listed| name.eq_ignore_ascii_case(listed))
}

/// Whether one of `names` stands before a `=` in `text`, at the start or after a separator.
fn has_assignment(text: &[u8], names: &[&[u8]]) -> bool {
    // PERF: most links have no `=`, and the others one or two.
    memchr::memchr_iter(b'=', text).any(|end| {
        names.iter().any(|name| {
            let Some(at) = end.checked_sub(name.len()) else { return false };
            let starts = at == 0 || matches!(text[at - 1], b';' | b'?' | b'&' | b'#' | b'/' | b' ');
            starts && text[at..end].eq_ignore_ascii_case(name)
        })
    })
}

fn path_has_session_id(path: &str) -> bool {
    // PERF: most paths have none of these bytes, and are not decoded.
    if !path.bytes().any(|b| matches!(b, b';' | b'(' | b'%')) {
        return false;
    }
    let path: Cow<'_, [u8]> = percent_decode_str(path).into();
    path.split(|&b| b == b'/').any(|segment| {
        let (own, parameters) = divide(segment, b';');
        is_cookieless_segment(own)
            || parameters.is_some_and(|parameters| {
                parameters.split(|&b| b == b';').any(|one| is_session_name(divide(one, b'=').0))
            })
    })
}

fn segment_without_session_id(segment: &str) -> Cow<'_, str> {
    if !path_has_session_id(segment) {
        return Cow::Borrowed(segment);
    }
    // The part before the first parameter is the segment's own name, unless it is the id itself.
    match segment.find(';').or_else(|| find_encoded_semicolon(segment)) {
        Some(end) if !path_has_session_id(&segment[..end]) => {
            Cow::Owned(format!("{};-", &segment[..end]))
        }
        _ => Cow::Borrowed("-"),
    }
}

fn find_encoded_semicolon(segment: &str) -> Option<usize> {
    segment.as_bytes().windows(3).position(|window| window.eq_ignore_ascii_case(b"%3b"))
}

/// Whether a segment is `(S(…))` or `(A(…)S(…)F(…))`: the form in which ASP.NET puts cookies into the path.
fn is_cookieless_segment(segment: &[u8]) -> bool {
    let Some(inner) = segment.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")")) else {
        return false;
    };
    inner.ends_with(b")")
        && [b"s(", b"a(", b"f("].iter().any(|part| starts_with_ignore_case(inner, *part))
}

fn is_session_name(name: &[u8]) -> bool {
    SESSION_NAMES.iter().any(|listed| name.eq_ignore_ascii_case(listed))
}

fn starts_with_ignore_case(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

fn name_of(part: &str) -> Cow<'_, [u8]> {
    decoded(part.split_once('=').map_or(part, |(name, _)| name))
}

fn decoded(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('+') {
        return percent_decode_str(text).into();
    }
    let spaced = text.replace('+', " ");
    Cow::Owned(percent_decode_str(&spaced).collect())
}

const UNCACHEABLE: &[&[u8]] = &[
    // Redirects during login (RFC 6749 §4.1.2).
    b"code",
    b"state",
    // Access granted by the URL itself.
    b"token",
    b"key",
    b"sig",
    b"signature",
    b"hmac",
    b"nonce",
    // WordPress: a form nonce, the link to an unmoderated comment, an editor's preview.
    b"_wpnonce",
    b"moderation-hash",
    b"preview",
    b"preview_nonce",
];

/// Parameters that always carry a session id.
const SESSION_NAMES: &[&[u8]] = &[b"jsessionid", b"phpsessid", b"sid", b"oscsid"];

/// The subset that pages use for nothing else in links and forms.
const SESSION_NAMES_IN_LINKS: &[&[u8]] = &[b"jsessionid", b"phpsessid", b"oscsid"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| Pattern::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_rule_keeps_what_belongs_to_the_url() {
        let patterns = |names: &[&str]| -> Vec<Pattern> {
            names.iter().map(|name| Pattern::parse(name).unwrap()).collect()
        };
        let rule = |ignore: &[&str], keep: Option<&[&str]>| QueryRule {
            ignore: patterns(ignore),
            keep: keep.map(patterns),
        };
        let query = "page=2&utm_source=x&sort=a&page=3";
        for (rule, kept) in [
            (rule(&[], None), query),
            (rule(&["utm_*"], None), "page=2&sort=a&page=3"),
            (rule(&["*"], None), ""),
            (rule(&[], Some(&["page"])), "page=2&page=3"),
            (rule(&[], Some(&["p*", "sort"])), "page=2&sort=a&page=3"),
            (rule(&["page"], Some(&["page", "sort"])), "sort=a"),
            (rule(&[], Some(&[])), ""),
        ] {
            assert_eq!(rule.kept(query), kept, "{rule:?}");
        }
        let rules = QueryRules::new(
            rule(&["utm_*"], None),
            [rule(&[], Some(&[])), rule(&["utm_*"], None)].into_iter(),
        );
        let forms: Vec<_> = rules.forms("a=1&utm_x=2").into_iter().collect();
        assert_eq!(forms, ["", "a=1"]);
    }

    #[test]
    fn ignored_parameters_go_and_the_rest_stays_as_it_was() {
        let ignored = patterns(&["utm_*", "gclid"]);
        for (query, expected) in [
            ("", ""),
            ("a=1", "a=1"),
            ("a=1&utm_source=x", "a=1"),
            ("utm_source=y&a=1", "a=1"),
            ("utm_source=y", ""),
            ("utm_source=y&utm_medium=z&gclid", ""),
            ("gclid=1&b=2&gclid=2&a=1", "b=2&a=1"),
            ("a=%41&gclid=1&a=+&b", "a=%41&a=+&b"),
            ("a&&gclid&b", "a&&b"),
            ("utm%5Fsource=1&a=1", "a=1"),
            ("%75tm_x=1&a=1", "a=1"),
            ("UTM_source=1", "UTM_source=1"),
            ("xutm_source=1", "xutm_source=1"),
            ("a=utm_source=1", "a=utm_source=1"),
            ("utm_x=1;admin=1&a=1", "a=1"),
            ("a=1;utm_source=x", "a=1;utm_source=x"),
            ("gclid=%ZZ&a=%", "a=%"),
        ] {
            assert_eq!(without(query, &ignored), expected, "{query}");
        }
    }

    #[test]
    fn a_query_that_loses_nothing_is_not_copied() {
        assert!(matches!(without("a=1&b=2", &patterns(&["utm_*"])), Cow::Borrowed(_)));
        assert!(matches!(without("a=1", &[]), Cow::Borrowed(_)));
    }

    #[test]
    fn names_and_values_are_decoded() {
        let found: Vec<_> = names("a=1&b%20c&&+d=2&=3").map(Cow::into_owned).collect();
        assert_eq!(found, [b"a".to_vec(), b"b c".to_vec(), b" d".to_vec(), Vec::new()]);
        for (query, expected) in [
            ("id=7", Some("7")),
            ("x=1&id=a%2Fb+c&id=8", Some("a/b c")),
            ("id=", Some("")),
            ("id", None),
            ("ID=7", None),
            ("id=%ff", None),
            ("", None),
        ] {
            assert_eq!(value(query, "id").as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn parameters_of_one_person_or_moment_are_seen() {
        for query in [
            "code=1",
            "state=x",
            "a=1&token=2",
            "key=",
            "sig",
            "signature=1",
            "hmac=1",
            "nonce=1",
            "_wpnonce=1",
            "moderation-hash=1",
            "preview=true",
            "preview_nonce=1",
            "X-Amz-Date=1",
            "x-amz-signature=1",
            "TOKEN=1",
            "%74oken=1",
            "a=1;token=2",
            "X-Amz-=1",
        ] {
            assert!(has_uncacheable_parameter(query), "{query}");
        }
        for query in ["", "a=1", "codec=1", "q=token", "page=2&sort=key", "x-amz=1", "monkey=1"] {
            assert!(!has_uncacheable_parameter(query), "{query}");
        }
    }

    #[test]
    fn session_ids_are_found_in_path_and_query() {
        for (path, query) in [
            ("/a;jsessionid=1", ""),
            ("/a;JSESSIONID=1/b", ""),
            ("/a;x=1;jsessionid=1", ""),
            ("/a%3Bjsessionid=1", ""),
            ("/a;%6Asessionid=1", ""),
            ("/a;PHPSESSID=1", ""),
            ("/a;jsessionid", ""),
            ("/(S(abc123))/page", ""),
            ("/(s(abc123))", ""),
            ("/(A(x)S(y)F(z))/page", ""),
            ("/%28S(abc)%29/page", ""),
            ("/", "PHPSESSID=1"),
            ("/", "a=1&phpsessid=1"),
            ("/", "sid=1"),
            ("/", "SID=1"),
            ("/", "a=1;sid=1"),
            ("/", "%73id=1"),
            ("/", "osCsid=1"),
            ("/", "jsessionid=1"),
        ] {
            assert!(session_id_in(path, query), "{path}?{query}");
        }
        for (path, query) in [
            ("/", ""),
            ("/jsessionid=1", ""),
            ("/a;v=1", ""),
            ("/sid", "a=sid"),
            ("/wiki/S_(film)", ""),
            ("/(S)", ""),
            ("/f(S(x))", ""),
            ("/", "consideration=1&inside=2"),
        ] {
            assert!(!session_id_in(path, query), "{path}?{query}");
        }
    }

    #[test]
    fn logs_show_neither_session_ids_nor_values() {
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("/a;v=1/b", "/a;v=1/b"),
            ("/a;jsessionid=SECRET/b", "/a;-/b"),
            ("/a;v=1;jsessionid=SECRET", "/a;-"),
            ("/a%3bjsessionid=SECRET", "/a;-"),
            ("/(S(SECRET))/b", "/-/b"),
            ("/%28S(SECRET))/b", "/-/b"),
            ("/(S(SECRET));x/b", "/-/b"),
        ] {
            assert_eq!(path_without_session_id(path), expected, "{path}");
        }
        for (query, expected) in [
            ("", ""),
            ("a=SECRET", "a="),
            ("a=SECRET&b=SECRET=SECRET", "a=&b="),
            ("SECRET", "-"),
            ("a=1;SECRET&&", "a=&-"),
        ] {
            assert_eq!(without_values(query), expected, "{query}");
        }
    }

    #[test]
    fn links_with_a_session_id_are_seen() {
        for link in [
            "page;jsessionid=1A",
            "?PHPSESSID=1",
            "a?b=1&phpsessid=2",
            "a?b=1&amp;osCsid=2",
            "/(S(x))/a",
            "0;url='/(S(x))'",
            "0;url=/x;jsessionid=1",
            "%3Bjsessionid=1",
        ] {
            assert!(text_has_session_id(link.as_bytes()), "{link}");
        }
        for link in ["", "/a?b=1", "/help/phpsessid", "/sid=1", "?xphpsessid=1", "/S_(film)"] {
            assert!(!text_has_session_id(link.as_bytes()), "{link}");
        }
    }

    proptest! {
        #[test]
        fn nothing_ignored_is_left_and_nothing_else_lost(query in "[au=&;%+]{0,24}") {
            let ignored = patterns(&["u*"]);
            let kept = without(&query, &ignored);
            prop_assert!(!names(&kept).any(|name| name.starts_with(b"u")));
            let rest = |text: &str| names(text).filter(|n| !n.starts_with(b"u"))
                .map(Cow::into_owned).collect::<Vec<_>>();
            prop_assert_eq!(rest(&kept), rest(&query));
        }

        #[test]
        fn no_text_breaks_it(text in "\\PC{0,40}", path in "[/a;()S%3bB=]{0,24}") {
            let _ = (names(&text).count(), has_uncacheable_parameter(&text), without_values(&text));
            let _ = (session_id_in(&text, &text), text_has_session_id(text.as_bytes()));
            prop_assert!(!session_id_in(&path_without_session_id(&path), ""));
        }
    }
}
