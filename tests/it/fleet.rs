//! Several proxies on one Redis: they find each other, and tell what differs.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

fn fleet(proxy: &Proxy, words: &[&str]) -> Output {
    let mut command = anteroom();
    command.arg("fleet").args(words).args(["--config", "proxy.toml"]);
    command.current_dir(proxy.folder()).output().unwrap()
}

fn report(proxy: &Proxy) -> Value {
    let output = fleet(proxy, &["--json"]);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn listed(proxy: &Proxy) -> Vec<Value> {
    report(proxy)["proxies"].as_array().unwrap().clone()
}

fn origin() -> Origin {
    Origin::start(|_| Reply::unstored("page"))
}

fn id_of(proxy: &Proxy) -> String {
    let own = listed(proxy).into_iter().find(|entry| entry["own"] == true).unwrap();
    own["id"].as_str().unwrap().to_owned()
}

fn server(storage: &Storage) -> &RedisServer {
    match storage {
        Storage::Redis(server) => server,
        Storage::Embedded => panic!("it is in Redis"),
    }
}

#[test]
fn proxies_on_one_store_tell_which_of_them_differs_and_in_what() {
    let (origin, storage) = (origin(), Storage::redis());
    let first = Proxy::start(&origin, &storage, "");
    let mut second = Proxy::start(&origin, &storage, "threads = 1");
    let other = Proxy::start(&origin, &storage, "session.token_storage = \"sha256\"");
    wait_until("they see each other", || listed(&first).len() == 3);
    let (ids, all) = ([&first, &second, &other].map(id_of), listed(&first));
    let of = |id: &str| all.iter().find(|entry| entry["id"] == id).unwrap();
    let [own, same, differing] = [0, 1, 2].map(|place| of(&ids[place]));
    assert_eq!((&own["own"], &same["own"]), (&Value::Bool(true), &Value::Bool(false)));
    assert_eq!(own["config"], same["config"]);
    assert_ne!(own["config"], differing["config"]);
    assert_eq!(same["must_match"], serde_json::json!([]));
    assert_eq!(differing["must_match"], serde_json::json!(["session.token_storage"]));
    assert_eq!(differing["differs"], serde_json::json!(["session"]));
    assert_eq!(own["version"], env!("CARGO_PKG_VERSION"));
    let clock = own["clock"].as_f64().unwrap();
    assert!(clock.abs() < 1.0, "both are on one machine: {clock}");
    wait_until("all purges are seen", || {
        listed(&first).iter().all(|entry| entry["purges_behind"] == 0)
    });
    let output = fleet(&first, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("must be as here: session.token_storage"), "{text}");
    // At the next look of the task at the latest.
    wait_until("it is logged", || {
        let log = first.complaints();
        log.contains("session.token_storage") && log.contains(&ids[2])
    });
    assert!(!first.complaints().contains(&ids[1]), "{}", first.complaints());
    assert_eq!(first.metric("anteroom_fleet_proxies"), 3.0);
    assert_eq!(first.metric("anteroom_fleet_differing"), 1.0);

    other.terminate();
    wait_until("the one that ended is gone", || listed(&first).len() == 2);
    assert_eq!(fleet(&first, &[]).status.code(), Some(0));

    second.kill9();
    assert_eq!(listed(&first).len(), 2, "a crashed one may come back for a minute");
    let entry: String = server(&storage).command(&["HGET", "fleet:", &ids[1]]);
    let (_, rest) = entry.split_once(' ').unwrap();
    let (written, text) = rest.split_once(' ').unwrap();
    let before = written.parse::<u64>().unwrap() - 61_000;
    let aged = format!("1 {before} {text}");
    server(&storage).command::<i64>(&["HSET", "fleet:", &ids[1], &aged]);
    assert_eq!(listed(&first).len(), 1);
}

#[test]
fn a_proxy_of_the_other_layout_is_told() {
    let (origin, storage) = (origin(), Storage::redis());
    let chapter = Proxy::start(&origin, &storage, "");
    assert_eq!(fleet(&chapter, &[]).status.code(), Some(0));
    let sharded = Proxy::start(&origin, &storage, "store.layout = \"sharded\"");
    for proxy in [&chapter, &sharded] {
        wait_until("the other layout is told", || report(proxy)["other_layout"] == true);
        wait_until("it is logged", || proxy.complaints().contains("other layout"));
        assert_eq!(listed(proxy).len(), 1);
    }
}

#[test]
fn a_proxy_with_another_prefix_is_told() {
    let (origin, storage) = (origin(), Storage::redis());
    let shop = Proxy::start(&origin, &storage, "store.prefix = \"shop:\"");
    assert_eq!(report(&shop)["other_prefixes"], serde_json::json!([]));
    let other = Proxy::start(&origin, &storage, "store.prefix = \"shpo:\"");
    for (proxy, prefix) in [(&shop, "shpo:"), (&other, "shop:")] {
        let is_told = || report(proxy)["other_prefixes"] == serde_json::json!([prefix]);
        wait_until("the other prefix is told", is_told);
        assert_eq!(listed(proxy).len(), 1);
        let output = fleet(proxy, &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("{prefix:?}")), "{said}");
        assert_eq!(output.status.code(), Some(0), "sites may share a Redis");
    }
    other.terminate();
    wait_until("it is gone", || report(&shop)["other_prefixes"] == serde_json::json!([]));
}

#[test]
fn a_reload_changes_what_a_proxy_says_of_itself() {
    let (origin, storage) = (origin(), Storage::redis());
    let [first, second] = [(), ()].map(|()| Proxy::start(&origin, &storage, ""));
    wait_until("they see each other", || listed(&first).len() == 2);
    second.edit(|text| format!("cache.default_ttl = \"7s\"\n{text}"));
    assert!(second.reload());
    let other = id_of(&second);
    wait_until("the other configuration is seen", || {
        let all = listed(&first);
        let entry = all.iter().find(|entry| entry["id"] == other.as_str()).unwrap();
        entry["differs"] == serde_json::json!(["cache"])
    });
    assert_eq!(fleet(&first, &[]).status.code(), Some(0), "it may differ for a while");
}

#[test]
fn the_list_needs_the_token_over_tcp() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "operators-token").unwrap();
    let settings = format!("admin.token = {{ file = \"{}\" }}", file.display());
    let proxy = Proxy::embedded(&origin(), &settings);
    assert_eq!(proxy.admin("/fleet").send().status, 401);
    let answer = proxy.admin("/fleet").header("Authorization", "Bearer operators-token").send();
    assert_eq!(answer.status, 200);
    let report: Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(report["proxies"][0]["own"], true);
}
