//! The store of running proxies is moved: nobody is logged out, and no acknowledged change is lost.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::cluster::RedisCluster;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, shop};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

/// A look-up waits for the store for as long as it takes on a busy machine.
const MINT: &str = "session.mint = true\nstore.timeout = \"5s\"";

fn migrate(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.args(["store", "migrate"]).args(words).args(["--config", "proxy.toml"]);
    command.current_dir(proxy.folder()).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn moved(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    out.into_owned()
}

#[track_caller]
fn refused(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(1), "{out}\n{err}");
    err.into_owned()
}

fn app() -> Origin {
    shop(|request| Reply::unstored(request.header("X-Anteroom-User").unwrap_or("stranger")))
}

fn purge_all(proxy: &Proxy) {
    let purge = anteroom()
        .args(["purge", "--all", "--hard", "--config", "proxy.toml"])
        .current_dir(proxy.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&purge.stdout).into_owned();
    assert!(said.contains("confirmed by every proxy"), "{said}");
}

/// Whom the app sees.
fn seen(proxy: &Proxy, cookie: &str) -> String {
    proxy.get("/").cookie(cookie).send().text()
}

fn put(proxy: &Proxy, cookie: &str, count: i64) -> u16 {
    let ask = proxy.ask("PUT", "/_anteroom/cart").header("Sec-Fetch-Site", "same-origin");
    let ask = ask.header("Content-Type", "application/json").cookie(cookie);
    ask.body(json!({"item": "mug", "count": count}).to_string().as_bytes()).send().status
}

fn in_cart(proxy: &Proxy, cookie: &str) -> i64 {
    let answer = proxy.get("/_anteroom/cart").cookie(cookie).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let cart: Value = serde_json::from_slice(&answer.body.bytes).unwrap();
    cart["items"].as_array().unwrap().first().map_or(0, |line| line["count"].as_i64().unwrap())
}

/// What a crowd was told: each cookie with the count in its cart, or that it is logged out.
type Promises = Mutex<BTreeMap<String, Option<i64>>>;

/// One visitor after another logs in, fills the cart, comes back, and one in three logs out, until `stop`.
fn crowd(proxies: &[Proxy], told: &Promises, rounds: &AtomicUsize, stop: &AtomicBool) {
    let mut own: Vec<String> = Vec::new();
    let number = |round: usize| format!("visitor{:?}-{round}", thread::current().id());
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let proxy = &proxies[round % proxies.len()];
        let user = number(round).replace(['(', ')'], "");
        let answer = proxy.post(&format!("/login?{user}")).send();
        // A login that cannot be written is refused, and nothing is promised.
        if let Some(token) = answer.cookie("login") {
            let cookie = format!("login={token}");
            // A change that fails may or may not be there.
            if put(proxy, &cookie, 1) == 200 {
                told.lock().unwrap().insert(cookie.clone(), Some(1));
            }
            own.push(cookie);
        } else {
            assert_eq!(answer.status, 503, "{}", answer.text());
        }
        let other = &proxies[(round + 1) % proxies.len()];
        let Some(cookie) = own.get(round / 2).cloned() else { continue };
        if round % 3 == 0 {
            let answer = other.post("/logout").cookie(&cookie).send();
            if answer.status == 303 {
                told.lock().unwrap().insert(cookie, None);
            }
        } else if matches!(told.lock().unwrap().get(&cookie), Some(Some(_))) {
            // A change that fails may or may not be there.
            match put(other, &cookie, round as i64 + 2) {
                200 => told.lock().unwrap().insert(cookie, Some(round as i64 + 2)),
                _ => told.lock().unwrap().remove(&cookie),
            };
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asserts that every proxy knows what the crowd was told.
fn assert_kept(proxies: &[Proxy], told: &BTreeMap<String, Option<i64>>) {
    for (cookie, count) in told {
        for proxy in proxies {
            match count {
                Some(count) => assert_eq!(in_cart(proxy, cookie), *count, "{cookie}"),
                None => {
                    let answer = proxy.get("/_anteroom/cart").cookie(cookie).send();
                    assert_eq!(answer.status, 401, "{cookie}: {}", answer.text());
                }
            }
        }
    }
}

/// Moves the store of `proxies` while a crowd is at work, and asserts that nothing is lost.
fn move_under_load(proxies: &[Proxy]) {
    let early: Vec<String> = (0..30).map(|n| log_in(&proxies[0], &format!("early-{n}"))).collect();
    for (n, cookie) in early.iter().enumerate() {
        assert_eq!(put(&proxies[0], cookie, n as i64 + 1), 200);
    }
    let (told, rounds, stop) = (Promises::default(), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| crowd(proxies, &told, &rounds, &stop));
        }
        wait_until("the crowd is there", || rounds.load(Ordering::Relaxed) > 30);
        let text = moved(&migrate(&proxies[0], &[]));
        assert!(text.contains("the store has been moved in "), "{text}");
        let then = rounds.load(Ordering::Relaxed);
        wait_until("the crowd goes on", || rounds.load(Ordering::Relaxed) > then + 30);
        stop.store(true, Ordering::Relaxed);
    });
    for (n, cookie) in early.iter().enumerate() {
        for proxy in proxies {
            assert_eq!(seen(proxy, cookie), format!("early-{n}"));
            assert_eq!(in_cart(proxy, cookie), n as i64 + 1);
        }
    }
    assert_kept(proxies, &told.into_inner().unwrap());
}

