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

/// The size that was probably meant by one in another notation: `256MiB` for `256MB`, `256M` or `256mib`.
pub(super) fn meant_size(text: &str) -> Option<String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let letters = unit.trim_start().to_ascii_lowercase();
    let unit = match letters.as_str() {
        "b" | "bytes" => "B",
        "k" | "kb" | "kib" => "KiB",
        "m" | "mb" | "mib" => "MiB",
        "g" | "gb" | "gib" => "GiB",
        "t" | "tb" | "tib" => "TiB",
        _ => return None,
    };
    let meant = format!("{number}{unit}");
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
            ("1.5MB", None),
            ("64", None),
        ] {
            assert_eq!(meant_size(text).as_deref(), meant, "{text}");
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
