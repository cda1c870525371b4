//! The audit: hits that were held against the app, and what differed.
//!
//! A sample of the requests that a stored page would answer goes to the app, and the answer is compared with the page
//! ([`compare`]). A difference may be noise, or an edit of the page: so the page is fetched again as it was filled, and the
//! visitor's request is sent once more. Only that counts which the stored page and all those fetches have alike
//! ([`without_noise`]), and the visitor sees otherwise again ([`seen_again`]). [`Audits`] keeps what was found of each
//! pattern of URLs, and says when the pages must not be shared any more. No text of a page or of a visitor is kept.

mod cause;
mod difference;
mod evidence;
mod findings;
mod page;
mod report;

pub use cause::{AuditedRequest, COOKIES_KEPT};
pub use difference::{
    AuditResult, DifferingPlace, PlaceKind, any_overlaps, compare, for_one_only, is_edit,
    seen_again, without_noise,
};
pub use findings::{AuditPlace, Audits};
pub use page::{AuditedPage, PatternVerdict};
pub use report::{AuditReport, AuditTotals, AuditedPatternReport, StoppedPattern};
