//! HTTP dates (RFC 9110 §5.6.7), to and from seconds since 1970.
//!
//! Cookie dates, which are less strict, are parsed in `set_cookie.rs`. The current time is always an
//! argument.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use ::http::HeaderValue;

/// The last second of the year 9999; later times cannot be written as an HTTP date.
const LAST_SECOND: u64 = 253_402_300_799;

/// Parses a date to seconds since 1970; dates before 1970 become 0. Exactly the three forms of RFC 9110
/// §5.6.7 are accepted; names of days, months and the zone may be in any case. `now` determines the century
/// of a two-digit year.
#[must_use]
pub fn parse(text: &[u8], now: u64) -> Option<u64> {
    let comma = text.iter().position(|&b| b == b',');
    match comma {
        Some(3) => imf_fixdate(text),
        Some(at) => rfc850_date(&text[..at], &text[at + 1..], now),
        None => asctime_date(text),
    }
}

/// Formats `seconds` since 1970 as an IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
#[must_use]
pub fn format(seconds: u64) -> HeaderValue {
    let moment = UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND));
    HeaderValue::try_from(httpdate::fmt_http_date(moment)).expect("an HTTP date is visible ASCII")
}

/// Appends `seconds` since 1970 as an IMF-fixdate. PERF: a thread formats each second once.
pub fn put(buffer: &mut Vec<u8>, seconds: u64) {
    thread_local!(static LAST: RefCell<(u64, HeaderValue)> = RefCell::new((0, format(0))));
    LAST.with_borrow_mut(|last| {
        if last.0 != seconds {
            *last = (seconds, format(seconds));
        }
        buffer.extend_from_slice(last.1.as_bytes());
    });
}

/// The seconds since 1970 of a date and time in the Gregorian calendar; `None` if there is no such day or
/// time. A leap second counts as the second before it.
pub(crate) fn seconds(year: u64, month: u64, day: u64, [h, m, s]: [u64; 3]) -> Option<u64> {
    if !(1..=days_in(year, month)?).contains(&day) || h > 23 || m > 59 || s > 60 {
        return None;
    }
    let Some(years) = year.checked_sub(1970) else {
        return Some(0);
    };
    // Leap days between 1970 and the start of `year`: those of all earlier years, minus the 477 before 1970.
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400 - 477;
    let months = (1..month).map(|month| days_in(year, month).unwrap_or(0)).sum::<u64>();
    let days = years * 365 + leap_days + months + day - 1;
    Some(days * 86_400 + h * 3_600 + m * 60 + s.min(59))
}

/// The number, 1 to 12, of the month whose first three letters are `name`, in any case.
pub(crate) fn month(name: &[u8]) -> Option<u64> {
    MONTHS.iter().zip(1..).find(|(month, _)| name.eq_ignore_ascii_case(month)).map(|(_, at)| at)
}

/// The number in `text`, which must be one to four digits.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    ((1..=4).contains(&text.len()) && text.iter().all(u8::is_ascii_digit))
        .then(|| text.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Parses `08:49:37`.
fn time(text: &[u8]) -> Option<[u64; 3]> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = *text else {
        return None;
    };
    Some([number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?])
}

