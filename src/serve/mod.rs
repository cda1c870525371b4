//! The client side: listeners, connections, and the deadlines that a client must keep.
//!
//! Accepts, wraps the socket in [`io::Watched`], reads who is at its other end where a load balancer
//! tells that ([`proxy_protocol`]), and runs hyper's own http1 builder on it. What a request means is
//! decided in `request`; nothing here looks into one.

mod accept;
mod connection;
pub mod io;
pub mod listen;
pub mod proxy_protocol;
mod stream;

pub use accept::{Caps, Door, Inside, Most, serve};
pub use connection::Settings;
pub use listen::{Entrance, Listener, Terms};
