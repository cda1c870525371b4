//! What goes on to the origin and what comes back: methods, statuses, bodies, fields, errors.
//!
//! Malformed messages are in `framing`.

use std::time::Duration;

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::{at_once, free_port};

#[test]
fn any_method_passes() {
    let origin = Origin::start(|request| Reply::unstored(&request.method));
    let proxy = Proxy::embedded(&origin, "");
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "M-SEARCH", "x!y"] {
        let answer = proxy.ask(method, "/").send();
        assert_eq!((answer.status, answer.text().as_str()), (200, method));
    }
}

#[test]
fn any_status_passes_with_its_reason() {
    let origin = Origin::start(|request| {
        let status = request.path().trim_start_matches('/').replace('_', " ");
        Reply::status(&status).header("Cache-Control", "no-store").body("body")
    });
    let proxy = Proxy::embedded(&origin, "");
    for (status, reason) in [
        (200, "Fine By Me"),
        (207, "Multi-Status"),
        (299, "Odd"),
        (418, "I'm a teapot"),
        (420, "Enhance Your Calm"),
        (451, ""),
        (599, "Whatever"),
        (777, "Lucky"),
        (999, "Last"),
    ] {
        let path = format!("/{status}_{}", reason.replace(' ', "_"));
        let answer = proxy.get(&path).send();
        assert_eq!((answer.status, answer.reason.as_str()), (status, reason));
        assert_eq!(answer.text(), "body", "{status}");
    }
}

