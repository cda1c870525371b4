//! State and tasks of a client's connection, beyond a single request.

pub mod client;
pub mod counter;
pub(in crate::proxy) mod detached;
pub mod interim;
pub(in crate::proxy) mod tunnel;
