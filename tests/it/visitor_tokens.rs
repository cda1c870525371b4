//! Tokens of visitors without a login: given when there is something to remember, only then, and over with
//! the login.

use std::fs;

use serde_json::Value;

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{at_once, wait_until};

const NAME: &str = "anteroom_visitor";

/// A page waits for the store for as long as it takes on a busy machine.
const SETTINGS: &str = r#"session.mint = true
store.timeout = "5s"
[[route]]
match.path = "/item/{item}"
visitor_token = true
[[route]]
match.path = ["/buy", "/plain"]
visitor_token = true"#;

on_both_stores!(
    each_visitor_of_an_item_is_given_a_separate_token,
    a_cart_and_views_from_before_the_log_in_are_there_behind_it,
    a_cart_is_begun_by_a_script_and_by_the_app,
    behind_a_log_out_the_next_one_begins_with_nothing,
    a_cleaned_visitor_begins_again,
    a_user_known_through_the_store_keeps_the_visitor_cart,
);

/// A shop whose pages anybody may share; `/buy?mug;count=2` puts something into the cart.
fn pages() -> Origin {
    shop(|request| match request.target.split_once('?') {
        Some(("/buy", value)) => Reply::unstored("bought").header("Anteroom-Cart", value),
        _ => Reply::html(&format!("a page at {}", request.path()))
            .header("Cache-Control", "public, max-age=60")
            .header("CDN-Cache-Control", "max-age=60"),
    })
}

/// What the browser sends from then on, where an answer gives it a token.
fn given(answer: &Answer) -> Option<String> {
    let value = answer.cookie(NAME).filter(|value| !value.is_empty())?;
    Some(format!("{NAME}={value}"))
}

fn is_cleared(answer: &Answer) -> bool {
    answer
        .set_cookie(NAME)
        .is_some_and(|line| line.starts_with(&format!("{NAME}=;")) && line.contains("Max-Age=0"))
}

fn change(proxy: &Proxy, cookie: &str, body: &str) -> Answer {
    let ask = proxy
        .ask("PUT", "/_anteroom/cart")
        .header("Sec-Fetch-Site", "same-origin")
        .header("Content-Type", "application/json");
    let ask = if cookie.is_empty() { ask } else { ask.cookie(cookie) };
    ask.body(body.as_bytes()).send()
}

/// What an endpoint tells: each item, with its count where there is one.
fn told(proxy: &Proxy, endpoint: &str, cookie: &str) -> Vec<(String, i64)> {
    let ask = proxy.get(&format!("/_anteroom/{endpoint}"));
    let answer = if cookie.is_empty() { ask.send() } else { ask.cookie(cookie).send() };
    assert_eq!(answer.status, 200, "{endpoint} {cookie}: {}", answer.text());
    let told: Value = serde_json::from_slice(&answer.body.bytes).unwrap();
    let line = |line: &Value| {
        (line["item"].as_str().unwrap().to_owned(), line["count"].as_i64().unwrap_or_default())
    };
    told["items"].as_array().unwrap().iter().map(line).collect()
}

fn items(items: &[(&str, i64)]) -> Vec<(String, i64)> {
    items.iter().map(|(item, count)| ((*item).to_owned(), *count)).collect()
}

fn me(proxy: &Proxy, cookie: &str) -> (Value, Value) {
    let answer = proxy.get("/_anteroom/me").cookie(cookie).send();
    let me: Value = serde_json::from_slice(&answer.body.bytes).unwrap();
    (me["user"].clone(), me["session"].clone())
}

/// No request that the origin saw speaks of a visitor's token.
fn is_hidden_from(origin: &Origin) -> bool {
    let speaks = |request: &Request| {
        request.header("cookie").is_some_and(|line| line.contains("anteroom_visitor"))
    };
    !origin.seen().iter().any(speaks)
}

