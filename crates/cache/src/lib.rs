//! The page cache: which visitors may share which pages, where pages are kept, and the single fetch that
//! fills them.
//!
//! [`rules`] is pure: header fields and a time go in, a verdict comes out. [`Pages`] keeps pages in
//! [`memory`], a tier above the store; [`purge`] determines which of them are no longer valid. [`fill`]
//! fetches a page from an origin, once for all requests that wait for it ([`flight`]).
//!
//! A page is kept once its last byte has come, and a change outweighs each fetch that began before it. Nothing here knows
//! a client's connection, or how a visitor was found.

mod admission_filter;
pub mod bypass_switch;
pub mod class_memory;
pub mod entry;
pub mod fill;
pub mod flight;
pub mod hit_count;
pub mod key_memo;
pub mod memory;
pub mod page_fields;
mod pages;
pub mod purge;
pub mod purge_order;
pub mod purger;
pub mod recipe;
pub mod recoded;
pub mod rules;
pub mod segment_proof;
pub mod url_patterns;
pub mod use_counts;
pub mod warm_queue;
pub mod warm_start;

pub use pages::{CacheTier, Lookup, PageSource, Pages, TierContent, ToStore, TooManyVariants};
