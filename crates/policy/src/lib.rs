//! The operator's decisions about requests and responses: the types that the configuration reads and all
//! other parts use.
//!
//! A value is complete when it is read. Everything that depends on the whole plan is compiled once, by
//! [`route::Routes::new`]. Nothing here blocks, asks what time it is, or knows how a decision is written, carried out or
//! counted.

pub mod access_log;
pub mod admin;
pub mod answer;
pub mod audit;
pub mod cookie;
pub mod database;
pub mod error_page;
pub mod learn;
pub mod listener;
pub mod login;
pub mod origin;
pub mod priority;
pub mod purge_rule;
pub mod rate_limit;
pub mod route;
pub mod row_schedule;
pub mod traces;
