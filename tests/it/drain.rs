//! The end of the process: TERM lets open requests finish, takes no new ones, and waits for so long.

use std::net::TcpStream;
use std::sync::Arc;

use crate::support::client::{Client, SITE};
use crate::support::frames::{Frame, Frames, Outcome, code, get, kind};
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
fn a_kept_connection_gets_its_last_answer_without_a_delay_too() {
    let origin = Origin::always(Reply::unstored("hello"));
    for signal in ["TERM", "INT"] {
        let mut proxy = Proxy::embedded(&origin, "");
        let (mut reader, mut writer, mut silent) =
            (proxy.connect(), proxy.connect(), proxy.connect());
        for client in [&mut reader, &mut writer, &mut silent] {
            assert_eq!(proxy.get("/").send_on(client).header("connection"), None);
        }

        proxy.signal(signal);
        wait_until("new connections are refused", || refuses(&proxy));

        for (client, ask) in [(&mut reader, proxy.get("/")), (&mut writer, proxy.post("/"))] {
            let answer = ask.send_on(client);
            assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
            assert!(client.is_closed());
        }
        assert!(silent.is_closed(), "it had a moment for a request");
        assert_eq!(proxy.exit_code(), Some(0));
    }
}

#[test]
fn the_last_answer_comes_whole_whatever_was_sent_behind_its_request() {
    let origin = Origin::always(Reply::unstored("hello"));
    let mut proxy = Proxy::embedded(&origin, "limits.drain_delay = \"60s\"");
    let (mut reader, mut writer) = (proxy.connect(), proxy.connect());
    for client in [&mut reader, &mut writer] {
        assert_eq!(proxy.get("/").send_on(client).status, 200);
    }
    proxy.terminate();
    wait_until("it says that it leaves", || proxy.admin("/readyz").send().status == 503);
    let get = format!("GET / HTTP/1.1\r\nHost: {SITE}\r\n\r\n");
    let post = format!("POST / HTTP/1.1\r\nHost: {SITE}\r\nContent-Length: 0\r\n\r\n");
    // More than is read at a time, so that a part of it is unread when the proxy closes its side.
    for (client, request) in [(&mut reader, get), (&mut writer, post)] {
        assert!(client.send(request.repeat(4_000).as_bytes()));
        let answer = client.answer();
        assert_eq!((answer.text().as_str(), answer.header("connection")), ("hello", Some("close")));
        assert!(client.is_ended_well(), "it is not reset");
    }
    proxy.terminate();
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

#[test]
fn a_request_that_is_on_its_way_over_http_2_is_answered() {
    let origin = Origin::always(Reply::unstored("hello"));
    let mut proxy = Proxy::embedded(&origin, "");
    let mut client = Frames::open(proxy.address());
    assert!(client.is_served(1, "/"));
    proxy.terminate();
    let last = |frame: &Frame| u32::from_be_bytes(frame.payload[..4].try_into().unwrap());
    // The first GOAWAY only tells (RFC 9113 §6.8); what the client sends before it answers the PING is still processed.
    let first = std::iter::from_fn(|| client.next()).find(|frame| frame.kind == kind::GOAWAY);
    assert_eq!(first.as_ref().map(last), Some(u32::MAX >> 1));
    assert!(client.send(&get(3, "/")));
    let rest: Vec<Frame> = std::iter::from_fn(|| client.next()).collect();
    assert!(rest.iter().any(|frame| frame.stream == 3 && frame.ends_stream()), "{rest:?}");
    let second = rest.iter().find(|frame| frame.kind == kind::GOAWAY);
    assert_eq!(second.map(last), Some(3));
    assert_eq!(proxy.exit_code(), Some(0));
}
