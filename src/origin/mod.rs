//! The origin: connections kept for each thread, deadlines, and the rule for sending again.
//!
//! Knows HTTP framing and time limits; what a request or a response means is decided elsewhere.

mod body;
mod connect;
mod error;
mod lanes;
mod link;
mod meter;
mod pool;
mod send;
mod sender;
mod tls;
mod upgrade;

pub use body::{BodyFault, OriginBody, Outgoing, Upload};
pub use error::OriginError;
pub use pool::{Bound, BoundSlot, Http2, Origin, Settings};
pub use send::{Keep, OriginResponse, is_connection_scheme};
pub use tls::{Tls, TlsError, TlsRules};
pub use upgrade::{Answer, Switched};
