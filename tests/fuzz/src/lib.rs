//! Fuzz targets for every parser that the cache's policy trusts, for that policy as a whole, for the
//! configuration, and for the proxy between its sockets. Each asserts what must hold for any input, beside that
//! nothing panics.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a fuzz target a panic is the way to fail"
)]

mod bodies;
mod entries;
mod fields;
mod input;
mod places;
mod policy;
mod proxied;
mod settings;
mod stage;
mod times;
mod whole;

/// What a target does with an input.
pub type Target = fn(&[u8]);

/// The targets by their names.
pub const TARGETS: [(&str, Target); 19] = [
    ("accept_encoding", fields::accept_encoding),
    ("cache_control", fields::cache_control),
    ("cdn_cache_control", fields::cdn_cache_control),
    ("conditions", policy::conditions),
    ("config", settings::config),
    ("content_type", fields::content_type),
    ("cookies", fields::cookies),
    ("dates", times::dates),
    ("entries", entries::entries),
    ("exchange", whole::exchange),
    ("freshness", times::freshness),
    ("guard", bodies::guard),
    ("places", places::places),
    ("proxy_protocol", proxied::proxy_protocol),
    ("ranges", bodies::ranges),
    ("request_head", whole::request_head),
    ("tags", fields::tags),
    ("vary", fields::vary),
    ("verdict", policy::verdict),
];
