//! Which certificate is shown, and what becomes of it while the proxy runs.

use std::fs;
use std::process::Command;

use rustls::crypto::aws_lc_rs::kx_group;
use rustls::{HandshakeKind, NamedGroup, ProtocolVersion, version};

use super::{Files, enter, hello};
use crate::support::client::SITE;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::tls::{Browser, CertificateWithKey};
use crate::support::{free_port, wait_until};

fn shows(proxy: &Proxy, name: &str, issued: &CertificateWithKey) -> bool {
    Browser::new().visit(proxy.address(), name).1.shown == Some(issued.der())
}

#[test]
fn visitors_come_by_either_version_and_the_app_is_told() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    for (version, spoken) in
        [(&version::TLS12, ProtocolVersion::TLSv1_2), (&version::TLS13, ProtocolVersion::TLSv1_3)]
    {
        let browser = Browser::speaking(&[version], None).offering(&[b"http/1.1"]);
        let (mut client, greeted) = browser.visit(proxy.address(), SITE);
        assert_eq!(greeted.version, Some(spoken));
        assert_eq!(greeted.protocol.as_deref(), Some(&b"http/1.1"[..]));
        assert_eq!(proxy.post("/").send_on(&mut client).text(), "hello");
        assert_eq!(proxy.post("/again").send_on(&mut client).text(), "hello");
        let last = origin.last();
        assert_eq!(last.header("x-forwarded-proto"), Some("https"));
        let forwarded = last.header("forwarded").unwrap();
        assert!(forwarded.ends_with(";host=shop.test;proto=https"), "{forwarded}");
        assert_eq!(last.header("client-cert"), None);
    }
    assert_eq!(proxy.metric("anteroom_tls_handshakes_total"), 2.0);
}

#[test]
fn an_old_version_is_refused_where_the_operator_wants_the_new_one() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(", min_version = \"1.3\""));
    let old = Browser::speaking(&[&version::TLS12], None);
    assert!(old.try_visit(proxy.address(), SITE, b"").is_none());
    assert_eq!(proxy.get("/").send_on(&mut enter(&proxy)).text(), "hello");
}

#[test]
fn keys_are_exchanged_as_the_visitor_prefers_and_that_may_be_post_quantum() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let (hybrid, classic) = (kx_group::X25519MLKEM768, kx_group::X25519);
    for (offered, agreed) in [
        (vec![hybrid, classic], NamedGroup::X25519MLKEM768),
        (vec![hybrid], NamedGroup::X25519MLKEM768),
        (vec![classic, hybrid], NamedGroup::X25519),
        (vec![classic], NamedGroup::X25519),
        (vec![kx_group::SECP256R1], NamedGroup::secp256r1),
        (vec![kx_group::SECP384R1], NamedGroup::secp384r1),
        // What we do not speak costs a round trip where another is left, and is no handshake where none is.
        (vec![kx_group::MLKEM1024, classic], NamedGroup::X25519),
    ] {
        let browser = Browser::exchanging(&offered);
        let (mut client, greeted) = browser.visit(proxy.address(), SITE);
        assert_eq!(greeted.key_exchange, Some(agreed), "{offered:?}");
        let retried = greeted.kind == Some(HandshakeKind::FullWithHelloRetryRequest);
        assert_eq!(retried, offered[0].name() == NamedGroup::MLKEM1024, "{offered:?}");
        assert_eq!(proxy.get("/").send_on(&mut client).text(), "hello");
    }
    let strange = Browser::exchanging(&[kx_group::MLKEM1024]);
    assert!(strange.try_visit(proxy.address(), SITE, b"").is_none());
}

#[test]
fn an_older_version_has_the_older_key_exchange() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let old = Browser::speaking(&[&version::TLS12], None);
    let greeted = old.visit(proxy.address(), SITE).1;
    assert_eq!(greeted.version, Some(ProtocolVersion::TLSv1_2));
    assert_eq!(greeted.key_exchange, Some(NamedGroup::X25519));
}

