//! Pages that are shared among users of one segment (`share = "segment"`), and the proof that they hold
//! nothing of any of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::Answer;
use crate::support::origin::{Gate, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{at_once, wait_until};

on_both_stores!(
    a_page_is_shared_once_two_users_were_given_the_same,
    segments_and_strangers_have_pages_of_their_own,
    a_change_removes_the_page_of_every_segment,
    two_proxies_share_what_one_has_proved,
);

const SEGMENT: &str = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n[[route]]\nshare = \"segment\"\n";

/// The user as the app sees it: by the cookie alone it would be the same.
fn user(request: &Request) -> &str {
    request.header("x-anteroom-user").unwrap_or("nobody")
}

/// A login with a group, `/login?alice;group=trade`.
fn member(proxy: &Proxy, name: &str, group: &str) -> String {
    log_in(proxy, &format!("{name};group={group}"))
}

#[track_caller]
fn is_forwarded(answer: &Answer, reason: &str) {
    let status = answer.cache_status();
    assert!(!answer.is_hit() && status.contains(&format!("detail={reason}")), "{status}");
}

fn a_page_is_shared_once_two_users_were_given_the_same(storage: &Storage) {
    let origin = shop(|_| {
        Reply::html("prices").header("Vary", "Cookie").header("Cache-Control", "public, max-age=60")
    });
    let proxy = Proxy::start(&origin, storage, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    let get = |cookie: &str| proxy.get("/").cookie_at_home(cookie).send();
    let before = origin.count();
    is_forwarded(&get(&alice), "awaiting-second-user");
    assert_eq!(user(&origin.last()), "alice");
    assert_eq!(origin.last().header("cookie"), Some(alice.as_str()));
    assert_eq!(origin.last().header("x-anteroom-session"), Some("known"));
    is_forwarded(&get(&alice), "awaiting-second-user");
    assert!(!get(&bob).is_hit());
    assert_eq!(user(&origin.last()), "bob");
    for cookie in [&carol, &alice, &bob] {
        let answer = get(cookie);
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), "prices");
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
        assert_eq!(answer.header("vary"), Some("Cookie"));
    }
    assert_eq!(origin.count(), before + 3);
}

#[test]
fn a_page_that_differs_per_user_is_never_shared() {
    let origin = shop(|request| Reply::html(&format!("hello {}", user(request))));
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let names: Vec<String> = (0..6).map(|number| format!("user-{number}")).collect();
    let cookies: Vec<String> = names.iter().map(|name| log_in(&proxy, name)).collect();
    for _ in 0..4 {
        for (name, cookie) in names.iter().zip(&cookies) {
            let answer = proxy.get("/").cookie_at_home(cookie).send();
            assert!(!answer.is_hit(), "{}", answer.cache_status());
            assert_eq!(answer.text(), format!("hello {name}"));
        }
    }
    let answers = at_once(12, |number| {
        let place = number % names.len();
        (place, proxy.get("/at/once").cookie_at_home(&cookies[place]).send())
    });
    for (place, answer) in answers {
        assert_eq!(answer.text(), format!("hello {}", names[place]));
    }
}

