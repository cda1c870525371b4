//! Response fields that a route cuts (`remove_headers`): from stored pages, and from what is forwarded.

use crate::support::http2_client::{Http2Client, ask};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};

const ROUTE: &str =
    "[[route]]\nmatch.path = \"/**\"\nremove_headers = [\"X-Powered-By\", \"X-Debug\"]";

fn told(reply: Reply) -> Reply {
    reply.header("X-Powered-By", "PHP/8").header("X-Debug", "a").header("X-Debug", "b")
}

/// Pages with the fields; by path also what is not stored, an error and a redirect.
fn answer(request: &Request) -> Reply {
    let reply = match request.path() {
        "/own" => Reply::unstored("own"),
        "/gone" => Reply::status("404 Not Found").header("Cache-Control", "max-age=60").body("no"),
        "/broken" => Reply::status("500 Internal Server Error").body("broken"),
        "/moved" => Reply::status("302 Found").header("Location", "/own").body(""),
        _ => Reply::html("page").header("X-Kept", "1"),
    };
    told(reply)
}

#[track_caller]
fn assert_cut<'a>(names: impl Fn(&str) -> Option<&'a str>) {
    assert_eq!(names("x-powered-by"), None);
    assert_eq!(names("x-debug"), None);
}

on_both_stores!(a_stored_page_is_without_the_fields);

fn a_stored_page_is_without_the_fields(storage: &Storage) {
    let origin = Origin::start(answer);
    let proxy = Proxy::start(&origin, storage, ROUTE);
    for is_hit in [false, true] {
        let answer = proxy.get("/page").send();
        assert_eq!(answer.is_hit(), is_hit, "{}", answer.cache_status());
        assert_eq!((answer.text().as_str(), answer.header("x-kept")), ("page", Some("1")));
        assert_cut(|name| answer.header(name));
    }
    let head = proxy.get("/page").method("HEAD").send();
    assert!(head.is_hit(), "{}", head.cache_status());
    assert_cut(|name| head.header(name));
}

#[test]
fn every_answer_of_the_app_loses_the_fields() {
    let origin = Origin::start(answer);
    let proxy = Proxy::embedded(&origin, ROUTE);
    for (method, path, status) in [
        ("GET", "/own", 200),
        ("HEAD", "/own", 200),
        ("POST", "/page", 200),
        ("GET", "/gone", 404),
        ("GET", "/gone", 404),
        ("GET", "/broken", 500),
        ("GET", "/moved", 302),
    ] {
        let answer = proxy.get(path).method(method).send();
        assert_eq!(answer.status, status, "{method} {path}");
        assert_cut(|name| answer.header(name));
    }
}

#[test]
fn other_routes_keep_the_fields() {
    let origin = Origin::start(answer);
    let proxy = Proxy::embedded(&origin, &ROUTE.replace("/**", "/cut/**"));
    for path in ["/page", "/page", "/own"] {
        assert_eq!(proxy.get(path).send().header("x-powered-by"), Some("PHP/8"), "{path}");
    }
}

#[test]
fn a_304_brings_none_of_the_fields() {
    let origin = Origin::start(|request| {
        let reply = match request.header("if-none-match") {
            Some(_) => Reply::status("304 Not Modified"),
            None => Reply::html("page"),
        };
        told(reply.header("ETag", "\"a\"").header("Cache-Control", "no-cache"))
    });
    let proxy = Proxy::embedded(&origin, ROUTE);
    for _ in 0..3 {
        let answer = proxy.get("/").send();
        assert_eq!((answer.status, answer.text().as_str()), (200, "page"));
        assert_cut(|name| answer.header(name));
    }
    let asked = proxy.get("/").header("If-None-Match", "\"a\"").send();
    assert_eq!(asked.status, 304);
    assert_cut(|name| asked.header(name));
    let forwarded = proxy.get("/").header("If-None-Match", "\"a\"").cookie("login=12345678").send();
    assert_eq!(forwarded.status, 304);
    assert_cut(|name| forwarded.header(name));
}

#[test]
fn trailers_and_answers_by_http2_are_without_the_fields() {
    let origin = Origin::start(|_| {
        told(Reply::status("200 OK").header("Cache-Control", "no-store").header("Trailer", "x-sum"))
            .chunks(&["hello"], &[("x-sum", "7"), ("x-debug", "c")])
    });
    let proxy = Proxy::embedded(&origin, ROUTE);
    let mut client = Http2Client::open(proxy.address());
    let reply = client.get(ask("GET", "/", &[("te", "trailers")])).unwrap();
    assert_eq!(reply.text(), "hello");
    assert_cut(|name| reply.header(name));
    let trailers = reply.trailers.unwrap();
    assert_eq!(trailers.get("x-sum").unwrap(), "7");
    assert_eq!(trailers.len(), 1, "{trailers:?}");
}

#[test]
fn a_field_that_is_cut_keeps_no_page_from_being_shared() {
    // The twin of the page is compared without it, and a CSRF field in it belongs to no visitor.
    let origin = shop(|request| {
        let own = request.header("x-anteroom-user").unwrap_or("nobody");
        Reply::html("prices").header("X-Debug", own).header("X-CSRF-Token", own)
    });
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n\
                    [[route]]\nshare = \"segment\"\nremove_headers = [\"X-Debug\", \"X-CSRF-Token\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    for cookie in [&alice, &bob] {
        let answer = proxy.get("/prices").cookie_at_home(cookie).send();
        assert_cut(|name| answer.header(name));
    }
    let answer = proxy.get("/prices").cookie_at_home(&carol).send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_cut(|name| answer.header(name));
}

#[test]
fn a_log_in_is_recognised_by_a_field_that_is_cut() {
    let origin = Origin::start(|request| {
        let reply = Reply::html("in").header("Cache-Control", "max-age=60");
        match request.path() {
            "/login" => {
                reply.header("Set-Cookie", "login=0123456789abcdef").header("X-User", "ann")
            }
            _ => reply,
        }
    });
    let settings = "[session.login]\nmatch = { method = \"GET\", path = \"/login\" }\n\
                    success = { header = \"X-User\" }\nuser = { header = \"X-User\" }\n\
                    [visitor]\nendpoints = [\"me\"]\n\
                    [[route]]\nremove_headers = [\"X-User\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let answer = proxy.get("/login").send();
    assert_eq!(answer.header("x-user"), None);
    let me = proxy.get("/_anteroom/me").cookie("login=0123456789abcdef").send();
    assert!(me.text().contains("ann"), "{}", me.text());
}
