//! A process takes over from one that serves, with its store: what visitors have done counts on both sides, and whatever
//! fails, the old process serves on with all of it.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::disk::preload;
use crate::purge::purge;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, binary, log_in, on_both_stores};
use crate::support::wait_until;

const MINT: &str = "session.mint = true";

on_both_stores!(
    a_log_out_across_the_hand_over_is_not_lost,
    a_cart_is_filled_on_both_sides,
    a_log_in_across_the_hand_over_counts,
    a_purge_at_the_new_process_counts_at_the_old_one,
    a_change_at_the_old_process_counts_at_the_new_one,
    the_app_is_not_asked_again_about_a_visitor,
);

/// A shop that names the user, and holds what begins with `/held` until the gate is open.
fn held_shop(gate: &Arc<Gate>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |request| {
        if request.path().starts_with("/held") {
            gate.pass();
        }
        let reply = Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger"));
        let (path, value) = request.target.split_once('?').unwrap_or((&request.target, ""));
        match path {
            "/login" | "/held-login" => reply.header("Anteroom-Login", value),
            "/held-logout" => reply.header("Anteroom-Logout", "1"),
            "/buy" | "/held-buy" => reply.header("Anteroom-Cart", value),
            _ => reply,
        }
    })
}

fn user(proxy: &Proxy, cookie: &str) -> String {
    proxy.get("/").cookie(cookie).send().text()
}

/// Waits until `counts` if another process tells of it by way of Redis; the embedded store has told by now.
fn counts(storage: &Storage, counts: impl Fn() -> bool) {
    match storage {
        Storage::Embedded => assert!(counts()),
        Storage::Redis(_) => wait_until("it counts", counts),
    }
}

fn a_log_out_across_the_hand_over_is_not_lost(storage: &Storage) {
    let gate = Gate::closed();
    let origin = held_shop(&gate);
    let mut proxy = Proxy::start(&origin, storage, MINT);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    let mut open = proxy.post("/held-logout").cookie(&alice).start();
    wait_until("the app is asked", || origin.last().path() == "/held-logout");

    let mut old = proxy.take_over();

    assert_eq!(user(&proxy, &alice), "alice", "the app has not said so far");
    gate.open();
    assert_eq!(open.answer().status, 200);
    counts(storage, || user(&proxy, &alice) == "stranger");
    assert_eq!(user(&proxy, &bob), "bob");
    assert_eq!(old.exit_code(), Some(0));
}

fn a_log_in_across_the_hand_over_counts(storage: &Storage) {
    let gate = Gate::closed();
    let origin = held_shop(&gate);
    let mut proxy = Proxy::start(&origin, storage, MINT);
    let mut open = proxy.post("/held-login?alice").start();
    wait_until("the app is asked", || origin.count() == 1);
    let mut old = proxy.take_over();
    gate.open();
    let cookie = format!("login={}", open.answer().cookie("login").unwrap());
    assert_eq!(user(&proxy, &cookie), "alice");
    assert_eq!(old.exit_code(), Some(0));
}

fn a_cart_is_filled_on_both_sides(storage: &Storage) {
    let gate = Gate::closed();
    let origin = held_shop(&gate);
    let mut proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");
    assert_eq!(proxy.get("/buy?mug;count=2").cookie(&alice).send().status, 200);
    let mut open = proxy.get("/held-buy?cup;count=3").cookie(&alice).start();
    wait_until("the app is asked", || origin.last().path() == "/held-buy");
    let mut old = proxy.take_over();
    assert_eq!(proxy.get("/buy?pot;count=4").cookie(&alice).send().status, 200);
    gate.open();
    assert_eq!(open.answer().status, 200);
    let cart = proxy.get("/_anteroom/cart").cookie(&alice).send();
    for item in ["mug", "cup", "pot"] {
        assert!(cart.text().contains(item), "{}", cart.text());
    }
    assert_eq!(old.exit_code(), Some(0));
}

/// An app whose page tells how often it was changed: a POST counts, once the gate is open.
fn changing(gate: &Arc<Gate>) -> Origin {
    let (gate, changes) = (Arc::clone(gate), AtomicUsize::new(0));
    Origin::start(move |request| {
        if request.method == "POST" {
            gate.pass();
            changes.fetch_add(1, Ordering::SeqCst);
        }
        let page = format!("changed {} times", changes.load(Ordering::SeqCst));
        Reply::html(&page).header("Cache-Control", "max-age=300")
    })
}

fn a_purge_at_the_new_process_counts_at_the_old_one(storage: &Storage) {
    let gate = Gate::closed();
    gate.open();
    let origin = changing(&gate);
    // For as long as the connection is kept.
    let mut proxy = Proxy::start(&origin, storage, "limits.drain_delay = \"30s\"");
    let mut kept = proxy.connect();
    assert_eq!(proxy.get("/page").send_on(&mut kept).text(), "changed 0 times");
    wait_until("it is stored", || proxy.get("/page").send().is_hit());
    assert_eq!(proxy.post("/other").send().status, 200);
    let mut old = proxy.take_over();
    assert_eq!(proxy.get("/page").send().text(), "changed 0 times");

    purge(&proxy, &["/page"]);

    assert_eq!(proxy.get("/page").send().text(), "changed 1 times");
    let last = proxy.get("/page").send_on(&mut kept);
    assert_eq!((last.text(), last.header("connection")), ("changed 1 times".into(), Some("close")));
    assert_eq!(old.exit_code(), Some(0));
}

