//! Messages that two readers could understand differently: refused, on both sides.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;

/// What the proxy answers to exactly these bytes; `None` when it closes without a word.
fn status_of(proxy: &Proxy, bytes: &[u8]) -> Option<u16> {
    let mut client = proxy.connect();
    client.send(bytes);
    client.try_answer("GET").map(|answer| answer.status)
}

fn open() -> (Origin, Proxy) {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    (origin, proxy)
}

#[test]
fn a_request_needs_one_valid_host() {
    let (origin, proxy) = open();
    for lines in [
        "",
        "Host: a.test\r\nHost: a.test\r\n",
        "Host: a.test\r\nHost: b.test\r\n",
        "Host:\r\n",
        "Host: a b\r\n",
        "Host: user@a.test\r\n",
        "Host: a.test/path\r\n",
        "Host: a.test, b.test\r\n",
        "Host: a.test:port\r\n",
        "Host: a.test:99999\r\n",
        "Host: a\"b\r\n",
    ] {
        let request = format!("GET / HTTP/1.1\r\n{lines}\r\n");
        assert_eq!(status_of(&proxy, request.as_bytes()), Some(400), "{lines:?}");
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn a_transfer_coding_other_than_one_chunked_is_refused() {
    let (origin, proxy) = open();
    for lines in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n0\r\n\r\n");
        assert_eq!(status_of(&proxy, request.as_bytes()), Some(400), "{lines:?}");
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn two_lengths_never_become_two_requests() {
    let (origin, proxy) = open();
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 0x5\r\n",
    ] {
        let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n";
        let request = format!("POST /front HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n{smuggled}");
        let mut client = proxy.connect();
        client.send(request.as_bytes());
        assert!(client.is_closed(), "{lines:?}");
    }
    let seen: Vec<_> = origin.seen().into_iter().map(|request| request.target).collect();
    assert!(!seen.iter().any(|target| target == "/smuggled"), "{seen:?}");
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let origin = Origin::start(|request| Reply::unstored(request.path()));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    let requests: String =
        (0..5).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n")).collect();

    client.send(requests.as_bytes());

    for n in 0..5 {
        assert_eq!(client.answer().text(), format!("/{n}"));
    }
}

#[test]
fn a_chunked_body_that_breaks_the_rules_never_arrives_as_whole() {
    let (origin, proxy) = open();
    for body in [
        "zz\r\nabc\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "FFFFFFFFFFFFFFFFF\r\nabc\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
        let status = status_of(&proxy, format!("{head}{body}").as_bytes());
        assert!(matches!(status, None | Some(400)), "{body:?}: {status:?}");
    }
    assert!(origin.seen().iter().all(|request| !request.body.whole));
}

#[test]
fn too_large_requests_are_refused_with_the_matching_status() {
    let (origin, proxy) = open();
    let uri = |length| {
        format!(
            "POST /{} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n",
            "x".repeat(length)
        )
    };
    let field = |length| {
        format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nX: {}\r\n\r\n",
            "x".repeat(length)
        )
    };
    let count = |n| {
        let lines: String = (0..n).map(|i| format!("X-{i}: 1\r\n")).collect();
        format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n{lines}\r\n")
    };
    for (name, request, status) in [
        ("a long URI that fits", uri(16_000), 200),
        ("a URI over its limit", uri(17_000), 414),
        ("a URI over the limit of the head", uri(70_000), 431),
        ("a long field that fits", field(30_000), 200),
        ("a field over the limit of the head", field(40_000), 431),
        ("many fields that fit", count(90), 200),
        ("too many fields", count(120), 431),
    ] {
        assert_eq!(status_of(&proxy, request.as_bytes()), Some(status), "{name}");
    }
    assert_eq!(origin.count(), 3);
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let origin = Origin::start(|request| Reply::unstored(&request.body.length.to_string()));
    let proxy = Proxy::embedded(&origin, "limits.max_body = \"1KiB\"");

    assert_eq!(proxy.post("/").body(&[b'x'; 1023]).send().status, 200);
    assert_eq!(proxy.post("/").body(&[b'x'; 1024]).send().status, 200);
    assert_eq!(proxy.post("/").body(&[b'x'; 1025]).send().status, 413);
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 2000, "x".repeat(2000));
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(status_of(&proxy, format!("{head}{chunk}").as_bytes()), Some(413));
}

#[test]
fn connect_is_refused() {
    let (origin, proxy) = open();
    let request = b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n";
    let status = status_of(&proxy, request);
    assert!(status.is_none_or(|status| status >= 400), "{status:?}");
    assert_eq!(origin.count(), 0);
}

#[test]
fn an_origin_s_message_that_cannot_be_understood_one_way_is_a_502() {
    for response in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 twohundred OK\r\n\r\n",
        "220 smtp.example.test ESMTP\r\n",
        "",
    ] {
        let origin = Origin::always(Reply::raw(response.as_bytes()));
        let proxy = Proxy::embedded(&origin, "");
        assert_eq!(proxy.post("/").send().status, 502, "{response:?}");
    }
}

#[test]
fn an_unsolicited_response_answers_no_other_request() {
    let extra = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";
    let origin = Origin::start(move |request| match request.path() {
        "/talks" => Reply::unstored("first").bytes(extra),
        _ => Reply::unstored("second"),
    });
    let proxy = Proxy::embedded(&origin, "threads = 1");
    assert_eq!(proxy.post("/talks").send().text(), "first");
    assert_eq!(proxy.post("/other").send().text(), "second");
}

#[test]
fn a_head_answered_with_a_body_spoils_no_later_answer() {
    let origin = Origin::start(|request| match request.method.as_str() {
        "HEAD" => Reply::raw(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: no-store\r\n\r\nwrong",
        ),
        _ => Reply::unstored("right"),
    });
    let proxy = Proxy::embedded(&origin, "threads = 1");
    assert_eq!(proxy.ask("HEAD", "/").send().status, 200);
    assert_eq!(proxy.post("/").send().text(), "right");
}
