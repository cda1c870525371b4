//! Hexadecimal decoding.

/// The bytes that these hex digits stand for; `None` if they are no hex digits, or half a byte is missing.
pub(super) fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(value(*high)? << 4 | value(*low)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use anteroom_http::ident::hex;

    use super::*;

    #[test]
    fn every_byte_is_read_as_it_is_written() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(&hex(&all)), Some(all));
        assert_eq!(unhex(""), Some(Vec::new()));
        for wrong in ["0", "0g", "+1", "0x12", "ü"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
