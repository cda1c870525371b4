//! `Set-Cookie` (RFC 6265 §4.1, §5.2): the cookie that a line sets, and whether the line removes it. Also
//! `Clear-Site-Data`, which removes all cookies of a site.
//!
//! Request cookies are in `cookie.rs`.

use ::http::header::SET_COOKIE;
use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::date;
use super::list::{divide, trim};

/// `clear-site-data` (W3C Clear Site Data §3.1)
pub const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// Whether browsers accept a cookie of this name only with `Secure`, because of its prefix; case is ignored
/// (RFC 6265bis §4.1.3). `__Host-` also requires `Path=/` and no `Domain`.
#[must_use]
pub fn needs_secure(name: &str) -> bool {
    let begins = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    begins("__Host-") || begins("__Secure-")
}

/// Whether a response makes the browser delete all cookies of the site, or other data that may hold a login.
#[must_use]
pub fn clears_logins(headers: &HeaderMap) -> bool {
    let holds = |line: &[u8], word: &[u8]| {
        line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
    };
    let words: [&[u8]; 3] = [b"*", b"cookies", b"storage"];
    let lines = headers.get_all(&CLEAR_SITE_DATA);
    lines.iter().any(|line| words.iter().any(|word| holds(line.as_bytes(), word)))
}

/// The names of the cookies that a response sets or removes, one per line.
pub fn names(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(SET_COOKIE).iter().map(|line| name(line.as_bytes()))
}

/// The same, without lines whose cookie has no name: such a value may be a secret.
pub fn named(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let has_name = |line: &&[u8]| {
        let (name, value) = divide(divide(line, b';').0, b'=');
        value.is_some() && !trim(name).is_empty()
    };
    headers.get_all(SET_COOKIE).iter().map(HeaderValue::as_bytes).filter(has_name).map(name)
}

/// The `Set-Cookie` lines of a response, each with the cookie's name before it.
pub fn lines(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.get_all(SET_COOKIE).iter().map(|line| (name(line.as_bytes()), line.as_bytes()))
}

/// The cookies that a response sets or removes, as names and values. One pair of double quotes around a value
/// is removed.
pub fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(headers).map(|(name, line)| (name, value(line)))
}

/// The value of the cookie in a line. One pair of double quotes around it is removed.
pub(super) fn value(line: &[u8]) -> &[u8] {
    let pair = divide(line, b';').0;
    match trim(divide(pair, b'=').1.unwrap_or_default()) {
        [b'"', inner @ .., b'"'] => inner,
        plain => plain,
    }
}

/// The cookies that a response sets for a stated time, with the seconds of it. `now` is in seconds since 1970.
pub fn lifetimes(headers: &HeaderMap, now: u64) -> impl Iterator<Item = (&[u8], u64)> {
    lines(headers).filter(move |(_, line)| !clears(line, now)).filter_map(move |(name, line)| {
        let (mut max_age, mut expires) = (None, None);
        for attribute in line.split(|&byte| byte == b';').skip(1) {
            let (key, value) = divide(attribute, b'=');
            let (key, value) = (trim(key), trim(value.unwrap_or_default()));
            if key.eq_ignore_ascii_case(b"max-age") {
                max_age =
                    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).or(max_age);
            } else if key.eq_ignore_ascii_case(b"expires") {
                expires = cookie_date(value).or(expires);
            }
        }
        let left = max_age.or_else(|| Some(expires?.saturating_sub(now)))?;
        Some((name, left))
    })
}

/// The names of the cookies that a response removes. `now` is in seconds since 1970.
pub fn cleared(headers: &HeaderMap, now: u64) -> impl Iterator<Item = &[u8]> {
    lines(headers).filter(move |(_, line)| clears(line, now)).map(|(name, _)| name)
}

/// Whether a line removes its cookie: the value is empty, `%20` or `deleted`, as frameworks write it on
/// logout, or the cookie has expired (RFC 6265 §5.3 step 11, `Max-Age` before `Expires`).
#[must_use]
pub fn clears(line: &[u8], now: u64) -> bool {
    let mut parts = line.split(|&b| b == b';');
    let (_, value) = divide(parts.next().unwrap_or_default(), b'=');
    let value = match trim(value.unwrap_or_default()) {
        [b'"', inner @ .., b'"'] => trim(inner),
        plain => plain,
    };
    if value.is_empty() || value == b"%20" || value.eq_ignore_ascii_case(b"deleted") {
        return true;
    }
    let (mut max_age, mut expires) = (None, None);
    for attribute in parts {
        let (name, value) = divide(attribute, b'=');
        let (name, value) = (trim(name), trim(value.unwrap_or_default()));
        // The last valid one of each counts (§5.3 step 3).
        if name.eq_ignore_ascii_case(b"max-age") {
            max_age = has_run_out(value).or(max_age);
        } else if name.eq_ignore_ascii_case(b"expires") {
            expires = cookie_date(value).or(expires);
        }
    }
    max_age.unwrap_or_else(|| expires.is_some_and(|moment| moment <= now))
}

