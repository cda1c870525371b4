//! What a client of HTTP/2 gets: the response as the origin meant it, whole or reset.

use crate::support::frames::{Frames, Outcome, code, flag, frame, get, kind, request};
use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::wait_until;

#[test]
fn fields_of_the_connection_stay_behind() {
    let origin = Origin::always(
        Reply::status("200 Fine")
            .header("Connection", "x-private, keep-alive")
            .header("X-Private", "1")
            .header("Keep-Alive", "timeout=5")
            .header("Upgrade", "h2c")
            .header("X-A", "1")
            .chunks(&["hello"], &[]),
    );
    let proxy = Proxy::embedded(&origin, "");
    let reply = Http2Client::open(proxy.address()).get(ask("GET", "/", &[])).unwrap();
    assert_eq!((reply.status, reply.text().as_str()), (200, "hello"));
    for name in ["connection", "x-private", "keep-alive", "upgrade", "transfer-encoding"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    assert_eq!(reply.header("x-a"), Some("1"));
}

#[test]
fn responses_without_a_body_have_none() {
    let origin = Origin::start(|request| match request.path() {
        "/204" => Reply::status("204 No Content"),
        "/304" => Reply::status("304 Not Modified").header("ETag", "\"a\""),
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    for (method, path, status, length) in [
        ("HEAD", "/", 200, Some("5")),
        ("GET", "/204", 204, None),
        ("GET", "/304", 304, None),
        ("GET", "/", 200, Some("5")),
    ] {
        let reply = client.get(ask(method, path, &[])).unwrap();
        assert_eq!(reply.status, status, "{method} {path}");
        assert_eq!(reply.header("content-length"), length, "{method} {path}");
        let body = if (method, path) == ("GET", "/") { "hello" } else { "" };
        assert_eq!(reply.text(), body, "{method} {path}");
    }
}

#[test]
fn our_own_answers_to_a_head_have_no_body() {
    let origin = Origin::start(|request| match request.path() {
        "/broken" => Reply::nothing(),
        _ => Reply::html("a page").header("Cache-Control", "max-age=60"),
    });
    let settings = r#"origin.hosts = ["shop.test"]
[[route]]
match.path = "/closed"
allow_from = "10.0.0.0/8"
[[route]]
match.path = "/counted"
requests_per_address = "1/h""#;
    let proxy = Proxy::embedded(&origin, settings);
    assert_eq!(proxy.get("/counted").send().status, 200);
    let mut client = Http2Client::open(proxy.address());
    let stored_only = ("cache-control", "only-if-cached");
    let elsewhere = "http://elsewhere.test/";
    for (target, fields, status) in [
        ("/page", &[][..], 200),
        ("/page", &[("if-none-match", "*")], 304),
        ("/page", &[("range", "bytes=0-1")], 200),
        ("/_anteroom/me", &[], 200),
        ("/_anteroom/cart", &[], 401),
        ("/_anteroom/none", &[], 404),
        ("/closed", &[], 403),
        ("/counted", &[], 429),
        ("/broken", &[], 502),
        ("/absent", &[stored_only], 504),
        (elsewhere, &[], 421),
        ("/", &[("expect", "wonders")], 417),
    ] {
        let full = client.get(ask("GET", target, fields)).unwrap();
        let head = client.get(ask("HEAD", target, fields)).unwrap();
        assert_eq!((head.status, head.text().as_str()), (status, ""), "{target}");
        if status == full.status {
            let length = (status != 304).then(|| full.body.len().to_string());
            assert_eq!(head.header("content-length"), length.as_deref(), "{target}");
        }
    }
    let lines = proxy.access_log(25);
    let heads: Vec<_> = lines.iter().filter(|line| line["method"] == "HEAD").collect();
    assert_eq!(heads.len(), 12);
    for line in heads {
        assert_eq!((&line["bytes"], line.get("aborted")), (&0.into(), None), "{line}");
    }
}

#[test]
fn trailers_come_through() {
    let origin = Origin::always(Reply::status("200 OK").header("Trailer", "x-sum").chunks(
        &["hello"],
        &[
            ("x-sum", "7"),
            ("x-anteroom-user", "alice"),
            ("set-cookie", "login=mallory"),
            ("clear-site-data", "\"cookies\""),
        ],
    ));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    let reply = client.get(ask("GET", "/", &[("te", "trailers")])).unwrap();
    assert_eq!(reply.text(), "hello");
    let trailers = reply.trailers.unwrap();
    assert_eq!(trailers.get("x-sum").unwrap(), "7");
    assert_eq!(trailers.len(), 1, "{trailers:?}");
}

#[test]
fn a_body_that_broke_off_is_reset_and_the_connection_goes_on() {
    let origin = Origin::start(|request| match request.path() {
        "/short" => Reply::status("200 OK")
            .header("Content-Length", "10")
            .header("Cache-Control", "max-age=60")
            .bytes("short")
            .closing(),
        "/chunks" => Reply::status("200 OK")
            .header("Transfer-Encoding", "chunked")
            .header("Cache-Control", "max-age=60")
            .bytes("5\r\nshort\r\n")
            .closing(),
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    for path in ["/short", "/chunks"] {
        for _ in 0..2 {
            let error = client.get(ask("GET", path, &[])).unwrap_err();
            assert!(error.is_reset(), "{path}: {error}");
            assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR), "{path}");
        }
    }
    assert_eq!(client.get(ask("GET", "/", &[])).unwrap().text(), "hello");
    assert_eq!(origin.count(), 5, "what broke off was not kept");
}

#[test]
fn many_responses_come_side_by_side_and_whole() {
    let body = "0123456789abcdef".repeat(6_400);
    let large = body.clone();
    let origin = Origin::start(move |request| match request.path().len() % 2 {
        0 => Reply::unstored(&large),
        _ => Reply::html(&large).header("Cache-Control", "max-age=60"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    let paths = (0..90).map(|n| ask("GET", &format!("/{n}"), &[]));
    let replies = client.all(paths.collect());
    for reply in replies {
        let reply = reply.unwrap();
        assert_eq!(reply.status, 200);
        assert!(reply.text() == body, "{} bytes", reply.body.len());
    }
}

#[test]
fn a_request_that_is_taken_back_ends_at_the_origin() {
    let origin = Origin::start(|request| match request.path() {
        "/hangs" => Reply::silence(),
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Frames::open(proxy.address());
    let head = request("/hangs", &[("authorization", "Basic YTpi")]);
    client.send(&frame(kind::HEADERS, flag::WHOLE, 1, &head));
    wait_until("the origin is asked", || origin.busy() == 1);
    client.send(&frame(kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes()));
    wait_until("the origin is released", || origin.busy() == 0);
    assert!(client.is_served(3, "/"), "the connection goes on");
    let line = &proxy.access_log(2)[0];
    assert_eq!((&line["status"], &line["aborted"]), (&499.into(), &true.into()), "{line}");
}

#[test]
fn a_change_that_is_taken_back_is_carried_out_all_the_same() {
    let gate = Gate::closed();
    let opened = gate.clone();
    let origin = Origin::start(move |request| {
        if request.method == "POST" {
            gate.pass();
            return Reply::unstored("done");
        }
        Reply::html("page").header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    assert_eq!(proxy.get("/page").send().text(), "page");
    assert!(proxy.get("/page").send().is_hit());
    let mut client = Frames::open(proxy.address());
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", "/page"), (":authority", "shop.test")];
    let head = crate::support::frames::block(&fields);
    client.send(&frame(kind::HEADERS, flag::WHOLE, 1, &head));
    wait_until("the origin is asked", || origin.count() == 2);
    client.send(&frame(kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes()));
    client.send(&frame(kind::PING, 0, 0, &[1; 8]));
    assert_eq!(client.outcome(), Outcome::Pong, "it is taken back");
    opened.open();
    wait_until("the page is fetched anew", || !proxy.get("/page").send().is_hit());
}

#[test]
fn a_drain_lets_open_requests_finish_and_takes_no_new_ones() {
    let gate = Gate::closed();
    let opened = gate.clone();
    let origin = Origin::start(move |_| {
        gate.pass();
        Reply::unstored("at last")
    });
    let mut proxy = Proxy::embedded(&origin, "");
    let mut client = Frames::open(proxy.address());
    client.send(&get(1, "/"));
    wait_until("the origin is asked", || origin.count() == 1);
    proxy.terminate();
    assert_eq!(client.outcome(), Outcome::GoAway(code::NONE));
    opened.open();
    let mut body = Vec::new();
    while let Some(frame) = client.next() {
        if frame.kind == kind::DATA {
            body.extend(frame.payload);
        }
    }
    assert_eq!(body, b"at last");
    assert_eq!(proxy.exit_code(), Some(0));
}
