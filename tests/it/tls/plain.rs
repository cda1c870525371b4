//! The way from http to https, and handshakes that are none.

use std::io::Write as _;
use std::net::{Shutdown, TcpStream};

use super::{Files, enter, hello};
use crate::support::client::SITE;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::Proxy;
use crate::support::tls::Browser;
use crate::support::wait_until;

#[test]
fn visitors_by_http_are_sent_to_https() {
    for (redirect, site) in
        [("https", "https://shop.test"), ("https:8443", "https://shop.test:8443")]
    {
        let origin = hello();
        let listen = format!("listen = [{{ address = \"{{listen}}\", redirect = {redirect:?} }}]");
        let hosts = "origin.hosts = [\"shop.test\"]";
        let proxy = Proxy::embedded(&origin, &format!("{listen}\n{hosts}"));
        for (ask, target) in [
            (proxy.get("/a%20b?c=d"), "/a%20b?c=d"),
            (proxy.ask("HEAD", "/"), "/"),
            (proxy.post("/login"), "/login"),
            (proxy.get("/_anteroom/me"), "/_anteroom/me"),
            (proxy.get("//evil.test/"), "//evil.test/"),
            (proxy.get("/.well-known/acme"), "/.well-known/acme"),
        ] {
            let answer = ask.send();
            assert_eq!(answer.status, 308);
            assert_eq!(answer.header("location"), Some(&*format!("{site}{target}")));
            assert_eq!(answer.header("strict-transport-security"), None);
        }
        assert_eq!(proxy.get("/").host("evil.test").send().status, 421);
        assert_eq!(proxy.get("/").host("shop.test:80").send().status, 308);
        for target in ["..%2f..%2flogin", "../../login", "%2e%2e/%2e%2e/login", "..;/login"] {
            let target = format!("/.well-known/acme-challenge/{target}");
            assert_eq!(proxy.get(&target).send().status, 308, "{target}: may be another page");
        }
        let bare = proxy.get("http://shop.test?c=d").host("shop.test").send();
        assert_eq!(bare.header("location"), Some(&*format!("{site}/?c=d")));
        assert_eq!(origin.count(), 0);
        assert_eq!(proxy.get("/.well-known/acme-challenge/proof").send().text(), "hello");
        let last = proxy.access_log(1);
        assert_eq!(last[0]["status"], 308);
        let (before, ask) = (origin.count(), proxy.get("/").header("X-Forwarded-Proto", "https"));
        assert_eq!(ask.send().status, 308, "a proxy that is not configured is not trusted");
        assert_eq!(origin.count(), before);
    }
}

#[test]
fn https_at_a_trusted_proxy_is_not_redirected() {
    let origin = hello();
    let listen = "listen = [{ address = \"{listen}\", redirect = \"https\" }]";
    let trusted = "client.trusted_proxies = \"127.0.0.1\"";
    let proxy = Proxy::embedded(&origin, &format!("{listen}\n{trusted}"));
    let by = |scheme| proxy.get("/").header("X-Forwarded-Proto", scheme).send().status;
    assert_eq!((by("https"), by("http")), (200, 308));
}

#[test]
fn browsers_are_told_to_come_by_https_only() {
    let files = Files::new();
    let origin = Origin::start(|request| match request.target.as_str() {
        "/own" => Reply::unstored("x").header("Strict-Transport-Security", "max-age=1"),
        "/page" => Reply::html("x").header("Cache-Control", "max-age=60"),
        _ => Reply::unstored("x"),
    });
    let keys = ", hsts = \"180d\", hsts_subdomains = true";
    let hosts = "origin.hosts = [\"shop.test\"]";
    let proxy = Proxy::embedded(&origin, &format!("{}\n{hosts}", files.listen(keys)));
    let told = |target: &str, host: &str| {
        let ask = proxy.get(target).host(host);
        let answer = ask.send_on(&mut enter(&proxy));
        let all: Vec<_> = answer.fields.all("strict-transport-security").collect();
        all.join("|")
    };
    let ours = "max-age=15552000; includeSubDomains";
    for (target, host, expected) in [
        ("/", SITE, ours),
        ("/page", SITE, ours),
        ("/page", SITE, ours),
        ("/own", SITE, "max-age=1"),
        ("/_anteroom/me", SITE, ours),
        ("/", "evil.test", ours),
    ] {
        assert_eq!(told(target, host), expected, "{target} {host}");
    }
}

