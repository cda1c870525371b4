//! The audit: hits that are held against the app.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::learn::{ask, printed, same};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::wait_until;

/// Each hit is held against the app, and visitors have addresses of their own.
const AUDITS: &str = "cache.audit = \"1/1\"\nclient.trusted_proxies = [\"127.0.0.1\"]\n";

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
    let origin = Origin::start(|request: &Request| {
        let address = request.header("x-forwarded-for").unwrap_or_default();
        let country = if address.starts_with("127.") { "nowhere" } else { "Austria" };
        same(&format!("<h1>Shop</h1><p>You are in {country}</p><p>end</p>"))
    });
    let proxy = Proxy::embedded(&origin, AUDITS);
    let report = visit(&proxy, "/country", &["192.0.2.1", "198.51.100.1"]);
    assert_eq!((&report["differed"], &report["noise"]), (&2.into(), &0.into()), "{report}");
    let pattern = &report["patterns"][0];
    assert_eq!((&pattern["pattern"], &pattern["networks"]), (&"/country".into(), &2.into()));
    let place = &pattern["places"][0];
    assert_eq!((&place["kind"], &place["at"]), (&"body".into(), &14.into()), "{report}");
    let told = audited(&proxy, &[]);
    assert!(told.contains("/country (route default): 2 of 2 hits differed"), "{told}");
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
    let usual = Proxy::embedded(&origin, "");
    (0..3).for_each(|_| drop(usual.get("/b").send()));
    assert_eq!(origin.count(), 2);
    assert!(audited(&usual, &[]).contains("set [cache] audit"));
}
