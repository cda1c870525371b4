//! An app with more to do than it can: known visitors come first, and others wait.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::{Ask, Client};
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{DEADLINE, holds_within, wait_until, wait_within};

on_both_stores!(a_limit_begins_after_a_restart_where_it_was);

const MINT: &str = "session.mint = true\nsession.cookie = \"login\"\n";

const ONE_AT_A_TIME: &str = "origin.max_connections = 1\norigin.wait_timeout = \"60s\"\n";

/// A shop whose page /held waits for the gate, if the request says so.
fn held(gate: &Arc<Gate>) -> Origin {
    let gate = Arc::clone(gate);
    shop(move |request: &Request| {
        if request.path() == "/held" && request.header("x-hold").is_some() {
            gate.pass();
        }
        match request.path() {
            "/stored/brief" => Reply::html("a page")
                .header("Cache-Control", "max-age=1, stale-while-revalidate=600"),
            path if path.contains("stored") => {
                Reply::html("a page").header("Cache-Control", "max-age=60")
            }
            _ => Reply::unstored("ok"),
        }
    })
}

/// A proxy before it whose app works on one request at a time.
fn one_at_a_time(origin: &Origin) -> Proxy {
    Proxy::embedded(origin, &format!("{MINT}{ONE_AT_A_TIME}"))
}

fn waiting(proxy: &Proxy) -> f64 {
    proxy.metric("anteroom_origin_waiting{origin=\"origin\"}")
}

/// The app as the proxy sees it, for the operator whose token is in this file.
fn first_origin(proxy: &Proxy) -> Value {
    let ask = proxy.admin("/origins").header("Authorization", "Bearer secret-token");
    let report: Value = serde_json::from_str(&ask.send().text()).unwrap();
    report["origins"][0].clone()
}

/// How many requests of known visitors wait.
fn known_waiting(proxy: &Proxy) -> u64 {
    first_origin(proxy)["waiting_by_class"]["known"].as_u64().unwrap()
}

/// How many requests the app may work on before strangers wait.
fn limit(proxy: &Proxy) -> u64 {
    first_origin(proxy)["servers"][0]["limit"].as_u64().unwrap()
}

/// A request that the app holds.
fn hold(proxy: &Proxy) -> Ask {
    proxy.post("/held").header("X-Hold", "1")
}

/// Sends a request, which has to wait for a place.
fn queued(proxy: &Proxy, ask: &Ask) -> Client {
    let before = waiting(proxy);
    let client = ask.start();
    wait_until("it waits", || waiting(proxy) == before + 1.0);
    client
}

/// The paths that the app was asked for behind the one that it holds.
fn order(origin: &Origin) -> Vec<String> {
    let seen = origin.seen();
    let paths = seen.iter().map(|request| request.path().to_owned());
    paths.skip_while(|path| path != "/held").skip(1).collect()
}

#[test]
fn a_known_visitor_comes_before_strangers_and_invented_tokens_gain_nothing() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let proxy = one_at_a_time(&origin);
    let user = log_in(&proxy, "ann");
    let mut clients = vec![hold(&proxy).start()];
    wait_until("the app is at work", || origin.seen().iter().any(|it| it.path() == "/held"));
    let forged = format!("login={}", "0123456789abcdef".repeat(4));
    for ask in [
        proxy.get("/stranger"),
        proxy.get("/forged").cookie(&forged),
        proxy.post("/form"),
        proxy.get("/known").cookie(&user),
    ] {
        clients.push(queued(&proxy, &ask));
    }
    gate.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(order(&origin), ["/known", "/form", "/stranger", "/forged"]);
}

/// A proxy whose app works on one request at a time, with pages for everyone at `path`; a user's cookie, and the folder of the
/// admin's token.
fn with_pages_for_everyone(origin: &Origin, path: &str) -> (Proxy, String, TempDir) {
    let folder = TempDir::new().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "secret-token").unwrap();
    let admin = format!("admin.token = {{ file = {token:?} }}\n");
    let proxy = Proxy::embedded(origin, &format!("{MINT}{ONE_AT_A_TIME}{admin}"));
    let user = log_in(&proxy, "ann");
    proxy
        .edit(|text| format!("{text}\n[[route]]\nmatch.path = \"{path}\"\nshare = \"everyone\"\n"));
    assert!(proxy.reload());
    (proxy, user, folder)
}

#[test]
fn a_fetch_is_as_urgent_as_the_best_request_that_waits_for_it() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let (proxy, user, _token) = with_pages_for_everyone(&origin, "/stored");
    let mut clients = vec![hold(&proxy).start()];
    wait_until("the app is at work", || origin.seen().iter().any(|it| it.path() == "/held"));
    clients.push(queued(&proxy, &proxy.get("/first")));
    clients.push(queued(&proxy, &proxy.get("/stored")));
    let joined = proxy.get("/stored").cookie(&user).start();
    wait_until("the fetch is the user's, too", || known_waiting(&proxy) == 1);
    clients.push(joined);
    gate.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(order(&origin), ["/stored", "/first"]);
}

