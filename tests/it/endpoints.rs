//! `/_anteroom/…`: what the browser may ask the proxy about the visitor, and what it refuses.

use serde_json::{Value, json};

use crate::support::client::{Answer, Ask};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

const MINT: &str = "session.mint = true";
const JSON: &str = "application/json";

on_both_stores!(
    me_returns_the_user_and_the_session,
    viewed_items_are_listed_newest_first,
    the_most_viewed_items_are_told_where_that_is_on,
);

fn plain_shop() -> Origin {
    shop(|_| Reply::unstored("from the shop"))
}

fn told(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body.bytes).expect("an endpoint answers in JSON")
}

fn me_returns_the_user_and_the_session(storage: &Storage) {
    let origin = plain_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "Zo%C3%AB");
    let ask = || proxy.get("/_anteroom/me");

    let known = ask().cookie(&alice).send();
    assert_eq!(told(&known), json!({ "user": "Zoë", "session": "known" }));
    assert_eq!(told(&ask().send()), json!({ "user": null, "session": "none" }));
    let stray = ask().cookie("language=de").send();
    assert_eq!((stray.status, &told(&stray)["session"]), (200, &json!("unknown")));
}

#[test]
fn an_answer_is_neither_cached_nor_readable_by_other_sites() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");

    for path in ["/_anteroom/me", "/_anteroom/cart", "/_anteroom/recent", "/_anteroom/nothing"] {
        for cookie in ["", alice.as_str()] {
            let answer = proxy.get(path).cookie(cookie).header("Origin", "http://evil.test").send();
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
            let policy = answer.header("cross-origin-resource-policy");
            assert_eq!(policy, Some("same-origin"), "{path}");
            assert_eq!(answer.header("content-type"), Some(JSON), "{path}");
            assert!(answer.cache_status().ends_with("fwd=bypass; detail=endpoint"), "{path}");
            let cors = answer.fields.iter().any(|(name, _)| name.starts_with("access-control"));
            assert!(!cors && answer.header("set-cookie").is_none(), "{path}");
        }
    }
}

#[test]
fn a_head_is_answered_like_a_get_without_its_body() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    let mut client = proxy.connect();

    let get = proxy.get("/_anteroom/me").send_on(&mut client);
    let head = proxy.ask("HEAD", "/_anteroom/me").send_on(&mut client);
    let again = proxy.get("/_anteroom/me").send_on(&mut client);

    assert_eq!((head.status, head.header("content-length")), (200, get.header("content-length")));
    assert!(head.body.bytes.is_empty());
    assert_eq!(again.text(), get.text());
}

