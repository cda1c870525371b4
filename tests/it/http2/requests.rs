//! What of a request over HTTP/2 reaches the origin, and what is refused.

use ::http::HeaderMap;

use crate::support::frames::{Frames, Outcome, block, code, flag, frame, kind};
use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, log_in, shop};

fn echo() -> Origin {
    Origin::always(Reply::unstored("hello"))
}

#[test]
fn a_request_reaches_the_origin_as_one_of_http_1() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());

    let reply = client.send(ask("POST", "/a?b=1", &[("x-a", "1")]), Some(b"body"), None).unwrap();

    assert_eq!((reply.status, reply.text().as_str()), (200, "hello"));
    let seen = origin.last();
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/a?b=1"));
    assert_eq!(seen.header("host"), Some("shop.test"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
    assert_eq!(seen.header("via"), Some("2.0 anteroom"));
    assert_eq!(seen.header("x-a"), Some("1"));
    assert_eq!(seen.body.bytes, b"body");
    let line = &proxy.access_log(1)[0];
    assert_eq!(line["version"], "HTTP/2.0", "{line}");
}

#[test]
fn a_request_that_waits_for_100_goes_on_when_its_body_comes() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    let request = ask("POST", "/", &[("expect", "100-continue"), ("content-length", "4")]);
    assert_eq!(client.send(request, Some(b"body"), None).unwrap().status, 200);
    let seen = origin.last();
    assert_eq!((seen.body.bytes.as_slice(), seen.header("expect")), (&b"body"[..], None));
    let request = ask("POST", "/", &[("expect", "tea")]);
    assert_eq!(client.send(request, Some(b"body"), None).unwrap().status, 417);
}

#[test]
fn crumbs_of_cookies_are_one_line_to_the_origin_and_to_us() {
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let login = log_in(&proxy, "alice");
    let mut client = Http2Client::open(proxy.address());
    let crumbs = [("cookie", "a=1"), ("cookie", login.as_str()), ("cookie", "b=2")];

    assert_eq!(client.get(ask("GET", "/", &crumbs)).unwrap().status, 200);

    let seen = origin.last();
    let lines: Vec<_> = seen.fields.all("cookie").collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("a=1; ") && lines[0].ends_with("; b=2"), "{lines:?}");
    assert_eq!(seen.header("x-anteroom-user"), Some("alice"));
}

#[test]
fn both_versions_share_their_pages() {
    let origin = Origin::always(Reply::html("page").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    assert_eq!(client.get(ask("GET", "/one", &[])).unwrap().text(), "page");
    assert!(proxy.get("/one").send().is_hit());
    assert_eq!(proxy.get("/two").send().text(), "page");
    let hit = client.get(ask("GET", "/two", &[])).unwrap();
    assert!(hit.is_hit() && hit.text() == "page");
    assert_eq!(origin.count(), 2);
}

#[test]
fn the_authority_and_the_host_agree() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    for (target, fields, status, host) in [
        ("http://shop.test/", &[][..], 200, "shop.test"),
        ("http://Shop.TEST/", &[], 200, "shop.test"),
        ("http://shop.test/", &[("host", "shop.test")], 200, "shop.test"),
        ("http://shop.test:80/", &[("host", "shop.test")], 200, "shop.test:80"),
        ("http://shop.test/", &[("host", "evil.test")], 400, ""),
        ("http://shop.test/", &[("host", "shop.test"), ("host", "shop.test")], 400, ""),
        ("http://shop.test/", &[("host", "")], 400, ""),
        ("http://user@shop.test/", &[], 400, ""),
        ("https://shop.test/", &[], 421, ""),
        ("ftp://shop.test/", &[], 421, ""),
    ] {
        let before = origin.count();
        let reply = client.get(ask("GET", target, fields)).unwrap();
        assert_eq!(reply.status, status, "{target} {fields:?}");
        if status == 200 {
            assert_eq!(origin.last().header("host"), Some(host), "{target} {fields:?}");
        } else {
            assert_eq!(origin.count(), before, "{target} {fields:?}");
        }
    }
}

