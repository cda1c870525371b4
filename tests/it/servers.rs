//! Several servers of one origin: which requests each gets, and what becomes of requests when one fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage};
use crate::support::{at_once, free_port, wait_until};

/// An address without a listener.
fn nowhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A server that names itself. One that is killed between the head and the body has answered: it writes both at once.
fn server(name: &'static str) -> Origin {
    Origin::start(move |_| Reply::unstored(name).in_one_write())
}

/// A proxy before these servers; `settings` are keys of `[origin]`, one a line.
fn before(servers: &[SocketAddr], settings: &str) -> Proxy {
    let urls: Vec<String> = servers.iter().map(|at| format!("\"http://{at}\"")).collect();
    let lines: String = settings.lines().map(|line| format!("origin.{}\n", line.trim())).collect();
    let settings = format!("origin.urls = [{}]\n{lines}", urls.join(", "));
    Proxy::before(servers[0], &Storage::Embedded, &settings)
}

fn up(proxy: &Proxy, server: SocketAddr) -> bool {
    let name = format!(
        "anteroom_origin_server_up{{origin=\"origin\",server=\"127.0.0.1:{}\"}}",
        server.port()
    );
    proxy.metric(&name) == 1.0
}

#[test]
fn servers_take_turns_by_their_weights() {
    let (one, other) = (server("one"), server("other"));
    let proxy = before(&[one.address(), other.address()], "weights = [3, 1]");
    let mut client = proxy.connect();
    for _ in 0..40 {
        assert_eq!(proxy.get("/").send_on(&mut client).status, 200);
    }
    assert_eq!((one.count(), other.count()), (30, 10));
}

#[test]
fn a_server_killed_under_load_fails_no_request() {
    let (one, other) = (server("one"), server("other"));
    let addresses = [one.address(), other.address()];
    let proxy = before(&addresses, "retry_percent = 100");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = proxy.connect();
                    let mut asked = 0;
                    while !over.load(Ordering::SeqCst) || asked < 20 {
                        let answer = proxy.get("/").send_on(&mut client);
                        assert_eq!(answer.status, 200, "{}", answer.text());
                        asked += 1;
                    }
                })
            })
            .collect();
        wait_until("both are at work", || one.count() > 20 && other.count() > 20);
        drop(one);
        wait_until("it rests", || !up(&proxy, addresses[0]));
        let before = other.count();
        wait_until("the other does the work", || other.count() > before + 50);
        over.store(true, Ordering::SeqCst);
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
    });
}

#[test]
fn a_server_that_was_not_there_is_found_again() {
    let dead = nowhere();
    let other = server("other");
    let proxy = before(&[dead, other.address()], "rest = \"50ms\"\nslow_start = \"0s\"");
    wait_until("it rests", || {
        assert_eq!(proxy.post("/").send().text(), "other");
        !up(&proxy, dead)
    });
    let one = Origin::at(dead, |_| Reply::unstored("one"));
    wait_until("it is tried, and back", || proxy.get("/").send().text() == "one");
    assert!(up(&proxy, one.address()));
}

#[test]
fn an_unsent_request_goes_to_another_server_even_a_post() {
    let other = server("other");
    let proxy = before(&[nowhere(), other.address()], "fails = 1000");
    for _ in 0..6 {
        let answer = proxy.ask("POST", "/").body(b"an order").send();
        assert_eq!((answer.status, answer.text()), (200, "other".to_owned()));
    }
    assert_eq!(other.count(), 6);
    assert!(other.seen().iter().all(|request| request.body.bytes == b"an order"));
    assert_eq!(proxy.metric("anteroom_origin_retries_elsewhere_total"), 3.0);
}

#[test]
fn a_post_that_may_have_been_read_is_never_sent_twice() {
    let one = Origin::start(|_| Reply::nothing());
    let other = Origin::start(|_| Reply::nothing());
    let proxy = before(&[one.address(), other.address()], "fails = 1000");
    for _ in 0..10 {
        assert_eq!(proxy.ask("POST", "/").body(b"an order").send().status, 502);
        assert_eq!(proxy.ask("DELETE", "/").send().status, 502);
    }
    assert_eq!(one.count() + other.count(), 20);
}

