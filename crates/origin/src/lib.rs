//! Origins: their servers, the connections of each thread, timeouts, and the rules for retries.
//!
//! A body is passed on as it comes, and what the origin has not finished is never told as whole. HTTP framing and time
//! limits are known here; what requests and responses mean is decided elsewhere.

mod background;
mod body;
mod broken_upload;
mod check;
mod connect;
mod error;
mod http1;
mod http2_pool;
mod interim;
mod link;
mod meter;
mod pool;
mod progress;
mod protocol;
mod requester;
mod send;
mod sender;
mod servers;
mod settings;
mod tls;
mod upgrade;
mod upload;
mod upstream;

pub use background::BackgroundSlot;
pub use body::{BodyReader, OriginBody};
pub use check::{HealthCheck, ProbeError};
pub use error::{BodyFault, OriginError};
pub use http1::ExchangeError;
pub use interim::InterimListener;
pub use pool::{PinnedConnection, PinnedSlot, ServerConnections};
pub use requester::Requester;
pub use send::{ConnectionReuse, GrpcCall, OriginResponse, is_connection_scheme};
pub use servers::{
    FailureRules, HandedLimit, HandedServer, RestLeft, ServerList, ServerRules, ServerStanding,
    SharedPriority, StrangerLimits,
};
pub use settings::{RESPONSE_FIELDS, ServerSettings};
pub use tls::{OriginTlsConnector, OriginTlsError, TlsRules, client_config};
pub use upgrade::{UpgradeAnswer, UpgradedConnection};
pub use upload::{
    BodyReadState, BodyTap, RequestBody, Upload, UploadBody, expect_empty_body, unless_ended,
};
pub use upstream::{ReservedPlace, Upstream, Upstreams};