/// The server of a store in Redis.
fn server(storage: &Storage) -> &RedisServer {
    match storage {
        Storage::Redis(server) => server,
        Storage::Embedded => panic!("it is in Redis"),
    }
}

fn next(server: &RedisServer, layout: &str) -> String {
    format!("{MINT}\nstore.next.url = \"{}\"\nstore.next.layout = \"{layout}\"", server.url())
}

#[test]
fn a_fleet_moves_to_another_layout_while_visitors_log_in_and_out() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let settings = next(&to, "sharded");
    let proxies = [(), ()].map(|()| Proxy::start(&origin, &storage, &settings));
    move_under_load(&proxies);
    // Some thirty sessions leave a shard of the 64 empty now and then.
    let shards = to.keys("login:{s*}").len();
    assert!(shards > 8 && to.keys("login:").is_empty(), "{shards}");
}

#[test]
fn a_proxy_moves_from_its_folder_to_a_cluster() {
    let (origin, cluster) = (app(), RedisCluster::start());
    let settings = format!("{MINT}\nstore.next.url = \"{}\"", cluster.url());
    let proxies = [Proxy::embedded(&origin, &settings)];
    move_under_load(&proxies);
}

#[test]
fn after_a_move_a_restart_goes_on_at_the_next_store_and_never_at_the_old_one() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let mut proxy = Proxy::start(&origin, &storage, &next(&to, "single"));
    let ann = log_in(&proxy, "ann");
    moved(&migrate(&proxy, &[]));
    let bob = log_in(&proxy, "bob");
    proxy.restart();
    assert_eq!([seen(&proxy, &ann), seen(&proxy, &bob)], ["ann", "bob"]);
    assert!(proxy.complaints().contains("make [store.next] the [store]"), "{}", proxy.complaints());
    assert!(refused(&migrate(&proxy, &[])).contains("has been moved"));

    // One that does not know where the store went recognises nobody, rather than who was logged in once.
    proxy.edit(|text| {
        text.lines().filter(|line| !line.contains("store.next")).collect::<Vec<_>>().join("\n")
    });
    proxy.restart();
    wait_until("it is said", || proxy.complaints().contains("no visitor is recognised here"));
    assert_eq!(seen(&proxy, &ann), "stranger");
    assert_eq!(proxy.post("/login?eve").send().status, 503);

    proxy.edit(|text| text.replace(&server(&storage).url(), &to.url()));
    proxy.restart();
    assert_eq!([seen(&proxy, &ann), seen(&proxy, &bob)], ["ann", "bob"]);
}

