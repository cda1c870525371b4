//! Hexadecimal encoding, and decoding.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Encodes `bytes` as lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = vec![0; bytes.len() * 2];
    put_hex(&mut digits, bytes);
    String::from_utf8(digits).expect("digits are ASCII")
}

/// Writes `bytes` to the start of `text`, as lower-case hex digits, as far as there is room.
pub fn put_hex(text: &mut [u8], bytes: &[u8]) {
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// The bytes that these hex digits stand for; `None` if they are no hex digits, or half a byte is missing.
#[must_use]
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let value = |digit: u8| char::from(digit).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from(value(*high)? << 4 | value(*low)?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits_in_order() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0x00, 0x0f, 0xf0, 0xff, 0x5a]), "000ff0ff5a");
        let long: Vec<u8> = (0..=255).collect();
        let expected: String = long.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex(&long), expected);
    }

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
