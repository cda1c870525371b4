//! Who takes the app's time: `/crowd`, `anteroom top crowd` and the metrics.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::wait_until;

const SETTINGS: &str = "session.mint = true\nsession.cookie = \"login\"\n\
                        client.trusted_proxies = [\"127.0.0.1\"]\n";
/// More requests than an endless pattern has at least.
const CRAWLED: u32 = 300;
/// Enough requests of a user to be heavier than any other network.
const KNOWN: u32 = 30;

/// How long the app works on a page: those that take hardly any time are drawn.
const WORKS: Duration = Duration::from_millis(10);

/// A shop of which a page may be stored.
fn origin() -> Origin {
    shop(|request: &Request| match request.path() {
        "/stored" => Reply::html("a page").header("Cache-Control", "max-age=600"),
        _ => Reply::unstored("ok").after(WORKS),
    })
}

fn top_crowd(proxy: &Proxy, words: &[&str]) -> String {
    let mut command = anteroom();
    command.args(["top", "crowd"]).args(words).args(["--config", "proxy.toml"]);
    let output = command.current_dir(proxy.folder()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn crowd(proxy: &Proxy) -> Value {
    serde_json::from_str(&top_crowd(proxy, &["--json"])).unwrap()
}

/// Asks for a filter of a list with ever new values, from ever new networks.
fn crawl(proxy: &Proxy) {
    for number in 0..CRAWLED {
        let address = format!("10.{}.{}.77", number / 200, number % 200);
        let target = format!("/shop/shirts?color=hidden{number}&page=1");
        let ask = proxy.get(&target).header("X-Forwarded-For", &address);
        assert_eq!(ask.header("User-Agent", "GPTBot/1.2").send().status, 200);
    }
}

fn named<'r>(report: &'r Value, list: &str, name: &str) -> &'r Value {
    let entries = report[list].as_array().unwrap();
    let found = entries.iter().find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("{list} has no {name}: {report}"))
}

#[test]
fn a_crawl_is_named_with_the_lines_that_would_stop_it() {
    let origin = origin();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    let user = log_in(&proxy, "ann");
    let known = proxy.get("/account").cookie(&user).header("X-Forwarded-For", "192.0.2.77");
    for _ in 0..KNOWN {
        assert_eq!(known.send().status, 200);
    }
    crawl(&proxy);

    let report = crowd(&proxy);
    let pattern = named(&report, "patterns", "/shop/*?color&page");
    assert_eq!(pattern["endless"], true, "{report}");
    let lines = "[[route]]\nmatch.path = \"/shop/*\"\nmatch.query = \"any\"\nclass = \"new\"";
    assert_eq!(pattern["stop"], lines);
    let agent = named(&report, "agents", "GPTBot/1.2");
    let lines = "[[route]]\nmatch.headers = { user-agent = \"~ (?i)GPTBot\" }\ndeny = true";
    assert_eq!(agent["stop"], lines);
    let of_new = agent["classes"]["new"].as_f64().unwrap();
    assert!(of_new > 0.6 * f64::from(CRAWLED), "{report}");
    let network = named(&report, "networks", "192.0.2.0/24");
    assert!(network["classes"]["known"].as_f64().unwrap() > 0.5, "{report}");
    assert!(network["stop"].is_null(), "no line refuses users: {report}");
    assert!(report["networks"].as_array().unwrap().len() <= 20, "{report}");
    // No value of a query, no whole address and no token is told.
    let token = user.trim_start_matches("login=");
    for secret in ["hidden", "192.0.2.77", token] {
        assert!(!report.to_string().contains(secret), "{secret} in {report}");
    }

    let text = top_crowd(&proxy, &["--once"]);
    for shown in ["no request waits", "endless", "against the path /shop/*?color&page:"] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
    let of_class = |class: &str| {
        proxy.metric(&format!(
            "anteroom_origin_seconds_total{{origin=\"origin\",class=\"{class}\"}}"
        ))
    };
    assert!(of_class("new") > of_class("known"), "{report}");
    assert_eq!(proxy.metric("anteroom_origin_class_waiting{origin=\"origin\",class=\"new\"}"), 0.0);
}

#[test]
fn a_hit_takes_nothing_of_the_app() {
    let origin = origin();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    proxy.get("/stored").send();
    wait_until("it is stored", || proxy.get("/stored").send().cache_status().contains("hit"));
    let requests = |report: &Value| report["requests"].as_f64().unwrap();
    let before = requests(&crowd(&proxy));
    for _ in 0..20 {
        assert!(proxy.get("/stored").send().cache_status().contains("hit"));
    }
    assert!(requests(&crowd(&proxy)) <= before);
}
