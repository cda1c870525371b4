//! Clients that are slow, silent, or many: each is cut off, and others are served meanwhile. And pages
//! that are large or many: memory and store stay within their bounds, and the pages that are asked for
//! again and again stay in them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::client::Client;
use crate::support::frames::{Frames, Outcome, code, get};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::{DEADLINE, wait_until};

on_both_stores!(
    a_flood_of_pages_stays_within_the_bounds_and_leaves_the_hot_ones,
    a_store_that_is_nearly_full_takes_what_is_asked_for_again,
);

fn hello() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

#[test]
fn a_client_that_says_nothing_is_cut_off() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.head_timeout = \"200ms\"");
    assert!(proxy.connect().is_closed());
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.head_timeout = \"200ms\"");
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\nX-Slow: ");
    assert!(client.is_closed());
    assert_eq!(origin.count(), 0);
}

#[test]
fn a_head_that_trickles_is_cut_off_all_the_same() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.head_timeout = \"300ms\"");
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\nX-Slow: ");
    wait_until("the trickle is cut off", || !client.send(b"x"));
}

#[test]
fn an_idle_connection_is_closed() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.idle_timeout = \"200ms\"");
    let mut client = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut client).status, 200);
    assert!(client.is_closed());
}

#[test]
fn an_upload_that_stalls_is_cut_off() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.stall_timeout = \"200ms\"");
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 100\r\n\r\nhalf");
    assert!(client.is_closed());
    assert!(origin.seen().iter().all(|request| !request.body.whole));
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let origin = Origin::always(Reply::status("200 OK").filling(256 << 20));
    let proxy = Proxy::embedded(&origin, "limits.stall_timeout = \"200ms\"");
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\n");
    wait_until("the origin is asked", || origin.count() == 1);
    wait_until("the origin is released", || origin.busy() == 0);
    drop(client);
}

#[test]
fn slow_clients_do_not_keep_others_waiting() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = proxy.connect();
            client.send(b"GET / HTTP/1.1\r\nHost: ");
            client
        })
        .collect();
    assert_eq!(proxy.get("/").send().status, 200);
    drop(slow);
}

/// A listener behind a load balancer, which names the client of each connection.
const BALANCED: &str =
    r#"listen = [{ address = "{listen}", proxy_protocol.from = ["127.0.0.1"] }]"#;

/// A connection that the load balancer opens for a client at `address`.
fn from_address(proxy: &Proxy, address: &str) -> Client {
    let mut client = proxy.connect();
    client.send(format!("PROXY TCP4 {address} 198.51.100.1 1 2\r\n").as_bytes());
    client
}

#[test]
fn one_address_has_so_many_connections_once_half_of_all_are_open() {
    let origin = hello();
    let settings = "limits.connections = 6\nlimits.connections_per_address = 2";
    let proxy = Proxy::embedded(&origin, &format!("{BALANCED}\n{settings}"));
    let mut clients = [(); 3].map(|()| from_address(&proxy, "192.0.2.7"));
    for client in &mut clients {
        assert_eq!(proxy.get("/").send_on(client).status, 200);
    }

    let fourth = proxy.get("/").try_send_on(&mut from_address(&proxy, "192.0.2.7"));

    assert!(fourth.is_none_or(|answer| answer.status == 503), "the fourth is turned away");
    assert_eq!(proxy.get("/").send_on(&mut clients[0]).status, 200);
    let mut other = from_address(&proxy, "192.0.2.8");
    assert_eq!(proxy.get("/").send_on(&mut other).status, 200, "it is not the other's fault");
    drop(clients);
    wait_until("there is room again", || {
        let answer = proxy.get("/").try_send_on(&mut from_address(&proxy, "192.0.2.7"));
        answer.is_some_and(|answer| answer.status == 200)
    });
}

#[test]
fn connections_of_trusted_proxies_and_of_this_machine_are_counted_in_all_only() {
    let origin = hello();
    let settings = "limits.connections = 5\nlimits.connections_per_address = 1\n\
                    client.trusted_proxies = [\"192.0.2.0/24\"]";
    for (listen, address) in [(BALANCED, "192.0.2.7"), ("", "")] {
        let proxy = Proxy::embedded(&origin, &format!("{listen}\n{settings}"));
        let come = || match address {
            "" => proxy.connect(),
            address => from_address(&proxy, address),
        };
        let mut clients: Vec<_> = (0..5).map(|_| come()).collect();
        assert!(clients.iter_mut().all(|client| proxy.get("/").send_on(client).status == 200));
    }
}

/// Requests that the origin does not answer yet, side by side on a connection of HTTP/2.
fn side_by_side(proxy: &Proxy, count: u32) -> Frames {
    let mut client = Frames::open(proxy.address());
    (0..count).for_each(|n| assert!(client.send(&get(2 * n + 1, &format!("/{n}")))));
    client
}