#[test]
fn curl_takes_the_certificate() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let authority = files.path("authority.crt");
    fs::write(&authority, &files.authority.cert).unwrap();
    let port = proxy.address().port();
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let curl = Command::new("curl")
            .args(["--silent", "--show-error", "--cacert", &authority, version])
            .args(["--resolve", &format!("shop.test:{port}:127.0.0.1")])
            .arg(format!("https://shop.test:{port}/"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&curl.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&curl.stdout), "hello", "{said}");
    }
}

#[test]
fn the_name_that_is_asked_for_decides_which_one_is_shown() {
    let (files, origin) = (Files::new(), hello());
    let wild = files.add("b.pem", &["*.shop.test", "other.test"]);
    let exact = files.add("c.pem", &["www.shop.test"]);
    let first = files.add("a.pem", &["shop.test"]);
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    for (name, issued) in [
        ("shop.test", &first),
        ("www.shop.test", &exact),
        ("WWW.SHOP.test", &exact),
        ("img.shop.test", &wild),
        ("other.test", &wild),
        ("a.b.shop.test", &first),
        ("unknown.test", &first),
    ] {
        assert!(shows(&proxy, name, issued), "{name}");
    }
    let nameless = || Browser::new().nameless().visit(proxy.address(), SITE).1.shown;
    assert_eq!(nameless(), Some(first.der()));

    let proxy = Proxy::embedded(&origin, &files.listen(", default = \"other.test\""));
    assert!(shows(&proxy, "unknown.test", &wild));
}

#[test]
fn a_page_by_http_is_no_page_by_https() {
    let files = Files::new();
    let origin = Origin::start(|request| {
        Reply::html(&format!("<p>{}</p>", request.header("x-forwarded-proto").unwrap()))
            .header("Cache-Control", "max-age=60")
    });
    let port = free_port();
    let plain = format!(", {{ address = \"127.0.0.1:{port}\" }}]");
    let listen = files.listen("");
    let proxy = Proxy::embedded(&origin, &format!("{}{plain}", listen.strip_suffix(']').unwrap()));
    let by_http = || crate::support::client::Ask::new(([127, 0, 0, 1], port).into(), "GET", "/");
    for _ in 0..2 {
        assert_eq!(proxy.get("/").send_on(&mut enter(&proxy)).text(), "<p>https</p>");
        assert_eq!(by_http().send().text(), "<p>http</p>");
    }
    assert!(proxy.get("/").send_on(&mut enter(&proxy)).is_hit());
    assert_eq!(origin.count(), 2);
}

#[test]
fn the_session_cookie_is_for_https_only() {
    let files = Files::new();
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, &format!("{}\nsession.mint = true", files.listen("")));
    let answer = proxy.post("/login?alice").send_on(&mut enter(&proxy));
    let cookie = answer.set_cookie("login").unwrap();
    assert!(cookie.split(';').any(|part| part.trim() == "Secure"), "{cookie}");

    let proxy = Proxy::embedded(&origin, "session.mint = true");
    assert!(log_in(&proxy, "alice").starts_with("login="));
}

