//! What the user of a Redis has to be allowed: the guide lists it, and what is denied is told.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::support::guide_block;
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, log_in, shop};
use crate::support::redis::RedisServer;

/// A Redis with a user that has these rights, and what `[store]` says of it.
fn redis_for(rights: &str) -> (RedisServer, String) {
    let server = RedisServer::start();
    let answer = server.say(&format!("ACL SETUSER proxy on >secret {rights}"));
    assert!(answer.starts_with("+OK"), "{rights}: {answer}");
    let url = format!("store.url = \"redis://proxy:secret@127.0.0.1:{}\"", server.port());
    (server, url)
}

/// The rights that the guide gives.
fn rights_of_the_guide() -> String {
    let block = guide_block("redis-and-fleets.md", "sh", "redis-cli ACL SETUSER");
    let line = block.replace("\\\n", " ").replace('\'', "");
    let (_, rights) = line.split_once(">PASSWORD").expect("a password");
    rights.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the server has denied so far. The library may not be allowed to name itself.
fn denied_by(server: &RedisServer) -> Vec<String> {
    let log = server.say("ACL LOG");
    let lines: Vec<&str> = log.lines().collect();
    let objects = lines.windows(3).filter(|lines| lines[0] == "object").map(|lines| lines[2]);
    objects.filter(|object| *object != "client|setinfo").map(str::to_owned).collect()
}

fn command(folder: &Path, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.args(words).args(["--config", "proxy.toml"]).current_dir(folder);
    command.output().unwrap()
}

/// What `check --connect` says of a store, the line about it alone.
fn checked(store: &str) -> String {
    let origin = Origin::always(Reply::unstored("page"));
    let folder = TempDir::new().unwrap();
    let config = format!("origin.url = \"http://{}\"\n{store}\n", origin.address());
    fs::write(folder.path().join("proxy.toml"), config).unwrap();
    let output = command(folder.path(), &["check", "--connect"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some("store"));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn the_rights_in_the_guide_suffice() {
    let (server, store) = redis_for(&rights_of_the_guide());
    assert!(checked(&store).starts_with("fine"), "{}", checked(&store));
    let origin = shop(|_| Reply::html("page").header("Cache-Control", "max-age=60"));
    let settings = format!(
        "{store}\nstore.timeout = \"5s\"\nsession.mint = true\nsession.on_expire = \"stream\"\n\
         [[rows]]\nname = \"inventory\"\nevery = \"1s\"\npath = \"/api/{{row}}\""
    );
    let proxy = Proxy::with_settings(&origin, &settings);
    let ann = log_in(&proxy, "ann");
    for is_hit in [false, true] {
        assert_eq!(proxy.get("/page").send().is_hit(), is_hit);
    }
    let cart =
        proxy.ask("PUT", "/_anteroom/cart").cookie(&ann).header("Sec-Fetch-Site", "same-origin");
    let cart =
        cart.header("Content-Type", "application/json").body(b"{\"item\":\"mug\",\"count\":1}");
    assert_eq!(cart.send().status, 200);
    for words in [
        &["purge", "--all"][..],
        &["sessions", "list"],
        &["user", "export", "ann"],
        &["fleet"],
        &["rows", "schedule", "inventory", "7"],
        &["bypass", "on"],
        &["bypass", "off"],
        &["store", "backup", "sessions.backup"],
        &["user", "delete", "ann"],
    ] {
        let output = command(proxy.folder(), words);
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    assert_eq!(denied_by(&server), Vec::<String>::new(), "{}", proxy.complaints());
}

#[test]
fn check_lists_what_is_denied() {
    for (rights, begin, parts) in [
        ("~* &* +@all -evalsha", "failed", &["the commands EVALSHA:"][..]),
        ("~* &* +@all -hget -zadd", "failed", &["the commands HGET, ZADD:"]),
        ("~* &* +@all -exec", "failed", &["the commands EXEC:"]),
        ("~* &* +@all -multi", "failed", &["the commands MULTI:"]),
        ("~* &* +@all -subscribe", "failed", &["the commands SUBSCRIBE:"]),
        ("~* &* -@all", "failed", &["MULTI", "SUBSCRIBE"]),
        ("~login:* &* +@all", "failed", &["the keys recent:,", "cache:*", "redis-and-fleets.md"]),
        ("~* resetchannels &gone: +@all", "warning", &["denies its user purge::", "second"]),
        ("~* resetchannels +@all", "warning", &["denies its user purge:, gone::"]),
    ] {
        let (_server, store) = redis_for(rights);
        let line = checked(&store);
        let says = line.starts_with(begin) && parts.iter().all(|part| line.contains(part));
        assert!(says, "{rights}: {line}");
    }
}

#[test]
fn check_asks_for_the_keys_with_their_prefix_and_changes_nothing() {
    let (server, store) = redis_for("~shop:* resetchannels &shop:* +@all");
    assert!(checked(&format!("{store}\nstore.prefix = \"shop:\"")).starts_with("fine"));
    assert!(checked(&store).contains("the keys login:,"));
    let keys = server.say("DBSIZE");
    assert!(keys.starts_with(":0"), "{keys}");
}

#[test]
fn a_redis_with_pages_alone_needs_less() {
    let (all, store) = redis_for("~* &* +@all");
    let (pages, _) = redis_for(
        "~cache:* ~lease:* ~hotpages: ~pagebytes: resetchannels -@all +del +evalsha +exists +get +getrange +hdel \
         +hget +hincrby +hset +pexpiretime +ping +pttl +script|load +set +strlen +time +unlink +multi +exec +discard",
    );
    let pages_url =
        format!("store.pages_url = \"redis://proxy:secret@127.0.0.1:{}\"", pages.port());
    let folder = TempDir::new().unwrap();
    let origin = Origin::always(Reply::unstored("page"));
    let config = format!("origin.url = \"http://{}\"\n{store}\n{pages_url}\n", origin.address());
    fs::write(folder.path().join("proxy.toml"), config).unwrap();
    let output = command(folder.path(), &["check", "--connect"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for server in [&all, &pages] {
        let port = server.port().to_string();
        let is_fine = |line: &str| line.starts_with("fine") && line.contains(&port);
        assert!(text.lines().any(is_fine), "{text}");
    }
}

#[test]
fn the_log_names_what_redis_denies() {
    let origin = Origin::always(Reply::html("page"));
    let (_server, store) = redis_for("~* &* +@all -evalsha");
    let proxy = Proxy::with_settings(&origin, &store);
    proxy.wait_for_complaint("NOPERM");
    proxy.wait_for_complaint("'evalsha'");

    let (_server, store) = redis_for("~* resetchannels +@all");
    let proxy = Proxy::with_settings(&origin, &store);
    proxy.wait_for_complaint("Redis denies its user a channel");
    proxy.wait_for_complaint("channel=\"purge:\"");
}

#[test]
fn the_log_and_check_name_a_password_that_is_missing() {
    let server = RedisServer::start();
    assert!(server.say("CONFIG SET requirepass secret").starts_with("+OK"));
    let store = format!("store.url = \"{}\"", server.url());
    let line = checked(&store);
    assert!(line.starts_with("failed") && line.contains("NOAUTH"), "{line}");
    let proxy = Proxy::with_settings(&Origin::always(Reply::html("page")), &store);
    proxy.wait_for_complaint("NOAUTH");
    assert!(!proxy.complaints().contains("the connection to Redis broke"));
}