#[test]
fn one_address_has_so_many_requests_at_once_and_no_more() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::unstored("hello")
    });
    let settings = "limits.requests_at_once_per_address = 3";
    let proxy = Proxy::embedded(&origin, settings);
    let mut first = side_by_side(&proxy, 2);
    wait_until("the origin is asked", || origin.count() == 2);
    let mut second = side_by_side(&proxy, 2);
    assert_eq!(second.outcome(), Outcome::Reset(3, code::REFUSED));
    wait_until("it is counted", || proxy.metric("anteroom_http2_streams_refused_total") == 1.0);
    gate.open();
    let mut open = 2;
    while open > 0 {
        open -= usize::from(first.next().expect("it goes on").ends_stream());
    }
    assert!(first.is_served(5, "/"), "there is room again");
    assert!(second.is_served(5, "/"), "and the connection goes on");
    assert_eq!(origin.seen().iter().filter(|seen| seen.path() == "/1").count(), 1);
}

#[test]
fn a_trusted_proxy_s_requests_at_once_are_not_counted() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::unstored("hello")
    });
    let settings =
        "limits.requests_at_once_per_address = 1\nclient.trusted_proxies = [\"127.0.0.0/8\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let client = side_by_side(&proxy, 5);
    wait_until("the origin is asked", || origin.count() == 5);
    gate.open();
    drop(client);
}

#[test]
fn there_are_so_many_connections_in_all() {
    let origin = hello();
    let proxy = Proxy::embedded(&origin, "limits.connections = 3");
    let mut clients: Vec<_> = (0..3).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        assert_eq!(proxy.get("/").send_on(client).status, 200);
    }

    let fourth = proxy.get("/").try_send_on(&mut proxy.connect());

    assert!(fourth.is_none(), "the fourth is turned away: {fourth:?}");
    assert_eq!(proxy.metric("anteroom_connections_refused_total") as u64, 1);
    assert_eq!(proxy.get("/").send_on(&mut clients[2]).status, 200);
    drop(clients);
    wait_until("there is room again", || served(&proxy));
}

fn served(proxy: &Proxy) -> bool {
    let answer = proxy.get("/").try_send_on(&mut proxy.connect());
    answer.is_some_and(|answer| answer.status == 200)
}

#[test]
fn an_object_over_its_limit_passes_and_is_not_kept() {
    let origin = Origin::start(|request| match request.path() {
        "/small" => Reply::html(&"x".repeat(10_000)),
        "/large" => Reply::html(&"x".repeat(10_241)),
        _ => Reply::status("200 OK")
            .header("Content-Type", "text/html")
            .chunks(&["x".repeat(8_000).as_str(), "y".repeat(8_000).as_str()], &[]),
    });
    let proxy = Proxy::embedded(&origin, "cache.max_object = \"10KiB\"");
    for (path, length, hit) in
        [("/small", 10_000, true), ("/large", 10_241, false), ("/chunked", 16_000, false)]
    {
        assert_eq!(proxy.get(path).send().body.length, length);
        let second = proxy.get(path).send();
        assert_eq!((second.body.length, second.is_hit()), (length, hit), "{path}");
    }
}

#[test]
fn a_page_with_too_many_bytes_of_fields_passes_and_is_not_kept() {
    let origin = Origin::start(|request| {
        let length = request.path().trim_start_matches('/').parse().unwrap();
        Reply::html("page").header("X-Long", &"x".repeat(length))
    });
    let proxy = Proxy::embedded(&origin, "");
    for (path, hit) in [("/16000", true), ("/16384", false)] {
        proxy.get(path).send();
        let second = proxy.get(path).send();
        assert_eq!((second.text().as_str(), second.is_hit()), ("page", hit), "{path}");
    }
    assert_eq!(proxy.metric("anteroom_pages_refused_total{reason=\"fields\"}") as u64, 1);
}

/// Asks for pages over connections that are kept.
fn ask_all(proxy: &Proxy, targets: impl Iterator<Item = String>) {
    let mut client = proxy.connect();
    for target in targets {
        assert_eq!(proxy.get(&target).send_on(&mut client).status, 200);
    }
}

const MIB: f64 = (1 << 20) as f64;
/// A memory of 1 MiB, and as much in the store.
const SMALL: &str = "cache.memory = \"1MiB\"\ncache.max_object = \"64KiB\"\nstore.pages = \"1MiB\"";

