//! Learn mode: everything is forwarded, and what the cache would have done is told.

use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::client::{Answer, Ask};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::wait_until;

/// Settings of a proxy that learns, behind a proxy that tells the addresses of visitors.
pub(crate) const LEARNS: &str =
    "cache.mode = \"learn\"\nclient.trusted_proxies = [\"127.0.0.1\"]\n";

pub(crate) fn learn(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("learn").args(words).args(["--config", "proxy.toml"]);
    command.current_dir(proxy.folder()).output().unwrap()
}

pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn report(proxy: &Proxy) -> Value {
    serde_json::from_str(&printed(&learn(proxy, &["report", "--json"]))).unwrap()
}

/// Waits for a number of the report.
pub(crate) fn wait_for(proxy: &Proxy, key: &str, expected: u64) {
    wait_until(&format!("{key} is {expected}"), || report(proxy)[key] == expected);
}

/// A visitor at an address of its own asks for a page.
pub(crate) fn ask(proxy: &Proxy, visitor: u8, target: &str, cookie: &str) -> Answer {
    let asks = |ask: Ask| ask.header("X-Forwarded-For", &format!("192.0.2.{visitor}"));
    let asks = asks(proxy.get(target));
    if cookie.is_empty() { asks.send() } else { asks.cookie(cookie).send() }
}

/// The verdict on a page; `Null`: it is not told.
pub(crate) fn verdict(report: &Value, path: &str) -> Value {
    let pages = report["pages"].as_array().unwrap();
    pages
        .iter()
        .find(|page| page["path"] == path)
        .map_or(Value::Null, |page| page["verdict"].clone())
}

pub(crate) fn cookie<'r>(report: &'r Value, name: &str) -> &'r Value {
    let cookies = report["cookies"].as_array().unwrap();
    cookies.iter().find(|cookie| cookie["name"] == name).unwrap_or(&Value::Null)
}

/// A page that is the same for all, and fresh for minutes.
pub(crate) fn same(text: &str) -> Reply {
    Reply::html(text).header("Cache-Control", "max-age=300")
}

#[test]
fn everything_is_forwarded_and_hits_are_foretold() {
    let origin = Origin::always(same("hello"));
    let proxy = Proxy::embedded(&origin, LEARNS);
    for n in 0..10 {
        let answer = ask(&proxy, n, &format!("/{}", n % 2), "");
        assert_eq!(answer.text(), "hello");
        assert!(!answer.is_hit());
        let status = answer.cache_status();
        assert!(status.contains("fwd=bypass") && status.contains("detail=learn"), "{status}");
        wait_until("it is learned", || report(&proxy)["unknown"] == 0);
    }
    assert_eq!(origin.count(), 10, "no request is repeated");
    wait_for(&proxy, "hits", 8);
    let learned = report(&proxy);
    assert_eq!((&learned["requests"], &learned["mode"]), (&10.into(), &"learn".into()));
    assert_eq!((&learned["compared_pages"], &learned["same_pages"]), (&2.into(), &2.into()));
    assert_eq!(learned["undecided_pages"], 0);
    assert_eq!(learned["pages"], Value::Array(Vec::new()));
    let route = &learned["routes"][0];
    assert_eq!((&route["name"], &route["fetches"]), (&"default".into(), &2.into()));
    assert!(
        route["saved_seconds"].as_f64().unwrap() > 0.0 && route["saved_bytes"] == 40,
        "{route}"
    );
    assert_eq!(proxy.metric("anteroom_cache_reasons_total{reason=\"learn\"}"), 10.0);
}

#[test]
fn what_cannot_be_stored_is_foretold_with_its_reason() {
    let origin = Origin::start(|request| match request.path() {
        "/set" => same("a").header("Set-Cookie", "seen=1"),
        "/no" => Reply::unstored("a"),
        "/csrf" => same("<input name=csrf_token value=0123456789abcdef>"),
        _ => same("a"),
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    for _ in 0..3 {
        for target in ["/set", "/no", "/csrf"] {
            ask(&proxy, 1, target, "");
        }
        proxy.post("/form").send();
        ask(&proxy, 1, "/page", "other=1");
    }
    let expected = [
        ("csrf-field", 3),
        ("method", 3),
        ("no-store", 3),
        ("set-cookie", 3),
        ("unknown-cookie", 3),
    ];
    wait_until("the reasons are known", || {
        let learned = report(&proxy);
        let mut reasons: Vec<(String, u64)> =
            serde_json::from_value(learned["routes"][0]["reasons"].clone()).unwrap();
        reasons.sort();
        learned["hits"] == 0
            && reasons.iter().map(|(reason, count)| (reason.as_str(), *count)).eq(expected)
    });
}

/// A site where some pages differ: by an ignored cookie, by address, each time, or not at all.
fn planted() -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |request: &Request| {
        let nth = asked.fetch_add(1, Ordering::SeqCst);
        let name = request.header("cookie").unwrap_or_default().replace("who=", "");
        let address = request.header("x-forwarded-for").unwrap_or_default();
        match request.path() {
            "/name" => same(&format!("<p>Hello {name}</p>")),
            "/address" => same(&format!("<p>You are at {}</p>", address.replace('.', "-"))),
            "/nonce" => same(&format!("<script nonce=\"n{nth}\"></script><p>same</p>")),
            "/both" => same(&format!("<i>{nth}</i><p>At {}</p>", address.replace('.', "-"))),
            _ => same("<p>same</p>"),
        }
    })
}

