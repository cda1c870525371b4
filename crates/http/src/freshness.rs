//! Freshness (RFC 9111 §4.2): the freshness lifetime that the origin gives a response, and the age of the
//! response on arrival.
//!
//! Lifetimes from the configuration, whether to use a heuristic one, and the handling of stale responses are
//! decided elsewhere.

use anteroom_fault::fault;

use ::http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use ::http::{HeaderMap, StatusCode};

use super::cache_control::{CacheControl, DELTA_MAX};
use super::date;
use super::list::{divide, only_line, saturating_digits, trim};

/// The source of an explicit lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshnessSource {
    /// `s-maxage`
    SMaxAge,
    /// `max-age`
    MaxAge,
    /// `Expires` minus `Date`
    Expires,
}

/// An explicit freshness lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Seconds of freshness, counted from the response's origination: its age must be subtracted.
    pub seconds: u64,
    /// The field or directive that set it.
    pub source: FreshnessSource,
}

/// The lifetime of a response in a shared cache, in the order of RFC 9111 §4.2.1: `s-maxage`, `max-age`,
/// `Expires` minus `Date`. `None` if the origin set none. `now` is the time of receipt, in seconds since
/// 1970.
#[must_use]
pub fn lifetime(cc: &CacheControl, headers: &HeaderMap, now: u64) -> Option<Lifetime> {
    if let Some(seconds) = cc.s_maxage {
        return Some(Lifetime { seconds, source: FreshnessSource::SMaxAge });
    }
    if let Some(seconds) = cc.max_age {
        return Some(Lifetime { seconds, source: FreshnessSource::MaxAge });
    }
    let seconds = expires_in(headers, now)?;
    Some(Lifetime { seconds, source: FreshnessSource::Expires })
}

/// `Expires` minus `Date` (§5.3). Several lines and invalid dates, `0` in particular, mean "already expired".
/// Without a valid `Date` the time of receipt is used (RFC 9110 §6.6.1).
fn expires_in(headers: &HeaderMap, now: u64) -> Option<u64> {
    let mut lines = headers.get_all(EXPIRES).iter();
    let (line, second) = (lines.next()?, lines.next());
    let expires = date::parse(line.as_bytes(), now).filter(|_| second.is_none()).unwrap_or(0);
    let lifetime = expires.saturating_sub(date_of(headers, now).unwrap_or(now));
    Some(lifetime.min(DELTA_MAX))
}

/// The heuristic lifetime of a response, in seconds (RFC 9111 §4.2.2): a tenth of the time from
/// `Last-Modified` to `Date`. `None` if the origin set an explicit lifetime, if there is no valid
/// `Last-Modified`, or if §4.2.2 excludes the status. `now` is the time of receipt, and replaces an invalid
/// `Date`.
///
/// The result can amount to years; the caller limits it.
#[must_use]
pub fn heuristic(
    status: StatusCode,
    cc: &CacheControl,
    headers: &HeaderMap,
    now: u64,
) -> Option<u64> {
    if !may_guess(status, cc) || lifetime(cc, headers, now).is_some() {
        return None;
    }
    let changed = date::parse(only_line(headers, &LAST_MODIFIED)?, now)?;
    let made = date_of(headers, now).unwrap_or(now);
    Some((made.saturating_sub(changed) / 10).min(DELTA_MAX))
}

/// Whether a heuristic lifetime is allowed: for the statuses that RFC 9110 §15.1 lists, and for any final
/// status with `public` (RFC 9111 §4.2.2). Excluded are 206, which is only a part, and 304, which concerns
/// another response.
fn may_guess(status: StatusCode, cc: &CacheControl) -> bool {
    match status.as_u16() {
        206 | 304 => false,
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501 => true,
        _ => cc.public && !status.is_informational(),
    }
}

/// The `Date` of a message in seconds since 1970, if it is valid and the only one.
#[must_use]
pub fn date_of(headers: &HeaderMap, now: u64) -> Option<u64> {
    only_line(headers, &DATE).and_then(|text| date::parse(text, now))
}

/// The age of a response on arrival, in seconds: `corrected_initial_age` of RFC 9111 §4.2.3, from `Age`,
/// `Date` and the duration of the request. Both times are in seconds since 1970.
#[must_use]
pub fn initial_age(headers: &HeaderMap, request_time: u64, response_time: u64) -> u64 {
    let apparent = date_of(headers, response_time)
        .map_or(0, |generated| response_time.saturating_sub(generated));
    let delay = response_time.saturating_sub(request_time);
    let said = if fault!("age") { 0 } else { said_age(headers) };
    apparent.max(said.saturating_add(delay)).min(DELTA_MAX)
}

