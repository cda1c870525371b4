//! Pages that are stale, and what clients ask of pages that are not: the origin is asked whether a page
//! is right still, a stale one stands in while it fails, conditions and ranges are answered from the
//! cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::at_once;
use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::wait_until;

on_both_stores!(
    a_stale_page_is_validated_by_one_question,
    a_changed_page_takes_the_stale_one_s_place,
    a_stale_page_is_served_during_a_single_refetch,
    a_stale_page_stands_in_for_an_error,
);

const TAG: &str = "\"one\"";
const CHANGED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

/// Whether this is the question whether a page is right still.
fn is_question(request: &Request) -> bool {
    request.header("if-none-match").is_some() || request.header("if-modified-since").is_some()
}

/// A page that is stale when it comes, and is kept all the same: it has a validator.
fn stale(body: &str, control: &str) -> Reply {
    Reply::html(body).header("Age", "100").header("Cache-Control", control).header("ETag", TAG)
}

/// The origin's word that the page is right still.
fn unchanged(control: &str) -> Reply {
    Reply::status("304 Not Modified").header("ETag", TAG).header("Cache-Control", control)
}

/// A page that is stale when it comes, and what the origin answers when it is asked about it.
fn then(control: &'static str, answer: Reply) -> Origin {
    Origin::start(
        move |request| {
            if is_question(request) { answer.clone() } else { stale("a page", control) }
        },
    )
}

/// Asks for the page, and waits until the cache has it: that is after its last byte.
fn keep(proxy: &Proxy) {
    proxy.get("/").send();
    wait_until("the page is kept", || proxy.metric("anteroom_pages_stored_total") > 0.0);
}

/// A stale page that was served all the same.
fn is_stale_hit(answer: &Answer) -> bool {
    answer.is_hit() && answer.cache_status().contains("detail=stale")
}

fn a_stale_page_is_validated_by_one_question(storage: &Storage) {
    let origin = then("max-age=60", unchanged("max-age=60"));
    let proxy = Proxy::start(&origin, storage, "");
    keep(&proxy);

    let validated = proxy.get("/").send();

    assert_eq!((validated.status, validated.text().as_str()), (200, "a page"));
    let said = validated.cache_status();
    assert!(said.contains("fwd=stale") && said.contains("fwd-status=304"), "{said}");
    assert_eq!(origin.last().header("if-none-match"), Some(TAG));
    let hit = proxy.get("/").send();
    assert!(hit.is_hit() && !is_stale_hit(&hit), "{}", hit.cache_status());
    assert_eq!((hit.text().as_str(), origin.count()), ("a page", 2));
}

#[test]
fn a_stale_page_in_the_store_is_validated_by_a_proxy_that_never_saw_it() {
    let origin = then("max-age=60", unchanged("max-age=60"));
    let storage = Storage::redis();
    let first = Proxy::start(&origin, &storage, "");
    first.get("/").send();
    let Storage::Redis(server) = &storage else { return };
    wait_until("the page is in the store", || {
        !server.keys("cache:*").is_empty() && server.keys("lease:*").is_empty()
    });
    let second = Proxy::start(&origin, &storage, "");

    let answer = second.get("/").send();

    assert_eq!((answer.status, answer.text().as_str()), (200, "a page"));
    assert!(answer.cache_status().contains("fwd-status=304"), "{}", answer.cache_status());
    assert_eq!(origin.last().header("if-none-match"), Some(TAG));
}

