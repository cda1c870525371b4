//! The audit: hits that are held against the app.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::learn::{ask, printed, same};
use crate::support::client::{Answer, SITE};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, anteroom};
use crate::support::wait_until;

/// Each hit is held against the app, and visitors have addresses of their own.
const AUDITS: &str = "cache.audit = \"1/1\"\nclient.trusted_proxies = [\"127.0.0.1\"]\n";

/// A page that says where the visitor is: the app knows it by the address.
fn by_country() -> Origin {
    Origin::start(|request: &Request| {
        let address = request.header("x-forwarded-for").unwrap_or_default();
        let country = if address.starts_with("127.") { "nowhere" } else { "Austria" };
        same(&format!("<h1>Shop</h1><p>You are in {country}</p><p>end</p>"))
    })
}

fn audited(proxy: &Proxy, words: &[&str]) -> String {
    let mut command = anteroom();
    command.arg("audit").args(words).args(["--config", "proxy.toml"]);
    printed(&command.current_dir(proxy.folder()).output().unwrap())
}

fn report(proxy: &Proxy) -> Value {
    serde_json::from_str(&audited(proxy, &["--json"])).unwrap()
}

/// Waits until so many answers have been compared, or could not be.
fn wait_for(proxy: &Proxy, expected: u64) -> Value {
    wait_until(&format!("{expected} are compared"), || {
        let report = report(proxy);
        report["compared"].as_u64().unwrap() + report["unknown"].as_u64().unwrap() == expected
    });
    report(proxy)
}

/// Fills a page, and then asks for it from these addresses, one behind the other.
fn visit(proxy: &Proxy, target: &str, addresses: &[&str]) -> Value {
    ask(proxy, 99, target, "");
    for (count, address) in (1..).zip(addresses) {
        let answer = proxy.get(target).header("X-Forwarded-For", address).send();
        assert!(answer.cache_status().contains("fwd=bypass; detail=audited"), "{answer:?}");
        wait_for(proxy, count);
    }
    report(proxy)
}

#[test]
fn a_page_that_is_the_same_for_all_is_the_same() {
    let origin = Origin::always(same("<p>hello</p>"));
    let proxy = Proxy::embedded(&origin, AUDITS);
    let report = visit(&proxy, "/item/7", &["192.0.2.1", "192.0.2.2", "198.51.100.1"]);
    assert_eq!((&report["same"], &report["differed"]), (&3.into(), &0.into()));
    assert_eq!(report["patterns"][0]["pattern"], "/item/*");
    assert_eq!(origin.count(), 4, "no fetch to tell noise");
    assert_eq!(proxy.metric("anteroom_cache_reasons_total{reason=\"audited\"}"), 3.0);
    let told = audited(&proxy, &[]);
    assert!(told.starts_with("3 hits compared with the app's answer: 3 the same,"), "{told}");
}

#[test]
fn what_visitors_of_two_networks_see_otherwise_is_told_by_its_place_and_not_by_its_words() {
    let origin = by_country();
    let proxy = Proxy::embedded(&origin, AUDITS);
    let report = visit(&proxy, "/country", &["192.0.2.1", "198.51.100.1"]);
    assert_eq!((&report["differed"], &report["noise"]), (&2.into(), &0.into()), "{report}");
    let pattern = &report["patterns"][0];
    assert_eq!((&pattern["pattern"], &pattern["networks"]), (&"/country".into(), &2.into()));
    let place = &pattern["places"][0];
    assert_eq!((&place["kind"], &place["at"]), (&"body".into(), &14.into()), "{report}");
    let told = audited(&proxy, &[]);
    assert!(told.contains("/country (route default): 2 of 2 hits differed"), "{told}");
    assert!(told.contains("the same, 0 different by noise"), "{told}");
    assert!(told.contains("the body at byte 14, 21 bytes of the stored page"), "{told}");
    assert!(!told.contains("Austria") && !told.contains("nowhere"), "{told}");
}

#[test]
fn a_nonce_and_an_edit_are_noise() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request: &Request| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        match request.path() {
            "/nonce" => same(&format!("<p>same</p><i>{nth}</i>")),
            _ => same(if nth == 0 { "<p>old</p>" } else { "<p>new</p>" }),
        }
    });
    for target in ["/edited", "/nonce"] {
        let proxy = Proxy::embedded(&origin, AUDITS);
        let report = visit(&proxy, target, &["192.0.2.1", "198.51.100.1"]);
        assert_eq!((&report["noise"], &report["differed"]), (&2.into(), &0.into()), "{target}");
    }
}