#[test]
fn a_proxy_that_is_trusted_may_name_the_scheme_of_its_visitor_and_is_not_believed_by_that() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "client.trusted_proxies = [\"127.0.0.1\"]");
    let mut client = Http2Client::open(proxy.address());
    assert_eq!(client.get(ask("GET", "https://shop.test/", &[])).unwrap().status, 200);
    assert_eq!(origin.last().header("x-forwarded-proto"), Some("http"));
    let told = [("x-forwarded-proto", "https")];
    assert_eq!(client.get(ask("GET", "https://shop.test/", &told)).unwrap().status, 200);
    assert_eq!(origin.last().header("x-forwarded-proto"), Some("https"));
}

#[test]
fn targets_are_paths() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let usual = [(":scheme", "http"), (":authority", "shop.test")];
    let host_alone = [(":scheme", "http"), ("host", "shop.test")];
    for (method, path, more, expected) in [
        ("GET", Some("/"), &usual[..], Outcome::Answered(1)),
        ("GET", Some("/"), &host_alone, Outcome::Answered(1)),
        ("OPTIONS", Some("*"), &usual, Outcome::Answered(1)),
        ("GET", Some(""), &usual, Outcome::Reset(1, code::PROTOCOL)),
        ("GET", None, &usual, Outcome::Reset(1, code::PROTOCOL)),
        // The library lets it through, and we answer 400.
        ("GET", None, &host_alone, Outcome::Answered(1)),
        ("CONNECT", None, &[(":authority", "shop.test:80")], Outcome::Answered(1)),
        ("CONNECT", Some("/"), &usual, Outcome::Reset(1, code::PROTOCOL)),
    ] {
        let mut fields = vec![(":method", method)];
        fields.extend(path.map(|path| (":path", path)));
        // Pseudo-header fields come first.
        fields.extend(more);
        let mut client = Frames::open(proxy.address());
        client.send(&frame(kind::HEADERS, flag::WHOLE, 1, &block(&fields)));
        assert_eq!(client.outcome(), expected, "{method} {path:?}");
    }
    assert_eq!(origin.count(), 3);
    assert!(origin.seen().iter().all(|request| request.method != "CONNECT"));
    assert!(origin.seen().iter().any(|request| request.target == "*"));
    let mut client = Http2Client::open(proxy.address());
    let mut connect = ask("CONNECT", "/", &[]);
    *connect.uri_mut() = "shop.test:443".parse().unwrap();
    assert_eq!(client.get(connect).unwrap().status, 501);
}

#[test]
fn http_1_framing_fields_are_rejected() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let refused = Outcome::Reset(1, code::PROTOCOL);
    for (field, expected) in [
        (("connection", "close"), refused),
        (("connection", "x-a"), refused),
        (("keep-alive", "timeout=5"), refused),
        (("proxy-connection", "keep-alive"), refused),
        (("transfer-encoding", "chunked"), refused),
        (("upgrade", "h2c"), refused),
        (("te", "gzip"), refused),
        (("te", "trailers"), Outcome::Answered(1)),
        (("content-length", "5"), refused),
        (("content-length", "0"), Outcome::Answered(1)),
        (("x-a", "1\r\nx-b: 2"), refused),
        ((":path", "/twice"), refused),
        ((":nonsense", "1"), refused),
        ((":status", "200"), refused),
    ] {
        let mut client = Frames::open(proxy.address());
        let block = crate::support::frames::request("/", &[field]);
        client.send(&frame(kind::HEADERS, flag::WHOLE, 1, &block));
        let outcome = client.outcome();
        let is_error = |outcome| matches!(outcome, Outcome::Reset(..) | Outcome::GoAway(_));
        assert!(
            outcome == expected || (is_error(outcome) && is_error(expected)),
            "{field:?}: {outcome:?}"
        );
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn values_with_spaces_around_them_and_two_lengths_are_refused() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    for more in [&[("x-a", " 1")][..], &[("content-length", "0"), ("content-length", "0")]] {
        let mut client = Frames::open(proxy.address());
        let block = crate::support::frames::request("/", more);
        client.send(&frame(kind::HEADERS, flag::WHOLE, 1, &block));
        let outcome = client.outcome();
        assert!(matches!(outcome, Outcome::Answered(1) | Outcome::Reset(..)), "{outcome:?}");
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn trailers_go_through_without_what_heads_may_not_say() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Http2Client::open(proxy.address());
    let mut trailers = HeaderMap::new();
    for (name, value) in [("x-sum", "7"), ("x-anteroom-user", "mallory"), ("host", "evil.test")] {
        trailers.insert(name, value.parse().unwrap());
    }
    let request = ask("POST", "/", &[("trailer", "x-sum")]);
    assert_eq!(client.send(request, Some(b"body"), Some(trailers)).unwrap().status, 200);
    let seen = origin.last();
    assert_eq!(seen.body.bytes, b"body");
    let names: Vec<_> = seen.body.trailers.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["x-sum"]);
}

