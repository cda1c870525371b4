//! What a request's `Cache-Control` asks of its answer.

use std::sync::Arc;

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

on_both_stores!(only_if_cached_gets_a_stored_page_or_504);

const HONOUR: &str = "[cache]\nclient_directives = \"honour\"";

/// A page with a tag, which an origin that is asked about it calls right.
fn tagged() -> Origin {
    Origin::start(|request| {
        let is_right = request.header("if-none-match") == Some("\"v\"");
        let status = if is_right { "304 Not Modified" } else { "200 OK" };
        let reply = Reply::status(status).header("ETag", "\"v\"");
        let reply = reply.header("Cache-Control", "max-age=300");
        if is_right { reply } else { reply.header("Content-Type", "text/css").body("page") }
    })
}

fn ask(proxy: &Proxy, name: &str, value: &str) -> Answer {
    let answer = proxy.get("/").header(name, value).send();
    assert_eq!((answer.status, answer.text().as_str()), (200, "page"), "{value}");
    answer
}

#[test]
fn a_reload_reaches_the_origin_only_where_the_operator_lets_it() {
    for (settings, reaches) in [("", false), (HONOUR, true)] {
        let origin = tagged();
        let proxy = Proxy::embedded(&origin, settings);
        proxy.get("/").send();
        for (name, value) in [
            ("Cache-Control", "no-cache"),
            ("Cache-Control", "max-age=0, min-fresh=301"),
            ("Cache-Control", "min-fresh=301"),
            ("Pragma", "no-cache"),
        ] {
            let before = origin.count();
            let answer = ask(&proxy, name, value);
            assert_eq!(origin.count() > before, reaches, "{value}");
            if reaches {
                assert!(origin.last().header("if-none-match").is_some(), "it is asked about");
                let status = answer.cache_status();
                assert!(status.contains("fwd=request; fwd-status=304"), "{status}");
            }
        }
        assert!(ask(&proxy, "Cache-Control", "max-age=300, min-fresh=1").is_hit());
        assert!(proxy.get("/").send().is_hit());
    }
}

#[test]
fn a_reload_of_what_is_held_is_answered_while_the_origin_fails() {
    let origin = Origin::start(|request| match request.header("if-none-match") {
        Some(_) => Reply::status("503 Service Unavailable").body("down"),
        None => Reply::typed("text/css", "page")
            .header("ETag", "\"v\"")
            .header("Cache-Control", "max-age=300"),
    });
    let proxy = Proxy::embedded(&origin, HONOUR);
    proxy.get("/").send();
    ask(&proxy, "Cache-Control", "no-cache");
    assert!(origin.last().header("if-none-match").is_some());
}

fn only_if_cached_gets_a_stored_page_or_504(storage: &Storage) {
    let origin = shop(|_| Reply::html("page").header("Cache-Control", "max-age=300"));
    let proxy = Proxy::start(&origin, storage, "[session]\ncookie = \"login\"\nmint = true");
    let only = |target: &str| proxy.get(target).header("Cache-Control", "only-if-cached");
    let cookie = log_in(&proxy, "alice");
    let before = origin.count();
    for ask in [only("/"), only("/").method("HEAD"), only("/").cookie(&cookie)] {
        let mut client = proxy.connect();
        let answer = ask.send_on(&mut client);
        assert_eq!(answer.status, 504, "{answer:?}");
        let status = answer.cache_status();
        assert!(status.contains("detail=request-directive"), "{status}");
        assert!(ask.try_send_on(&mut client).is_some(), "the connection stays");
    }
    assert_eq!(origin.count(), before);
    proxy.get("/").send();
    assert!(only("/").send().is_hit());
    assert_eq!(only("/").cookie(&cookie).send().status, 504);
}

#[test]
fn a_route_has_windows_of_its_own_for_stale_pages() {
    let origin = Origin::start(|request| match request.header("if-none-match") {
        Some(_) => Reply::nothing(),
        None => Reply::typed("text/css", "page")
            .header("Cache-Control", "max-age=0")
            .header("ETag", "\"v\""),
    });
    let settings = "[cache]\nstale_if_error = \"0s\"\n[[route]]\nmatch.path = \"/kept\"\n\
                    stale_if_error = \"1h\"";
    let proxy = Proxy::embedded(&origin, settings);
    for (page, status) in [("/kept", 200), ("/other", 502)] {
        assert_eq!(proxy.get(page).send().status, 200);
        assert_eq!(proxy.get(page).send().status, status, "{page}");
    }
}

#[test]
fn a_reload_is_not_answered_with_a_page_that_was_purged_meanwhile() {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |request| {
        if request.header("if-none-match").is_some() {
            held.pass();
        }
        let control = "max-age=300, must-revalidate";
        Reply::typed("text/css", "page").header("ETag", "\"v\"").header("Cache-Control", control)
    });
    let proxy = Proxy::embedded(&origin, HONOUR);
    proxy.get("/").send();
    let mut reload = proxy.get("/").header("Cache-Control", "no-cache").start();
    wait_until("the origin is asked", || origin.count() == 2);
    proxy.post("/").send();
    gate.open();
    let answer = reload.answer();
    assert!(!answer.is_hit(), "{}", answer.cache_status());
}
