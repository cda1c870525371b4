//! Delivery to the client: header fields, content coding, fragments, bodies and error responses.
//!
//! Nothing here imports a source. Fragments re-enter the request path through
//! `fragments::subrequest::Subrequests`.

pub(in crate::proxy) mod body;
pub(in crate::proxy) mod client_response;
pub(in crate::proxy) mod content_coding;
pub(in crate::proxy) mod error;
pub(in crate::proxy) mod field_rules;
pub(in crate::proxy) mod fragments;
pub(in crate::proxy) mod headers;
pub(in crate::proxy) mod own;
pub(in crate::proxy) mod stored;
