//! Certificates by ACME (RFC 8555): what is ordered, when, and what is kept of it.
//!
//! [`Certifier`] orders and renews one certificate for each name, a small step at a time. What a step needs is on disk
//! before it is begun, so that a process may end anywhere. The last good certificate is never taken away: only a
//! certificate that was checked replaces a file. One process on a machine writes in the folder. Proxies on one Redis share
//! what [`Sealer`] has sealed, and one of them orders.
//!
//! Listeners, clients and the configuration's text are not known here. When a renewal is due and how long a failure
//! waits are pure rules, in `schedule`; what a name needs next is one, in `name`. `certifier` takes the steps: the work
//! for one name is in its `ordering`, what goes between proxies in its `sharing`.

mod account;
mod answers;
mod board;
mod certifier;
mod client;
mod directory;
mod failure;
mod files;
mod hook;
mod issued;
mod name;
mod order;
mod schedule;
mod seal;
mod share;
mod state;
#[cfg(test)]
mod testing;
mod time;

pub use answers::{ChallengeAnswers, ChallengeLookup, ChallengeName};
pub use board::{CertificateBoard, CertificateState, NameStatus};
pub use certifier::{Certifier, CertifierSettings};
pub use directory::{AuthorityOffer, authority_offer};
pub use files::{CertificateFolder, FolderError};
pub use issued::{ALPN_PROTOCOL, challenge_certificate, is_self_signed};
pub use seal::{SealError, Sealer};
pub use share::Share;
