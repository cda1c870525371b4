//! Routes that are chosen by what clients send, and routes that deny: the means against crawlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::wait_until;

const BOT: &str = "Mozilla/5.0 (compatible; GPTBot/1.2)";
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0)";

const DENIED: &str = "[[route]]
name = \"bots\"
match.headers = { user-agent = \"~ (?i)bytespider|gptbot\" }
deny = true
";

/// Two routes for the same pages, each with settings of its own.
const APART: &str = "[[route]]
name = \"bots\"
match.path = \"/page/*\"
match.headers = { user-agent = \"~ (?i)bytespider|gptbot\" }
share = \"everyone\"
ttl = \"600s\"
[[route]]
match.path = \"/page/*\"
share = \"everyone\"
ttl = \"60s\"
";

/// Pages that tell how many came before.
fn counting() -> Origin {
    let count = Arc::new(AtomicUsize::new(0));
    Origin::start(move |request| match request.method.as_str() {
        "POST" => Reply::status("204 No Content"),
        _ => Reply::html(&format!("page {}", count.fetch_add(1, Ordering::SeqCst))),
    })
}

fn by(proxy: &Proxy, agent: &str, target: &str) -> Answer {
    proxy.get(target).header("User-Agent", agent).send()
}

fn assert_denied(answer: &Answer, what: &str) {
    assert_eq!((answer.status, answer.header("cache-control")), (403, Some("no-store")), "{what}");
    assert!(answer.cache_status().contains("detail=denied"), "{what}: {}", answer.cache_status());
}

#[test]
fn a_crawler_is_denied_and_reaches_nothing() {
    let origin = counting();
    let proxy = Proxy::embedded(&origin, DENIED);
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        let answer = proxy.ask(method, "/a?b=1").header("User-Agent", BOT).send();
        assert_denied(&answer, method);
    }
    assert_eq!(origin.count(), 0);
    assert_eq!(by(&proxy, BROWSER, "/a").status, 200);
    assert_eq!(proxy.get("/a").send().status, 200, "an absent field does not match");
    let log = proxy.access_log(6);
    assert_eq!((&log[0]["route"], &log[0]["reason"]), (&"bots".into(), &"denied".into()));
    wait_until("denials are counted", || {
        proxy.metric("anteroom_cache_reasons_total{reason=\"denied\"}") == 4.0
    });
}

#[test]
fn a_denied_path_is_denied_in_any_spelling_and_to_no_query() {
    let origin = counting();
    let settings = "[[route]]\nmatch.query = \"any\"\n\
                    [[route]]\nmatch.path = \"/old/open\"\n\
                    [[route]]\nmatch.path = \"/old/**\"\ndeny = true\n";
    let proxy = Proxy::embedded(&origin, settings);
    for target in ["/old", "/old/a", "/old/a?b=1", "/OLD/a", "/%6fld/a", "//old/a", "/a/../old"] {
        assert_denied(&proxy.get(target).send(), target);
    }
    assert_eq!(origin.count(), 0);
    for target in ["/", "/?b=1", "/old/open", "/older"] {
        assert_eq!(proxy.get(target).send().status, 200, "{target}");
    }
}

#[test]
fn a_route_by_fields_shares_no_page_with_another() {
    let origin = counting();
    let proxy = Proxy::embedded(&origin, APART);
    for (target, first, second) in [("/page/a", BOT, BROWSER), ("/page/b", BROWSER, BOT)] {
        let filled = by(&proxy, first, target);
        assert!(!filled.is_hit());
        assert!(by(&proxy, first, target).is_hit());
        let other = by(&proxy, second, target);
        assert!(!other.is_hit(), "{target}: {}", other.cache_status());
        assert_ne!(other.text(), filled.text());
        for (agent, page) in [(first, &filled), (second, &other)] {
            let again = by(&proxy, agent, target);
            assert!(again.is_hit(), "{target}: {}", again.cache_status());
            assert_eq!(again.text(), page.text());
            let vary: Vec<&str> = again.fields.all("vary").collect();
            let names = vary.join(", ").to_ascii_lowercase();
            assert!(
                names.contains("user-agent"),
                "caches in between keep them apart, too: {names}"
            );
        }
    }
}

#[test]
fn a_purge_of_a_url_includes_the_pages_of_routes_by_fields() {
    let origin = counting();
    let proxy = Proxy::embedded(&origin, APART);
    for changed_by in [BOT, BROWSER] {
        for agent in [BOT, BROWSER] {
            by(&proxy, agent, "/page/a");
            assert!(by(&proxy, agent, "/page/a").is_hit());
        }
        let changed = proxy.post("/page/a").header("User-Agent", changed_by).send();
        assert_eq!(changed.status, 204);
        for agent in [BOT, BROWSER] {
            assert!(!by(&proxy, agent, "/page/a").is_hit(), "{agent} after {changed_by}");
        }
    }
}

#[test]
fn the_app_sees_a_field_with_one_value() {
    let origin = Origin::start(|request| {
        let is_part = request.header("x-requested-with").is_some();
        Reply::html(if is_part { "a part" } else { "a whole page" })
    });
    let settings = "[[route]]
match.path = \"/a\"
match.headers = { X-Requested-With = \"XMLHttpRequest\" }
share = \"everyone\"
ttl = \"60s\"
[[route]]
match.path = \"/a\"
share = \"everyone\"
ttl = \"60s\"
";
    let proxy = Proxy::embedded(&origin, settings);
    let part = || proxy.get("/a").header("X-Requested-With", "XMLHttpRequest").send();
    for _ in 0..2 {
        assert_eq!(proxy.get("/a").send().text(), "a whole page");
        assert_eq!(part().text(), "a part");
    }
    assert!(part().is_hit() && proxy.get("/a").send().is_hit());
}

#[test]
fn a_query_chooses_a_route() {
    let origin = counting();
    let settings = "[[route]]\nmatch.path = \"/search\"\nmatch.query = \"any\"\ndeny = true\n\
                    [[route]]\nmatch.path = \"/list\"\nmatch.query = \"none\"\ndeny = true\n";
    let proxy = Proxy::embedded(&origin, settings);
    for target in ["/search?q=1", "/search?q", "/list", "/list?"] {
        assert_denied(&proxy.get(target).send(), target);
    }
    assert_eq!(origin.count(), 0);
    for target in ["/search", "/search?", "/list?q=1", "/other?q=1"] {
        assert_eq!(proxy.get(target).send().status, 200, "{target}");
    }
}

#[test]
fn explain_shows_a_route_by_fields_and_what_it_denies() {
    let origin = counting();
    let proxy = Proxy::embedded(&origin, &format!("{APART}{DENIED}"));
    let explain = |target: &str| {
        let header = format!("User-Agent: {BOT}");
        let told = anteroom()
            .args(["explain", "--config", "proxy.toml", target, "--header", &header])
            .current_dir(proxy.folder())
            .output()
            .unwrap();
        assert!(told.status.success(), "{told:?}");
        String::from_utf8(told.stdout).unwrap()
    };
    let told = explain("http://shop.test/page/a");
    assert!(told.contains("match.headers"), "{told}");
    let told = explain("http://shop.test/a");
    assert!(told.contains("Refused (denied): 403") && told.contains("deny"), "{told}");
}

#[test]
fn an_ignored_parameter_chooses_no_other_rules_for_a_page() {
    let origin = counting();
    let settings = "[[route]]
match.path = \"/page/*\"
match.query = \"any\"
share = \"everyone\"
ttl = \"600s\"
set_headers = { X-Route = \"query\" }
[[route]]
match.path = \"/page/*\"
share = \"everyone\"
ttl = \"60s\"
";
    let proxy = Proxy::embedded(&origin, settings);
    let first = proxy.get("/page/a?utm_source=x").send();
    assert_eq!((first.status, first.header("x-route")), (200, None));
    let bare = proxy.get("/page/a").send();
    assert!(bare.is_hit() && bare.text() == first.text(), "{}", bare.cache_status());
    for target in ["/page/a?b=1", "/page/a?b=1&utm_source=x"] {
        assert_eq!(proxy.get(target).send().header("x-route"), Some("query"), "{target}");
    }
}

#[test]
fn a_denied_crawler_gets_no_endpoint_either() {
    let origin = counting();
    let proxy = Proxy::embedded(&origin, DENIED);
    for target in ["/_anteroom/me", "/_anteroom/cart", "/_anteroom/recent", "/_anteroom/nothing"] {
        assert_denied(&by(&proxy, BOT, target), target);
    }
    assert_ne!(by(&proxy, BROWSER, "/_anteroom/me").status, 403);
}

#[test]
fn a_head_with_an_ambiguous_path_is_denied_as_a_get() {
    let origin = counting();
    let settings = "[[route]]\nmatch.method = \"GET\"\nmatch.path = \"/old/**\"\ndeny = true\n";
    let proxy = Proxy::embedded(&origin, settings);
    for method in ["GET", "HEAD"] {
        for target in ["/old/a", "//old/a"] {
            assert_denied(&proxy.ask(method, target).send(), target);
        }
    }
    assert_eq!(origin.count(), 0);
}

#[test]
fn a_reload_that_adds_a_route_with_conditions_keeps_the_pages() {
    let origin = counting();
    let plain = "[[route]]\nmatch.path = \"/page/*\"\nshare = \"everyone\"\nttl = \"60s\"\n";
    for condition in ["headers = { user-agent = \"~ GPTBot\" }", "query = \"any\""] {
        let proxy = Proxy::embedded(&origin, plain);
        let old = proxy.get("/page/a").send().text();
        assert!(proxy.get("/page/a").send().is_hit());
        let added = format!("[[route]]\nmatch.{condition}\nshare = \"everyone\"\n{plain}");
        proxy.edit(|text| text.replace(plain, &added));
        assert!(proxy.reload(), "{}", proxy.complaints());
        let kept = proxy.get("/page/a").send();
        assert!(kept.is_hit() && kept.text() == old, "{condition}: {}", kept.cache_status());

        proxy.edit(|text| text.replace(&added, plain));
        assert!(proxy.reload(), "{}", proxy.complaints());
        assert!(!proxy.get("/page/a").send().is_hit(), "{condition}: removed");
    }
}
