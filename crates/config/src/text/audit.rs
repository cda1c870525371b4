//! The part of the hits that is held against the app.

use anteroom_policy::audit::AuditRate;

/// The rarest: one hit of so many.
const HITS_MAX: u32 = 1_000_000;

/// `off`, or `1/` and a number of hits.
pub(crate) fn audit_rate(text: &str) -> Result<AuditRate, String> {
    if text == "off" {
        return Ok(AuditRate::OFF);
    }
    let hits = text.strip_prefix("1/").and_then(|hits| hits.parse().ok());
    let hits = hits.filter(|hits| (1..=HITS_MAX).contains(hits));
    let rate = hits.map(AuditRate::one_of).filter(|rate| rate.to_string() == text);
    rate.ok_or_else(|| {
        format!("\"off\", or one hit of so many: \"1/1000\"; the rarest is \"1/{HITS_MAX}\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_so_many() {
        for (text, hits) in [("off", None), ("1/1", Some(1)), ("1/1000", Some(1_000))] {
            assert_eq!(audit_rate(text).unwrap().hits(), hits);
        }
        for text in ["", "1/0", "2/1000", "1/01", "1/1000001", "0.1 %", "on", "1 / 10"] {
            assert!(audit_rate(text).unwrap_err().contains("1/1000"), "{text}");
        }
    }
}
