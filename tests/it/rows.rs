//! Rows: refreshed from the origin every few seconds, and answered to everyone.

use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use crate::purge::purge;
use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, on_both_stores};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

/// Rows of two sources, and routes that are answered from them.
const SETTINGS: &str = "rows = [
    { name = \"inventory\", every = \"100ms\", path = \"/stock/{row}\" },
    { name = \"prices\", every = \"1h\", path = \"/price?of={row}&x=1\", scheme = \"https\" },
]
route = [
    { match.path = \"/api/stock/{item}\", rows = \"inventory\" },
    { match.path = \"/api/price/{item}\", rows = \"prices\" },
    { match.path = \"/buy/{item}\", match.method = [\"POST\"], rows = \"prices\" },
]";

on_both_stores!(
    a_scheduled_row_is_answered_to_everyone_and_revalidated,
    a_row_with_a_failing_source_stays_unchanged,
    a_stopped_row_is_asked_of_the_app_again,
    the_schedule_survives_a_crash,
    rows_are_listed,
    the_shutdown_does_not_wait_for_a_hanging_row,
    a_change_by_a_visitor_is_seen_at_once,
    a_row_is_fetched_once_at_a_time,
);

/// Counts up with each fetch of a row.
fn counting() -> Origin {
    let fetched = AtomicUsize::new(0);
    Origin::start(move |request| match request.path() {
        "/stock/7" | "/price" => {
            let count = fetched.fetch_add(1, Ordering::SeqCst);
            Reply::typed("application/json", &format!("{{\"count\":{count}}}"))
                .header("Set-Cookie", "secret=1")
        }
        _ => Reply::unstored("from the app"),
    })
}

/// Runs `anteroom rows …` for a proxy.
fn rows(proxy: &Proxy, words: &[&str]) -> Output {
    rows_in(proxy.folder(), words)
}

fn rows_in(folder: &Path, words: &[&str]) -> Output {
    anteroom()
        .arg("rows")
        .args(words)
        .args(["--config", "proxy.toml"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

fn is_row(answer: &Answer) -> bool {
    answer.cache_status().contains("detail=rows")
}

/// Schedules a row, and waits until it is answered from the store.
fn scheduled(proxy: &Proxy, words: &[&str], target: &str) {
    let output = rows(proxy, words);
    assert!(output.status.success(), "{}", said(&output));
    wait_until("the row is there", || is_row(&proxy.get(target).send()));
}

fn a_scheduled_row_is_answered_to_everyone_and_revalidated(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    let before = proxy.get("/api/price/a%2Fb").send();
    assert_eq!((before.text().as_str(), is_row(&before)), ("from the app", false));

    scheduled(&proxy, &["schedule", "prices", "a b&c"], "/api/price/a%20b%26c");

    let asked = origin.seen().into_iter().find(|request| request.path() == "/price").unwrap();
    assert_eq!(asked.target, "/price?of=a%20b%26c&x=1");
    assert_eq!(asked.header("x-anteroom-session"), Some("none"));
    assert_eq!(asked.header("host").unwrap(), origin.address().to_string());
    assert_eq!(asked.header("x-forwarded-host"), asked.header("host"));
    assert_eq!(asked.header("x-forwarded-proto"), Some("https"));
    let answer = proxy.get("/api/price/a%20b%26c").cookie("login=somebody-unknown").send();
    assert_eq!((answer.status, answer.text().as_str()), (200, "{\"count\":0}"));
    for (name, value) in [
        ("content-type", "application/json"),
        ("cache-control", "no-cache"),
        ("x-content-type-options", "nosniff"),
        ("cache-status", "anteroom; hit; detail=rows"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    assert!(answer.header("age").is_some() && answer.header("set-cookie").is_none(), "{answer:?}");
    let tag = answer.header("etag").unwrap();
    let head = proxy.ask("HEAD", "/api/price/a%20b%26c").send();
    assert_eq!((head.header("content-length"), head.header("etag")), (Some("11"), Some(tag)));
    let same = proxy.get("/api/price/a%20b%26c").header("If-None-Match", tag).send();
    assert_eq!((same.status, same.text().as_str()), (304, ""));
    for (name, value) in [
        ("Range", "bytes=0-1"),
        ("If-Match", "\"x\""),
        ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        let asked = proxy.get("/api/price/a%20b%26c").header(name, value).send();
        assert_eq!((asked.text().as_str(), is_row(&asked)), ("from the app", false), "{name}");
    }
    let post = proxy.post("/api/price/a%20b%26c").send();
    assert_eq!(post.text(), "from the app");
}

/// The page that a row has taken the place of answers others: what the row cannot, and a visitor when the row is gone.
#[test]
fn a_page_is_warmed_though_a_row_answers_in_its_place() {
    let origin = Origin::start(|request| match request.path() {
        "/stock/7" => Reply::typed("application/json", "{}"),
        _ => Reply::html("a page").header("Cache-Control", "max-age=1000"),
    });
    let proxy = Proxy::embedded(&origin, &format!("cache.warm_after_purge = 1\n{SETTINGS}"));
    wait_until("the page is kept", || proxy.get("/api/stock/7").send().is_hit());
    proxy.get("/api/stock/7").send();
    scheduled(&proxy, &["schedule", "inventory", "7"], "/api/stock/7");

    purge(&proxy, &["--all", "--hard"]);

    wait_until("it is warm", || proxy.metric("anteroom_pages_warmed_total") == 1.0);
}

fn a_row_with_a_failing_source_stays_unchanged(storage: &Storage) {
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&broken);
    let origin = Origin::start(move |_| match breaks.load(Ordering::SeqCst) {
        true => Reply::typed("text/html", "<h1>no</h1>"),
        false => Reply::typed("application/json", "[1]"),
    });
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    scheduled(&proxy, &["schedule", "inventory", "7"], "/api/stock/7");
    broken.store(true, Ordering::SeqCst);
    wait_until("it fails", || proxy.metric("anteroom_rows_failed_total") >= 2.0);
    let answer = || proxy.get("/api/stock/7").send();
    assert_eq!(answer().text(), "[1]");
    wait_until("it grows old", || answer().header("age").unwrap().parse::<u64>().unwrap() >= 1);
    broken.store(false, Ordering::SeqCst);
    let fetched = proxy.metric("anteroom_rows_fetched_total");
    wait_until("it is refreshed", || proxy.metric("anteroom_rows_fetched_total") > fetched);
    assert_eq!(answer().text(), "[1]");
}

fn a_stopped_row_is_asked_of_the_app_again(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    scheduled(&proxy, &["schedule", "inventory", "7"], "/api/stock/7");
    let output = rows(&proxy, &["stop", "inventory", "7"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(!is_row(&proxy.get("/api/stock/7").send()), "from that moment on");
    if let Storage::Redis(server) = storage {
        wait_until("it is gone", || !server.keys("*").contains(&"delay:".to_owned()));
    }
    if let Storage::Redis(server) = storage {
        let ours = ["rescaled:", "purges:", "seen:", "fleet:", "scheduler:"];
        // A lease on a page ends by itself.
        let is_other = |key: &String| !ours.contains(&key.as_str()) && !key.starts_with("lease:");
        let left: Vec<_> = server.keys("*").into_iter().filter(is_other).collect();
        assert_eq!(left, [""; 0], "{}", server.dump());
    }
}

fn the_schedule_survives_a_crash(storage: &Storage) {
    let origin = counting();
    let mut proxy = Proxy::start(&origin, storage, SETTINGS);
    let output = rows(&proxy, &["schedule", "inventory", "7"]);
    assert!(output.status.success(), "{}", said(&output));
    proxy.restart();
    wait_until("the row is there", || is_row(&proxy.get("/api/stock/7").send()));
    let output = rows(&proxy, &["list"]);
    assert!(output.status.success(), "the socket is a new one: {}", said(&output));
}

fn rows_are_listed(storage: &Storage) {
    let origin = counting();
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    scheduled(&proxy, &["schedule", "inventory", "7", "--every", "2s"], "/api/stock/7");
    scheduled(&proxy, &["schedule", "prices", "x"], "/api/price/x");
    let listed = rows(&proxy, &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let mut found: Vec<_> = listed["rows"].as_array().unwrap().iter().collect();
    found.sort_by_key(|row| row["name"].as_str());
    for (row, name, id, every) in
        [(found[0], "inventory", "7", 2.0), (found[1], "prices", "x", 3600.0)]
    {
        assert_eq!((row["name"].as_str(), row["row"].as_str()), (Some(name), Some(id)));
        assert_eq!(row["every"].as_f64(), Some(every));
        assert!(row["refreshed"].as_f64() > Some(1e9), "{row}");
    }
    let text = said(&rows(&proxy, &["list"]));
    assert!(text.contains("inventory") && text.contains("prices"), "{text}");
}

#[test]
fn a_row_in_redis_is_json_under_the_name_of_the_chapter() {
    let server = RedisServer::start();
    let url = server.url();
    let storage = Storage::Redis(server);
    let Storage::Redis(server) = &storage else { unreachable!("{url}") };
    let origin = counting();
    let proxy = Proxy::start(&origin, &storage, SETTINGS);
    // Another app schedules it, as in the chapter.
    server.command::<u32>(&["ZADD", "delay:", "3600", "7"]);
    server.command::<u32>(&["ZADD", "schedule:", "1000", "7"]);
    wait_until("the row is there", || is_row(&proxy.get("/api/stock/7").send()));
    let row: String = server.command(&["GET", "inv:7"]);
    assert_eq!(serde_json::from_str::<Value>(&row).unwrap()["count"], 0);
    let due: f64 = server.command(&["ZSCORE", "schedule:", "7"]);
    assert!(due > 1e9, "{due}");
    // What another app wrote has no age.
    server.command::<String>(&["SET", "inv:8", "[8]"]);
    let other = proxy.get("/api/stock/8").send();
    assert_eq!((other.text().as_str(), other.header("age")), ("[8]", None));
}

fn the_shutdown_does_not_wait_for_a_hanging_row(storage: &Storage) {
    let origin = Origin::always(Reply::silence());
    let mut proxy = Proxy::start(&origin, storage, SETTINGS);
    let output = rows(&proxy, &["schedule", "prices", "7"]);
    assert!(output.status.success(), "{}", said(&output));
    wait_until("the row is asked for", || origin.count() == 1);
    let due = || match storage {
        Storage::Redis(server) => server.command::<f64>(&["ZSCORE", "schedule:", "prices:7"]),
        Storage::Embedded => 0.0,
    };
    let lease = due();

    proxy.terminate();

    assert_eq!(proxy.exit_code(), Some(0));
    assert_eq!(due(), lease, "it was neither fetched nor given up");
}

fn a_change_by_a_visitor_is_seen_at_once(storage: &Storage) {
    let stock = Arc::new(AtomicUsize::new(1));
    let gate = Gate::closed();
    let (held, shown) = (Arc::clone(&gate), Arc::clone(&stock));
    let origin = Origin::start(move |request| match request.method.as_str() {
        "GET" => {
            let count = shown.load(Ordering::SeqCst);
            // This fetch began before the second change, and ends behind it.
            if request.path() == "/price" && count == 2 {
                held.pass();
            }
            Reply::typed("application/json", &count.to_string())
        }
        "POST" => {
            shown.fetch_add(1, Ordering::SeqCst);
            Reply::status("303 See Other").header("Location", "/thanks").body("")
        }
        "PUT" => Reply::status("302 Found").header("Location", "/login").body(""),
        _ => Reply::status("403 Forbidden").body(""),
    });
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    scheduled(&proxy, &["schedule", "prices", "7"], "/api/price/7");
    let answer = || proxy.get("/api/price/7").send();
    let fetches = || origin.seen().iter().filter(|request| request.path() == "/price").count();
    assert_eq!(answer().text(), "1");
    assert_eq!(proxy.ask("DELETE", "/api/price/7").send().status, 403);
    assert_eq!(proxy.ask("PUT", "/api/price/7").send().status, 302);
    assert!(is_row(&answer()), "a refused change is none");

    assert_eq!(proxy.post("/api/price/7").send().status, 303);
    let asked = answer();
    assert_eq!((asked.text().as_str(), is_row(&asked)), ("2", false));
    wait_until("it is read again", || fetches() == 2);
    assert_eq!(proxy.post("/buy/7").send().status, 303);
    gate.open();

    wait_until("it is there again", || is_row(&answer()));
    assert_eq!(answer().text(), "3");
    assert_eq!(fetches(), 3);
    wait_until("one is dropped", || proxy.metric("anteroom_rows_dropped_total") == 1.0);
}

fn a_row_is_fetched_once_at_a_time(storage: &Storage) {
    let gate = Gate::closed();
    let held = Arc::clone(&gate);
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (enters, counts) = (Arc::clone(&inside), Arc::clone(&most));
    let origin = Origin::start(move |request| {
        if request.path() == "/price" {
            counts.fetch_max(enters.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            held.pass();
            enters.fetch_sub(1, Ordering::SeqCst);
        }
        Reply::typed("application/json", "1")
    });
    let proxy = Proxy::start(&origin, storage, SETTINGS);
    let output = rows(&proxy, &["schedule", "prices", "7"]);
    assert!(output.status.success(), "{}", said(&output));
    wait_until("it is asked for", || inside.load(Ordering::SeqCst) == 1);
    for _ in 0..8 {
        assert_eq!(proxy.post("/buy/7").send().status, 200);
    }
    gate.open();
    wait_until("it is there", || is_row(&proxy.get("/api/price/7").send()));
    assert_eq!(most.load(Ordering::SeqCst), 1);
    wait_until("the dropped one is counted", || proxy.metric("anteroom_rows_dropped_total") >= 1.0);
}

#[test]
fn a_row_that_cannot_be_kept_is_a_failure_of_its_own() {
    let origin = counting();
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { unreachable!() };
    let proxy = Proxy::start(&origin, &storage, SETTINGS);
    // Rows can be claimed, and not kept.
    server.command::<String>(&["SET", "refreshed:", "no sorted set"]);
    let output = rows(&proxy, &["schedule", "inventory", "7"]);
    assert!(output.status.success(), "{}", said(&output));
    wait_until("it fails", || proxy.metric("anteroom_rows_failed_total") >= 2.0);
    assert_eq!(proxy.metric("anteroom_task_errors_total"), 0.0);
}

#[test]
fn a_large_row_is_read_over_a_connection_of_its_own() {
    let storage = Storage::redis();
    let Storage::Redis(server) = &storage else { unreachable!() };
    let origin = counting();
    let proxy = Proxy::start(&origin, &storage, &format!("threads = 1\n{SETTINGS}"));
    let large = format!("\"{}\"", "x".repeat(300 << 10));
    server.command::<String>(&["SET", "inv:8", &large]);
    let connections = || server.command::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = connections();
    wait_until("it is answered", || is_row(&proxy.get("/api/stock/8").send()));
    wait_until("there is another connection", || connections() > before);
    server.command::<String>(&["SET", "inv:8", "\"small\""]);
    wait_until("it is small", || proxy.get("/api/stock/8").send().text() == "\"small\"");
}

#[test]
fn several_proxies_fetch_a_row_once_a_period() {
    let origin = counting();
    let storage = Storage::redis();
    let proxies: Vec<_> = (0..3).map(|_| Proxy::start(&origin, &storage, SETTINGS)).collect();
    let ids: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let words: Vec<&str> =
        ["schedule", "prices"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let output = rows(&proxies[0], &words);
    assert!(output.status.success(), "{}", said(&output));
    for (number, id) in ids.iter().enumerate() {
        let proxy = &proxies[number % proxies.len()];
        wait_until("the row is there", || is_row(&proxy.get(&format!("/api/price/{id}")).send()));
    }
    let fetched = origin.seen().iter().filter(|request| request.path() == "/price").count();
    assert_eq!(fetched, ids.len(), "in the hour of their period");
}

#[test]
fn a_personal_answer_is_not_kept() {
    let origin = Origin::start(|request| {
        let reply = Reply::typed("application/json", "[1]");
        match request.target.as_str() {
            "/stock/private" => reply.header("Cache-Control", "private"),
            "/stock/any" => reply.header("Vary", "*"),
            "/stock/fine" => reply.header("Cache-Control", "no-store").header("Set-Cookie", "a=b"),
            _ => Reply::unstored("from the app"),
        }
    });
    let proxy = Proxy::embedded(&origin, SETTINGS);
    scheduled(&proxy, &["schedule", "inventory", "private", "any", "fine"], "/api/stock/fine");
    wait_until("the others fail", || proxy.metric("anteroom_rows_failed_total") >= 4.0);
    for id in ["private", "any"] {
        assert!(!is_row(&proxy.get(&format!("/api/stock/{id}")).send()), "{id}");
    }
}

#[test]
fn a_store_that_is_away_sends_visitors_to_the_app() {
    let mut storage = Storage::redis();
    let origin = counting();
    let proxy = Proxy::start(&origin, &storage, SETTINGS);
    scheduled(&proxy, &["schedule", "prices", "x"], "/api/price/x");
    let Storage::Redis(server) = &mut storage else { unreachable!() };
    server.kill();
    wait_until("the app answers", || proxy.get("/api/price/x").send().text() == "from the app");
    let output = rows(&proxy, &["schedule", "prices", "y"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("store"), "{}", said(&output));
}

#[test]
fn invalid_commands_are_reported() {
    let origin = counting();
    let proxy = Proxy::embedded(&origin, SETTINGS);
    for (words, code, wanted) in [
        (&["schedule", "nothing", "7"][..], 1, "nothing"),
        (&["schedule", "inventory", ""], 1, "row"),
        (&["schedule", "inventory", "prices:7"], 1, "prices:7"),
        (&["schedule", "inventory", "7", ".."], 1, "\"..\" cannot be a row"),
        (&["schedule", "inventory", "7", "--every", "5"], 2, "--every"),
        (&["schedule", "inventory", "7", "--every", "366d"], 2, "365d"),
        (&["schedule", "inventory"], 2, "ROW"),
        (&["fetch"], 2, "fetch"),
    ] {
        let output = rows(&proxy, words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", said(&output));
        assert!(said(&output).contains(wanted), "{words:?}: {}", said(&output));
    }
    let help = said(&rows(&proxy, &["--help"]));
    assert!(help.contains("anteroom rows schedule"), "{help}");
}

#[test]
fn without_a_running_proxy_the_command_fails() {
    let folder = TempDir::new().unwrap();
    let config = |text: &str| std::fs::write(folder.path().join("proxy.toml"), text).unwrap();
    let listed = || rows_in(folder.path(), &["list"]);
    config("origin.url = \"http://127.0.0.1:1\"");
    assert_eq!(listed().status.code(), Some(1), "{}", said(&listed()));
    assert!(said(&listed()).contains("anteroom-data/admin.sock"), "{}", said(&listed()));
    config("origin.url = \"http://127.0.0.1:1\"\nadmin.socket = \"off\"");
    assert_eq!(listed().status.code(), Some(1), "{}", said(&listed()));
    assert!(said(&listed()).contains("[admin] socket"), "{}", said(&listed()));
    // The caller of the command need not be allowed to read the secrets.
    config(
        "origin.url = 7\n[store]\nurl = { file = \"/nowhere\" }\n[origin.secret]\nenv = \"NONE\"",
    );
    assert_eq!(listed().status.code(), Some(1), "{}", said(&listed()));
    config("[store]\nurl = \"embedded:./other\"");
    assert!(said(&listed()).contains("other/admin.sock"), "{}", said(&listed()));
    config("admin.socket = 7");
    assert_eq!(listed().status.code(), Some(64), "{}", said(&listed()));
}

#[test]
fn the_socket_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let storage = Storage::redis();
    let origin = counting();
    let proxy = Proxy::start(&origin, &storage, SETTINGS);
    let folder = proxy.folder().join("anteroom-data");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("admin.sock")), 0o600);
    proxy.terminate();
    wait_until("it is removed at the end", || !folder.join("admin.sock").exists());
}
