//! The client side: listeners, connections, and the deadlines that a client must keep.
//!
//! Accepts, wraps the socket in [`io::Watched`], reads who is at its other end where a load balancer
//! tells that ([`proxy_protocol`]), carries out the handshake where there is [`tls`], chooses the version
//! of HTTP, and runs hyper's own http1 or http2 builder on it. What a request means is decided in
//! `request`; nothing here looks into one.

mod accept;
mod caps;
mod connection;
mod door;
mod http1;
mod http2;
pub mod io;
pub mod listen;
pub mod proxy_protocol;
pub mod socket;
mod stream;
pub mod tls;

pub use accept::serve;
pub use caps::{Caps, Most};
pub use door::{Door, Inside, Settings};
pub use listen::{Entrance, Listener, Terms};
