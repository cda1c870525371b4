//! Which visitors may share a page, past the rows of `table`: heads, changes, variants, and what is static.
//!
//! The leaks that must not happen are in `leak`.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::wait_until;

const MINT: &str = "session.mint = true";

on_both_stores!(
    a_head_is_answered_from_the_page_that_a_get_filled,
    a_page_is_fetched_again_after_a_change_to_it,
);

fn a_head_is_answered_from_the_page_that_a_get_filled(storage: &Storage) {
    let origin = Origin::always(Reply::html("welcome"));
    let proxy = Proxy::start(&origin, storage, "");
    // A HEAD does not wait for a page that has just arrived, and is still read by the leak guard.
    wait_until("the page is stored", || proxy.get("/").send().is_hit());

    let head = proxy.ask("HEAD", "/").send();

    assert!(head.is_hit(), "{}", head.cache_status());
    assert_eq!((head.header("content-length"), head.text()), (Some("7"), String::new()));
    assert_eq!(origin.count(), 1);
}

fn a_page_is_fetched_again_after_a_change_to_it(storage: &Storage) {
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

/// A page, or where the path says so a style sheet, that names in `Vary` what the proxy tells of visitors.
fn told(field: &'static str) -> Origin {
    shop(move |request| {
        let told = request.header(&field.to_lowercase()).unwrap_or("nothing");
        let reply = match request.path() {
            "/site.css" => Reply::typed("text/css", told).header("ETag", "\"1\""),
            _ => Reply::html(told),
        };
        reply.header("Cache-Control", "public, max-age=60").header("Vary", field)
    })
}

const WAYS: &str = "[[route]]\nmatch.path = \"/all\"\nshare = \"everyone\"\n\
                    [[route]]\nmatch.path = \"/public\"\ntrust_public = true";

#[test]
fn a_page_that_varies_by_the_user_field_is_shared_by_equal_fills() {
    for (field, hers, stranger) in
        [("X-Anteroom-User", "alice", "nothing"), ("X-Anteroom-Session", "known", "none")]
    {
        let origin = told(field);
        let proxy = Proxy::embedded(&origin, &format!("{MINT}\n{WAYS}"));
        let alice = log_in(&proxy, "alice");
        for target in ["/all", "/public", "/site.css"] {
            // She is the first, too: what was fetched for others is not hers.
            for _ in 0..2 {
                let answer = proxy.get(target).cookie(&alice).send();
                assert_eq!(answer.text(), hers, "{field} {target}: {}", answer.cache_status());
                assert_eq!(proxy.get(target).send().text(), stranger, "{field} {target}");
            }
            assert!(proxy.get(target).send().is_hit(), "{field} {target}");
        }
    }
}

#[test]
fn a_page_chosen_by_what_is_another_in_each_request_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "a key that two know\n").unwrap();
    let secret = format!("origin.secret = {{ file = {file:?} }}");
    for (field, settings) in [
        ("X-Forwarded-For", ""),
        ("Forwarded", "cache.fill_client_address = true"),
        ("Traceparent", ""),
        ("X-Anteroom-Signature", secret.as_str()),
    ] {
        let origin = told(field);
        let proxy = Proxy::embedded(&origin, settings);
        proxy.get("/").send();
        let again = proxy.get("/").send();
        assert!(!again.is_hit(), "{field}: {}", again.cache_status());
        assert!(again.cache_status().contains("vary"), "{field}: {}", again.cache_status());
    }
}

#[test]
fn a_page_that_clears_the_browser_s_memory_is_not_shared_unasked() {
    let origin = Origin::always(Reply::html("bye").header("Clear-Site-Data", "\"cookies\""));
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..2 {
        let answer = proxy.get("/").send();
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.header("clear-site-data"), Some("\"cookies\""));
    }
}

#[test]
fn a_page_keeps_its_meaning_when_a_reload_changes_what_is_ignored() {
    let origin =
        Origin::start(|request| Reply::html(&request.target).header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "cache.ignore_query = [\"a\"]");
    let shown = |target: &str| proxy.get(target).send().text();
    assert_eq!((shown("/p"), shown("/p?a=1")), ("/p".to_owned(), "/p".to_owned()));
    let reload = |from: &str, to: &str| {
        proxy.edit(|text| text.replace(from, to));
        assert!(proxy.reload(), "{}", proxy.complaints());
    };
    reload("[\"a\"]", "[]");
    assert_eq!((shown("/p"), shown("/p?a=1")), ("/p".to_owned(), "/p?a=1".to_owned()));
    reload("ignore_query = []", "ignore_query = [\"a\"]");
    assert_eq!((shown("/p"), shown("/p?a=1")), ("/p".to_owned(), "/p".to_owned()));
    assert_eq!(origin.count(), 2);
}
