//! Anteroom: the room in front of a web app with logins.
//!
//! A caching reverse proxy that knows which cookie is the session, and so can share pages safely.
//! The modules, from the edge inwards:
//!
//! - [`app`] puts the parts together from a [`config`] plan; [`serve`] accepts clients;
//! - [`request`] is the life of one request; [`fill`] a fetch for the cache;
//! - [`page`], [`row`], [`session`], [`visit`], [`purge`], [`limit`] and [`route`] are what the proxy
//!   is about;
//! - [`origin`] and [`store`] are what stands behind it;
//! - [`task`] works in the background, [`admin`] answers operators;
//! - [`http`] is pure protocol knowledge; [`ident`], [`reason`] and [`clock`] are shared words;
//! - [`certificate`] reads certificates and chooses among them; [`socket`] is a Unix socket with its
//!   file;
//! - [`metrics`] and [`log`] tell what happened; [`demo`] is a shop to try it on.

pub mod admin;
pub mod app;
pub mod certificate;
pub mod clock;
pub mod config;
pub mod demo;
pub mod fill;
pub mod http;
pub mod ident;
pub mod limit;
pub mod log;
pub mod metrics;
pub mod origin;
pub mod page;
pub mod purge;
pub mod reason;
pub mod request;
pub mod route;
pub mod row;
pub mod serve;
pub mod session;
pub mod socket;
pub mod store;
pub mod task;
pub mod visit;