fn viewed_items_are_listed_newest_first(storage: &Storage) {
    let origin = plain_shop();
    let settings = format!("{MINT}\n[[route]]\nmatch.path = \"/item/{{item}}\"");
    let proxy = Proxy::start(&origin, storage, &settings);
    let alice = log_in(&proxy, "alice");
    let items = || {
        let recent = told(&proxy.get("/_anteroom/recent").cookie(&alice).send());
        let items = recent["items"].as_array().unwrap().clone();
        assert!(items.iter().all(|item| item["viewed"].as_f64().unwrap() > 1e9), "{recent}");
        items.iter().map(|item| item["item"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(items().is_empty());

    for item in ["mug", "tea pot"] {
        let path = format!("/item/{}", item.replace(' ', "%20"));
        proxy.get(&path).cookie(&alice).send();
        wait_until("the view is noted", || items().first().is_some_and(|first| first == item));
    }

    assert_eq!(items(), ["tea pot", "mug"]);
    assert_eq!(proxy.get("/_anteroom/recent").send().status, 401);
}

fn the_most_viewed_items_are_told_where_that_is_on(storage: &Storage) {
    let origin = plain_shop();
    let settings = format!(
        "{MINT}\nvisitor.endpoints = [\"top\"]\n[[route]]\nmatch.path = \"/item/{{item}}\""
    );
    let proxy = Proxy::start(&origin, storage, &settings);
    let alice = log_in(&proxy, "alice");
    for item in ["mug", "tea", "mug"] {
        proxy.get(&format!("/item/{item}")).cookie(&alice).send();
    }

    let top = || told(&proxy.get("/_anteroom/top").send());

    let wanted = json!({ "items": [
        { "item": "mug", "views": 2.0 },
        { "item": "tea", "views": 1.0 },
    ] });
    wait_until("the views are counted", || top() == wanted);
    assert_eq!(proxy.get("/_anteroom/me").send().status, 404);
}

#[test]
fn a_call_counts_no_view_and_is_logged() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = plain_shop();
    let settings = format!("{MINT}\n[[route]]\nmatch.path = \"/_anteroom/{{item}}\"");
    let proxy = Proxy::start(&origin, &storage, &settings);
    let alice = log_in(&proxy, "alice");
    let seen = || server.command::<Option<f64>>(&["ZSCORE", "recent:", &alice["login=".len()..]]);
    let before = seen();

    proxy.get("/_anteroom/me").cookie(&alice).send();

    wait_until("his visit is noted", || seen() > before);
    assert!(server.keys("viewed:*").is_empty(), "{:?}", server.keys("viewed:*"));
    let line = &proxy.access_log(2)[1];
    assert_eq!(line["status"], 200, "{line}");
    assert!(line.to_string().contains("endpoint"), "{line}");
    let counted = proxy.metric("anteroom_cache_results_total{result=\"endpoint\"}");
    assert_eq!(counted, 1.0);
}

#[test]
fn the_top_is_off_unless_the_operator_says_otherwise() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    for ask in [proxy.get("/_anteroom/top"), proxy.get("/_anteroom/top").cookie(&alice)] {
        assert_eq!(ask.send().status, 404);
    }
}

/// Spellings that some server or other would read as a path under `/_anteroom/`.
const SPELLINGS: [&str; 24] = [
    "/_anteroom",
    "/_anteroom/",
    "/_anteroom/me",
    "/_anteroom/nothing",
    "/_anteroom/me/more",
    "/_anteroom/me?a=b",
    "/%5Fanteroom/me",
    "/%5fante%72oom/me",
    "/%255fanteroom/me",
    "/%u005fanteroom/me",
    "/%c1%9fanteroom/me",
    "//_anteroom/me",
    "/./_anteroom/me",
    "/x/../_anteroom/me",
    "/x/%2e%2e/_anteroom/me",
    "/x/..;/_anteroom/me",
    "/x/..%2f_anteroom/me",
    "/%2f_anteroom/me",
    "/_anteroom%2fme",
    "/_anteroom%5cme",
    "/_anteroom;x=1/me",
    "/_anteroom./me",
    "/_ANTEROOM/me",
    "http://shop.test/_anteroom/me",
];

#[test]
fn nothing_under_the_prefix_reaches_the_app_in_any_spelling() {
    let origin = plain_shop();
    for settings in [MINT, "visitor.endpoints = []"] {
        let proxy = Proxy::embedded(&origin, settings);
        let before = origin.seen().len();
        for spelling in SPELLINGS {
            for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PURGE", "OPTIONS"] {
                let answer = proxy.ask(method, spelling).send();
                assert!(matches!(answer.status, 200 | 404 | 405), "{method} {spelling}");
                assert!(settings == MINT || answer.status == 404, "{method} {spelling}");
            }
        }
        let after: Vec<_> = origin.seen().split_off(before);
        assert!(after.is_empty(), "{:?}", after[0]);
    }
}

#[test]
fn paths_similar_to_the_prefix_go_to_the_app() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    for path in ["/anteroom/me", "/_anteroomy/me", "/blog/_anteroom/me", "/?/_anteroom/me"] {
        assert_eq!(proxy.get(path).send().text(), "from the shop", "{path}");
    }
}

