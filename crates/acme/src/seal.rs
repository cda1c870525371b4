//! Sealing: what proxies share through a store that others may read and write.
//!
//! SECURITY: an answer to a challenge that is written by another hand proves the name to that hand's authority, and a key
//! that is read shows the certificate elsewhere. So everything is sealed, with the name of its place as a part of the seal:
//! a value that is put elsewhere does not open.

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hmac;

/// What the key is derived for. Another form of sealed values needs another text.
const PURPOSE: &[u8] = b"anteroom certificates 1";
/// The first byte of a sealed value.
const VERSION: u8 = 1;

/// Why a value is not sealed, or does not open. That the reason is not told is on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a shared value does not open: it was sealed with another [acme] secret, or for another name"
)]
pub struct SealError;

/// Seals values with a key of the configuration, and opens them.
pub struct Sealer(RandomizedNonceKey);

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// Seals with this secret, which has the strength of a key.
    ///
    /// # Errors
    /// If the cryptography refuses, which it does not with a key of this length.
    pub fn new(secret: &[u8]) -> Result<Self, SealError> {
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), PURPOSE);
        RandomizedNonceKey::new(&AES_256_GCM, key.as_ref()).map(Self).map_err(|_| SealError)
    }

    /// Seals a value for the place `name`.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn seal(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut text = value.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut text)
            .map_err(|_| SealError)?;
        let nonce: &[u8; NONCE_LEN] = nonce.as_ref();
        Ok([&[VERSION][..], nonce.as_slice(), text.as_slice()].concat())
    }

    /// Opens a value of the place `name`.
    ///
    /// # Errors
    /// If it was not sealed with this secret for this place.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let rest = sealed.strip_prefix(&[VERSION]).ok_or(SealError)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError)?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self
            .0
            .open_in_place(nonce, Aad::from(name.as_bytes()), &mut text)
            .map_err(|_| SealError)?;
        Ok(opened.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_opens_at_its_place_with_its_secret_alone() {
        let sealer = Sealer::new(b"0123456789abcdef0123456789abcdef").unwrap();
        let other = Sealer::new(b"0123456789abcdef0123456789abcdeF").unwrap();
        let sealed = sealer.seal("cert:a.net", b"key").unwrap();
        assert!(!sealed.windows(3).any(|part| part == b"key"));
        assert_eq!(sealer.open("cert:a.net", &sealed).unwrap(), b"key");
        assert_eq!(sealer.open("cert:b.net", &sealed), Err(SealError));
        assert_eq!(other.open("cert:a.net", &sealed), Err(SealError));
        for place in 0..sealed.len() {
            let mut forged = sealed.clone();
            forged[place] ^= 1;
            assert_eq!(sealer.open("cert:a.net", &forged), Err(SealError), "{place}");
            assert_eq!(sealer.open("cert:a.net", &sealed[..place]), Err(SealError), "{place}");
        }
        assert_ne!(sealer.seal("a", b"key").unwrap(), sealer.seal("a", b"key").unwrap());
    }
}
