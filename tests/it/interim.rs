//! Interim responses on their way to visitors, and what clients expect before they send.

use std::sync::Arc;

use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;

const HINTS: &str = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\nSet-Cookie: a=b\r\nAnteroom-Login: root\r\n\r\n";
const PASSED: &str = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n";

/// An origin that hints, waits, and answers.
fn hinting(gate: &Arc<Gate>) -> Origin {
    let gate = Arc::clone(gate);
    Origin::start(move |request| match request.path() {
        "/plain" => Reply::unstored("plain"),
        "/kept" => Reply::hints(HINTS, &gate, "Cache-Control: max-age=60\r\n"),
        _ => Reply::hints(HINTS, &gate, "Cache-Control: no-store\r\n"),
    })
}

#[test]
fn hints_arrive_before_the_response() {
    let gate = Gate::closed();
    let origin = hinting(&gate);
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    // Behind a response that is on its way already, and not within it.
    client.send(b"POST /plain HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\nPOST /hints HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\n");
    assert!(client.until("\r\n\r\nplain").starts_with("HTTP/1.1 200"));
    assert_eq!(client.until("preload\r\n\r\n"), PASSED);
    gate.open();
    let rest = client.until("hello");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && !rest.contains("103"), "{rest}");
    client.send(b"GET /plain HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    assert!(client.until("\r\n\r\nplain").starts_with("HTTP/1.1 200"));
    assert_eq!(proxy.metric("anteroom_interim_dropped_total"), 0.0);
}

#[test]
fn hints_reach_only_the_client_they_are_for() {
    let gate = Gate::closed();
    let origin = hinting(&gate);
    let proxy = Proxy::embedded(&origin, "");
    let ask = || {
        let mut client = proxy.connect();
        client.send(b"GET /kept HTTP/1.1\r\nHost: shop.test\r\n\r\n");
        client
    };
    // The fetch of a shared page is the request of the client that began it.
    let mut first = ask();
    assert_eq!(first.until("preload\r\n\r\n"), PASSED);
    let mut waiting = ask();
    gate.open();
    for client in [&mut first, &mut waiting, &mut ask()] {
        assert!(client.until("hello").starts_with("HTTP/1.1 200"));
    }
    assert_eq!(origin.count(), 1);
    // A client of HTTP/1.0 knows of none.
    let mut old = proxy.connect();
    old.send(b"POST /hints HTTP/1.0\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\n");
    let answer = old.until("hello");
    assert!(answer.starts_with("HTTP/1.") && !answer.contains("103"), "{answer}");
    assert_eq!(proxy.metric("anteroom_interim_dropped_total"), 2.0);
}

#[test]
fn of_many_hints_some_arrive() {
    let gate = Gate::closed();
    let inner = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        Reply::hints(&hint.repeat(100), &inner, "Cache-Control: no-store\r\n")
    });
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\n");
    client.until("HTTP/1.1 103 Early Hints\r\n");
    gate.open();
    let rest = client.until("hello");
    assert_eq!(rest.matches("103").count(), 7);
}

#[test]
fn a_refused_request_gets_no_100_continue() {
    let origin = Origin::start(|_| Reply::unstored("hello"));
    let proxy =
        Proxy::embedded(&origin, "limits.max_body = \"10B\"\norigin.hosts = [\"shop.test\"]");
    for (lines, status) in [
        ("Host: shop.test\r\nExpect: 100-continue\r\nContent-Length: 11\r\n", 413),
        ("Host: other.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n", 421),
        ("Host: shop.test\r\nExpect: 100-continue, more\r\nContent-Length: 5\r\n", 417),
        ("Host: shop.test\r\nExpect: more\r\nContent-Length: 5\r\n", 417),
    ] {
        let mut client = proxy.connect();
        client.send(format!("POST / HTTP/1.1\r\n{lines}\r\n").as_bytes());
        assert_eq!(client.next_status(), Some(status), "{lines}");
        assert!(client.is_closed());
    }
    assert_eq!(origin.count(), 0);
}
