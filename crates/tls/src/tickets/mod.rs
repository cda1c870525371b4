//! Tickets of TLS sessions towards visitors: what they are sealed by, and for how long.
//!
//! A ticket holds the keys of its session, and in TLS 1.2 it travels in clear text. So what seals it is replaced each
//! [`TICKET_PERIOD`], and opens tickets for one period more. It comes from one of three places:
//!
//! - [`secret_ticketer`]: a secret of the operator's, from which the key of each period is derived. It needs no store.
//! - [`TicketKeys`]: a random key for each period, which the proxies on a store share. What was deleted there, and in no
//!   process any more, opens no recorded session.
//! - [`private_ticketer`]: keys that never leave the memory of one configuration, for listeners that ask for client
//!   certificates. Their tickets say who the client is, so whoever had the keys could be any client.

mod seal;
mod secret;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use rustls::Error;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::ProducesTickets;

pub use secret::{TicketSecret, secret_ticketer};
pub use shared::{TICKET_KEY_LEN, TicketKey, TicketKeyOffer, TicketKeys};

/// The time for which a key seals. Clients are told to keep a ticket for no longer.
pub const TICKET_PERIOD: Duration = Duration::from_secs(seal::PERIOD);

/// Issues tickets by keys that nothing else has, and that change every six hours.
///
/// # Errors
/// If the system has no random numbers.
pub fn private_ticketer() -> Result<Arc<dyn ProducesTickets>, Error> {
    Ticketer::new()
}
