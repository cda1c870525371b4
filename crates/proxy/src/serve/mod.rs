//! The client side: listeners, connections, and the deadlines that a client must keep.
//!
//! Accepts, wraps the socket in [`io::TimedSocket`], reads the client that a load balancer names
//! ([`proxy_protocol`]), performs the handshake of [`tls`], chooses the version
//! of HTTP, and runs hyper's own http1 or http2 builder on it. What a request means is decided by
//! [`respond`](crate::respond); nothing here looks into one.

mod accept;
mod caps;
mod connection;
mod context;
mod http1;
mod http2;
pub mod io;
pub mod listen;
pub mod proxy_protocol;
pub mod socket;
mod stream;
pub mod tls;

pub use accept::{Entrance, serve};
pub use caps::{Caps, Most};
pub use context::{ConnectionContext, ConnectionSettings, ReloadableContext, ServingContext};
pub use listen::{ConnectionRules, Listener, ThreadListener};
