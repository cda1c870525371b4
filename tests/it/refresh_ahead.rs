//! Popular pages are fetched again before they expire: without a miss, by one fetch, with nothing of the visitor
//! who caused it, and never against a purge.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::purge::purge;
use crate::support::at_once;
use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{wait_until, wait_within};

on_both_stores!(
    a_popular_page_is_neither_missed_nor_stale_for_ten_lifetimes,
    many_hits_cause_one_fetch,
    a_purge_outweighs_a_refresh_that_is_under_way,
);

const AHEAD: &str = "cache.refresh_ahead = true\n";
const REFRESHED: &str = "anteroom_pages_refreshed_ahead_total";
/// How many hits make a page popular.
const HITS: usize = 5;

/// A page in the last part of its lifetime, with forty seconds left.
fn due(body: &str) -> Reply {
    Reply::html(body).header("Cache-Control", "max-age=1000").header("Age", "960")
}

/// A page with most of its lifetime left.
fn young(body: &str) -> Reply {
    Reply::html(body).header("Cache-Control", "max-age=1000")
}

/// A page whose body is held back until the gate opens.
fn held(nth: usize, until: &Arc<Gate>) -> Reply {
    let head = Reply::status("200 OK").header("Content-Type", "text/html");
    let head = head.header("Cache-Control", "max-age=1000").header("Content-Length", "6");
    head.until(until).bytes(&format!("page {nth}"))
}

/// An origin whose first answer is due to be refreshed. `later` makes the others, by their number from 2.
fn due_first(later: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |_| match asked.fetch_add(1, Ordering::SeqCst) + 1 {
        1 => due("page 1"),
        nth => later(nth),
    })
}

fn is_fresh_hit(answer: &Answer) -> bool {
    answer.is_hit() && !answer.cache_status().contains("detail=stale")
}

/// Asks for the page until it is in memory, and then for `count` hits.
fn hit(proxy: &Proxy, count: usize) {
    wait_until("the page is kept", || proxy.metric("anteroom_pages_stored_total") > 0.0);
    for _ in 0..count {
        let answer = proxy.get("/").send();
        assert!(is_fresh_hit(&answer), "{}", answer.cache_status());
    }
}

fn a_popular_page_is_neither_missed_nor_stale_for_ten_lifetimes(storage: &Storage) {
    // Five seconds are left of each; it is due in the last three or four of them.
    let page = Reply::html("a page").header("Cache-Control", "max-age=40").header("Age", "35");
    let origin = Origin::always(page);
    let proxy = Proxy::start(&origin, storage, AHEAD);
    proxy.get("/").send();
    wait_until("the page is kept", || proxy.metric("anteroom_pages_stored_total") > 0.0);
    let mut client = proxy.connect();

    // Each is fetched again a second or two after it was stored.
    wait_within(Duration::from_secs(40), "the page was refreshed ten times", || {
        for _ in 0..HITS {
            let answer = proxy.get("/").send_on(&mut client);
            assert!(is_fresh_hit(&answer), "{}", answer.cache_status());
        }
        origin.count() > 10
    });

    wait_until("they are counted", || proxy.metric(REFRESHED) >= 9.0);
}

fn many_hits_cause_one_fetch(storage: &Storage) {
    let gate = Gate::closed();
    let until = Arc::clone(&gate);
    let origin = due_first(move |nth| held(nth, &until));
    let proxy = Proxy::start(&origin, storage, AHEAD);
    proxy.get("/").send();
    hit(&proxy, HITS);
    wait_until("the refresh is under way", || origin.count() == 2);

    let answers = at_once(10, |_| proxy.get("/").send());

    assert!(answers.iter().all(|answer| is_fresh_hit(answer) && answer.text() == "page 1"));
    assert_eq!(origin.count(), 2);
    gate.open();
    wait_until("the new page is served", || proxy.get("/").send().text() == "page 2");
    // The page is counted after it is stored.
    wait_until("the refresh is counted", || proxy.metric(REFRESHED) >= 1.0);
    assert_eq!(proxy.metric(REFRESHED), 1.0);
}

fn a_purge_outweighs_a_refresh_that_is_under_way(storage: &Storage) {
    let gate = Gate::closed();
    let until = Arc::clone(&gate);
    let origin = due_first(move |nth| match nth {
        2 => held(nth, &until),
        _ => young(&format!("page {nth}")),
    });
    let proxy = Proxy::start(&origin, storage, AHEAD);
    proxy.get("/").send();
    hit(&proxy, HITS);
    wait_until("the refresh is under way", || origin.count() == 2);

    purge(&proxy, &["--all", "--hard"]);
    gate.open();

    wait_until("the refresh is over", || origin.busy() == 0);
    let answers: Vec<_> = (0..HITS).map(|_| proxy.get("/").send()).collect();
    for answer in answers {
        assert_eq!(answer.text(), "page 3", "{}", answer.cache_status());
    }
}

