//! The bypass switch: requests are forwarded, and the cache neither serves nor stores, in every proxy on the store.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{
    Proxy, Storage, anteroom, log_in, on_all_stores_and_with_every_key, shop,
};
use crate::support::redis::RedisServer;
use crate::support::relay::Relay;
use crate::support::{free_port, unix_now, wait_until};

on_all_stores_and_with_every_key!(
    the_cache_neither_serves_nor_stores,
    a_switch_is_for_its_route,
    a_switch_ends_by_itself,
    a_change_meanwhile_is_purged,
    a_restarted_proxy_begins_with_it,
    a_users_pages_are_not_stored_and_the_session_goes_on,
    what_was_purged_is_not_warmed,
    a_fetch_under_way_is_not_stored,
);

fn bypass(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("bypass").args(words).args(["--config", "proxy.toml"]);
    command.current_dir(proxy.folder()).env("SUDO_USER", "ann").output().unwrap()
}

/// What a command prints that works.
fn done(proxy: &Proxy, words: &[&str]) -> String {
    let output = bypass(proxy, words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The error of a command that fails.
fn refused(proxy: &Proxy, words: &[&str]) -> String {
    let output = bypass(proxy, words);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn is_bypassed(answer: &Answer) -> bool {
    answer.cache_status().contains("fwd=bypass") && answer.cache_status().contains("bypass-switch")
}

/// An origin whose pages are fresh for minutes, and tell how many requests there were before.
fn counting() -> Origin {
    let requests = AtomicUsize::new(0);
    Origin::start(move |request| {
        let page = format!("{} {}", request.target, requests.fetch_add(1, Ordering::SeqCst));
        match request.method.as_str() {
            "POST" => Reply::unstored("changed"),
            _ => Reply::html(&page).header("Cache-Control", "max-age=300"),
        }
    })
}

/// Requests a page until it comes from memory; returns what it holds.
fn store(proxy: &Proxy, target: &str) -> String {
    wait_until("the page is stored", || proxy.get(target).send().is_hit());
    proxy.get(target).send().text()
}

fn the_cache_neither_serves_nor_stores(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, "");
    let before = store(&proxy, "/a");
    assert_eq!(done(&proxy, &[]), "off: every route uses the cache\n");
    let told = done(&proxy, &["on", "--for", "1h"]);
    assert!(told.starts_with("on: all routes  for ") && told.ends_with("  by ann\n"), "{told}");
    let asked = origin.count();
    for target in ["/a", "/a", "/new", "/new"] {
        let answer = proxy.get(target).send();
        assert!(is_bypassed(&answer), "{}", answer.cache_status());
        assert_ne!(answer.text(), before);
    }
    assert_eq!(origin.count(), asked + 4);
    assert!(!is_bypassed(&proxy.post("/form").send()), "a POST has a reason of its own");
    assert_eq!(proxy.metric("anteroom_bypass{route=\"*\"}"), 1.0);
    let listed: Value = serde_json::from_str(&done(&proxy, &["--json"])).unwrap();
    let only = &listed["bypasses"][0];
    assert_eq!((&only["route"], only["by"].as_str()), (&Value::Null, Some("ann")));
    let left = only["until"].as_f64().unwrap() - unix_now();
    assert!((3_000.0..=3_601.0).contains(&left), "{left}");
    let explained = explain(&proxy, "http://shop.test/a");
    assert!(explained.contains("bypass-switch") && explained.contains("by ann"), "{explained}");

    assert_eq!(done(&proxy, &["off"]), "off: every route uses the cache\n");
    let after = proxy.get("/a").send();
    assert!(after.is_hit(), "{}", after.cache_status());
    assert_eq!(after.text(), before);
    assert!(!proxy.get("/new").send().is_hit(), "it was not stored");
    assert_eq!(proxy.metric("anteroom_bypass{route=\"*\"}"), 0.0);
    wait_until("both are logged", || {
        let log = proxy.complaints();
        log.contains("the bypass switch was turned on") && log.contains("turned off")
    });
}

fn explain(proxy: &Proxy, target: &str) -> String {
    let mut command = anteroom();
    command.args(["explain", target, "--config", "proxy.toml"]).current_dir(proxy.folder());
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

fn a_switch_is_for_its_route(storage: &Storage) {
    let routes = "[[route]]\nname = \"shop\"\nmatch.path = \"/shop/**\"\n\
                  [[route]]\nname = \"blog\"\nmatch.path = \"/blog/**\"";
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, routes);
    let targets = ["/shop/a", "/blog/a", "/a"];
    for target in targets {
        store(&proxy, target);
    }
    let states = || targets.map(|target| is_bypassed(&proxy.get(target).send()));
    let error = refused(&proxy, &["on", "--route", "shpo"]);
    assert!(error.contains("did you mean \"shop\"?"), "{error}");
    done(&proxy, &["on", "--route", "shop", "--for", "10m"]);
    assert_eq!(states(), [true, false, false]);
    assert_eq!(proxy.metric("anteroom_bypass{route=\"shop\"}"), 1.0);
    assert_eq!(proxy.metric("anteroom_bypass{route=\"*\"}"), 0.0);
    done(&proxy, &["on", "--for", "10m"]);
    assert_eq!(states(), [true; 3]);
    let told = done(&proxy, &["off", "--route", "shop"]);
    assert!(told.contains("on: all routes") && !told.contains("route shop"), "{told}");
    assert_eq!(states(), [true; 3]);
    done(&proxy, &["on", "--route", "blog", "--for", "10m"]);
    done(&proxy, &["off"]);
    assert_eq!(states(), [false; 3], "it ends every switch");
    for (words, wrong) in
        [(["on", "--for", "0s"], "from 1s to 7d"), (["on", "--for", "8d"], "from 1s to 7d")]
    {
        let output = bypass(&proxy, &words);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong));
    }
}

