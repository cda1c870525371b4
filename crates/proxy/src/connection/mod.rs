//! State and tasks of a client's connection, beyond a single request.

pub mod client;
pub mod counter;
pub(crate) mod detached;
pub mod interim;
pub(crate) mod tunnel;
