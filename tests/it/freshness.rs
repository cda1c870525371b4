//! For how long a page is kept: the origin's word, its age, and what the client asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::wait_until;

on_both_stores!(a_page_that_was_old_already_is_kept_for_the_rest_of_its_life);

/// A page with these fields, asked for twice; the second answer.
fn second(fields: &[(&str, &str)]) -> Answer {
    let page = fields.iter().fold(Reply::html("a page"), |page, (n, v)| page.header(n, v));
    let origin = Origin::always(page);
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    proxy.get("/").send()
}

/// For how many seconds the page is still fresh, by the proxy's word.
fn ttl(answer: &Answer) -> i64 {
    let ttl = answer.cache_status().split("ttl=").nth(1).expect("a hit says its ttl");
    ttl.split(';').next().unwrap().trim().parse().unwrap()
}

fn age(answer: &Answer) -> u64 {
    answer.header("age").expect("a hit says its age").parse().unwrap()
}

fn a_page_that_was_old_already_is_kept_for_the_rest_of_its_life(storage: &Storage) {
    let page = Reply::html("x").header("Age", "100").header("Cache-Control", "max-age=300");
    let origin = Origin::always(page);
    let proxy = Proxy::start(&origin, storage, "");
    let first = proxy.get("/").send();

    let second = proxy.get("/").send();

    assert!(age(&first) >= 100, "{first:?}");
    assert!(second.is_hit() && ttl(&second) <= 200, "{}", second.cache_status());
    assert!(age(&second) >= 100 && age(&second).cast_signed() + ttl(&second) == 300, "{second:?}");
    assert_eq!(second.fields.all("age").count(), 1);
}

#[test]
fn a_page_older_than_its_life_is_not_kept() {
    let answer = second(&[("Age", "300"), ("Cache-Control", "max-age=300")]);
    assert!(!answer.is_hit(), "{}", answer.cache_status());
}

