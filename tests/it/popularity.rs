//! Popularity: which views count, what only the most viewed items get, and what rescaling leaves.

use std::process::Stdio;

use crate::support::at_once;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

const ITEMS: &str = "session.mint = true\nclient.trusted_proxies = [\"127.0.0.1\"]\n\
                     [[route]]\nmatch.path = \"/item/{item}\"";

fn items() -> Origin {
    shop(|request| match request.path() {
        "/item/gone" => Reply::status("404 Not Found").body("no such item"),
        _ => Reply::html("a page"),
    })
}

fn server(storage: &Storage) -> &RedisServer {
    match storage {
        Storage::Redis(server) => server,
        Storage::Embedded => unreachable!("opened on redis"),
    }
}

fn score(server: &RedisServer, item: &str) -> Option<f64> {
    server.command(&["ZSCORE", "viewed:", item])
}

#[test]
fn without_a_login_a_view_counts_once_for_an_address_and_item() {
    let storage = Storage::redis();
    let (origin, server) = (items(), server(&storage));
    let proxy = Proxy::start(&origin, &storage, ITEMS);
    let view = |address: &str, item: &str| {
        let target = format!("/item/{item}");
        assert_eq!(proxy.get(&target).header("X-Forwarded-For", address).send().status, 200);
    };

    at_once(8, |_| view("192.0.2.1", "cup"));
    view("192.0.2.1", "mug");
    view("192.0.2.2", "cup");
    let unknown = proxy.get("/item/cup").header("X-Forwarded-For", "192.0.2.2");
    unknown.cookie("unheard-of=1").send();
    view("192.0.2.3", "last");

    // Counts are written together: once the last is there, so are the others.
    wait_until("the views are counted", || score(server, "last") == Some(-1.0));
    wait_until("cup", || score(server, "cup") == Some(-2.0));
    wait_until("mug", || score(server, "mug") == Some(-1.0));
    assert_eq!(server.keys("recent:*"), [""; 0]);
}

#[test]
fn with_a_login_every_view_counts_and_only_views_do() {
    let storage = Storage::redis();
    let (origin, server) = (items(), server(&storage));
    let proxy = Proxy::start(&origin, &storage, ITEMS);
    let ann = log_in(&proxy, "ann");

    for _ in 0..3 {
        proxy.get("/item/cup").cookie(&ann).send();
    }
    proxy.ask("HEAD", "/item/head").cookie(&ann).send();
    proxy.ask("HEAD", "/item/head").send();
    proxy.get("/item/prefetched").cookie(&ann).header("Sec-Purpose", "prefetch").send();
    proxy.get("/item/prefetched").header("Sec-Purpose", "prefetch;prerender").send();
    proxy.get("/item/gone").cookie(&ann).send();
    proxy.get("/item/gone").send();
    proxy.post("/item/posted").cookie(&ann).send();
    proxy.get("/item/last").cookie(&ann).send();

    wait_until("the last view is counted", || score(server, "last") == Some(-1.0));
    wait_until("cup", || score(server, "cup") == Some(-3.0));
    let counted: u64 = server.command(&["ZCARD", "viewed:"]);
    assert_eq!(counted, 2, "{}", server.dump());
}

on_both_stores!(only_the_most_viewed_items_are_cached, an_operator_sees_what_is_viewed_most);

fn only_the_most_viewed_items_are_cached(storage: &Storage) {
    let settings = format!("{ITEMS}\nonly_top = 1");
    let origin = items();
    let proxy = Proxy::start(&origin, storage, &settings);
    let ann = log_in(&proxy, "ann");
    proxy.get("/item/cup").send();
    assert!(proxy.get("/item/cup").send().is_hit(), "while fewer items are known, all are cached");

    for _ in 0..3 {
        proxy.get("/item/mug").cookie(&ann).send();
    }

    wait_until("the mug alone is popular", || {
        let cup = proxy.get("/item/cup").header("X-Forwarded-For", "192.0.2.1").send();
        proxy.get("/item/mug").send().is_hit() && cup.cache_status().contains("detail=rank")
    });
}

fn an_operator_sees_what_is_viewed_most(storage: &Storage) {
    let origin = items();
    let proxy = Proxy::start(&origin, storage, ITEMS);
    let ann = log_in(&proxy, "ann");
    for target in ["/item/cup", "/item/mug", "/item/cup"] {
        proxy.get(target).cookie(&ann).send();
    }
    let top = |words: &[&str]| {
        let mut command = anteroom();
        command.arg("top").args(words).args(["--config", "proxy.toml"]);
        let output = command.current_dir(proxy.folder()).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };

    wait_until("all views are counted", || {
        let told = top(&["items", "--json"]).1;
        told.trim() == r#"{"items":[{"item":"cup","views":2.0},{"item":"mug","views":1.0}]}"#
    });
    let (code, told) = top(&["--number", "1"]);
    assert_eq!((code, told.as_str()), (Some(0), "     1           2.0  cup\n"));
    assert_eq!(top(&["items", "--number", "1"]), (code, told), "the old call and the new one");
    for number in ["0", "10001"] {
        assert_eq!(top(&["--number", number]).0, Some(2));
        assert_eq!(top(&["items", "--number", number]).0, Some(2));
    }
}

#[test]
fn views_are_rescaled_in_the_background() {
    let storage = Storage::redis();
    let server = server(&storage);
    server.command::<()>(&["ZADD", "viewed:", "-8", "cup", "-4", "mug", "-2", "jug"]);
    let settings = "[views]\nrescale_every = \"1s\"\nkeep_top = 2";
    let origin = items();
    let _proxies =
        [Proxy::start(&origin, &storage, settings), Proxy::start(&origin, &storage, settings)];

    wait_until("the least viewed is gone", || score(server, "jug").is_none());
    wait_until("scores are halved again and again", || {
        score(server, "cup").is_some_and(|cup| cup >= -1.0)
    });
    let scores: Vec<(String, f64)> =
        server.command(&["ZRANGE", "viewed:", "0", "-1", "WITHSCORES"]);
    assert_eq!(scores.len(), 2);
    assert_eq!(scores[0].1, scores[1].1 * 2.0, "both were halved as often: {scores:?}");
}