#[test]
fn a_page_with_fewer_hits_is_left_to_expire() {
    let origin = due_first(|_| young("page 2"));
    let proxy = Proxy::embedded(&origin, AHEAD);
    proxy.get("/").send();
    hit(&proxy, HITS - 1);
    assert_eq!(origin.count(), 1);

    hit(&proxy, 1);

    wait_until("the new page is served", || proxy.get("/").send().text() == "page 2");
}

#[test]
fn a_new_lifetime_begins_without_hits() {
    let origin = due_first(|_| due("page 2"));
    let proxy = Proxy::embedded(&origin, AHEAD);
    proxy.get("/").send();
    hit(&proxy, HITS);
    wait_until("the page is refreshed", || proxy.metric(REFRESHED) == 1.0);

    hit(&proxy, HITS - 1);

    assert_eq!(origin.count(), 2, "the hits of the last lifetime count no more");
}

#[test]
fn pages_are_left_to_expire_unless_the_key_or_the_route_says_otherwise() {
    let origin = Origin::start(|_| due("a page"));
    let route = "[[route]]\nmatch.path = \"/ahead\"\nrefresh_ahead = true";
    let proxy = Proxy::embedded(&origin, route);
    for path in ["/", "/ahead"] {
        proxy.get(path).send();
        wait_until("the page is kept", || proxy.get(path).send().is_hit());
        (0..HITS).for_each(|_| drop(proxy.get(path).send()));
    }
    wait_until("the page of the route is refreshed", || proxy.metric(REFRESHED) >= 1.0);
    let asked_for = |path: &str| origin.seen().iter().filter(|one| one.path() == path).count();
    assert_eq!((asked_for("/"), asked_for("/ahead") >= 2), (1, true));
}

#[test]
fn a_refresh_carries_nothing_of_the_visitor_who_caused_it() {
    let origin = shop(|request| match request.path() {
        "/page" => due("a page"),
        _ => Reply::unstored("other"),
    });
    let settings = format!(
        "session.mint = true\n{AHEAD}[[route]]\nmatch.path = \"/page\"\nshare = \"everyone\"\nkey_cookies = [\"lang\"]"
    );
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let ask = || {
        let cookie = format!("{alice}; lang=de; name=alice-in-person");
        let ask = proxy.get("/page").header("Cookie", &cookie);
        let ask = ask.header("X-Person", "alice-in-person");
        ask.header("Authorization", "Basic YWxpY2UtaW4tcGVyc29u")
            .header("Accept-Language", "de")
            .send()
    };
    // A request with fields that a fill leaves out gets a page only from a fill of a stranger.
    let fill = proxy.get("/page").header("Cookie", "lang=de").header("Accept-Language", "de");
    fill.send();
    wait_until("the page is kept", || ask().is_hit());

    (0..HITS).for_each(|_| assert!(ask().is_hit()));

    wait_until("the page is refreshed", || proxy.metric(REFRESHED) >= 1.0);
    let seen: Vec<_> = origin.seen().into_iter().filter(|one| one.path() == "/page").collect();
    assert!(seen.len() >= 2);
    for request in &seen {
        assert_eq!(request.header("cookie"), Some("lang=de"));
        assert_eq!(request.header("x-anteroom-session"), Some("none"));
        let told = format!("{request:?}");
        let personal = ["alice", "login=", "YWxpY2UtaW4tcGVyc29u", "x-person", "authorization"];
        assert!(
            !personal.iter().any(|one| told.to_lowercase().contains(&one.to_lowercase())),
            "{told}"
        );
    }
}

#[test]
fn while_the_origin_fails_the_page_stays_and_the_origin_rests() {
    let origin = due_first(|_| Reply::status("500 Internal Server Error").body("down"));
    let proxy = Proxy::embedded(&origin, AHEAD);
    proxy.get("/").send();
    hit(&proxy, HITS);
    let failed = || proxy.metric("anteroom_pages_refresh_failed_total");
    wait_until("the refresh has failed", || failed() == 1.0);

    wait_until("the origin is spared", || {
        hit(&proxy, HITS);
        proxy.metric("anteroom_pages_refresh_skipped_total") > 0.0
    });

    assert_eq!(proxy.get("/").send().text(), "page 1");
}