#[test]
fn a_renewal_is_as_urgent_as_the_best_request_that_gets_the_stale_page() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let (proxy, user, _token) = with_pages_for_everyone(&origin, "/stored/**");
    assert_eq!(proxy.get("/stored/brief").send().status, 200);
    let mut clients = vec![hold(&proxy).start()];
    wait_until("the app is at work", || origin.seen().iter().any(|it| it.path() == "/held"));
    clients.push(queued(&proxy, &proxy.get("/first")));
    wait_until("a stranger's renewal waits", || {
        assert_eq!(proxy.get("/stored/brief").send().status, 200);
        waiting(&proxy) == 2.0
    });
    assert_eq!(proxy.get("/stored/brief").cookie(&user).send().status, 200);
    wait_until("the renewal is the user's, too", || known_waiting(&proxy) == 1);
    gate.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(order(&origin), ["/stored/brief", "/first"]);
}

#[test]
fn a_client_that_hangs_up_leaves_the_queue() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let proxy = one_at_a_time(&origin);
    let mut held = hold(&proxy).start();
    wait_until("the app is at work", || origin.count() == 1);
    for path in ["/stored", "/other"] {
        queued(&proxy, &proxy.get(path)).leave();
        wait_until("none waits", || waiting(&proxy) == 0.0);
    }
    gate.open();
    assert_eq!(held.answer().status, 200);
    assert_eq!(proxy.get("/after").send().status, 200);
    assert_eq!(order(&origin), ["/after"], "the app was asked for nothing else");
}

#[test]
fn strangers_are_held_back_where_the_app_is_not_known_to_take_more_and_users_are_not() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let proxy = Proxy::embedded(&origin, &format!("{MINT}origin.overload = \"order\"\n"));
    let user = log_in(&proxy, "ann");
    // From now on it is known how long the app takes for such a page.
    assert_eq!(proxy.get("/held").send().status, 200);
    let arrived = || origin.seen().iter().filter(|it| it.path() == "/held").count();
    let mut clients: Vec<Client> =
        (0..6).map(|_| proxy.get("/held").header("X-Hold", "1").start()).collect();
    wait_until("six are at the app", || arrived() == 7);
    clients.push(queued(&proxy, &proxy.get("/stranger")));
    let known = proxy.get("/known").cookie(&user).send();
    assert_eq!(known.status, 200, "a user waits for nothing");
    gate.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn a_refused_client_is_told_when_to_come_again() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let settings = format!("{MINT}origin.max_connections = 1\norigin.max_waiting = 0\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let mut held = hold(&proxy).start();
    wait_until("the app is at work", || origin.count() == 1);
    let refused = proxy.get("/other").send();
    assert_eq!(refused.status, 503);
    assert!(refused.cache_status().contains("detail=crowded"), "{}", refused.cache_status());
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((10..=40).contains(&seconds), "{seconds}");
    gate.open();
    assert_eq!(held.answer().status, 200);
}

#[test]
fn a_route_never_has_more_strangers_at_the_app_than_it_may() {
    let (gate, most) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let (passing, noted, at_work) = (Arc::clone(&gate), Arc::clone(&most), AtomicUsize::new(0));
    let origin = shop(move |request: &Request| {
        if request.path().starts_with("/search/") {
            let count = at_work.fetch_add(1, Ordering::SeqCst) + 1;
            noted.fetch_max(count, Ordering::SeqCst);
            passing.pass();
            at_work.fetch_sub(1, Ordering::SeqCst);
        }
        Reply::unstored("ok")
    });
    let route = "[[route]]\nmatch.path = \"/search/**\"\nmax_strangers = 2\n";
    let proxy = Proxy::embedded(&origin, &format!("{MINT}origin.overload = \"off\"\n{route}"));
    let clients: Vec<Client> =
        (0..34).map(|number| proxy.get(&format!("/search/{number}")).start()).collect();
    wait_until("the others wait", || waiting(&proxy) == 32.0);
    assert_eq!(proxy.get("/search/more").send().status, 503, "as many of the route wait as may");
    assert_eq!(proxy.get("/other").send().status, 200, "another route waits for nothing");
    gate.open();
    for mut client in clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(waiting(&proxy), 0.0);
}

/// Strangers at an app that answers each of them as fast as one alone: 24 at a time, of which it gets twelve.
fn crowd_in_calm(proxy: &Proxy) {
    thread::scope(|scope| {
        for stranger in 0..24 {
            scope.spawn(move || {
                let mut client = proxy.connect();
                for page in 0..10 {
                    proxy.get(&format!("/page/{stranger}/{page}")).send_on(&mut client);
                }
            });
        }
    });
}

fn a_limit_begins_after_a_restart_where_it_was(storage: &Storage) {
    let origin = shop(|_: &Request| Reply::unstored("ok").after(Duration::from_millis(100)));
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "secret-token").unwrap();
    let admin = format!("admin.token = {{ file = {token:?} }}\n");
    let settings = format!("{admin}origin.overload = \"order\"\norigin.max_connections = 12\n");
    let mut proxy = Proxy::start(&origin, storage, &settings);
    assert_eq!(limit(&proxy), 6, "nothing is known yet");
    // On a busy machine the app may be slow of itself: then no higher limit is known to be calm, and the crowd comes again.
    wait_within(6 * DEADLINE, "a higher limit is kept", || {
        crowd_in_calm(&proxy);
        proxy.terminate();
        assert_eq!(proxy.exit_code(), Some(0), "{}", proxy.complaints());
        proxy.restart();
        holds_within(Duration::from_secs(2), || limit(&proxy) > 6)
    });
}