#[test]
fn a_page_with_a_date_of_change_is_validated_by_that() {
    let origin = Origin::start(|request| {
        if is_question(request) {
            return Reply::status("304 Not Modified").header("Cache-Control", "max-age=60");
        }
        let page = Reply::html("a page").header("Age", "100").header("Last-Modified", CHANGED);
        page.header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    proxy.get("/").send();
    assert_eq!(origin.last().header("if-modified-since"), Some(CHANGED));
    assert!(proxy.get("/").send().is_hit());
}

fn a_changed_page_takes_the_stale_one_s_place(storage: &Storage) {
    let changed = Reply::html("anew").header("Cache-Control", "max-age=60");
    let origin = then("max-age=60", changed.header("ETag", "\"two\""));
    let proxy = Proxy::start(&origin, storage, "");
    keep(&proxy);

    let second = proxy.get("/").send();
    let third = proxy.get("/").send();

    assert_eq!((second.status, second.text().as_str()), (200, "anew"));
    assert!(second.cache_status().contains("fwd=stale"), "{}", second.cache_status());
    assert!(third.is_hit(), "{}", third.cache_status());
    assert_eq!((third.text().as_str(), origin.count()), ("anew", 2));
}

#[test]
fn many_requests_for_a_stale_page_cause_one_validation() {
    let gate = Gate::closed();
    let behind = Arc::clone(&gate);
    let origin = Origin::start(move |request| {
        if !is_question(request) {
            return stale("a page", "max-age=60");
        }
        behind.pass();
        unchanged("max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);

    let mut asked: Vec<_> = (0..5).map(|_| proxy.get("/").start()).collect();
    wait_until("the origin is asked", || origin.count() == 2);
    gate.open();

    for client in &mut asked {
        assert_eq!(client.answer().text(), "a page");
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_304_about_another_page_causes_a_full_fetch() {
    let asked = AtomicBool::new(false);
    let origin = Origin::start(move |request| {
        if is_question(request) {
            asked.store(true, Ordering::SeqCst);
            return Reply::status("304 Not Modified").header("ETag", "\"two\"");
        }
        let body = if asked.load(Ordering::SeqCst) { "anew" } else { "old" };
        stale(body, "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);

    let answer = proxy.get("/").send();

    assert_eq!((answer.status, answer.text().as_str()), (200, "anew"));
    assert!(!is_question(&origin.last()), "{:?}", origin.last());
}

#[test]
fn a_page_that_a_304_makes_personal_is_shared_no_more() {
    for (name, value) in [
        ("Cache-Control", "private"),
        ("Cache-Control", "no-store"),
        ("Set-Cookie", "a=b"),
        ("Vary", "*"),
    ] {
        let told = Reply::status("304 Not Modified").header("ETag", TAG).header(name, value);
        let origin = then("max-age=60", told);
        let proxy = Proxy::embedded(&origin, "");
        keep(&proxy);
        for _ in 0..2 {
            let answer = proxy.get("/").send();
            assert_eq!((answer.status, answer.text().as_str()), (200, "a page"), "{value}");
            assert!(!answer.is_hit(), "{value}: {}", answer.cache_status());
            assert!(!answer.cache_status().contains("fwd-status=304"), "{value}");
            assert_eq!(answer.header("set-cookie"), None);
        }
        let questions = origin.seen().iter().filter(|request| is_question(request)).count();
        assert_eq!(questions, 1, "{value}");
    }
}

#[test]
fn proxy_only_fields_of_a_304_are_not_shown() {
    let told = unchanged("max-age=60").header("Set-Cookie", "shelf=a").header("Age", "7");
    let origin = then("max-age=60", told.header("CDN-Cache-Control", "max-age=90"));
    let proxy =
        Proxy::embedded(&origin, "[[route]]\nmatch.path = \"/**\"\nstrip_set_cookie = [\"shelf\"]");
    keep(&proxy);
    for _ in 0..2 {
        let answer = proxy.get("/").send();
        assert!(answer.cache_status().contains("ttl=8"), "{}", answer.cache_status());
        assert_eq!(answer.header("set-cookie"), None);
        assert_eq!(answer.header("cdn-cache-control"), None);
        assert_eq!(answer.fields.all("age").count(), 1);
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_no_cache_page_is_validated_every_time() {
    for control in ["max-age=0", "no-cache", "max-age=60, no-cache", "s-maxage=0, max-age=60"] {
        let origin = Origin::start(move |request| {
            if is_question(request) {
                return unchanged(control);
            }
            Reply::html("a page").header("Cache-Control", control).header("ETag", TAG)
        });
        let proxy = Proxy::embedded(&origin, "");
        keep(&proxy);
        for nth in 2..=4 {
            let answer = proxy.get("/").send();
            assert_eq!((answer.status, answer.text().as_str()), (200, "a page"), "{control}");
            assert!(!answer.is_hit(), "{control}: {}", answer.cache_status());
            assert_eq!(origin.count(), nth, "{control}");
            assert!(is_question(&origin.last()), "{control}");
        }
    }
}

fn a_stale_page_is_served_during_a_single_refetch(storage: &Storage) {
    let gate = Gate::closed();
    let behind = Arc::clone(&gate);
    let origin = Origin::start(move |request| {
        if !is_question(request) {
            return stale("old", "max-age=60, stale-while-revalidate=600");
        }
        behind.pass();
        Reply::html("anew").header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::start(&origin, storage, "");
    keep(&proxy);

    for answer in at_once(5, |_| proxy.get("/").send()) {
        assert_eq!(answer.text(), "old");
        assert!(is_stale_hit(&answer), "{}", answer.cache_status());
    }
    wait_until("it is fetched anew", || origin.count() == 2);
    assert_eq!(proxy.get("/").send().text(), "old");
    gate.open();

    wait_until("the new page is served", || proxy.get("/").send().text() == "anew");
    assert!(proxy.get("/").send().is_hit());
    assert_eq!(origin.count(), 2);
}

#[test]
fn the_configuration_can_allow_stale_while_revalidate() {
    let origin = then("max-age=60", unchanged("max-age=60"));
    let proxy = Proxy::embedded(&origin, "cache.stale_while_revalidate = \"1h\"");
    keep(&proxy);
    let answer = proxy.get("/").send();
    assert!(is_stale_hit(&answer), "{}", answer.cache_status());
    wait_until("it is fresh", || !is_stale_hit(&proxy.get("/").send()));
    assert_eq!(origin.count(), 2);
}

fn a_stale_page_stands_in_for_an_error(storage: &Storage) {
    let origin = then("max-age=60", Reply::status("503 Service Unavailable").body("no"));
    let proxy = Proxy::start(&origin, storage, "");
    keep(&proxy);
    stands_in(&proxy);
}

/// The stale page is the answer, and is again.
fn stands_in(proxy: &Proxy) {
    for _ in 0..2 {
        let answer = proxy.get("/").send();
        assert_eq!((answer.status, answer.text().as_str()), (200, "a page"));
        assert!(is_stale_hit(&answer), "{}", answer.cache_status());
    }
}

#[test]
fn a_stale_page_stands_in_for_an_origin_that_is_gone() {
    let origin = then("max-age=60", unchanged("max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    drop(origin);
    stands_in(&proxy);
}

#[test]
fn a_stale_page_stands_in_for_one_that_breaks_off() {
    for kind in ["text/html", "text/plain"] {
        let broken = Reply::status("200 OK").header("Content-Type", kind);
        let broken = broken.header("Cache-Control", "max-age=60").header("Content-Length", "100");
        let origin = then("max-age=60", broken.bytes("half of").closing());
        let proxy = Proxy::embedded(&origin, "");
        keep(&proxy);
        stands_in(&proxy);
    }
}

#[test]
fn a_stale_page_stands_in_for_an_origin_that_says_nothing() {
    let origin = then("max-age=60", Reply::silence());
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    stands_in(&proxy);
    assert!(origin.count() > 1);
}

#[test]
fn an_origin_that_recovers_is_heard() {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    let origin = Origin::start(move |request| match is_question(request) {
        true if failing.load(Ordering::SeqCst) => Reply::status("500 Oops").body("no"),
        true => unchanged("max-age=60"),
        false => stale("a page", "max-age=60"),
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    stands_in(&proxy);
    fails.store(false, Ordering::SeqCst);
    wait_until("the page is fresh", || {
        let answer = proxy.get("/").send();
        assert_eq!(answer.text(), "a page");
        answer.is_hit() && !is_stale_hit(&answer)
    });
}

#[test]
fn no_stale_page_stands_in_where_the_origin_forbids_it() {
    for forbids in ["must-revalidate", "proxy-revalidate", "no-cache", "s-maxage=60"] {
        for (failure, status) in
            [(Reply::status("503 Service Unavailable").body("no"), 503), (Reply::nothing(), 502)]
        {
            let (is_first, page) =
                (AtomicBool::new(true), stale("a page", &format!("max-age=60, {forbids}")));
            let origin = Origin::start(move |_| {
                let is_first = is_first.swap(false, Ordering::SeqCst);
                if is_first { page.clone() } else { failure.clone() }
            });
            let proxy = Proxy::embedded(&origin, "cache.stale_while_revalidate = \"1h\"");
            keep(&proxy);
            for _ in 0..2 {
                let answer = proxy.get("/").send();
                assert_eq!(answer.status, status, "{forbids}: {}", answer.cache_status());
            }
        }
    }
}

#[test]
fn without_leave_no_stale_page_stands_in() {
    let failure = Reply::status("503 Service Unavailable").body("no");
    for (control, setting) in
        [("max-age=60, stale-if-error=0", ""), ("max-age=60", "cache.stale_if_error = \"0s\"")]
    {
        let origin = then(control, failure.clone());
        let proxy = Proxy::embedded(&origin, setting);
        keep(&proxy);
        assert_eq!(proxy.get("/").send().status, 503, "{control} {setting}");
    }
}

/// Ten bytes with a tag and a date, in the cache.
fn digits() -> (Origin, Proxy) {
    let page = Reply::typed("text/plain", "0123456789").header("Cache-Control", "max-age=60");
    let origin = Origin::always(page.header("ETag", TAG).header("Last-Modified", CHANGED));
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    (origin, proxy)
}

#[test]
fn a_client_that_has_the_page_is_told_so_from_the_cache() {
    let (origin, proxy) = digits();
    let (none_match, since) = ("If-None-Match", "If-Modified-Since");
    for (fields, status) in [
        (vec![(none_match, TAG)], 304),
        (vec![(none_match, "\"zero\", W/\"one\"")], 304),
        (vec![(none_match, "*")], 304),
        (vec![(none_match, "\"two\"")], 200),
        (vec![(since, CHANGED)], 304),
        (vec![(since, EARLIER)], 200),
        (vec![(since, "soon")], 200),
        // The tag outweighs the date.
        (vec![(none_match, "\"two\""), (since, CHANGED)], 200),
        (vec![(none_match, TAG), (since, EARLIER)], 304),
        // And both outweigh a range.
        (vec![(none_match, TAG), ("Range", "bytes=0-1")], 304),
    ] {
        for method in ["GET", "HEAD"] {
            let ask = proxy.ask(method, "/");
            let answer = fields.iter().fold(ask, |ask, (n, v)| ask.header(n, v)).send();
            assert_eq!(answer.status, status, "{method} {fields:?}");
            assert!(answer.is_hit(), "{method} {fields:?}: {}", answer.cache_status());
            assert_eq!(answer.header("etag"), Some(TAG));
            let has_body = status == 200 && method == "GET";
            assert_eq!(answer.text(), if has_body { "0123456789" } else { "" });
        }
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn preconditions_for_the_origin_are_forwarded() {
    let (origin, proxy) = digits();
    for (name, value) in [("If-Match", TAG), ("If-Unmodified-Since", CHANGED)] {
        let answer = proxy.get("/").header(name, value).send();
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        assert!(answer.cache_status().contains("fwd=request"), "{}", answer.cache_status());
        assert_eq!(origin.last().header(name), Some(value));
    }
}

#[test]
fn a_part_is_cut_from_the_page_in_the_cache() {
    let (origin, proxy) = digits();
    for (range, body, there) in [
        ("bytes=0-1", "01", "bytes 0-1/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-30", "0123456789", "bytes 0-9/10"),
        ("bytes=8-100", "89", "bytes 8-9/10"),
    ] {
        let answer = proxy.get("/").header("Range", range).send();
        assert_eq!((answer.status, answer.text().as_str()), (206, body), "{range}");
        assert_eq!(answer.header("content-range"), Some(there), "{range}");
        let length = body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(length.as_str()), "{range}");
        assert_eq!(answer.header("etag"), Some(TAG));
        assert!(answer.is_hit(), "{range}: {}", answer.cache_status());
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn several_parts_come_in_one_body() {
    let page = Reply::typed("text/plain", &format!("ab{}yz", "-".repeat(996)));
    let origin = Origin::always(page.header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);

    let answer = proxy.get("/").header("Range", "bytes=0-1,-2").send();

    let kind = answer.header("content-type").unwrap_or_default();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").expect(kind);
    let text = answer.text();
    let parts: Vec<_> = text.split(&format!("--{}", boundary.trim_matches('"'))).collect();
    assert_eq!((answer.status, parts.len()), (206, 4), "{text}");
    for (part, there, body) in
        [(parts[1], "bytes 0-1/1000", "ab"), (parts[2], "bytes 998-999/1000", "yz")]
    {
        let head = part.to_ascii_lowercase();
        assert!(head.contains("content-type: text/plain\r\n"), "{text}");
        assert!(head.contains(&format!("content-range: {there}\r\n")), "{text}");
        assert!(part.ends_with(&format!("\r\n\r\n{body}\r\n")), "{text}");
    }
    assert_eq!(parts[3].trim_end(), "--", "{text}");
    assert_eq!(answer.header("content-range"), None);
    assert!(answer.body.whole && answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_part_that_is_not_there_is_refused() {
    let (origin, proxy) = digits();
    let answer = proxy.get("/").header("Range", "bytes=10-20").send();
    assert_eq!((answer.status, answer.text().as_str()), (416, ""));
    assert_eq!(answer.header("content-range"), Some("bytes */10"));
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(origin.count(), 1);
}

#[test]
fn the_whole_page_comes_where_no_part_is_due() {
    let (origin, proxy) = digits();
    for fields in [
        vec![("Range", "bytes=0-1"), ("If-Range", "\"two\"")],
        vec![("Range", "bytes=0-1"), ("If-Range", "W/\"one\"")],
        vec![("Range", "bytes=0-1"), ("If-Range", EARLIER)],
        vec![("Range", "bytes=10-20"), ("If-Range", "\"two\"")],
        vec![("Range", "letters=0-1")],
        vec![("Range", "bytes=2-1")],
    ] {
        let answer = fields.iter().fold(proxy.get("/"), |ask, (n, v)| ask.header(n, v)).send();
        assert_eq!((answer.status, answer.text().as_str()), (200, "0123456789"), "{fields:?}");
    }
    let matches = proxy.get("/").header("Range", "bytes=0-1").header("If-Range", TAG).send();
    assert_eq!((matches.status, matches.text().as_str()), (206, "01"));
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_head_is_answered_from_the_page_in_the_cache() {
    let (origin, proxy) = digits();
    for range in ["", "bytes=0-1"] {
        let answer = proxy.ask("HEAD", "/").header("Range", range).send();
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("10")));
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.body.length, 0);
    }
    assert_eq!(origin.count(), 1);
}

#[test]
fn cdn_cache_control_takes_precedence_and_is_not_forwarded() {
    for (to_us, to_all, is_kept) in [
        ("max-age=60", "no-store", true),
        ("max-age=60", "max-age=0", true),
        ("no-store", "max-age=60", false),
        ("private", "public, max-age=60", false),
    ] {
        let page = Reply::html("a page").header("CDN-Cache-Control", to_us);
        let origin = Origin::always(page.header("Cache-Control", to_all));
        let proxy = Proxy::embedded(&origin, "");
        let answers = [proxy.get("/").send(), proxy.get("/").send()];
        assert_eq!(answers[1].is_hit(), is_kept, "{to_us}: {}", answers[1].cache_status());
        for answer in answers.iter().filter(|_| is_kept) {
            assert_eq!(answer.header("cdn-cache-control"), None);
            assert_eq!(answer.header("cache-control"), Some(to_all));
        }
    }
}

#[test]
fn where_public_is_believed_it_holds_for_logins_and_for_strangers() {
    let origin = Origin::start(|request| {
        let page =
            Reply::html(if request.header("authorization").is_some() { "yes" } else { "no" });
        let control = if request.path() == "/public" { "public, max-age=60" } else { "max-age=60" };
        page.header("Cache-Control", control)
    });
    let proxy = Proxy::embedded(&origin, "cache.trust_public = true");
    let [ann, bob] = ["Basic YW5uOg==", "Basic Ym9iOg=="];

    let first = proxy.get("/public").header("Authorization", ann).send();
    assert_eq!((first.text().as_str(), first.is_hit()), ("yes", false));
    let second = proxy.get("/public").header("Authorization", bob).send();
    let stranger = proxy.get("/public").send();
    for answer in [second, stranger] {
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), "yes");
    }

    for authorization in [ann, bob] {
        let answer = proxy.get("/less").header("Authorization", authorization).send();
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), "yes");
    }
    let stranger = proxy.get("/less").send();
    assert_eq!((stranger.text().as_str(), stranger.is_hit()), ("no", false));
}

#[test]
fn a_stored_page_is_not_used_for_a_request_with_authorization() {
    let (origin, proxy) = digits();
    let answer = proxy.get("/").header("Authorization", "Basic YW5uOg==").send();
    assert!(!answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(origin.last().header("authorization"), Some("Basic YW5uOg=="));
}

#[test]
fn a_304_that_makes_a_page_html_has_the_guard_read_it() {
    const FORM: &str = "<form><input type=hidden name=csrf_token value=ABC></form>";
    let origin = Origin::start(|request| {
        if is_question(request) {
            return unchanged("max-age=60").header("Content-Type", "text/html");
        }
        let page = Reply::typed("text/plain", FORM).header("Age", "100").header("ETag", TAG);
        page.header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    for _ in 0..3 {
        let answer = proxy.get("/").send();
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
}

#[test]
fn an_unstored_answer_ends_the_stale_page() {
    let deleted = Arc::new(AtomicBool::new(false));
    let is_deleted = Arc::clone(&deleted);
    let origin = Origin::start(move |_| match is_deleted.load(Ordering::SeqCst) {
        false => stale("old", "max-age=60, stale-while-revalidate=3600"),
        true => Reply::status("404 Not Found").header("Cache-Control", "no-store").body("gone"),
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    assert!(is_stale_hit(&proxy.get("/").send()));
    deleted.store(true, Ordering::SeqCst);
    wait_until("it is not served any more", || proxy.get("/").send().status == 404);
    wait_until("it is forgotten", || proxy.metric("anteroom_memory_pages") == 0.0);
}

#[test]
fn a_304_leaves_what_was_said_to_caches_like_us() {
    let origin = Origin::start(|request| {
        if is_question(request) {
            return Reply::status("304 Not Modified").header("ETag", TAG);
        }
        let page =
            Reply::html("a page").header("ETag", TAG).header("CDN-Cache-Control", "no-cache");
        page.header("Cache-Control", "max-age=86400")
    });
    let proxy = Proxy::embedded(&origin, "");
    keep(&proxy);
    for _ in 0..3 {
        let answer = proxy.get("/").send();
        let said = answer.cache_status();
        assert!(said.contains("fwd-status=304"), "{said}");
        assert_eq!(answer.header("cdn-cache-control"), None);
    }
}

#[test]
fn a_page_without_a_lifetime_is_never_served_stale() {
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::clone(&fails);
    let origin = Origin::start(move |_| match is_failing.load(Ordering::SeqCst) {
        false => Reply::typed("application/json", "{}").header("ETag", TAG),
        true => Reply::status("503 Service Unavailable").body("later"),
    });
    let settings = "cache.default_ttl = \"0s\"\ncache.stale_while_revalidate = \"60s\"";
    let proxy = Proxy::embedded(&origin, settings);
    keep(&proxy);
    assert!(!is_stale_hit(&proxy.get("/").send()));
    fails.store(true, Ordering::SeqCst);
    assert_eq!(proxy.get("/").send().status, 503);
}
