//! Abandoned carts: handed on exactly once before their sessions are cleaned.

use std::fs;
use std::path::{Path, PathBuf};

use anteroom_http::ident::{Token, TokenStorage};
use anteroom_store::traits::*;
use anteroom_store::{Cursor, Eviction, ExpiryAction, Layout, OpenStore, StoreSettings, Url};
use anteroom_tests::origin::{Origin, Reply};
use anteroom_tests::proxy::{Proxy, Storage, anteroom, log_in, shop};
use anteroom_tests::redis::RedisServer;
use anteroom_tests::wait_until;
use serde_json::Value;

use crate::store_contract::limits;

const SESSIONS: usize = 60;

/// A Redis with [`SESSIONS`] sessions, every second one with a cart, and the ids of those.
fn abandoned() -> (Storage, Vec<String>) {
    let server = RedisServer::start();
    let mut ids = Vec::new();
    for n in 0..SESSIONS {
        let (token, seen) = (token(n), format!("{n}.5"));
        server.command::<()>(&["HSET", "login:", &token, "ann"]);
        server.command::<()>(&["ZADD", "recent:", &seen, &token]);
        server.command::<()>(&["ZADD", &format!("viewed:{token}"), &seen, "mug"]);
        if n % 2 == 0 {
            server.command::<()>(&["HSET", &format!("cart:{token}"), "mug", "2"]);
            ids.push(public_id(&token));
        }
    }
    (Storage::Redis(server), ids)
}

fn token(n: usize) -> String {
    format!("token-number-{n}")
}

fn public_id(token: &str) -> String {
    public_id_as(token, TokenStorage::Plain)
}

fn public_id_as(token: &str, how: TokenStorage) -> String {
    Token::parse(token.as_bytes()).unwrap().stored(how).public_id(how)
}

fn server(storage: &Storage) -> &RedisServer {
    match storage {
        Storage::Redis(server) => server,
        Storage::Embedded => unreachable!("opened on redis"),
    }
}

fn settings(on_expire: &str) -> String {
    format!(
        "session.max_sessions = 1\nsession.clean_batch = 7\nsession.clean_every = \"50ms\"\n\
         session.on_expire = \"{on_expire}\""
    )
}

fn nothing() -> Origin {
    Origin::always(Reply::html("a page"))
}

/// The ids in the stream.
fn streamed(server: &RedisServer) -> Vec<String> {
    type Entry = (String, Vec<String>);
    let entries: Vec<Entry> = server.command(&["XRANGE", "expired:", "-", "+"]);
    entries.into_iter().map(|(_, fields)| fields[1].clone()).collect()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort_unstable();
    ids
}