/// Removes the lines for cookies whose name `unwanted` accepts.
pub fn remove_named(headers: &mut HeaderMap, unwanted: impl Fn(&[u8]) -> bool) {
    if !names(headers).any(&unwanted) {
        return;
    }
    let kept: Vec<HeaderValue> = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter(|line| !unwanted(name(line.as_bytes())))
        .cloned()
        .collect();
    headers.remove(SET_COOKIE);
    for line in kept {
        headers.append(SET_COOKIE, line);
    }
}

/// The name of the cookie in a line. A line without `=` has no name, and its text is the value (RFC 6265bis
/// §5.6); clients send that text back where a name would stand, so it is read as the name here. For a line
/// with an empty name clients send the value alone, so the name of another cookie in that value counts.
pub(super) fn name(line: &[u8]) -> &[u8] {
    let mut pair = trim(divide(line, b';').0);
    while let [b'=', value @ ..] = pair {
        pair = trim(value);
    }
    trim(divide(pair, b'=').0)
}

/// Whether a `Max-Age` has run out; `None` if it is not a number and is ignored (§5.2.2).
fn has_run_out(value: &[u8]) -> Option<bool> {
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| negative || digits.iter().all(|&b| b == b'0'))
}

/// Parses a cookie date to seconds since 1970 by the tolerant algorithm of RFC 6265 §5.1.1: the parts may be
/// in any order, and are recognised by their form.
fn cookie_date(text: &[u8]) -> Option<u64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for part in text.split(|&b| is_date_delimiter(b)).filter(|part| !part.is_empty()) {
        if time.is_none()
            && let Some(found) = time_in(part)
        {
            time = Some(found);
        } else if day.is_none()
            && let Some(found) = leading_number(part, 1..=2)
        {
            day = Some(found);
        } else if month.is_none()
            && let Some(found) = part.get(..3).and_then(date::month)
        {
            month = Some(found);
        } else if year.is_none()
            && let Some(found) = leading_number(part, 2..=4)
        {
            year = Some(found);
        }
    }
    let year = match year? {
        short @ 70..=99 => 1900 + short,
        short @ 0..=69 => 2000 + short,
        full => full,
    };
    date::seconds(year, month?, day?, time?)
}

fn is_date_delimiter(byte: u8) -> bool {
    matches!(byte, 0x09 | 0x20..=0x2f | 0x3b..=0x40 | 0x5b..=0x60 | 0x7b..=0x7e)
}

/// Parses `8:49:37`, with one or two digits each, followed by the end or a non-digit.
fn time_in(part: &[u8]) -> Option<[u64; 3]> {
    let mut fields = part.splitn(3, |&b| b == b':');
    let mut next = || fields.next();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    let exact = |field: &[u8]| (field.len() <= 2).then(|| date::number(field))?;
    Some([exact(hours)?, exact(minutes)?, leading_number(seconds, 1..=2)?])
}

