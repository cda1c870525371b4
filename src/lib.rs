//! Anteroom: a caching reverse proxy for web apps with logins.
//!
//! It knows which cookie is the session, and so it can share pages safely. The modules, from the edge inwards:
//!
//! - [`app`] puts the parts together from a plan; [`serve`] accepts clients;
//! - [`proxy`] is the life of one request, as a list of stages;
//! - [`task`] works in the background, [`admin`] answers operators.
//!
//! Pages, sessions, rows, stores, origins, and the configuration are crates of their own: ARCHITECTURE.md lists them.

pub mod admin;
pub mod app;
pub mod task;