#[test]
fn in_an_outage_few_requests_are_sent_again() {
    let breaks = Origin::start(|_| Reply::nothing());
    let other = Origin::start(|_| Reply::nothing());
    let proxy = before(&[breaks.address(), other.address()], "fails = 1000\nretry_percent = 1");
    let asked = 200;
    for _ in 0..asked {
        assert_eq!(proxy.get("/").send().status, 502);
    }
    let again = proxy.metric("anteroom_origin_retries_elsewhere_total");
    // Ten at first, two by their part, and ten a second.
    assert!(again >= 10.0, "{again}");
    let sent = breaks.count() + other.count();
    assert_eq!(sent as f64, f64::from(asked) + again);
}

#[test]
fn without_a_budget_a_get_is_sent_once() {
    let one = Origin::start(|_| Reply::nothing());
    let other = Origin::start(|_| Reply::nothing());
    let proxy = before(&[one.address(), other.address()], "fails = 1000\nretry_percent = 0");
    for _ in 0..10 {
        assert_eq!(proxy.get("/").send().status, 502);
    }
    assert_eq!(one.count() + other.count(), 10);
}

#[test]
fn a_page_with_too_many_fields_takes_out_no_server() {
    let start = || {
        Origin::start(|request| {
            let fields = if request.path() == "/big" { 110 } else { 0 };
            let field = |reply: Reply, number: usize| reply.header(&format!("X-{number}"), "1");
            (0..fields).fold(Reply::unstored("ok"), field)
        })
    };
    let servers = [start(), start()];
    let addresses = servers.each_ref().map(Origin::address);
    let proxy = before(&addresses, "fails = 3\nrest = \"300s\"");
    let counts = || servers.each_ref().map(Origin::count);
    let upgrade = proxy
        .get("/big")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    for ask in [proxy.get("/big"), proxy.post("/big").body(b"order"), upgrade] {
        let before = counts();
        for _ in 0..8 {
            assert_eq!(ask.send().status, 502);
        }
        let after = counts();
        for server in [0, 1] {
            assert!(after[server] >= before[server] + 3, "{before:?} {after:?}");
            assert!(up(&proxy, addresses[server]));
        }
        assert_eq!(proxy.get("/ok").send().text(), "ok");
    }
}

#[test]
fn where_no_server_is_up_it_is_said_and_a_stale_page_stands_in() {
    let page = Reply::html("a page").header("Cache-Control", "max-age=1");
    let (one, other) = (Origin::always(page.clone()), Origin::always(page));
    let addresses = [one.address(), other.address()];
    let settings = "connect_timeout = \"200ms\"\nrest = \"300s\"";
    let proxy = before(&addresses, settings);
    assert_eq!(proxy.get("/page").send().text(), "a page");
    drop((one, other));
    wait_until("both rest", || {
        assert!(matches!(proxy.post("/").send().status, 502 | 503));
        !addresses.iter().any(|server| up(&proxy, *server))
    });
    wait_until("the page is stale, and the answer", || {
        let answer = proxy.get("/page").send();
        assert_eq!((answer.status, answer.text()), (200, "a page".to_owned()));
        answer.cache_status().contains("ttl=-")
    });
}

#[test]
fn a_server_that_came_back_gets_a_small_share_at_first() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let one = Origin::start(move |request: &Request| match request.path() {
        "/healthz" if !is_well.load(Ordering::SeqCst) => Reply::status("503 Away").body(""),
        _ => Reply::unstored("one"),
    });
    let other = server("other");
    let settings = "slow_start = \"1d\"\nhealth.path = \"/healthz\"\nhealth.every = \"100ms\"\n\
                    health.healthy_after = 1\nhealth.unhealthy_after = 1";
    let proxy = before(&[one.address(), other.address()], settings);
    wait_until("it is out", || !up(&proxy, one.address()));
    let asked = |origin: &Origin| origin.seen().iter().filter(|seen| seen.path() == "/").count();
    let mut client = proxy.connect();
    let before = asked(&one);
    for _ in 0..10 {
        assert_eq!(proxy.get("/").send_on(&mut client).text(), "other");
    }
    assert_eq!(asked(&one), before);

    well.store(true, Ordering::SeqCst);
    wait_until("it is back", || up(&proxy, one.address()));
    for _ in 0..110 {
        assert_eq!(proxy.get("/").send_on(&mut client).status, 200);
    }
    let share = asked(&one) - before;
    assert!((9..=11).contains(&share), "{share} of 110");
}