#[test]
fn a_switch_to_bypass_stays_on_at_the_next_store() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let proxy = Proxy::start(&origin, &storage, &next(&to, "sharded"));
    let switch = |words: &[&str]| {
        let mut command = anteroom();
        command.arg("bypass").args(words).args(["--config", "proxy.toml"]);
        assert!(command.current_dir(proxy.folder()).status().unwrap().success());
    };
    switch(&["on", "--for", "10m"]);
    moved(&migrate(&proxy, &[]));
    let lives = to.command::<i64>(&["PTTL", "bypass:{s0}"]);
    assert!((1..=600_000).contains(&lives), "{lives}");
    let is_bypassed = || proxy.get("/").send().cache_status().contains("bypass-switch");
    assert!(is_bypassed());
    switch(&["off"]);
    assert!(!is_bypassed());
    assert_eq!(to.command::<u64>(&["EXISTS", "bypass:{s0}"]), 0);
}

#[test]
fn after_a_move_the_next_store_becomes_the_store_by_a_reload() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let mut proxy = Proxy::start(&origin, &storage, &next(&to, "single"));
    let ann = log_in(&proxy, "ann");
    let renamed = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("store.next"));
        lines.collect::<Vec<_>>().join("\n").replace(&server(&storage).url(), &to.url())
    };
    let before = fs::read_to_string(proxy.folder().join("proxy.toml")).unwrap();
    proxy.edit(renamed);
    assert!(!proxy.reload(), "the store is another");
    proxy.edit(|_| before);
    moved(&migrate(&proxy, &[]));
    proxy.edit(renamed);
    assert!(proxy.reload(), "{}", proxy.complaints());
    assert_eq!(seen(&proxy, &ann), "ann");
    proxy.restart();
    assert_eq!(seen(&proxy, &ann), "ann");
}

#[test]
fn after_a_move_a_fleet_goes_back_by_a_reload() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let settings = next(&to, "sharded");
    let proxies = [(), ()].map(|()| Proxy::start(&origin, &storage, &settings));
    let ann = log_in(&proxies[0], "ann");
    moved(&migrate(&proxies[0], &[]));
    let bob = log_in(&proxies[1], "bob");
    assert!(refused(&migrate(&proxies[0], &[])).contains("has been moved"));
    let (there, back) = (to.url(), server(&storage).url());
    for proxy in &proxies {
        proxy.edit(|text| {
            let lines = text.lines().filter(|line| !line.contains("store.next"));
            let text = lines.collect::<Vec<_>>().join("\n").replace(&back, &there);
            format!("store.layout = \"sharded\"\nstore.next.url = \"{back}\"\nstore.next.layout = \"single\"\n{text}")
        });
        assert!(proxy.reload(), "{}", proxy.complaints());
        assert_eq!([seen(proxy, &ann), seen(proxy, &bob)], ["ann", "bob"]);
    }
    assert_eq!(proxies[0].post("/logout").cookie(&ann).send().status, 303);
    moved(&migrate(&proxies[1], &[]));
    let eve = log_in(&proxies[0], "eve");
    for proxy in &proxies {
        let users = [&ann, &bob, &eve].map(|cookie| seen(proxy, cookie));
        assert_eq!(users, ["stranger", "bob", "eve"]);
    }
    let sessions = server(&storage).command::<u64>(&["HLEN", "login:"]);
    assert_eq!(sessions, 2);
}

#[test]
fn there_and_back_leaves_nothing_of_sessions_that_ended_meanwhile() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let mut proxy = Proxy::start(&origin, &storage, &next(&to, "sharded"));
    let (ann, bob) = (log_in(&proxy, "ann"), log_in(&proxy, "bob"));
    moved(&migrate(&proxy, &[]));
    assert_eq!(proxy.post("/logout").cookie(&bob).send().status, 303);
    let (there, back) = (to.url(), server(&storage).url());
    proxy.edit(|text| {
        let lines = text.lines().filter(|line| !line.contains("store.next"));
        let text = lines.collect::<Vec<_>>().join("\n").replace(&back, &there);
        format!("store.layout = \"sharded\"\nstore.next.url = \"{back}\"\nstore.next.layout = \"single\"\n{text}")
    });
    // A proxy that is killed stays in the register for a minute.
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    proxy.restart();
    moved(&migrate(&proxy, &[]));
    assert_eq!(seen(&proxy, &ann), "ann");
    assert_eq!(seen(&proxy, &bob), "stranger");
}

