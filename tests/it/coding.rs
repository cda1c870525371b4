//! Compression: a page is stored once and goes out in the coding that each visitor takes.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crate::support::client::{Answer, Ask};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::{at_once, unix_now, wait_until};

on_both_stores!(
    a_plain_page_is_stored_once_and_compressed_for_each,
    a_compressed_page_is_stored_once_and_decoded_for_other_clients,
    a_large_page_is_compressed_behind_the_first_answers,
    a_cold_page_is_fetched_once_for_visitors_of_all_codings,
    a_changed_page_is_changed_in_every_coding,
);

/// Every `Accept-Encoding` with the coding that it is answered in where nothing is coded yet.
const ASKED: [(Option<&str>, Option<&str>); 8] = [
    (None, None),
    (Some("identity"), None),
    (Some("deflate"), None),
    (Some("gzip"), Some("gzip")),
    (Some("br"), Some("br")),
    (Some("zstd"), Some("zstd")),
    (Some("gzip, deflate, br, zstd"), Some("zstd")),
    (Some("br;q=0.5, gzip;q=0.8, zstd;q=0"), Some("gzip")),
];

fn text(paragraphs: usize) -> String {
    (0..paragraphs).map(|number| format!("<p>Paragraph number {number}</p>\n")).collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(text.as_bytes()).unwrap();
    coder.finish().unwrap()
}

fn html(text: &str) -> Reply {
    Reply::html(text).header("Cache-Control", "max-age=60").header("ETag", "\"one\"")
}

fn gzipped(text: &str) -> Reply {
    Reply::status("200 OK")
        .header("Content-Type", "text/html")
        .header("Content-Encoding", "gzip")
        .header("Cache-Control", "max-age=60")
        .header("ETag", "\"one\"")
        .body(gzip(text))
}

fn get(proxy: &Proxy, accepted: Option<&str>) -> Answer {
    let ask = proxy.get("/");
    accepted
        .map_or_else(|| ask.clone(), |value| ask.clone().header("Accept-Encoding", value))
        .send()
}

/// The body as a client reads it.
fn read(answer: &Answer) -> String {
    let body = answer.body.bytes.as_slice();
    let mut reader: Box<dyn Read + '_> = match answer.header("content-encoding") {
        None => Box::new(body),
        Some("gzip") => Box::new(flate2::read::GzDecoder::new(body)),
        Some("br") => Box::new(brotli::Decompressor::new(body, 4_096)),
        Some("zstd") => Box::new(zstd::stream::read::Decoder::new(body).unwrap()),
        Some(other) => panic!("{other} was not requested"),
    };
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    text
}

fn varies(answer: &Answer) -> Vec<&str> {
    answer.fields.all("vary").collect()
}

fn a_plain_page_is_stored_once_and_compressed_for_each(storage: &Storage) {
    let page = text(400);
    let origin = Origin::always(html(&page).header("Vary", "Accept-Encoding"));
    let proxy = Proxy::start(&origin, storage, "");
    for round in 0..2 {
        for (accepted, expected) in ASKED {
            let answer = get(&proxy, accepted);
            let expected = expected.filter(|_| answer.is_hit());
            assert_eq!(answer.header("content-encoding"), expected, "{accepted:?}");
            assert_eq!(read(&answer), page, "{accepted:?}");
            assert_eq!(varies(&answer), ["Accept-Encoding"], "{accepted:?}");
            let tag = if expected.is_some() { "W/\"one\"" } else { "\"one\"" };
            assert_eq!(answer.header("etag"), Some(tag), "{accepted:?}");
            assert!(expected.is_none() || answer.body.bytes.len() < page.len() / 3);
            assert!(round == 0 || answer.is_hit(), "{}", answer.cache_status());
        }
    }
    assert_eq!(origin.count(), 1);
    // The first client reads none.
    assert_eq!(origin.last().header("accept-encoding"), None);
}

