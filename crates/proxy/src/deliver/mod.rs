//! Delivery to the client: header fields, content coding, fragments, bodies and error responses.
//!
//! Nothing here imports a source. Fragments re-enter the request path through
//! `fragments::subrequest::Subrequests`.

pub(crate) mod body;
pub(crate) mod client_response;
pub(crate) mod content_coding;
pub(crate) mod error;
pub(crate) mod field_rules;
pub(crate) mod fragments;
pub(crate) mod headers;
pub(crate) mod own;
mod ranges;
pub(crate) mod stored;
