//! Redis is killed or frozen under load: no request fails, no request waits, and all is back by itself
//! afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, shop};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

const TOKEN: &str = "0123456789abcdef";
const LOGIN: &str = "login=0123456789abcdef";

/// The longest that a visitor may wait while the store is away.
const PATIENCE: Duration = Duration::from_secs(1);

fn greeting() -> Origin {
    Origin::start(|request| match request.path() {
        "/page" => Reply::html("the same for all"),
        _ => Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")),
    })
}

/// A proxy on a Redis that knows [`TOKEN`] as alice.
fn open(server: &RedisServer, origin: &Origin) -> Proxy {
    server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
    let settings =
        format!("store.url = \"{}\"\n[[route]]\nmatch.path = \"/item/{{item}}\"", server.url());
    Proxy::with_settings(origin, &settings)
}

/// Sends all kinds of requests while `disturb` runs, and says that each was answered well.
fn under_load(proxy: &Proxy, disturb: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|number| {
                let over = &over;
                scope.spawn(move || {
                    let mut asked = 0;
                    while !over.load(Ordering::SeqCst) || asked == 0 {
                        ask_for_everything(proxy, number);
                        asked += 1;
                    }
                })
            })
            .collect();
        disturb();
        over.store(true, Ordering::SeqCst);
        for visitor in visitors {
            visitor.join().unwrap();
        }
    });
}

fn ask_for_everything(proxy: &Proxy, number: usize) {
    for (path, cookie) in
        [("/page", ""), ("/page", LOGIN), ("/me", LOGIN), ("/item/7", ""), ("/cold", "")]
    {
        let mut ask = proxy.get(path).header("User-Agent", &format!("visitor-{number}"));
        if !cookie.is_empty() {
            ask = ask.cookie(cookie);
        }
        let asked = Instant::now();
        let answer: Answer = ask.send();
        let waited = asked.elapsed();
        assert_eq!(answer.status, 200, "{path} {}", answer.text());
        assert!(waited < PATIENCE, "{path}: {waited:?}, {}", answer.cache_status());
    }
}

/// Waits until the proxy works without its store, and holds that for a while under load.
fn live_without(proxy: &Proxy) {
    let since = Instant::now();
    wait_until("a while without the store", || {
        assert_eq!(proxy.get("/page").send().text(), "the same for all");
        since.elapsed() > Duration::from_millis(1500)
    });
}

fn knows_alice(proxy: &Proxy) -> bool {
    proxy.post("/me").cookie(LOGIN).send().text() == "alice"
}

#[test]
fn a_killed_redis_fails_no_request_and_is_found_again() {
    let mut server = RedisServer::start();
    let origin = greeting();
    let proxy = open(&server, &origin);
    wait_until("alice is known", || knows_alice(&proxy));

    under_load(&proxy, || {
        server.kill();
        live_without(&proxy);
        // It is fresh for the second in which it was fetched: what others purge is not heard of.
        let is_hit = || proxy.get("/page").send().is_hit();
        wait_until("memory serves what it holds", is_hit);
        server.restart();
    });

    wait_until("alice is known again", || knows_alice(&proxy));
}

#[test]
fn a_frozen_redis_fails_no_request_and_is_found_again() {
    let server = RedisServer::start();
    let origin = greeting();
    let proxy = open(&server, &origin);
    wait_until("alice is known", || knows_alice(&proxy));

    under_load(&proxy, || {
        server.pause();
        live_without(&proxy);
        server.resume();
    });

    wait_until("alice is known again", || knows_alice(&proxy));
}

#[test]
fn a_read_only_replica_knows_every_visitor() {
    let (primary, replica, origin) = (RedisServer::start(), RedisServer::start(), greeting());
    primary.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
    replica.command::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let is_copied = || replica.command::<Option<String>>(&["HGET", "login:", TOKEN]).is_some();
    wait_until("the replica has the session", is_copied);
    let settings = format!("store.url = \"{}\"\nstore.timeout = \"5s\"", replica.url());
    let proxy = Proxy::with_settings(&origin, &settings);
    wait_until("the store is there", || knows_alice(&proxy));

    // Each visit is a write, which the replica refuses. What was looked up is remembered for a second.
    let began = Instant::now();
    wait_until("writes were refused for some seconds", || {
        assert!(knows_alice(&proxy), "{}", proxy.complaints());
        let is_told = proxy.complaints().contains("Redis is a replica and takes no writes");
        is_told && began.elapsed() > Duration::from_secs(4)
    });

    // The replica becomes the primary.
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    wait_until("visits are written", || {
        assert!(knows_alice(&proxy));
        seen(&replica).is_some()
    });
}

