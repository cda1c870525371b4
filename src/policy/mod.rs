//! What the operator decided about requests: routes, and how many requests are served.

pub mod rate_limit;
pub mod route;