fn a_change_at_the_old_process_counts_at_the_new_one(storage: &Storage) {
    let gate = Gate::closed();
    let origin = changing(&gate);
    let mut proxy = Proxy::start(&origin, storage, "");
    let mut open = proxy.post("/page").start();
    wait_until("the app is asked", || origin.count() == 1);
    let mut old = proxy.take_over();
    wait_until("it is stored", || proxy.get("/page").send().is_hit());
    gate.open();
    assert_eq!(open.answer().text(), "changed 1 times");
    counts(storage, || proxy.get("/page").send().text() == "changed 1 times");
    assert_eq!(old.exit_code(), Some(0));
}

/// An app with sessions of its own, which is asked who a visitor is.
fn own_sessions() -> Origin {
    let users = Mutex::new(HashMap::from([("SID=sid-of-ann-1".to_owned(), "ann".to_owned())]));
    Origin::start(move |request| {
        let user = request.header("cookie").and_then(|sid| users.lock().unwrap().get(sid).cloned());
        match request.path() {
            "/whoami" => match user {
                Some(name) => Reply::typed("application/json", &format!(r#"{{"name":"{name}"}}"#)),
                None => Reply::typed("application/json", r#"{"id":0}"#),
            },
            _ => Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")),
        }
    })
}

const VERIFY: &str = r#"
session.cookie = "SID"
session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { json = "/id", equals = 0 }
"#;

fn the_app_is_not_asked_again_about_a_visitor(storage: &Storage) {
    let origin = own_sessions();
    let mut proxy = Proxy::start(&origin, storage, VERIFY);
    let questions = || origin.seen().iter().filter(|request| request.path() == "/whoami").count();
    let who = |proxy: &Proxy| proxy.get("/").cookie("SID=sid-of-ann-1").send().text();
    wait_until("the visitor is known", || who(&proxy) == "ann");
    assert_eq!(questions(), 1);
    let mut old = proxy.take_over();
    assert_eq!(who(&proxy), "ann");
    assert_eq!(questions(), 1);
    assert_eq!(old.exit_code(), Some(0));
}

#[test]
fn whenever_the_new_process_is_killed_the_old_one_has_everything() {
    let origin = held_shop(&Gate::closed());
    let mut proxy = Proxy::embedded(&origin, MINT);
    let mut sessions = vec![("alice".to_owned(), log_in(&proxy, "alice"))];
    let places =
        ["sockets", "prepared", "released", "opened", "ready", "commit", "writes", "accepting"];
    for (place, failed) in places.iter().zip(1..) {
        let status = proxy.successor().env("ANTEROOM_CRASH", place).status().unwrap();
        assert_eq!(status.code(), None, "{place}");
        wait_until("the old process has noticed", || {
            proxy.metric("anteroom_upgrades_failed_total") == f64::from(failed)
        });
        for (name, cookie) in &sessions {
            assert_eq!(&user(&proxy, cookie), name, "{place}");
        }
        sessions.push(((*place).to_owned(), log_in(&proxy, place)));
    }
    let mut old = proxy.take_over();
    for (name, cookie) in &sessions {
        assert_eq!(&user(&proxy, cookie), name);
    }
    assert_eq!(old.exit_code(), Some(0));
}

#[test]
fn an_old_process_that_is_killed_between_leaves_the_store_whole() {
    let origin = held_shop(&Gate::closed());
    let line = "export ANTEROOM_CRASH=given";
    let mut proxy = Proxy::behind_on(line, &origin, &Storage::Embedded, MINT);
    let alice = log_in(&proxy, "alice");
    // The new process ends, too: a service manager would not know it, and starts another.
    assert_eq!(proxy.successor().status().unwrap().code(), Some(1));
    assert_eq!(proxy.exit_code(), None);
    proxy.restart();
    assert_eq!(user(&proxy, &alice), "alice");
}

/// The file of sessions cannot be opened: the disk is full.
const FULL: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (strstr(path, "sessions.redb")) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
"#;

#[test]
fn a_process_that_cannot_open_the_store_gives_it_back() {
    let folder = TempDir::new().unwrap();
    let (environment, _) = preload(folder.path(), FULL);
    let origin = held_shop(&Gate::closed());
    let mut proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    let line = format!("{environment}; exec \"$0\" run --config proxy.toml --take-over");
    let mut command = Command::new("sh");
    command.args(["-c", &line, binary()]).current_dir(proxy.folder()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be written"), "{said}");
    proxy.wait_for_complaint("No space left on device");
    assert_eq!(user(&proxy, &alice), "alice");
    let bob = log_in(&proxy, "bob");
    let mut old = proxy.take_over();
    assert_eq!(user(&proxy, &alice), "alice");
    assert_eq!(user(&proxy, &bob), "bob");
    assert_eq!(old.exit_code(), Some(0));
}

/// A second process is refused the folder.
fn is_refused(proxy: &Proxy) {
    let mut command = anteroom();
    command.args(["run", "--store=embedded:./data", "--listen=127.0.0.1:0", "--admin=off"]);
    command.args(["--origin=http://127.0.0.1:9"]);
    let output = command.current_dir(proxy.folder()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("is in use by another process"), "{said}");
}

#[test]
fn the_folder_has_one_owner_all_the_while() {
    let gate = Gate::closed();
    let origin = held_shop(&gate);
    let mut proxy = Proxy::embedded(&origin, MINT);
    let mut open = proxy.get("/held").start();
    wait_until("the app is asked", || origin.count() == 1);
    is_refused(&proxy);
    let mut old = proxy.take_over();
    // The old process has it no more, and goes on.
    is_refused(&proxy);
    gate.open();
    assert_eq!(open.answer().text(), "stranger");
    assert_eq!(old.exit_code(), Some(0));
}
