//! The fuzz targets under libFuzzer.
//!
//! One binary, so that it is built and linked once: `FUZZ_TARGET` says which target it is; without it the names are
//! printed. `run` does the rest.

#![no_main]
#![allow(
    clippy::panic,
    clippy::print_stdout,
    clippy::exit,
    unsafe_code,
    reason = "the macro exports the function that libFuzzer calls"
)]

use std::sync::OnceLock;

use anteroom_fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

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
