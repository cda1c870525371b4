//! Rates as an operator writes them: `100/s`, `10/m burst 20`.

use std::num::NonZeroU32;
use std::time::Duration;

use anteroom_policy::rate_limit::Rate;

/// The units of time, in seconds. The longest is an hour, so that a million requests take less than
/// centuries.
const SPANS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3_600)];
/// The most requests in a unit of time, or at once.
const REQUESTS_MAX: u32 = 1_000_000;

/// Parses requests per second, minute or hour, and the burst.
pub(super) fn parse(text: &str) -> Result<Rate, String> {
    read(text).ok_or_else(|| match meant(text) {
        Some(meant) => format!("\"{meant}\""),
        None => r#"a rate such as "100/s", "10/m" or "10/m burst 20""#.to_owned(),
    })
}

/// The rate that was probably meant by `10r/s`, `10 per minute` or `100/sec`.
fn meant(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase().replace("per", "/");
    let (requests, span) = lower.split_once('/')?;
    let requests = requests.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let span = match span.trim() {
        "s" | "sec" | "second" => "s",
        "m" | "min" | "minute" => "m",
        "h" | "hour" => "h",
        _ => return None,
    };
    let meant = format!("{requests}/{span}");
    read(&meant).map(|_| meant)
}

fn read(text: &str) -> Option<Rate> {
    let (rate, burst) = match text.split_once(" burst ") {
        Some((rate, burst)) => (rate, Some(number(burst)?)),
        None => (text, None),
    };
    let (requests, span) = rate.split_once('/')?;
    let requests = number(requests)?;
    let (_, seconds) = SPANS.iter().find(|(name, _)| *name == span)?;
    Some(Rate { requests, per: Duration::from_secs(*seconds), burst: burst.unwrap_or(requests) })
}

fn number(text: &str) -> Option<NonZeroU32> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number: &NonZeroU32| is_plain && number.get() <= REQUESTS_MAX)
}

/// The text that [`parse`] reads back.
pub(super) fn show(rate: &Rate) -> String {
    let span = SPANS.iter().find(|(_, seconds)| rate.per.as_secs() == *seconds);
    let span = span.map_or("s", |(name, _)| name);
    let burst =
        if rate.burst == rate.requests { String::new() } else { format!(" burst {}", rate.burst) };
    format!("{}/{span}{burst}", rate.requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_reads_back_as_it_was_written() {
        for (text, requests, seconds, burst) in [
            ("100/s", 100, 1, 100),
            ("10/m", 10, 60, 10),
            ("1/h burst 5", 1, 3_600, 5),
            ("1000000/h burst 1000000", 1_000_000, 3_600, 1_000_000),
        ] {
            let rate = parse(text).unwrap();
            assert_eq!((rate.requests.get(), rate.burst.get()), (requests, burst), "{text}");
            assert_eq!(rate.per.as_secs(), seconds, "{text}");
            assert_eq!(parse(&show(&rate)), Ok(rate), "{text}");
        }
    }

    #[test]
    fn rates_in_other_notations_are_understood_for_the_message() {
        for (text, expected) in [
            ("10r/s", Some("10/s")),
            ("10 per minute", Some("10/m")),
            ("100 requests / hour", Some("100/h")),
            ("5/sec", Some("5/s")),
            ("5/d", None),
            ("0r/s", None),
            ("100", None),
        ] {
            assert_eq!(meant(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_rates_are_rejected() {
        for text in [
            "",
            "/",
            "10",
            "10/",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "10/d",
            "10/sec",
            "10 / s",
            "10/s burst 0",
            "10/s burst",
            "10/s burst 1 burst 2",
            "1000001/s",
            "1/s burst 1000001",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
