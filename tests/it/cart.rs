//! Carts: changed by the visitor's browser and by the app, and kept with the session of that visitor only.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{at_once, wait_until};

const MINT: &str = "session.mint = true";
/// The same, before a store that is too slow.
const HURRIED: &str = "session.mint = true\nstore.timeout = \"50ms\"";

on_both_stores!(
    a_cart_is_changed_and_emptied,
    a_log_in_by_the_same_user_keeps_the_cart,
    a_cart_is_never_shown_to_another,
    changes_at_once_are_all_there,
    the_app_fills_the_cart_before_its_answer_goes_out,
    a_log_in_and_a_cart_on_one_answer_belong_together,
    the_app_names_the_item_that_was_viewed,
);

/// A shop that says of carts and items what the query says: `/buy?mug;count=2`, `/show?mug`.
fn talking_shop() -> Origin {
    shop(|request| {
        let (path, value) = request.target.split_once('?').unwrap_or((&request.target, ""));
        match path {
            "/buy" => Reply::unstored("bought").header("Anteroom-Cart", value),
            "/show" => Reply::unstored("shown").header("Anteroom-Item", value),
            "/join" => Reply::unstored("welcome")
                .header("Anteroom-Login", value)
                .header("Anteroom-Cart", "welcome-gift;count=1"),
            "/leave" => Reply::unstored("bye")
                .header("Anteroom-Logout", "1")
                .header("Anteroom-Cart", "mug;count=1"),
            _ => Reply::unstored("a page"),
        }
    })
}

fn change(proxy: &Proxy, cookie: &str, body: &str) -> Answer {
    proxy
        .ask("PUT", "/_anteroom/cart")
        .header("Sec-Fetch-Site", "same-origin")
        .header("Content-Type", "application/json")
        .cookie(cookie)
        .body(body.as_bytes())
        .send()
}

fn empty(proxy: &Proxy, cookie: &str) -> Answer {
    let ask = proxy.ask("DELETE", "/_anteroom/cart").header("Sec-Fetch-Site", "same-origin");
    ask.cookie(cookie).send()
}

/// What a cart holds, as the endpoint tells it.
fn held(answer: &Answer) -> Vec<(String, i64)> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let cart: Value = serde_json::from_slice(&answer.body.bytes).unwrap();
    let items = cart["items"].as_array().unwrap();
    let read = |line: &Value| Some((line["item"].as_str()?.to_owned(), line["count"].as_i64()?));
    items.iter().map(|line| read(line).unwrap()).collect()
}

fn cart(proxy: &Proxy, cookie: &str) -> Vec<(String, i64)> {
    held(&proxy.get("/_anteroom/cart").cookie(cookie).send())
}

fn items(items: &[(&str, i64)]) -> Vec<(String, i64)> {
    items.iter().map(|(item, count)| ((*item).to_owned(), *count)).collect()
}

