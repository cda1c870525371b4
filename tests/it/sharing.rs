//! Who may share a page: the cases that hold out of the box, on both stores.
//!
//! The leaks that must not happen are in `leak`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::origin::{Origin, Rendezvous, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{at_once, wait_until};

const MINT: &str = "session.mint = true";

on_both_stores!(
    an_anonymous_page_without_cache_control_is_a_hit,
    analytics_cookies_do_not_split_a_page,
    a_page_chosen_by_a_login_is_never_shared,
    a_page_chosen_by_a_cookie_we_do_not_know_is_never_shared,
    twenty_cold_requests_at_once_are_one_to_the_origin,
    requests_for_an_uncacheable_page_run_side_by_side,
    tracking_parameters_and_their_order_do_not_split_a_page,
    a_known_visitor_is_given_the_style_sheet_that_a_stranger_filled,
    what_has_no_safe_default_is_not_stored,
    a_head_is_answered_from_the_page_that_a_get_filled,
    a_page_is_made_anew_after_a_change_to_it,
);

fn an_anonymous_page_without_cache_control_is_a_hit(storage: &Storage) {
    let origin = Origin::always(Reply::html("welcome"));
    let proxy = Proxy::start(&origin, storage, "");

    let (first, second) = (proxy.get("/").send(), proxy.get("/").send());

    assert!(!first.is_hit(), "{}", first.cache_status());
    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!((first.text(), second.text()), ("welcome".into(), "welcome".into()));
    assert_eq!(origin.count(), 1);
}

fn analytics_cookies_do_not_split_a_page(storage: &Storage) {
    let origin = Origin::always(Reply::html("hello").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::start(&origin, storage, "");

    proxy.get("/").cookie("_ga=GA1.2.111.222").send();
    let second = proxy.get("/").cookie("_ga=GA1.2.333.444; _gid=GA1.2.5; __utma=9").send();

    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!(origin.count(), 1);
}

/// What an app says of a personal page when it says something, and when it says nothing.
const CARELESS: [Option<&str>; 3] = [None, Some("max-age=60"), Some("public, max-age=60")];

fn a_page_chosen_by_a_login_is_never_shared(storage: &Storage) {
    for careless in CARELESS {
        let origin = shop(move |request| {
            let user = request.header("x-anteroom-user").unwrap_or("stranger");
            with_cache_control(Reply::html(&format!("hello {user}")), careless)
        });
        let proxy = Proxy::start(&origin, storage, MINT);
        let (alice, bob) = (log_in(&proxy, "alice"), log_in(&proxy, "bob"));

        for _ in 0..2 {
            assert_eq!(proxy.get("/me").cookie(&alice).send().text(), "hello alice");
            assert_eq!(proxy.get("/me").cookie(&bob).send().text(), "hello bob");
            assert_eq!(proxy.get("/me").send().text(), "hello stranger");
        }
    }
}

fn a_page_chosen_by_a_cookie_we_do_not_know_is_never_shared(storage: &Storage) {
    for careless in CARELESS {
        let origin = Origin::start(move |request| {
            let who = request.header("cookie").unwrap_or("nobody").to_owned();
            with_cache_control(Reply::html(&format!("hello {who}")), careless)
        });
        let proxy = Proxy::start(&origin, storage, "");

        for _ in 0..2 {
            assert_eq!(proxy.get("/me").cookie("sid=alice").send().text(), "hello sid=alice");
            assert_eq!(proxy.get("/me").cookie("sid=bob").send().text(), "hello sid=bob");
            assert_eq!(proxy.get("/me").send().text(), "hello nobody");
        }
    }
}

fn with_cache_control(reply: Reply, value: Option<&str>) -> Reply {
    match value {
        Some(value) => reply.header("Cache-Control", value),
        None => reply,
    }
}

fn twenty_cold_requests_at_once_are_one_to_the_origin(storage: &Storage) {
    let origin = Origin::always(Reply::html("slow").after(Duration::from_millis(300)));
    let proxy = Proxy::start(&origin, storage, "");

    let answers = at_once(20, |_| proxy.get("/").send());

    assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "slow"));
    assert_eq!(origin.count(), 1);
}