fn a_switch_ends_by_itself(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, "");
    store(&proxy, "/a");
    done(&proxy, &["on", "--for", "5s"]);
    assert!(is_bypassed(&proxy.get("/a").send()));
    wait_until("it has ended", || proxy.get("/a").send().is_hit());
    assert_eq!(done(&proxy, &[]), "off: every route uses the cache\n");
    wait_until("that is logged", || proxy.complaints().contains("the bypass switch is off"));
}

fn a_change_meanwhile_is_purged(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, "");
    let before = ["/changed", "/purged", "/kept"].map(|target| store(&proxy, target));
    done(&proxy, &["on"]);
    proxy.post("/changed").send();
    let mut command = anteroom();
    command.args(["purge", "/purged", "--config", "proxy.toml"]).current_dir(proxy.folder());
    assert!(command.status().unwrap().success());
    done(&proxy, &["off"]);
    let after = ["/changed", "/purged", "/kept"].map(|target| proxy.get(target).send().text());
    assert_ne!(after[0], before[0]);
    assert_ne!(after[1], before[1]);
    assert_eq!(after[2], before[2]);
}

fn a_restarted_proxy_begins_with_it(storage: &Storage) {
    let origin = counting();
    let mut proxy = Proxy::start(&origin, storage, "");
    done(&proxy, &["on"]);
    proxy.restart();
    let first = proxy.get("/a").send();
    assert!(is_bypassed(&first), "{}\n{}", first.cache_status(), proxy.complaints());
    done(&proxy, &["off"]);
    store(&proxy, "/a");
    proxy.restart();
    assert!(!is_bypassed(&proxy.get("/a").send()));
}

fn a_users_pages_are_not_stored_and_the_session_goes_on(storage: &Storage) {
    let requests = AtomicUsize::new(0);
    let origin = shop(move |request| {
        let user = request.header("x-anteroom-user").unwrap_or("stranger");
        let page = format!("{user} {}", requests.fetch_add(1, Ordering::SeqCst));
        Reply::html(&page).header("Cache-Control", "max-age=300")
    });
    let settings = "session.mint = true\n[[route]]\nmatch.path = \"/mine\"\nshare = \"user\"";
    let proxy = Proxy::start(&origin, storage, settings);
    done(&proxy, &["on"]);
    let login = log_in(&proxy, "alice");
    let get = || proxy.get("/mine").cookie(&login).send();
    let answers = [get(), get()];
    assert!(answers.iter().all(is_bypassed), "{}", answers[1].cache_status());
    assert!(answers.iter().all(|answer| answer.text().starts_with("alice ")));
    assert_ne!(answers[0].text(), answers[1].text());
    done(&proxy, &["off"]);
    let first = get();
    assert!(!first.is_hit(), "none was stored");
    wait_until("it is stored now", || get().is_hit());
    assert!(get().text().starts_with("alice "));
    assert!(!proxy.get("/mine").send().text().starts_with("alice"));
}