#[test]
fn a_method_that_is_not_for_it_is_told_those_that_are() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    for (path, allowed) in [
        ("/_anteroom/me", "GET, HEAD"),
        ("/_anteroom/recent", "GET, HEAD"),
        ("/_anteroom/cart", "GET, HEAD, PUT, DELETE"),
    ] {
        let answer = proxy.post(path).header("Sec-Fetch-Site", "same-origin").send();
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{path}");
    }
}

/// A PUT by a page of the site itself.
fn put(proxy: &Proxy, body: &str) -> Ask {
    unproven_put(proxy, body).header("Sec-Fetch-Site", "same-origin")
}

fn unproven_put(proxy: &Proxy, body: &str) -> Ask {
    proxy.ask("PUT", "/_anteroom/cart").header("Content-Type", JSON).body(body.as_bytes())
}

const MUG: &str = r#"{"item":"mug","count":1}"#;

#[test]
fn a_change_must_come_from_a_page_of_the_site() {
    let origin = plain_shop();
    let settings = format!("{MINT}\nclient.trusted_proxies = [\"127.0.0.1/32\"]");
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let status = |fields: &[(&str, &str)]| {
        let ask = unproven_put(&proxy, MUG).cookie(&alice);
        let status = fields.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send();
        let delete = proxy.ask("DELETE", "/_anteroom/cart").cookie(&alice);
        let other = fields.iter().fold(delete, |ask, (name, value)| ask.header(name, value)).send();
        assert_eq!(status.status, other.status, "{fields:?}");
        status.status
    };
    const SITE: &str = "Sec-Fetch-Site";

    for fields in [
        &[(SITE, "same-origin")][..],
        &[(SITE, "same-origin"), ("Origin", "http://shop.test")],
        &[("Origin", "http://shop.test")],
        &[("Origin", "http://shop.test:80")],
        &[("Origin", "https://shop.test"), ("X-Forwarded-Proto", "https")],
    ] {
        assert_eq!(status(fields), 200, "{fields:?}");
    }
    for fields in [
        &[][..],
        &[(SITE, "same-site")],
        &[(SITE, "cross-site")],
        &[(SITE, "none")],
        &[(SITE, "")],
        &[(SITE, "same-origin, cross-site")],
        &[(SITE, "same-origin"), (SITE, "same-origin")],
        &[(SITE, "cross-site"), ("Origin", "http://shop.test")],
        &[(SITE, "same-site"), ("Origin", "http://shop.test")],
        &[("Origin", "null")],
        &[("Origin", "http://evil.test")],
        &[("Origin", "https://shop.test")],
        &[("Origin", "http://shop.test"), ("X-Forwarded-Proto", "https")],
        &[("Origin", "http://shop.test:8080")],
        &[("Origin", "http://shop.test"), ("Origin", "http://shop.test")],
        &[("Referer", "http://shop.test/")],
    ] {
        assert_eq!(status(fields), 403, "{fields:?}");
    }
}

