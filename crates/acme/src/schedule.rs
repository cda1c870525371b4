//! When a certificate is renewed, and how long a failure waits. Pure: the time and chance are arguments.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The wait after the first failure, in seconds.
const WAIT_MIN: i64 = 60;
/// The longest wait after a failure, in seconds.
pub(crate) const WAIT_MAX: i64 = 86_400;
/// How soon an authority is asked again when a certificate is to be renewed, in seconds.
const ASK_MIN: i64 = 60;
/// How late, at most.
pub(crate) const ASK_MAX: i64 = 86_400;
/// How late, if the authority does not say.
const ASK_USUAL: i64 = 6 * 3_600;

/// How long a name waits after so many failures in a row: a minute, twice as long each time, at most a day; and at least
/// as long as the authority says. `chance`, from 0 to 1, spreads it by a fifth, so that proxies do not return together.
pub(crate) fn wait_after(failures: u32, wanted: Option<Duration>, chance: f64) -> i64 {
    let doublings = failures.saturating_sub(1).min(20);
    let usual = (WAIT_MIN << doublings).min(WAIT_MAX);
    let spread = (usual as f64 * (0.8 + 0.4 * chance)) as i64;
    let wanted = wanted.map_or(0, |wanted| i64::try_from(wanted.as_secs()).unwrap_or(WAIT_MAX));
    // An authority that wants a year is asked daily: a certificate may expire before.
    spread.max(wanted).clamp(WAIT_MIN * 4 / 5, WAIT_MAX)
}

/// When a certificate that is valid in `valid` is renewed, in Unix time.
///
/// `window` is what the authority suggests (RFC 9773): a point in it is drawn by `chance`, and a window in the past means
/// now. Without one it is at two thirds of the lifetime, less up to a twentieth. In no case is it later than a twentieth
/// of the lifetime before the end.
pub(crate) fn renew_at(
    valid: &RangeInclusive<i64>,
    window: Option<&RangeInclusive<i64>>,
    chance: f64,
) -> i64 {
    let lifetime = (valid.end() - valid.start()).max(0);
    let part = |of: i64, share: f64| (of as f64 * share) as i64;
    let latest = valid.end() - lifetime / 20;
    let drawn = match window {
        Some(window) => window.start() + part((window.end() - window.start()).max(0), chance),
        None => valid.start() + lifetime / 3 * 2 - part(lifetime / 20, chance),
    };
    drawn.min(latest)
}

/// How long after a certificate was issued the next one is not ordered by itself, in seconds: a twentieth of its lifetime,
/// at most an hour. An authority that always suggests now does not get an order after the other.
pub(crate) fn rest_after_issue(valid: &RangeInclusive<i64>) -> i64 {
    ((valid.end() - valid.start()) / 20).clamp(0, 3_600)
}

/// When the authority is asked again for the window of a certificate, in Unix time: `after` is what it wants.
pub(crate) fn ask_again(now: i64, after: Option<Duration>) -> i64 {
    let wanted = after.and_then(|after| i64::try_from(after.as_secs()).ok());
    now + wanted.unwrap_or(ASK_USUAL).clamp(ASK_MIN, ASK_MAX)
}

/// How long an order rests between two looks at it, in seconds: `began` and `now` are Unix times.
pub(crate) fn poll_after(began: i64, now: i64) -> i64 {
    // Most orders are done within seconds; some authorities take minutes.
    if now - began < 30 { 1 } else { 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn a_failure_waits_from_a_minute_to_a_day_and_as_long_as_the_authority_says() {
        for (failures, wanted, expected) in [
            (1, None, 60),
            (2, None, 120),
            (3, None, 240),
            (11, None, 61_440),
            (12, None, DAY),
            (u32::MAX, None, DAY),
            (1, Some(10), 60),
            (1, Some(600), 600),
            (12, Some(u64::MAX), DAY),
        ] {
            let wanted = wanted.map(Duration::from_secs);
            assert_eq!(wait_after(failures, wanted, 0.5), expected, "{failures} {wanted:?}");
        }
        assert_eq!((wait_after(1, None, 0.0), wait_after(1, None, 1.0)), (48, 72));
        assert_eq!(wait_after(20, None, 1.0), DAY);
    }

    #[test]
    fn a_renewal_is_at_two_thirds_or_within_the_window() {
        let valid = 0..=90 * DAY;
        assert_eq!(renew_at(&valid, None, 0.0), 60 * DAY);
        assert_eq!(renew_at(&valid, None, 1.0), 60 * DAY - 90 * DAY / 20);
        for (window, chance, expected) in [
            (50 * DAY..=52 * DAY, 0.0, 50 * DAY),
            (50 * DAY..=52 * DAY, 0.5, 51 * DAY),
            (50 * DAY..=52 * DAY, 1.0, 52 * DAY),
            // In the past, as after a revocation.
            (-DAY..=-DAY / 2, 0.0, -DAY),
            // Too late, and the wrong way round.
            (200 * DAY..=300 * DAY, 0.0, 90 * DAY - 90 * DAY / 20),
            (RangeInclusive::new(52 * DAY, 50 * DAY), 1.0, 52 * DAY),
        ] {
            assert_eq!(renew_at(&valid, Some(&window), chance), expected, "{window:?} {chance}");
        }
    }

    #[test]
    fn certificates_of_a_minute_and_a_half_are_renewed_after_a_minute() {
        let valid = 1_000..=1_090;
        assert_eq!(renew_at(&valid, None, 0.0), 1_060);
        assert!((1_056..=1_060).contains(&renew_at(&valid, None, 1.0)));
    }

    #[test]
    fn two_orders_for_a_name_have_a_distance() {
        assert_eq!(rest_after_issue(&(0..=90 * DAY)), 3_600);
        assert_eq!(rest_after_issue(&(1_000..=1_090)), 4);
        assert_eq!(rest_after_issue(&RangeInclusive::new(90, 0)), 0);
    }

    #[test]
    fn the_authority_is_asked_for_its_window_neither_too_soon_nor_never() {
        for (after, expected) in
            [(None, 6 * 3_600), (Some(1), 60), (Some(3_600), 3_600), (Some(u64::MAX), 6 * 3_600)]
        {
            assert_eq!(ask_again(0, after.map(Duration::from_secs)), expected, "{after:?}");
        }
        assert_eq!(ask_again(0, Some(Duration::from_secs(9 * 86_400))), 86_400);
    }
}
