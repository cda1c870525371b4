//! Applies a response's `Set-Cookie` lines to the cookies of the request: which cookies the client sends with
//! its next request (RFC 6265 §5.3, §5.4).
//!
//! A cookie is identified by its name, domain and path: removing it under one path leaves one of the same
//! name under another path. Of a request cookie only the name is known, and that its path covers the
//! requested path. So a line whose path does not cover the requested path concerns another cookie; any other
//! line of the same name is taken to concern this one.

use std::net::Ipv4Addr;

use ::http::header::COOKIE;
use ::http::{HeaderMap, HeaderValue};

use super::cookie::{cookies, rebuild};
use super::list::{divide, trim};
use super::set_cookie::{clears, clears_logins, lines, value};

/// A `Set-Cookie` line, parsed.
struct SetCookieLine<'h> {
    name: &'h [u8],
    line: &'h [u8],
    /// The `Domain`, in lower case and without a leading dot; if empty, the host alone.
    domain: Vec<u8>,
    path: Vec<u8>,
    /// Whether a cookie with this path is sent with the request that was answered.
    covers: bool,
    is_gone: bool,
}

impl<'h> SetCookieLine<'h> {
    /// Parses the lines of the response to a request for `path`. Of several lines for one cookie, the last
    /// counts. `now` is in seconds since 1970.
    fn all(headers: &'h HeaderMap, path: &str, now: u64) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (name, line) in lines(headers) {
            let (domain, under) = (domain_of(line), path_of(line, path));
            let covers = is_under(path.as_bytes(), &under);
            let is_gone = clears(line, now);
            let next = Self { name, line, domain, path: under, covers, is_gone };
            all.retain(|before| !before.is_same(&next));
            all.push(next);
        }
        all
    }

    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name && self.domain == other.domain && self.path == other.path
    }
}

/// How a response changes a cookie of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieChange<'h> {
    /// None of the cookies with this name remains.
    Gone(&'h [u8]),
    /// The cookie has a new value: name and value.
    Set(&'h [u8], &'h [u8]),
}

/// The cookies that the client has after the response `headers` to a request for `path` with the cookies
/// `came`, as names and values. Only names that `counts` accepts are included. Unchanged cookies come first,
/// then those that the response sets, under any path. One pair of double quotes around a value is removed.
/// `now` is in seconds since 1970.
#[must_use]
pub fn left<'h>(
    came: &'h HeaderMap,
    headers: &'h HeaderMap,
    path: &str,
    counts: impl Fn(&[u8]) -> bool,
    now: u64,
) -> Vec<(&'h [u8], &'h [u8])> {
    let lines = SetCookieLine::all(headers, path, now);
    let is_met = |name: &[u8]| lines.iter().any(|line| line.covers && line.name == name);
    let stay = cookies(came).filter(|(name, _)| counts(name) && !is_met(name));
    let set = lines.iter().filter(|line| !line.is_gone && counts(line.name));
    stay.chain(set.map(|line| (line.name, value(line.line)))).collect()
}

/// What a response changes among the same cookies. A cookie that is set to its old value is unchanged, and so
/// is a removed cookie that was absent.
#[must_use]
pub fn changes<'h>(
    came: &'h HeaderMap,
    headers: &'h HeaderMap,
    path: &str,
    counts: impl Fn(&[u8]) -> bool,
    now: u64,
) -> Vec<CookieChange<'h>> {
    let mut names: Vec<&[u8]> = lines(headers).map(|(name, _)| name).collect();
    names.retain(|name| counts(name));
    if names.is_empty() {
        return Vec::new();
    }
    names.sort_unstable();
    names.dedup();
    let left = left(came, headers, path, &counts, now);
    let of = |all: &[(&'h [u8], &'h [u8])], name: &[u8]| -> Vec<&'h [u8]> {
        all.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value).collect()
    };
    let came: Vec<(&[u8], &[u8])> = cookies(came).collect();
    let mut changed = Vec::new();
    for name in names {
        let (before, behind) = (of(&came, name), of(&left, name));
        if behind.is_empty() && !before.is_empty() {
            changed.push(CookieChange::Gone(name));
        } else if behind != before {
            changed.extend(behind.iter().map(|value| CookieChange::Set(name, value)));
        }
    }
    changed
}

