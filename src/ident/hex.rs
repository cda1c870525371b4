//! Hexadecimal encoding.

/// How many bytes are encoded at a time: a digest.
const PIECE: usize = 32;

/// Encodes `bytes` as lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    push_hex(&mut text, bytes);
    text
}

/// Appends `bytes` to a text, as lower-case hex digits.
pub fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // PERF: appending in pieces is several times faster than digit by digit.
    for piece in bytes.chunks(PIECE) {
        let mut digits = [0; 2 * PIECE];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(piece) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        let digits = &digits[..2 * piece.len()];
        text.push_str(std::str::from_utf8(digits).expect("digits are ASCII"));
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
