//! What a response leaves of the cookies with which it was asked for: those of the next request of whoever is
//! given it (RFC 6265 §5.3, §5.4).

use ::http::header::COOKIE;
use ::http::{HeaderMap, HeaderValue};

use super::cookie::rebuild;
use super::list::{divide, trim};
use super::set_cookie::{clears, clears_logins, lines};

/// What a response does to its visitor's cookies.
#[derive(Clone, Default)]
pub struct Aftermath {
    /// Whether all that he came with are gone.
    clears_all: bool,
    changed: Vec<Changed>,
}

/// A cookie that is set, or taken away.
#[derive(Clone)]
struct Changed {
    name: Vec<u8>,
    /// As it is sent, and the path under which it is; `None`: it is gone.
    kept: Option<(Vec<u8>, Vec<u8>)>,
}

impl Aftermath {
    /// What a response to a request for `path` does. `now` is in seconds since 1970.
    #[must_use]
    pub fn of(headers: &HeaderMap, path: &str, now: u64) -> Self {
        let mut changed: Vec<Changed> = Vec::new();
        for (name, line) in lines(headers) {
            let kept = (!clears(line, now)).then(|| (pair(line), path_of(line, path)));
            // Under another path it is another cookie; but what is gone is gone everywhere, which is the safe
            // side: on what path the one was set that came is not known.
            changed.retain(|before| {
                let is_beside = match (&before.kept, &kept) {
                    (Some((_, path)), Some((_, other))) => path != other,
                    _ => false,
                };
                before.name != name || is_beside
            });
            changed.push(Changed { name: name.to_vec(), kept });
        }
        Self { clears_all: clears_logins(headers), changed }
    }

    /// Makes the cookies of a request to the same site for `path`, with which he came, those that he has now.
    pub fn apply(&self, headers: &mut HeaderMap, path: &str) {
        if !self.clears_all && self.changed.is_empty() {
            return;
        }
        let stays =
            |name: &[u8]| !self.clears_all && self.changed.iter().all(|other| other.name != name);
        let came = rebuild(headers, stays);
        let set = self.changed.iter().filter_map(|changed| changed.kept.as_ref());
        let sent = set.filter(|(_, under)| is_under(path.as_bytes(), under));
        let pairs: Vec<&[u8]> = came
            .iter()
            .map(HeaderValue::as_bytes)
            .chain(sent.map(|(pair, _)| pair.as_slice()))
            .collect();
        headers.remove(COOKIE);
        // Pieces of valid values joined by visible ASCII are a valid value.
        if !pairs.is_empty()
            && let Ok(line) = HeaderValue::from_bytes(&pairs.join(&b"; "[..]))
        {
            headers.insert(COOKIE, line);
        }
    }
}

/// SECURITY: nothing of the cookies is printed.
impl std::fmt::Debug for Aftermath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aftermath").finish_non_exhaustive()
    }
}

/// The cookie in a line as it is sent back.
fn pair(line: &[u8]) -> Vec<u8> {
    let mut pair = trim(divide(line, b';').0);
    // One without a name is sent as its value alone.
    while let [b'=', value @ ..] = pair {
        pair = trim(value);
    }
    match divide(pair, b'=') {
        (name, Some(value)) => [trim(name), b"=", trim(value)].concat(),
        (value, None) => value.to_vec(),
    }
}

/// The path of a cookie that is set in an answer to a request for `asked` (§5.2.4, §5.1.4): the last that it
/// names, or the folder of that.
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
    use crate::http::set_cookie::CLEAR_SITE_DATA;

    /// 2026-11-21 12:00:00
    const NOW: u64 = 1_795_262_400;

    /// The cookies of a request for `path` behind an answer with these lines to a request for `/shop/pay`.
    fn after(came: &str, set: &[&str], path: &str) -> String {
        let mut request = HeaderMap::new();
        if !came.is_empty() {
            request.insert(COOKIE, came.parse().unwrap());
        }
        let answer: HeaderMap =
            set.iter().map(|line| (SET_COOKIE, HeaderValue::from_str(line).unwrap())).collect();
        Aftermath::of(&answer, "/shop/pay", NOW).apply(&mut request, path);
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
            ("a=1", &["=x; Path=/"], "a=1; x"),
        ] {
            assert_eq!(after(came, set, "/shop/part"), expected, "{came} {set:?}");
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
            // The folder of what was asked for.
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
        Aftermath::of(&answer, "/", NOW).apply(&mut request, "/");
        assert_eq!(request.get(COOKIE).unwrap(), "b=2");
    }

    proptest! {
        #[test]
        fn what_is_taken_away_is_never_sent(came in "[a-c=; ]{0,20}", set in "[a-c=; ]{0,20}") {
            let left = after(&came, &[&set, "a=; Path=/"], "/");
            prop_assert!(!left.split(';').any(|pair| pair.trim().starts_with("a=")), "{}", left);
        }
    }
}