#[test]
fn pseudo_header_fields_in_trailers_are_dropped() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Frames::open(proxy.address());
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "shop.test"),
    ]);
    client.send(&frame(kind::HEADERS, flag::END_HEADERS, 1, &head));
    client.send(&frame(kind::DATA, 0, 1, b"body"));
    let trailers = block(&[(":path", "/evil"), (":authority", "evil.test")]);
    client.send(&frame(kind::HEADERS, flag::WHOLE, 1, &trailers));
    client.outcome();
    let seen = origin.last();
    assert_eq!((seen.target.as_str(), seen.header("host")), ("/", Some("shop.test")));
    assert_eq!(seen.body.trailers.iter().count(), 0);
}

#[test]
fn a_log_in_of_the_connection_is_for_no_other_request_on_it() {
    let origin = Origin::start(|request| match request.header("authorization") {
        Some(_) => Reply::unstored("in"),
        None => Reply::unstored("out"),
    });
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut client = Http2Client::open(proxy.address());
    let negotiate = [("authorization", "Negotiate abc")];
    assert_eq!(client.get(ask("GET", "/", &negotiate)).unwrap().text(), "in");
    assert_eq!(client.get(ask("GET", "/", &[])).unwrap().text(), "out");
    let connections: Vec<_> = origin.seen().iter().map(|request| request.connection).collect();
    assert_ne!(connections[0], connections[1], "what was logged in is closed");
}

#[test]
fn it_can_be_switched_off() {
    let origin = echo();
    let listen = "listen = [{ address = \"{listen}\", h2 = false }]";
    let proxy = Proxy::embedded(&origin, listen);
    let mut client = Frames::open(proxy.address());
    while client.next().is_some() {}
    assert_eq!(proxy.get("/").send().status, 200);
    assert_eq!(origin.count(), 1);
}

#[test]
fn first_bytes_that_are_no_preface_are_of_http_1_however_they_come() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    for parts in [
        &["GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"][..],
        &["G", "ET / HTTP/1.1\r\nHost: shop.test\r\n\r\n"],
        &["P", "OST / HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 0\r\n\r\n"],
        &["PR", "I / HTTP/1.1\r\nHost: shop.test\r\n\r\n"],
    ] {
        let mut client = proxy.connect();
        for part in parts {
            client.send(part.as_bytes());
        }
        assert_eq!(client.answer().status, 200, "{parts:?}");
    }
}

/// RFC 9113 §8.3.1: `:path` begins with a slash. The library takes a fragment for nothing.
#[test]
fn no_path_goes_on_that_does_not_begin_with_a_slash() {
    let origin = echo();
    let proxy = Proxy::embedded(&origin, "");
    let mut client = Frames::open(proxy.address());
    for (stream, path) in [(1, "#"), (3, "#/admin/x"), (5, "?x")] {
        assert!(client.is_served(stream, path), "{path}");
    }
    let log = proxy.access_log(3);
    let statuses: Vec<_> = log.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(statuses, [200, 200, 400]);
    let targets: Vec<_> = origin.seen().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/", "/"]);
}

#[test]
fn the_limit_of_heads_holds_here_too_and_is_logged() {
    for (limits, cookies, status) in [
        ("", 24_000, 200),
        ("", 40_000, 431),
        ("request_head = \"128KiB\", ", 100_000, 200),
        ("request_head = \"8KiB\", uri = \"4KiB\", ", 4_000, 200),
        ("request_head = \"8KiB\", uri = \"4KiB\", ", 9_000, 431),
    ] {
        let origin = echo();
        let settings = format!("limits = {{ {limits}drain_delay = \"0s\" }}");
        let proxy = Proxy::embedded(&origin, &settings);
        let mut client = Http2Client::open(proxy.address());
        let cookie = format!("a={}", "x".repeat(cookies));
        let answer = client.get(ask("GET", "/", &[("cookie", &cookie)])).expect("an answer");
        assert_eq!(answer.status, status, "{limits}{cookies}");
        assert_eq!(proxy.access_log(1)[0]["status"], status);
        assert_eq!(origin.count(), usize::from(status == 200), "{limits}{cookies}");
    }
}
