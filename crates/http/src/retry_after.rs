//! `Retry-After`: when a server that refuses a request wants it again.

use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::RETRY_AFTER;

use super::date;

/// The time that a `Retry-After` requests from `now` on, in Unix time: it is a number of seconds,
/// or a date (RFC 9110 §10.2.3). A past date requests nothing.
#[must_use]
pub fn wanted(headers: &HeaderMap, now: u64) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.as_bytes();
    let seconds = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        // A number that does not fit counts as for ever: it is capped later.
        std::str::from_utf8(value).ok()?.parse().unwrap_or(u64::MAX)
    } else {
        date::parse(value, now)?.saturating_sub(now)
    };
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_asks_for_time_in_seconds_or_until_a_date() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        const NOW: u64 = 784_111_777;
        for (value, asked) in [
            ("0", Some(0)),
            ("120", Some(120)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:51:37 GMT", Some(120)),
            ("Sunday, 06-Nov-94 08:51:37 GMT", Some(120)),
            ("Sun Nov  6 08:51:37 1994", Some(120)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("+5", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:51:37", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(wanted(&headers, NOW), asked.map(Duration::from_secs), "{value}");
        }
        assert_eq!(wanted(&HeaderMap::new(), NOW), None);
    }
}