#[test]
fn http_at_a_port_for_https_is_told_so() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    for ask in [proxy.get("/"), proxy.post("/").body(&[b'x'; 9_000])] {
        let answer = ask.send();
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("use https"), "{}", answer.text());
        assert!(answer.body.whole);
    }
    assert_eq!(origin.count(), 0);
    wait_until("both are counted", || proxy.metric("anteroom_tls_handshakes_failed_total") >= 2.0);
}

#[test]
fn a_handshake_has_the_time_of_a_head_and_no_more() {
    let (files, origin) = (Files::new(), hello());
    let settings = "limits.head_timeout = \"1500ms\"";
    let proxy = Proxy::embedded(&origin, &format!("{}\n{settings}", files.listen("")));
    let late = || proxy.metric("anteroom_connections_timed_out_total");
    // Silent, silent within a record, silent behind a handshake.
    assert!(proxy.connect().is_closed());
    let mut half = proxy.connect();
    half.send(&[22, 3, 1, 1, 0, 1, 0]);
    assert!(half.is_closed());
    wait_until("both are counted", || late() == 2.0);
    assert!(enter(&proxy).is_closed());
}

#[test]
fn an_invalid_handshake_is_refused_and_harmless() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let garbage: Vec<u8> = (0..4_000).map(|_| fastrand::u8(..)).collect();
    let long = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &garbage, &garbage].concat();
    for bytes in [
        &[0x80, 0x2e, 1, 0, 2][..],
        &[22, 3, 1, 0, 0],
        &[22, 3, 1, 0xff, 0xff, 0],
        &[21, 3, 3, 0, 2, 2, 40],
        &[23, 3, 3, 0, 5, 1, 2, 3, 4, 5],
        &[22, 3, 1, 0, 4, 1, 0, 0, 0],
        &[&[22][..], &garbage].concat(),
        &long,
    ] {
        let mut client = proxy.connect();
        client.send(bytes);
        client.shut(Shutdown::Write);
        assert!(client.is_closed(), "{bytes:?}");
    }
    let failed = || proxy.metric("anteroom_tls_handshakes_failed_total");
    wait_until("all are counted", || failed() == 8.0);
    // A client that leaves before its first byte has tried no handshake.
    TcpStream::connect(proxy.address()).unwrap().flush().unwrap();
    wait_until("he is gone", || proxy.metric("anteroom_connections") == 0.0);
    assert_eq!(failed(), 8.0);
    assert_eq!(proxy.get("/").send_on(&mut enter(&proxy)).text(), "hello");
}

#[test]
fn the_proxy_protocol_header_precedes_the_handshake() {
    let (files, origin) = (Files::new(), hello());
    let cert = files.path("*.pem");
    let listen = format!(
        "listen = [{{ address = \"{{listen}}\", proxy_protocol.from = \"127.0.0.1\", \
         tls.cert = {cert:?} }}]"
    );
    let proxy = Proxy::embedded(&origin, &listen);
    let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";
    let (mut client, _) = Browser::new().try_visit(proxy.address(), SITE, header).unwrap();
    assert_eq!(proxy.post("/").send_on(&mut client).text(), "hello");
    let last = origin.last();
    assert_eq!(last.header("x-forwarded-for"), Some("192.0.2.7"));
    assert_eq!(last.header("x-forwarded-proto"), Some("https"));
    assert!(Browser::new().try_visit(proxy.address(), SITE, b"").is_none(), "without a header");
}

#[test]
fn large_bodies_go_both_ways() {
    let files = Files::new();
    let origin = Origin::always(Reply::status("200 OK").filling(3 << 20));
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let mut client = enter(&proxy);
    for _ in 0..2 {
        let answer = proxy.post("/").body(&vec![b'x'; 2 << 20]).send_on(&mut client);
        assert!(answer.body.whole && answer.body.length >= 3 << 20, "{}", answer.body.length);
        assert_eq!(origin.last().body.length, 2 << 20);
    }
}