#[test]
fn a_page_received_too_old_is_kept_when_received_fresh() {
    let nth = AtomicUsize::new(0);
    let origin = Origin::start(move |_| {
        let age = if nth.fetch_add(1, Ordering::SeqCst) == 0 { "60" } else { "0" };
        Reply::html("x").header("Age", age).header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    assert!(!proxy.get("/").send().is_hit());
    wait_until("it is kept", || proxy.get("/").send().is_hit());
}

#[test]
fn without_a_default_the_origin_s_word_is_the_only_one() {
    let origin = Origin::start(|request| match request.path() {
        "/said" => Reply::html("x").header("Cache-Control", "max-age=60"),
        "/old" => Reply::html("x").header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        _ => Reply::html("x"),
    });
    let proxy = Proxy::embedded(&origin, "cache.default_ttl = \"0s\"");
    let [said, old, silent] = ["/said", "/old", "/silent"].map(|path| {
        proxy.get(path).send();
        proxy.get(path).send()
    });
    assert!(said.is_hit(), "{}", said.cache_status());
    // What has not changed for years will hold for minutes (RFC 9111 §4.2.2).
    assert!(old.is_hit() && ttl(&old) <= 300, "{}", old.cache_status());
    assert!(!silent.is_hit(), "{}", silent.cache_status());
}

#[test]
fn age_counts_against_the_default() {
    let answer = second(&[("Age", "100")]);
    assert!(answer.is_hit() && ttl(&answer) <= 200, "{}", answer.cache_status());
    assert!(age(&answer) >= 100, "{answer:?}");
    let answer = second(&[("Age", "4000")]);
    assert!(!answer.is_hit(), "{}", answer.cache_status());
    // It was made ahead, or its clock is late.
    let date = httpdate::fmt_http_date(origin_now() - Duration::from_secs(4_000));
    let answer = second(&[("Date", &date)]);
    assert!(answer.is_hit() && ttl(&answer) > 200, "{}", answer.cache_status());
    assert!(age(&answer) >= 4_000, "{answer:?}");
}

#[test]
fn s_maxage_is_meant_for_us_and_outweighs_max_age() {
    let long = second(&[("Cache-Control", "max-age=0, s-maxage=60")]);
    assert!(long.is_hit() && ttl(&long) <= 60, "{}", long.cache_status());
    let short = second(&[("Cache-Control", "max-age=60, s-maxage=0")]);
    assert!(!short.is_hit(), "{}", short.cache_status());
}

#[test]
fn expires_is_a_moment() {
    let now = origin_now();
    let date = httpdate::fmt_http_date(now);
    let [hour, past] = [now + Duration::from_secs(3_600), now - Duration::from_secs(60)]
        .map(httpdate::fmt_http_date);

    let answer = second(&[("Date", &date), ("Expires", &hour)]);
    assert!(answer.is_hit() && (3_500..=3_600).contains(&ttl(&answer)), "{answer:?}");
    for expires in [past.as_str(), "0", "soon"] {
        let answer = second(&[("Date", &date), ("Expires", expires)]);
        assert!(!answer.is_hit(), "{expires}: {}", answer.cache_status());
    }
}

#[expect(clippy::disallowed_methods, reason = "an origin tells the time")]
fn origin_now() -> SystemTime {
    SystemTime::now()
}

#[test]
fn an_expired_page_is_fetched_again() {
    let origin = Origin::always(Reply::html("x").header("Cache-Control", "max-age=1"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    wait_until("it is fetched again", || {
        let answer = proxy.get("/").send();
        assert!(age(&answer) <= 1, "{answer:?}");
        origin.count() >= 2
    });
}

#[test]
fn a_client_that_wants_nothing_stored_is_forwarded() {
    let origin = Origin::always(Reply::html("x").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    let wary = || proxy.get("/").header("Cache-Control", "no-store").send();

    wary();
    assert!(!proxy.get("/").send().is_hit(), "nothing of it was stored");
    assert!(!wary().is_hit());
    assert_eq!(origin.count(), 3);
    assert!(proxy.get("/").send().is_hit(), "others are served");
}

/// A client that wants data, where the app may send it something else under the same address.
const DATA: (&str, &str) = ("Accept", "application/json");

#[test]
fn the_answer_to_a_data_request_is_not_stored_by_default() {
    let origin =
        Origin::start(|request| Reply::html(request.header("accept").unwrap_or("anything")));
    let proxy = Proxy::embedded(&origin, "");
    let data = || proxy.get("/").header(DATA.0, DATA.1).send();

    assert_eq!(data().text(), DATA.1);
    assert_eq!(proxy.get("/").send().text(), "anything");
    let again = data();
    assert_eq!((again.text().as_str(), again.is_hit()), (DATA.1, false));
    assert!(again.cache_status().contains("accept"), "{}", again.cache_status());
}

#[test]
fn a_client_that_wants_data_does_not_keep_the_page_from_others() {
    let origin = Origin::always(Reply::html("a page"));
    let proxy = Proxy::embedded(&origin, "");

    proxy.get("/").header(DATA.0, DATA.1).send();
    proxy.get("/").send();

    let answer = proxy.get("/").send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
}

#[test]
fn a_lifetime_of_the_origin_s_is_for_clients_that_want_data_too() {
    let origin = Origin::always(Reply::html("x").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").header(DATA.0, DATA.1).send();
    assert!(proxy.get("/").header(DATA.0, DATA.1).send().is_hit());
}

#[test]
fn a_parameter_that_is_ignored_keeps_no_page_from_the_cache() {
    let origin = Origin::always(Reply::html("a page"));
    let proxy = Proxy::embedded(&origin, "cache.ignore_query = [\"state\"]");
    proxy.get("/?state=1").send();
    let answer = proxy.get("/?state=2").send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
}

#[test]
fn a_page_without_a_validator_gets_one_that_only_clients_see() {
    let page = Reply::html("a page").header("Cache-Control", "max-age=1, stale-if-error=0");
    let origin = Origin::start(move |request| match request.path() {
        "/" => page.clone(),
        _ => Reply::html("a page").header("Cache-Control", "private"),
    });
    let proxy = Proxy::embedded(&origin, "");
    let hit = || {
        proxy.get("/").send();
        proxy.get("/").send()
    };
    let mut answer = hit();
    wait_until("it is a hit", || {
        answer = hit();
        answer.is_hit()
    });
    let tag = answer.header("etag").expect("a stored page has a tag").to_owned();
    assert!(tag.starts_with('"'), "{tag}");
    wait_until("it is answered in short", || {
        proxy.get("/").send();
        let same = proxy.get("/").header("If-None-Match", &tag).send();
        same.status == 304 && same.header("etag") == Some(&tag) && same.body.bytes.is_empty()
    });
    wait_until("it is fetched anew", || {
        let fetched = origin.seen().iter().filter(|request| request.path() == "/").count();
        proxy.get("/").send();
        fetched > 2
    });
    assert!(origin.seen().iter().all(|request| request.header("if-none-match").is_none()));
    assert_eq!(proxy.get("/mine").send().header("etag"), None);
}