#[test]
fn statuses_without_a_body_have_none_and_the_connection_goes_on() {
    let origin = Origin::start(|request| match request.path() {
        "/204" => Reply::status("204 No Content"),
        "/304" => Reply::status("304 Not Modified").header("ETag", "\"1\""),
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();

    let statuses = [
        proxy.get("/204").send_on(&mut client),
        proxy.get("/304").header("If-None-Match", "\"1\"").send_on(&mut client),
        proxy.ask("HEAD", "/").send_on(&mut client),
        proxy.get("/").send_on(&mut client),
    ];

    assert_eq!(statuses.each_ref().map(|answer| answer.status), [204, 304, 200, 200]);
    assert_eq!(statuses[2].header("content-length"), Some("5"));
    assert_eq!(statuses[3].text(), "hello");
}

#[test]
fn bodies_pass_in_both_forms_both_ways() {
    let origin = Origin::start(|request| {
        let body = String::from_utf8_lossy(&request.body.bytes).into_owned();
        let reply = Reply::status("200 OK").header("Cache-Control", "no-store");
        if request.path() == "/chunked" {
            reply.chunks(&[&body, "!", "?"], &[])
        } else {
            reply.body(body + "!?")
        }
    });
    let proxy = Proxy::embedded(&origin, "");

    for path in ["/chunked", "/fixed"] {
        let fixed = proxy.post(path).body(b"").send();
        assert_eq!(fixed.text(), "!?");
        let mut client = proxy.connect();
        client.send(
            format!(
                "POST {path} HTTP/1.1\r\nHost: shop.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
            )
            .as_bytes(),
        );
        let chunked = client.answer();
        assert_eq!((chunked.text().as_str(), chunked.body.whole), ("abcde!?", true));
    }
}

#[test]
fn a_post_without_a_body_says_so() {
    // Some servers answer 411 to a POST that does not say how long its body is.
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.post("/").send();
    assert_eq!(origin.last().header("content-length"), Some("0"));
}

#[test]
fn a_client_that_waits_for_100_gets_it_and_one_answer() {
    let origin = Origin::start(|request| Reply::unstored(&request.body.length.to_string()));
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();

    client.send(
        b"POST / HTTP/1.1\r\nHost: shop.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    assert_eq!(client.next_status(), Some(100));
    client.send(b"hello");

    // The head of the interim response ends with an empty line, which the reader skips.
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (200, "5"));
}

#[test]
fn trailers_reach_the_clients_that_asked_for_them() {
    let origin = Origin::always(
        Reply::status("200 OK")
            .header("Cache-Control", "no-store")
            .header("Trailer", "X-Checksum")
            .chunks(&["body"], &[("X-Checksum", "42"), ("Anteroom-Login", "root")]),
    );
    let proxy = Proxy::embedded(&origin, "session.mint = true");

    let with = proxy.get("/").header("TE", "trailers").header("Connection", "TE").send();
    let without = proxy.get("/").send();

    assert_eq!(with.body.trailers.get("x-checksum"), Some("42"));
    assert_eq!(with.body.trailers.get("anteroom-login"), None);
    assert_eq!(without.body.trailers.get("x-checksum"), None);
    assert_eq!((with.text(), without.text()), ("body".into(), "body".into()));
}

#[test]
fn hop_by_hop_fields_are_not_forwarded() {
    let origin = Origin::always(
        Reply::unstored("hello")
            .header("Connection", "X-Origin-Hop")
            .header("X-Origin-Hop", "1")
            .header("Keep-Alive", "timeout=5")
            .header("X-End", "1"),
    );
    let proxy = Proxy::embedded(&origin, "");

    let answer = proxy
        .post("/")
        .header("Connection", "X-Client-Hop, Host, Cookie, Authorization, Content-Length")
        .header("X-Client-Hop", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Connection", "keep-alive")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__")
        .header("Authorization", "Basic YWxpY2U6")
        .cookie("a=1")
        .header("X-End", "1")
        .body(b"body")
        .send();

    let request = origin.last();
    for name in ["x-client-hop", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(request.header(name), None, "{name}");
    }
    for name in ["host", "cookie", "authorization", "content-length", "x-end"] {
        assert!(request.header(name).is_some(), "{name}");
    }
    for name in ["x-origin-hop", "keep-alive"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(answer.header("x-end"), Some("1"));
}

#[test]
fn an_origin_that_closes_does_not_close_the_visitor_s_connection() {
    let origin = Origin::always(Reply::unstored("bye").header("Connection", "close").closing());
    let proxy = Proxy::embedded(&origin, "");
    let mut client = proxy.connect();
    for _ in 0..3 {
        assert_eq!(proxy.get("/").send_on(&mut client).text(), "bye");
    }
}

#[test]
fn a_body_that_ends_with_the_connection_arrives_whole() {
    let reply = Reply::status("200 OK").header("Content-Type", "text/html");
    let origin = Origin::always(reply.bytes("all of it").closing());
    let proxy = Proxy::embedded(&origin, "");
    for asked in 1..=2 {
        let answer = proxy.get("/").send();
        assert_eq!((answer.text().as_str(), answer.body.whole), ("all of it", true));
        assert_eq!(origin.count(), asked, "its end cannot be told from a break: not stored");
    }
}

#[test]
fn the_origin_learns_where_the_visitor_came_from() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");

    proxy
        .post("/")
        .header("X-Forwarded-For", "6.6.6.6")
        .header("X-Forwarded-Proto", "https")
        .header("X-Real-IP", "6.6.6.6")
        .header("Forwarded", "for=6.6.6.6")
        .send();

    let request = origin.last();
    let sent = |name: &str| request.fields.all(name).collect::<Vec<_>>().join("|");
    assert_eq!(sent("host"), "shop.test");
    assert_eq!(sent("x-forwarded-for"), "127.0.0.1");
    assert_eq!(sent("x-forwarded-proto"), "http");
    assert_eq!(sent("x-forwarded-host"), "shop.test");
    assert!(sent("forwarded").contains("for=127.0.0.1"), "{}", sent("forwarded"));
    assert!(sent("forwarded").contains("proto=http"), "{}", sent("forwarded"));
    assert!(sent("via").contains("1.1 "), "{}", sent("via"));
    let traceparent = sent("traceparent");
    let parts: Vec<_> = traceparent.split('-').map(str::len).collect();
    assert_eq!(parts, [2, 32, 16, 2], "{traceparent}");
    assert!(!request.fields.iter().any(|(_, value)| value.contains("6.6.6.6")));
}

#[test]
fn a_trusted_proxy_is_believed_up_to_the_first_stranger() {
    let origin = Origin::always(Reply::unstored("hello"));
    let trusted = "client.trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\"]";
    let proxy = Proxy::embedded(&origin, trusted);

    proxy
        .post("/")
        .header("X-Forwarded-For", "6.6.6.6, 203.0.113.9, 10.0.0.1")
        .header("X-Forwarded-Proto", "https")
        .send();

    let request = origin.last();
    let sent = request.header("x-forwarded-for").unwrap();
    assert!(sent.starts_with("203.0.113.9"), "{sent}");
    assert_eq!(request.header("x-forwarded-proto"), Some("https"));
}

#[test]
fn the_origin_can_be_given_a_host_of_its_own() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "origin.host = \"backend.internal\"");
    proxy.post("/").send();
    assert_eq!(origin.last().header("host"), Some("backend.internal"));
    assert_eq!(origin.last().header("x-forwarded-host"), Some("shop.test"));
}

