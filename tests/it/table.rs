//! Which visitors may share a page: the table of the cases that hold out of the box, a case a row, on both
//! stores, and once more with every key on that must not change it (`tests/every-key`).
//!
//! Nothing else is configured but, where a visitor logs in, that the proxy hands out the session cookies. Counts
//! are asserted and not times: requests that meet at the origin did not wait for each other.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Rendezvous, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_all_stores_and_with_every_key, shop};
use crate::support::{at_once, every_key, wait_until};

const MINT: &str = "session.mint = true";

on_all_stores_and_with_every_key!(
    a_stranger_s_page_without_cache_control_is_a_hit,
    b_an_analytics_cookie_does_not_split_a_page,
    c_a_page_chosen_by_a_login_is_never_shared,
    c_a_page_chosen_by_a_cookie_we_do_not_know_is_never_shared,
    c2_nor_is_one_that_the_app_calls_public,
    d_a_set_cookie_is_never_replayed,
    e_a_response_to_authorization_is_never_shared,
    f_twenty_cold_requests_are_one_to_the_origin,
    g_twenty_for_an_uncacheable_page_run_side_by_side_after_the_first_head,
    g_a_visitor_with_a_cookie_does_not_mark_a_page_as_unshared,
    h_tracking_parameters_and_order_do_not_split_a_page,
    i_a_purge_works_with_the_token_only,
    k_a_known_visitor_is_given_the_style_sheet_that_a_stranger_filled,
    l_what_has_no_safe_default_is_not_stored,
);

fn a_stranger_s_page_without_cache_control_is_a_hit(storage: &Storage) {
    let origin = Origin::always(Reply::html("welcome"));
    let proxy = Proxy::start(&origin, storage, "");

    let (first, second) = (proxy.get("/").send(), proxy.get("/").send());

    assert!(!first.is_hit(), "{}", first.cache_status());
    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!((first.text(), second.text()), ("welcome".into(), "welcome".into()));
    assert_eq!(origin.count(), 1);
}

fn b_an_analytics_cookie_does_not_split_a_page(storage: &Storage) {
    let origin = Origin::always(Reply::html("hello").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::start(&origin, storage, "");

    proxy.get("/").cookie("_ga=GA1.2.111.222").send();
    let second = proxy.get("/").cookie("_ga=GA1.2.333.444; _gid=GA1.2.5; __utma=9").send();

    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!(origin.count(), 1);
}

fn c_a_page_chosen_by_a_login_is_never_shared(storage: &Storage) {
    assert_each_his_own_by_login(storage, None);
}

fn c_a_page_chosen_by_a_cookie_we_do_not_know_is_never_shared(storage: &Storage) {
    assert_each_his_own_by_cookie(storage, None);
}

fn c2_nor_is_one_that_the_app_calls_public(storage: &Storage) {
    for careless in ["max-age=60", "public, max-age=60"] {
        assert_each_his_own_by_login(storage, Some(careless));
        assert_each_his_own_by_cookie(storage, Some(careless));
    }
}

#[track_caller]
fn assert_each_his_own_by_login(storage: &Storage, control: Option<&'static str>) {
    let origin = shop(move |request| {
        let user = request.header("x-anteroom-user").unwrap_or("stranger");
        with_cache_control(Reply::html(&format!("hello {user}")), control)
    });
    let proxy = Proxy::start(&origin, storage, MINT);
    let page = page_of_their_own(control);
    let (alice, bob) = (log_in(&proxy, "alice"), log_in(&proxy, "bob"));
    for _ in 0..2 {
        assert_eq!(proxy.get(&page).cookie(&alice).send().text(), "hello alice", "{control:?}");
        assert_eq!(proxy.get(&page).cookie(&bob).send().text(), "hello bob", "{control:?}");
        assert_eq!(proxy.get(&page).send().text(), "hello stranger", "{control:?}");
    }
}

#[track_caller]
fn assert_each_his_own_by_cookie(storage: &Storage, control: Option<&'static str>) {
    let origin = Origin::start(move |request| {
        let who = request.header("cookie").unwrap_or("nobody").to_owned();
        with_cache_control(Reply::html(&format!("hello {who}")), control)
    });
    let proxy = Proxy::start(&origin, storage, "");
    let page = format!("{}/by-cookie", page_of_their_own(control));
    for _ in 0..2 {
        for who in ["sid=alice", "sid=bob"] {
            let text = proxy.get(&page).cookie(who).send().text();
            assert_eq!(text, format!("hello {who}"), "{control:?}");
        }
        assert_eq!(proxy.get(&page).send().text(), "hello nobody", "{control:?}");
    }
}

/// One Redis serves several proxies in a row, so each has a page of its own there.
fn page_of_their_own(control: Option<&str>) -> String {
    format!("/me/{}", control.unwrap_or("").len())
}

fn with_cache_control(reply: Reply, value: Option<&str>) -> Reply {
    match value {
        Some(value) => reply.header("Cache-Control", value),
        None => reply,
    }
}

fn d_a_set_cookie_is_never_replayed(storage: &Storage) {
    let issued = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        let number = issued.fetch_add(1, Ordering::SeqCst);
        Reply::html("hello")
            .header("Cache-Control", "public, max-age=60")
            .header("Set-Cookie", &format!("sid=number-{number}"))
    });
    let proxy = Proxy::start(&origin, storage, "");

    let mut answers = at_once(10, |_| proxy.get("/").send());
    answers.extend((0..3).map(|_| proxy.get("/").send()));

    let given: Vec<_> = answers.iter().filter_map(|answer| answer.cookie("sid")).collect();
    let different: HashSet<_> = given.iter().collect();
    assert_eq!(different.len(), given.len(), "one cookie for two visitors: {given:?}");
}

