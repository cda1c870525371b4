//! HTTP protocol rules, one RFC topic per file: header fields and a `now` go in, an answer comes out.
//!
//! Sockets, stores and clocks live elsewhere.

pub mod apply_set_cookie;
pub mod bearer;
pub mod cache_control;
pub mod cache_status;
pub mod client_cert;
pub mod coding;
pub mod conditional;
pub mod cookie;
pub mod date;
pub mod etag;
pub mod extract;
pub mod field_line;
pub mod field_set;
pub mod forwarded;
pub mod freshness;
pub mod harden;
pub(crate) mod head_end;
pub mod hop;
pub mod host;
pub mod host_pattern;
pub mod http2;
pub mod language;
pub mod lenient;
pub(crate) mod list;
pub(crate) mod login_field;
pub mod media;
pub mod path;
pub mod pattern;
pub mod peer;
pub mod purge_request;
pub mod query;
pub mod range;
pub mod recodable;
pub mod reference;
pub(crate) mod remove;
pub mod row_template;
pub mod selector;
pub mod set_cookie;
pub mod signature;
pub mod tags;
pub mod targeted;
pub mod template;
pub mod upgrade;
pub mod vary;