#[test]
fn certificates_are_renewed_under_requests() {
    let (files, origin) = (Files::new(), hello());
    let first = files.add("a.pem", &["shop.test"]);
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    let mut early = enter(&proxy);
    assert!(shows(&proxy, SITE, &first));

    let second = files.add("a.pem", &["shop.test"]);
    wait_until("the new one is shown", || {
        assert_eq!(proxy.get("/").send_on(&mut early).text(), "hello");
        shows(&proxy, SITE, &second)
    });

    let reloads = || proxy.complaints().matches("certificates were reloaded").count();
    wait_until("it is told of", || reloads() > 0);
    let reloads_before = reloads();
    fs::write(files.path("a.pem"), "half of it").unwrap();
    let errors = || proxy.metric("anteroom_tls_file_errors_total");
    wait_until("it is told of", || errors() > 0.0);
    assert!(shows(&proxy, SITE, &second), "the last good one");
    fs::remove_file(files.path("a.pem")).unwrap();
    let before = errors();
    wait_until("it is told of", || errors() > before);
    assert!(shows(&proxy, SITE, &second), "the last good one");
    // The first mistake and all that was told with it come before the second.
    assert_eq!(reloads(), reloads_before, "{}", proxy.complaints());

    // As certbot does: a certificate and a key, in files of their own.
    let third = files.authority.site(&["shop.test"]);
    fs::write(files.path("a.pem"), &third.cert).unwrap();
    fs::write(files.path("a.key"), &third.key).unwrap();
    let other = files.add("b.pem", &["other.test"]);
    wait_until("both are shown", || {
        shows(&proxy, SITE, &third) && shows(&proxy, "other.test", &other)
    });
    assert_eq!(proxy.get("/").send_on(&mut early).text(), "hello");
    assert!(proxy.metric("anteroom_tls_certificate_expires") > 1e9);
}

#[test]
fn a_visitor_comes_again_without_a_whole_handshake() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, &format!("threads = 3\n{}", files.listen("")));
    for version in [&version::TLS12, &version::TLS13] {
        let browser = Browser::speaking(&[version], None);
        for visit in 0..6 {
            let (mut client, greeted) = browser.visit(proxy.address(), SITE);
            assert_eq!(greeted.resumed, visit > 0, "{version:?}");
            assert_eq!(proxy.get("/").send_on(&mut client).text(), "hello");
        }
    }
}

/// What `anteroom check` says of a listener with these keys of `tls`, and how it ends.
fn check(files: &Files, keys: &str) -> (Option<i32>, String) {
    let config = format!(
        "[origin]\nurl = \"http://127.0.0.1:9\"\nhosts = \"shop.test\"\n\
         [[listen]]\naddress = \"127.0.0.1:8443\"\n{keys}\n"
    );
    fs::write(files.path("proxy.toml"), config).unwrap();
    let folder = files.folder.path();
    let output = anteroom().args(["check", "--config", "proxy.toml"]).current_dir(folder).output();
    let output = output.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn certificate_errors_name_the_line_of_the_configuration() {
    let files = Files::new();
    let (one, other) = (files.add("a.pem", &["a.test"]), files.add("b.pem", &["b.test"]));
    fs::write(files.path("mixed.crt"), one.cert.clone() + &other.key).unwrap();
    fs::write(files.path("alone.crt"), &one.cert).unwrap();
    fs::write(files.path("authority.crt"), &files.authority.cert).unwrap();
    fs::write(files.path("short"), "0123456789abcdef0123456789abcde").unwrap();
    fs::write(files.path("long"), "0123456789abcdef0123456789abcdef").unwrap();
    files.authority.expired(&["old.test"]).write(&files.folder.path().join("old.crt"));
    assert_eq!(check(&files, "tls.cert = \"*.pem\"").0, Some(0));
    for (keys, expected) in [
        ("tls.cert = \"mixed.crt\"", "does not belong to the first certificate in "),
        ("tls.cert = \"alone.crt\"", "alone.crt has no private key"),
        ("tls.cert = \"*.der\"", "*.der matches no certificate file"),
        ("tls.cert = \"missing.crt\"", "missing.crt cannot be read"),
        ("tls.cert = \"old.crt\"", "old.crt expired on 2001-02-03"),
        ("tls = { cert = \"a.pem\", default = \"c.test\" }", "no certificate covers c.test"),
        ("tls = { cert = \"a.pem\", client_certs = \"required\" }", "needs client_ca"),
        ("tls = { cert = \"a.pem\", client_ca = \"b.pem\" }", "needs client_certs"),
        ("tls = { cert = \"a.pem\", hsts_subdomains = true }", "needs hsts"),
        ("tls = { client_certs = \"required\" }", "needs cert"),
        (
            "tls = { cert = \"a.pem\", ticket_secret = { file = \"short\" } }",
            "expected at least 32 random characters",
        ),
        (
            "tls = { cert = \"a.pem\", ticket_secret = [{ file = \"long\" }, { file = \"long\" }] }",
            "lists one secret twice",
        ),
        (
            "tls = { cert = \"a.pem\", ticket_secret = [{ file = \"long\" }, { file = \"long\" }, { file = \"long\" }] }",
            "lists more than two secrets",
        ),
        ("tls = { cert = \"a.pem\" }\nredirect = \"https\"", "needs a listener without tls"),
    ] {
        let (code, said) = check(&files, keys);
        assert_eq!(code, Some(64), "{keys}: {said}");
        assert!(said.contains(expected), "{keys}: {said}");
        let line = said.starts_with("proxy.toml:6:") || said.starts_with("proxy.toml:7:");
        assert!(line && said.contains("[[listen]]"), "{keys}: {said}");
    }
    files.add("c.pem", &["a.test"]);
    let (code, said) = check(&files, "tls.cert = \"*.pem\"");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("c.pem both cover a.test"), "{said}");
    let (code, said) = check(
        &files,
        "tls = { cert = \"a.pem\", ticket_secret = { file = \"long\" }, client_certs = \"optional\", \
         client_ca = \"authority.crt\" }",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("tls.ticket_secret: has no effect with client_certs"), "{said}");
}