fn e_a_response_to_authorization_is_never_shared(storage: &Storage) {
    let origin = Origin::start(|request| {
        Reply::html(request.header("authorization").unwrap_or("nobody"))
            .header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::start(&origin, storage, "");

    for _ in 0..2 {
        for who in ["Basic YWxpY2U6", "Bearer bobbob"] {
            assert_eq!(proxy.get("/").header("Authorization", who).send().text(), who);
        }
        assert_eq!(proxy.get("/").send().text(), "nobody");
    }
}

/// Twenty visitors at once of whom one asks the origin: the gate opens when the others wait for that one.
fn twenty_behind(gate: &Gate, proxy: &Proxy, target: &str) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let all = scope.spawn(|| at_once(20, |_| proxy.get(target).send()));
        wait_until("all but one wait", || proxy.metric("anteroom_waiting") == 19.0);
        gate.open();
        all.join().unwrap()
    })
}

fn f_twenty_cold_requests_are_one_to_the_origin(storage: &Storage) {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |_| {
        held.pass();
        Reply::html("slow")
    });
    let proxy = Proxy::start(&origin, storage, "");

    let answers = twenty_behind(&gate, &proxy, "/");

    assert!(answers.iter().all(|answer| answer.status == 200 && answer.text() == "slow"));
    assert_eq!(origin.count(), 1);
}

fn g_twenty_for_an_uncacheable_page_run_side_by_side_after_the_first_head(storage: &Storage) {
    let gate = Gate::closed();
    let (burst, remembered) = (Rendezvous::of(19), Rendezvous::of(20));
    let (held, nth) = (Arc::clone(&gate), AtomicUsize::new(0));
    let meetings = [Arc::clone(&burst), Arc::clone(&remembered)];
    let origin = Origin::start(move |_| {
        // The first one is waited for: only its head tells that the page cannot be shared.
        match nth.fetch_add(1, Ordering::SeqCst) {
            0 => held.pass(),
            1..20 => meetings[0].arrive(),
            _ => meetings[1].arrive(),
        }
        Reply::unstored("yours alone")
    });
    let proxy = Proxy::start(&origin, storage, "origin.overload = \"off\"");

    let answers = twenty_behind(&gate, &proxy, "/");
    assert!(answers.iter().all(|answer| answer.text() == "yours alone"));
    assert!(burst.is_complete(), "the origin saw {} requests", origin.count());
    assert_eq!(origin.count(), 20, "each of them asked once");

    // That it cannot be shared is remembered: no visitor waits for another.
    let answers = at_once(20, |_| proxy.get("/").send());
    assert!(answers.iter().all(|answer| answer.text() == "yours alone"));
    assert!(remembered.is_complete(), "the origin saw {} requests", origin.count());
    assert_eq!(origin.count(), 40, "each of them asked once");
}

fn g_a_visitor_with_a_cookie_does_not_mark_a_page_as_unshared(storage: &Storage) {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let origin = Origin::start(move |request| match request.header("cookie") {
        Some(_) => Reply::unstored("yours alone"),
        None => {
            held.pass();
            Reply::html("for all")
        }
    });
    let proxy = Proxy::start(&origin, storage, "");
    assert_eq!(proxy.get("/").cookie("sid=alice").send().text(), "yours alone");

    let answers = twenty_behind(&gate, &proxy, "/");

    assert!(answers.iter().all(|answer| answer.text() == "for all"));
    assert_eq!(origin.count(), 2, "hers, and one for all the others");
}

fn h_tracking_parameters_and_order_do_not_split_a_page(storage: &Storage) {
    let origin = Origin::always(Reply::html("a shoe"));
    let proxy = Proxy::start(&origin, storage, "");

    proxy.get("/shoe?a=1&utm_source=x").send();
    let second = proxy.get("/shoe?utm_source=y&a=1").send();

    assert!(second.is_hit(), "{}", second.cache_status());
    assert_eq!(origin.count(), 1);
    assert_eq!(origin.last().target, "/shoe?a=1", "a fill asks without what is not in the key");
    assert!(!proxy.get("/shoe?a=2").send().is_hit(), "another value is another page");
}