fn what_was_purged_is_not_warmed(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, "cache.warm_after_purge = 20");
    store(&proxy, "/a");
    done(&proxy, &["on"]);
    let asked = origin.count();
    let mut command = anteroom();
    command.args(["purge", "--all", "--config", "proxy.toml"]).current_dir(proxy.folder());
    assert!(command.status().unwrap().success());
    let failed = || proxy.metric("anteroom_pages_warm_failed_total");
    wait_until("it is given up", || failed() >= 1.0);
    assert_eq!(origin.count(), asked);
}

fn a_fetch_under_way_is_not_stored(storage: &Storage) {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::html("slow").header("Cache-Control", "max-age=300")
    });
    let proxy = Proxy::start(&origin, storage, "");
    let mut waiting = proxy.get("/slow").start();
    wait_until("the app was asked", || origin.count() == 1);
    done(&proxy, &["on"]);
    gate.open();
    assert_eq!(waiting.answer().text(), "slow");
    done(&proxy, &["off"]);
    let after = proxy.get("/slow").send();
    assert!(!after.is_hit(), "{}", after.cache_status());
}

/// Two proxies on one Redis.
fn pair(server: &RedisServer, origin: &Origin) -> [Proxy; 2] {
    let settings = format!("store.url = \"{}\"", server.url());
    [(), ()].map(|()| Proxy::with_settings(origin, &settings))
}

#[test]
fn every_proxy_on_the_store_follows() {
    let (server, origin) = (RedisServer::start(), counting());
    let [first, second] = pair(&server, &origin);
    store(&second, "/a");
    done(&first, &["on", "--for", "10m"]);
    wait_until("the other follows", || is_bypassed(&second.get("/a").send()));
    assert!(done(&second, &[]).contains("by ann"));
    wait_until("it is logged", || second.complaints().contains("the bypass switch is on"));
    let lives: i64 = server.command(&["PTTL", "bypass:"]);
    assert!((1..=600_000).contains(&lives), "{lives}");
    let late = Proxy::with_settings(&origin, &format!("store.url = \"{}\"", server.url()));
    assert!(is_bypassed(&late.get("/a").send()), "a proxy that starts knows it");
    done(&second, &["off"]);
    for proxy in [&first, &late] {
        wait_until("it is off", || !is_bypassed(&proxy.get("/a").send()));
    }
    assert!(second.get("/a").send().is_hit());
}

#[test]
fn a_proxy_that_misses_the_message_follows() {
    let (server, origin) = (RedisServer::start(), counting());
    let [proxy, _] = pair(&server, &origin);
    store(&proxy, "/a");
    let until = (unix_now() * 1000.0) as u64 + 600_000;
    server.command::<i64>(&["HSET", "bypass:", "*", &format!("1 {until} bob")]);
    wait_until("it is on", || is_bypassed(&proxy.get("/a").send()));
    server.command::<i64>(&["DEL", "bypass:"]);
    wait_until("it is off", || proxy.get("/a").send().is_hit());
    // Another program's key harms nothing.
    server.command::<()>(&["SET", "bypass:", "text"]);
    let purge = || proxy.ask("POST", "/a").send();
    purge();
    wait_until("purges are still heard", || proxy.metric("anteroom_purges_waiting") == 0.0);
    wait_until("they are complete", || proxy.metric("anteroom_cut_off") == 0.0);
}

