//! Anteroom: a caching reverse proxy for web apps with logins.
//!
//! It knows which cookie is the session, and so it can share pages safely. The modules, from the edge inwards:
//!
//! - [`app`] puts the parts together from a [`config`] plan; [`serve`] accepts clients;
//! - [`proxy`] is the life of one request, as a list of stages;
//! - [`cache`] holds pages: the rules, memory, purges, and the fetches that fill it;
//! - [`session`] and [`row`] are what else the proxy keeps;
//!   [`policy`] is what the operator decided;
//! - [`origin`] and [`store`] are what stands behind it;
//! - [`task`] works in the background, [`admin`] answers operators;
//! - [`certificate`] reads certificates and chooses among them;
//! - [`telemetry`] is the access log, the metrics, and the reasons that both name.

pub mod admin;
pub mod app;
pub mod cache;
pub mod certificate;
pub mod config;
pub mod origin;
pub mod policy;
pub mod proxy;
pub mod row;
pub mod serve;
pub mod session;
pub mod store;
pub mod task;
pub mod telemetry;
