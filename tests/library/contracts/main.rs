//! What the parts of the library promise that no request shows: each store by itself and in its commands, the tables
//! of a database, and the layout that other apps share.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the way to fail, and unwrap says where"
)]

mod background;
mod bypass_contract;
mod certificate_contract;
mod cluster;
mod control_contract;
mod databases;
mod dismissal_contract;
mod event_contract;
mod expire;
mod fleet_contract;
mod interop;
mod overload_contract;
mod page_contract;
mod purge_contract;
mod row_contract;
mod sentinel;
mod store_command;
mod store_contract;
mod ticket_key_contract;
mod transfer_contract;
mod visitor_contract;
mod warm_start;
