//! The cache against a model of it: visitors, an origin and a clock that do whatever chance says, and a
//! reference that knows what each visitor may be given.
//!
//! The proxy runs in this process, with real sockets and a real store, so that its clock can be set
//! forward. Each answer of the origin has a number, which stands in its head and all through its body;
//! each answer given is held against what the origin said, to whom, when, and what was purged since.
//!
//! `ANTEROOM_MODEL_STEPS` says how many steps are taken, `ANTEROOM_MODEL_SEED` by which seed: the one
//! that was printed makes the same choices again, as far as threads leave them to chance.
//!
//! Whether the model would find anything is what `tests/faults` asks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the way to fail, and unwrap says where"
)]

mod cast;
mod check;
mod origin;
mod play;
mod proxy;
mod rules;
mod world;

use play::Play;

/// Steps by default.
const STEPS: u64 = 4_000;

#[test]
fn every_answer_is_permitted_and_fresh() {
    let steps = number("ANTEROOM_MODEL_STEPS").unwrap_or(STEPS);
    let seed = number("ANTEROOM_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("ANTEROOM_MODEL_STEPS={steps} ANTEROOM_MODEL_SEED={seed}");
    let mut play = Play::new(seed);
    for _ in 0..steps {
        play.step();
        if let Some(wrong) = play.wrong() {
            panic!("{wrong}\nANTEROOM_MODEL_SEED={seed}");
        }
    }
    println!("{}", play.tally.text());
    play.tally.check();
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
