//! How a ticket is sealed: by a key for each period, derived from a secret.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};

/// The time for which a key seals, in seconds. It opens for as long again.
pub(super) const PERIOD: u64 = 12 * 60 * 60;

const KEY_LEN: usize = 32;
/// What the derivations are for. Another construction of tickets has other labels.
const SALT: &[u8] = b"anteroom ticket 1";
const SOURCE_LABEL: &[u8] = b"source";
const KEY_LABEL: &[u8] = b"key of period ";

/// The period of a Unix time in seconds. A time before 1970 is in the first.
pub(super) fn period_at(now: f64) -> u64 {
    now as u64 / PERIOD
}

/// Whether a ticket of this period is taken: one of the present period, of the last, or of the next, from a proxy whose
/// clock is ahead.
pub(super) fn is_accepted(period: u64, now: f64) -> bool {
    period.abs_diff(period_at(now)) <= 1
}

/// A ticket as a client sends it: the period of its key, a random number, and what is sealed.
pub(super) struct SealedTicket<'a> {
    pub(super) period: u64,
    nonce: &'a [u8; NONCE_LEN],
    sealed: &'a [u8],
}

impl<'a> SealedTicket<'a> {
    /// `None` for what is no ticket, and for one whose time is over.
    pub(super) fn parse(ticket: &'a [u8], now: f64) -> Option<Self> {
        let (period, rest) = ticket.split_first_chunk()?;
        let (nonce, sealed) = rest.split_first_chunk()?;
        let period = u64::from_be_bytes(*period);
        is_accepted(period, now).then_some(Self { period, nonce, sealed })
    }
}

/// What the key of each period is derived from. `Debug` does not show it.
#[derive(Clone, Debug)]
pub(super) struct TicketSource(Prk);

impl TicketSource {
    /// `None` only where the library fails.
    pub(super) fn new(secret: &[u8]) -> Option<Self> {
        let extracted = Salt::new(HKDF_SHA256, SALT).extract(secret);
        // PERF: the library extracts again for each key, from a secret that may be long. What is expanded once is short.
        Some(Self(Prk::from(extracted.expand(&[SOURCE_LABEL], HKDF_SHA256).ok()?)))
    }

    /// PERF: derived for each ticket. That is two runs of HMAC beside the key exchange of the handshake, and there is
    /// nothing to keep, or to forget when a period is over.
    fn key(&self, period: u64) -> Option<[u8; KEY_LEN]> {
        let mut key = [0; KEY_LEN];
        let period = period.to_be_bytes();
        self.0.expand(&[KEY_LABEL, &period], &AES_256_GCM_SIV).ok()?.fill(&mut key).ok()?;
        Some(key)
    }

    /// AES-GCM-SIV bears random nonces for far more tickets than a fleet makes in a period (RFC 8452 9); AES-GCM is
    /// good for 2^32.
    fn cipher(&self, period: u64) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM_SIV, &self.key(period)?).ok()
    }

    /// A ticket that holds `plain`.
    pub(super) fn seal(&self, period: u64, plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let cipher = self.cipher(period)?;
        let nonce = cipher.seal_in_place_append_tag(Aad::empty(), &mut sealed).ok()?;
        let nonce: &[u8; NONCE_LEN] = nonce.as_ref();
        Some([&period.to_be_bytes()[..], &nonce[..], &sealed[..]].concat())
    }

    /// What a ticket holds, if it was sealed from the same secret and is unchanged.
    pub(super) fn open(&self, ticket: &SealedTicket<'_>) -> Option<Vec<u8>> {
        let mut opened = ticket.sealed.to_vec();
        let (cipher, nonce) = (self.cipher(ticket.period)?, Nonce::from(ticket.nonce));
        let length = cipher.open_in_place(nonce, Aad::empty(), &mut opened).ok()?.len();
        opened.truncate(length);
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1_790_000_000.0;

    fn opened(source: &TicketSource, ticket: &[u8], now: f64) -> Option<Vec<u8>> {
        source.open(&SealedTicket::parse(ticket, now)?)
    }

    #[test]
    fn a_ticket_is_opened_in_its_period_and_in_the_next_to_it() {
        let source = TicketSource::new(b"secret").unwrap();
        let begin = (period_at(NOW) * PERIOD) as f64;
        let ticket = source.seal(period_at(NOW), b"session").unwrap();
        let period = PERIOD as f64;
        for (now, is_open) in [
            (begin - period - 1.0, false),
            (begin - period, true),
            (begin, true),
            (begin + 2.0 * period - 1.0, true),
            (begin + 2.0 * period, false),
            (0.0, false),
            (-1.0, false),
            (f64::NAN, false),
            (f64::MAX, false),
        ] {
            assert_eq!(opened(&source, &ticket, now).is_some(), is_open, "{}", now - begin);
        }
        assert_eq!(opened(&source, &ticket, NOW).unwrap(), b"session");
    }

    #[test]
    fn a_ticket_of_another_secret_or_a_changed_one_is_refused() {
        let source = TicketSource::new(b"secret").unwrap();
        let other = TicketSource::new(b"Secret").unwrap();
        let ticket = source.seal(period_at(NOW), b"session").unwrap();
        assert_eq!(opened(&other, &ticket, NOW), None);
        for at in 0..ticket.len() {
            for bit in 0..8 {
                let mut damaged = ticket.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(opened(&source, &damaged, NOW), None, "bit {bit} of byte {at}");
            }
        }
        for length in 0..ticket.len() {
            assert_eq!(opened(&source, &ticket[..length], NOW), None, "{length} bytes");
        }
        assert_eq!(opened(&source, &[&ticket[..], b"0"].concat(), NOW), None);
    }

    #[test]
    fn no_two_tickets_are_alike_and_an_empty_one_is_sealed_too() {
        let source = TicketSource::new(b"secret").unwrap();
        let [one, other] = [(); 2].map(|()| source.seal(1, b"").unwrap());
        assert_ne!(one, other);
        assert_eq!(opened(&source, &one, PERIOD as f64).unwrap(), b"");
    }

    /// Proxies of two versions on one secret must derive the same. The expected value is from HMAC-SHA-256 by hand: RFC
    /// 5869, first from the secret with the salt, then for the label of the source, then for that of the key.
    #[test]
    fn the_derivation_stays_as_it_is() {
        let source = TicketSource::new(b"0123456789abcdef0123456789abcdef").unwrap();
        let key = source.key(41_435).unwrap();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "91d28f5a3ce9245d0ddba36e19f6158290d1575302b6fc4c3134c2c5c301104b");
        assert_ne!(source.key(41_436).unwrap(), key);
    }

    #[test]
    fn debug_shows_no_key() {
        let source = TicketSource::new(b"secret").unwrap();
        assert!(!format!("{source:?}").contains('['));
    }
}