fn requests_for_an_uncacheable_page_run_side_by_side(storage: &Storage) {
    let (others, nth) = (Rendezvous::of(19), AtomicUsize::new(0));
    let meeting = others.clone();
    let origin = Origin::start(move |_| {
        // The first one is waited for: only its head tells that the page cannot be shared.
        if nth.fetch_add(1, Ordering::SeqCst) == 0 {
            return Reply::unstored("yours alone").after(Duration::from_millis(300));
        }
        meeting.arrive();
        Reply::unstored("yours alone")
    });
    let proxy = Proxy::start(&origin, storage, "");

    let answers = at_once(20, |_| proxy.get("/").send());

    assert!(answers.iter().all(|answer| answer.text() == "yours alone"));
    assert!(others.is_complete(), "the origin saw {} requests", origin.count());
}

fn tracking_parameters_and_their_order_do_not_split_a_page(storage: &Storage) {
    let origin = Origin::always(Reply::html("a shoe"));
    let proxy = Proxy::start(&origin, storage, "");

    proxy.get("/shoe?a=1&utm_source=x").send();
    let second = proxy.get("/shoe?utm_source=y&a=1").send();

    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!(origin.count(), 1);
    assert_eq!(origin.last().target, "/shoe?a=1", "a fill asks without what is not in the key");
    assert!(!proxy.get("/shoe?a=2").send().is_hit(), "another value is another page");
}

fn a_known_visitor_is_given_the_style_sheet_that_a_stranger_filled(storage: &Storage) {
    let origin = shop(|request| match request.path() {
        "/site.css" => Reply::typed("text/css", "body {}").header("ETag", "\"1\""),
        _ => Reply::html("a page").header("ETag", "\"2\""),
    });
    let proxy = Proxy::start(&origin, storage, MINT);
    let alice = log_in(&proxy, "alice");
    proxy.get("/site.css").send();
    proxy.get("/page").send();

    let (sheet, page) =
        (proxy.get("/site.css").cookie(&alice).send(), proxy.get("/page").cookie(&alice).send());

    assert!(sheet.is_hit(), "{}", sheet.cache_status());
    assert!(!page.is_hit(), "{}", page.cache_status());
}

fn what_has_no_safe_default_is_not_stored(storage: &Storage) {
    let origin = Origin::start(|request| match request.path() {
        "/redirect" => Reply::status("302 Found").header("Location", "/next?nonce=1").body(""),
        "/broken" => Reply::status("500 Internal Server Error").body("broken"),
        "/forbidden" => Reply::status("403 Forbidden").body("no"),
        "/data" => Reply::typed("application/json", "{}"),
        "/captcha" => Reply::typed("image/png", "picture"),
        "/report" => {
            Reply::html("a file").header("Content-Disposition", "attachment; filename=a.html")
        }
        "/refresh" => Reply::html("wait").header("Refresh", "1"),
        "/pragma" => Reply::html("old").header("Pragma", "no-cache"),
        _ => Reply::html("<form><input type=hidden name=csrf_token value=3f9a></form>"),
    });
    let proxy = Proxy::start(&origin, storage, "");

    for path in [
        "/redirect",
        "/broken",
        "/forbidden",
        "/data",
        "/captcha",
        "/report",
        "/refresh",
        "/pragma",
        "/form",
    ] {
        let before = origin.count();
        let answers = [proxy.get(path).send(), proxy.get(path).send()];
        let hits = answers.iter().filter(|answer| answer.is_hit()).count();
        assert_eq!(hits, 0, "{path}: {}", answers[1].cache_status());
        assert!(origin.count() >= before + 2, "{path}");
    }
}

fn a_head_is_answered_from_the_page_that_a_get_filled(storage: &Storage) {
    let origin = Origin::always(Reply::html("welcome"));
    let proxy = Proxy::start(&origin, storage, "");
    proxy.get("/").send();

    let head = proxy.ask("HEAD", "/").send();

    assert!(head.is_hit(), "{}", head.cache_status());
    assert_eq!((head.header("content-length"), head.text()), (Some("7"), String::new()));
    assert_eq!(origin.count(), 1);
}

