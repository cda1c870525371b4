//! What each request leads to, recorded: what the origin gets, what the client gets, what the store is asked,
//! what the access log and the counters say.
//!
//! `cases/<group>.txt` has the requests. `recorded/<group>.embedded.txt` has what was seen of each with the embedded
//! store, and `recorded/<group>.redis.txt` how Redis differs from that. Where something is meant to become another,
//! `ANTEROOM_PINS=record cargo nextest run pins::recorded` rewrites the files, and their difference tells what has
//! changed.

mod cancelled;
mod errors;
mod explained;
mod order;
mod play;
mod recording;
mod script;
mod shorthand;
mod watch;
mod words;

/// Plays each group in each mode on a store.
macro_rules! as_explained {
    ($name:ident, $storage:expr, $($group:ident),+) => {
        mod $name {
            use crate::pins::explained::{Mode, play};
            use crate::support::proxy::Storage;
            $(mod $group {
                use super::{Mode, Storage, play};
                #[test] fn serving() { play(stringify!($group), Mode::Serve, &$storage); }
                #[test] fn learning() { play(stringify!($group), Mode::Learn, &$storage); }
                #[test] fn bypassed() { play(stringify!($group), Mode::Bypass, &$storage); }
            })+
        }
    };
}

/// Plays each group on both stores.
macro_rules! groups {
    ($($group:ident),+ $(,)?) => {
        /// The requests of each group, explained and sent.
        mod as_explained {
            as_explained!(embedded, Storage::Embedded, $($group),+);
            as_explained!(redis, Storage::redis(), $($group),+);
        }
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
