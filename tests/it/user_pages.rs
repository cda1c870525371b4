//! Pages that are kept for one user each (`share = "user"`).

use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{A_SECOND, old_result_seen_for, wait_until};

on_both_stores!(
    a_user_page_is_personal_and_ends_with_a_change_by_the_user,
    a_change_through_another_proxy_is_seen_within_a_second,
    a_log_out_ends_the_pages_of_the_user,
    a_change_by_an_unverified_user_ends_the_pages_of_the_user,
);

const USER: &str = "session.mint = true\n[[route]]\nshare = \"user\"\n";

fn user(request: &Request) -> String {
    request.header("x-anteroom-user").unwrap_or("nobody").to_owned()
}

/// An app that counts what each user has changed, and says so on each page of that user.
fn counting(lines: &'static [(&'static str, &'static str)]) -> Origin {
    let counts = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    shop(move |request| {
        let name = user(request);
        let mut counts = counts.lock().unwrap();
        let count = counts.entry(name.clone()).or_default();
        if request.method != "GET" {
            if request.path() == "/fails" {
                return Reply::status("422 Unprocessable Content").body("no");
            }
            *count += 1;
            return Reply::status("204 No Content");
        }
        if request.path() == "/p" {
            return Reply::html("<i></i>").header("Cache-Control", "public, max-age=60");
        }
        let page = Reply::html(&format!("{name} {count}"));
        lines.iter().fold(page, |page, (name, value)| page.header(name, value))
    })
}

const PRIVATE: &[(&str, &str)] =
    &[("Cache-Control", "private, max-age=60"), ("Vary", "Cookie"), ("ETag", "\"1\"")];

fn a_user_page_is_personal_and_ends_with_a_change_by_the_user(storage: &Storage) {
    let origin = counting(PRIVATE);
    let proxy = Proxy::start(&origin, storage, USER);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    let get = |path: &str, cookie: &str| proxy.get(path).cookie(cookie).send();
    for path in ["/a", "/b"] {
        for (cookie, text) in [(&alice, "alice 0"), (&bob, "bob 0")] {
            assert!(!get(path, cookie).is_hit());
            let answer = get(path, cookie);
            assert!(answer.is_hit(), "{}", answer.cache_status());
            assert_eq!(answer.text(), text);
            assert_eq!(answer.header("cache-control"), Some("private, max-age=60"));
            assert_eq!(answer.header("vary"), Some("Cookie"));
        }
    }
    let head = proxy.ask("HEAD", "/a").cookie(&alice).send();
    assert!(head.is_hit() && head.status == 200);
    let part = proxy.get("/a").cookie(&alice).header("Range", "bytes=0-4").send();
    assert_eq!((part.status, part.text().as_str()), (206, "alice"));
    let same = proxy.get("/a").cookie(&alice).header("If-None-Match", "\"1\"").send();
    assert_eq!(same.status, 304);
    assert_eq!(proxy.post("/fails").cookie(&alice).send().status, 422);
    assert!(get("/a", &alice).is_hit(), "nothing has changed");

    assert_eq!(proxy.post("/elsewhere").cookie(&alice).send().status, 204);
    for path in ["/a", "/b"] {
        let answer = get(path, &alice);
        assert_eq!((answer.is_hit(), answer.text().as_str()), (false, "alice 1"));
        assert!(get(path, &alice).is_hit());
        let answer = get(path, &bob);
        assert_eq!((answer.is_hit(), answer.text().as_str()), (true, "bob 0"));
    }
}

fn a_change_through_another_proxy_is_seen_within_a_second(storage: &Storage) {
    let Storage::Redis(_) = storage else { return };
    let origin = counting(PRIVATE);
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, storage, USER));
    let [alice, again] = ["alice", "alice"].map(|name| log_in(&one, name));
    for cookie in [&alice, &again] {
        one.get("/a").cookie(cookie).send();
        assert!(one.get("/a").cookie(cookie).send().is_hit());
    }
    let page = |cookie: &str| one.get("/a").cookie(cookie).send().text();
    let lasted = old_result_seen_for(
        || assert_eq!(other.post("/b").cookie(&alice).send().status, 204),
        || [&alice, &again].iter().any(|cookie| page(cookie) == "alice 0"),
    );
    assert_eq!([&alice, &again].map(|cookie| page(cookie)), ["alice 1", "alice 1"]);
    assert!(lasted < A_SECOND, "a promise of a second: {lasted:?}");
}

