//! Units: durations and sizes as an operator writes them.
//!
//! The forms check bounds and report errors.

use std::time::Duration;

/// Milliseconds in each unit.
const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const SIZES: [(&str, u64); 5] =
    [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40), ("B", 1)];

/// Parses a duration such as `250ms` or `5m`: a whole number with one unit.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    amount(text, &DURATIONS).map(Duration::from_millis)
}

/// Parses a number of bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    amount(text, &SIZES)
}

/// What a word for yes or no means.
pub(super) fn truth(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "enabled" | "1" => Some(true),
        "false" | "off" | "no" | "disabled" | "0" => Some(false),
        _ => None,
    }
}

/// The duration that was probably meant by one in another notation: `5m` for `5 minutes`, `90m` for `1h30m` or
/// `1.5h`.
pub(super) fn meant_duration(text: &str) -> Option<String> {
    let mut rest = text.trim();
    let mut total = 0_u64;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = fraction(rest)?;
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let unit = match after[..end].to_ascii_lowercase().as_str() {
            "ms" | "msec" | "millis" | "milliseconds" => 1,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
            "d" | "day" | "days" => 86_400_000,
            "w" | "week" | "weeks" => 7 * 86_400_000,
            "y" | "year" | "years" => 365 * 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.of(unit)?)?;
        smallest = smallest.min(unit);
        rest = after[end..].trim_start();
    }
    // The unit that was written is the one that is understood best.
    let kept = DURATIONS
        .iter()
        .rev()
        .find(|(_, factor)| *factor <= smallest && total > 0 && total.is_multiple_of(*factor));
    let (unit, factor) = kept?;
    let meant = format!("{}{unit}", total / factor);
    (meant != text).then_some(meant)
}

/// The number that was probably meant by `10M`, `64k` or `10,000`.
pub(super) fn meant_count(text: &str) -> Option<u64> {
    let plain: String = text.chars().filter(|c| !matches!(c, ',' | ' ' | '\'')).collect();
    let (digits, factor) = match plain.char_indices().last()? {
        (end, 'k' | 'K') => (&plain[..end], 1_000),
        (end, 'm' | 'M') => (&plain[..end], 1_000_000),
        _ => (plain.as_str(), 1),
    };
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| is_plain)?.checked_mul(factor)
}

/// A number with up to three decimals, in thousandths.
#[derive(Clone, Copy, Debug)]
struct Thousandths(u64);

impl Thousandths {
    /// So much of a unit, if that is a whole number.
    fn of(self, unit: u64) -> Option<u64> {
        let product = self.0.checked_mul(unit)?;
        product.is_multiple_of(1_000).then_some(product / 1_000)
    }
}

/// The number at the beginning of a text, and the rest.
fn fraction(text: &str) -> Option<(Thousandths, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits(text));
    let whole = whole.parse::<u64>().ok()?.checked_mul(1_000)?;
    let Some(behind) = rest.strip_prefix('.') else { return Some((Thousandths(whole), rest)) };
    let (decimals, rest) = behind.split_at(digits(behind));
    if !(1..=3).contains(&decimals.len()) {
        return None;
    }
    let decimals = format!("{decimals:0<3}").parse::<u64>().ok()?;
    Some((Thousandths(whole.checked_add(decimals)?), rest))
}

/// The size that was probably meant by one in another notation: `256MiB` for `256MB`, `256M` or `256mib`.
pub(super) fn meant_size(text: &str) -> Option<String> {
    let (number, unit) = fraction(text)?;
    let letters = unit.trim_start().to_ascii_lowercase();
    let unit = match letters.as_str() {
        "b" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    };
    let (_, factor) = SIZES.iter().find(|(name, _)| *name == unit)?;
    let bytes = number.of(*factor)?;
    // A fraction becomes a whole number of a smaller unit.
    let meant = if bytes.is_multiple_of(*factor) {
        format!("{}{unit}", bytes / factor)
    } else {
        show_size(bytes)
    };
    (meant != text && size(&meant).is_some()).then_some(meant)
}

fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, name) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(unit, _)| *unit == name)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// `duration` in whole milliseconds, seconds, hours or days. Minutes are left out, because `300s` is the
/// usual notation.
pub(super) fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let (unit, factor) = match ms {
        0 => ("s", 1),
        ms if ms % 86_400_000 == 0 => ("d", 86_400_000),
        ms if ms % 3_600_000 == 0 => ("h", 3_600_000),
        ms if ms % 1_000 == 0 => ("s", 1_000),
        _ => ("ms", 1),
    };
    format!("{}{unit}", ms / factor)
}

/// `bytes` in the largest unit that divides them.
pub(super) fn show_size(bytes: u64) -> String {
    let whole = |(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(*factor);
    let (unit, factor) =
        SIZES.iter().filter(whole).max_by_key(|(_, factor)| *factor).unwrap_or(&("B", 1));
    format!("{}{unit}", bytes / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_unit_and_whole_numbers() {
        for (text, ms) in
            [("250ms", 250), ("300s", 300_000), ("5m", 300_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "1.5s", "-1s", "1 s", "1h30m", "5 min", "99999999999999999999s"]
        {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_counted_in_powers_of_two() {
        for (text, bytes) in [("0B", 0), ("64KiB", 65_536), ("8MiB", 8 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "64", "64KB", "64kib", "1.5MiB", "99999999999TiB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_in_other_notations_are_understood_for_the_message() {
        for (text, meant) in [
            ("256MB", Some("256MiB")),
            ("256M", Some("256MiB")),
            ("1 gb", Some("1GiB")),
            ("64kib", Some("64KiB")),
            ("64KiB", None),
            ("MB", None),
            ("1.5MB", Some("1536KiB")),
            ("1.5GiB", Some("1536MiB")),
            ("0.0001MB", None),
            ("64", None),
        ] {
            assert_eq!(meant_size(text).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn durations_in_other_notations_are_understood_for_the_message() {
        for (text, meant) in [
            ("5 minutes", Some("5m")),
            ("10min", Some("10m")),
            ("1h30m", Some("90m")),
            ("1.5h", Some("90m")),
            ("1w", Some("7d")),
            ("2 Weeks", Some("14d")),
            ("1d 12h", Some("36h")),
            ("0.5s", Some("500ms")),
            ("1y", Some("365d")),
            ("5m", None),
            ("5", None),
            ("0 min", None),
            ("off", None),
            ("", None),
            ("99999999999999999 years", None),
        ] {
            assert_eq!(meant_duration(text).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn numbers_in_other_notations_are_understood_for_the_message() {
        for (text, meant) in [
            ("10M", Some(10_000_000)),
            ("64k", Some(64_000)),
            ("10,000", Some(10_000)),
            ("many", None),
            ("-1", None),
            ("+1k", None),
            ("", None),
            ("99999999999999999999M", None),
        ] {
            assert_eq!(meant_count(text), meant, "{text}");
        }
    }

    #[test]
    fn printed_durations_and_sizes_read_back() {
        for ms in [0, 1, 50, 1_000, 1_500, 90_000, 300_000, 3_600_000, 86_400_000, 90_061_001] {
            let shown = show_duration(Duration::from_millis(ms));
            assert_eq!(duration(&shown), Some(Duration::from_millis(ms)), "{shown}");
        }
        for bytes in [0, 1, 1_023, 1 << 10, 3 << 10, 1 << 30, (1 << 30) + 1, 5 << 40] {
            assert_eq!(size(&show_size(bytes)), Some(bytes), "{}", show_size(bytes));
        }
    }
}
