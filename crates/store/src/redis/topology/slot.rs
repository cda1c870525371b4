//! The hash slots of a Redis Cluster, as its specification defines them.

/// How many slots a Cluster has.
pub(in crate::redis) const SLOTS: u16 = 16_384;

/// The slot of a key: the CRC16 (XMODEM) of what stands between its first `{` and the next `}`, or of the whole
/// key if nothing does.
pub(in crate::redis) fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// What stands between the first braces of a key; `None` if that is nothing.
pub(in crate::redis) fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let inner = &key[open + 1..];
    let length = inner.iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &inner[..length])
}

/// The CRC16 of XMODEM.
pub(in crate::redis) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are those of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in [
            ("123456789", 0x31c3),
            ("foo", 12_182),
            ("login:{foo}", 12_182),
            ("{foo}{bar}", 12_182),
            ("login:{}", slot_of(b"login:{}")),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot % SLOTS, "{key}");
        }
        assert_eq!(hash_tag(b"login:{}"), None);
        assert_eq!(hash_tag(b"a{b"), None);
        assert_eq!(hash_tag(b"a}{b}"), Some(&b"b"[..]));
    }
}
