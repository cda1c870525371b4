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
mod progress;
mod protocol;
mod send;
mod sender;
mod servers;
mod settings;
mod tls;
mod upgrade;
mod upload;
mod upstream;

pub use body::OriginBody;
pub use check::Check;
pub use error::{BodyFault, OriginError};
pub use pool::{Bound, BoundSlot, Origin};
pub use protocol::Http2;
pub use send::{Call, Keep, OriginResponse, is_connection_scheme};
pub use servers::{Balance, Patience, Roster, Rules};
pub use settings::Settings;
pub use tls::{Tls, TlsError, TlsRules};
pub use upgrade::{Answer, Switched};
pub use upload::{Ear, Outgoing, Read, Upload, end_of_nothing};
pub use upstream::{Upstream, Upstreams};