#[test]
fn an_absolute_target_names_the_host() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");

    proxy.get("http://shop.test/x?y=1").send();

    assert_eq!(origin.last().target, "/x?y=1");
    assert_eq!(origin.last().header("host"), Some("shop.test"));
    proxy.get("http://shop.test/x").host("evil.test").send();
    assert!(origin.seen().iter().all(|request| request.header("host") == Some("shop.test")));
}

#[test]
fn only_the_listed_sites_are_served() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "origin.hosts = [\"shop.test\"]");
    assert_eq!(proxy.get("/").send().status, 200);
    assert_eq!(proxy.get("/").host("SHOP.test").send().status, 200);
    assert_eq!(proxy.get("/").host("other.test").send().status, 421);
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_listed_name_is_served_on_every_port_and_a_wildcard_under_every_name() {
    let origin = Origin::always(Reply::unstored("hello"));
    let settings = "origin.hosts = [\"shop.test\", \"*.blog.test\", \"admin.test:8443\"]";
    let proxy = Proxy::embedded(&origin, settings);
    for (host, status) in [
        ("shop.test:8080", 200),
        ("a.blog.test", 200),
        ("a.b.blog.test:1", 200),
        ("admin.test:8443", 200),
        ("www.shop.test", 421),
        ("blog.test", 421),
        ("admin.test", 421),
    ] {
        assert_eq!(proxy.get("/").host(host).send().status, status, "{host}");
    }
    let lines = proxy.access_log(7);
    assert_eq!(lines[4]["host"], "www.shop.test");
    let said = proxy.complaints();
    assert!(said.contains("add \"www.shop.test\" to [origin] hosts"), "{said}");
    // The others came within the same minute.
    assert!(!said.contains("\"blog.test\""), "{said}");
}

#[test]
fn every_answer_says_what_the_cache_did() {
    let origin = Origin::start(|request| match request.path() {
        "/page" => Reply::html("page"),
        "/broken" => Reply::nothing(),
        _ => Reply::status("404 Not Found").header("Cache-Control", "no-store").body("no"),
    });
    let proxy = Proxy::embedded(&origin, "origin.hosts = [\"shop.test\"]");
    let asks = [
        proxy.get("/page"),
        proxy.get("/page"),
        proxy.get("/missing"),
        proxy.post("/broken"),
        proxy.get("/").host("other.test"),
    ];

    for ask in asks {
        let answer = ask.send();
        let said = answer.cache_status();
        assert!(said.contains("hit") || said.contains("fwd="), "{}: {said:?}", answer.status);
        if answer.is_hit() {
            assert!(answer.header("age").unwrap().parse::<u32>().unwrap() < 60);
        }
    }
}

#[test]
fn the_cache_status_can_be_short_or_off() {
    for (setting, parts) in [("short", 2), ("off", 0)] {
        let origin = Origin::always(Reply::html("page"));
        let proxy = Proxy::embedded(&origin, &format!("cache.status = \"{setting}\""));
        proxy.get("/").send();
        let answer = proxy.get("/").send();
        let said = answer.cache_status().split(';').filter(|part| !part.is_empty()).count();
        assert_eq!(said, parts, "{}", answer.cache_status());
    }
}

#[test]
fn an_origin_that_is_not_there_is_a_short_502() {
    let port = free_port();
    let nobody = ([127, 0, 0, 1], port).into();
    let proxy = Proxy::before(nobody, &Storage::Embedded, "");
    for ask in [proxy.get("/"), proxy.post("/")] {
        assert_own_error(&ask.send(), 502, &port.to_string());
    }
}

#[test]
fn an_origin_that_says_nothing_is_a_504() {
    let origin = Origin::always(Reply::silence());
    let proxy = Proxy::embedded(&origin, "origin.first_byte_timeout = \"200ms\"");
    for ask in [proxy.get("/"), proxy.post("/")] {
        assert_own_error(&ask.send(), 504, &origin.address().port().to_string());
    }
}

