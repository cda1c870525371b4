//! Visits and views on their way to the store, and what the views say: which items are popular.
//!
//! What the store does with them is its own business.

mod once;
mod queue;
mod rank;
pub mod rescale;
mod visitors;

pub use self::queue::{Progress, VisitQueue};
pub use self::rank::Ranks;
pub use self::visitors::VisitorVisits;
