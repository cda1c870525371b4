//! Learn mode: what the cache would have done, while each request is forwarded.
//!
//! [`Learning`] holds what was learned since a moment: a cache of pages without bodies (`simulated`), the answers
//! of each page compared by keyed hashes of their parts (`compared`), and the cookies that came with requests. No
//! body and no value of a cookie or of a query is kept. `proxy` brings the requests and the answers; nothing here
//! asks the origin, and nothing is ever served from here. Everything is bounded: at the bound, half of the URLs are
//! followed.

mod answer;
mod compared;
mod comparison;
mod cookies;
mod parameters;
mod proposals;
mod query_values;
mod report;
mod routes;
mod simulated;
mod state;
mod summary;
mod text_parts;
mod variants;

pub use answer::{AnswerSeen, Difference};
pub use query_values::QueryValues;
pub use report::{
    LearnedCookieReport, LearnedPageReport, LearnedRouteReport, Proposal, Report, ReportContext,
};
pub use state::{BodyPlace, ComparedAnswer, Learning, PageName, PageRequest, Predicted, Wanted};
pub use text_parts::{AnswerText, TextParts};