#[test]
fn a_purge_survives_migrating_and_back() {
    let (storage, to) = (Storage::redis(), RedisServer::start());
    let count = AtomicUsize::new(0);
    let origin =
        shop(move |_| Reply::html(&format!("page {}", count.fetch_add(1, Ordering::Relaxed))));
    let mut proxy = Proxy::start(&origin, &storage, &next(&to, "single"));
    let page = |proxy: &Proxy| proxy.get("/page").send().text();
    let before = page(&proxy);
    wait_until("it is in the store", || {
        server(&storage).command::<Vec<String>>(&["KEYS", "cache:*"]).len() == 1
    });
    moved(&migrate(&proxy, &[]));
    purge_all(&proxy);
    let (there, back) = (to.url(), server(&storage).url());
    proxy.edit(|text| text.replace(&there, "there").replace(&back, &there).replace("there", &back));
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
    proxy.restart();
    moved(&migrate(&proxy, &[]));
    assert_ne!(page(&proxy), before);
}

#[test]
fn a_store_is_not_moved_while_a_proxy_cannot_follow() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let proxy = Proxy::start(&origin, &storage, &next(&to, "single"));
    let other = Proxy::start(&origin, &storage, MINT);
    let ann = log_in(&proxy, "ann");
    let why = refused(&migrate(&proxy, &[]));
    assert!(why.contains("has no [store.next]") && why.contains("Nothing has changed"), "{why}");
    assert_eq!(seen(&other, &ann), "ann");
    let bob = log_in(&other, "bob");
    assert_eq!(seen(&proxy, &bob), "bob");
    drop(other);
    // A proxy that was killed may come back for a minute; its entry is taken out here.
    server(&storage).command::<u64>(&["DEL", "fleet:"]);
    moved(&migrate(&proxy, &[]));
    assert_eq!([seen(&proxy, &ann), seen(&proxy, &bob)], ["ann", "bob"]);
}

#[test]
fn a_store_is_not_moved_while_a_proxy_names_another_next_store_or_spells_it_otherwise() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let elsewhere = RedisServer::start();
    let proxy = Proxy::start(&origin, &storage, &next(&to, "single"));
    let other = Proxy::start(&origin, &storage, &next(&elsewhere, "single"));
    let ann = log_in(&proxy, "ann");
    let by_name = to.url().replace("127.0.0.1", "localhost");
    assert_ne!(by_name, to.url());
    for named in [&elsewhere.url(), &by_name] {
        other.edit(|text| text.replace(&elsewhere.url(), named));
        assert!(other.reload(), "{}", other.complaints());
        let why = refused(&migrate(&proxy, &[]));
        assert!(why.contains("its [store.next] is") && why.contains("spell it alike"), "{why}");
        assert!(why.contains("Nothing has changed"), "{why}");
        assert_eq!([seen(&proxy, &ann), seen(&other, &ann)], ["ann", "ann"]);
    }
    other.edit(|text| text.replace(&by_name, &to.url()));
    assert!(other.reload(), "{}", other.complaints());
    moved(&migrate(&proxy, &[]));
    assert_eq!([seen(&proxy, &ann), seen(&other, &ann)], ["ann", "ann"]);
}

#[test]
fn a_fleet_does_not_move_to_a_folder() {
    let (origin, storage) = (app(), Storage::redis());
    let settings = format!("{MINT}\nstore.next.url = \"embedded:next\"");
    let [proxy, other] = [(), ()].map(|()| Proxy::start(&origin, &storage, &settings));
    // A proxy that logs a user in is in the register.
    let ann = log_in(&other, "ann");
    let why = refused(&migrate(&proxy, &[]));
    assert!(why.contains("for one proxy alone, and 2 run"), "{why}");
    assert_eq!([seen(&proxy, &ann), seen(&other, &ann)], ["ann", "ann"]);
}

