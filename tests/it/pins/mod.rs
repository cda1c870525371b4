//! What each request leads to, recorded: what the origin gets, what the client gets, what the store is asked,
//! what the access log and the counters say.
//!
//! `cases/<group>.txt` has the requests, and `recorded/<group>.<store>.txt` what was seen of each. Where
//! something is meant to become another, `ANTEROOM_PINS=record cargo nextest run pins::recorded` rewrites the
//! files, and their difference tells what has changed.

mod cancelled;
mod errors;
mod golden;
mod order;
mod play;
mod script;
mod watch;
mod words;

/// Plays each group on both stores.
macro_rules! groups {
    ($($group:ident),+ $(,)?) => {
        mod recorded {
            mod embedded {
                use crate::support::proxy::Storage;
                $(#[test] fn $group() { super::super::play::play(stringify!($group), &Storage::Embedded); })+
            }
            mod redis {
                use crate::support::proxy::Storage;
                $(#[test] fn $group() { super::super::play::play(stringify!($group), &Storage::redis()); })+
            }
        }
    };
}

groups!(
    caching, endpoints, forwarding, holes, limits, peers, purges, redirect, routes, sessions,
    upgrades, verify, visitors,
);