#[test]
fn pages_that_differ_between_those_who_would_share_them_are_told() {
    let settings = format!("{LEARNS}cache.ignore_cookies = [\"who\"]\n");
    let (origin, names) = (planted(), ["who=Anneliese", "who=Bartholomew"]);
    let proxy = Proxy::embedded(&origin, &settings);
    for _ in 0..3 {
        for (visitor, name) in (1..).zip(names) {
            ask(&proxy, visitor, "/name", name);
            for target in ["/address", "/nonce", "/both", "/same"] {
                ask(&proxy, visitor, target, "");
            }
        }
    }
    wait_for(&proxy, "compared_pages", 5);
    wait_until("all is compared", || {
        let learned = report(&proxy);
        let answers = |path| {
            let pages = learned["pages"].as_array().unwrap();
            pages.iter().find(|page| page["path"] == path).map(|page| page["answers"].clone())
        };
        ["/name", "/address", "/both"].map(answers).iter().all(|count| *count == Some(6.into()))
    });
    let learned = report(&proxy);
    assert_eq!(verdict(&learned, "/name"), "own-words", "{learned}");
    assert_eq!(verdict(&learned, "/address"), "by-visitor", "{learned}");
    assert_eq!(verdict(&learned, "/both"), "by-visitor", "{learned}");
    assert_eq!(verdict(&learned, "/nonce"), "noise", "{learned}");
    assert_eq!(verdict(&learned, "/same"), Value::Null, "{learned}");
    let told = printed(&learn(&proxy, &["report"]));
    assert!(told.contains("/name: would be shared, and shows a visitor's own words"), "{told}");
    assert!(!told.contains("Anneliese"), "no value of a visitor is told: {told}");
}

