//! `anteroom warm` requests pages as a stranger, and reports what became of them.

use std::fs;
use std::io::Write as _;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, anteroom};

const SETTINGS: &str = "origin.hosts = [\"shop.test\", \"www.shop.test\"]";

fn run(proxy: &Proxy, arguments: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("warm").args(arguments).args(["--config", "proxy.toml"]);
    command.current_dir(proxy.folder()).output().unwrap()
}

fn report(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sitemap(urls: &[&str]) -> String {
    let urls: String = urls.iter().map(|url| format!("<url><loc>{url}</loc></url>")).collect();
    format!("<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">{urls}</urlset>")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

/// A shop with sitemaps, a page that nothing may store, and one that fails.
fn pages(request: &Request) -> Reply {
    let xml =
        |body: &[u8]| Reply::status("200 OK").header("Content-Type", "application/xml").body(body);
    match request.path() {
        "/index.xml" => xml(b"<sitemapindex><sitemap><loc>http://shop.test/1.xml</loc></sitemap>\
              <sitemap><loc>http://shop.test/2.xml.gz</loc></sitemap></sitemapindex>"),
        "/1.xml" => {
            xml(sitemap(&["http://shop.test/a", "http://shop.test/?b=1&amp;c=2"]).as_bytes())
        }
        "/2.xml.gz" => xml(&gzip(&sitemap(&["http://www.shop.test/a", "http://shop.test/a"]))),
        "/foreign.xml" => xml(sitemap(&["http://evil.test/"]).as_bytes()),
        "/cart" => Reply::html("private").header("Cache-Control", "private"),
        "/broken" => Reply::status("500 Internal Server Error").body(""),
        path => Reply::html(path).header("Cache-Control", "max-age=600"),
    }
}

#[test]
fn the_pages_of_all_sitemaps_of_an_index_are_in_the_cache_once_each() {
    let origin = Origin::start(pages);
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let first = run(&proxy, &["http://shop.test/index.xml", "--json"]);
    assert!(first.status.success(), "{}", complaint(&first));
    let counts = |report: &Value| (report["stored"].clone(), report["fresh"].clone());
    assert_eq!(counts(&report(&first)), (json!(3), json!(0)));
    let again = run(&proxy, &["http://shop.test/index.xml", "--json"]);
    assert_eq!(counts(&report(&again)), (json!(0), json!(3)));
    let answer = proxy.get("/?b=1&c=2").host("shop.test").send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert!(origin.seen().iter().all(|request| request.header("cookie").is_none()));
}

#[test]
fn a_path_alone_is_on_the_first_of_the_hosts() {
    let origin = Origin::start(pages);
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let done = run(&proxy, &["/a?b=1", "--json"]);
    assert_eq!(report(&done)["stored"], json!(1), "{}", complaint(&done));
    assert!(proxy.get("/a?b=1").host("shop.test").send().is_hit());
    let any = Proxy::embedded(&origin, "");
    let refused = run(&any, &["/a"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("where [origin] hosts has"), "{}", complaint(&refused));
}

#[test]
fn what_is_not_stored_is_told_with_its_reason_and_a_failure_fails() {
    let origin = Origin::start(pages);
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let fine = run(&proxy, &["http://shop.test/cart", "http://shop.test/a", "--json"]);
    assert!(fine.status.success(), "{}", complaint(&fine));
    let fine = report(&fine);
    assert_eq!((&fine["stored"], &fine["failed"]), (&json!(1), &json!(0)));
    assert_eq!(fine["not_cacheable"], json!({"private": 1}), "{fine}");
    let failed = run(&proxy, &["http://shop.test/broken", "http://shop.test/a"]);
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8_lossy(&failed.stdout).into_owned();
    assert_eq!(said, "stored: 0 pages\nfresh already: 1 page\nfailed: 1 page\n");
    assert!(complaint(&failed).contains("http://shop.test/broken: 500"), "{}", complaint(&failed));
}

#[test]
fn foreign_hosts_and_what_is_no_stranger_are_refused_before_a_page_is_requested() {
    let origin = Origin::start(pages);
    let proxy = Proxy::embedded(&origin, SETTINGS);
    fs::write(proxy.folder().join("local.xml"), sitemap(&["http://evil.test/a"])).unwrap();
    fs::write(proxy.folder().join("page.xml"), "<html/>").unwrap();
    for (arguments, word) in [
        (&["http://evil.test/"][..], "evil.test is not in [origin] hosts"),
        (&["local.xml"], "evil.test is not in [origin] hosts"),
        (&["http://shop.test/a", "http://shop.test/foreign.xml"], "evil.test"),
        (&["page.xml"], "no sitemap"),
        (&["missing.xml"], "missing.xml"),
        (&["a"], "http://"),
        (&["http://shop.test/a", "--header", "Cookie: a=b"], "stranger"),
        (&["http://shop.test/a", "--to", "nowhere"], "--to"),
    ] {
        let refused = run(&proxy, arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        assert!(complaint(&refused).contains(word), "{arguments:?}: {}", complaint(&refused));
    }
    let is_page = |request: &Request| !request.path().contains("xml");
    assert!(!origin.seen().iter().any(is_page));
}

#[test]
fn a_local_sitemap_is_requested_by_two_at_a_time() {
    let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (now, highest) = (Arc::clone(&busy), Arc::clone(&most));
    let pair = Barrier::new(2);
    let origin = Origin::start(move |request| {
        highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Each waits for one other, and so there are two at least.
        pair.wait();
        now.fetch_sub(1, Ordering::SeqCst);
        pages(request)
    });
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let urls: Vec<_> = (0..10).map(|page| format!("http://shop.test/{page}")).collect();
    let urls: Vec<_> = urls.iter().map(String::as_str).collect();
    fs::write(proxy.folder().join("local.xml.gz"), gzip(&sitemap(&urls))).unwrap();
    let to = format!("http://{}", proxy.address());
    let done = run(&proxy, &["local.xml.gz", "--json", "--to", &to]);
    assert_eq!(report(&done)["stored"], json!(10), "{}", complaint(&done));
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
