//! The figures for operators: what they count, and whether what they advise helps.

use std::fs;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

const TOKEN: &str = "secret-token-of-the-operator";

on_both_stores!(requests_are_counted_by_route_result_and_reason);

/// A file with the token, and the line that names it.
fn token() -> (NamedTempFile, String) {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, TOKEN).unwrap();
    let line = format!("admin.token = {{ file = \"{}\" }}\n", file.path().display());
    (file, line)
}

/// What the admin listener answers with the token.
fn read(proxy: &Proxy, path: &str) -> Value {
    let bearer = format!("Bearer {TOKEN}");
    let answer = proxy.admin(path).header("Authorization", &bearer).send();
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.text()).unwrap()
}

fn route(proxy: &Proxy, name: &str) -> Value {
    let status = read(proxy, "/status");
    let routes = status["routes"].as_array().unwrap();
    routes.iter().find(|route| route["name"] == name).cloned().unwrap_or_default()
}

fn requests_are_counted_by_route_result_and_reason(storage: &Storage) {
    let origin = shop(|_| Reply::html("hello"));
    let (_file, token) = token();
    let settings = format!(
        "{token}session.mint = true\n[[route]]\nname = \"items\"\nmatch.path = \"/item/{{item}}\""
    );
    let proxy = Proxy::start(&origin, storage, &settings);
    let alice = log_in(&proxy, "alice");
    for _ in 0..3 {
        proxy.get("/item/7?q=secret&page=2").send();
    }
    proxy.get("/item/7?q=secret&page=2").cookie(&alice).send();

    let items = route(&proxy, "items");
    assert_eq!(items["count"], 4);
    assert_eq!(items["results"]["hit_memory"], 2);
    assert_eq!(items["results"]["miss"], 1);
    assert_eq!(items["reasons"].as_array().unwrap().len(), 2, "{items}");
    assert!(items["saved_seconds"].as_f64().unwrap() > 0.0, "{items}");
    assert_eq!(items["saved_bytes"], 10);
    assert!(items["last_hit"].as_f64().unwrap() > 1e9);
    let status = read(&proxy, "/status");
    let buckets = status["results"]["hit_memory"]["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), status["bounds"].as_array().unwrap().len() + 1);
    assert_eq!(buckets.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), 2);
    assert!(status["origin"]["count"].as_u64().unwrap() >= 2, "{status}");
    assert_eq!(status["store"]["connected"], true);
    assert!(status["memory"]["resident"].as_u64().unwrap() > 1 << 20);

    let listing = read(&proxy, "/misses");
    let missed = &listing["misses"][0];
    assert_eq!((&missed["path"], &missed["count"]), (&"/item/7".into(), &2.into()));
    assert_eq!(missed["reason"], "login", "that of the last request");
    assert_eq!(missed["parameters"], serde_json::json!(["q", "page"]));
    assert!(!listing.to_string().contains("secret"), "{listing}");
    assert_eq!(proxy.admin("/misses").send().status, 401);
    let name = "anteroom_request_seconds_count{route=\"items\",result=\"hit_memory\"}";
    assert!((proxy.metric(name) - 2.0).abs() < f64::EPSILON);
}

/// A site that is misconfigured.
struct Mistake {
    reply: fn(&str) -> Reply,
    cookie: &'static str,
    settings: &'static str,
    reason: &'static str,
    /// The name of the route that the requests are on.
    route: &'static str,
}

