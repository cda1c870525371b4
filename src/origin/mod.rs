//! Origins: their servers, connections kept for each thread, deadlines, and the rules for sending again.
//!
//! Knows HTTP framing and time limits; what a request or a response means is decided elsewhere.

mod body;
mod check;
mod connect;
mod error;
mod lanes;
mod link;
mod meter;
mod pool;
mod send;
mod sender;
mod servers;
mod tls;
mod upgrade;
mod upstream;

pub use body::{BodyFault, Ear, OriginBody, Outgoing, Read, Upload, end_of_nothing};
pub use check::Check;
pub use error::OriginError;
pub use pool::{Bound, BoundSlot, Http2, Origin, Settings};
pub use send::{Call, Keep, OriginResponse, is_connection_scheme};
pub use servers::{Balance, Patience, Roster, Rules};
pub use tls::{Tls, TlsError, TlsRules};
pub use upgrade::{Answer, Switched};
pub use upstream::{Upstream, Upstreams};