#[test]
fn a_redis_restarted_empty_makes_users_strangers() {
    let mut server = RedisServer::start();
    let origin = greeting();
    let proxy = open(&server, &origin);
    wait_until("alice is known", || knows_alice(&proxy));

    server.restart_empty();

    wait_until("alice is a stranger now", || !knows_alice(&proxy));
    assert_eq!(proxy.get("/page").send().status, 200);
}

#[test]
fn views_during_an_outage_are_counted_afterwards() {
    let server = RedisServer::start();
    let origin = greeting();
    let proxy = open(&server, &origin);

    // What was learnt of her a moment ago is remembered for a moment.
    wait_until("alice is known though the store is frozen", || {
        knows_alice(&proxy);
        server.pause();
        let known = proxy.get("/item/42").cookie(LOGIN).send().text() == "alice";
        server.resume();
        known
    });

    let counted = || server.command::<Option<f64>>(&["ZSCORE", "viewed:", "42"]);
    wait_until("the view is counted", || counted() == Some(-1.0));
}

#[test]
fn a_visit_during_an_outage_is_noted_afterwards() {
    let server = RedisServer::start();
    let origin = greeting();
    let proxy = open(&server, &origin);
    wait_until("alice is known", || knows_alice(&proxy));
    wait_until("her visit is noted", || seen(&server).is_some());
    let before = seen(&server).unwrap();

    wait_until("alice is known though the store is frozen", || {
        knows_alice(&proxy);
        server.pause();
        let known = knows_alice(&proxy);
        server.resume();
        known
    });
    wait_until("the later visit is noted", || seen(&server).is_some_and(|at| at > before));
}

fn seen(server: &RedisServer) -> Option<f64> {
    server.command(&["ZSCORE", "recent:", TOKEN])
}

#[test]
fn a_log_in_that_cannot_be_written_is_refused_for_now() {
    let mut server = RedisServer::start();
    let settings = format!("session.mint = true\nstore.url = \"{}\"", server.url());
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::with_settings(&origin, &settings);
    log_in(&proxy, "alice");

    server.kill();
    let refused = proxy.post("/login?bob").send();
    server.restart();

    assert_eq!((refused.status, refused.set_cookie("login")), (503, None));
    assert!(refused.header("retry-after").is_some());
    wait_until("logins work again", || proxy.post("/login?bob").send().status == 303);
}

#[test]
fn a_log_out_during_an_outage_holds_at_once_and_afterwards() {
    let mut server = RedisServer::start();
    let settings = format!("session.mint = true\nstore.url = \"{}\"", server.url());
    let origin = shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")));
    let proxy = Proxy::with_settings(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let user = || proxy.post("/").cookie(&alice).send().text();
    wait_until("alice is known", || user() == "alice");

    server.kill();
    let answer = proxy.post("/logout").cookie(&alice).send();
    assert!(answer.set_cookie("login").is_some(), "the cookie is cleared: {}", answer.status);
    assert_eq!(user(), "-");
    server.restart();

    let token = alice.trim_start_matches("login=");
    wait_until("the store has it", || !server.dump().contains(token));
    assert_eq!(user(), "-");
}

#[test]
fn a_proxy_starts_without_its_store_and_finds_it_later() {
    let mut server = RedisServer::start();
    server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
    server.kill();
    let origin = greeting();
    let proxy = Proxy::with_settings(&origin, &format!("store.url = \"{}\"", server.url()));
    assert_eq!(proxy.get("/page").send().status, 200);

    server.restart();

    wait_until("alice is known", || knows_alice(&proxy));
}

#[test]
fn a_frozen_redis_costs_a_cold_proxy_no_second() {
    let storage = Storage::redis();
    let origin = greeting();
    let proxy = Proxy::start(&origin, &storage, "store.timeout = \"50ms\"");
    let Storage::Redis(server) = &storage else { return };

    server.pause();
    for _ in 0..10 {
        ask_for_everything(&proxy, 0);
    }
    server.resume();
}

#[test]
fn a_log_out_while_redis_is_frozen_holds_at_once_and_afterwards() {
    let server = RedisServer::start();
    let settings = format!("session.mint = true\nstore.url = \"{}\"", server.url());
    let origin = shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")));
    let proxy = Proxy::with_settings(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let user = || proxy.post("/").cookie(&alice).send().text();
    assert_eq!(user(), "alice");

    server.pause();
    let answer = proxy.post("/logout").cookie(&alice).send();
    let users = [user(), user()];
    server.resume();

    assert_eq!(answer.status, 303);
    let cleared = answer.set_cookie("login").expect("the cookie is cleared").to_ascii_lowercase();
    assert!(cleared.contains("max-age=0") || cleared.contains("expires="), "{cleared}");
    assert_eq!(users, ["-", "-"]);
    let token = alice.trim_start_matches("login=");
    wait_until("the store has it", || !server.dump().contains(token));
    assert_eq!(user(), "-");
}