#[test]
fn where_the_app_fails_the_stored_page_is_the_answer() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => same("<p>hello</p>"),
        _ => Reply::status("500 Internal Server Error").body("no"),
    });
    let proxy = Proxy::embedded(&origin, AUDITS);
    ask(&proxy, 9, "/a", "");
    for visitor in 1..4 {
        let answer = ask(&proxy, visitor, "/a", "");
        assert_eq!((answer.status, answer.text().as_str()), (200, "<p>hello</p>"));
        assert!(answer.is_hit(), "{}", answer.cache_status());
    }
    assert_eq!(origin.count(), 2, "an app that fails is left alone");
}

#[test]
fn what_cannot_be_compared_is_served() {
    let origin = Origin::always(same("<p>hello</p>").header("ETag", "\"1\""));
    let proxy = Proxy::embedded(&origin, AUDITS);
    ask(&proxy, 9, "/a", "");
    for (name, value) in [("If-None-Match", "\"1\""), ("Range", "bytes=0-3")] {
        let answer = proxy.get("/a").header(name, value).send();
        assert!(answer.cache_status().contains("; hit"), "{}", answer.cache_status());
    }
    assert!(proxy.ask("HEAD", "/a").send().cache_status().contains("; hit"));
    assert_eq!(origin.count(), 1);
}

#[test]
fn no_hit_is_held_against_the_app_where_a_route_says_off() {
    let origin = Origin::always(same("<p>hello</p>"));
    let route = "[[route]]\nmatch.path = \"/quiet/**\"\naudit = \"off\"\n";
    let proxy = Proxy::embedded(&origin, &format!("{AUDITS}{route}"));
    for target in ["/quiet/a", "/quiet/a", "/quiet/a"] {
        ask(&proxy, 1, target, "");
    }
    assert_eq!(origin.count(), 1);
    let without = Proxy::embedded(&origin, "cache.audit = \"off\"");
    (0..3).for_each(|_| drop(without.get("/b").send()));
    assert_eq!(origin.count(), 2);
    assert!(audited(&without, &[]).contains("[cache] audit"));
}

/// Two visitors of two networks see something else in the page than what is stored.
fn stopped(proxy: &Proxy, target: &str) {
    visit(proxy, target, &["192.0.2.1", "198.51.100.1"]);
    wait_until("the page is stopped", || !report(proxy)["stopped"].as_array().unwrap().is_empty());
}

fn explained(proxy: &Proxy, target: &str) -> String {
    let mut command = anteroom();
    command.args(["explain", &format!("http://{SITE}{target}"), "--config", "proxy.toml"]);
    printed(&command.current_dir(proxy.folder()).output().unwrap())
}

fn reason(proxy: &Proxy, target: &str) -> String {
    proxy.get(target).header("X-Forwarded-For", "203.0.113.9").send().cache_status().to_owned()
}

#[test]
fn a_page_in_which_visitors_see_different_things_is_not_shared_until_an_operators_word() {
    let origin = by_country();
    let proxy = Proxy::embedded(&origin, AUDITS);
    stopped(&proxy, "/shop/7");
    let answer = proxy.get("/shop/7?again").header("X-Forwarded-For", "203.0.113.9").send();
    assert!(answer.cache_status().ends_with("fwd=bypass; detail=audit-stopped"), "{answer:?}");
    assert!(answer.text().contains("Austria"), "the visitor's own page");
    assert!(!reason(&proxy, "/shop/8").contains("audit-stopped"), "another page of its kind");
    assert_eq!(proxy.metric("anteroom_audit_stopped"), 1.0);
    let told = audited(&proxy, &[]);
    let expected = "/shop/7 (route default): audit: it differs for visitors of 2 networks";
    assert!(told.contains(expected), "{told}");
    assert!(told.contains("match.path = \"/shop/7\"\n    share = \"none\""), "{told}");
    let explained = explained(&proxy, "/shop/7");
    assert!(explained.contains("anteroom audit resume"), "{explained}");
    let again = audited(&proxy, &["resume", "/shop/7", "--route", "default"]);
    assert!(!again.contains("not shared any more"), "{again}");
    let status = reason(&proxy, "/shop/7");
    assert!(status.contains("fwd=uri-miss") || status.contains("unproven"), "{status}");
}