/// The number at the start of `part`, with as many digits as `digits` allows and no digit after them.
fn leading_number(part: &[u8], digits: std::ops::RangeInclusive<usize>) -> Option<u64> {
    let length = part.iter().take_while(|b| b.is_ascii_digit()).count();
    digits.contains(&length).then(|| date::number(&part[..length]))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_says_that_a_cookie_is_secure() {
        for name in ["__Host-login", "__host-login", "__Secure-id", "__SECURE-"] {
            assert!(needs_secure(name), "{name}");
        }
        for name in ["login", "__Host", "_Host-login", "x__Host-login", "__Hüst-login"] {
            assert!(!needs_secure(name), "{name}");
        }
    }

    /// 2026-11-21 12:00:00
    const NOW: u64 = 1_795_262_400;

    fn response(lines: &[&str]) -> HeaderMap {
        lines.iter().map(|line| (SET_COOKIE, HeaderValue::from_str(line).unwrap())).collect()
    }

    #[test]
    fn names_are_read() {
        for (line, expected) in [
            ("login=1; Path=/", "login"),
            (" login = 1", "login"),
            ("login=", "login"),
            ("login", "login"),
            ("login; Path=/", "login"),
            ("=1", "1"),
            ("=login=1; Path=/", "login"),
            (" = =login=1", "login"),
            ("=", ""),
            ("", ""),
            ("a=b=c", "a"),
            ("Login=1", "Login"),
        ] {
            let headers = response(&[line]);
            assert_eq!(names(&headers).collect::<Vec<_>>(), [expected.as_bytes()], "{line}");
        }
        assert_eq!(names(&HeaderMap::new()).count(), 0);
    }

    #[test]
    fn a_cookie_is_cleared_in_many_ways() {
        for line in [
            "login=",
            "login",
            "login=; Path=/",
            "login=\"\"",
            "login=\" \"",
            "login=%20",
            "login=deleted",
            "login=DELETED; Max-Age=100",
            "login=x; Max-Age=0",
            "login=x; max-age=-1",
            "login=x; Max-Age=00",
            "login=x; Max-Age=0; Expires=Fri, 31 Dec 9999 23:59:59 GMT",
            "login=x; Max-Age=9; Max-Age=0",
            "login=x; Max-Age=0; Max-Age=garbage",
            "login=x; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "login=x; expires=Thu, 01-Jan-1970 00:00:01 GMT",
            "login=x; Expires=Thu, 01-Jan-70 00:00:01 GMT",
            "login=x; Expires=Thu Jan  1 00:00:00 1970",
            "login=x; Expires=Sat, 21 Nov 2026 12:00:00 GMT",
            "login=x; Max-Age=garbage; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            assert!(clears(line.as_bytes(), NOW), "{line}");
        }
    }

    #[test]
    fn a_cookie_that_stays_is_not_cleared() {
        for line in [
            "login=x",
            "login=0",
            "login=x; Path=/; HttpOnly",
            "login=x; Max-Age=1",
            "login=x; Max-Age=",
            "login=x; Max-Age=1.5",
            "login=x; Max-Age=-",
            "login=deleted1",
            "login=x; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "login=x; Max-Age=0; Max-Age=9",
            "login=x; Expires=Sat, 21 Nov 2026 12:00:01 GMT",
            "login=x; Expires=Saturday, 21-Nov-69 12:00:01 GMT",
            "login=x; Expires=garbage",
            "login=x; Expires=0",
            "login=x; Expires=",
            "login=x; Expires=Thu, 32 Jan 1970 00:00:00 GMT",
        ] {
            assert!(!clears(line.as_bytes(), NOW), "{line}");
        }
    }

    #[test]
    fn only_cleared_cookies_are_named() {
        let headers = response(&["a=1", "b=", "c=x; Max-Age=0", "d=2"]);
        assert_eq!(cleared(&headers, NOW).collect::<Vec<_>>(), [b"b", b"c"]);
    }

    #[test]
    fn the_stated_time_of_a_cookie_is_known() {
        let moment = date::format(NOW + 20);
        let expires = format!("c=1; Expires={}", moment.to_str().unwrap());
        let lines = [
            "a=1; Max-Age=10",
            "b=1",
            &expires,
            "d=; Max-Age=5",
            "e=1; Max-Age=0",
            "f=1; max-age=x",
        ];
        let headers = response(&lines);
        let found: Vec<_> = lifetimes(&headers, NOW).collect();
        assert_eq!(found, [(&b"a"[..], 10), (b"c", 20)]);
    }

    #[test]
    fn named_lines_go_and_the_others_keep_their_order() {
        for (lines, expected) in [
            (&["a=1", "login=2", "b=3"][..], &["a=1", "b=3"][..]),
            (&["login=1", "login=2"], &[]),
            (&["a=1", "b=2"], &["a=1", "b=2"]),
            (&[], &[]),
        ] {
            let mut headers = response(lines);
            remove_named(&mut headers, |name| name == b"login");
            let left: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
            assert_eq!(left, expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(line in proptest::collection::vec(any::<u8>(), 0..64), now: u64) {
            let _ = (clears(&line, now), name(&line), cookie_date(&line));
        }

        #[test]
        fn dates_of_http_are_dates_of_cookies(moment in 0_u64..253_402_300_799) {
            prop_assert_eq!(cookie_date(date::format(moment).as_bytes()), Some(moment));
        }

        #[test]
        fn parts_that_look_like_dates_break_nothing(text in "[0-9:a-zJan ;-]{0,40}") {
            let _ = cookie_date(text.as_bytes());
        }
    }
}
