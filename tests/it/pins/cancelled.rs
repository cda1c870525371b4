//! Requests that change something, whose clients leave: in each place where they wait, what the origin did
//! reaches the pages, the session and the cart, and the access log says what became of them.

use std::sync::Arc;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores};
use crate::support::relay::Relay;
use crate::support::tap::{Step, Tap};
use crate::support::wait_until;

const SETTINGS: &str = "session.mint = true\nstore.timeout = \"5s\"\n[[route]]\nmatch.path = \"/feed/**\"\n\
                        purges = [\"/front\"]";

on_both_stores!(
    a_client_leaving_before_the_answer_has_its_changes_applied,
    a_client_leaving_during_the_answer_has_its_changes_applied,
    a_client_leaving_before_a_failure_has_the_page_invalidated,
    a_client_leaving_during_its_upload_changes_nothing,
);

/// Pages that are kept for a minute.
fn page(request: &Request) -> Reply {
    Reply::html(&request.target).header("Cache-Control", "max-age=60")
}

fn log_in_answer(user: &str) -> Reply {
    Reply::status("303 See Other").header("Location", "/else").header("Anteroom-Login", user)
}

/// Logs alice in, and keeps the pages that a change is to reach. Returns the proxy and her cookie.
fn opened(proxy: Proxy) -> (Proxy, String) {
    let alice = log_in(&proxy, "alice");
    for target in ["/feed/1", "/front", "/apart"] {
        proxy.get(target).send();
        assert!(proxy.get(target).send().is_hit(), "{target}");
    }
    (proxy, alice)
}

/// Waits until the page at the change's URL, and what its route names, are not served any more; no other is.
fn assert_purged(proxy: &Proxy) {
    wait_until("the change is carried out", || !proxy.get("/feed/1").send().is_hit());
    assert!(!proxy.get("/front").send().is_hit(), "what the route names");
    assert!(proxy.get("/apart").send().is_hit(), "nothing else");
}

