//! What the cases share: real processes on free loopback ports, and waiting for conditions.
//!
//! No test lives here, and nothing that knows how the proxy is written inside: this crate does not link it. The
//! black-box tests (`tests/it`, `tests/leaks`) and those of the library (`tests/library`) use it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::new_without_default,
    clippy::should_implement_trait,
    missing_docs,
    missing_debug_implementations,
    reason = "in a test a panic is the way to fail, and unwrap says where; only tests use this"
)]

pub mod acme;
pub mod acme2certifier;
pub mod apps;
pub mod client;
pub mod cluster;
pub mod database;
pub mod every_key;
pub mod frames;
pub mod haproxy;
pub mod http2_client;
mod keyspace;
pub mod nginx;
pub mod on_cluster;
pub mod origin;
pub mod pebble;
mod port;
pub mod program;
pub mod proxy;
pub mod redis;
pub mod relay;
pub mod sentinel;
pub mod tap;
pub mod tls;
pub mod upstream;
pub mod varnish;
pub mod wire;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use port::free_port;

/// The top folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in it")
}

/// The Python that has the modules of `tests/interop/requirements.txt`.
pub fn python() -> OsString {
    std::env::var_os("ANTEROOM_PYTHON").unwrap_or_else(|| "python3".into())
}

/// Compares a generated file of the repository with what it is generated from. With `ANTEROOM_DOCS=record` the
/// file is rewritten.
#[track_caller]
pub fn fixed_text(file: &str, text: &str) {
    let path = root().join(file);
    if std::env::var("ANTEROOM_DOCS").is_ok_and(|word| word == "record") {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        written == text,
        "{file} is out of date at {differs:?}; ANTEROOM_DOCS=record cargo nextest run reference:: rewrites it"
    );
}

/// The first block of a guide in this language that begins so.
#[track_caller]
pub fn guide_block(guide: &str, language: &str, beginning: &str) -> String {
    let path = root().join("docs/guides").join(guide);
    let text = fs::read_to_string(path).unwrap();
    let opening = format!("```{language}\n{beginning}");
    let (_, block) = text.split_once(&opening).unwrap_or_else(|| panic!("{opening} in {guide}"));
    let (block, _) = block.split_once("```").expect("its end");
    format!("{beginning}{block}")
}

/// What stands in a guide below a heading of the second level.
#[track_caller]
pub fn guide_section(guide: &str, heading: &str) -> String {
    let path = root().join("docs/guides").join(guide);
    let text = fs::read_to_string(path).unwrap();
    let opening = format!("\n## {heading}\n");
    let (_, section) = text.split_once(&opening).unwrap_or_else(|| panic!("{heading} in {guide}"));
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "what the proxy says is compared with the system's clock"
)]
pub fn unix_now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// How long anything may take before a case gives it up.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// Waits until `holds`, and panics with `what` when it does not within [`DEADLINE`].
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_within(DEADLINE, what, holds);
}

/// The same with another deadline.
pub fn wait_within(limit: Duration, what: &str, holds: impl FnMut() -> bool) {
    assert!(holds_within(limit, holds), "not within {limit:?}: {what}");
}

/// Waits until `holds`; false if it does not within the limit.
#[expect(clippy::disallowed_methods, reason = "the pause between two looks at the condition")]
pub fn holds_within(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !holds() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// What "within a second" may take, and a moment in which a clock ticks.
pub const A_SECOND: Duration = Duration::from_millis(1_100);

/// How long the old result was seen after `order` returned: `before` asks for it. Requests are sent all the while, so
/// that the proxy has had no reason to look again.
pub fn old_result_seen_for(order: impl FnOnce(), before: impl Fn() -> bool + Sync) -> Duration {
    let (is_on, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut last = begun;
            loop {
                let sent = Instant::now();
                if !before() {
                    return last;
                }
                last = sent;
                is_on.store(true, Ordering::SeqCst);
                assert!(begun.elapsed() < 2 * DEADLINE, "it is as it was before");
            }
        });
        wait_until("it is as before", || is_on.load(Ordering::SeqCst) || asking.is_finished());
        order();
        let given = Instant::now();
        asking.join().unwrap().saturating_duration_since(given)
    })
}

/// Runs `job` on `count` threads at once, each told its number, and returns what they returned.
pub fn at_once<T: Send>(count: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(count);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let (start, job) = (&start, &job);
                scope.spawn(move || {
                    start.wait();
                    job(number)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
