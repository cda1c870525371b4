//! The nginx configuration of `docs/guides/behind-a-proxy.md`: what reaches the target of the mirror, and that visitors
//! are served whatever the target does.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::client::{Ask, Client};
use crate::support::nginx::Nginx;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::Proxy;
use crate::support::varnish::Varnish;
use crate::support::{free_port, guide_block, wait_until};

const SITE: &str = "shop.example";
const TOKEN: &str = "secret-token-of-the-operator";

#[test]
fn a_copy_has_all_of_a_request_but_its_body() {
    let (app, target) = (app(), Origin::always(Reply::status("204 No Content")));
    let nginx = nginx(app.address(), target.address());
    let mut client = Client::open(nginx.address);
    let ask = |method, target| Ask::new(nginx.address, method, target).host(SITE);
    let read = ask("GET", "/a%20page?x=1&y=%2F").cookie("sessionid=abcdefgh");
    let saved = ask("POST", "/save").body(b"password=secret");
    for asked in [&read, &saved] {
        assert_eq!(asked.send_on(&mut client).text(), "the app");
    }
    assert_eq!(app.last().body.bytes, b"password=secret");

    wait_until("both are copied", || target.count() == 2);
    let [copy, saved] = &target.seen()[..] else { panic!("two copies") };
    assert_eq!((&*copy.method, &*copy.target), ("GET", "/a%20page?x=1&y=%2F"));
    assert_eq!(copy.header("host"), Some(SITE));
    assert_eq!(copy.header("cookie"), Some("sessionid=abcdefgh"));
    assert_eq!(copy.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!((&*saved.method, &*saved.target), ("POST", "/save"));
    assert_eq!(saved.body.bytes, b"");
    assert_eq!(saved.header("content-length"), None);
}

#[test]
fn visitors_are_served_while_the_target_is_away_or_does_not_answer() {
    let app = app();
    let silent = Origin::always(Reply::silence());
    let away = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    for target in [silent.address(), away] {
        let nginx = nginx(app.address(), target);
        // On one connection: nginx reads the next request behind the copy of the one before.
        let mut client = Client::open(nginx.address);
        for _ in 0..3 {
            let answer = Ask::new(nginx.address, "GET", "/").host(SITE).send_on(&mut client);
            assert_eq!((answer.status, &*answer.text()), (200, "the app"));
        }
    }
    assert_eq!(app.count(), 6);
    assert!(silent.count() > 0, "the silent target was asked");
}

#[test]
fn a_learning_proxy_forwards_no_copy_and_asks_as_a_stranger() {
    let app = Origin::always(Reply::html("the app").header("Cache-Control", "max-age=60"));
    let mut token = NamedTempFile::new().unwrap();
    token.write_all(TOKEN.as_bytes()).unwrap();
    let settings = format!(
        "admin.token = {{ file = \"{}\" }}\ncache.mode = \"learn\"\nsession.cookie = \"sessionid\"\n\
         client.trusted_proxies = [\"127.0.0.1\"]\n\
         learn = {{ mirror = true, probe = true, probe_rate = \"100/s\" }}",
        token.path().display()
    );
    let proxy = Proxy::embedded(&app, &settings);
    let nginx = nginx(app.address(), proxy.address());
    let ask = |method, target| Ask::new(nginx.address, method, target).host(SITE);
    let known = ask("GET", "/account").cookie("sessionid=abcdefgh");
    for asked in [ask("GET", "/page"), ask("POST", "/page").body(b"text"), known] {
        assert_eq!(asked.send().text(), "the app");
    }
    let learned = || -> Value {
        let bearer = format!("Bearer {TOKEN}");
        let answer = proxy.admin("/learn").header("Authorization", &bearer).send();
        serde_json::from_str(&answer.text()).unwrap()
    };
    wait_until("the copies are counted, and the page was asked for", || {
        learned()["requests"] == 3 && app.count() == 4
    });
    let report = learned();
    assert_eq!(report["mode"], "mirror");
    // The proxy says that a request went through it.
    let probes = app.seen().into_iter().filter(|request| request.header("via").is_some());
    let probes: Vec<Request> = probes.collect();
    assert_eq!(probes.len(), 1, "{probes:?}");
    assert_eq!((&*probes[0].method, &*probes[0].target), ("GET", "/page"));
    assert_eq!(probes[0].header("cookie"), None);

    // What the probe has shown.
    ask("GET", "/page").send();
    wait_until("the next copy would hit", || learned()["hits"] == 1);
    assert_eq!(app.count(), 5, "and nothing more is asked");
}

#[test]
fn in_front_of_varnish_what_varnish_answers_is_copied_too() {
    let app = Origin::always(Reply::html("the app").header("Cache-Control", "max-age=60"));
    let target = Origin::always(Reply::status("204 No Content"));
    let [host, port] = [app.address().ip().to_string(), app.address().port().to_string()];
    let backend = format!(".host = \"{host}\"; .port = \"{port}\";");
    let varnish = Varnish::with_vcl(&format!("vcl 4.1;\nbackend app {{ {backend} }}\n"));
    let nginx = nginx(varnish.address, target.address());
    for _ in 0..3 {
        let answer = Ask::new(nginx.address, "GET", "/page").host(SITE).send();
        assert_eq!((answer.status, &*answer.text()), (200, "the app"));
    }
    assert_eq!(app.count(), 1, "Varnish answers the second one");
    wait_until("all are copied", || target.count() == 3);
}

fn app() -> Origin {
    Origin::always(Reply::html("the app"))
}

/// nginx as the guide has it, before this app and with this target of its mirror.
fn nginx(app: SocketAddr, target: SocketAddr) -> Nginx {
    let site = guide_block("behind-a-proxy.md", "nginx", "upstream")
        .replace("127.0.0.1:3000", &app.to_string())
        .replace("127.0.0.1:8090", &target.to_string());
    Nginx::with_site(&site)
}
