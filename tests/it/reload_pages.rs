//! A reload that changes which pages a route stores, or for which visitors: pages of the old rules are not served.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

on_both_stores!(
    a_page_from_before_a_narrowing_stays_away_when_the_route_is_widened_again,
    a_page_for_everyone_is_not_served_after_a_restart_with_a_narrower_route,
);

/// The route of `/page`; the rest of its table follows.
const ROUTE: &str = "[[route]]\nmatch.path = \"/page\"\nttl = \"1h\"\n";

/// The pages that all apps have made: one Redis may be behind several of them.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// An app whose pages differ each time they are made, and where visitors can log in.
fn numbered() -> Origin {
    shop(move |_| Reply::html(&format!("page {}", MADE.fetch_add(1, Ordering::Relaxed))))
}

fn with_route(keys: &str) -> String {
    format!("session.mint = true\n{ROUTE}{keys}\n")
}

/// Replaces the keys of the route, or the whole route.
fn change(proxy: &Proxy, from: &str, to: &str) {
    proxy.edit(|text| {
        assert!(text.contains(from), "{text}");
        text.replace(from, to)
    });
    assert!(proxy.reload(), "{}", proxy.complaints());
}

/// Stores the page, and returns it.
#[track_caller]
fn stored(proxy: &Proxy, target: &str) -> String {
    let first = proxy.get(target).send().text();
    let second = proxy.get(target).send();
    assert!(second.is_hit() && second.text() == first, "{}", second.cache_status());
    first
}

#[track_caller]
fn assert_is_other(answer: &Answer, old: &str, when: &str) {
    assert_ne!(answer.text(), old, "{when}: {}", answer.cache_status());
}

fn a_page_from_before_a_narrowing_stays_away_when_the_route_is_widened_again(storage: &Storage) {
    let wide = "share = \"everyone\"";
    let whole = format!("{ROUTE}{wide}\n");
    let narrow = |share: &str| format!("{ROUTE}share = \"{share}\"\n");
    let narrower =
        ["anonymous", "user", "segment", "none"].map(|share| (share.to_owned(), narrow(share)));
    for (name, table) in narrower.into_iter().chain([("no route".into(), String::new())]) {
        let origin = numbered();
        let proxy = Proxy::start(&origin, storage, &with_route(wide));
        let ada = log_in(&proxy, "ada");
        let old = stored(&proxy, "/page");
        assert_eq!(proxy.get("/page").cookie(&ada).send().text(), old);

        change(&proxy, &whole, &format!("# here\n{table}"));
        assert_is_other(&proxy.get("/page").send(), &old, &format!("{name}, anonymous"));
        let hers = proxy.get("/page").cookie(&ada).send();
        assert_is_other(&hers, &old, &format!("{name}, with a login"));

        change(&proxy, &format!("# here\n{table}"), &whole);
        let again = proxy.get("/page").send();
        assert_is_other(&again, &old, &format!("{name}, widened again"));
        assert!(!again.is_hit(), "{name}: {}", again.cache_status());
        stored(&proxy, "/page");
    }
}

fn a_page_for_everyone_is_not_served_after_a_restart_with_a_narrower_route(storage: &Storage) {
    for share in ["anonymous", "user", "segment"] {
        let origin = numbered();
        let wide = "share = \"everyone\"";
        let mut proxy = Proxy::start(&origin, storage, &with_route(wide));
        let ada = log_in(&proxy, "ada");
        let old = stored(&proxy, "/page");
        proxy.edit(|text| text.replace(wide, &format!("share = \"{share}\"")));
        proxy.restart();
        assert_is_other(&proxy.get("/page").send(), &old, share);
        assert_is_other(&proxy.get("/page").cookie(&ada).send(), &old, share);
    }
}

#[test]
fn proxies_of_a_fleet_reload_one_after_another() {
    let (origin, storage) = (numbered(), Storage::redis());
    let (wide, narrow) = ("share = \"everyone\"", "share = \"user\"");
    let start = || Proxy::start(&origin, &storage, &with_route(wide));
    let (first, second) = (start(), start());
    let mut old = BTreeSet::from([stored(&first, "/page"), stored(&second, "/page")]);
    let is_old = |old: &BTreeSet<String>, proxy: &Proxy| {
        let answer = proxy.get("/page").send();
        old.contains(&answer.text())
    };

    change(&first, wide, narrow);
    assert!(!is_old(&old, &first), "narrowed");
    wait_until("the other proxy learns of it", || !is_old(&old, &second));
    old.insert(stored(&second, "/page"));
    assert!(!is_old(&old, &first), "what the old rules store meanwhile");

    change(&second, wide, narrow);
    for proxy in [&first, &second] {
        change(proxy, narrow, wide);
        assert!(!is_old(&old, proxy), "widened again");
    }
}

#[test]
fn a_page_of_weaker_checks_is_not_served_under_stricter_ones() {
    let guard = ("leak_guard = \"off\"", "leak_guard = \"full\"");
    let proof = ("segment_proof = \"none\"", "segment_proof = \"second_user\"");
    let strip = ("set_cookie = \"strip_for_anonymous\"", "set_cookie = \"keep\"");
    let removed = ("remove_headers = [\"X-A\"]", "remove_headers = [\"X-A\", \"X-B\"]");
    for (share, (weak, strict)) in
        [("everyone", guard), ("segment", proof), ("anonymous", strip), ("anonymous", removed)]
    {
        let origin = numbered();
        let proxy = Proxy::embedded(&origin, &with_route(&format!("share = \"{share}\"\n{weak}")));
        let ada = log_in(&proxy, "ada");
        let old = proxy.get("/page").cookie(&ada).send().text();
        let of_all = stored(&proxy, "/page");
        change(&proxy, weak, strict);
        assert_is_other(&proxy.get("/page").cookie(&ada).send(), &old, strict);
        assert_is_other(&proxy.get("/page").send(), &of_all, strict);
    }
}

#[test]
fn a_shorter_ttl_makes_pages_stale_and_a_longer_one_does_not() {
    for (key, long, short) in [("ttl", "2h", "1h"), ("override_ttl", "2h", "1h")] {
        let origin = numbered();
        let set = |ttl: &str| format!("{key} = \"{ttl}\"\n");
        let route = format!("[[route]]\nmatch.path = \"/page\"\n{}", set(long));
        let proxy = Proxy::embedded(&origin, &route);
        let old = stored(&proxy, "/page");
        change(&proxy, &set(long), &set(short));
        assert_is_other(&proxy.get("/page").send(), &old, key);
        let new = stored(&proxy, "/page");
        change(&proxy, &set(short), &set(long));
        assert_eq!(proxy.get("/page").send().text(), new);
    }
}

#[test]
fn pages_of_other_routes_and_reloads_that_change_no_rule_of_pages_leave_pages_alone() {
    let origin = numbered();
    let keys = "share = \"everyone\"";
    let proxy = Proxy::embedded(&origin, &with_route(keys));
    let (page, other) = (stored(&proxy, "/page"), stored(&proxy, "/other"));
    change(&proxy, keys, &format!("{keys}\naccess_log = false\nset_headers = {{ X-A = \"1\" }}"));
    let hit = proxy.get("/page").send();
    assert_eq!((hit.text(), hit.header("x-a")), (page.clone(), Some("1")));
    change(&proxy, keys, "share = \"user\"");
    assert_eq!(proxy.get("/other").send().text(), other);
    assert_is_other(&proxy.get("/page").send(), &page, "narrowed");
}