fn a_compressed_page_is_stored_once_and_decoded_for_other_clients(storage: &Storage) {
    let page = text(400);
    let origin = Origin::always(gzipped(&page));
    let proxy = Proxy::start(&origin, storage, "");
    for _ in 0..2 {
        for (accepted, expected) in ASKED {
            let answer = get(&proxy, accepted);
            let is_stored = accepted.is_some_and(|accepted| accepted.contains("gzip"));
            let expected = if is_stored { Some("gzip") } else { expected };
            assert_eq!(answer.header("content-encoding"), expected, "{accepted:?}");
            assert_eq!(read(&answer), page, "{accepted:?}");
            assert_eq!(varies(&answer), ["Accept-Encoding"], "{accepted:?}");
            let tag = if is_stored { "\"one\"" } else { "W/\"one\"" };
            assert_eq!(answer.header("etag"), Some(tag), "{accepted:?}");
        }
    }
    assert_eq!(origin.count(), 1, "not even the first visitor, without any coding, asks twice");
}

fn a_large_page_is_compressed_behind_the_first_answers(storage: &Storage) {
    let page = text(20_000);
    let origin = Origin::always(html(&page));
    let proxy = Proxy::start(&origin, storage, "");
    for answer in at_once(4, |_| get(&proxy, Some("br"))) {
        assert_eq!(read(&answer), page);
    }
    wait_until("the page is compressed", || {
        let answer = get(&proxy, Some("br"));
        assert_eq!(read(&answer), page);
        answer.header("content-encoding") == Some("br")
    });
    assert_eq!(origin.count(), 1);
}

fn a_cold_page_is_fetched_once_for_visitors_of_all_codings(storage: &Storage) {
    let page = text(400);
    let origin = Origin::always(gzipped(&page).after(Duration::from_millis(300)));
    let proxy = Proxy::start(&origin, storage, "");
    for answer in at_once(16, |number| get(&proxy, ASKED[number % ASKED.len()].0)) {
        assert_eq!(read(&answer), page);
    }
    assert_eq!(origin.count(), 1);
}

fn a_changed_page_is_changed_in_every_coding(storage: &Storage) {
    let version = AtomicUsize::new(400);
    let origin = Origin::start(move |request| match request.method.as_str() {
        "GET" => html(&text(version.load(Ordering::SeqCst))),
        _ => {
            version.fetch_add(1, Ordering::SeqCst);
            Reply::status("303 See Other").body("")
        }
    });
    let proxy = Proxy::start(&origin, storage, "");
    for paragraphs in 400..403 {
        for _ in 0..2 {
            for (accepted, _) in ASKED {
                assert_eq!(read(&get(&proxy, accepted)), text(paragraphs), "{accepted:?}");
            }
        }
        proxy.post("/").send();
    }
}

#[test]
fn a_page_stored_by_one_proxy_is_recoded_by_another() {
    let page = text(400);
    let origin = Origin::always(gzipped(&page));
    let storage = Storage::redis();
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, ""));
    get(&one, Some("gzip"));
    let Storage::Redis(server) = &storage else { panic!("this case is about Redis") };
    wait_until("page and index are in redis", || server.keys("cache:*").len() == 2);
    for accepted in [None, Some("zstd"), Some("gzip")] {
        let answer = get(&other, accepted);
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(read(&answer), page);
    }
    assert_eq!((origin.count(), server.keys("cache:*").len()), (1, 2));
}

#[test]
fn a_condition_is_met_in_every_coding() {
    let origin = Origin::always(html(&text(400)));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    for tag in ["\"one\"", "W/\"one\"", "\"other\", W/\"one\""] {
        for (accepted, expected) in [("identity", "\"one\""), ("gzip", "W/\"one\"")] {
            let ask = proxy.get("/").header("Accept-Encoding", accepted);
            let answer = ask.header("If-None-Match", tag).send();
            assert_eq!(answer.status, 304, "{accepted} {tag}");
            assert_eq!(answer.header("etag"), Some(expected), "{accepted} {tag}");
            assert_eq!(answer.header("content-encoding"), None);
            assert_eq!(varies(&answer), ["Accept-Encoding"]);
        }
    }
    let ask = proxy.get("/").header("Accept-Encoding", "gzip");
    assert_eq!(ask.header("If-None-Match", "\"two\"").send().status, 200);
}