/// An error of the proxy's own: short, and nothing of the inside in it.
#[track_caller]
fn assert_own_error(answer: &Answer, status: u16, secret: &str) {
    assert_eq!(answer.status, status);
    let text = answer.text();
    assert!(answer.body.length < 1024 && !text.contains(secret), "{text}");
    for inner in ["hyper", "127.0.0.1", "os error", "refused", "tokio"] {
        assert!(!text.to_lowercase().contains(inner), "{inner} in {text}");
    }
}

#[test]
fn an_origin_that_stops_in_the_body_cuts_the_visitor_s_too() {
    let page = Reply::status("200 OK").header("Content-Length", "100").bytes("half").hanging();
    let origin = Origin::always(page);
    let proxy = Proxy::embedded(&origin, "origin.between_bytes_timeout = \"200ms\"");
    let answer = proxy.post("/").try_send_on(&mut proxy.connect());
    assert!(answer.is_none_or(|answer| !answer.body.whole || answer.status == 504));
}

#[test]
fn a_get_on_a_connection_that_had_died_is_sent_once_more() {
    let origin = dying_connections();
    let proxy = Proxy::embedded(&origin, "threads = 1");

    let answers = [proxy.get("/").send(), proxy.get("/").send(), proxy.get("/").send()];

    assert_eq!(answers.map(|answer| answer.status), [200, 200, 200]);
}

#[test]
fn a_post_is_never_sent_twice() {
    let origin = dying_connections();
    let proxy = Proxy::embedded(&origin, "threads = 1");

    let answers = [proxy.post("/a").send(), proxy.post("/b").send(), proxy.post("/c").send()];

    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 502)));
    let targets: Vec<_> = origin.seen().into_iter().map(|request| request.target).collect();
    assert_eq!(targets, ["/a", "/b", "/c"]);
}

/// An origin that answers the first request on a connection, and closes at the second.
fn dying_connections() -> Origin {
    Origin::start(|request| match request.nth {
        1 => Reply::unstored("hello"),
        _ => Reply::nothing(),
    })
}

#[test]
fn connections_to_the_origin_are_used_again() {
    let origin = Origin::always(Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "threads = 1");
    for _ in 0..5 {
        proxy.get("/").send();
    }
    assert_eq!(origin.seen().iter().map(|request| request.connection).max(), Some(0));
}

