//! Faults that tests plant in the proxy, to prove that they find them.
//!
//! A fault stands in the code beside what is right: `if fault!("write") || …`. Without the feature `planted` each
//! is the constant `false`, and no trace of it is in the binary. With the feature, the environment variable
//! `ANTEROOM_FAULT` names the one that is on in this process. `tests/faults` has the table of all faults, with what
//! must find each.
//!
//! A process of the tests can also be told to have [`patience`], and where it [panics](may_panic) or
//! [crashes](may_crash).
//!
//! This crate knows nothing of the proxy, and every crate of it may use this one.

use std::time::Duration;

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!(
    "the feature `planted` of anteroom-fault is for tests only: build without it, or with `--profile dev`"
);

/// Whether the fault of this name is on in this process: `fault!("cookie")`.
///
/// The name goes into the binary with the prefix `planted-fault:`, by which `packaging/build` proves that a package
/// holds none.
#[macro_export]
macro_rules! fault {
    ($name:literal) => {
        $crate::is_on(concat!("planted-fault:", $name))
    };
}

/// What [`fault!`] expands to; `name` has the prefix.
#[cfg(not(feature = "planted"))]
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub const fn is_on(name: &str) -> bool {
    let _ = name;
    false
}

/// What [`fault!`] expands to; `name` has the prefix.
#[cfg(feature = "planted")]
#[doc(hidden)]
#[must_use]
pub fn is_on(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("ANTEROOM_FAULT").ok()?;
        Some(format!("planted-fault:{name}"))
    });
    chosen.as_deref() == Some(name)
}

/// How long to wait for what has the time `limit`. That is `limit`; in a process of the tests with `ANTEROOM_PATIENCE`
/// in its environment it is so many times as long: what a recorded request does must not depend on whether a busy
/// machine had written something in time.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn patience(limit: Duration) -> Duration {
    limit
}

/// How long to wait for what has the time `limit`.
#[cfg(feature = "planted")]
#[must_use]
pub fn patience(limit: Duration) -> Duration {
    static TIMES: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let times = TIMES.get_or_init(|| {
        let said = std::env::var("ANTEROOM_PATIENCE").ok();
        said.and_then(|times| times.parse().ok()).unwrap_or(1)
    });
    limit.saturating_mul(*times)
}

/// Panics in a process of the tests that has `place` in `ANTEROOM_PANIC`: what a defect at this place does.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn may_panic(place: &str) {
    let _ = place;
}

/// Panics in a process of the tests that has `place` in `ANTEROOM_PANIC`: what a defect at this place does.
///
/// # Panics
/// See above.
#[cfg(feature = "planted")]
pub fn may_panic(place: &str) {
    static PLACE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = PLACE.get_or_init(|| std::env::var("ANTEROOM_PANIC").ok());
    assert!(chosen.as_deref() != Some(place), "planted");
}

/// Ends a process of the tests that has `place` in `ANTEROOM_CRASH`, as `kill -9` would: nothing is closed or written.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn may_crash(place: &str) {
    let _ = place;
}

/// Ends a process of the tests that has `place` in `ANTEROOM_CRASH`, as `kill -9` would: nothing is closed or written.
#[cfg(feature = "planted")]
pub fn may_crash(place: &str) {
    if std::env::var("ANTEROOM_CRASH").is_ok_and(|chosen| chosen == place) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_fault_is_on_by_itself() {
        assert!(!fault!("scheme"));
    }
}