fn a_page_is_made_anew_after_a_change_to_it(storage: &Storage) {
    let version = AtomicUsize::new(1);
    let origin = Origin::start(move |request| match (request.method.as_str(), request.path()) {
        ("GET", _) => Reply::html(&format!("version {}", version.load(Ordering::SeqCst))),
        (_, "/fails") => Reply::status("500 Internal Server Error").body("no"),
        (_, path) => {
            version.fetch_add(1, Ordering::SeqCst);
            let reply = Reply::status("303 See Other").body("");
            if path == "/edit" { reply.header("Location", "/page#top") } else { reply }
        }
    });
    let proxy = Proxy::start(&origin, storage, "");
    let shown = || proxy.get("/page").send().text();

    assert_eq!(shown(), "version 1");
    proxy.post("/page").send();
    assert_eq!(shown(), "version 2");
    proxy.post("/edit").send();
    assert_eq!(shown(), "version 3");
    proxy.post("/fails").send();
    assert!(proxy.get("/page").send().is_hit(), "what failed changed nothing");
}

#[test]
fn a_set_cookie_is_never_replayed_to_another_visitor() {
    let issued = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        let number = issued.fetch_add(1, Ordering::SeqCst);
        Reply::html("hello")
            .header("Cache-Control", "public, max-age=60")
            .header("Set-Cookie", &format!("sid=number-{number}"))
    });
    let proxy = Proxy::embedded(&origin, "");

    let mut answers = at_once(10, |_| proxy.get("/").send());
    answers.extend((0..3).map(|_| proxy.get("/").send()));

    let given: Vec<_> = answers.iter().filter_map(|answer| answer.cookie("sid")).collect();
    let different: std::collections::HashSet<_> = given.iter().collect();
    assert_eq!(different.len(), given.len(), "one cookie for two visitors: {given:?}");
}