/// The value of `Age` (§5.1). The first member counts, and parameters after its digits are ignored; an
/// invalid number counts as 0.
#[must_use]
pub fn said_age(headers: &HeaderMap) -> u64 {
    let Some(line) = headers.get(AGE) else {
        return 0;
    };
    let first = trim(divide(line.as_bytes(), b',').0);
    saturating_digits(trim(divide(first, b';').0), DELTA_MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ::http::header::CACHE_CONTROL;
    use ::http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    /// 1994-11-06 08:49:37
    const NOW: u64 = 784_111_777;

    fn response(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn found(lines: &[(&str, &str)]) -> Option<(u64, FreshnessSource)> {
        let headers = response(lines);
        let cc = CacheControl::parse(&headers, &CACHE_CONTROL);
        lifetime(&cc, &headers, NOW).map(|found| (found.seconds, found.source))
    }

    #[test]
    fn the_origin_s_word_is_taken_in_order() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let hour = ("expires", "Sun, 06 Nov 1994 09:49:37 GMT");
        let past = ("expires", "Sun, 06 Nov 1994 07:49:37 GMT");
        for (lines, expected) in [
            (&[][..], None),
            (&[date], None),
            (&[("cache-control", "public")], None),
            (
                &[("cache-control", "s-maxage=1, max-age=2"), date, hour],
                Some((1, FreshnessSource::SMaxAge)),
            ),
            (
                &[("cache-control", "s-maxage=9, max-age=0"), date, past],
                Some((9, FreshnessSource::SMaxAge)),
            ),
            (&[("cache-control", "max-age=2"), date, past], Some((2, FreshnessSource::MaxAge))),
            (&[("cache-control", "max-age=0"), date, hour], Some((0, FreshnessSource::MaxAge))),
            (&[("cache-control", "max-age=x"), date, hour], Some((0, FreshnessSource::MaxAge))),
            (&[date, hour], Some((3600, FreshnessSource::Expires))),
            (&[hour], Some((3600, FreshnessSource::Expires))),
            (&[("date", "garbage"), hour], Some((3600, FreshnessSource::Expires))),
            (&[date, date, hour], Some((3600, FreshnessSource::Expires))),
            (
                &[("date", "Sun, 06 Nov 1994 09:19:37 GMT"), hour],
                Some((1800, FreshnessSource::Expires)),
            ),
            (&[date, past], Some((0, FreshnessSource::Expires))),
            (&[date, ("expires", "0")], Some((0, FreshnessSource::Expires))),
            (&[date, ("expires", "-1")], Some((0, FreshnessSource::Expires))),
            (&[date, ("expires", "")], Some((0, FreshnessSource::Expires))),
            (&[date, hour, hour], Some((0, FreshnessSource::Expires))),
            (
                &[date, ("expires", "Fri, 31 Dec 9999 23:59:59 GMT")],
                Some((DELTA_MAX, FreshnessSource::Expires)),
            ),
            (
                &[date, ("expires", "Sunday, 06-Nov-94 09:49:37 GMT")],
                Some((3600, FreshnessSource::Expires)),
            ),
            (
                &[date, ("expires", "Sun Nov  6 09:49:37 1994")],
                Some((3600, FreshnessSource::Expires)),
            ),
        ] {
            assert_eq!(found(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn age_counts_by_its_first_digits() {
        for (lines, expected) in [
            (&[][..], 0),
            (&["7200"], 7200),
            (&["7200", "0"], 7200),
            (&["7200, 0"], 7200),
            (&["0, 7200"], 0),
            (&["7200;a=b"], 7200),
            (&["7200 ; a"], 7200),
            (&["99999999999999999999"], DELTA_MAX),
            (&["-7200"], 0),
            (&["7200.0"], 0),
            (&["abc"], 0),
            (&["7200a"], 0),
            (&[""], 0),
            (&[",7200"], 0),
        ] {
            let lines: Vec<_> = lines.iter().map(|value| ("age", *value)).collect();
            assert_eq!(initial_age(&response(&lines), NOW, NOW), expected, "{lines:?}");
        }
    }

    #[test]
    fn the_age_at_arrival_is_the_larger_of_two_estimates() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        for (lines, requested, received, expected) in [
            (&[][..], NOW, NOW + 3, 3),
            (&[("age", "10")], NOW, NOW + 3, 13),
            (&[date], NOW, NOW + 100, 100),
            (&[date], NOW + 90, NOW + 100, 100),
            (&[date, ("age", "50")], NOW + 90, NOW + 100, 100),
            (&[date, ("age", "500")], NOW + 90, NOW + 100, 510),
            (&[date], NOW - 100, NOW - 100, 0),
            (&[("date", "garbage")], NOW, NOW, 0),
            (&[("age", "5")], NOW, NOW - 10, 5),
            (&[("age", "99999999999")], 0, u64::MAX, DELTA_MAX),
        ] {
            let age = initial_age(&response(lines), requested, received);
            assert_eq!(age, expected, "{lines:?} {requested} {received}");
        }
    }

    #[test]
    fn a_tenth_of_the_time_without_a_change_is_guessed() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let hour = ("last-modified", "Sun, 06 Nov 1994 07:49:37 GMT");
        let later = ("last-modified", "Sun, 06 Nov 1994 08:49:38 GMT");
        for (lines, expected) in [
            (&[][..], None),
            (&[date], None),
            (&[date, hour], Some(360)),
            (&[date, ("last-modified", "Sunday, 06-Nov-94 07:49:37 GMT")], Some(360)),
            (&[date, ("last-modified", "Sun Nov  6 07:49:37 1994")], Some(360)),
            (&[("date", "Sun, 06 Nov 1994 08:19:37 GMT"), hour], Some(180)),
            (&[date, ("last-modified", "Sun, 06 Nov 1994 08:49:28 GMT")], Some(0)),
            (&[date, ("last-modified", "Sun, 06 Nov 1994 08:49:27 GMT")], Some(1)),
            (&[date, ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")], Some(0)),
            (&[date, later], Some(0)),
            (&[date, ("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT")], Some(NOW / 10)),
            (&[date, ("last-modified", "garbage")], None),
            (&[date, ("last-modified", "0")], None),
            (&[date, ("last-modified", "")], None),
            (&[date, hour, hour], None),
            // `now` replaces `Date`.
            (&[hour], Some(360)),
            (&[("date", "garbage"), hour], Some(360)),
            (&[date, date, hour], Some(360)),
            // The origin set an explicit lifetime.
            (&[date, hour, ("cache-control", "max-age=5")], None),
            (&[date, hour, ("cache-control", "max-age=0")], None),
            (&[date, hour, ("cache-control", "s-maxage=x")], None),
            (&[date, hour, ("expires", "0")], None),
            (&[date, hour, ("expires", "Sun, 06 Nov 1994 09:49:37 GMT")], None),
            (&[date, hour, ("cache-control", "public")], Some(360)),
        ] {
            let headers = response(lines);
            let cc = CacheControl::parse(&headers, &CACHE_CONTROL);
            assert_eq!(heuristic(StatusCode::OK, &cc, &headers, NOW), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_lifetime_is_guessed_for_some_statuses_and_for_what_is_public() {
        let headers = response(&[("last-modified", "Sun, 06 Nov 1994 07:49:37 GMT")]);
        let plain = CacheControl::default();
        let public = CacheControl { public: true, ..plain };
        for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(heuristic(status, &plain, &headers, NOW), Some(360), "{status}");
            assert_eq!(heuristic(status, &public, &headers, NOW), Some(360), "{status}");
        }
        for status in [201, 202, 205, 302, 303, 307, 400, 401, 403, 429, 500, 502, 503, 504, 599] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(heuristic(status, &plain, &headers, NOW), None, "{status}");
            assert_eq!(heuristic(status, &public, &headers, NOW), Some(360), "{status}");
        }
        for status in [100, 101, 103, 206, 304] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(heuristic(status, &plain, &headers, NOW), None, "{status}");
            assert_eq!(heuristic(status, &public, &headers, NOW), None, "{status}");
        }
    }

    proptest! {
        #[test]
        fn no_guess_is_longer_than_a_tenth(changed in 0_u64..1 << 40, made in 0_u64..1 << 40, now: u64) {
            let (date, last_modified) = (date::format(made), date::format(changed));
            let headers = response(&[
                ("date", date.to_str().unwrap()),
                ("last-modified", last_modified.to_str().unwrap()),
            ]);
            let guess = heuristic(StatusCode::OK, &CacheControl::default(), &headers, now).unwrap();
            prop_assert!(guess <= DELTA_MAX && guess <= made.saturating_sub(changed) / 10);
        }

        #[test]
        fn no_values_break_it(age in "[ -~]{0,12}", date in "[ -~]{0,30}", a: u64, b: u64) {
            let headers = response(&[("date", &date), ("last-modified", &date)]);
            let _ = heuristic(StatusCode::OK, &CacheControl::default(), &headers, b);
            let headers = response(&[("age", &age), ("date", &date), ("expires", &date)]);
            let _ = initial_age(&headers, a, b);
            prop_assert!(lifetime(&CacheControl::default(), &headers, a).is_some());
        }
    }
}
