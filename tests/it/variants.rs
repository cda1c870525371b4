//! Pages of which the app has several: by language, by coding; and how many of them are kept.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::wait_until;

on_both_stores!(each_language_is_a_hit_of_its_own, codings_split_a_page_in_four_at_most);

/// An origin whose pages tell what it was sent in the field that they vary by.
fn by(name: &'static str, control: &'static str) -> Origin {
    Origin::start(move |request| {
        let page = Reply::html(request.header(name).unwrap_or("none")).header("Vary", name);
        page.header("Cache-Control", control)
    })
}

fn each_language_is_a_hit_of_its_own(storage: &Storage) {
    let origin = by("accept-language", "max-age=60");
    let proxy = Proxy::start(&origin, storage, "");
    let page = |language: &str| proxy.get("/").header("Accept-Language", language).send();
    for language in ["de", "fr"] {
        page(language);
    }
    proxy.get("/").send();

    for (answer, text) in [(page("fr"), "fr"), (page("de"), "de"), (proxy.get("/").send(), "none")]
    {
        assert!(answer.is_hit(), "{text}: {}", answer.cache_status());
        assert_eq!(answer.text(), text);
    }
    assert_eq!(origin.count(), 3);
}

/// Pages go out in the codings in which they came.
const AS_IT_CAME: &str = "cache.compress = []";

fn codings_split_a_page_in_four_at_most(storage: &Storage) {
    let origin = by("accept-encoding", "max-age=60");
    let proxy = Proxy::start(&origin, storage, AS_IT_CAME);
    for (accepted, sent) in [
        ("gzip, deflate, br, zstd", "gzip, br"),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", "gzip, br"),
        ("gzip", "gzip"),
        ("GZIP;q=0.5", "gzip"),
        ("br", "br"),
        ("identity", "none"),
        ("deflate", "none"),
        ("gzip;q=0", "none"),
    ] {
        let answer = proxy.get("/").header("Accept-Encoding", accepted).send();
        assert_eq!(answer.text(), sent, "{accepted}");
    }
    assert_eq!(origin.count(), 4);
}

#[test]
fn a_coded_body_goes_only_to_clients_that_accept_it() {
    let origin = Origin::start(|request| match request.header("accept-encoding") {
        Some(_) => Reply::typed("text/css", "coded").header("Content-Encoding", "gzip"),
        None => Reply::typed("text/css", "plain"),
    });
    let proxy = Proxy::embedded(&origin, AS_IT_CAME);
    for _ in 0..2 {
        let coded = proxy.get("/a.css").header("Accept-Encoding", "gzip").send();
        assert_eq!(coded.text(), "coded");
        assert_eq!(proxy.get("/a.css").send().text(), "plain");
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn an_answer_for_one_site_s_scripts_is_not_given_to_another_s() {
    let origin = Origin::start(|request| {
        let page = Reply::typed("text/css", "body {}").header("Cache-Control", "max-age=60");
        match request.header("origin") {
            Some(site) => page.header("Access-Control-Allow-Origin", site),
            None => page,
        }
    });
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..2 {
        for site in ["https://a.test", "https://b.test"] {
            let answer = proxy.get("/a.css").header("Origin", site).send();
            assert_eq!(answer.header("access-control-allow-origin"), Some(site));
        }
    }
}

#[test]
fn at_its_limit_a_page_gets_no_more_variants_and_says_why() {
    let origin = by("accept-language", "max-age=60");
    let proxy = Proxy::embedded(&origin, "");
    let page = |number: usize| {
        let language = format!("x-{number}");
        let answer = proxy.get("/").header("Accept-Language", &language).send();
        assert_eq!(answer.text(), language);
        answer
    };
    for number in 1..=33 {
        page(number);
    }

    for number in 1..=32 {
        assert!(page(number).is_hit(), "{number}");
    }
    assert!(!page(33).is_hit());
    let refused = proxy.metric("anteroom_pages_refused_total{reason=\"variants\"}");
    assert!(refused >= 1.0, "{refused}");
}

#[test]
fn expired_variants_make_room() {
    let origin = by("accept-language", "max-age=1");
    let proxy = Proxy::embedded(&origin, "limits.variants = 2");
    let page = |language: &str| proxy.get("/").header("Accept-Language", language).send();
    for language in ["junk-1", "junk-2"] {
        page(language);
    }
    wait_until("another one is kept", || page("de").is_hit());
}