#[test]
fn parts_are_cut_from_what_is_stored() {
    let page = text(400);
    let plain = page.clone();
    let changed = "Sun, 06 Nov 1994 08:49:37 GMT";
    let origin = Origin::always(html(&plain).header("Last-Modified", changed));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    let part = |lines: &[(&str, &str)]| {
        let ask = proxy.get("/").header("Accept-Encoding", "gzip").header("Range", "bytes=3-11");
        lines.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send()
    };
    for lines in [&[][..], &[("If-Range", "\"one\"")]] {
        let answer = part(lines);
        assert_eq!((answer.status, answer.text().as_str()), (206, &page[3..12]), "{lines:?}");
        assert_eq!(answer.header("content-encoding"), None);
        assert_eq!(answer.header("etag"), Some("\"one\""));
        assert_eq!(varies(&answer), ["Accept-Encoding"]);
    }
    // The client's start of it may be that of a compressed one.
    for if_range in ["W/\"one\"", changed] {
        let answer = part(&[("If-Range", if_range)]);
        assert_eq!((answer.status, read(&answer)), (200, page.clone()), "{if_range}");
    }
}

#[test]
fn a_date_in_if_range_counts_for_clients_that_are_always_sent_plain_text() {
    let changed = "Sun, 06 Nov 1994 08:49:37 GMT";
    let page = text(400);
    let (plain, coded) = (html(&page), gzipped(&page));
    let origin = Origin::start(move |request| {
        let page = if request.path() == "/coded" { &coded } else { &plain };
        let now = UNIX_EPOCH + Duration::from_secs_f64(unix_now());
        page.clone().header("Last-Modified", changed).header("Date", &httpdate::fmt_http_date(now))
    });
    let proxy = Proxy::embedded(&origin, "");
    for (path, accepted, expected) in [
        ("/plain", None, Some(&page.as_bytes()[3..12])),
        ("/plain", Some("identity;q=1, *;q=0"), Some(&page.as_bytes()[3..12])),
        ("/plain", Some("gzip"), None),
        // An app may code the same page in another way a moment later.
        ("/coded", Some("gzip"), None),
        ("/coded", Some("br"), None),
        ("/coded", None, None),
    ] {
        // It is stored, and known in this coding.
        for _ in 0..2 {
            accepting(&proxy, path, accepted).send();
        }
        let ask = accepting(&proxy, path, accepted).header("Range", "bytes=3-11");
        let answer = ask.clone().header("If-Range", changed).send();
        match expected {
            Some(part) => assert_eq!((answer.status, &answer.body.bytes[..]), (206, part)),
            None => assert_eq!((answer.status, read(&answer)), (200, page.clone()), "{path}"),
        }
        let other = ask.header("If-Range", "Sun, 06 Nov 1994 08:49:36 GMT").send();
        assert_eq!(other.status, 200, "{path} {accepted:?}");
    }
}

/// A request for a page in these codings.
fn accepting(proxy: &Proxy, path: &str, codings: Option<&str>) -> Ask {
    let ask = proxy.get(path);
    codings.iter().fold(ask, |ask, codings| ask.header("Accept-Encoding", codings))
}

#[test]
fn ranges_of_a_compressed_page_go_to_clients_that_accept_its_coding() {
    let page = text(400);
    let coded = gzip(&page);
    let origin = Origin::always(gzipped(&page));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    let part = |accepted: &str| {
        let ask = proxy.get("/").header("Accept-Encoding", accepted);
        ask.header("Range", "bytes=0-9").send()
    };
    let answer = part("gzip");
    assert_eq!((answer.status, answer.header("content-encoding")), (206, Some("gzip")));
    assert_eq!(answer.body.bytes, &coded[..10]);
    for accepted in ["identity", "br"] {
        let answer = part(accepted);
        assert_eq!((answer.status, read(&answer)), (200, page.clone()), "{accepted}");
    }
}

#[test]
fn a_head_is_answered_with_the_fields_of_the_get() {
    let origin = Origin::always(html(&text(400)));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    for accepted in ["identity", "gzip", "br", "zstd"] {
        let get = get(&proxy, Some(accepted));
        let head = proxy.ask("HEAD", "/").header("Accept-Encoding", accepted).send();
        for name in ["content-encoding", "content-length", "etag", "vary", "content-type"] {
            assert_eq!(head.header(name), get.header(name), "{accepted} {name}");
        }
        assert_eq!(head.header("content-length"), Some(&*get.body.bytes.len().to_string()));
        assert!(head.body.bytes.is_empty());
    }
}