#[test]
fn cookies_are_told_apart_by_what_they_do() {
    let origin = Origin::start(|request: &Request| {
        let cookies = request.header("cookie").unwrap_or_default();
        let user = cookies.split("; ").find_map(|pair| pair.strip_prefix("sid="));
        match user {
            Some(user) => same(&format!("<p>Hello, {}</p>", user.replace('0', " "))),
            None => same("<p>Hello</p>"),
        }
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    for _ in 0..2 {
        for target in ["/1", "/2", "/3", "/4"] {
            ask(&proxy, 1, target, "");
            ask(&proxy, 2, target, "consent=yes");
            ask(&proxy, 7, target, "");
            ask(&proxy, 8, target, "consent=yes");
            ask(&proxy, 3, target, "sid=ann0lee0; consent=yes");
            ask(&proxy, 4, target, "sid=bob0lee0; consent=yes");
        }
    }
    wait_until("the cookies are known", || {
        let learned = report(&proxy);
        cookie(&learned, "consent")["verdict"] == "harmless"
            && cookie(&learned, "sid")["verdict"] == "session"
    });
    let learned = report(&proxy);
    assert_eq!(cookie(&learned, "consent")["class"], "unknown");
    assert_eq!(learned["pages"], Value::Array(Vec::new()), "by this configuration none is shared");

    let output = learn(&proxy, &["report", "--write", "learned.toml"]);
    let told = printed(&output);
    assert!(told.contains("ignore_cookies = [\"consent\"]"), "{told}");
    let written = std::fs::read_to_string(proxy.folder().join("learned.toml")).unwrap();
    assert!(written.contains("mode = \"serve\"") && written.contains("\"sid\""), "{written}");
    let again = learn(&proxy, &["report", "--write", "learned.toml"]);
    assert_eq!(again.status.code(), Some(1), "a file that is there stays");
    proxy.edit(|_| written.clone());
    assert!(proxy.reload(), "{written}\n{}", proxy.complaints());
    ask(&proxy, 5, "/1", "consent=no");
    assert!(ask(&proxy, 6, "/1", "consent=yes").is_hit());
    assert!(!ask(&proxy, 3, "/1", "sid=ann0lee0").is_hit());
    assert_eq!(ask(&proxy, 3, "/1", "sid=ann0lee0; consent=yes").text(), "<p>Hello, ann lee </p>");
}

#[test]
fn an_address_with_the_time_in_it_is_told_and_what_is_proposed_hits() {
    let origin = Origin::start(|request| {
        let (_, query) = request.target.split_once('?').unwrap();
        let (id, _time) = query.split_once('&').unwrap();
        Reply::typed("image/gif", &format!("a picture of {id}"))
            .header("Cache-Control", "max-age=300")
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    let visit = |first: u64| {
        for n in 0..30 {
            let target = format!("/views?id={}&{}", n % 3, 1_700_000_000 + first + n);
            ask(&proxy, n as u8, &target, "");
        }
    };
    visit(0);
    wait_until("it is proposed", || !proposed(&proxy).is_empty());
    let lines = proposed(&proxy);
    assert_eq!(lines, ["# [[route]]\n# match.path = \"/views\"\n# keep_query = [\"id\"]"]);
    wait_for(&proxy, "hits", 0);

    let route = lines[0].replace("# ", "");
    proxy.edit(|config| format!("{config}\n{route}\n"));
    assert!(proxy.reload());
    visit(100);
    wait_for(&proxy, "hits", 27);
    assert!(proposed(&proxy).is_empty());
}

/// The lines that are proposed.
fn proposed(proxy: &Proxy) -> Vec<String> {
    let report = report(proxy);
    let lines = report["proposals"].as_array().unwrap().iter();
    lines.map(|line| line["toml"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_users_pages_are_not_foretold_as_hits() {
    let origin = shop(|_| same("hello"));
    let proxy = Proxy::embedded(&origin, &format!("{LEARNS}session.mint = true"));
    let alice = log_in(&proxy, "alice");
    for _ in 0..3 {
        proxy.get("/a").cookie(&alice).send();
    }
    wait_until("they are counted", || {
        let reasons = report(&proxy)["routes"][0]["reasons"].to_string();
        reasons.contains("[\"login\",3]")
    });
    assert_eq!(report(&proxy)["hits"], 0);
}

#[test]
fn a_purge_and_a_change_end_what_would_have_been_a_hit() {
    let origin = Origin::start(|request| match request.method.as_str() {
        "POST" => Reply::unstored("changed"),
        _ => same("hello"),
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    let asks = |hits: u64| {
        ask(&proxy, 1, "/a", "");
        wait_for(&proxy, "hits", hits);
    };
    asks(0);
    asks(1);
    proxy.post("/a").send();
    asks(1);
    asks(2);
}

#[test]
fn a_condition_of_a_browser_does_not_hide_a_hit() {
    let origin = Origin::start(|request: &Request| match request.header("if-none-match") {
        Some(_) => Reply::status("304 Not Modified").header("ETag", "\"1\""),
        None => same("hello").header("ETag", "\"1\""),
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    let conditional = || {
        let answer = proxy.get("/a").header("If-None-Match", "\"1\"").send();
        assert_eq!(answer.status, 304);
    };
    conditional();
    conditional();
    assert_eq!(report(&proxy)["unknown"], 1, "a 304 does not show the page");
    ask(&proxy, 1, "/a", "");
    wait_for(&proxy, "unknown", 0);
    conditional();
    wait_for(&proxy, "hits", 3);
}

#[test]
fn a_page_that_differs_is_not_decided_until_a_visitor_asks_again() {
    let count = AtomicUsize::new(0);
    let origin =
        Origin::start(move |_| same(&format!("page {}", count.fetch_add(1, Ordering::SeqCst))));
    let proxy = Proxy::embedded(&origin, LEARNS);
    for visitor in [1, 2] {
        ask(&proxy, visitor, "/a", "");
    }
    wait_for(&proxy, "undecided_pages", 1);
    let told = printed(&learn(&proxy, &["report"]));
    assert!(
        told.contains(
            "/a: differs, and it is not decided by what; a visitor who asks for it again would tell"
        ),
        "{told}"
    );
    for visitor in [1, 2, 1, 2] {
        ask(&proxy, visitor, "/a", "");
    }
    wait_for(&proxy, "undecided_pages", 0);
    assert_eq!(verdict(&report(&proxy), "/a"), "noise");
}

#[test]
fn one_route_learns_and_the_others_are_served() {
    let origin = Origin::always(same("hello"));
    let routes = "[[route]]\nname = \"shop\"\nmatch.path = \"/shop/**\"\nmode = \"learn\"";
    let proxy = Proxy::embedded(&origin, routes);
    for _ in 0..3 {
        assert!(!proxy.get("/shop/a").send().is_hit());
    }
    wait_until("the page is stored", || proxy.get("/blog/a").send().is_hit());
    let learned = report(&proxy);
    assert_eq!((&learned["mode"], &learned["requests"]), (&"mixed".into(), &3.into()));
    proxy.edit(|file| file.replace("\"learn\"", "\"serve\""));
    assert!(proxy.reload());
    wait_until("the page is stored", || proxy.get("/shop/a").send().is_hit());
    assert_eq!(report(&proxy)["requests"], 3, "what was learned stays");
    assert!(printed(&learn(&proxy, &["restart"])).contains("begins again"));
    assert_eq!(report(&proxy)["requests"], 0);
}

#[test]
fn a_page_that_was_stored_is_not_served_while_its_route_learns() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(move |_| same(&asked.fetch_add(1, Ordering::SeqCst).to_string()));
    let proxy = Proxy::embedded(&origin, "cache.mode = \"serve\"");
    wait_until("the page is stored", || proxy.get("/a").send().is_hit());
    proxy.edit(|file| file.replace("\"serve\"", "\"learn\""));
    assert!(proxy.reload());
    let (first, second) = (proxy.get("/a").send(), proxy.get("/a").send());
    assert!(!first.is_hit() && !second.is_hit());
    assert_ne!(first.text(), second.text());
}

/// An origin that knows visitors by a session cookie, which every page sets.
fn with_session() -> Origin {
    Origin::start(|_| same("hello"))
}

#[test]
fn a_probe_asks_as_a_stranger_where_no_stranger_has_asked() {
    let origin = with_session();
    let settings = format!("{LEARNS}cache.unknown_cookies = \"ignore\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    for _ in 0..3 {
        ask(&proxy, 1, "/a", "other=1");
    }
    assert_eq!(report(&proxy)["unknown"], 2);
    assert_eq!(origin.count(), 3, "no request is repeated");
    let settings = format!("{settings}learn.probe = true\nlearn.probe_rate = \"1000/s\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    for _ in 0..3 {
        ask(&proxy, 1, "/a", "other=1");
    }
    wait_until("the probe has told", || {
        let learned = report(&proxy);
        learned["unknown"] == 0 && learned["hits"].as_u64() >= Some(1)
    });
    let probes: Vec<_> = origin.seen().split_off(3);
    let strangers = probes.iter().filter(|request| request.header("cookie").is_none());
    assert_eq!(strangers.count(), 1, "{probes:?}");
    assert!(probes.iter().all(|request| request.method == "GET"));
}

#[test]
fn the_target_of_a_mirror_forwards_nothing() {
    let origin = with_session();
    let settings = format!("{LEARNS}learn.mirror = true\nsession.cookie = \"sid\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    for target in ["/a", "/b", "/_anteroom/cart"] {
        assert_eq!(ask(&proxy, 1, target, "").status, 204);
        assert_eq!(ask(&proxy, 2, target, "sid=0a1b2c3d").status, 204);
    }
    assert_eq!(proxy.post("/form").body(b"a=1").send().status, 204);
    assert_eq!(origin.count(), 0);
    let learned = report(&proxy);
    assert_eq!((&learned["mode"], &learned["requests"]), (&"mirror".into(), &5.into()));

    let settings = format!("{settings}learn.probe = true\nlearn.probe_rate = \"1000/s\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    for visitor in 1..4 {
        ask(&proxy, visitor, "/mine", "sid=0a1b2c3d");
        proxy.post("/form").body(b"a=1").send();
        ask(&proxy, visitor, "/a?q=1", "");
        wait_until("the page is known", || report(&proxy)["unknown"] == 0);
    }
    wait_for(&proxy, "hits", 2);
    // A request for what is stored only is scored as any other: the other server may have the page.
    let only = proxy.get("/a?q=1").header("X-Forwarded-For", "192.0.2.1");
    assert_eq!(only.header("Cache-Control", "only-if-cached").send().status, 204);
    wait_for(&proxy, "hits", 3);
    let asked: Vec<String> = origin.seen().into_iter().map(|request| request.target).collect();
    assert_eq!(asked, ["/a?q=1"], "neither an unsafe method, nor a request with a session cookie");
    assert!(origin.last().header("cookie").is_none());
}

#[test]
fn a_mirror_without_learn_mode_is_refused() {
    let origin = with_session();
    let proxy = Proxy::embedded(&origin, "");
    proxy.edit(|file| format!("learn.mirror = true\n{file}"));
    assert!(!proxy.reload());
    wait_until("the log says why", || proxy.complaints().contains("[learn] mirror: "));
}

#[test]
fn pages_without_a_lifetime_are_put_down_to_the_default() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, &format!("{LEARNS}cache.default_ttl = \"0s\"\n"));
    (0..3).for_each(|visitor| drop(ask(&proxy, visitor, "/a", "")));
    let line = "# [cache]\n# default_ttl = \"300s\"".to_owned();
    wait_until("it is proposed", || proposed(&proxy).contains(&line));
}
