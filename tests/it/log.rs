//! What the proxy tells of itself: the access log, the metrics, its health.

use std::fs;

use crate::support::origin::Reply;
use crate::support::proxy::{Proxy, log_in, shop};
use crate::support::wait_until;

#[test]
fn each_request_is_one_line_that_says_what_the_cache_did() {
    let origin = shop(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/a").send();
    proxy.get("/a").send();
    proxy.post("/b").send();

    let lines = proxy.access_log(3);

    let told: Vec<_> = lines
        .iter()
        .map(|line| (line["method"].as_str(), line["path"].as_str(), line["status"].as_u64()))
        .collect();
    assert_eq!(
        told,
        [
            (Some("GET"), Some("/a"), Some(200)),
            (Some("GET"), Some("/a"), Some(200)),
            (Some("POST"), Some("/b"), Some(200)),
        ]
    );
    let caches: Vec<_> = lines.iter().map(|line| line["cache"].as_str()).collect();
    assert_eq!(caches, [Some("miss"), Some("hit_memory"), Some("bypass")]);
    assert_eq!(lines[1]["bytes"].as_u64(), Some(5));
    assert!(lines[2]["reason"].is_string() && lines[0]["ms"].is_number());
}

#[test]
fn no_secret_stands_in_the_log() {
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let alice = log_in(&proxy, "alice");

    proxy
        .get("/page;jsessionid=SECRET1?password=SECRET2")
        .cookie(&format!("{alice}; other=SECRET3"))
        .header("Authorization", "Bearer SECRET4")
        .header("Referer", "http://shop.test/reset?code=SECRET5")
        .send();

    let lines = proxy.access_log(2);
    let page = lines.iter().find(|line| line["path"] != "/login").unwrap();
    let log = fs::read_to_string(proxy.log_file()).unwrap();
    assert!(!log.contains("SECRET"), "{log}");
    assert!(!log.contains(alice.trim_start_matches("login=")), "{log}");
    assert!(!log.contains("alice"), "{log}");
    assert_eq!(page["referer"].as_str(), Some("http://shop.test"));
}

#[test]
fn the_log_can_be_combined_or_off() {
    let origin = shop(|_| Reply::unstored("hello"));
    let combined = Proxy::embedded(&origin, "log.access = \"combined\"");
    combined.get("/a?b=c").header("User-Agent", "tester/1").send();
    let log = || fs::read_to_string(combined.log_file()).unwrap_or_default();
    wait_until("the line is there", || log().contains('\n'));
    assert!(log().starts_with("127.0.0.1 - - ["), "{}", log());
    assert!(log().contains("\"GET /a HTTP/1.1\" 200 5 \"-\" \"tester/1\""), "{}", log());

    let off = Proxy::embedded(&origin, "log.access = \"off\"");
    off.get("/a").send();
    assert!(fs::read_to_string(off.log_file()).unwrap_or_default().is_empty());
}

#[test]
fn hits_misses_and_reasons_are_counted() {
    let origin = shop(|request| match request.path() {
        "/form" => Reply::html("<form><input name=csrf_token value=1></form>"),
        _ => Reply::html("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    proxy.get("/").send();
    proxy.get("/form").send();

    let counted = |word: &str| {
        let metrics = proxy.admin("/metrics").send().text();
        metrics
            .lines()
            .any(|line| line.contains(word) && !line.starts_with('#') && !line.ends_with(" 0"))
    };
    for word in ["hit_memory", "miss", "csrf"] {
        wait_until(word, || counted(word));
    }
}

#[test]
fn it_says_that_it_lives_and_is_ready() {
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    assert_eq!(proxy.admin("/healthz").send().status, 200);
    assert_eq!(proxy.admin("/readyz").send().status, 200);
    assert_eq!(proxy.admin("/metrics").send().status, 200);
    assert!(matches!(proxy.admin("/other").send().status, 401 | 404));
}

#[test]
fn a_page_in_a_browser_cannot_read_the_admin_listener_under_another_name() {
    let origin = shop(|_| Reply::unstored("hello"));
    let proxy = Proxy::embedded(&origin, "");
    for host in ["evil.test", "evil.test:80", "127.0.0.1.evil.test"] {
        let status = proxy.admin("/metrics").host(host).send().status;
        assert!((400..500).contains(&status), "{host}: {status}");
    }
    assert_eq!(proxy.admin("/metrics").host("localhost").send().status, 200);
}

#[test]
fn the_admin_pages_are_not_on_the_site() {
    let origin = shop(|request| Reply::unstored(request.path()));
    let proxy = Proxy::embedded(&origin, "");
    assert_eq!(proxy.get("/metrics").send().text(), "/metrics");
}

#[test]
fn a_path_can_be_hidden() {
    let origin = shop(|_| Reply::unstored("hello"));
    let redact = "log.redact_paths = [\"/reset/*\", \"/people/{item}/**\"]";
    let hidden = ["/reset/SECRET1", "/people/SECRET2/mail/SECRET3", "/reset/%53ECRET4?SECRET5"];
    for format in ["json", "combined"] {
        let proxy = Proxy::embedded(&origin, &format!("{redact}\nlog.access = \"{format}\""));
        for path in hidden {
            proxy.get(path).send();
        }
        proxy.get("/reset/a/b").send();
        let log = || fs::read_to_string(proxy.log_file()).unwrap_or_default();
        wait_until("the lines are there", || log().lines().count() == 4);
        assert!(!log().contains("SECRET"), "{}", log());
        for shown in ["/reset/*", "/people/{item}/**", "/reset/a/b"] {
            assert!(log().contains(shown), "{shown} in {}", log());
        }
    }
}

#[test]
fn the_user_is_named_where_the_operator_wants_it() {
    let origin = shop(|_| Reply::unstored("hello"));
    for format in ["json", "combined"] {
        let settings = format!("session.mint = true\nlog.user = true\nlog.access = \"{format}\"");
        let proxy = Proxy::embedded(&origin, &settings);
        let alice = log_in(&proxy, "alice");
        proxy.get("/hers").cookie(&alice).send();
        proxy.get("/nobody-s").send();
        let log = || fs::read_to_string(proxy.log_file()).unwrap_or_default();
        wait_until("the lines are there", || log().lines().count() == 3);
        for line in log().lines().filter(|line| !line.contains("/login")) {
            assert_eq!(line.contains("alice"), line.contains("/hers"), "{line}");
        }
        assert!(!log().contains(alice.trim_start_matches("login=")), "{}", log());
    }
}