/// The cookies that a response from the host `asked` (without port) sets for a domain: name, value and
/// domain. Host-only cookies are left out. So are cookies for a domain that does not include the host, or for
/// a single-label domain such as `com`: browsers refuse both (§5.1.3, §5.3). `now` is in seconds since 1970.
pub fn set_for_domains<'h>(
    headers: &'h HeaderMap,
    asked: &str,
    now: u64,
) -> impl Iterator<Item = (&'h [u8], &'h [u8], String)> {
    let set = lines(headers).filter(move |(_, line)| !clears(line, now));
    set.filter_map(move |(name, line)| {
        let domain = String::from_utf8(domain_of(line)).ok().filter(|domain| !domain.is_empty())?;
        let below = asked.strip_suffix(&domain)?;
        let is_address = || asked.parse::<Ipv4Addr>().is_ok();
        let is_in = below.ends_with('.') && domain.contains('.') && !is_address();
        (below.is_empty() || is_in).then(|| (name, value(line), domain))
    })
}

/// The effect of a response on its visitor's cookies, ready to apply to a later request.
#[derive(Clone, Default)]
pub struct SetCookieEffect {
    /// Whether all cookies of the request are removed.
    clears_all: bool,
    /// Names of request cookies that are removed or replaced.
    met: Vec<Vec<u8>>,
    /// The cookies set, in the form in which the client sends them, with their paths; longer paths first
    /// (§5.4).
    set: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SetCookieEffect {
    /// The effect of a response to a request for `path`. `now` is in seconds since 1970.
    #[must_use]
    pub fn of(headers: &HeaderMap, path: &str, now: u64) -> Self {
        let lines = SetCookieLine::all(headers, path, now);
        let met = lines.iter().filter(|line| line.covers).map(|line| line.name.to_vec()).collect();
        let kept = lines.iter().filter(|line| !line.is_gone);
        let mut set: Vec<_> = kept.map(|line| (pair(line.line), line.path.clone())).collect();
        set.sort_by_key(|(_, path)| std::cmp::Reverse(path.len()));
        Self { clears_all: clears_logins(headers), met, set }
    }

    /// Replaces the cookies of a request to the same site for `path` with those that the client has after the
    /// response.
    pub fn apply(&self, headers: &mut HeaderMap, path: &str) {
        if !self.clears_all && self.met.is_empty() && self.set.is_empty() {
            return;
        }
        let stays = |name: &[u8]| !self.clears_all && self.met.iter().all(|other| other != name);
        let came = rebuild(headers, stays);
        let sent = self.set.iter().filter(|(_, under)| is_under(path.as_bytes(), under));
        let pairs: Vec<&[u8]> = came
            .iter()
            .map(HeaderValue::as_bytes)
            .chain(sent.map(|(pair, _)| pair.as_slice()))
            .collect();
        headers.remove(COOKIE);
        // Valid values joined by `; ` are a valid value.
        if !pairs.is_empty()
            && let Ok(line) = HeaderValue::from_bytes(&pairs.join(&b"; "[..]))
        {
            headers.insert(COOKIE, line);
        }
    }
}

/// SECURITY: cookies are secrets, so none of them is printed.
impl std::fmt::Debug for SetCookieEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aftermath").finish_non_exhaustive()
    }
}

/// The cookie of a line, in the form in which the client sends it.
fn pair(line: &[u8]) -> Vec<u8> {
    let mut pair = trim(divide(line, b';').0);
    // Clients send a cookie without a name as its value alone.
    while let [b'=', value @ ..] = pair {
        pair = trim(value);
    }
    match divide(pair, b'=') {
        (name, Some(value)) => [trim(name), b"=", trim(value)].concat(),
        (value, None) => value.to_vec(),
    }
}

/// The domain of a line (§5.2.3): the last `Domain` counts.
fn domain_of(line: &[u8]) -> Vec<u8> {
    let attributes = line.split(|&byte| byte == b';').skip(1).map(|part| divide(part, b'='));
    let domains = attributes.filter(|(name, _)| trim(name).eq_ignore_ascii_case(b"domain"));
    let named = domains.last().map(|(_, value)| trim(value.unwrap_or_default()));
    let named = named.unwrap_or_default();
    named.strip_prefix(b".").unwrap_or(named).to_ascii_lowercase()
}