#[test]
fn without_the_store_a_known_switch_stays_and_a_new_one_is_of_this_proxy_alone() {
    let (mut server, origin) = (RedisServer::start(), counting());
    let [first, second] = pair(&server, &origin);
    let is_away = |proxy: &Proxy| proxy.metric("anteroom_store_connected") == 0.0;
    done(&first, &["on", "--for", "10m"]);
    wait_until("the other follows", || is_bypassed(&second.get("/a").send()));
    server.kill();
    wait_until("the store is away", || is_away(&first) && is_away(&second));
    for proxy in [&first, &second] {
        wait_until("purges are cut off", || proxy.metric("anteroom_cut_off") == 1.0);
        assert!(is_bypassed(&proxy.get("/a").send()));
    }
    let error = refused(&first, &["off"]);
    assert!(error.contains("in this proxy alone"), "{error}");
    assert!(!is_bypassed(&first.get("/a").send()));
    assert!(is_bypassed(&second.get("/a").send()));
    refused(&first, &["on", "--for", "10m"]);
    assert!(is_bypassed(&first.get("/a").send()));
    assert!(done(&first, &[]).contains("in this proxy alone"));
    server.restart();
    wait_until("the store is back", || !is_away(&first) && !is_away(&second));
    wait_until("it takes the command", || bypass(&first, &["off"]).status.success());
    for proxy in [&first, &second] {
        wait_until("it is off", || !is_bypassed(&proxy.get("/a").send()));
    }
}

#[test]
fn a_change_in_this_proxy_alone_is_sent_when_the_store_is_back() {
    let (server, origin) = (RedisServer::start(), counting());
    let relay = Relay::start(server.port());
    let near = format!("store.url = \"{}\"", server.url());
    let far = format!("store.url = \"redis://127.0.0.1:{}\"", relay.port());
    let (one, other) = (Proxy::with_settings(&origin, &near), Proxy::with_settings(&origin, &far));
    store(&one, "/a");
    relay.hold();
    wait_until("it is cut off", || other.metric("anteroom_cut_off") == 1.0);
    let error = refused(&other, &["on", "--for", "10m"]);
    assert!(error.contains("in this proxy alone") && error.contains("they follow"), "{error}");
    assert!(is_bypassed(&other.get("/a").send()) && one.get("/a").send().is_hit());
    // What is left of its time is sent, and not the whole time again.
    let listed = |proxy: &Proxy| {
        let listed: Value = serde_json::from_str(&done(proxy, &["--json"])).unwrap();
        listed["bypasses"][0].clone()
    };
    let ends = listed(&other)["until"].as_f64().unwrap();

    relay.pass();
    wait_until("the other proxy follows", || is_bypassed(&one.get("/a").send()));
    wait_until("it is known to be shared", || listed(&other)["only_here"].is_null());
    for proxy in [&one, &other] {
        let until = listed(proxy)["until"].as_f64().unwrap();
        assert!((until - ends).abs() < 1.0, "{until} {ends}");
        assert_eq!(listed(proxy)["by"], "ann");
    }
    // Held answers are not enough: the store would take the order, and the answer be late.
    relay.lead_to(free_port());
    server.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    wait_until("it is cut off", || other.metric("anteroom_cut_off") == 1.0);
    let error = refused(&other, &["off"]);
    assert!(error.contains("they follow"), "{error}");
    assert!(!is_bypassed(&other.get("/a").send()) && is_bypassed(&one.get("/a").send()));
    relay.lead_to(server.port());
    for proxy in [&one, &other] {
        wait_until("it is off", || !is_bypassed(&proxy.get("/a").send()));
    }
}

#[test]
fn the_switch_needs_the_token_over_tcp() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "operators-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", file.display());
    let origin = counting();
    let proxy = Proxy::embedded(&origin, &settings);
    let body = br#"{"on":true,"for":60.0,"route":null}"#;
    assert_eq!(proxy.admin("/bypass").method("POST").body(body).send().status, 401);
    assert_eq!(proxy.admin("/bypass").send().status, 401);
    let with_token = || proxy.admin("/bypass").header("Authorization", "Bearer operators-token");
    let answer = with_token().method("POST").body(body).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let listed: Value = serde_json::from_str(&with_token().send().text()).unwrap();
    assert_eq!(listed["bypasses"][0]["route"], Value::Null);
    assert!(is_bypassed(&proxy.get("/a").send()));
    for wrong in [&br#"{"on":true,"for":0}"#[..], br#"{"on":true,"for":604801}"#, br#"{"for":1}"#] {
        assert_eq!(with_token().method("POST").body(wrong).send().status, 400);
    }
}
