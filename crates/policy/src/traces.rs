//! Which requests are traced.

/// What an incoming `traceparent` of a trusted proxy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentSampling {
    /// Its sampled flag decides whether the request is traced.
    Follow,
    /// The flag decides nothing: `sample` does. The trace goes on all the same.
    Ignore,
}

/// A part of all, in millionths: exact, unlike a floating-point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction(u32);

impl Fraction {
    /// All.
    pub const ALL: Self = Self(1_000_000);

    /// So many millionths, at most all.
    #[must_use]
    pub const fn millionths(count: u32) -> Self {
        if count > Self::ALL.0 { Self::ALL } else { Self(count) }
    }

    /// How many millionths.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0
    }

    /// Whether a draw, a random number below a million, is in this part.
    #[must_use]
    pub const fn has(self, draw: u32) -> bool {
        draw < self.0
    }

    /// The fraction of a number such as `0.01`: at most six decimals.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > 6 {
            return None;
        }
        let whole: u32 = whole.parse().ok().filter(|whole| *whole <= 1)?;
        let decimals: u32 = format!("{decimals:0<6}").parse().ok()?;
        let count = whole * Self::ALL.0 + decimals;
        (count <= Self::ALL.0).then_some(Self(count))
    }
}

impl std::fmt::Display for Fraction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == Self::ALL.0 {
            return f.write_str("1.0");
        }
        let decimals = format!("{:06}", self.0);
        let shown = decimals.trim_end_matches('0');
        write!(f, "0.{}", if shown.is_empty() { "0" } else { shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_a_number_from_zero_to_one() {
        for (text, count, shown) in [
            ("0", 0, "0.0"),
            ("0.0", 0, "0.0"),
            ("0.01", 10_000, "0.01"),
            ("0.000001", 1, "0.000001"),
            ("1", 1_000_000, "1.0"),
            ("1.0", 1_000_000, "1.0"),
        ] {
            let fraction = Fraction::parse(text).unwrap();
            assert_eq!((fraction.count(), fraction.to_string().as_str()), (count, shown));
        }
        for text in ["", ".", "1.1", "2", "-0.1", "0.0000001", "1e-2", "0,1", "all", "0."] {
            assert_eq!(Fraction::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_part_has_its_draws() {
        assert!(!Fraction::millionths(0).has(0));
        assert!(Fraction::millionths(1).has(0) && !Fraction::millionths(1).has(1));
        assert!(Fraction::ALL.has(999_999));
    }
}