/// Parses `Sun, 06 Nov 1994 08:49:37 GMT`.
fn imf_fixdate(text: &[u8]) -> Option<u64> {
    let fits = text.len() == 29 && spaces(text, &[4, 7, 11, 16, 25]);
    if !fits || !is_day(&text[..3]) || !text[26..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    seconds(
        number(&text[12..16])?,
        month(&text[8..11])?,
        number(&text[5..7])?,
        time(&text[17..25])?,
    )
}

/// Parses `Sunday, 06-Nov-94 08:49:37 GMT`, split at its comma. A date more than 50 years ahead counts as the
/// most recent past year with the same digits.
fn rfc850_date(day_name: &[u8], text: &[u8], now: u64) -> Option<u64> {
    let dashes = |text: &[u8]| text[3] == b'-' && text[7] == b'-';
    let fits = text.len() == 23 && spaces(text, &[0, 10, 19]) && dashes(text);
    if !fits || !is_long_day(day_name) || !text[20..].eq_ignore_ascii_case(b"GMT") {
        return None;
    }
    let this_year = year_of(now);
    let year = this_year - this_year % 100 + number(&text[8..10])?;
    let year = match year {
        _ if year > this_year + 50 => year - 100,
        // In 2099, 05 means 2105.
        _ if year + 50 <= this_year => year + 100,
        _ => year,
    };
    seconds(year, month(&text[4..7])?, number(&text[1..3])?, time(&text[11..19])?)
}

/// Parses `Sun Nov  6 08:49:37 1994`.
fn asctime_date(text: &[u8]) -> Option<u64> {
    let fits = text.len() == 24 && spaces(text, &[3, 7, 10, 19]);
    if !fits || !is_day(&text[..3]) {
        return None;
    }
    let day = match &text[8..10] {
        [b' ', digit] => number(&[*digit]),
        digits => number(digits),
    };
    seconds(number(&text[20..])?, month(&text[4..7])?, day?, time(&text[11..19])?)
}

fn spaces(text: &[u8], places: &[usize]) -> bool {
    places.iter().all(|&at| text[at] == b' ')
}

fn is_day(name: &[u8]) -> bool {
    DAYS.iter().any(|day| name.eq_ignore_ascii_case(&day[..3]))
}

fn is_long_day(name: &[u8]) -> bool {
    DAYS.iter().any(|day| name.eq_ignore_ascii_case(day))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> Option<u64> {
    match month {
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(if is_leap(year) { 29 } else { 28 }),
        1..=12 => Some(31),
        _ => None,
    }
}

/// The year of a moment. The mean length of a year makes this at most a day off, which does not matter for
/// the 50-year rule.
fn year_of(moment: u64) -> u64 {
    1970 + moment.min(LAST_SECOND) / 31_556_952
}

const DAYS: [&[u8]; 7] =
    [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21 12:00:00
    const NOW: u64 = 1_795_262_400;

    #[test]
    fn the_three_forms_are_read() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("sun, 06 nov 1994 08:49:37 gmt", 784_111_777),
            ("SUN, 06 NOV 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("sunday, 06-NOV-94 08:49:37 gmt", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Wed Nov 16 08:49:37 1994", 784_975_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Mon, 01 Jan 1900 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_799),
            ("Fri, 31 Dec 9999 23:59:59 GMT", LAST_SECOND),
        ] {
            assert_eq!(parse(text.as_bytes(), NOW), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_two_digit_year_is_at_most_fifty_years_ahead() {
        for (text, expected) in [
            ("Saturday, 21-Nov-26 12:00:00 GMT", "Sat, 21 Nov 2026 12:00:00 GMT"),
            ("Friday, 01-Jan-70 00:00:00 GMT", "Wed, 01 Jan 2070 00:00:00 GMT"),
            ("Friday, 01-Jan-76 00:00:00 GMT", "Wed, 01 Jan 2076 00:00:00 GMT"),
            ("Friday, 01-Jan-77 00:00:00 GMT", "Sat, 01 Jan 1977 00:00:00 GMT"),
            ("Friday, 01-Jan-99 00:00:00 GMT", "Fri, 01 Jan 1999 00:00:00 GMT"),
        ] {
            let moment = parse(text.as_bytes(), NOW).unwrap();
            assert_eq!(format(moment), expected, "{text}");
        }
        let late = parse(b"Friday, 31-Dec-90 00:00:00 GMT", NOW).unwrap();
        assert_eq!(
            parse(b"Friday, 01-Jan-05 00:00:00 GMT", late + 109 * 31_556_952),
            Some(4_260_211_200)
        );
    }

    #[test]
    fn other_forms_are_no_dates() {
        for text in [
            "",
            "0",
            "-1",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            " Sun, 06 Nov 1994 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "06 Nov 1994 08:49:37 GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06 Nov 94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 31 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 2023 00:00:00 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Xxx, 06 Nov 1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov   08:49:37 1994",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(text.as_bytes(), NOW), None, "{text:?}");
        }
    }

    #[test]
    fn late_moments_are_formatted_as_the_last() {
        assert_eq!(format(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(format(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    proptest! {
        #[test]
        fn a_formatted_date_reads_back(moment in 0..=LAST_SECOND) {
            prop_assert_eq!(parse(format(moment).as_bytes(), NOW), Some(moment));
        }

        #[test]
        fn any_bytes_are_read(text in proptest::collection::vec(any::<u8>(), 0..32), now: u64) {
            let _ = parse(&text, now);
        }

        #[test]
        fn near_misses_break_nothing(
            at in 0_usize..30, byte: u8, form in 0_usize..3, now: u64,
        ) {
            let forms = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
            let mut text = forms[form].as_bytes().to_vec();
            let at = at % text.len();
            text[at] = byte;
            let _ = parse(&text, now);
        }
    }
}
