//! Visits and views on their way to the store.
//!
//! What the store does with them is its own business.

mod queue;

pub use self::queue::{Progress, VisitQueue};