fn a_cart_is_changed_and_emptied(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");
    assert!(cart(&proxy, &alice).is_empty());

    let one = change(&proxy, &alice, r#"{"item":"mug","count":2}"#);
    assert_eq!(held(&one), items(&[("mug", 2)]));
    let several =
        r#"{"items":[{"item":"tea, \"loose\"","count":1000000},{"item":"mug","count":3}]}"#;
    change(&proxy, &alice, several);
    assert_eq!(cart(&proxy, &alice), items(&[("mug", 3), ("tea, \"loose\"", 1_000_000)]));
    let less = change(&proxy, &alice, r#"{"item":"mug","count":0}"#);
    assert_eq!(held(&less), items(&[("tea, \"loose\"", 1_000_000)]));

    assert!(held(&empty(&proxy, &alice)).is_empty());
    assert!(cart(&proxy, &alice).is_empty());
    let seen = origin.seen();
    assert!(seen.iter().all(|request| request.path() == "/login"), "the app is not asked");
}

fn a_log_in_by_the_same_user_keeps_the_cart(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let first = log_in(&proxy, "alice");
    change(&proxy, &first, r#"{"item":"mug","count":2}"#);

    let answer = proxy.post("/login?alice").cookie(&first).send();

    let second = format!("login={}", answer.cookie("login").unwrap());
    assert_eq!(cart(&proxy, &second), items(&[("mug", 2)]));
    assert_eq!(proxy.get("/_anteroom/cart").cookie(&first).send().status, 401);
}

fn a_cart_is_never_shown_to_another(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");
    change(&proxy, &alice, r#"{"item":"mug","count":2}"#);
    let bob = log_in(&proxy, "bob");
    assert!(cart(&proxy, &bob).is_empty());

    // Bob logs in at the browser that was Alice's.
    let answer = proxy.post("/login?bob").cookie(&alice).send();
    let bob = format!("login={}", answer.cookie("login").unwrap());
    assert!(cart(&proxy, &bob).is_empty());

    proxy.post("/logout").cookie(&bob).send();
    assert_eq!(proxy.get("/_anteroom/cart").cookie(&bob).send().status, 401);
    assert_eq!(change(&proxy, &bob, r#"{"item":"mug","count":2}"#).status, 401);
}

fn changes_at_once_are_all_there(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");

    at_once(10, |number| {
        let body = json!({ "item": format!("item-{number}"), "count": 1 }).to_string();
        assert_eq!(change(&proxy, &alice, &body).status, 200);
    });

    assert_eq!(cart(&proxy, &alice).len(), 10);
}

fn the_app_fills_the_cart_before_its_answer_goes_out(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");

    let answer = proxy.post("/buy?mug;count=2,tea%2C%20loose;count=1").cookie(&alice).send();
    assert_eq!((answer.text().as_str(), answer.header("anteroom-cart")), ("bought", None));
    assert_eq!(cart(&proxy, &alice), items(&[("mug", 2), ("tea, loose", 1)]));

    // A GET may say it, too; unreadable values are left out, and no visitor gets an error.
    assert_eq!(proxy.get("/buy?mug;count=0,tea,;,x;count=y").cookie(&alice).send().status, 200);
    assert_eq!(cart(&proxy, &alice), items(&[("tea, loose", 1)]));
    // No visitor is logged in.
    assert_eq!(proxy.post("/buy?mug;count=2").send().text(), "bought");
    assert_eq!(proxy.post("/leave").cookie(&alice).send().status, 200);
}

fn a_log_in_and_a_cart_on_one_answer_belong_together(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let bob = log_in(&proxy, "bob");
    change(&proxy, &bob, r#"{"item":"mug","count":2}"#);

    let answer = proxy.post("/join?alice").cookie(&bob).send();

    let alice = format!("login={}", answer.cookie("login").unwrap());
    assert_eq!(cart(&proxy, &alice), items(&[("welcome-gift", 1)]));
}

fn the_app_names_the_item_that_was_viewed(storage: &Storage) {
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");

    let answer = proxy.get("/show?Zo%C3%AB's%20mug").cookie(&alice).send();
    assert_eq!(answer.header("anteroom-item"), None);
    // A change of something is no view of it.
    proxy.post("/show?tea").cookie(&alice).send();

    let recent = || proxy.get("/_anteroom/recent").cookie(&alice).send().text();
    wait_until("the view is noted", || recent().contains("Zoë's mug"));
    assert!(!recent().contains("tea"), "{}", recent());
}

#[test]
fn a_cart_survives_a_kill_right_after_its_answer() {
    let origin = talking_shop();
    let mut proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    let answer = change(&proxy, &alice, r#"{"item":"mug","count":2}"#);
    assert_eq!(answer.status, 200);

    proxy.kill9();
    proxy.restart();

    assert_eq!(cart(&proxy, &alice), items(&[("mug", 2)]));
    assert_eq!(proxy.post("/buy?tea;count=1").cookie(&alice).send().status, 200);

    proxy.kill9();
    proxy.restart();

    assert_eq!(cart(&proxy, &alice), items(&[("mug", 2), ("tea", 1)]));
}

#[test]
fn the_cart_stands_in_redis_where_other_apps_look_for_it() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, MINT);
    let alice = log_in(&proxy, "alice");
    let key = format!("cart:{}", &alice["login=".len()..]);
    server.command::<()>(&["HSET", &key, "mug", "2"]);

    let answer = change(&proxy, &alice, r#"{"item":"tea","count":1}"#);

    assert_eq!(held(&answer), items(&[("mug", 2), ("tea", 1)]));
    assert_eq!(server.command::<Option<i64>>(&["HGET", &key, "tea"]), Some(1));
    empty(&proxy, &alice);
    assert!(server.keys(&key).is_empty());
}

/// The cart field of a shared page concerns no visitor: the app did not know the visitor.
#[test]
fn a_shared_page_fills_no_cart() {
    let origin = shop(|request| {
        let page = Reply::html("a page").header("Cache-Control", "max-age=60");
        match request.header("x-anteroom-user") {
            None => page.header("Anteroom-Cart", "trap;count=1"),
            Some(_) => page.header("Anteroom-Cart", "mug;count=1"),
        }
    });
    let settings = format!("{MINT}\n[[route]]\nmatch.path = \"/page\"\nshare = \"everyone\"");
    let proxy = Proxy::embedded(&origin, &settings);
    let visitors: Vec<_> = ["alice", "bob", "carol"].map(|user| log_in(&proxy, user)).into();

    let answers = at_once(3, |number| proxy.get("/page").cookie(&visitors[number]).send());

    for (answer, visitor) in answers.iter().zip(&visitors) {
        assert_eq!(answer.text(), "a page");
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        // Each request was forwarded as the visitor's own, and this answer is for that visitor alone.
        assert_eq!(cart(&proxy, visitor), items(&[("mug", 1)]));
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    }
}

#[test]
fn an_origin_that_is_told_of_no_sessions_fills_no_cart() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { return };
    server.command::<()>(&["HSET", "login:", "0123456789abcdef", "alice"]);
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, "origin.sessions = false");

    let answer = proxy.post("/buy?mug;count=1").cookie("login=0123456789abcdef").send();

    assert_eq!((answer.status, answer.header("anteroom-cart")), (200, None));
    assert!(server.keys("cart:*").is_empty());
}

#[test]
fn without_the_store_a_cart_is_refused_for_now() {
    let mut storage = Storage::redis();
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, MINT);
    let alice = log_in(&proxy, "alice");
    let Storage::Redis(server) = &mut storage else { return };
    assert!(cart(&proxy, &alice).is_empty());

    server.kill();
    let refused = [
        proxy.get("/_anteroom/cart").cookie(&alice).send(),
        proxy.get("/_anteroom/recent").cookie(&alice).send(),
        change(&proxy, &alice, r#"{"item":"mug","count":2}"#),
        empty(&proxy, &alice),
    ];
    let me = proxy.get("/_anteroom/me").cookie(&alice).send();
    server.restart();

    for answer in refused {
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    }
    assert_eq!(me.status, 200);
    let change = || change(&proxy, &alice, r#"{"item":"mug","count":2}"#);
    wait_until("carts work again", || change().status == 200);
}

#[test]
fn a_frozen_store_refuses_what_the_app_puts_into_a_cart() {
    let storage = Storage::redis();
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, HURRIED);
    let alice = log_in(&proxy, "alice");
    let Storage::Redis(server) = &storage else { return };
    // What was learnt of her is remembered for a moment.
    assert_eq!(proxy.get("/").cookie(&alice).send().status, 200);

    server.pause();
    let answer = proxy.post("/buy?mug;count=1").cookie(&alice).send();
    server.resume();

    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    assert_eq!(origin.last().path(), "/buy");
}

#[test]
fn a_store_too_slow_for_a_look_up_changes_carts_all_the_same() {
    let storage = Storage::redis();
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, HURRIED);
    let alice = log_in(&proxy, "alice");
    // Knows nothing of her that it could remember.
    let other = Proxy::start(&origin, &storage, HURRIED);
    assert_eq!(other.get("/").cookie("login=somebody-else").send().status, 200);
    let Storage::Redis(server) = &storage else { return };
    let pause = || server.command::<()>(&["CLIENT", "PAUSE", "300", "ALL"]);

    server.pause();
    let mut by_app = other.post("/buy?tea;count=1").cookie(&alice).start();
    wait_until("the app was asked", || origin.last().path() == "/buy");
    server.resume();
    let by_app = by_app.answer();
    assert_eq!(by_app.status, 200, "{}", by_app.text());
    assert_eq!(origin.last().header("x-anteroom-session"), Some("unknown"));
    pause();
    let by_visitor = change(&other, &alice, r#"{"item":"mug","count":2}"#);
    assert_eq!(held(&by_visitor), [("mug".to_owned(), 2), ("tea".to_owned(), 1)]);
    pause();
    let stranger = change(&other, "login=somebody-else", r#"{"item":"mug","count":2}"#);
    assert_eq!(stranger.status, 401);
}

/// Where guests carry the app's session cookie, too.
#[test]
fn an_answer_to_a_possible_guest_is_sent_while_the_store_is_away() {
    let mut storage = Storage::redis();
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, "");
    let Storage::Redis(server) = &mut storage else { return };
    server.kill();

    let answer = proxy.post("/buy?tea;count=1").cookie("login=a-guest-s-token").send();

    assert_eq!((answer.status, answer.text().as_str()), (200, "bought"));
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_log_in_with_a_failing_cart_is_still_a_log_in() {
    let storage = Storage::redis();
    let origin = talking_shop();
    let proxy = Proxy::start(&origin, &storage, MINT);
    let old = log_in(&proxy, "alice");
    let Storage::Redis(server) = &storage else { return };
    // No cart: it moves to the new token as it is, and nothing can be put into it.
    let cart = format!("cart:{}", old.strip_prefix("login=").unwrap());
    server.command::<()>(&["SET", &cart, "no cart"]);

    let answer = proxy.get("/join?alice").cookie(&old).send();

    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("5")));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let new = answer.set_cookie("login").expect("the old token is gone, so the new one is told");
    let me = proxy.get("/_anteroom/me").cookie(new.split(';').next().unwrap()).send();
    assert_eq!(me.text().trim(), r#"{"user":"alice","session":"known"}"#);
}
