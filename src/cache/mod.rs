//! The page cache: which pages may be shared with whom, where they are kept, and the single fetch that fills
//! them.
//!
//! [`rules`] is pure: header fields and a time go in, a verdict comes out. [`Pages`] keeps pages in
//! [`memory`], a tier above the store; [`purge`] tells which of them are no longer valid. [`fill`] fetches a
//! page from an origin, once for all requests that wait for it ([`flight`]). Client connections are out of
//! scope here.

mod admission_filter;
pub mod entry;
pub mod fill;
pub mod flight;
pub mod memory;
mod pages;
pub mod purge;
pub mod purger;
pub mod recoded;
pub mod rules;
pub mod segment_proof;

pub use memory::Look;
pub use pages::{From, Lookup, Pages, Tier, ToStore, TooManyVariants};