fn a_flood_of_pages_stays_within_the_bounds_and_leaves_the_hot_ones(storage: &Storage) {
    let page = "x".repeat(4_000);
    let origin = Origin::start(move |_| Reply::html(&page));
    let proxy = Proxy::start(&origin, storage, SMALL);
    let hot = || (0..40).map(|n| format!("/hot/{n}"));
    // The flood comes first: the hot set has to find its place in it.
    ask_all(&proxy, (0..600).map(|n| format!("/early/{n}")));
    let mut client = proxy.connect();
    for round in 0..24 {
        for (n, target) in hot().enumerate() {
            proxy.get(&target).send_on(&mut client);
            ask_all(&proxy, (0..2).map(|of| format!("/flood/{round}/{n}/{of}")));
        }
    }
    let missed = hot().filter(|target| {
        let answer = proxy.get(target).send_on(&mut client);
        !answer.cache_status().contains("detail=memory")
    });
    let missed = missed.count();
    assert!(missed <= 4, "{missed} of 40 hot pages are not in memory");
    let [memory, stored] = ["anteroom_memory_pages_bytes", "anteroom_store_pages_bytes"]
        .map(|name| proxy.metric(name));
    assert!(memory <= MIB && stored <= MIB, "{memory} bytes in memory, {stored} in the store");
    assert!(memory > MIB / 2.0 && stored > MIB / 2.0, "{memory} and {stored}");
    let unstored = proxy.metric("anteroom_pages_unstored_total{reason=\"nearly-full\"}");
    assert!(unstored > 1_000.0, "{unstored}");
}

fn a_store_that_is_nearly_full_takes_what_is_asked_for_again(storage: &Storage) {
    let page = "x".repeat(12_000);
    let origin = Origin::start(move |_| Reply::html(&page));
    let proxy = Proxy::start(&origin, storage, "store.pages = \"1MiB\"");
    let mut client = proxy.connect();
    let mut next = 0;
    let unstored = || proxy.metric("anteroom_pages_unstored_total{reason=\"nearly-full\"}");
    wait_until("the store is nearly full", || {
        proxy.get(&format!("/{next}")).send_on(&mut client);
        next += 1;
        unstored() > 0.0
    });
    let before = proxy.metric("anteroom_store_pages_bytes");
    assert!(before <= 0.8 * MIB, "{before}");

    // All are in memory: those that the store has not yet come there now.
    for n in 0..next {
        assert!(proxy.get(&format!("/{n}")).send_on(&mut client).is_hit());
    }
    wait_until("what is asked for again is stored", || {
        // Whatever is let in or not within one second, this is another page.
        let target = format!("/{next}");
        next += 1;
        proxy.get(&target).send_on(&mut client);
        assert!(proxy.get(&target).send_on(&mut client).is_hit());
        proxy.metric("anteroom_store_pages_bytes") > 0.8 * MIB
    });
    assert!(proxy.metric("anteroom_store_pages_bytes") <= MIB);
}

#[test]
fn pages_of_a_fleet_in_redis_have_one_bound() {
    let page = "x".repeat(8_000);
    let origin = Origin::start(move |_| Reply::html(&page));
    let storage = Storage::redis();
    let proxies = [(); 2].map(|()| Proxy::start(&origin, &storage, SMALL));
    for (which, proxy) in proxies.iter().enumerate() {
        ask_all(proxy, (0..200).map(|n| format!("/{which}/{n}")));
    }
    let Storage::Redis(server) = &storage else { unreachable!("it was started above") };
    let keys = server.keys("cache:*");
    let sum: u64 = keys.iter().map(|key| server.command::<u64>(&["STRLEN", key])).sum();
    let booked: u64 = server.command(&["HGET", "pagebytes:", "all"]);
    assert_eq!(booked, sum + 256 * keys.len() as u64);
    assert!(booked <= 1 << 20, "{booked}");
    assert!(booked > 700 << 10, "{booked}");
}

#[test]
fn pages_may_be_in_a_redis_of_their_own() {
    let [sessions, pages] = [RedisServer::start(), RedisServer::start()];
    let origin = shop(|request| {
        let page = Reply::html(request.path()).header("Cache-Control", "max-age=60");
        page.header("Vary", "Accept-Language")
    });
    let settings = format!(
        "store.url = \"{}\"\nstore.pages_url = \"{}\"\nsession.mint = true",
        sessions.url(),
        pages.url()
    );
    let proxies = [(); 2].map(|()| Proxy::with_settings(&origin, &settings));
    proxies[0].get("/a").send();
    log_in(&proxies[0], "ann");
    wait_until("the page is stored with its index", || pages.keys("cache:*").len() == 2);
    let answer = proxies[1].get("/a").send();
    assert!(answer.cache_status().contains("detail=store"), "{}", answer.cache_status());
    assert!(sessions.keys("cache:*").is_empty() && pages.keys("login:*").is_empty());
    assert_eq!(sessions.keys("login:").len(), 1);

    // A change holds in both proxies, and the page that it hits goes.
    proxies[0].post("/a").send();
    wait_until("the page is gone", || {
        let on_its_way = proxies[1].get("/a").send();
        !on_its_way.is_hit() && origin.count() > 3
    });
}