#[test]
fn a_no_transform_page_is_sent_as_received() {
    let page = text(400);
    let (plain, coded) = (html(&page), gzipped(&page));
    let fixed = |reply: Reply| reply.header("Cache-Control", "no-transform");
    let (plain, coded) = (fixed(plain), fixed(coded));
    let origin = Origin::start(move |request: &Request| match request.path() {
        "/coded" if request.header("accept-encoding").is_some_and(|it| it.contains("gzip")) => {
            coded.clone()
        }
        _ => plain.clone(),
    });
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..2 {
        for accepted in ["gzip", "br", "identity"] {
            for path in ["/plain", "/coded"] {
                let answer = proxy.get(path).header("Accept-Encoding", accepted).send();
                let expected = (path == "/coded" && accepted == "gzip").then_some("gzip");
                assert_eq!(answer.header("content-encoding"), expected, "{path} {accepted}");
                assert_eq!(answer.header("etag"), Some("\"one\""));
                assert_eq!(read(&answer), page);
            }
        }
    }
    assert!(proxy.get("/coded").header("Accept-Encoding", "gzip").send().is_hit());
    assert!(proxy.get("/plain").header("Accept-Encoding", "gzip").send().is_hit());
}

#[test]
fn small_pages_and_images_are_not_compressed() {
    let (small, image) = (html("<p>small</p>"), text(400));
    let image = Reply::typed("image/png", &image).header("Cache-Control", "max-age=60");
    let origin =
        Origin::start(
            move |request: &Request| {
                if request.path() == "/small" { small.clone() } else { image.clone() }
            },
        );
    let proxy = Proxy::embedded(&origin, "");
    for (path, varied) in [("/small", &["Accept-Encoding"][..]), ("/image", &[])] {
        proxy.get(path).send();
        let answer = proxy.get(path).header("Accept-Encoding", "gzip, br, zstd").send();
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.header("content-encoding"), None, "{path}");
        assert_eq!(varies(&answer), varied, "{path}");
    }
}

#[test]
fn an_unstored_response_is_not_recoded() {
    let page = text(400);
    let (coded, plain) = (gzipped(&page), html(&page));
    let private = |reply: &Reply| reply.clone().header("Set-Cookie", "sid=1");
    let (coded, plain) = (private(&coded), private(&plain));
    let origin = Origin::start(move |request: &Request| {
        let takes_gzip = request.header("accept-encoding").is_some_and(|it| it.contains("gzip"));
        if takes_gzip && request.path() == "/coded" { coded.clone() } else { plain.clone() }
    });
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..2 {
        for path in ["/plain", "/coded"] {
            for accepted in ["identity", "gzip", "br"] {
                let answer = proxy.get(path).header("Accept-Encoding", accepted).send();
                let expected = (path == "/coded" && accepted == "gzip").then_some("gzip");
                assert_eq!(answer.header("content-encoding"), expected, "{path} {accepted}");
                assert_eq!(read(&answer), page);
                assert!(!answer.is_hit());
            }
        }
    }
}

#[test]
fn a_bomb_is_not_decoded_for_anybody() {
    let coded = gzip(&" ".repeat(5 << 20));
    let bomb = Reply::status("200 OK")
        .header("Content-Type", "text/css")
        .header("Content-Encoding", "gzip")
        .header("Cache-Control", "max-age=60")
        .body(&coded);
    let plain = Reply::typed("text/css", "plain").header("Cache-Control", "max-age=60");
    let origin = Origin::start(move |request: &Request| {
        let takes_gzip = request.header("accept-encoding").is_some_and(|it| it.contains("gzip"));
        if takes_gzip { bomb.clone() } else { plain.clone() }
    });
    let proxy = Proxy::embedded(&origin, "cache.max_object = \"1MiB\"");
    for _ in 0..2 {
        assert_eq!(get(&proxy, Some("gzip")).body.bytes, coded);
        // Forwarded as requested.
        assert_eq!(get(&proxy, None).text(), "plain");
    }
}

#[test]
fn forms_count_as_pages_in_memory() {
    let page: Arc<str> = text(1_500).into();
    let served = Arc::clone(&page);
    let origin = Origin::start(move |_| html(&served));
    let proxy = Proxy::embedded(&origin, "cache.memory = \"1MiB\"\ncache.max_object = \"1MiB\"");
    for number in 0..60 {
        for accepted in ["identity", "gzip", "br", "zstd"] {
            let ask = proxy.get(&format!("/{number}")).header("Accept-Encoding", accepted);
            assert_eq!(read(&ask.send()), *page);
        }
    }
    let bytes = proxy.metric("anteroom_memory_pages_bytes");
    assert!(bytes > 0.0 && bytes <= f64::from(1 << 20), "{bytes}");
}
