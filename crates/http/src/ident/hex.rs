//! Hexadecimal encoding.

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
}