#[test]
fn a_page_two_users_agreed_on_is_dropped_when_others_differ() {
    let origin = shop(|request| {
        let name = user(request);
        let page = if name.starts_with("mallory") { "hello" } else { name };
        Reply::html(page).header("Cache-Control", "max-age=3, stale-while-revalidate=0")
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let names = ["mallory-1", "mallory-2", "carol", "dave", "erin"];
    let cookies = names.map(|name| log_in(&proxy, name));
    let get = |place: usize| proxy.get("/").cookie_at_home(&cookies[place]).send();
    get(0);
    get(1);
    assert!(get(2).is_hit(), "two agree, and no user differs");
    for place in [2, 3, 4] {
        wait_until("it is stale, or gone", || get(place).text() == names[place]);
    }
    for place in [0, 1, 2, 3, 4] {
        let answer = get(place);
        assert!(!answer.is_hit(), "{}", answer.cache_status());
    }
}

#[test]
fn a_purge_ends_what_was_proved_before_it() {
    let personal = Arc::new(AtomicUsize::new(0));
    let of_one = Arc::clone(&personal);
    let origin = shop(move |request| {
        if request.method == "POST" {
            return Reply::status("204 No Content");
        }
        match of_one.load(Ordering::SeqCst) {
            1 if user(request) == "carol" => Reply::html("of carol"),
            _ => Reply::html("same"),
        }
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    let get = |cookie: &str| proxy.get("/a").cookie_at_home(cookie).send();
    get(&alice);
    get(&bob);
    assert!(get(&carol).is_hit());
    personal.store(1, Ordering::SeqCst);
    assert_eq!(proxy.post("/a").send().status, 204);
    get(&alice);
    assert_eq!(get(&carol).text(), "of carol", "one user after the purge proves nothing");
}

#[test]
fn a_log_in_form_is_no_segment_page() {
    let origin = shop(|request| match request.path() {
        "/form" => Reply::html("<form method=post action=/user/login><input name=user></form>"),
        "/password" => Reply::html("please log in: <input type=password>"),
        _ => Reply::html("<form method=post action=/cart/add><button></form>"),
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let cookies = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    for (path, is_shared) in [("/form", false), ("/password", false), ("/item", true)] {
        let hits =
            cookies.each_ref().map(|cookie| proxy.get(path).cookie_at_home(cookie).send().is_hit());
        assert_eq!(hits, [false, false, is_shared], "{path}");
    }
}

#[test]
fn a_field_that_names_the_user_keeps_a_page_from_being_shared() {
    let origin = shop(|request| Reply::html("same").header("X-User", user(request)));
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    for (name, cookie) in [("alice", &alice), ("bob", &bob), ("carol", &carol), ("alice", &alice)] {
        let answer = proxy.get("/").cookie_at_home(cookie).send();
        assert_eq!(answer.header("x-user"), Some(name));
        assert!(!answer.is_hit());
    }
}

#[test]
fn fields_of_one_exchange_are_left_out() {
    let count = AtomicUsize::new(0);
    let origin = shop(move |_| {
        let id = count.fetch_add(1, Ordering::SeqCst).to_string();
        Reply::html("same").header("X-Request-Id", &id).header("Server-Timing", &id)
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    proxy.get("/").cookie_at_home(&alice).send();
    proxy.get("/").cookie_at_home(&bob).send();
    let answer = proxy.get("/").cookie_at_home(&carol).send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(answer.header("x-request-id"), None);
}

fn segments_and_strangers_have_pages_of_their_own(storage: &Storage) {
    let origin = shop(|request| {
        let group = match user(request) {
            "alice" | "bob" => "trade",
            "carol" | "dave" => "retail",
            _ => "public",
        };
        Reply::html(&format!("{group} {}", request.header("accept-language").unwrap_or("-")))
            .header("Vary", "Accept-Language")
    });
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n[[route]]\nshare = \"segment\"\n\
                    segment = [\"logged_in\", \"attribute:group\", \"language:en|de\"]\n";
    let proxy = Proxy::start(&origin, storage, settings);
    let trade = ["alice", "bob"].map(|name| member(&proxy, name, "trade"));
    let retail = ["carol", "dave"].map(|name| member(&proxy, name, "retail"));
    for _ in 0..2 {
        for (languages, language) in [("de-AT,de;q=0.9,en;q=0.1", "de"), ("fr, en-US;q=0.5", "en")]
        {
            let get = |cookie: &str| {
                let ask = proxy.get("/").header("Accept-Language", languages);
                if cookie.is_empty() { ask.send() } else { ask.cookie_at_home(cookie).send() }
            };
            for cookie in &trade {
                assert_eq!(get(cookie).text(), format!("trade {language}"));
            }
            for cookie in &retail {
                assert_eq!(get(cookie).text(), format!("retail {language}"));
            }
            assert_eq!(get("").text(), format!("public {language}"));
        }
    }
    for (cookie, text) in [(&trade[0], "trade en"), (&retail[1], "retail en")] {
        let answer = proxy.get("/").cookie_at_home(cookie).send();
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), text);
    }
    let stranger = proxy.get("/").send();
    assert!(stranger.is_hit(), "{}", stranger.cache_status());
    assert_eq!(stranger.text(), "public en");
    let strangers: Vec<_> =
        origin.seen().into_iter().filter(|seen| user(seen) == "nobody").collect();
    assert!(strangers.iter().all(|seen| seen.header("cookie").is_none()));
}

#[test]
fn a_keyed_cookie_makes_segments_and_an_unknown_one_makes_a_visitor_apart() {
    let origin = shop(|request| {
        let cookies = request.header("cookie").unwrap_or_default();
        let currency = if cookies.contains("currency=eur") { "eur" } else { "usd" };
        Reply::html(currency)
    });
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n[[route]]\nshare = \"segment\"\n\
                    segment = [\"cookie:currency\"]\n";
    let proxy = Proxy::embedded(&origin, settings);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    let get = |cookie: &str, more: &str| {
        proxy.get("/").cookie_at_home(&format!("{cookie}; {more}")).send()
    };
    for (cookie, is_hit) in [(&alice, false), (&bob, false), (&alice, true)] {
        for currency in ["eur", "usd"] {
            let answer = get(cookie, &format!("currency={currency}"));
            assert_eq!((answer.text().as_str(), answer.is_hit()), (currency, is_hit));
        }
    }
    is_forwarded(&get(&alice, "currency=eur; theme=dark"), "unknown-cookie");
    assert!(origin.last().header("cookie").unwrap().contains("theme=dark"));
}

#[test]
fn a_waiting_user_is_not_shown_the_page_of_the_first() {
    let gate = Arc::<Gate>::default();
    let held = Arc::clone(&gate);
    let origin = shop(move |request| {
        if user(request) == "alice" {
            held.pass();
        }
        Reply::html(&format!("of {}", user(request)))
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    let before = origin.count();
    let mut first = proxy.get("/").cookie_at_home(&alice).start();
    wait_until("the app is asked", || origin.count() == before + 1);
    let mut others = [&bob, &carol].map(|cookie| proxy.get("/").cookie_at_home(cookie).start());
    wait_until("both wait", || proxy.metric("anteroom_waiting") >= 2.0);
    gate.open();
    assert_eq!(first.answer().text(), "of alice");
    assert_eq!(others[0].answer().text(), "of bob");
    assert_eq!(others[1].answer().text(), "of carol");
}

#[test]
fn two_users_at_one_address_prove_nothing() {
    let origin = shop(|_| Reply::html("for this address"));
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    for (cookie, address) in [
        (&alice, "192.0.2.1"),
        (&bob, "192.0.2.1"),
        (&alice, "192.0.2.1"),
        (&carol, "198.51.100.1"),
    ] {
        let ask = proxy.get("/").cookie(cookie).header("X-Forwarded-For", address);
        assert!(!ask.send().is_hit());
    }
    let ask = proxy.get("/").cookie(&alice).header("X-Forwarded-For", "192.0.2.1");
    assert!(ask.send().is_hit());
}

#[test]
fn a_proven_static_page_needs_no_segment_proof() {
    let origin = shop(|request| match request.path() {
        "/a.css" => Reply::typed("text/css", "i {}").header("ETag", "\"1\""),
        _ => Reply::html("same"),
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let alice = log_in(&proxy, "alice");
    proxy.get("/a.css").send();
    let answer = proxy.get("/a.css").cookie_at_home(&alice).send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(answer.header("cache-control"), None);
    proxy.get("/").send();
    is_forwarded(&proxy.get("/").cookie_at_home(&alice).send(), "awaiting-second-user");
}

#[test]
fn one_slow_user_does_not_delay_others() {
    let gate = Arc::<Gate>::default();
    let held = Arc::clone(&gate);
    let origin = shop(move |request| {
        if user(request) == "alice" {
            held.pass();
        }
        Reply::html("same")
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    let before = origin.count();
    let mut first = proxy.get("/").cookie_at_home(&alice).start();
    wait_until("the app is asked", || origin.count() == before + 1);
    let answer = proxy.get("/").cookie_at_home(&bob).send();
    assert_eq!((answer.status, answer.text().as_str()), (200, "same"));
    is_forwarded(&answer, "slow");
    gate.open();
    assert_eq!(first.answer().text(), "same");
}

#[test]
fn a_failure_for_one_user_is_no_failure_for_others() {
    let gate = Arc::<Gate>::default();
    let held = Arc::clone(&gate);
    let origin = shop(move |request| {
        if user(request) == "alice" {
            held.pass();
            return Reply::nothing();
        }
        Reply::html("same")
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    let before = origin.count();
    let mut first = proxy.get("/").cookie_at_home(&alice).start();
    wait_until("the app is asked", || origin.count() == before + 1);
    let mut second = proxy.get("/").cookie_at_home(&bob).start();
    wait_until("bob waits", || proxy.metric("anteroom_waiting") >= 1.0);
    gate.open();
    assert_eq!(first.answer().status, 502);
    let answer = second.answer();
    assert_eq!((answer.status, answer.text().as_str()), (200, "same"));
}

#[test]
fn waiting_users_prove_the_page_for_each_other() {
    let gate = Arc::<Gate>::default();
    let held = Arc::clone(&gate);
    let origin = shop(move |request| {
        if user(request) == "user-0" {
            held.pass();
        }
        Reply::html("same")
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let cookies: Vec<_> = (0..12).map(|number| log_in(&proxy, &format!("user-{number}"))).collect();
    let before = origin.count();
    let mut first = proxy.get("/").cookie_at_home(&cookies[0]).start();
    wait_until("the app is asked", || origin.count() == before + 1);
    let others: Vec<_> =
        cookies[1..].iter().map(|cookie| proxy.get("/").cookie_at_home(cookie).start()).collect();
    wait_until("all wait", || proxy.metric("anteroom_waiting") >= 11.0);
    gate.open();
    assert_eq!(first.answer().text(), "same");
    for mut other in others {
        assert_eq!(other.answer().text(), "same");
    }
    assert_eq!(
        origin.count(),
        before + 2,
        "two were asked for, and the others have what those have"
    );
}

fn a_change_removes_the_page_of_every_segment(storage: &Storage) {
    let version = Arc::new(AtomicUsize::new(1));
    let current = Arc::clone(&version);
    let origin = shop(move |request| {
        if request.method == "POST" {
            current.fetch_add(1, Ordering::SeqCst);
            return Reply::status("204 No Content");
        }
        Reply::html(&format!("version {}", current.load(Ordering::SeqCst)))
    });
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n[[route]]\nshare = \"segment\"\n\
                    segment = [\"attribute:group\"]\n";
    let proxy = Proxy::start(&origin, storage, settings);
    let trade = ["alice", "bob"].map(|name| member(&proxy, name, "trade"));
    let retail = ["carol", "dave"].map(|name| member(&proxy, name, "retail"));
    let all =
        || trade.iter().chain(&retail).map(|cookie| proxy.get("/a").cookie_at_home(cookie).send());
    all().for_each(drop);
    assert!(all().all(|answer| answer.is_hit() && answer.text() == "version 1"));
    assert_eq!(proxy.post("/a").send().status, 204);
    for answer in all() {
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), "version 2");
    }
    assert!(all().all(|answer| answer.is_hit() && answer.text() == "version 2"));
}

#[test]
fn a_page_grown_stale_is_not_replaced_by_one_users_own() {
    let personal = Arc::new(AtomicUsize::new(0));
    let of_one = Arc::clone(&personal);
    let origin = shop(move |request| {
        let page = match (of_one.load(Ordering::SeqCst), user(request)) {
            (1, "carol") => "of carol",
            _ => "same",
        };
        Reply::html(page).header("Cache-Control", "max-age=3, stale-while-revalidate=300")
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    let get = |cookie: &str| proxy.get("/").cookie_at_home(cookie).send();
    get(&alice);
    get(&bob);
    personal.store(1, Ordering::SeqCst);
    wait_until("it is stale, and carol is asked for", || get(&carol).text() == "of carol");
    assert_eq!(get(&alice).text(), "same");
    let answer = get(&carol);
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(answer.text(), "same");
}

fn two_proxies_share_what_one_has_proved(storage: &Storage) {
    let Storage::Redis(_) = storage else { return };
    let origin = shop(|_| Reply::html("same"));
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, storage, SEGMENT));
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&one, name));
    one.get("/").cookie_at_home(&alice).send();
    one.get("/").cookie_at_home(&bob).send();
    let shown = || other.get("/").cookie_at_home(&carol).send();
    wait_until("the page is in the store", || shown().is_hit());
    assert_eq!(shown().text(), "same");
}

#[test]
fn by_the_operators_promise_one_user_is_enough_unless_the_app_looks_at_cookies() {
    let origin = shop(|request| {
        let page = Reply::html("same");
        if request.path() == "/varies" { page.header("Vary", "Cookie") } else { page }
    });
    let settings = format!("{SEGMENT}segment_proof = \"none\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    proxy.get("/").cookie_at_home(&alice).send();
    assert!(proxy.get("/").cookie_at_home(&bob).send().is_hit());
    proxy.get("/varies").cookie_at_home(&alice).send();
    is_forwarded(&proxy.get("/varies").cookie_at_home(&bob).send(), "vary");
}

#[test]
fn an_app_may_change_the_session_in_a_fetch_that_carries_it() {
    let origin = shop(|request| match request.path() {
        "/rolls" => Reply::html("same").header("Set-Cookie", "login=another-token; Path=/"),
        _ => Reply::html("same"),
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let alice = log_in(&proxy, "alice");
    let before = origin.count();
    let answer = proxy.get("/rolls?utm_source=x").cookie_at_home(&alice).send();
    assert_eq!(answer.cookie("login").as_deref(), Some("another-token"));
    assert_eq!(origin.count(), before + 1, "no answer to the user's session is thrown away");
    let answer = proxy.get("/rolls").cookie_at_home(&alice).header("X-Own", "1").send();
    assert_eq!(answer.cookie("login").as_deref(), Some("another-token"));
    assert_eq!(origin.count(), before + 2);
}

#[test]
fn accounts_named_like_words_of_a_page_do_not_block_sharing() {
    let page = "<p>the shop: <a href=/cart>cart</a>, <a href=/home>home</a>, by admin</p>";
    let origin = shop(move |request| match request.path() {
        "/field" => {
            Reply::html("a page").header("Link", "</a/shop>, </a/cart>, </a/home>, </a/admin>")
        }
        _ => Reply::html(page),
    });
    let proxy = Proxy::embedded(&origin, SEGMENT);
    let words = ["shop", "admin", "cart", "home"].map(|name| log_in(&proxy, name));
    let others = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    for path in ["/", "/field"] {
        let get = |cookie: &str| proxy.get(path).cookie_at_home(cookie).send();
        get(&others[0]);
        for cookie in &words {
            assert!(!get(cookie).is_hit());
        }
        get(&others[1]);
        for cookie in others.iter().chain(&words) {
            let answer = get(cookie);
            assert!(answer.is_hit(), "{path} {}", answer.cache_status());
        }
    }
}

#[test]
fn an_answer_that_sets_a_cookie_is_asked_for_once_and_its_cookie_is_its_visitor_s() {
    let origin = shop(|request| {
        let page = match request.path() {
            "/form" => "<form method=post><input name=csrf_token value=1></form>",
            _ => "prices",
        };
        Reply::html(page).header("Set-Cookie", &format!("seen={}; Path=/", user(request)))
    });
    let settings = format!("{SEGMENT}strip_set_cookie = [\"seen\"]");
    let proxy = Proxy::embedded(&origin, &settings);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| log_in(&proxy, name));
    let get = |path: &str, cookie: &str| proxy.get(path).cookie_at_home(cookie).send();
    for path in ["/form", "/prices"] {
        for (name, cookie) in [("alice", &alice), ("bob", &bob)] {
            let before = origin.count();
            let answer = get(path, cookie);
            assert_eq!(origin.count(), before + 1, "{path} {name}");
            assert_eq!(answer.cookie("seen").as_deref(), Some(name), "{path}");
        }
    }
    let answer = get("/prices", &carol);
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(answer.cookie("seen"), None);
    assert!(!get("/form", &carol).is_hit());
}
