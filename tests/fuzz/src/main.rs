//! Fuzz targets for every parser that the cache's policy trusts, for that policy as a whole, for the
//! configuration, and for the proxy between its sockets. Each
//! asserts what must hold for any input, beside that nothing panics.
//!
//! One binary, so that it is built and linked once: `FUZZ_TARGET` says which target it is; without it
//! the names are printed. `run` does the rest.

#![no_main]

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

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 19] = [
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

static CHOSEN: OnceLock<Target> = OnceLock::new();

fn choose() {
    let Ok(wanted) = std::env::var("FUZZ_TARGET") else {
        TARGETS.iter().for_each(|(name, _)| println!("{name}"));
        std::process::exit(0);
    };
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    CHOSEN.get_or_init(|| found.unwrap_or_else(|| panic!("no target is called {wanted}")).1);
}

fuzz_target!(init: choose(), |data: &[u8]| {
    let target = CHOSEN.get().expect("chosen at the start");
    target(data);
});