#[test]
fn every_wrong_change_is_refused_and_changes_nothing() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    assert_eq!(put(&proxy, MUG).cookie(&alice).send().status, 200);

    let many: Vec<_> =
        (0..500).map(|number| json!({ "item": format!("i{number}"), "count": 1 })).collect();
    let many = json!({ "items": many }).to_string();
    let large = format!(r#"{{"item":"{}","count":1}}"#, "x".repeat(64 << 10));
    let long = format!(r#"{{"item":"{}","count":1}}"#, "x".repeat(129));
    for (body, status) in [
        ("", 400),
        ("mug", 400),
        ("{}", 400),
        (r#"{"item":"mug"}"#, 400),
        (r#"{"item":"mug","count":"2"}"#, 400),
        (r#"{"item":"mug","count":1.5}"#, 400),
        (r#"{"item":"mug","count":1000001}"#, 400),
        (r#"{"item":"","count":1}"#, 400),
        (r#"{"item":"a\nb","count":1}"#, 400),
        (r#"{"item":"mug","count":2,"price":0}"#, 400),
        (r#"{"items":[{"item":"mug","count":2},{"item":"","count":1}]}"#, 400),
        (&long, 400),
        (&large, 413),
        (&many, 409),
    ] {
        let answer = put(&proxy, body).cookie(&alice).send();
        assert_eq!(answer.status, status, "{}", &body[..body.len().min(80)]);
        assert!(told(&answer)["error"].is_string(), "{}", answer.text());
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        let ask = proxy.ask("PUT", "/_anteroom/cart").header("Sec-Fetch-Site", "same-origin");
        let ask = ask.header("Content-Type", kind).body(MUG.as_bytes()).cookie(&alice);
        assert_eq!(ask.send().status, 415, "{kind}");
    }

    let cart = told(&proxy.get("/_anteroom/cart").cookie(&alice).send());
    assert_eq!(cart, json!({ "items": [{ "item": "mug", "count": 1 }] }));
}

#[test]
fn a_request_with_several_errors_gets_the_first() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    let ask = || proxy.ask("PUT", "/_anteroom/cart").body(b"nonsense");
    let from_here = || ask().header("Sec-Fetch-Site", "same-origin");

    assert_eq!(ask().send().status, 403);
    assert_eq!(from_here().send().status, 401);
    assert_eq!(from_here().cookie(&alice).send().status, 415);
    assert_eq!(from_here().cookie(&alice).header("Content-Type", JSON).send().status, 400);
    let parameter = "Application/JSON; charset=utf-8";
    assert_eq!(from_here().cookie(&alice).header("Content-Type", parameter).send().status, 400);
}

#[test]
fn without_a_known_session_there_is_no_cart() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, "");
    for cookie in ["", "login=0123456789abcdef", "login=short", "language=de"] {
        let answers = [
            proxy.get("/_anteroom/cart").cookie(cookie).send(),
            proxy.get("/_anteroom/recent").cookie(cookie).send(),
            put(&proxy, MUG).cookie(cookie).send(),
        ];
        for answer in answers {
            assert_eq!(answer.status, 401, "{cookie}");
            assert!(told(&answer)["error"].is_string());
        }
    }
}

#[test]
fn a_body_that_was_not_read_ends_the_connection() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    for ask in [
        unproven_put(&proxy, MUG),
        put(&proxy, MUG),
        proxy.get("/_anteroom/me").body(b"GET /smuggled HTTP/1.1\r\n\r\n"),
        proxy.ask("POST", "/_anteroom/nothing").body(b"x"),
    ] {
        let mut client = proxy.connect();
        let answer = ask.send_on(&mut client);
        assert_eq!(answer.header("connection"), Some("close"), "{}", answer.status);
        assert!(client.is_closed());
    }
}

#[test]
fn a_body_in_chunks_is_held_to_its_bound() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    let head = format!(
        "PUT /_anteroom/cart HTTP/1.1\r\nHost: shop.test\r\nSec-Fetch-Site: same-origin\r\n\
         Content-Type: application/json\r\nCookie: {alice}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );

    let mut client = proxy.connect();
    client.send(format!("{head}{:x}\r\n{MUG}\r\n0\r\n\r\n", MUG.len()).as_bytes());
    assert_eq!(client.answer().status, 200);

    let mut client = proxy.connect();
    client.send(head.as_bytes());
    let spaces = " ".repeat(0x1000);
    for _ in 0..17 {
        client.send(format!("1000\r\n{spaces}\r\n").as_bytes());
    }
    assert_eq!(client.answer().status, 413);
}

#[test]
fn a_body_that_stops_is_given_up() {
    let origin = plain_shop();
    let proxy = Proxy::embedded(&origin, &format!("{MINT}\nlimits.stall_timeout = \"200ms\""));
    let alice = log_in(&proxy, "alice");
    let mut client = proxy.connect();
    client.send(
        format!(
            "PUT /_anteroom/cart HTTP/1.1\r\nHost: shop.test\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/json\r\nCookie: {alice}\r\nContent-Length: 20\r\n\r\n{{"
        )
        .as_bytes(),
    );
    assert_eq!(client.answer().status, 408);
}