fn a_log_out_ends_the_pages_of_the_user(storage: &Storage) {
    let origin = counting(PRIVATE);
    let proxy = Proxy::start(&origin, storage, USER);
    let [alice, again] = ["alice", "alice"].map(|name| log_in(&proxy, name));
    let get = |cookie: &str| proxy.get("/a").cookie(cookie).send();
    for cookie in [&alice, &again] {
        get(cookie);
        assert!(get(cookie).is_hit());
    }
    proxy.get("/logout").cookie(&alice).send();
    let answer = get(&alice);
    assert_eq!((answer.is_hit(), answer.text().as_str()), (false, "nobody 0"));
    assert!(!get(&again).is_hit(), "a logout of one session may mean all of them");
    assert!(get(&again).is_hit());
    log_in(&proxy, "alice");
    assert!(!get(&again).is_hit(), "a login may greet her everywhere");
}

#[test]
fn a_hole_of_one_user_ends_with_the_pages_of_the_user() {
    let origin = counting(PRIVATE);
    let settings = "session.mint = true\n[[route]]\nmatch.path = \"/p\"\nshare = \"everyone\"\n\
                    fragments = [{ selector = \"i\", from = \"/partials/cart\", share = \"user\" }]\n\
                    [[route]]\nmatch.path = \"/partials/**\"\nshare = \"none\"\n";
    let proxy = Proxy::embedded(&origin, settings);
    let [alice, again] = ["alice", "alice"].map(|name| log_in(&proxy, name));
    let get = || proxy.get("/p").cookie(&alice).send().text();
    let asked = || origin.seen().iter().filter(|seen| seen.path() == "/partials/cart").count();
    let is_kept = || {
        let before = asked();
        let first = get();
        let stored = asked();
        assert_eq!(get(), first);
        assert_eq!(asked(), stored, "it is kept");
        stored == before
    };
    assert!(!is_kept());
    assert_eq!(proxy.post("/cart/add").cookie(&alice).send().status, 204);
    assert_eq!(get(), "<i>alice 1</i>");
    assert!(is_kept());
    let put = proxy.ask("PUT", "/_anteroom/cart").cookie(&alice);
    let put =
        put.header("Sec-Fetch-Site", "same-origin").header("Content-Type", "application/json");
    assert_eq!(put.body(br#"{"item": "mug", "count": 2}"#).send().status, 200);
    assert!(!is_kept(), "it may show her cart");
    proxy.get("/logout").cookie(&again).send();
    assert!(!is_kept(), "a logout of one session may mean all of them");
}

#[test]
fn no_answer_to_the_session_of_a_user_is_discarded() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let origin = shop(move |request| {
        let mut count = count.lock().unwrap();
        *count += 1;
        let control = "private, max-age=1, stale-while-revalidate=300, stale-if-error=300";
        let page = Reply::html(&count.to_string()).header("Cache-Control", control);
        match request.path() {
            // Longer than any request waits that could be given a stale page.
            "/slow" if *count > 1 => page.after(Duration::from_millis(2_500)),
            _ => page,
        }
    });
    for path in ["/a", "/slow"] {
        *asked.lock().unwrap() = 0;
        let proxy = Proxy::embedded(&origin, USER);
        let alice = log_in(&proxy, "alice");
        let get = || proxy.get(path).cookie(&alice).send().text();
        assert_eq!(get(), "1");
        wait_until("it is stale, and asked for again", || {
            let shown = get();
            assert_eq!(
                shown,
                asked.lock().unwrap().to_string(),
                "{path}: the user is shown the new answer"
            );
            shown != "1"
        });
    }
}

#[test]
fn a_log_out_during_a_fetch_with_the_session_holds_at_once() {
    let origin = shop(|request| match request.path() {
        "/leave" => Reply::html("bye").header("Anteroom-Logout", "1"),
        _ => Reply::html(&user(request)).header("Cache-Control", "private, max-age=60"),
    });
    for settings in [USER, "session.mint = true\n[[route]]\nshare = \"segment\"\n"] {
        let proxy = Proxy::embedded(&origin, settings);
        let alice = log_in(&proxy, "alice");
        let before = origin.count();
        let answer = proxy.get("/leave").cookie(&alice).send();
        assert_eq!(answer.text(), "bye");
        assert_eq!(answer.cookie("login").as_deref(), Some(""));
        assert_eq!(origin.count(), before + 1, "it is asked for once");
        assert_eq!(proxy.get("/who").cookie(&alice).send().text(), "nobody");
    }
}

#[test]
fn a_cookie_that_is_renewed_by_the_way_ends_nothing() {
    let origin = shop(|request| match request.path() {
        "/renews" => Reply::html("x").header("Set-Cookie", "login=another; Path=/"),
        "/ends" => Reply::html("x").header("Set-Cookie", "login=; Path=/; Max-Age=0"),
        _ => Reply::html("his own").header("Cache-Control", "private, max-age=60"),
    });
    let proxy = Proxy::embedded(&origin, USER);
    let alice = log_in(&proxy, "alice");
    let get = |path: &str| proxy.get(path).cookie(&alice).send();
    get("/a");
    get("/renews");
    assert!(get("/a").is_hit());
    get("/ends");
    assert!(!get("/a").is_hit());
    assert!(get("/a").is_hit());
    proxy.post("/renews").cookie(&alice).send();
    assert!(!get("/a").is_hit());
}

#[test]
fn a_users_page_is_never_compressed_by_us() {
    let origin = shop(|_| {
        Reply::html(&"his own ".repeat(500)).header("Cache-Control", "private, max-age=60")
    });
    for esi in ["", "esi = \"always\"\n"] {
        let proxy = Proxy::embedded(&origin, &format!("{USER}{esi}"));
        let alice = log_in(&proxy, "alice");
        for _ in 0..3 {
            let ask = proxy.get("/a").cookie(&alice).header("Accept-Encoding", "gzip, br");
            let answer = ask.send();
            assert_eq!(answer.header("content-encoding"), None, "{}", answer.cache_status());
            assert_eq!(answer.text(), "his own ".repeat(500));
        }
        let ask = proxy.get("/a").cookie(&alice).header("Accept-Encoding", "identity;q=0, gzip");
        assert_eq!(ask.send().header("content-encoding"), None);
    }
}

#[test]
fn anonymous_and_unknown_visitors_are_forwarded() {
    let origin = counting(&[("Cache-Control", "max-age=60")]);
    let proxy = Proxy::embedded(&origin, USER);
    for cookie in ["", "login=one; login=two", "theme=dark"] {
        for _ in 0..2 {
            let ask = proxy.get("/a");
            let answer = if cookie.is_empty() { ask.send() } else { ask.cookie(cookie).send() };
            assert!(!answer.is_hit(), "{cookie:?}: {}", answer.cache_status());
        }
    }
}

#[test]
fn all_cookies_are_shown_to_the_app_and_stand_in_the_key() {
    let origin = shop(|request| {
        Reply::html(request.header("cookie").unwrap_or_default())
            .header("Cache-Control", "private, max-age=60")
    });
    let proxy = Proxy::embedded(&origin, USER);
    let alice = log_in(&proxy, "alice");
    for theme in ["dark", "light"] {
        let cookies = format!("{alice}; theme={theme}");
        let get = || proxy.get("/a").cookie(&format!("{cookies}; _ga=GA1.2.1.1")).send();
        assert!(!get().is_hit());
        let answer = get();
        assert_eq!((answer.is_hit(), answer.text()), (true, cookies.clone()));
    }
}

#[test]
fn without_a_word_on_freshness_a_users_page_is_kept_by_the_routes_alone() {
    let origin = counting(&[("Vary", "Cookie"), ("ETag", "\"1\"")]);
    let settings =
        format!("{USER}match.path = \"/kept\"\nttl = \"60s\"\n[[route]]\nshare = \"user\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    for (path, is_kept) in [("/kept", true), ("/silent", false)] {
        proxy.get(path).cookie(&alice).send();
        let answer = proxy.get(path).cookie(&alice).send();
        assert_eq!(answer.is_hit(), is_kept, "{path}");
    }
}

#[test]
fn no_store_and_a_cookie_are_never_kept() {
    for field in [("Cache-Control", "no-store"), ("Set-Cookie", "a=1")] {
        let origin = shop(move |_| Reply::html("x").header(field.0, field.1));
        let settings = format!("{USER}match.path = \"/*\"\noverride_ttl = \"60s\"\n");
        let proxy = Proxy::embedded(&origin, &settings);
        let alice = log_in(&proxy, "alice");
        for _ in 0..3 {
            let answer = proxy.get("/a").cookie(&alice).send();
            assert!(!answer.is_hit());
            assert_eq!(answer.header(field.0), Some(field.1));
        }
    }
}

#[test]
fn a_changed_cart_ends_the_pages_of_the_user() {
    let origin = counting(PRIVATE);
    let proxy = Proxy::embedded(&origin, USER);
    let alice = log_in(&proxy, "alice");
    let get = || proxy.get("/a").cookie(&alice).send();
    get();
    assert!(get().is_hit());
    let put = proxy.ask("PUT", "/_anteroom/cart").cookie(&alice);
    let put =
        put.header("Sec-Fetch-Site", "same-origin").header("Content-Type", "application/json");
    assert_eq!(put.body(br#"{"item": "mug", "count": 2}"#).send().status, 200);
    assert!(!get().is_hit(), "it may show the user's cart");
    assert!(get().is_hit());
}

#[test]
fn purges_hit_the_pages_of_segments_and_users() {
    let origin =
        shop(|_| Reply::html("x").header("Cache-Control", "max-age=60").header("xkey", "all"));
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret-token").unwrap();
    let settings = format!(
        "admin.token = {{ file = \"{}\" }}\nclient.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n\
         [[route]]\nmatch.path = \"/own\"\nshare = \"user\"\n[[route]]\nshare = \"segment\"\n",
        file.display()
    );
    let proxy = Proxy::embedded(&origin, &settings);
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    let get = |path: &str, cookie: &str| proxy.get(path).cookie_at_home(cookie).send();
    for order in [
        r#"{"tags": ["all"]}"#,
        r#"{"urls": ["http://shop.test/own", "http://shop.test/all"]}"#,
        r#"{"prefixes": ["http://shop.test/"], "hard": true}"#,
    ] {
        for path in ["/own", "/all"] {
            get(path, &alice);
            get(path, &bob);
            assert!(get(path, &alice).is_hit() && get(path, &bob).is_hit(), "{path}");
        }
        let ask = proxy.admin("/purge").method("POST").body(order.as_bytes());
        assert_eq!(ask.header("Authorization", "Bearer secret-token").send().status, 200);
        for path in ["/own", "/all"] {
            assert!(!get(path, &alice).is_hit(), "{order}: {path}");
        }
    }
}

fn a_change_by_an_unverified_user_ends_the_pages_of_the_user(storage: &Storage) {
    const SETTINGS: &str = r#"
session.cookie = "SID"
session.verify = { path = "/whoami", user = { json = "/name" }, nobody = { status = [401] }, verify_every = "1s" }
[[route]]
match.path = "/account"
share = "user"
"#;
    let (is_ill, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (ill, changed) = (Arc::clone(&is_ill), Arc::clone(&changes));
    let origin = Origin::start(move |request| match (request.method.as_str(), request.path()) {
        (_, "/whoami") if ill.load(SeqCst) => Reply::status("503 Service Unavailable").body(""),
        (_, "/whoami") => Reply::typed("application/json", r#"{"name":"ann"}"#),
        ("POST", _) => {
            changed.fetch_add(1, SeqCst);
            Reply::status("204 No Content")
        }
        _ => Reply::html(&format!("changed {} times", changed.load(SeqCst)))
            .header("Cache-Control", "private, max-age=60"),
    });
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    let cookie = "SID=sid-of-ann-1";
    let page = || proxy.get("/account").cookie(cookie).send();

    // Of two cookies of one name the app may believe either.
    page();
    assert!(page().is_hit());
    proxy.post("/cart").cookie(&format!("{cookie}; SID=sid-of-ann-2")).send();
    assert_eq!(page().text(), "changed 1 times");

    assert!(page().is_hit());
    is_ill.store(true, SeqCst);
    wait_until("nobody knows her any more", || page().cache_status().contains("unverified"));
    proxy.post("/cart").cookie(cookie).send();
    is_ill.store(false, SeqCst);
    wait_until("she is known again", || !page().cache_status().contains("unverified"));
    assert_eq!(page().text(), format!("changed {} times", changes.load(SeqCst)));
}
