//! HTTP as its RFCs have it, one topic per file: header fields and a `now` go in, an answer comes out.
//!
//! Beside it stands what all crates share: [`ident`], the identifiers, and [`clock`], the only place that asks what time
//! it is. Nothing here blocks, panics on input, or keeps state, but for the clock's. Nothing here knows sockets, stores,
//! the configuration or the proxy.

pub mod apply_set_cookie;
pub mod bearer;
pub mod cache_control;
pub mod cache_status;
pub mod cdn_loop;
pub mod client_cert;
pub mod clock;
pub mod coding;
pub mod conditional;
pub mod cookie;
pub mod date;
pub mod etag;
pub mod extract;
pub mod field_condition;
pub mod field_line;
pub mod field_set;
pub mod form;
pub mod forwarded;
pub mod freshness;
pub mod harden;
pub mod head_end;
pub mod hop;
pub mod host;
pub mod host_pattern;
pub mod http2;
pub mod ident;
pub mod language;
pub mod lenient;
pub mod list;
pub mod login_field;
pub mod media;
pub mod path;
pub mod pattern;
pub mod peer;
pub mod purge_request;
pub mod query;
pub mod range;
pub mod recoding_terms;
pub mod reference;
pub mod remove;
pub mod request_fields;
pub mod retry_after;
pub mod row_template;
pub mod segments;
pub mod selector;
pub mod set_cookie;
pub mod signature;
pub mod tags;
pub mod targeted;
pub mod template;
pub mod trace_context;
pub mod upgrade;
pub mod vary;