#[test]
fn a_response_to_authorization_is_never_shared() {
    let origin = Origin::start(|request| {
        Reply::html(request.header("authorization").unwrap_or("nobody"))
            .header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");

    for _ in 0..2 {
        for who in ["Basic YWxpY2U6", "Bearer bobbob"] {
            assert_eq!(proxy.get("/").header("Authorization", who).send().text(), who);
        }
        assert_eq!(proxy.get("/").send().text(), "nobody");
    }
}

#[test]
fn a_missing_page_is_stored_only_by_a_route_and_for_ten_seconds_at_most() {
    let origin = Origin::always(Reply::status("404 Not Found").body("nothing here"));
    let route = "[[route]]\nmatch.path = \"/kept\"\nttl = \"60s\"";
    let proxy = Proxy::embedded(&origin, route);
    let [gone, kept] = ["/gone", "/kept"].map(|path| {
        proxy.get(path).send();
        proxy.get(path).send()
    });

    assert!(!gone.is_hit(), "{}", gone.cache_status());
    assert!(kept.is_hit(), "{}", kept.cache_status());
    let ttl = kept.cache_status().split("ttl=").nth(1).and_then(|rest| rest.split(';').next());
    let ttl: i64 = ttl.expect("a hit says its ttl").trim().parse().unwrap();
    assert!(ttl <= 10, "{}", kept.cache_status());
}

#[test]
fn a_page_outlives_the_memory_of_the_process_in_redis() {
    let storage = Storage::redis();
    let origin = Origin::always(Reply::html("welcome"));
    let mut proxy = Proxy::start(&origin, &storage, "");
    proxy.get("/").send();
    let Storage::Redis(server) = &storage else { return };
    wait_until("the page is in redis", || !server.keys("cache:*").is_empty());

    proxy.restart();

    assert!(proxy.get("/").send().is_hit());
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_request_that_is_odd_by_itself_keeps_no_page_out_of_the_cache() {
    let origin = Origin::start(|request| match request.header("accept-language") {
        Some("?") => Reply::status("400 Bad Request").body("what?"),
        _ => Reply::html("welcome"),
    });
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/a").header("Accept", "application/json").send();
    proxy.get("/b").header("Accept-Language", "?").send();
    for path in ["/a", "/b"] {
        wait_until("the page is shared", || proxy.get(path).send().is_hit());
    }
}

#[test]
fn a_client_that_takes_no_coding_we_know_gets_what_was_sent_in_none() {
    let origin = Origin::always(Reply::html("plain").header("Vary", "Accept-Encoding"));
    let proxy = Proxy::embedded(&origin, "");
    let get = || proxy.get("/").header("Accept-Encoding", "identity").send();
    get();
    let second = get();
    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_page_that_varies_by_host_is_shared_on_its_site() {
    let origin = Origin::start(|request| {
        Reply::html(request.header("host").unwrap_or("-")).header("Vary", "Host")
    });
    let proxy = Proxy::embedded(&origin, "");
    for site in ["shop.test", "blog.test"] {
        proxy.get("/").host(site).send();
        let second = proxy.get("/").host(site).send();
        assert!(second.is_hit(), "{}", second.cache_status());
        assert_eq!(second.text(), site);
    }
}

#[test]
fn a_page_that_varies_by_the_scheme_is_shared_behind_a_tls_proxy() {
    let origin = Origin::start(|request| {
        let scheme = request.header("x-forwarded-proto").unwrap_or("-");
        Reply::html(scheme).header("Vary", "X-Forwarded-Proto")
    });
    let proxy = Proxy::embedded(&origin, "client.trusted_proxies = [\"127.0.0.0/8\"]");
    for scheme in ["https", "http"] {
        let ask = || proxy.get("/").header("X-Forwarded-Proto", scheme).send();
        ask();
        let second = ask();
        assert!(second.is_hit(), "{}", second.cache_status());
        assert_eq!(second.text(), scheme);
    }
}

#[test]
fn a_change_reaches_a_page_under_another_route_s_key() {
    let version = AtomicUsize::new(1);
    let origin = Origin::start(move |request| match request.method.as_str() {
        "GET" => Reply::html(&format!("version {}", version.load(Ordering::SeqCst))),
        _ => {
            version.fetch_add(1, Ordering::SeqCst);
            Reply::status("303 See Other").header("Location", "/page").body("")
        }
    });
    let route = "[[route]]\nmatch.path = \"/page\"\nmatch.method = [\"GET\"]\n\
                 key_cookies = [\"lang\"]\nkey_headers = [\"X-Shape\"]";
    let proxy = Proxy::embedded(&origin, route);
    let shown = || proxy.get("/page").cookie("lang=de").send().text();
    assert_eq!(shown(), "version 1");

    proxy.post("/edit").cookie("lang=de").send();
    assert_eq!(shown(), "version 2");
    proxy.post("/page").cookie("lang=de").send();
    assert_eq!(shown(), "version 3");
}

#[test]
fn a_stored_answer_without_content_has_no_length() {
    let reply = Reply::status("204 No Content").header("Cache-Control", "max-age=60");
    let origin = Origin::always(reply);
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    let head = proxy.ask("HEAD", "/").send();
    assert!(head.is_hit(), "{}", head.cache_status());
    assert_eq!((head.status, head.header("content-length")), (204, None));
}

/// A style sheet that is public by proof once a stranger was given it.
fn sheet() -> Origin {
    shop(|_| Reply::typed("text/css", "body {}").header("ETag", "\"1\""))
}

#[test]
fn a_style_sheet_that_only_a_known_visitor_asked_for_is_not_stored() {
    let origin = sheet();
    let proxy = Proxy::embedded(&origin, MINT);
    let alice = log_in(&proxy, "alice");
    for _ in 0..2 {
        let hers = proxy.get("/site.css").cookie(&alice).send();
        assert!(!hers.is_hit(), "{}", hers.cache_status());
    }
    assert!(!proxy.get("/site.css").send().is_hit());
    assert!(proxy.get("/site.css").cookie(&alice).send().is_hit());
}

#[test]
fn a_stranger_s_style_sheet_is_for_unknown_visitors_and_logins_too() {
    let origin = sheet();
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/site.css").send();
    for (name, value) in [("Cookie", "other=1"), ("Authorization", "Basic YWxpY2U6")] {
        let answer = proxy.get("/site.css").header(name, value).send();
        assert!(answer.is_hit(), "{name}: {}", answer.cache_status());
    }
}

#[test]
fn where_nothing_is_static_for_all_a_known_visitor_is_forwarded() {
    let origin = sheet();
    let settings = format!("{MINT}\ncache.static_for_all = false");
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    proxy.get("/site.css").send();
    assert!(!proxy.get("/site.css").cookie(&alice).send().is_hit());
}