/// The status, how it was answered and why, the visitor, whether it broke off, and the bytes of the line that
/// the access log has of the change.
fn logged(proxy: &Proxy) -> String {
    let mut lines = Vec::new();
    wait_until("the change is logged", || {
        lines = proxy.access_log(0);
        lines.retain(|line| line["path"] == "/feed/1" && line["method"] == "POST");
        !lines.is_empty()
    });
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let of = |name: &str| match &line[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    ["status", "cache", "reason", "visitor", "aborted", "bytes"].map(of).join(" ")
}

/// The users who have sessions, as `anteroom sessions list` says.
fn users(proxy: &Proxy) -> String {
    let mut list = anteroom();
    list.args(["sessions", "list", "--json", "--config", "proxy.toml"]);
    let said = list.current_dir(proxy.folder()).output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

fn cart(proxy: &Proxy, cookie: &str) -> String {
    proxy.get("/_anteroom/cart").cookie(cookie).send().text()
}

/// A change by a visitor, who is there still.
fn change(proxy: &Proxy, cookie: &str) -> Client {
    proxy.post("/feed/1").cookie(cookie).start()
}

fn a_client_leaving_before_the_answer_has_its_changes_applied(storage: &Storage) {
    let (gate, is_in) = (Gate::closed(), Gate::closed());
    let (held, came) = (Arc::clone(&gate), Arc::clone(&is_in));
    let origin = Origin::start(move |request| match (request.method.as_str(), request.path()) {
        ("POST", "/feed/1") => {
            came.open();
            held.pass();
            log_in_answer("bob").header("Anteroom-Cart", "mug;count=2").body("")
        }
        ("POST", _) => log_in_answer("alice").body(""),
        _ => page(request),
    });
    let (proxy, alice) = opened(Proxy::start(&origin, storage, SETTINGS));
    let client = change(&proxy, &alice);
    is_in.pass();
    client.leave();
    assert!(proxy.get("/feed/1").send().is_hit(), "nothing has changed yet");
    gate.open();
    assert_purged(&proxy);
    wait_until("the login is in the store", || users(&proxy).contains("bob"));
    assert_eq!(proxy.metric("anteroom_log_ins_total"), 2.0);
    assert_eq!(logged(&proxy), "303 bypass method known - 0");
}

fn a_client_leaving_during_the_answer_has_its_changes_applied(storage: &Storage) {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |request| match (request.method.as_str(), request.path()) {
        ("POST", "/feed/1") => Reply::status("200 OK")
            .header("Content-Length", "10")
            .header("Anteroom-Cart", "mug;count=2")
            .bytes("hello")
            .until(&held)
            .bytes("hello"),
        ("POST", _) => log_in_answer("alice").body(""),
        _ => page(request),
    });
    let (proxy, alice) = opened(Proxy::start(&origin, storage, SETTINGS));
    let mut client = change(&proxy, &alice);
    client.until("hello");
    assert!(cart(&proxy, &alice).contains("{\"item\":\"mug\",\"count\":2}"), "before its answer");
    assert_purged(&proxy);
    client.leave();
    gate.open();
    assert_eq!(logged(&proxy), "200 bypass method known true 5");
    assert!(cart(&proxy, &alice).contains("mug"));
}

fn a_client_leaving_before_a_failure_has_the_page_invalidated(storage: &Storage) {
    let (gate, is_in) = (Gate::closed(), Gate::closed());
    let (held, came) = (Arc::clone(&gate), Arc::clone(&is_in));
    let origin = Origin::start(move |request| match (request.method.as_str(), request.path()) {
        ("POST", "/feed/1") => {
            came.open();
            held.pass();
            Reply::nothing()
        }
        ("POST", _) => log_in_answer("alice").body(""),
        _ => page(request),
    });
    let (proxy, alice) = opened(Proxy::start(&origin, storage, SETTINGS));
    let client = change(&proxy, &alice);
    is_in.pass();
    client.leave();
    gate.open();
    assert_purged(&proxy);
    assert_eq!(logged(&proxy), "502 error origin known true 0");
}

fn a_client_leaving_during_its_upload_changes_nothing(storage: &Storage) {
    let origin = Tap::start(|seen| {
        let page = |lines: &str| {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{lines}");
            vec![Step::Send(format!("{head}Content-Length: 4\r\n\r\npage").into_bytes())]
        };
        match seen.target().as_str() {
            "/login?alice" => page("Anteroom-Login: alice\r\n"),
            _ => page("Cache-Control: max-age=60\r\n"),
        }
    });
    let (proxy, alice) = opened(Proxy::before(origin.address(), storage, SETTINGS));
    let count = origin.count();
    let mut client = proxy.connect();
    let head = format!("POST /feed/1 HTTP/1.1\r\nHost: shop.test\r\nCookie: {alice}\r\n");
    client.send(format!("{head}Content-Length: 100\r\n\r\nhalf").as_bytes());
    wait_until("the origin has its head", || {
        origin.seen()[count..].iter().any(|seen| seen.raw.ends_with(b"\r\n\r\n"))
    });
    client.leave();
    assert_eq!(logged(&proxy), "400 error refused known - 36");
    // What has come in part is no change: the origin has nothing that it could act on.
    for target in ["/feed/1", "/front", "/apart"] {
        assert!(proxy.get(target).send().is_hit(), "{target}");
    }
}

#[test]
fn a_client_leaving_while_the_store_is_slow_has_its_changes_applied() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { unreachable!() };
    let relay = Relay::start(server.port());
    let origin = Origin::start(|request| match (request.method.as_str(), request.path()) {
        ("POST", "/feed/1") => {
            log_in_answer("bob").header("Anteroom-Cart", "mug;count=2").body("done")
        }
        ("POST", _) => log_in_answer("alice").body(""),
        _ => page(request),
    });
    let store = format!("store.url = \"redis://127.0.0.1:{}\"\n", relay.port());
    let (proxy, alice) = opened(Proxy::with_settings(&origin, &format!("{store}{SETTINGS}")));
    let count = origin.count();
    // Known already: the store is not asked on the way to the origin.
    assert_eq!(proxy.get("/_anteroom/me").cookie(&alice).send().status, 200);
    relay.hold();
    let client = change(&proxy, &alice);
    wait_until("the origin has answered", || origin.count() > count && origin.busy() == 0);
    client.leave();
    relay.pass();
    assert_purged(&proxy);
    wait_until("the login is in the store", || users(&proxy).contains("bob"));
    assert_eq!(proxy.metric("anteroom_log_ins_total"), 2.0);
    assert_eq!(logged(&proxy), "303 bypass method known true 0");
    let carts = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut redis = server.connection().await;
            let keys: Vec<String> =
                ::redis::cmd("KEYS").arg("cart:*").query_async(&mut redis).await.unwrap();
            keys.len()
        })
    };
    wait_until("the cart is in the store", || carts() == 1);
}