fn each_visitor_of_an_item_is_given_a_separate_token(storage: &Storage) {
    let origin = pages();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    let miss = proxy.get("/item/mug").send();
    let first = given(&miss).expect("a view of an item is remembered");
    let line = miss.set_cookie(NAME).unwrap();
    assert!(line.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000"), "{line}");

    let hit = proxy.get("/item/mug").send();
    let second = given(&hit).expect("on a hit, too");
    assert!(hit.is_hit(), "{}", hit.cache_status());
    assert_ne!(first, second);
    for answer in [&miss, &hit] {
        assert_eq!(answer.fields.all("set-cookie").count(), 1);
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
        assert!(answer.fields.all("vary").any(|line| line.eq_ignore_ascii_case("cookie")));
    }

    // A visitor with a token shares the page with all others, and is given no other token.
    for cookie in [&first, &second] {
        let hit = proxy.get("/item/mug").cookie(cookie).send();
        assert!(hit.is_hit(), "{}", hit.cache_status());
        assert_eq!(hit.set_cookie(NAME), None);
        assert_eq!(hit.header("cache-control"), Some("public, max-age=60"));
        let tea = proxy.get("/item/tea").cookie(cookie).send();
        assert_eq!(tea.set_cookie(NAME), None);
    }
    wait_until("his views are there", || told(&proxy, "recent", &first).len() == 2);
    assert_eq!(me(&proxy, &first), (Value::Null, "none".into()));
    // What is no view makes none, nor does a page where the operator wants none.
    for (method, path) in [("HEAD", "/item/mug"), ("POST", "/item/mug"), ("GET", "/elsewhere")] {
        assert_eq!(proxy.ask(method, path).body(b"").send().set_cookie(NAME), None, "{method}");
    }
    let prefetch = proxy.get("/item/mug").header("Sec-Purpose", "prefetch").send();
    assert_eq!(prefetch.set_cookie(NAME), None);
    assert_eq!(proxy.get("/plain").send().set_cookie(NAME), None, "there is nothing to remember");
    let known = log_in(&proxy, "alice");
    assert_eq!(proxy.get("/item/mug").cookie(&known).send().set_cookie(NAME), None);
    let unknown = proxy.get("/item/mug").cookie("consent=1").send();
    assert_eq!(unknown.set_cookie(NAME), None);
    assert!(is_hidden_from(&origin));
    assert!(proxy.metric("anteroom_visitor_tokens_total") >= 2.0);
}

fn a_cart_and_views_from_before_the_log_in_are_there_behind_it(storage: &Storage) {
    let origin = pages();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    let visitor = given(&proxy.get("/item/mug").send()).unwrap();
    change(&proxy, &visitor, r#"{"item":"mug","count":2}"#);
    proxy.get("/item/tea").cookie(&visitor).send();

    let answer = proxy.post("/login?alice").cookie(&visitor).send();

    let alice = format!("login={}", answer.cookie("login").unwrap());
    assert!(is_cleared(&answer), "{:?}", answer.fields);
    assert_eq!(told(&proxy, "cart", &alice), items(&[("mug", 2)]));
    let recent = || told(&proxy, "recent", &alice);
    wait_until("what waited is there, too", || recent() == items(&[("tea", 0), ("mug", 0)]));
    assert!(told(&proxy, "cart", &visitor).is_empty(), "it is over");
    assert!(is_hidden_from(&origin));

    // Another browser of hers: what was put in there is joined.
    let other = given(&change(
        &proxy,
        "",
        r#"{"items":[{"item":"mug","count":1},{"item":"tea","count":3}]}"#,
    ));
    let both = format!("{}; {alice}", other.unwrap());
    let answer = proxy.post("/login?alice").cookie(&both).send();
    let alice = format!("login={}", answer.cookie("login").unwrap());
    assert_eq!(told(&proxy, "cart", &alice), items(&[("mug", 2), ("tea", 3)]));
    if let Storage::Redis(server) = storage {
        assert!(!server.dump().contains("v,"), "{}", server.dump());
    }
}

fn a_cart_is_begun_by_a_script_and_by_the_app(storage: &Storage) {
    let origin = pages();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    // A visitor without a token has an empty cart, and looking at it makes no token.
    assert!(told(&proxy, "cart", "").is_empty() && told(&proxy, "recent", "").is_empty());
    let nothing = change(&proxy, "", r#"{"item":"mug","count":0}"#);
    assert_eq!((nothing.status, given(&nothing)), (200, None));

    let answer = change(&proxy, "", r#"{"item":"mug","count":2}"#);
    let visitor = given(&answer).expect("a change is remembered");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(told(&proxy, "cart", &visitor), items(&[("mug", 2)]));
    assert_eq!(change(&proxy, &visitor, r#"{"item":"tea","count":1}"#).set_cookie(NAME), None);
    assert_eq!(told(&proxy, "cart", &visitor), items(&[("mug", 2), ("tea", 1)]));
    let empty = proxy.ask("DELETE", "/_anteroom/cart").header("Sec-Fetch-Site", "same-origin");
    assert_eq!(empty.cookie(&visitor).send().status, 200);
    assert!(told(&proxy, "cart", &visitor).is_empty());
    // Another site cannot make one.
    let foreign = proxy
        .ask("PUT", "/_anteroom/cart")
        .header("Sec-Fetch-Site", "cross-site")
        .header("Content-Type", "application/json")
        .body(br#"{"item":"mug","count":2}"#);
    let foreign = foreign.send();
    assert_eq!((foreign.status, foreign.set_cookie(NAME)), (403, None));

    let bought = proxy.post("/buy?mug;count=2").send();
    let other = given(&bought).expect("the app has filled the visitor's cart");
    assert_eq!(bought.text(), "bought");
    assert_eq!(told(&proxy, "cart", &other), items(&[("mug", 2)]));
    let more = proxy.post("/buy?tea;count=1").cookie(&other).send();
    assert_eq!(more.set_cookie(NAME), None);
    assert_eq!(told(&proxy, "cart", &other), items(&[("mug", 2), ("tea", 1)]));
    assert!(told(&proxy, "cart", &visitor).is_empty(), "each visitor has a separate cart");
    assert!(is_hidden_from(&origin));
}

fn behind_a_log_out_the_next_one_begins_with_nothing(storage: &Storage) {
    let origin = pages();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    let answer = proxy.post("/login?alice").cookie(&visitor).send();
    let alice = format!("login={}", answer.cookie("login").unwrap());
    let out = proxy.post("/logout").cookie(&alice).send();
    assert_eq!(out.set_cookie(NAME), None, "there is none any more");
    assert!(told(&proxy, "cart", "").is_empty());

    // A logout without a login clears the token and its cart.
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    let out = proxy.post("/logout").cookie(&visitor).send();
    assert!(is_cleared(&out));
    assert!(told(&proxy, "cart", &visitor).is_empty());
    if let Storage::Redis(server) = storage {
        assert!(!server.dump().contains("v,"), "{}", server.dump());
    }
}

fn a_cleaned_visitor_begins_again(storage: &Storage) {
    let origin = pages();
    let settings = format!("visitor.max_tokens = 1\nsession.clean_every = \"10ms\"\n{SETTINGS}");
    let proxy = Proxy::start(&origin, storage, &settings);
    let first = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    let second = given(&change(&proxy, "", r#"{"item":"tea","count":1}"#)).unwrap();
    let cleaned = || proxy.metric("anteroom_visitor_tokens_cleaned_total");
    wait_until("the first is cleaned", || cleaned() >= 1.0);
    assert_eq!(told(&proxy, "cart", &second), items(&[("tea", 1)]));
    assert!(told(&proxy, "cart", &first).is_empty());
    assert_eq!(proxy.metric("anteroom_visitor_tokens_kept"), 1.0);
    if let Storage::Redis(server) = storage {
        assert_eq!(server.keys("cart:v,*").len(), 1);
    }
    // A view finds out that its token is gone, and a later one makes another.
    let mut again = None;
    wait_until("he is given another", || {
        again = given(&proxy.get("/item/mug").cookie(&first).send());
        again.is_some()
    });
    assert_ne!(again.unwrap(), first);
    // A login in a tab that still has the first one ends it there.
    assert!(is_cleared(&proxy.post("/login?alice").cookie(&first).send()));
    let changed = change(&proxy, &second, r#"{"item":"pot","count":1}"#);
    assert_eq!(changed.status, 200);
}

/// An app that writes `login:` itself tells us of no login.
fn a_user_known_through_the_store_keeps_the_visitor_cart(storage: &Storage) {
    let Storage::Redis(server) = storage else { return };
    let origin = pages();
    let settings = SETTINGS.replace("session.mint = true", "session.cookie = \"sid\"");
    let proxy = Proxy::start(&origin, storage, &settings);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    server.command::<()>(&["HSET", "login:", "0123456789abcdef", "alice"]);
    let known = "sid=0123456789abcdef";

    let answer = proxy.get("/plain").cookie(&format!("{visitor}; {known}")).send();

    assert!(is_cleared(&answer));
    assert_eq!(origin.last().header("cookie"), Some(known));
    assert_eq!(told(&proxy, "cart", known), items(&[("mug", 2)]));
    assert!(!server.dump().contains("v,"), "{}", server.dump());
}

#[test]
fn a_log_in_by_rule_and_one_that_the_app_confirms_take_the_cart_with_them() {
    let app = || {
        Origin::start(|request| {
            let ann = request.header("cookie").is_some_and(|line| line.contains("SID=ann-session"));
            match request.path() {
                "/login" => Reply::status("302 Found")
                    .header("Location", "/")
                    .header("Set-Cookie", "SID=ann-session; Path=/")
                    .body(""),
                "/whoami" if ann => Reply::typed("application/json", r#"{"id":7,"name":"ann"}"#),
                "/whoami" => Reply::typed("application/json", r#"{"id":0}"#),
                "/logout" => Reply::status("302 Found")
                    .header("Location", "/")
                    .header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0")
                    .body(""),
                _ => Reply::html("a page"),
            }
        })
    };
    let rule = r#"session.login = { match = { method = "POST", path = "/login" }, success = { status = [302], set_cookie = "SID" }, user = { form = "user" } }"#;
    let verify = r#"session.verify = { path = "/whoami", user = { json = "/name" }, nobody = { json = "/id", equals = 0 } }"#;
    for (ways, clears_at_once) in [(rule, true), (verify, false)] {
        let origin = app();
        let routes = "[[route]]\nmatch.path = \"/item/{item}\"\nvisitor_token = true";
        let proxy = Proxy::embedded(
            &origin,
            &format!("session.cookie = \"SID\"\nstore.timeout = \"5s\"\n{ways}\n{routes}"),
        );
        let visitor = given(&proxy.get("/item/mug").send()).unwrap();
        change(&proxy, &visitor, r#"{"item":"mug","count":2}"#);

        let form = proxy.post("/login").header("Content-Type", "application/x-www-form-urlencoded");
        let answer = form.cookie(&visitor).body(b"user=ann").send();
        let ann = format!("SID={}", answer.cookie("SID").unwrap());
        assert_eq!(is_cleared(&answer), clears_at_once, "{ways}");
        if !clears_at_once {
            let first = proxy.get("/page").cookie(&format!("{visitor}; {ann}")).send();
            assert!(is_cleared(&first));
        }

        assert_eq!(told(&proxy, "cart", &ann), items(&[("mug", 2)]), "{ways}");
        assert_eq!(told(&proxy, "recent", &ann), items(&[("mug", 0)]));
        let out = proxy.get("/logout").cookie(&ann).send();
        assert_eq!(out.set_cookie(NAME), None);
        assert!(is_hidden_from(&origin));
    }
}

#[test]
fn a_log_in_that_fails_changes_nothing() {
    let mut storage = Storage::redis();
    let origin = pages();
    let proxy = Proxy::start(&origin, &storage, SETTINGS);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    if let Storage::Redis(server) = &mut storage {
        server.kill();
    }
    let answer = proxy.post("/login?alice").cookie(&visitor).send();
    assert_eq!(answer.status, 503);
    assert_eq!((answer.set_cookie(NAME), answer.cookie("login")), (None, None));
}

#[test]
fn while_the_store_is_away_pages_are_served_without_new_tokens() {
    let mut storage = Storage::redis();
    let origin = pages();
    let proxy = Proxy::start(&origin, &storage, SETTINGS);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    proxy.get("/item/mug").cookie(&visitor).send();
    if let Storage::Redis(server) = &mut storage {
        server.kill();
    }
    for cookie in ["", visitor.as_str()] {
        let ask = proxy.get("/item/mug");
        let answer = if cookie.is_empty() { ask.send() } else { ask.cookie(cookie).send() };
        assert_eq!((answer.status, answer.set_cookie(NAME)), (200, None), "{cookie}");
        let answer = change(&proxy, cookie, r#"{"item":"mug","count":3}"#);
        assert_eq!((answer.status, answer.set_cookie(NAME)), (503, None), "{cookie}");
    }
    assert_eq!(proxy.get("/_anteroom/cart").cookie(&visitor).send().status, 503);
    assert_eq!(proxy.post("/buy?mug;count=1").send().status, 503, "as for a logged-in user");
}

#[test]
fn waiting_visitors_do_not_get_the_token_of_the_fetcher() {
    let gate = Gate::closed();
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::html("a page").header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let opener = std::sync::Arc::clone(&gate);
    let answers = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("all wait", || proxy.metric("anteroom_waiting") >= 7.0);
            opener.open();
        });
        at_once(8, |_| proxy.get("/item/mug").send())
    });
    let mut tokens: Vec<_> = answers.iter().map(|answer| given(answer).unwrap()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!((tokens.len(), origin.count()), (8, 1));
    assert!(answers.iter().all(|answer| answer.fields.all("set-cookie").count() == 1));
}

#[test]
fn a_cookie_that_we_did_not_make_is_as_none() {
    let origin = pages();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    proxy.get("/item/mug").send();
    let forged = format!("{NAME}={}", "A".repeat(43));
    for cookie in [&format!("{NAME}=short"), &format!("{NAME}={}", "%41".repeat(15)), NAME] {
        let answer = proxy.get("/item/mug").cookie(cookie).send();
        assert!(answer.is_hit() && given(&answer).is_some(), "{cookie}");
    }
    // One of our form is looked for behind the answer, and begins nothing.
    assert!(proxy.get("/item/mug").cookie(&forged).send().is_hit());
    assert!(told(&proxy, "cart", &forged).is_empty());
    // Of two none counts, and there is no third.
    let twice = format!("{visitor}; {forged}");
    let answer = proxy.get("/item/mug").cookie(&twice).send();
    assert!(answer.is_hit());
    assert_eq!(answer.set_cookie(NAME), None);
    assert_eq!(change(&proxy, &twice, r#"{"item":"tea","count":1}"#).status, 401);
    assert_eq!(told(&proxy, "cart", &visitor), items(&[("mug", 2)]));
    // It is no session.
    let value = visitor.split_once('=').unwrap().1;
    assert_eq!(me(&proxy, &format!("login={value}")), (Value::Null, "none".into()));
    assert!(is_hidden_from(&origin));
}

#[test]
fn an_origin_neither_sees_nor_sets_the_cookie() {
    let origin = Origin::start(|_| {
        Reply::unstored("a page").header("Set-Cookie", &format!("{NAME}=planted; Path=/"))
    });
    // Nor where no route gives tokens out any more.
    for settings in [SETTINGS, "session.mint = true"] {
        let proxy = Proxy::embedded(&origin, settings);
        let mine = format!("{NAME}={}", "A".repeat(43));
        let cookies = format!("a=1; {mine}; b=2");
        let answer = proxy.post("/anything").cookie(&cookies).send();
        assert_eq!(answer.set_cookie(NAME), None);
        assert_eq!(origin.last().header("cookie"), Some("a=1; b=2"));
        assert_eq!(proxy.get("/page").cookie(&mine).send().status, 200);
        assert_eq!(origin.last().header("cookie"), None);
        let log = fs::read_to_string(proxy.log_file()).unwrap_or_default();
        assert!(!log.contains("AAAA"), "{log}");
    }
}

#[test]
fn one_address_is_given_a_bounded_number_of_tokens() {
    let origin = pages();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let answers: Vec<_> = (0..60).map(|_| proxy.get("/item/mug").send()).collect();
    let given = answers.iter().filter(|answer| given(answer).is_some()).count();
    assert!((30..60).contains(&given), "{given}");
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(proxy.metric("anteroom_visitor_tokens_total") as usize, given);
    assert_eq!(proxy.metric("anteroom_visitor_tokens_refused_total") as usize, 60 - given);
    let mut refused = change(&proxy, "", r#"{"item":"mug","count":2}"#);
    while refused.status == 200 {
        refused = change(&proxy, "", r#"{"item":"mug","count":2}"#);
    }
    assert_eq!((refused.status, refused.set_cookie(NAME)), (429, None));
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn fills_are_personal_without_a_log_in() {
    let origin = shop(|request| match request.path() {
        "/item/mug" => Reply::html("<b id=count>-</b><i id=recent></i><u id=part></u>")
            .header("Cache-Control", "max-age=60"),
        _ => Reply::unstored(request.header("cookie").unwrap_or("no cookie")),
    });
    let settings = r##"session.mint = true
store.timeout = "5s"
[[route]]
match.path = "/item/{item}"
share = "everyone"
visitor_token = true
fragments = [
  { selector = "#count", fill = "cart_count" },
  { selector = "#recent", fill = "recent", template = "{item}" },
  { selector = "#part", from = "/part" },
]"##;
    let proxy = Proxy::embedded(&origin, settings);
    let first = proxy.get("/item/mug").send();
    let visitor = given(&first).unwrap();
    let text = first.text();
    assert_eq!(text, "<b id=count>0</b><i id=recent>mug</i><u id=part>no cookie</u>");
    change(&proxy, &visitor, r#"{"item":"mug","count":2}"#);
    let text = proxy.get("/item/mug").cookie(&visitor).send().text();
    assert_eq!(text, "<b id=count>2</b><i id=recent>mug</i><u id=part>no cookie</u>");
    // A visitor without a token sees what the page has there.
    let text = proxy.get("/item/mug").cookie("consent=1").send().text();
    assert!(text.contains("<b id=count>-</b>"), "{text}");
    assert!(is_hidden_from(&origin));
}

#[test]
fn a_token_survives_a_kill_with_its_cart() {
    let origin = pages();
    let mut proxy = Proxy::embedded(&origin, SETTINGS);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    proxy.kill9();
    proxy.restart();
    assert_eq!(told(&proxy, "cart", &visitor), items(&[("mug", 2)]));
}

#[test]
fn operators_are_not_shown_visitors() {
    let origin = pages();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let visitor = given(&change(&proxy, "", r#"{"item":"mug","count":2}"#)).unwrap();
    let value = visitor.split_once('=').unwrap().1.to_owned();
    let run = |arguments: &[&str]| {
        let mut command = crate::support::proxy::anteroom();
        command.args(arguments).args(["--config", "proxy.toml"]).current_dir(proxy.folder());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let listed = run(&["sessions", "list", "--json"]);
    assert_eq!(listed, "", "there is no session");
    let explained = run(&["explain", "http://shop.test/item/mug", "--cookie", &visitor]);
    assert!(!explained.contains(&value) && !explained.contains(NAME), "{explained}");
    let cookies = run(&["top", "cookies"]);
    assert!(!cookies.contains(NAME), "{cookies}");
}
