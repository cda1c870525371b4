//! After a purge the hottest pages are fetched again by themselves: no more than the key says, with nothing of a
//! visitor, and by the rules of every fill.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::purge::purge;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

on_both_stores!(the_hottest_pages_of_a_purge_are_fetched_again);

const WARMED: &str = "anteroom_pages_warmed_total";

fn page(request: &Request) -> Reply {
    let page = Reply::html(&request.target).header("Cache-Control", "max-age=1000");
    page.header("xkey", "shop")
}

/// Asks for a page until it is a hit, and then for more hits.
fn hit(proxy: &Proxy, path: &str, count: usize) {
    proxy.get(path).send();
    wait_until("the page is kept", || proxy.get(path).send().is_hit());
    (1..count).for_each(|_| assert!(proxy.get(path).send().is_hit()));
}

fn the_hottest_pages_of_a_purge_are_fetched_again(storage: &Storage) {
    for words in [&["--all", "--hard"][..], &["--tag", "shop"], &["--prefix", "/", "--hard"]] {
        let origin = Origin::start(page);
        // A page that comes from the store has no recipe, so each case has a store of its own.
        let own = match storage {
            Storage::Redis(_) => Storage::redis(),
            Storage::Embedded => Storage::Embedded,
        };
        let proxy = Proxy::start(&origin, &own, "cache.warm_after_purge = 2");
        [("/a", 20), ("/b", 60), ("/c", 40)]
            .iter()
            .for_each(|(path, hits)| hit(&proxy, path, *hits));
        let before = origin.count();

        purge(&proxy, words);

        wait_until("two pages are warm", || proxy.metric(WARMED) == 2.0);
        let mut asked: Vec<_> =
            origin.seen()[before..].iter().map(|request| request.target.clone()).collect();
        asked.sort();
        assert_eq!(asked, ["/b", "/c"], "{words:?}");
        wait_until("the page is kept", || proxy.get("/b").send().is_hit());
        let asked_again = origin.seen().iter().filter(|one| one.target == "/b").count();
        assert_eq!(asked_again, 2, "{words:?}");
    }
}

#[test]
fn without_the_key_a_purge_fetches_nothing() {
    let origin = Origin::start(page);
    let proxy = Proxy::embedded(&origin, "");
    hit(&proxy, "/a", 20);
    purge(&proxy, &["--all", "--hard"]);
    assert!(!proxy.get("/a").send().is_hit());
    assert_eq!((origin.count(), proxy.metric(WARMED)), (2, 0.0));
}

#[test]
fn a_recipe_has_nothing_of_the_visitor_for_whom_the_page_was_fetched() {
    let origin = shop(page);
    let settings = "session.mint = true\ncache.warm_after_purge = 5\n\
                    cache.fill_client_address = true\nclient.trusted_proxies = [\"127.0.0.0/8\"]\n\
                    [[route]]\nmatch.path = \"/page\"\nshare = \"everyone\"\nkey_cookies = [\"lang\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let alice = log_in(&proxy, "alice");
    let ask = || {
        let ask = proxy.get("/page?utm_source=alice-in-person&page=1");
        let ask = ask.header("Cookie", &format!("{alice}; lang=de; name=alice-in-person"));
        let ask = ask.header("X-Person", "alice-in-person").header("Referer", "/alice-in-person");
        let ask = ask.header("X-Forwarded-For", "192.0.2.77").header("Accept-Language", "de");
        ask.header("Authorization", "Basic YWxpY2UtaW4tcGVyc29u").send()
    };
    // The page is filled for a visitor without a login, and for alice's request likewise.
    ask();
    let fill =
        proxy.get("/page?page=1").header("Cookie", "lang=de").header("Accept-Language", "de");
    fill.send();
    wait_until("the page is kept", || ask().is_hit());
    let before = origin.count();

    purge(&proxy, &["--all", "--hard"]);

    wait_until("the page is warm", || proxy.metric(WARMED) == 1.0);
    let seen = origin.seen();
    let [request] = &seen[before..] else { panic!("one request: {seen:?}") };
    assert_eq!(request.target, "/page?page=1");
    assert_eq!(request.header("cookie"), Some("lang=de"));
    assert_eq!(request.header("accept-language"), Some("de"));
    let told = format!("{request:?}").to_lowercase();
    for personal in ["alice", "login=", "ywxpy2utaw4tcgvyc29u", "x-person", "referer", "192.0.2.77"]
    {
        assert!(!told.contains(personal), "{personal}: {told}");
    }
    wait_until("the page is kept", || ask().is_hit());
    assert_eq!(origin.count(), before + 1);
}

#[test]
fn a_response_to_somebody_is_not_kept_by_a_recipe() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => page(request),
        _ => page(request).header("Set-Cookie", "session=somebody"),
    });
    let proxy = Proxy::embedded(&origin, "cache.warm_after_purge = 5");
    hit(&proxy, "/a", 3);

    purge(&proxy, &["--all", "--hard"]);

    wait_until("it is refused", || proxy.metric("anteroom_pages_warm_failed_total") == 1.0);
    assert!(!proxy.get("/a").send().is_hit());
}
