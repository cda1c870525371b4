//! Pages: which may be shared with whom, where they are kept, and the one fetch that fills them.
//!
//! [`rules`] is pure: header fields and a time go in, a verdict comes out. [`Pages`] keeps pages in
//! [`memory`], which lies over the store; [`purge`] says which of them hold no more. [`fill`] asks an
//! origin for a page, once for all who wait for it ([`flight`]). Nothing here knows a client.

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
