//! The rules of the cache: what may be stored, for which visitors, and for how long. Pure functions over
//! header fields, bodies and a `now`.
//!
//! No clock, no socket, no store and no `async`. The rules never import the code that fetches
//! (`cache::fill`).

mod character_references;
mod escape;
pub mod fragments;
pub mod further_reasons;
pub mod group;
pub mod key;
pub mod leak_guard;
pub mod leak_kind;
pub mod personal_data;
pub mod request_directives;
mod tag_prefilter;
pub mod verdict;
mod window;
