//! The cookie of a visitor's token on answers that are errors: which have it, and which do not.

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};

const NAME: &str = "anteroom_visitor";
const SETTINGS: &str = r#"client.trusted_proxies = "127.0.0.1"
client.deny = "192.0.2.66"
origin.hosts = "shop.test"
session.mint = true
store.timeout = "5s"
limits.max_body = "1KiB"
origin.keep_idle = 0
[[route]]
match.path = "/item/{item}"
visitor_token = true
[[route]]
name = "shop"
visitor_token = true"#;

on_both_stores!(
    a_cart_with_a_broken_answer_gives_its_token,
    a_log_in_with_a_broken_answer_clears_the_merged_token,
    a_log_out_with_a_broken_answer_clears_the_token,
    a_known_user_loses_the_visitor_token_with_any_answer,
    a_known_user_loses_the_visitor_token_at_failing_endpoints,
    a_view_that_fails_gives_no_token,
    a_refusal_leaves_the_token_alone,
);

/// A shop where `/buy?mug;count=2` puts something into the cart; answers under `/broken/` break off.
fn pages() -> Origin {
    shop(|request| {
        let broken = || Reply::status("200 OK").header("Content-Length", "100");
        match request.target.split_once('?') {
            Some(("/buy", value)) => Reply::unstored("bought").header("Anteroom-Cart", value),
            Some(("/broken/buy", value)) => broken().header("Anteroom-Cart", value).closing(),
            Some(("/broken/login", user)) => broken().header("Anteroom-Login", user).closing(),
            _ => match request.path() {
                "/broken/logout" => broken().header("Anteroom-Logout", "1").closing(),
                "/item/gone" => Reply::status("404 Not Found").body("none"),
                "/item/ill" => Reply::status("503 Away").body("ill"),
                "/closes" | "/item/closes" => Reply::nothing(),
                _ => Reply::unstored("page"),
            },
        }
    })
}

fn start(origin: &Origin, storage: &Storage) -> Proxy {
    Proxy::start(origin, storage, SETTINGS)
}

/// What an answer says of the token: `given`, `taken`, or nothing.
fn token(answer: &Answer) -> &'static str {
    match answer.cookie(NAME).as_deref() {
        None => "",
        Some("") => "taken",
        Some(_) => "given",
    }
}

fn told(answer: &Answer) -> (u16, &'static str) {
    (answer.status, token(answer))
}

/// What the browser of a visitor with something in the cart sends.
fn visitor(proxy: &Proxy) -> String {
    let answer = proxy.post("/buy?mug;count=2").send();
    format!("{NAME}={}", answer.cookie(NAME).expect("a cart is begun"))
}

fn a_cart_with_a_broken_answer_gives_its_token(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    let answer = proxy.post("/broken/buy?mug;count=2").send();
    assert_eq!(told(&answer), (502, "given"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let mine = format!("{NAME}={}", answer.cookie(NAME).unwrap());
    assert!(proxy.get("/_anteroom/cart").cookie(&mine).send().text().contains("mug"));
}

fn a_log_in_with_a_broken_answer_clears_the_merged_token(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    let answer = proxy.post("/broken/login?alice").cookie(&visitor(&proxy)).send();
    assert_eq!(told(&answer), (502, "taken"));
    let alice = format!("login={}", answer.cookie("login").expect("the login stands"));
    assert!(proxy.get("/_anteroom/cart").cookie(&alice).send().text().contains("mug"));
}

fn a_log_out_with_a_broken_answer_clears_the_token(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    let answer = proxy.post("/broken/logout").cookie(&visitor(&proxy)).send();
    assert_eq!(told(&answer), (502, "taken"));
}

fn a_known_user_loses_the_visitor_token_with_any_answer(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    let alice = log_in(&proxy, "alice");
    let cookies = || format!("{alice}; {}", visitor(&proxy));
    let closes = proxy.get("/closes").cookie(&cookies()).send();
    assert_eq!(told(&closes), (502, "taken"));
    let only = proxy.get("/").cookie(&cookies()).header("Cache-Control", "only-if-cached").send();
    assert_eq!(told(&only), (504, "taken"));
    let large = proxy.post("/").cookie(&cookies()).body(&[b'x'; 2_000]).send();
    assert_eq!(told(&large), (413, ""), "before the visitor is identified");
}

fn a_known_user_loses_the_visitor_token_at_failing_endpoints(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    let alice = log_in(&proxy, "alice");
    let ask = |method: &str, target: &str| {
        let cookies = format!("{alice}; {}", visitor(&proxy));
        let ask = proxy.ask(method, target).cookie(&cookies);
        ask.header("Sec-Fetch-Site", "same-origin").body(b"{}").send()
    };
    assert_eq!(told(&ask("PUT", "/_anteroom/cart")), (415, "taken"));
    assert_eq!(told(&ask("POST", "/_anteroom/cart")), (405, ""));
    assert_eq!(told(&ask("GET", "/_anteroom/none")), (404, ""));
}

fn a_view_that_fails_gives_no_token(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    for (target, status) in [("/item/gone", 404), ("/item/ill", 503), ("/item/closes", 502)] {
        assert_eq!(told(&proxy.get(target).send()), (status, ""), "{target}");
    }
    let only = proxy.get("/item/1").header("Cache-Control", "only-if-cached").send();
    assert_eq!(told(&only), (504, ""));
}

fn a_refusal_leaves_the_token_alone(storage: &Storage) {
    let origin = pages();
    let proxy = start(&origin, storage);
    let mine = visitor(&proxy);
    let asked = origin.count();
    let ask = || proxy.get("/item/1").cookie(&mine);
    assert_eq!(told(&ask().host("other.test").send()), (421, ""));
    assert_eq!(told(&ask().header("X-Forwarded-For", "192.0.2.66").send()), (403, ""));
    assert_eq!(told(&ask().header("Expect", "tea").send()), (417, ""));
    assert_eq!(told(&ask().method("TRACE").header("Max-Forwards", "0").send()), (501, ""));
    // Nor where its cookie came twice, of which none counts.
    let twice = format!("{mine}; {NAME}=AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(told(&proxy.get("/closes").cookie(&twice).send()), (502, ""));
    assert_eq!(origin.count(), asked + 1);
}

#[test]
fn a_cart_that_the_store_does_not_take_gives_no_token() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { unreachable!() };
    let origin = pages();
    let proxy = Proxy::start(&origin, &storage, &SETTINGS.replace("\"5s\"", "\"50ms\""));
    server.pause();
    let answer = proxy.post("/buy?mug;count=2").send();
    let log_in = proxy.post("/login?alice").send();
    server.resume();
    assert_eq!(told(&answer), (503, ""));
    assert_eq!((told(&log_in), log_in.cookie("login")), ((503, ""), None));
    assert_eq!(answer.header("retry-after"), Some("5"));
}