#[test]
fn a_page_has_so_many_variants_and_all_are_right() {
    let origin = Origin::start(|request| {
        Reply::html(request.header("accept-language").unwrap_or("-"))
            .header("Vary", "Accept-Language")
    });
    let proxy = Proxy::embedded(&origin, "limits.variants = 3");
    for _ in 0..2 {
        for language in ["a", "b", "c", "d", "e", "f"] {
            assert_eq!(proxy.get("/").header("Accept-Language", language).send().text(), language);
        }
    }
}

#[test]
fn term_lets_an_open_request_finish() {
    let origin = shop(|_| Reply::unstored("slow").after(Duration::from_millis(300)));
    let mut proxy = Proxy::embedded(&origin, "session.mint = true");
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    wait_until("the origin is asked", || origin.count() == 1);

    proxy.terminate();

    assert_eq!(client.answer().text(), "slow");
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_slow_reader_of_a_stored_page_is_not_idle() {
    const LENGTH: u64 = 48 << 20;
    let origin = Origin::always(
        Reply::status("200 OK").header("Cache-Control", "max-age=60").filling(LENGTH),
    );
    let settings = "limits.idle_timeout = \"200ms\"\ncache.max_object = \"60MiB\"";
    let proxy = Proxy::embedded(&origin, settings);
    assert_eq!(proxy.get("/").send().body.length, LENGTH);
    let mut client = proxy.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n");

    pause(Duration::from_millis(600));

    let answer = client.answer();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!((answer.body.length, answer.body.whole), (LENGTH, true));
    assert!(client.is_closed(), "now it is idle");
}

#[test]
fn a_reader_does_not_wait_for_those_that_were_sent_away() {
    // The origin has one worker: it answers no other request before the first page is through.
    let read = Arc::new(AtomicBool::new(false));
    let (free, patient) = (Arc::clone(&read), Arc::new(AtomicBool::new(true)));
    let waited = Arc::clone(&patient);
    let begun = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        if begun.fetch_add(1, Ordering::SeqCst) == 0 {
            let chunk = "x".repeat(1 << 20);
            return Reply::status("200 OK")
                .header("Content-Type", "text/html")
                .after(Duration::from_millis(300))
                .chunks(&vec![chunk.as_str(); 32], &[]);
        }
        let deadline = Instant::now() + DEADLINE / 2;
        while !free.load(Ordering::SeqCst) && Instant::now() < deadline {
            pause(Duration::from_millis(5));
        }
        waited.fetch_and(free.load(Ordering::SeqCst), Ordering::SeqCst);
        Reply::html("small")
    });
    let proxy = Proxy::embedded(&origin, "cache.max_object = \"1MiB\"");
    let mut first = proxy.connect();
    first.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    wait_until("the origin is asked", || origin.count() == 1);
    let mut second = proxy.connect();
    second.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n");

    let large = first.answer();
    read.store(true, Ordering::SeqCst);

    assert_eq!((large.body.length, large.body.whole), (32 << 20, true));
    assert_eq!(second.answer().text(), "small");
    assert!(patient.load(Ordering::SeqCst), "the first reader waited for the second");
}

#[test]
fn a_page_that_never_ends_keeps_no_request_waiting() {
    let origin = Origin::always(
        Reply::status("200 OK")
            .header("Content-Type", "text/html")
            .header("Transfer-Encoding", "chunked")
            .bytes("5\r\nhello\r\n")
            .hanging(),
    );
    let proxy = Proxy::embedded(&origin, "");
    let mut clients = [proxy.connect(), proxy.connect(), proxy.connect()];
    for (client, more) in clients.iter_mut().zip(["", "", "X-Mine: 1\r\n"]) {
        client.send(format!("GET / HTTP/1.1\r\nHost: shop.test\r\n{more}\r\n").as_bytes());
    }
    for client in &mut clients {
        assert_eq!(client.next_status(), Some(200));
    }
}

/// A slow reader.
#[expect(clippy::disallowed_methods, reason = "being slow is what these cases are about")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[test]
fn as_many_files_may_be_open_as_the_system_lets_us() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::behind("ulimit -S -n 300", &origin);
    let limits = proxy.limits();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_ascii_whitespace().skip(3);
    let (soft, hard) = (numbers.next(), numbers.next());
    assert_eq!(soft, hard, "{line}");
}

#[test]
fn fewer_files_than_connections_need_are_warned_of() {
    let origin = Origin::start(|_| Reply::html("hello"));
    let proxy = Proxy::behind("ulimit -n 1000", &origin);
    proxy.wait_for_complaint("LimitNOFILE");
}
