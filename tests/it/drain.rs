//! The end of the process: TERM lets open requests finish, takes no new ones, and waits for so long.

use std::net::TcpStream;
use std::sync::Arc;

use crate::support::client::{Client, SITE};
use crate::support::frames::{Frames, Outcome, code};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::wait_until;

/// An origin that answers once the gate is open.
fn held(gate: &Arc<Gate>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |_| {
        gate.pass();
        Reply::unstored("at last")
    })
}

/// A request that the origin is busy with.
fn open_request(proxy: &Proxy, origin: &Origin) -> Client {
    let client = proxy.get("/").start();
    wait_until("the origin is asked", || origin.count() == 1);
    client
}

fn refuses(proxy: &Proxy) -> bool {
    TcpStream::connect(proxy.address()).is_err()
}

#[test]
fn an_open_request_is_finished_while_new_ones_are_refused() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let mut proxy = Proxy::embedded(&origin, "");
    let mut client = open_request(&proxy, &origin);

    proxy.terminate();
    wait_until("new connections are refused", || refuses(&proxy));
    assert_ne!(proxy.admin("/readyz").send().status, 200, "it is ready for no more");
    assert_eq!(proxy.admin("/healthz").send().status, 200);
    gate.open();

    assert_eq!(client.answer().text(), "at last");
    assert!(client.is_closed());
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_connection_without_a_request_is_closed_at_once() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let mut proxy = Proxy::embedded(&origin, "");
    let _busy = open_request(&proxy, &origin);
    gate.open();
    let mut idle = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut idle).text(), "at last");

    proxy.terminate();

    assert!(idle.is_closed());
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_request_that_has_begun_to_arrive_is_answered() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let mut proxy = Proxy::embedded(&origin, "threads = 1");
    let _busy = open_request(&proxy, &origin);
    let (mut first, mut second, mut third) = (proxy.connect(), proxy.connect(), proxy.connect());
    gate.open();
    assert_eq!(proxy.get("/").send_on(&mut second).status, 200);
    for client in [&mut first, &mut second] {
        assert!(client.send(b"GET / HTTP/1.1\r\nHo"));
    }
    // The part of a request may come with the request before it.
    let both = format!("GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\nGET / HTTP/1.1\r\nHo");
    assert!(third.send(both.as_bytes()));
    assert_eq!(third.answer().status, 200);
    // The one thread has read what came before, once it has answered what came later.
    for _ in 0..2 {
        assert_eq!(proxy.get("/").send().status, 200);
    }
    proxy.terminate();
    wait_until("new connections are refused", || refuses(&proxy));
    for client in [&mut first, &mut second, &mut third] {
        assert!(client.send(format!("st: {SITE}\r\n\r\n").as_bytes()));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert!(client.is_closed());
    }
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_request_that_takes_too_long_is_cut() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let mut proxy = Proxy::embedded(&origin, "limits.drain_timeout = \"200ms\"");
    let mut client = open_request(&proxy, &origin);

    proxy.terminate();

    assert!(client.is_closed());
    assert_eq!(proxy.exit_code(), Some(0));
    gate.open();
}

#[test]
fn a_load_balancer_sees_that_a_proxy_leaves_before_it_refuses_connections() {
    let gate = Gate::closed();
    let origin = held(&gate);
    let mut proxy = Proxy::embedded(&origin, "limits.drain_delay = \"60s\"");
    let busy = open_request(&proxy, &origin);
    gate.open();
    let mut kept = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut kept).header("connection"), None);
    drop(busy);

    proxy.terminate();
    wait_until("it says that it leaves", || proxy.admin("/readyz").send().status == 503);
    // New connections and kept ones are served, each for one more request.
    let answer = proxy.get("/").send_on(&mut kept);
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(kept.is_closed());
    for _ in 0..3 {
        let mut client = proxy.connect();
        let answer = proxy.post("/").send_on(&mut client);
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert!(client.is_closed());
    }
    // A second signal ends the wait.
    proxy.terminate();
    wait_until("new connections are refused", || refuses(&proxy));
    assert_eq!(proxy.exit_code(), Some(0));
}

#[test]
fn a_client_of_http_2_is_told_to_leave() {
    let origin = Origin::always(Reply::unstored("hello"));
    let mut proxy = Proxy::embedded(&origin, "limits.drain_delay = \"60s\"");
    let mut client = Frames::open(proxy.address());
    assert!(client.is_served(1, "/"));
    proxy.terminate();
    assert_eq!(client.end(), Outcome::GoAway(code::NONE));
    // A new one is served for as long as connections are accepted.
    let mut client = Frames::open(proxy.address());
    assert!(client.is_served(1, "/") && client.is_served(3, "/"));
    proxy.terminate();
    assert_eq!(client.end(), Outcome::GoAway(code::NONE));
    assert_eq!(proxy.exit_code(), Some(0));
}
