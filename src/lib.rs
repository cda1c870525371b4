//! Anteroom: the room in front of a web app with logins.

pub mod admin;
pub mod clock;
pub mod config;
pub mod demo;
pub mod fill;
pub mod http;
pub mod ident;
pub mod log;
pub mod metrics;
pub mod origin;
pub mod page;
pub mod reason;
pub mod request;
pub mod route;
pub mod serve;
pub mod session;
pub mod store;
pub mod task;
pub mod visit;
