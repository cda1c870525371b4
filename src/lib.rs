//! Anteroom: a caching reverse proxy for web apps with logins.
//!
//! It knows which cookie is the session, and so it can share pages safely. This package is the program:
//!
//! - [`app`] puts the parts together from a plan;
//! - [`task`] works in the background, [`admin`] answers operators, [`take_over`] carries what a process hands to its
//!   successor.
//!
//! The life of a request, pages, sessions, rows, stores, origins, and the configuration are crates of their own:
//! ARCHITECTURE.md lists them.

pub mod admin;
pub mod app;
pub mod take_over;
pub mod task;
