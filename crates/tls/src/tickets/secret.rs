//! Tickets by secrets that the operator has set: they need nothing but the secret, and no store.

use std::fmt;
use std::sync::Arc;

use rustls::Error;
use rustls::server::ProducesTickets;

use super::TICKET_PERIOD;
use super::seal::{SealedTicket, TicketSource, period_at};

/// A secret from which the keys of tickets are derived. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret(Vec<u8>);

impl TicketSecret {
    /// The secret in these bytes. Whoever has a ticket can try secrets in peace, so a short one or one in words does
    /// not do.
    #[must_use]
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret(hidden)")
    }
}

/// Issues tickets by the first of `secrets`, and accepts those of all of them. With none, it issues none. `clock` is the
/// Unix time in seconds.
///
/// # Errors
/// If the library cannot derive from a secret.
pub fn secret_ticketer(
    secrets: &[TicketSecret],
    clock: fn() -> f64,
) -> Result<Arc<dyn ProducesTickets>, Error> {
    let sources: Option<Vec<_>> =
        secrets.iter().map(|secret| TicketSource::new(&secret.0)).collect();
    let sources = sources.ok_or_else(|| Error::General("no key of tickets".to_owned()))?;
    Ok(Arc::new(SecretTicketer { sources, clock }))
}

#[derive(Debug)]
struct SecretTicketer {
    sources: Vec<TicketSource>,
    clock: fn() -> f64,
}

impl ProducesTickets for SecretTicketer {
    fn enabled(&self) -> bool {
        !self.sources.is_empty()
    }

    fn lifetime(&self) -> u32 {
        TICKET_PERIOD.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.sources.first()?.seal(period_at((self.clock)()), plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let ticket = SealedTicket::parse(ticket, (self.clock)())?;
        self.sources.iter().find_map(|source| source.open(&ticket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticketer(secrets: &[&str]) -> Arc<dyn ProducesTickets> {
        let secrets: Vec<_> = secrets.iter().map(|secret| TicketSecret::new(*secret)).collect();
        secret_ticketer(&secrets, || 1_790_000_000.0).unwrap()
    }

    #[test]
    fn whatever_has_the_secret_opens_the_ticket() {
        let ticket = ticketer(&["one"]).encrypt(b"session").unwrap();
        assert_eq!(ticketer(&["one"]).decrypt(&ticket).unwrap(), b"session");
        assert_eq!(ticketer(&["two"]).decrypt(&ticket), None);
    }

    #[test]
    fn the_first_secret_seals_and_the_one_that_it_replaces_opens() {
        let [old, both, new] = [&["old"][..], &["new", "old"], &["new"]].map(ticketer);
        let early = old.encrypt(b"session").unwrap();
        assert!(both.decrypt(&early).is_some());
        let late = both.encrypt(b"session").unwrap();
        assert!(new.decrypt(&late).is_some());
        assert_eq!(new.decrypt(&early), None);
        assert_eq!(old.decrypt(&late), None);
    }

    #[test]
    fn without_a_secret_there_are_no_tickets() {
        let none = ticketer(&[]);
        assert!(!none.enabled());
        assert_eq!(none.encrypt(b"session"), None);
        assert!(ticketer(&["one"]).enabled());
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?} {:?}", TicketSecret::new("hunter2"), ticketer(&["hunter2"]));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