#[test]
fn a_reload_brings_tls_and_takes_it_away() {
    let (files, origin) = (Files::new(), hello());
    let proxy = Proxy::embedded(&origin, "listen = [{ address = \"{listen}\" }]");
    let usual = format!("listen = [{{ address = \"{}\" }}]", proxy.address());
    let secured = files.listen("").replace("{listen}", &proxy.address().to_string());
    let mut plain = proxy.connect();
    assert_eq!(proxy.get("/").send_on(&mut plain).text(), "hello");

    proxy.edit(|text| text.replace(&usual, &secured));
    assert!(proxy.reload());
    let browser = Browser::new();
    let (mut early, _) = browser.visit(proxy.address(), SITE);
    assert_eq!(proxy.get("/").send_on(&mut early).text(), "hello");
    assert_eq!(proxy.get("/").send().status, 400);
    assert_eq!(proxy.get("/").send_on(&mut plain).text(), "hello", "it came before");

    // The files are read again at once, and sessions go on.
    let renewed = files.add("a.pem", &["shop.test"]);
    assert!(proxy.reload());
    assert!(shows(&proxy, SITE, &renewed));
    assert!(browser.visit(proxy.address(), SITE).1.resumed);

    fs::write(files.path("a.pem"), "half of it").unwrap();
    assert!(!proxy.reload(), "as a whole or not at all");
    assert!(shows(&proxy, SITE, &renewed));

    proxy.edit(|text| text.replace(&secured, &usual));
    assert!(proxy.reload());
    assert_eq!(proxy.get("/").send().text(), "hello");
    assert_eq!(proxy.get("/").send_on(&mut early).text(), "hello", "it came before");
}

#[test]
fn a_body_that_broke_off_does_not_pass_for_whole() {
    let files = Files::new();
    let origin = Origin::always(
        Reply::status("200 OK")
            .header("Cache-Control", "no-store")
            .header("Transfer-Encoding", "chunked")
            .bytes("5\r\nhello\r\n")
            .closing(),
    );
    let proxy = Proxy::embedded(&origin, &files.listen(""));
    // OpenSSL knows a connection that was closed from one that broke.
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", "--http1.0"])
        .args(["--connect-to", &format!("::{}", proxy.address())])
        .arg("https://shop.test/")
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{:?}", String::from_utf8_lossy(&output.stdout));
}