fn i_a_purge_works_with_the_token_only(storage: &Storage) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", file.display());
    let origin = Origin::always(Reply::html("welcome"));
    let proxy = Proxy::start(&origin, storage, &settings);
    let purge = |who: &str| {
        let order =
            proxy.admin("/purge").method("POST").body(b"{\"urls\": [\"http://shop.test/\"]}");
        order.header("Authorization", who).send()
    };
    proxy.get("/").send();

    assert_eq!(purge("Bearer not-the-token").status, 401);
    assert!(proxy.get("/").send().is_hit());

    let done = purge("Bearer secret-token");
    assert_eq!((done.status, done.text().as_str()), (200, "{\"pages\":1,\"confirmed\":true}"));
    assert!(!proxy.get("/").send().is_hit());
    assert!(proxy.get("/").send().is_hit());
    assert_eq!(origin.count(), 2);
}

fn k_a_known_visitor_is_given_the_style_sheet_that_a_stranger_filled(storage: &Storage) {
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

fn l_what_has_no_safe_default_is_not_stored(storage: &Storage) {
    let pages: [(&str, Reply); 10] = [
        ("/redirect", Reply::status("302 Found").header("Location", "/next?nonce=1").body("")),
        ("/gone", Reply::status("404 Not Found").body("nothing here")),
        ("/broken", Reply::status("500 Internal Server Error").body("broken")),
        ("/forbidden", Reply::status("403 Forbidden").body("no")),
        ("/data", Reply::typed("application/json", "{}")),
        ("/captcha", Reply::typed("image/png", "picture")),
        ("/report", Reply::html("a file").header("Content-Disposition", "attachment; filename=a")),
        ("/refresh", Reply::html("wait").header("Refresh", "1")),
        ("/pragma", Reply::html("old").header("Pragma", "no-cache")),
        ("/form", Reply::html("<form><input type=hidden name=csrf_token value=3f9a></form>")),
    ];
    let told = pages.clone();
    let origin = Origin::start(move |request| {
        let (_, reply) = told.iter().find(|(path, _)| *path == request.path()).unwrap();
        reply.clone()
    });
    let proxy = Proxy::start(&origin, storage, "");

    for (path, _) in pages {
        let before = origin.count();
        let answers = [proxy.get(path).send(), proxy.get(path).send()];
        let hits = answers.iter().filter(|answer| answer.is_hit()).count();
        assert_eq!(hits, 0, "{path}: {}", answers[1].cache_status());
        assert!(origin.count() >= before + 2, "{path}");
    }
}

#[test]
fn every_key_is_on_beside_the_table() {
    let origin = shop(|request| {
        let shown = request.header("x-every-key").unwrap_or("unset");
        Reply::html(&format!("{} {shown}", request.target)).header("X-Every-Removed", "1")
    });
    every_key::turn_on();
    let proxy = Proxy::embedded(&origin, MINT);
    let page = proxy.get("/page?every_a=1&b=2").header("X-Every-Removed", "1").send();
    assert_eq!(page.text(), "/page?b=2 http");
    assert_eq!(page.header("x-every-key"), Some("shop.test/page"));
    assert_eq!(page.header("x-request-id").map(str::len), Some(32));
    assert_eq!(page.header("x-every-removed"), None);
    assert_eq!(origin.last().header("x-every-removed"), None);

    let get = |target: &str| proxy.get(&format!("/every-key/{target}")).send();
    let old = get("old/a?b=1");
    let location = old.header("location");
    assert_eq!((old.status, location), (308, Some("http://shop.test/every-key/new?b=1")));
    let members = get("members/a");
    let page = members.header("location").unwrap_or_default();
    assert!(members.status == 302 && page.starts_with("/login?next="), "{members:?}");
    let ada = log_in(&proxy, "ada");
    assert_eq!(proxy.get("/every-key/members/a").cookie(&ada).send().status, 200);
    assert_eq!(get("closed/a").status, 503);
    assert!(get("stripped/a").text().starts_with("/every-key/added/a "));
    let rare = [(); 3].map(|()| get("rare/a?page=1&b=2").is_hit());
    assert_eq!(rare, [false, false, true]);

    let read = |target: &str| proxy.get(target).send().is_hit();
    assert_eq!([read("/every-key/shown"), read("/every-key/shown")], [false, true]);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let save = proxy.post("/every-key/save").header(form.0, form.1).body(b"action=publish");
    assert_eq!(save.send().status, 200);
    assert!(!read("/every-key/shown"), "[purge] after");
    let log = proxy.access_log(1);
    assert!(log.iter().all(|line| line["path"] != "/page"), "access_log = false: {log:?}");
}
