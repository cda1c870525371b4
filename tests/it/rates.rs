//! Rate limits, for addresses and sessions, of all requests and of routes.

use crate::support::client::{Answer, Ask, Client};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{at_once, wait_until};

on_both_stores!(a_session_is_counted_wherever_it_comes_from);

/// The cases come from this address and name their client.
const TRUSTED: &str = r#"client.trusted_proxies = "127.0.0.1""#;

fn page() -> Origin {
    Origin::start(|request| Reply::html(&request.target))
}

fn limited(origin: &Origin, settings: &str) -> Proxy {
    Proxy::embedded(origin, &format!("{TRUSTED}\n{settings}"))
}

fn from(ask: Ask, address: &str) -> Answer {
    ask.header("X-Forwarded-For", address).send()
}

/// How many of six requests are served.
fn served(proxy: &Proxy, target: &str, address: &str) -> usize {
    (0..6).filter(|_| from(proxy.get(target), address).status == 200).count()
}

#[test]
fn an_address_has_so_many_requests_and_is_told_when_to_come_again() {
    let origin = page();
    let proxy = limited(&origin, "limits.requests_per_address = \"2/h burst 3\"");
    assert_eq!(served(&proxy, "/", "192.0.2.1"), 3);

    let over = from(proxy.get("/"), "192.0.2.1");

    assert_eq!((over.status, over.header("cache-control")), (429, Some("no-store")));
    let seconds: u64 = over.header("retry-after").unwrap().parse().unwrap();
    assert!((1_700..=1_800).contains(&seconds), "{seconds}");
    assert!(over.cache_status().contains("detail=rate-limited"), "{}", over.cache_status());
    // Hits count, too: the origin was asked once.
    assert_eq!(origin.count(), 1);
    assert_eq!(served(&proxy, "/", "192.0.2.2"), 3, "others have their own");
    assert_eq!(served(&proxy, "/", "2001:db8::1"), 3);
    assert_eq!(served(&proxy, "/", "2001:db8::2"), 0, "it has the /64");
    assert_eq!(served(&proxy, "/_anteroom/me", "2001:db8:1::"), 3, "ours count, too");
    assert_eq!(proxy.metric("anteroom_rate_limited_total{route=\"*\"}"), 19.0);
    assert_eq!(proxy.admin("/healthz").send().status, 200);
    proxy.wait_for_complaint("a rate limit is reached");
    assert!(proxy.complaints().matches("a rate limit is reached").count() == 1);
}

#[test]
fn the_threads_count_together() {
    let origin = page();
    let settings = "threads = 4\nlimits.requests_per_address = \"10/h\"";
    let proxy = limited(&origin, settings);
    let answers = at_once(32, |_| from(proxy.get("/"), "192.0.2.1").status);
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 10, "{answers:?}");
}

#[test]
fn a_connection_goes_on_behind_a_refusal() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "limits.requests_per_address = \"20/s burst 1\"");
    let mut client = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut client).status, 200);
    wait_until("one is too many", || proxy.get("/").send_on(&mut client).status == 429);
    wait_until("it is served again", || proxy.get("/").send_on(&mut client).status == 200);
}

#[test]
fn an_upload_over_the_limit_is_not_read() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "limits.requests_per_address = \"1/h\"");
    assert_eq!(proxy.get("/").send().status, 200);
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 10\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("connection")), (429, Some("close")));
    assert!(client.is_closed());
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_limit_of_get_counts_head() {
    let origin = page();
    let settings = r#"[[route]]
match.path = "/free"
match.method = "GET"
[[route]]
match.path = "/search"
match.method = "GET"
requests_per_address = "2/h"
[[route]]
match.path = "/free"
requests_per_address = "1/h""#;
    let proxy = limited(&origin, settings);
    let status = |method, target| {
        proxy.ask(method, target).header("X-Forwarded-For", "192.0.2.1").send().status
    };
    let statuses = ["HEAD", "GET", "HEAD", "GET"].map(|method| status(method, "/search"));
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(status("OPTIONS", "/search"), 200);
    // What is counted by its own name is, whatever GET is free to do.
    assert_eq!(["GET", "GET", "HEAD", "HEAD"].map(|it| status(it, "/free")), [200, 200, 200, 429]);
}

#[test]
fn each_route_counts_for_itself() {
    let origin = page();
    let proxy = limited(
        &origin,
        r#"limits.requests_per_address = "8/h"
[[route]]
name = "log in"
match.path = "/login"
requests_per_address = "2/h"
[[route]]
match.path = "/search"
requests_per_address = "3/h""#,
    );
    assert_eq!(served(&proxy, "/login", "192.0.2.1"), 2);
    assert_eq!(served(&proxy, "/search", "192.0.2.2"), 3);
    assert_eq!(served(&proxy, "/login", "192.0.2.2"), 2);
    assert_eq!(served(&proxy, "/", "192.0.2.2"), 0, "of all it had eight, refused ones included");
    assert_eq!(proxy.metric("anteroom_rate_limited_total{route=\"log in\"}"), 4.0);
    assert_eq!(proxy.metric("anteroom_rate_limited_total{route=\"/search\"}"), 3.0);
}

