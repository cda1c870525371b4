//! What the client is sent: header fields, content coding, fragments, bodies, and the responses of errors.
//!
//! Nothing here imports a source: fragments come back into the request path by [`fragments::Subrequests`].

pub(in crate::proxy) mod body;
pub(in crate::proxy) mod content_coding;
pub(in crate::proxy) mod error;
pub(in crate::proxy) mod fragments;
pub(in crate::proxy) mod headers;
pub(in crate::proxy) mod own;
pub(in crate::proxy) mod stored;
