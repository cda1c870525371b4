//! Clocks that are wrong, and clocks that step: they log no one out, and keep no page.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, shop};
use crate::support::wait_until;

const MINT: &str = "session.mint = true\nsession.idle_timeout = \"2h\"";
const DAY: f64 = 86_400.0;

/// The system's clock of a proxy, as libfaketime tells it. The monotonic clock is the real one.
struct Clock {
    folder: TempDir,
}

impl Clock {
    /// One that is this far from the real one: `+1d`.
    fn at(offset: &str) -> Self {
        let clock = Self { folder: TempDir::new().unwrap() };
        clock.step_to(offset);
        clock
    }

    /// In one step, so that no reader meets half of it.
    fn step_to(&self, offset: &str) {
        let next = self.folder.path().join("next");
        fs::write(&next, format!("{offset}\n")).unwrap();
        fs::rename(next, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    /// What a shell carries out before the proxy starts.
    fn line(&self) -> String {
        format!(
            "export LD_PRELOAD=$(echo /usr/lib/*/faketime/libfaketimeMT.so.1) FAKETIME_NO_CACHE=1 \
             FAKETIME_DONT_RESET=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1 \
             FAKETIME_TIMESTAMP_FILE={}",
            self.file().display()
        )
    }
}

/// An app whose pages name the visitor.
fn app() -> Origin {
    shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("unknown")))
}

fn user(proxy: &Proxy, cookie: &str) -> String {
    proxy.get("/").cookie(cookie).send().text()
}

fn cleaned(proxy: &Proxy) -> f64 {
    proxy.metric("anteroom_sessions_cleaned_total")
}

fn difference(proxy: &Proxy) -> f64 {
    proxy.metric("anteroom_clock_difference_seconds")
}

fn fleet(proxy: &Proxy) -> (bool, String) {
    let mut command = anteroom();
    let output = command.args(["fleet", "--config", "proxy.toml"]).current_dir(proxy.folder());
    let output = output.output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_proxy_whose_clock_is_ahead_ends_no_session_of_the_fleet() {
    let (app, storage, clock) = (app(), Storage::redis(), Clock::at("+1d"));
    let first = Proxy::start(&app, &storage, MINT);
    let ann = log_in(&first, "ann");
    assert!(fleet(&first).0, "one proxy, and one time");
    let settings = format!("{MINT}\nsession.max_sessions = 2");
    let ahead = Proxy::behind_on(&clock.line(), &app, &storage, &settings);
    ahead.wait_for_complaint("the clock of this machine is +86400 s from that of the store");
    assert!((difference(&ahead) - DAY).abs() < 100.0, "{}", difference(&ahead));
    assert!(difference(&first) < 100.0);
    let (is_fine, said) = fleet(&first);
    assert!(!is_fine && said.contains("its clock or that of the store is wrong"), "{said}");
    // A session over the limit shows that its cleaner runs, and that it takes the oldest.
    drop(first);
    let ben = log_in(&ahead, "ben");
    assert_eq!([user(&ahead, &ann), user(&ahead, &ben)], ["ann", "ben"]);
    let cat = log_in(&ahead, "cat");
    wait_until("the oldest session makes room", || cleaned(&ahead) >= 1.0);
    assert_eq!([user(&ahead, &ben), user(&ahead, &cat)], ["ben", "cat"]);
    assert!((cleaned(&ahead) - 1.0).abs() < 0.5);
    // Its visits have the store's time: one whose clock is right finds nothing from the future.
    let right = Proxy::start(&app, &storage, MINT);
    assert_eq!([user(&right, &ben), user(&right, &cat)], ["ben", "cat"]);
}

#[test]
fn a_clock_that_jumps_ahead_ends_no_session_until_it_is_accepted() {
    let (app, clock) = (app(), Clock::at("+0"));
    let proxy = Proxy::behind_with(&clock.line(), &app, MINT);
    let cookie = log_in(&proxy, "ann");
    clock.step_to("+1d");
    proxy.wait_for_complaint("the clock of this machine stepped by +86400 s");
    assert_eq!(user(&proxy, &cookie), "ann");
    clock.step_to("+0");
    wait_until("the step is taken back", || difference(&proxy) < 100.0);
    assert_eq!((user(&proxy, &cookie), cleaned(&proxy)), ("ann".to_owned(), 0.0));
    // A step that an operator accepts counts.
    clock.step_to("+1d");
    wait_until("the step is seen", || difference(&proxy) > 100.0);
    assert!(proxy.reload());
    wait_until("the session is over", || user(&proxy, &cookie) == "unknown");
    proxy.wait_for_complaint("kept its step of +86400 s");
}

#[test]
fn a_clock_that_is_set_back_keeps_no_page() {
    let app = Origin::start(|_| Reply::html("page").header("Cache-Control", "max-age=3"));
    let clock = Clock::at("+0");
    let proxy = Proxy::behind_with(&clock.line(), &app, "");
    wait_until("a page is stored", || proxy.get("/").send().is_hit());
    let before = app.seen().len();
    clock.step_to("-1d");
    wait_until("it is fetched again", || {
        proxy.get("/").send();
        app.seen().len() > before
    });
    proxy.wait_for_complaint("the clock of this machine stepped by -86400 s");
}

#[test]
fn a_session_from_the_future_ends_when_it_is_idle() {
    let (app, clock) = (app(), Clock::at("+1d"));
    let settings = "session.mint = true\nsession.idle_timeout = \"4s\"";
    let mut proxy = Proxy::behind_with(&clock.line(), &app, settings);
    let cookie = log_in(&proxy, "ann");
    // Without the library: by then its clock has been set back by a day.
    proxy.restart();
    wait_until("the session is over", || cleaned(&proxy) > 0.0);
    assert_eq!(user(&proxy, &cookie), "unknown");
}
