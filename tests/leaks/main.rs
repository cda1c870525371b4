//! No byte of one user's in another's answer: visitors of an app with sessions of its own, before real
//! proxies, act at random.
//!
//! Everything personal bears a mark that nothing else bears: names, addresses, session ids, carts, what a
//! browser brings beside its session, and a secret on each personal page, some of which say no name. Visitors
//! ask for pages of every kind in bursts, over connections that all share, log in and out, change things,
//! fill carts before they log in and find them behind it, and no more behind the logout; pages are purged,
//! sessions revoked; the app fails, Redis is stopped or killed, a proxy is killed, each in turn. Each answer,
//! whole or not, is searched for marks of others, and a page is held byte for byte against what the app said.
//! A login or logout of a second ago holds at every proxy: at once at the proxy of a logout, and also
//! where the store heard of the logout later. The app checks which user it is told of, and that it is not
//! shown the cookie by which visitors without a login have their carts. Where all is well an error is wrong,
//! too. `check` has what is promised, `tally` how much of each has to come.
//!
//! It is played by two proxies on one Redis and by one on the embedded store. `ANTEROOM_LEAKS_STEPS` says how
//! many steps each takes, `ANTEROOM_LEAKS_SEED` by which seed: the one that was printed makes the same choices
//! again, as far as threads leave them to chance. `tests/faults` turns on leaks that this one must
//! find: with `ANTEROOM_LEAKS_SOUGHT`, a regular expression, what is wrong otherwise is passed over.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "in a test a panic is the way to fail, unwrap says where, and the seed is to be seen"
)]

mod app;
mod check;
mod play;
mod tally;
mod world;

use anteroom_tests as support;
use play::Play;
use regex::Regex;
use support::proxy::Storage;

/// Steps by default.
const STEPS: u64 = 160;

#[test]
fn two_proxies_on_redis_show_no_visitor_the_data_of_another() {
    play(Storage::redis(), 2);
}

#[test]
fn a_proxy_on_the_embedded_store_shows_no_visitor_the_data_of_another() {
    play(Storage::Embedded, 1);
}

fn play(storage: Storage, proxies: usize) {
    let steps = number("ANTEROOM_LEAKS_STEPS").unwrap_or(STEPS);
    let seed = number("ANTEROOM_LEAKS_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("ANTEROOM_LEAKS_STEPS={steps} ANTEROOM_LEAKS_SEED={seed}");
    let sought = std::env::var("ANTEROOM_LEAKS_SOUGHT").ok();
    let sought = sought.map(|sought| Regex::new(&sought).unwrap());
    let mut play = Play::new(seed, storage, proxies, sought);
    for step in 0..=steps {
        match step {
            _ if step < steps => play.step(),
            _ => play.end(),
        }
        if let Some(wrong) = play.wrong() {
            panic!("{wrong}\nANTEROOM_LEAKS_SEED={seed}");
        }
    }
    if let Some(wrong) = &play.passed_over {
        println!("passed over: {wrong}");
    }
    println!("{}", play.tally.text());
    play.tally.check();
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