#[test]
fn a_departing_visitor_does_not_spoil_the_page_for_others() {
    let origin = Origin::always(Reply::html("slow page").after(Duration::from_millis(300)));
    let proxy = Proxy::embedded(&origin, "");
    let mut leaving = proxy.connect();
    leaving.send(b"GET / HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    crate::support::wait_until("the origin is asked", || origin.count() == 1);
    drop(leaving);

    let answers = at_once(5, |_| proxy.get("/").send());

    assert!(answers.iter().all(|answer| answer.text() == "slow page"));
    assert_eq!(origin.count(), 1);
}

/// How far the process may grow while it passes a body that is much larger.
const GROWTH_KIB: u64 = 32 << 10;

#[test]
fn a_large_download_is_streamed() {
    let origin = Origin::always(Reply::status("200 OK").filling(64 << 20));
    let proxy = Proxy::embedded(&origin, "");
    let before = proxy.peak_memory();

    let answer = proxy.get("/").send();

    assert_eq!((answer.body.length, answer.body.whole), (64 << 20, true));
    let growth = proxy.peak_memory() - before;
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}

#[test]
fn a_large_upload_is_streamed() {
    let origin = Origin::start(|request| Reply::unstored(&request.body.length.to_string()));
    let proxy = Proxy::embedded(&origin, "");
    let before = proxy.peak_memory();

    let answer = proxy.post("/").body(&vec![b'x'; 64 << 20]).send();

    assert_eq!(answer.text(), (64_u64 << 20).to_string());
    let growth = proxy.peak_memory() - before;
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}

#[test]
fn an_http_1_0_connection_that_delimits_its_answer_is_closed() {
    let origin = Origin::start(|request| match request.path() {
        "/chunks" => {
            Reply::status("200 OK").header("Cache-Control", "no-store").chunks(&["hello"], &[])
        }
        _ => Reply::unstored("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    for (path, stays) in [("/chunks", false), ("/length", true)] {
        let mut client = proxy.connect();
        let line =
            format!("GET {path} HTTP/1.0\r\nHost: shop.test\r\nConnection: keep-alive\r\n\r\n");
        client.send(line.as_bytes());
        let answer = client.answer();
        assert_eq!(answer.text(), "hello", "{path}");
        let said: Vec<_> = answer.fields.all("connection").collect();
        assert_eq!(said, [if stays { "keep-alive" } else { "close" }], "{path}");
        assert!(stays || client.is_closed(), "{path}");
        assert!(!stays || proxy.get(path).try_send_on(&mut client).is_some(), "{path}");
    }
}

#[test]
fn an_old_client_is_told_of_a_body_that_breaks_off() {
    // HTTP/1.0 knows no chunks: the end of the connection is the end of the body.
    let half = Reply::status("200 OK").header("Transfer-Encoding", "chunked");
    let origin = Origin::start(move |request| {
        let half = half.clone().bytes("4\r\nhalf\r\n").closing();
        if request.path() == "/stored" { half.header("Cache-Control", "max-age=9") } else { half }
    });
    let proxy = Proxy::embedded(&origin, "");
    for path in ["/", "/stored"] {
        let mut client = proxy.connect();
        client.send(format!("GET {path} HTTP/1.0\r\nHost: shop.test\r\n\r\n").as_bytes());
        let answer = client.try_answer("GET");
        assert!(answer.is_none_or(|answer| !answer.body.whole), "{path}");
    }
}

#[test]
fn a_site_with_letters_beyond_ascii_is_served_as_browsers_name_it() {
    let origin = Origin::start(|request| Reply::html(request.header("host").unwrap_or("none")));
    let settings = "origin.hosts = [\"bücher.test\", \"*.bücher.test\"]";
    let proxy = Proxy::embedded(&origin, settings);
    for (host, status) in [
        ("xn--bcher-kva.test", 200),
        ("www.XN--BCHER-KVA.test", 200),
        ("xn--bchr-kva.test", 421),
        ("bucher.test", 421),
    ] {
        assert_eq!(proxy.get("/").host(host).send().status, status, "{host}");
    }
}

#[test]
fn an_answer_has_as_many_fields_as_are_allowed() {
    let origin = Origin::start(|request| {
        let count: usize = request.path().trim_start_matches('/').parse().unwrap();
        let field = |reply: Reply, number: usize| reply.header(&format!("X-{number}"), "1");
        (0..count).fold(Reply::unstored("page"), field)
    });
    for (setting, count, status) in [
        ("", 90, 200),
        ("", 110, 502),
        ("origin.response_fields = 20", 30, 502),
        ("origin.response_fields = 1000", 900, 200),
    ] {
        let proxy = Proxy::embedded(&origin, setting);
        let target = format!("/{count}");
        // hyper reads the answers to requests with a body.
        for ask in [proxy.get(&target), proxy.post(&target).body(b"order")] {
            let before = origin.count();
            let answer = ask.send();
            assert_eq!(answer.status, status, "{setting} {count}");
            let is_asked_once = origin.count() == before + 1;
            assert!(status == 200 || is_asked_once, "it would be the same once more");
            let ours = (0..count).filter(|number| answer.header(&format!("X-{number}")).is_some());
            assert_eq!(ours.count(), if status == 200 { count } else { 0 });
        }
        if status == 502 {
            proxy.wait_for_complaint("[origin] response_fields");
        }
    }
}

#[test]
fn a_final_dot_names_the_same_site_and_an_old_client_need_not_name_the_only_one() {
    let origin = Origin::start(|request| Reply::html(request.header("host").unwrap_or("none")));
    let proxy = Proxy::embedded(&origin, "origin.hosts = [\"shop.test\"]");
    let old = |proxy: &Proxy, target: &str| {
        let mut client = proxy.connect();
        client.send(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes());
        client.answer()
    };
    assert_eq!(old(&proxy, "/a").text(), "shop.test");
    for host in ["shop.test", "shop.test.", "SHOP.test."] {
        let answer = proxy.get("/a").host(host).send();
        assert_eq!((answer.text().as_str(), answer.is_hit()), ("shop.test", true), "{host}");
    }
    assert_eq!(old(&proxy, "http://other.test/a").status, 400, "it names another");
    let proxy = Proxy::embedded(&origin, "origin.hosts = [\"shop.test\", \"other.test\"]");
    assert_eq!(old(&proxy, "/a").status, 400);
    let proxy = Proxy::embedded(&origin, "");
    assert_eq!(old(&proxy, "/a").status, 400);
}