#[test]
fn with_several_of_its_pages_the_pattern_is_not_shared() {
    let origin = by_country();
    let proxy = Proxy::embedded(&origin, AUDITS);
    for number in 1..4_u64 {
        let target = format!("/shop/{number}");
        ask(&proxy, 99, &target, "");
        let address = format!("192.0.{number}.1");
        proxy.get(&target).header("X-Forwarded-For", &address).send();
        wait_for(&proxy, number);
    }
    wait_until("the pattern is stopped", || reason(&proxy, "/shop/9").contains("audit-stopped"));
    assert_eq!(report(&proxy)["stopped"][0]["pattern"], "/shop/*");
    assert!(!reason(&proxy, "/other").contains("audit-stopped"), "another pattern");
}

fn add_route(proxy: &Proxy, route: &str) {
    proxy.edit(|text| format!("{text}\n{route}"));
    assert!(proxy.reload());
}

#[test]
fn a_stop_outlives_the_process_and_ends_with_other_rules() {
    let origin = by_country();
    let mut proxy = Proxy::embedded(&origin, AUDITS);
    stopped(&proxy, "/shop/7");
    proxy.restart();
    assert!(reason(&proxy, "/shop/7").contains("audit-stopped"));
    let unrelated = "[[route]]\nmatch.path = \"/other/**\"\nshare = \"none\"\n";
    add_route(&proxy, unrelated);
    assert!(reason(&proxy, "/shop/7").contains("audit-stopped"), "the rest is as it was");
    let keyed = "[[route]]\nmatch.path = \"/shop/*\"\nkey_headers = [\"accept-language\"]\n";
    add_route(&proxy, keyed);
    assert!(!reason(&proxy, "/shop/7").contains("audit-stopped"));
    audited(&proxy, &["resume"]);
    assert!(report(&proxy)["stopped"].as_array().unwrap().is_empty(), "off the list");
}

#[test]
fn a_page_that_shows_something_else_each_time_is_not_stopped() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        // The first fetches agree, as they do by chance.
        same(if [1, 6].contains(&nth) { "<p>other</p>" } else { "<p>one</p>" })
    });
    let proxy = Proxy::embedded(&origin, AUDITS);
    let report = visit(&proxy, "/random", &["192.0.2.1"]);
    assert_eq!((&report["noise"], &report["differed"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(origin.count(), 8, "the page, the visitor, four fetches, and the visitor twice");
}

/// The app knows a visitor by a cookie that `proxy.toml` ignores.
const IGNORES_WHO: &str = "cache.ignore_cookies = [\"who\"]\n";

fn hello(proxy: &Proxy, who: &str) -> Answer {
    proxy.get("/hello").header("Cookie", &format!("who={who}")).send()
}

#[test]
fn a_stored_page_with_a_visitors_own_words_is_purged_at_once() {
    let count = AtomicUsize::new(0);
    // The app has told this visitor's page to all once.
    let origin = Origin::start(move |request: &Request| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let knows =
            is_first || request.header("cookie").is_some_and(|cookie| cookie.contains("Palmer"));
        same(&format!(
            "<h1>Shop</h1><p>Hello {}</p>",
            if knows { "AmandaPalmer" } else { "stranger" }
        ))
    });
    let proxy = Proxy::embedded(&origin, &format!("{AUDITS}{IGNORES_WHO}"));
    ask(&proxy, 9, "/hello", "");
    hello(&proxy, "AmandaPalmer");
    wait_until("the page is stopped", || reason(&proxy, "/hello").contains("audit-stopped"));
    let report = report(&proxy);
    assert_eq!((&report["leaks"], &report["patterns"][0]["leaks"]), (&1.into(), &1.into()));
    let told = audited(&proxy, &[]);
    assert!(told.contains("1 stored page held a visitor's own words") && !told.contains("Amanda"));
    assert_eq!(proxy.metric("anteroom_audit_leaks_total"), 1.0);
}

#[test]
fn a_word_that_all_get_or_got_is_no_leak() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request: &Request| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        match request.path() {
            "/hello" => same("<p>the darkness of all</p>"),
            // Edited: the word is gone for all.
            _ => same(&format!("<p>{}</p>", if nth == 1 { "darkness" } else { "light" })),
        }
    });
    let proxy = Proxy::embedded(&origin, &format!("{AUDITS}{IGNORES_WHO}"));
    ask(&proxy, 9, "/hello", "");
    ask(&proxy, 9, "/edited", "");
    hello(&proxy, "darkness");
    let report = wait_for(&proxy, 1);
    assert_eq!((&report["leaks"], &report["same"]), (&0.into(), &1.into()));
    proxy.get("/edited").header("Cookie", "who=darkness").send();
    let report = wait_for(&proxy, 2);
    assert_eq!((&report["leaks"], &report["noise"]), (&0.into(), &1.into()));
}

