//! Visits and views on their way to the store, and the popularity of items.
//!
//! The store decides how they are recorded.

mod popularity_ranks;
mod queue;
mod recent_views;
pub mod rescale;
mod visitors;

pub use self::popularity_ranks::PopularityRanks;
pub use self::queue::{VisitQueue, WriteProgress};
pub use self::visitors::VisitorVisits;
