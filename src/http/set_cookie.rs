//! `Set-Cookie` (RFC 6265 §4.1, §5.2): whose cookie a line sets, and whether it takes it away.
//!
//! The cookies of requests are in `cookie.rs`. What takes all of a site's cookies away stands here, too.

use ::http::header::SET_COOKIE;
use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::date;
use super::list::{divide, trim};

/// `clear-site-data` (W3C Clear Site Data §3.1)
pub const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// Whether browsers take a cookie of this name only with `Secure`: by its prefix, in any case (RFC 6265bis
/// §4.1.3). `__Host-` also wants `Path=/` and no `Domain`.
#[must_use]
pub fn needs_secure(name: &str) -> bool {
    let begins = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    begins("__Host-") || begins("__Secure-")
}

/// Whether a response has the browser forget all cookies of the site, or what else a login may lie in.
#[must_use]
pub fn clears_logins(headers: &HeaderMap) -> bool {
    let holds = |line: &[u8], word: &[u8]| {
        line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
    };
    let words: [&[u8]; 3] = [b"*", b"cookies", b"storage"];
    let lines = headers.get_all(&CLEAR_SITE_DATA);
    lines.iter().any(|line| words.iter().any(|word| holds(line.as_bytes(), word)))
}

/// The names of the cookies that a response sets or clears, one for each line.
pub fn names(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    headers.get_all(SET_COOKIE).iter().map(|line| name(line.as_bytes()))
}

/// The same of those that have a name: what has none may be a secret by itself.
pub fn named(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let has_name = |line: &&[u8]| {
        let (name, value) = divide(divide(line, b';').0, b'=');
        value.is_some() && !trim(name).is_empty()
    };
    headers.get_all(SET_COOKIE).iter().map(HeaderValue::as_bytes).filter(has_name).map(name)
}

/// The lines of a response about cookies, each behind the cookie's name.
pub fn lines(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    headers.get_all(SET_COOKIE).iter().map(|line| (name(line.as_bytes()), line.as_bytes()))
}

/// The cookies that a response sets or clears, as names and values. One pair of double quotes around a
/// value is taken off.
pub fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(headers).map(|(name, line)| (name, value(line)))
}

/// The value of the cookie in a line. One pair of double quotes around it is taken off.
pub(super) fn value(line: &[u8]) -> &[u8] {
    let pair = divide(line, b';').0;
    match trim(divide(pair, b'=').1.unwrap_or_default()) {
        [b'"', inner @ .., b'"'] => inner,
        plain => plain,
    }
}

/// The names of the cookies that a response takes away. `now` is in seconds since 1970.
pub fn cleared(headers: &HeaderMap, now: u64) -> impl Iterator<Item = &[u8]> {
    lines(headers).filter(move |(_, line)| clears(line, now)).map(|(name, _)| name)
}

/// Whether a line takes its cookie away: the value is empty, `%20` or `deleted`, as frameworks that
/// log out write it, or the cookie has expired (RFC 6265 §5.3 step 11, `Max-Age` before `Expires`).
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

/// Removes the lines whose cookie's name `unwanted` accepts.
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

/// The name of the cookie in a line. Without `=` it has none, and what stands there is its value
/// (RFC 6265bis §5.6); but clients send that back like a name, and so it is read as one. With an empty
/// name they send back the value alone, and with it the name of another cookie that stands there.
pub(super) fn name(line: &[u8]) -> &[u8] {
    let mut pair = trim(divide(line, b';').0);
    while let [b'=', value @ ..] = pair {
        pair = trim(value);
    }
    trim(divide(pair, b'=').0)
}

/// Whether a `Max-Age` leaves nothing; `None` where it is no number and so ignored (§5.2.2).
fn has_run_out(value: &[u8]) -> Option<bool> {
    let (negative, digits) = match value {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| negative || digits.iter().all(|&b| b == b'0'))
}

/// The moment that a cookie's date names, in seconds since 1970, by the tolerant reading of RFC 6265
/// §5.1.1: the parts may stand in any order and are told apart by their look.
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

/// `8:49:37`, with one or two digits each, and anything that is no digit behind.
fn time_in(part: &[u8]) -> Option<[u64; 3]> {
    let mut fields = part.splitn(3, |&b| b == b':');
    let mut next = || fields.next();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    let exact = |field: &[u8]| (field.len() <= 2).then(|| date::number(field))?;
    Some([exact(hours)?, exact(minutes)?, leading_number(seconds, 1..=2)?])
}

/// The number at the start of `part`, which must have as many digits as `digits` says, and no digit
/// behind.
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