#[test]
fn a_page_cache_of_the_app_is_no_difference_between_visitors() {
    let count = AtomicUsize::new(0);
    let origin = Origin::start(move |request: &Request| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        let nonce = if request.header("cookie").is_some() { nth } else { 0 };
        same(&format!("<p>same</p><i>{nonce}</i>"))
    });
    let proxy = Proxy::embedded(&origin, AUDITS);
    ask(&proxy, 9, "/a", "");
    for (count, address) in [(1, "192.0.2.1"), (2, "198.51.100.1")] {
        let visitor = proxy.get("/a").header("X-Forwarded-For", address);
        visitor.header("Cookie", "_ga=GA1.1.7.7").send();
        let report = wait_for(&proxy, count);
        assert_eq!((&report["noise"], &report["differed"]), (&count.into(), &0.into()));
    }
}

#[test]
fn two_versions_of_the_app_behind_a_load_balancer_are_noise() {
    let origin = Origin::start(|request: &Request| {
        let is_new = request.header("cookie").is_some_and(|cookie| cookie.contains("AWSALB=new"));
        same(if is_new { "<p>version 2</p>" } else { "<p>version 1</p>" })
    });
    let proxy = Proxy::embedded(&origin, &format!("{AUDITS}cache.ignore_cookies = [\"AWSALB\"]\n"));
    ask(&proxy, 9, "/a", "");
    for (count, address) in [(1, "192.0.2.1"), (2, "198.51.100.1")] {
        proxy.get("/a").header("X-Forwarded-For", address).header("Cookie", "AWSALB=new").send();
        let report = wait_for(&proxy, count);
        assert_eq!((&report["noise"], &report["differed"]), (&count.into(), &0.into()));
    }
}

#[test]
fn what_a_client_makes_up_stops_nothing() {
    let origin = Origin::start(|request: &Request| {
        let of = |name| request.header(name).unwrap_or_default().to_owned();
        same(&format!("<p>{}{}{}</p>", of("x-made-up"), of("referer"), request.target))
    });
    let proxy = Proxy::embedded(&origin, AUDITS);
    ask(&proxy, 9, "/a", "");
    for address in ["192.0.2.1", "198.51.100.1"] {
        let ask = |target| proxy.get(target).header("X-Forwarded-For", address);
        assert!(ask("/a").header("X-Made-Up", "x").send().is_hit());
        assert!(ask("/a?utm_source=2").send().is_hit());
    }
    // It would be drawn, and the app writes it into its page.
    for (count, address) in [(1, "192.0.2.1"), (2, "198.51.100.1")] {
        proxy
            .get("/a")
            .header("X-Forwarded-For", address)
            .header("Referer", "http://x.test/")
            .send();
        let report = wait_for(&proxy, count);
        assert_eq!((&report["noise"], &report["differed"]), (&count.into(), &0.into()));
    }
}

#[test]
fn a_fleet_stops_together() {
    let origin = by_country();
    let storage = Storage::redis();
    let start = || Proxy::start(&origin, &storage, AUDITS);
    let (one, other) = (start(), start());
    stopped(&one, "/shop/7");
    wait_until("the other knows", || reason(&other, "/shop/7").contains("audit-stopped"));
    audited(&other, &["resume"]);
    wait_until("the first knows", || !reason(&one, "/shop/7").contains("audit-stopped"));
}
