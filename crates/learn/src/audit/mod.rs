//! The audit: hits that were held against the app, and what differed.
//!
//! A sample of the requests that a stored page would answer goes to the app, and the answer is compared with the page
//! ([`compare`]). A difference may be noise, or an edit of the page: so the page is fetched once more as it was filled, and
//! only what the stored page and that fetch have alike, and the visitor does not, counts. [`Audits`] keeps what was
//! found of each pattern of URLs. No text of a page or of a visitor is kept.

mod difference;
mod findings;
mod report;

pub use difference::{AuditResult, DifferingPlace, PlaceKind, compare, without_noise};
pub use findings::{AuditPlace, AuditedPage, Audits};
pub use report::{AuditReport, AuditTotals, AuditedPatternReport};