fn written(file: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines of the file, once there are as many as expected: sessions go first.
fn all_written(file: &PathBuf, expected: usize) -> Vec<Value> {
    wait_until("the carts are in the file", || written(file).len() >= expected);
    written(file)
}

fn ids(lines: &[Value]) -> Vec<String> {
    sorted(lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect())
}

fn left(server: &RedisServer) -> u64 {
    server.command(&["ZCARD", "recent:"])
}

#[test]
fn two_cleaners_hand_each_cart_to_the_stream_once() {
    let (storage, mut expected) = abandoned();
    let (server, origin) = (server(&storage), nothing());
    let _proxies = [
        Proxy::start(&origin, &storage, &settings("stream")),
        Proxy::start(&origin, &storage, &settings("stream")),
    ];

    wait_until("one session is left", || left(server) == 1);

    expected.retain(|id| *id != public_id(&token(SESSIONS - 1)));
    assert_eq!(sorted(streamed(server)), sorted(expected));
    let dump = server.dump();
    for n in 0..SESSIONS - 1 {
        let gone = token(n);
        assert!(!dump.contains(&format!("{gone}\"")), "{gone} is mentioned:\n{dump}");
    }
}

#[test]
fn a_stream_that_refuses_keeps_its_sessions_waiting_and_no_others() {
    let (storage, expected) = abandoned();
    let (server, origin) = (server(&storage), nothing());
    server.command::<()>(&["SET", "expired:", "no stream"]);
    let proxy = Proxy::start(&origin, &storage, &settings("stream"));

    wait_until("those without a cart are gone", || left(server) <= SESSIONS as u64 / 2 + 1);
    wait_until("it is counted", || proxy.metric("anteroom_carts_refused_total") > 0.0);
    assert_eq!(server.command::<u64>(&["HLEN", &format!("cart:{}", token(0))]), 1);

    server.command::<()>(&["DEL", "expired:"]);
    wait_until("one session is left", || left(server) == 1);
    assert_eq!(sorted(streamed(server)), sorted(expected));
}

#[test]
fn a_redis_without_room_keeps_carts_and_cleans_all_others() {
    for on_expire in ["stream", "file:./expired.jsonl"] {
        let (storage, expected) = abandoned();
        let (server, origin) = (server(&storage), nothing());
        server.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        let proxy = Proxy::start(&origin, &storage, &settings(on_expire));

        wait_until("those without a cart are gone", || left(server) <= SESSIONS as u64 / 2 + 1);
        assert_eq!(server.keys("cart:*").len(), expected.len());
        wait_until("it is counted", || proxy.metric("anteroom_carts_refused_total") > 0.0);

        server.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        wait_until("one session is left", || left(server) == 1);
        let told = match on_expire {
            "stream" => sorted(streamed(server)),
            _ => ids(&all_written(&proxy.folder().join("expired.jsonl"), expected.len())),
        };
        assert_eq!(told, sorted(expected), "{on_expire}");
    }
}

#[test]
fn each_cart_is_in_the_file_once_though_the_proxy_was_killed() {
    let (storage, expected) = abandoned();
    let (server, origin) = (server(&storage), nothing());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expired.jsonl");
    let mut proxy = Proxy::start(&origin, &storage, &settings(&format!("file:{}", file.display())));
    wait_until("some are written", || written(&file).len() >= 7);
    proxy.restart();

    wait_until("one session is left", || left(server) == 1);

    let lines = all_written(&file, expected.len());
    assert_eq!(ids(&lines), sorted(expected));
    assert!(!fs::read_to_string(&file).unwrap().contains("token-number"));
    assert_eq!(lines[0]["cart"], serde_json::json!([{ "item": "mug", "count": 2 }]));
    assert_eq!(lines[0]["user"], "ann");
}

#[test]
fn each_cart_is_in_the_file_once_though_the_outbox_kept_it_and_the_proxy_was_killed() {
    let (storage, expected) = abandoned();
    let (server, origin) = (server(&storage), nothing());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expired.jsonl");
    // What stands between the file and the end of a batch fails.
    server.command::<()>(&["ACL", "SETUSER", "default", "-ltrim"]);
    let mut proxy = Proxy::start(&origin, &storage, &settings(&format!("file:{}", file.display())));
    let refused = |proxy: &Proxy| proxy.metric("anteroom_carts_refused_total") > 0.0;
    wait_until("the first batch is written", || !written(&file).is_empty() && refused(&proxy));
    assert!(proxy.metric("anteroom_sessions_cleaned_total") >= 7.0);
    let batch = written(&file);
    proxy.restart();
    wait_until("the next one has tried, too", || refused(&proxy));
    assert_eq!(written(&file), batch);
    wait_until("those without a cart are gone", || left(server) <= SESSIONS as u64 / 2 + 1);

    server.command::<()>(&["ACL", "SETUSER", "default", "+ltrim"]);
    wait_until("one session is left", || left(server) == 1);
    assert_eq!(ids(&all_written(&file, expected.len())), sorted(expected));
    wait_until("the outbox is empty", || server.keys("expiring:").is_empty());
}

#[test]
fn a_file_that_cannot_be_written_keeps_its_sessions_waiting_and_no_others() {
    let (storage, expected) = abandoned();
    let (server, origin) = (server(&storage), nothing());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-yet").join("expired.jsonl");
    let proxy = Proxy::start(&origin, &storage, &settings(&format!("file:{}", file.display())));

    wait_until("those without a cart are gone", || left(server) <= SESSIONS as u64 / 2 + 1);
    wait_until("it is counted", || proxy.metric("anteroom_carts_refused_total") > 0.0);
    assert_eq!(server.command::<u64>(&["HLEN", &format!("cart:{}", token(0))]), 1);

    fs::create_dir(folder.path().join("not-yet")).unwrap();
    wait_until("one session is left", || left(server) == 1);
    assert_eq!(ids(&all_written(&file, expected.len())), sorted(expected));
}

/// What a process does that dies before it has written the file.
#[test]
fn a_proxy_that_cannot_write_its_file_leaves_the_carts_to_others() {
    let (storage, expected) = abandoned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expired.jsonl");
    let origin = nothing();
    let bad = settings("file:/no-such-folder/expired.jsonl");
    let proxy = Proxy::start(&origin, &storage, &bad);
    wait_until("it refuses", || proxy.metric("anteroom_carts_refused_total") > 0.0);

    let good = settings(&format!("file:{}", file.display()));
    let _other = Proxy::start(&origin, &storage, &good);

    assert_eq!(ids(&all_written(&file, expected.len())), sorted(expected));
}

fn fill_outbox(folder: &Path, keep: u64) {
    let settings = StoreSettings {
        url: Url::Embedded(folder.to_owned()),
        prefix: String::new(),
        layout: Layout::Single,
        limits: limits(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let open = OpenStore::open(&settings).await.unwrap();
        let how = Eviction { keep, batch: 100, carts: true, before: 0.0 };
        let expiry_action = ExpiryAction::Outbox { storage: TokenStorage::Sha256 };
        let evicted =
            open.thread_handle().evict_expiring(how, &Cursor::default(), &expiry_action).await;
        assert_eq!(evicted.unwrap().handed_on, 2);
        open.close().await;
    });
}

#[test]
fn the_embedded_outbox_is_written_after_a_crash() {
    let origin = shop(|_| Reply::unstored("bought").header("Anteroom-Cart", "mug;count=2"));
    let settings = "session.mint = true\nsession.max_sessions = 3\nsession.clean_every = \"50ms\"\n\
                    session.on_expire = \"file:./expired.jsonl\"";
    let mut proxy = Proxy::embedded(&origin, settings);
    let file = proxy.folder().join("expired.jsonl");
    let visitors: Vec<_> = (0..3).map(|n| log_in(&proxy, &format!("user{n}"))).collect();
    for cookie in &visitors {
        assert_eq!(proxy.post("/buy").cookie(cookie).send().text(), "bought");
    }
    proxy.kill9();
    fill_outbox(&proxy.folder().join("data"), 1);
    proxy.restart();
    let id =
        |cookie: &String| public_id_as(cookie.trim_start_matches("login="), TokenStorage::Sha256);
    assert_eq!(ids(&all_written(&file, 2)), sorted(visitors[..2].iter().map(id).collect()));

    for n in 0..3 {
        log_in(&proxy, &format!("later{n}"));
    }
    let lines = all_written(&file, 3);
    assert_eq!(ids(&lines), sorted(visitors.iter().map(id).collect()));
    assert_eq!(lines[2]["user"], "user2");
    assert_eq!(lines[2]["cart"], serde_json::json!([{ "item": "mug", "count": 2 }]));
}

/// The users of the carts in the stream, or in the file, in their order.
fn users_told(proxy: &Proxy, storage: &Storage, on_expire: &str) -> Vec<String> {
    if on_expire == "stream" {
        type Entry = (String, std::collections::BTreeMap<String, String>);
        let entries: Vec<Entry> = server(storage).command(&["XRANGE", "expired:", "-", "+"]);
        return entries.into_iter().map(|(_, fields)| fields["user"].clone()).collect();
    }
    let text = fs::read_to_string(proxy.folder().join("carts.jsonl")).unwrap_or_default();
    let line = |line: &str| -> Option<Value> { serde_json::from_str(line).ok() };
    let user = |told: Value| told["user"].as_str().unwrap().to_owned();
    text.lines().filter_map(line).map(user).collect()
}

fn run(proxy: &Proxy, words: &[&str]) {
    let mut command = anteroom();
    command.args(words).args(["--config", "proxy.toml"]).current_dir(proxy.folder());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_cart_of_a_session_that_others_end_is_handed_on_once() {
    let redis = || Storage::Redis(RedisServer::start());
    let file = "file:./carts.jsonl";
    for (storage, on_expire) in [(Storage::Embedded, file), (redis(), file), (redis(), "stream")] {
        let origin = shop(|_| Reply::unstored("bought").header("Anteroom-Cart", "mug;count=2"));
        let settings = format!(
            "session.mint = true\nsession.max_per_user = 1\nsession.clean_every = \"50ms\"\n\
             session.on_expire = \"{on_expire}\""
        );
        let proxy = Proxy::start(&origin, &storage, &settings);
        let buys = |cookie: &str| {
            assert_eq!(proxy.post("/buy").cookie(cookie).send().text(), "bought");
        };
        buys(&log_in(&proxy, "ann"));
        // Elsewhere, so that she has one too many; and then another in the same browser.
        let ann = log_in(&proxy, "ann");
        buys(&ann);
        let answer = proxy.post("/login?eve").cookie(&ann).send();
        buys(&format!("login={}", answer.cookie("login").unwrap()));
        run(&proxy, &["sessions", "revoke", "--user", "eve"]);
        // A deleted user leaves nothing behind, and a user who logs out has left the cart by choice.
        buys(&log_in(&proxy, "zoe"));
        run(&proxy, &["user", "delete", "zoe"]);
        let kim = log_in(&proxy, "kim");
        buys(&kim);
        proxy.post("/logout").cookie(&kim).send();
        buys(&log_in(&proxy, "mia"));
        log_in(&proxy, "mia");

        let told = || users_told(&proxy, &storage, on_expire);
        wait_until("the last is told of", || told().contains(&"mia".to_owned()));
        assert_eq!(told(), ["ann", "ann", "eve", "mia"], "{on_expire}");
        wait_until("they are counted", || proxy.metric("anteroom_carts_handed_on_total") >= 4.0);
        assert_eq!(proxy.metric("anteroom_carts_lost_total"), 0.0);
    }
}