/// Adds sessions, so that copying takes seconds. A part of them: Redis answers nothing else meanwhile.
const MANY_SESSIONS: &str = "for number = ARGV[1], ARGV[1] + 9999 do
  local token = string.format('token-%017d', number)
  redis.call('HSET', 'login:', token, 'user' .. number)
  redis.call('ZADD', 'recent:', redis.call('TIME')[1], token)
end";

/// Puts another proxy into the register once a move is copying, and returns whether it is.
const SECOND_PROXY: &str = "local state = redis.call('GET', 'moving:') or ''
if string.sub(state, 1, 9) ~= '1 copying' then return 0 end
redis.call('HSET', 'fleet:', '00000000000000ff', redis.call('HVALS', 'fleet:')[1])
return 1";

#[test]
fn a_proxy_that_starts_meanwhile_is_not_left_behind_by_a_move_to_a_folder() {
    let (origin, storage) = (app(), Storage::redis());
    let settings = format!("{MINT}\nstore.next.url = \"embedded:next\"");
    let proxy = Proxy::start(&origin, &storage, &settings);
    let ann = log_in(&proxy, "ann");
    for part in 0..12 {
        let first = (part * 10_000).to_string();
        server(&storage).command::<()>(&["EVAL", MANY_SESSIONS, "0", &first]);
    }
    let why = thread::scope(|scope| {
        let migrating = scope.spawn(|| migrate(&proxy, &[]));
        wait_until("sessions are copied", || {
            server(&storage).command::<u8>(&["EVAL", SECOND_PROXY, "0"]) == 1
        });
        refused(&migrating.join().unwrap())
    });
    assert!(why.contains("for one proxy alone, and 2 run"), "{why}");
    assert_eq!(seen(&proxy, &ann), "ann");
}

#[test]
fn a_store_is_moved_only_to_one_without_sessions_unless_they_may_be_replaced() {
    let (origin, storage, to) = (app(), Storage::redis(), RedisServer::start());
    let proxy = Proxy::start(&origin, &storage, &next(&to, "single"));
    let ann = log_in(&proxy, "ann");
    to.command::<u64>(&["HSET", "login:", "token-of-another", "eve"]);
    to.command::<u64>(&["ZADD", "recent:", "1", "token-of-another"]);
    assert!(refused(&migrate(&proxy, &[])).contains("--replace"));
    moved(&migrate(&proxy, &["--replace"]));
    assert_eq!(seen(&proxy, &ann), "ann");
    assert_eq!(to.command::<u64>(&["HLEN", "login:"]), 1);
}

#[test]
fn without_a_next_store_there_is_nothing_to_move_to() {
    let (origin, storage) = (app(), Storage::redis());
    let proxy = Proxy::start(&origin, &storage, MINT);
    assert!(refused(&migrate(&proxy, &[])).contains("the configuration has no [store.next] url"));
}

#[test]
fn a_page_that_was_purged_before_the_switch_is_not_served_after_it() {
    let (storage, to) = (Storage::redis(), RedisServer::start());
    let count = AtomicUsize::new(0);
    let origin =
        shop(move |_| Reply::html(&format!("page {}", count.fetch_add(1, Ordering::Relaxed))));
    let proxies = [(), ()].map(|()| Proxy::start(&origin, &storage, &next(&to, "single")));
    let page = |proxy: &Proxy| proxy.get("/page").send().text();
    let before = page(&proxies[0]);
    // Asked before, the other would fetch a page of its own.
    wait_until("it is in the store", || server(&storage).keys("cache:*").len() == 1);
    wait_until("both have it", || proxies.iter().all(|proxy| page(proxy) == before));
    moved(&migrate(&proxies[0], &[]));
    purge_all(&proxies[1]);
    for proxy in &proxies {
        assert_ne!(page(proxy), before);
    }
    let config = fs::read_to_string(proxies[0].folder().join("proxy.toml")).unwrap();
    assert!(config.contains("store.next.url"));
}