#[test]
fn a_route_counts_its_path_in_any_spelling_and_through_any_route() {
    let origin = page();
    let proxy = limited(
        &origin,
        r#"[[route]]
match.query = { p = "1" }
[[route]]
match.path = "/static/**"
[[route]]
match.path = "/Log-in"
requests_per_address = "1/h"
[[route]]
match.path = "/static/a.css"
requests_per_address = "1/h""#,
    );
    for (number, target) in [
        "/Log-in?p=1",
        "/log-in",
        "/Log-in/",
        "/LOG-IN;x=1",
        "//Log-in",
        "/./Log-in",
        "/a/..;/Log-in",
        "/%254cog-in",
    ]
    .into_iter()
    .enumerate()
    {
        let address = format!("192.0.2.{number}");
        assert_eq!(served(&proxy, target, &address), 1, "{target}");
        assert_eq!(served(&proxy, "/Log-in", &address), 0, "{target}");
        assert_eq!(served(&proxy, "/", &address), 6, "{target}");
    }
    assert_eq!(served(&proxy, "/static/a.css", "192.0.2.99"), 6, "a route before counts nothing");
}

#[test]
fn a_forbidden_purge_is_counted() {
    let origin = page();
    let settings = "limits.requests_per_address = \"1/h\"\n[purge]\nmethod = true\npurge_token = \"none\"\npurge_from = \"10.0.0.0/8\"";
    let proxy = Proxy::embedded(&origin, settings);
    let purge = || proxy.ask("PURGE", "/").send().status;
    assert_eq!((purge(), purge()), (403, 429));
    let settings = settings.replace("10.0.0.0", "127.0.0.0");
    let proxy = Proxy::embedded(&origin, &settings);
    let purge = || proxy.ask("PURGE", "/").send().status;
    assert_eq!((purge(), purge()), (200, 200));
}

#[test]
fn some_are_not_counted() {
    let origin = page();
    let settings = r#"limits.requests_per_address = "1/h"
limits.requests_per_session = "1/h"
limits.requests_exempt = ["10.0.0.0/8", "2001:db8::/32"]"#;
    let proxy = limited(&origin, settings);
    for address in ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.2", "127.0.0.1", "unknown"] {
        assert_eq!(served(&proxy, "/", address), 6, "{address}");
    }
    assert_eq!(served(&proxy, "/", "192.0.2.1"), 1);

    let settings = format!("listen = [{{ address = \"unix:./web.sock\" }}]\n{settings}");
    let proxy = Proxy::embedded(&origin, &settings);
    let socket = proxy.folder().join("web.sock");
    let ask = || proxy.get("/").send_on(&mut Client::unix(&socket)).status;
    assert!((0..3).all(|_| ask() == 200), "a client without an address");
}

fn a_session_is_counted_wherever_it_comes_from(storage: &Storage) {
    let origin = shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")));
    let settings =
        "session.mint = true\n[[route]]\nmatch.path = \"/mine\"\nrequests_per_session = \"3/h\"";
    let proxy = Proxy::start(&origin, storage, &format!("{TRUSTED}\n{settings}"));
    let ask = |cookie: &str, n: usize| {
        from(proxy.get("/mine").cookie(cookie), &format!("192.0.2.{n}")).status
    };
    let [alice, bob] = ["alice", "bob"].map(|user| log_in(&proxy, user));
    for cookie in [&alice, &bob] {
        assert_eq!((0..6).filter(|n| ask(cookie, *n) == 200).count(), 3, "{cookie}");
    }
    // What is asked of us counts as all requests do.
    let settings = "session.mint = true\nlimits.requests_per_session = \"3/h\"";
    let all = Proxy::start(&origin, storage, &format!("{TRUSTED}\n{settings}"));
    let carol = log_in(&all, "carol");
    let me = |n| from(all.get("/_anteroom/me").cookie(&carol), &format!("192.0.2.{n}"));
    assert_eq!((0..6).filter(|n| me(*n).status == 200).count(), 3);
    let over = me(6);
    assert_eq!(over.status, 429);
    assert!(over.header("retry-after").is_some());
    // Made-up tokens count for the client's address, all as one.
    let made_up = |n: usize| ask(&format!("login=made-up-token-{n:020}"), 77);
    assert_eq!((0..6).filter(|n| made_up(*n) == 200).count(), 3);
    assert_eq!(from(proxy.get("/mine"), "192.0.2.77").status, 429);
    assert_eq!(from(proxy.get("/mine"), "192.0.2.78").status, 200);
}