/// The path of a cookie set in a response to a request for `asked` (§5.2.4, §5.1.4): the last `Path`, or by
/// default the directory of `asked`.
fn path_of(line: &[u8], asked: &str) -> Vec<u8> {
    let attributes = line.split(|&byte| byte == b';').skip(1).map(|part| divide(part, b'='));
    let paths = attributes.filter(|(name, _)| trim(name).eq_ignore_ascii_case(b"path"));
    let named = paths.last().map(|(_, value)| trim(value.unwrap_or_default()));
    if let Some(named) = named.filter(|named| named.starts_with(b"/")) {
        return named.to_vec();
    }
    let folder = asked.rfind('/').filter(|at| *at > 0).and_then(|at| asked.get(..at));
    folder.filter(|folder| folder.starts_with('/')).unwrap_or("/").into()
}

/// Whether a cookie with this path is sent with a request for `asked` (§5.1.4).
fn is_under(asked: &[u8], path: &[u8]) -> bool {
    asked
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || path.ends_with(b"/") || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use ::http::header::SET_COOKIE;
    use proptest::prelude::*;

    use super::*;
    use crate::set_cookie::CLEAR_SITE_DATA;

    /// 2026-11-21 12:00:00
    const NOW: u64 = 1_795_262_400;

    /// The cookies of a request for `path` after a response with these lines to a request for `/shop/pay`.
    fn after(came: &str, set: &[&str], path: &str) -> String {
        let mut request = HeaderMap::new();
        if !came.is_empty() {
            request.insert(COOKIE, came.parse().unwrap());
        }
        let answer: HeaderMap =
            set.iter().map(|line| (SET_COOKIE, HeaderValue::from_str(line).unwrap())).collect();
        SetCookieEffect::of(&answer, "/shop/pay", NOW).apply(&mut request, path);
        let line = request.get(COOKIE).map(|line| line.to_str().unwrap().to_owned());
        line.unwrap_or_default()
    }

    #[test]
    fn cookies_are_those_that_the_answer_leaves() {
        for (came, set, expected) in [
            ("a=1; b=2", &[][..], "a=1; b=2"),
            ("a=1; b=2", &["a=3; Path=/"], "b=2; a=3"),
            ("a=1; b=2; a=4", &["a=; Path=/"], "b=2"),
            ("a=1", &["a=x; Max-Age=0"], ""),
            ("a=1", &["a=deleted; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], ""),
            ("", &["a=\"x y\"; Path=/; HttpOnly"], "a=\"x y\""),
            ("a=1", &["a=; Path=/", "a=2; Path=/"], "a=2"),
            ("a=1", &["a=2; Path=/", "a=; Path=/"], ""),
            ("a=1", &["a=2; Path=/", "a=3; path=/"], "a=3"),
            ("a=1", &["a=2; Path=/shop", "a=3; Path=/"], "a=2; a=3"),
            ("a=1", &["a=3; Path=/", "a=2; Path=/shop"], "a=2; a=3"),
            // Cookies with different paths are different cookies, in whatever order the lines come.
            ("a=1", &["a=; Path=/old", "a=2; Path=/"], "a=2"),
            ("a=1", &["a=2; Path=/", "a=; Path=/old"], "a=2"),
            ("a=1", &["a=2; Path=/", "a=; Path=/shop"], "a=2"),
            ("a=1", &["a=2; Path=/", "a=; Path=/; Domain=.Shop.test"], "a=2"),
            ("a=1", &["a=2; Path=/; Domain=shop.test", "a=; Path=/; Domain=.Shop.test"], ""),
            ("a=1", &["a=; Path=/old"], "a=1"),
            ("a=1", &["a=2; Path=/shop/part"], "a=1; a=2"),
            ("a=1", &["a=; Path=/shop"], ""),
            ("a=1", &["=x; Path=/"], "a=1; x"),
        ] {
            assert_eq!(after(came, set, "/shop/part"), expected, "{came} {set:?}");
        }
    }

    /// The cookies left of `a=1` and `b=2` after a response to a request for `/shop/pay`, and what has
    /// changed.
    fn left_of(set: &[&str]) -> (String, Vec<String>) {
        let came = HeaderMap::from_iter([(COOKIE, HeaderValue::from_static("a=1; b=2"))]);
        let answer: HeaderMap =
            set.iter().map(|line| (SET_COOKIE, HeaderValue::from_str(line).unwrap())).collect();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let has = left(&came, &answer, "/shop/pay", |name| name == b"a", NOW);
        let has: Vec<_> = has.iter().map(|(_, value)| text(value)).collect();
        let changed = changes(&came, &answer, "/shop/pay", |name| name == b"a", NOW);
        let changed = changed.iter().map(|change| match change {
            CookieChange::Gone(_) => "-".to_owned(),
            CookieChange::Set(_, value) => text(value),
        });
        (has.join(" "), changed.collect())
    }

    #[test]
    fn cookie_changes_depend_on_the_path() {
        for (set, left, changed) in [
            (&[][..], "1", &[][..]),
            (&["b=3; Path=/"], "1", &[]),
            (&["a=1; Path=/"], "1", &[]),
            (&["a=\"1\"; Path=/"], "1", &[]),
            (&["a=3; Path=/"], "3", &["3"]),
            (&["a=; Path=/"], "", &["-"]),
            (&["a=deleted"], "", &["-"]),
            (&["a=; Path=/old"], "1", &[]),
            (&["a=; Path=/old", "a=3; Path=/"], "3", &["3"]),
            (&["a=3; Path=/", "a=; Path=/old"], "3", &["3"]),
            (&["a=1; Path=/", "a=; Path=/shop"], "1", &[]),
            (&["a=3; Path=/", "a=; Path=/"], "", &["-"]),
            (&["a=; Path=/", "a=3; Path=/"], "3", &["3"]),
            (&["a=; Path=/", "a=3; Path=/old"], "3", &["3"]),
            // A client may send both, so both count.
            (&["a=3; Path=/", "a=4; Path=/shop"], "3 4", &["3", "4"]),
            (&["a=3; Path=/shop/other"], "1 3", &["1", "3"]),
        ] {
            let (has, is_changed) = left_of(set);
            assert_eq!(
                (has.as_str(), is_changed),
                (left, changed.iter().map(|c| (*c).to_owned()).collect()),
                "{set:?}"
            );
        }
    }

    #[test]
    fn a_cookie_is_sent_under_its_path() {
        for (set, path, is_sent) in [
            ("a=1; Path=/", "/", true),
            ("a=1; Path=/part", "/part", true),
            ("a=1; Path=/part", "/part/1", true),
            ("a=1; Path=/part", "/parts", false),
            ("a=1; Path=/part/", "/part", false),
            ("a=1; Path=/part/", "/part/1", true),
            // The default path: the directory of the requested path.
            ("a=1", "/shop/part", true),
            ("a=1; Path=", "/shop/part", true),
            ("a=1; Path=shop", "/part", false),
            ("a=1; Path=/x; Path=/", "/part", true),
        ] {
            assert_eq!(after("", &[set], path) == "a=1", is_sent, "{set} {path}");
        }
        assert_eq!(path_of(b"a=1", "/pay"), b"/");
    }

    #[test]
    fn all_of_a_site_s_cookies_may_go() {
        let mut answer = HeaderMap::new();
        answer.insert(CLEAR_SITE_DATA, HeaderValue::from_static("\"cookies\""));
        answer.insert(SET_COOKIE, HeaderValue::from_static("b=2; Path=/"));
        let mut request = HeaderMap::new();
        request.insert(COOKIE, HeaderValue::from_static("a=1"));
        SetCookieEffect::of(&answer, "/", NOW).apply(&mut request, "/");
        assert_eq!(request.get(COOKIE).unwrap(), "b=2");
    }

    proptest! {
        #[test]
        fn a_removed_cookie_is_never_sent(came in "[a-c=; ]{0,20}", set in "[a-c=; ]{0,20}") {
            let left = after(&came, &[&set, "a=; Path=/"], "/");
            prop_assert!(!left.split(';').any(|pair| pair.trim().starts_with("a=")), "{}", left);
        }
    }
}
