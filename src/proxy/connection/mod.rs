//! What belongs to a client's connection rather than to one request.

pub mod client;
pub mod counter;
pub(in crate::proxy) mod detached;
pub mod interim;
pub(in crate::proxy) mod tunnel;