#[test]
fn a_session_keeps_to_its_server() {
    let (one, other) = (server("one"), server("other"));
    let addresses = [one.address(), other.address()];
    let proxy = before(&addresses, "balance = \"sticky\"\nfails = 1\nrest = \"300s\"");
    let ask =
        |number: usize| proxy.get("/").cookie(&format!("login=a-token-of-{number}")).send().text();
    let homes: Vec<String> = (0..20).map(ask).collect();
    assert!(homes.iter().any(|home| home == "one") && homes.iter().any(|home| home == "other"));
    assert_eq!((0..20).map(ask).collect::<Vec<_>>(), homes);

    drop(one);
    assert!((0..20).map(ask).all(|home| home == "other"));
}

#[test]
fn a_request_beyond_the_queue_is_refused_with_retry_after() {
    let gate = Gate::closed();
    let opened = Arc::clone(&gate);
    let origin = Origin::start(move |request: &Request| match request.path() {
        "/slow" => Reply::status("200 OK").header("Content-Length", "2").until(&opened).bytes("ok"),
        _ => Reply::unstored("fast"),
    });
    let proxy =
        before(&[origin.address()], "max_connections = 1\nmax_waiting = 1\nwait_timeout = \"8s\"");
    let mut slow = proxy.post("/slow").start();
    let begun = slow.head();
    let mut waiting = proxy.post("/").start();
    let is_waiting = || proxy.metric("anteroom_origin_waiting{origin=\"origin\"}") == 1.0;
    wait_until("it waits", is_waiting);

    let refused = at_once(4, |_| proxy.post("/").send());
    for answer in refused {
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(origin.count(), 1);
    assert_eq!(proxy.metric("anteroom_origin_refused_total"), 4.0);

    gate.open();
    assert_eq!(slow.rest(begun).text(), "ok");
    assert_eq!(waiting.answer().text(), "fast");
}

#[test]
fn a_request_that_waited_too_long_is_refused_with_retry_after() {
    let gate = Gate::closed();
    let opened = Arc::clone(&gate);
    let origin = Origin::start(move |_: &Request| {
        Reply::status("200 OK").header("Content-Length", "2").until(&opened).bytes("ok")
    });
    let settings = "max_connections = 1\nmax_waiting = 9\nwait_timeout = \"200ms\"";
    let proxy = before(&[origin.address()], settings);
    let mut slow = proxy.post("/slow").start();
    let begun = slow.head();
    for answer in at_once(4, |_| proxy.post("/").send()) {
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(origin.count(), 1);
    assert_eq!(proxy.metric("anteroom_origin_waiting{origin=\"origin\"}"), 0.0);
    gate.open();
    assert_eq!(slow.rest(begun).text(), "ok");
}

#[test]
fn busy_connections_count_in_the_next_configuration_too() {
    let gate = Gate::closed();
    let opened = Arc::clone(&gate);
    let origin = Origin::start(move |request: &Request| match request.path() {
        "/slow" => Reply::status("200 OK").header("Content-Length", "2").until(&opened).bytes("ok"),
        _ => Reply::unstored("fast"),
    });
    let settings = "max_connections = 1\nmax_waiting = 9\nwait_timeout = \"200ms\"";
    let proxy = before(&[origin.address()], settings);
    let mut slow = proxy.post("/slow").start();
    let begun = slow.head();
    proxy.edit(|text| text.replace("\"200ms\"", "\"8s\""));
    assert!(proxy.reload());
    let mut waiting = proxy.post("/").start();
    let is_waiting = || proxy.metric("anteroom_origin_waiting{origin=\"origin\"}") == 1.0;
    wait_until("it waits", is_waiting);
    assert_eq!(origin.count(), 1);
    gate.open();
    assert_eq!(slow.rest(begun).text(), "ok");
    assert_eq!(waiting.answer().text(), "fast");
}

#[test]
fn the_server_that_works_on_less_gets_the_next_request() {
    let gate = Gate::closed();
    let start = |name: &'static str| {
        let opened = Arc::clone(&gate);
        Origin::start(move |request: &Request| match request.path() {
            "/slow" => Reply::status("200 OK")
                .header("Content-Length", &name.len().to_string())
                .until(&opened)
                .bytes(name),
            _ => Reply::unstored(name),
        })
    };
    let (one, other) = (start("one"), start("other"));
    let proxy = before(&[one.address(), other.address()], "balance = \"least_requests\"");
    let mut slow = proxy.post("/slow").start();
    let begun = slow.head();
    let fast: Vec<String> = (0..9).map(|_| proxy.post("/").send().text()).collect();
    gate.open();
    let busy = slow.rest(begun).text();
    let idle = if busy == "one" { "other" } else { "one" };
    assert!(fast.iter().all(|name| name == idle), "{busy}: {fast:?}");
    wait_until("it is asked again", || proxy.post("/").send().text() == busy);
}

#[test]
fn fetches_for_the_cache_wait_too_and_a_stale_page_stands_in() {
    let gate = Gate::closed();
    let opened = Arc::clone(&gate);
    let origin = Origin::start(move |request: &Request| match request.path() {
        "/slow" => Reply::status("200 OK").header("Content-Length", "2").until(&opened).bytes("ok"),
        _ => Reply::html("a page").header("Cache-Control", "max-age=1"),
    });
    let settings = "max_connections = 1\nmax_waiting = 0";
    let proxy = before(&[origin.address()], settings);
    assert_eq!(proxy.get("/page").send().text(), "a page");
    let mut slow = proxy.post("/slow").start();
    let begun = slow.head();

    assert_eq!(proxy.get("/other").send().status, 503);
    wait_until("the page is stale, and the answer", || {
        let answer = proxy.get("/page").send();
        assert_eq!((answer.status, answer.text()), (200, "a page".to_owned()));
        answer.cache_status().contains("ttl=-")
    });

    gate.open();
    assert_eq!(slow.rest(begun).text(), "ok");
    wait_until("there is room again", || proxy.get("/other").send().status == 200);
}

#[test]
fn a_client_that_leaves_gives_its_place_back() {
    let gate = Gate::closed();
    let opened = Arc::clone(&gate);
    let origin = Origin::start(move |request: &Request| match request.path() {
        "/slow" => Reply::status("200 OK").header("Content-Length", "2").until(&opened).bytes("ok"),
        _ => Reply::unstored("fast"),
    });
    let proxy = before(&[origin.address()], "max_connections = 1\nmax_waiting = 0");
    let mut client = proxy.get("/slow").header("Cookie", "a=b").start();
    let _begun = client.head();
    assert_eq!(proxy.post("/").send().status, 503);
    drop(client);
    wait_until("there is room again", || proxy.post("/").send().status == 200);
    gate.open();
}

#[test]
fn a_reload_forgets_nothing_of_servers_that_stay() {
    let dead = nowhere();
    let other = server("other");
    let proxy = before(&[dead, other.address()], "rest = \"300s\"");
    wait_until("it rests", || {
        assert_eq!(proxy.post("/").send().text(), "other");
        !up(&proxy, dead)
    });
    proxy.edit(|text| format!("{text}\n[[route]]\nmatch.path = \"/a\"\nshare = \"none\"\n"));
    assert!(proxy.reload());
    assert!(!up(&proxy, dead));

    proxy.edit(|text| text.replace("\"300s\"", "\"200s\""));
    assert!(proxy.reload());
    assert!(!up(&proxy, dead), "other rules are no reason to ask it");
    let third = nowhere();
    let first = format!("\"http://{dead}\", ");
    proxy.edit(|text| text.replace(&first, &format!("{first}\"http://{third}\", ")));
    assert!(proxy.reload());
    assert!(!up(&proxy, dead), "nor is another server");
    assert!(up(&proxy, third));
}
