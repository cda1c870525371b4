//! Learn mode: what the cache would have done, while each request is forwarded.
//!
//! [`Learning`] holds what was learned since a moment: a cache of pages without bodies (`simulated`), a sample of the
//! answers of each page (`sample`) as keyed hashes of their pieces, and the cookies that came with requests. No body and
//! no value of a cookie or of a query is kept. `judgement` says whether the answers of a page differ, and by what;
//! `treatments` makes routes of it. Everything is bounded: at the bound, half of the URLs are followed.
//!
//! [`audit`] holds what is served against the app by the same comparison.
//!
//! The crate promises to be pure but for one lock: `proxy` brings the requests and the answers; nothing here asks the
//! origin, and nothing is ever served from here. It must not know clients, the configuration or the store.

pub mod audit;
mod causes;
mod changes;
mod cookie_verdicts;
mod cookies;
mod evidence;
mod judged;
mod judgement;
mod parameters;
mod pieces;
mod proposals;
mod query_values;
mod report;
mod routes;
mod sample;
mod simulated;
mod state;
mod summary;
mod treatments;
mod variants;

pub use causes::{Causes, CookieValue, FIELDS, RequestField};
pub use pieces::{AnswerPieces, AnswerText};
pub use query_values::QueryValues;
pub use report::{
    CookieContext, LearnedCookieReport, LearnedPageReport, LearnedRouteReport, Proposal, Report,
    ReportContext,
};
pub use sample::AnswerSeen;
pub use state::{
    AnswerNeeds, BodyPlace, ComparedAnswer, Learning, PageName, PageRequest, PredictedOutcome,
};