const MISTAKES: [Mistake; 6] = [
    // Each visitor has a cookie that no rule names.
    Mistake {
        reply: |_| Reply::html("hello"),
        cookie: "consent=yes",
        settings: "",
        reason: "unknown-cookie",
        route: "default",
    },
    // The app sets a cookie on each page.
    Mistake {
        reply: |_| Reply::html("hello").header("Set-Cookie", "seen=1; Path=/"),
        cookie: "",
        settings: "[[route]]\nname = \"all\"\nmatch.path = \"/**\"",
        reason: "set-cookie",
        route: "all",
    },
    // PHP's session_start() says no-store.
    Mistake {
        reply: |_| {
            let never = "no-store, no-cache, must-revalidate";
            Reply::html("hello").header("Cache-Control", never).header("Pragma", "no-cache")
        },
        cookie: "",
        settings: "",
        reason: "no-store",
        route: "default",
    },
    // The app says nothing of lifetimes, and no default is for JSON.
    Mistake {
        reply: |_| {
            Reply::status("200 OK").header("Content-Type", "application/json").body("{\"a\":1}")
        },
        cookie: "",
        settings: "",
        reason: "content-type",
        route: "default",
    },
    // Nothing has a lifetime.
    Mistake {
        reply: |_| Reply::html("hello"),
        cookie: "",
        settings: "cache.default_ttl = \"0s\"",
        reason: "no-lifetime",
        route: "default",
    },
    // The session cookie has another name than is configured.
    Mistake {
        reply: |path| match path {
            "/whoami" => Reply::unstored("{\"user\":null}").header("X-Is", "json"),
            _ => Reply::html("hello"),
        },
        cookie: "PHPSESSID=0a1b2c3d4e5f60718293",
        settings: "",
        reason: "unknown-cookie",
        route: "default",
    },
];

#[test]
fn the_command_tells_whether_the_proxy_serves() {
    let origin = Origin::always(Reply::html("hello"));
    let mut redis = RedisServer::start();
    let proxy = Proxy::with_settings(&origin, &format!("store.url = \"{}\"", redis.url()));
    let status = |more: &[&str]| {
        let mut command = anteroom();
        command.args(["status", "--config", "proxy.toml"]).args(more);
        let output = command.current_dir(proxy.folder()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    proxy.get("/").send();
    assert!(proxy.get("/").send().is_hit());
    // Requests are counted behind their answers.
    wait_until("both are counted", || {
        status(&[]).1.contains("requests   2, 50 % from the cache\n")
    });
    let (code, text) = status(&[]);
    assert_eq!(code, Some(0), "{text}");
    let app = format!("app        origin {} is up\n", origin.address());
    for line in ["mode serve\n", &app, "store      connected\n", "memory     1 page in 1 MiB of "] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let (_, json) = status(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["status"]["mode"], "serve");
    assert_eq!(json["origins"][0]["servers"][0]["up"], true);

    redis.kill();
    wait_until("the store is seen to be away", || status(&[]).0 == Some(1));
    assert!(status(&[]).1.contains("store      away"));
}

#[test]
fn what_the_cache_does_on_the_routes_is_told() {
    let origin = shop(|_| Reply::html("hello"));
    for (settings, wanted) in [
        ("", "serve"),
        ("cache.mode = \"learn\"\n", "learn"),
        ("[[route]]\nmatch.path = \"/shop/**\"\nmode = \"learn\"\n", "mixed"),
        ("cache.mode = \"learn\"\nlearn.mirror = true\n", "mirror"),
    ] {
        let (_file, token) = token();
        let proxy = Proxy::embedded(&origin, &format!("{token}{settings}"));
        assert_eq!(read(&proxy, "/status")["mode"], wanted);
    }
}

#[test]
fn a_mistake_is_named_with_the_lines_that_mend_it() {
    let (_file, token) = token();
    for Mistake { reply, cookie, settings, reason, route: name } in MISTAKES {
        let origin = Origin::start(move |request| reply(&request.target));
        let proxy = Proxy::embedded(&origin, &format!("{token}{settings}"));
        let crowd = || {
            let hits = || proxy.metric("anteroom_cache_results_total{result=\"hit_memory\"}");
            let before = hits();
            for n in 0..20 {
                let ask = proxy.get(&format!("/shop/{}", n % 2));
                let ask = if cookie.is_empty() { ask } else { ask.cookie(cookie) };
                ask.send();
            }
            hits() - before
        };
        assert!(crowd() < 1.0, "{reason}");
        let advice = route(&proxy, name)["advice"].clone();
        assert_eq!(advice["reason"], reason, "{advice}");
        let toml = advice["toml"].as_str().unwrap_or_else(|| panic!("{advice}")).to_owned();
        // A line in place of another one.
        let without = |file: &str| file.replace("cache.default_ttl = \"0s\"", "");
        proxy.edit(|file| format!("{}\n{toml}\n", without(file)));
        assert!(proxy.reload(), "{toml}\n{}", proxy.complaints());
        assert!(crowd() >= 16.0, "{reason}: {toml}");
    }
}
