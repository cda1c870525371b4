//! One contract for all stores: the register of proxies.

use std::time::Duration;

use anteroom_store::traits::*;
use anteroom_store::{
    FLEET_MAX, FleetRegister, Generation, Layout, OpenStore, PurgePosition, StoreSettings, Url,
};
use anteroom_tests::DEADLINE;
use anteroom_tests::redis::RedisServer;

use crate::store_contract::{Bench, connected, contract, limits};

contract!(
    a_proxy_writes_itself_and_reads_the_others,
    a_proxy_that_ends_is_gone,
    a_proxy_that_crashed_is_gone_within_its_time,
    the_register_has_a_bound,
);

const MINUTE: Duration = Duration::from_secs(60);

async fn written(bench: &Bench, process_id: u64, entry: &str) -> FleetRegister {
    bench.store.register_proxy(process_id, entry, MINUTE).await.unwrap()
}

fn entries(register: &FleetRegister) -> Vec<(u64, &str)> {
    register.proxies.iter().map(|proxy| (proxy.process_id, proxy.entry.as_str())).collect()
}

async fn a_proxy_writes_itself_and_reads_the_others(bench: Bench) {
    let before = written(&bench, 1, r#"{"host": "one"}"#).await;
    assert_eq!(entries(&before), [(1, r#"{"host": "one"}"#)]);
    let after = written(&bench, u64::MAX, "two words").await;
    assert_eq!(entries(&after), [(1, r#"{"host": "one"}"#), (u64::MAX, "two words")]);
    let renewed = written(&bench, 1, "other").await;
    assert_eq!(entries(&renewed), [(1, "other"), (u64::MAX, "two words")]);
    for (register, who) in [(&before, 0), (&after, 1), (&renewed, 0)] {
        let age = register.now - register.proxies[who].written;
        assert!((0.0..0.1).contains(&age), "{register:?}");
    }
    assert!(!bench.store.has_other_layout().await.unwrap());
    assert!(bench.store.other_prefixes().await.unwrap().is_empty());
}

async fn a_proxy_that_ends_is_gone(bench: Bench) {
    written(&bench, 1, "one").await;
    written(&bench, 2, "two").await;
    bench.store.unregister_proxy(2).await.unwrap();
    bench.store.unregister_proxy(3).await.unwrap();
    assert_eq!(entries(&written(&bench, 1, "one").await), [(1, "one")]);
}

async fn a_proxy_that_crashed_is_gone_within_its_time(bench: Bench) {
    written(&bench, 2, "two").await;
    let lives = Duration::from_millis(100);
    let both = bench.store.register_proxy(1, "one", MINUTE).await.unwrap();
    assert_eq!(both.proxies.len(), 2);
    let gone = async {
        while bench.store.register_proxy(1, "one", lives).await.unwrap().proxies.len() > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, gone).await.unwrap();
}

async fn the_register_has_a_bound(bench: Bench) {
    for process_id in 0..FLEET_MAX as u64 {
        written(&bench, process_id, "one").await;
    }
    let full = written(&bench, 1_000, "too many").await;
    assert_eq!(full.proxies.len(), FLEET_MAX);
    assert!(full.proxies.iter().all(|proxy| proxy.entry == "one"));
    assert_eq!(written(&bench, 7, "renewed").await.proxies[7].entry, "renewed");
}

#[tokio::test]
async fn what_a_proxy_has_seen_of_the_purges_stands_beside_it() {
    let bench = Bench::redis().await;
    let begin = bench.store.purged_since(1, PurgePosition::default()).await.unwrap();
    let anteroom_store::PurgesSince::All { upto, .. } = begin else { panic!("{begin:?}") };
    bench.store.purged_since(1, upto).await.unwrap();
    bench.store.purge(upto, &[3]).await.unwrap().unwrap();
    written(&bench, 1, "one").await;
    let register = written(&bench, 2, "two").await;
    assert_eq!(register.purges, Generation { number: 1, ..upto.at });
    let seen: Vec<_> = register.proxies.iter().map(|proxy| proxy.seen).collect();
    assert_eq!(seen, [Some(upto.at), None]);
}

#[tokio::test]
async fn an_entry_of_another_version_is_read_and_a_foreign_value_is_removed() {
    let bench = Bench::redis().await;
    let now = written(&bench, 1, "one").await.now;
    let mut raw = bench.raw().await;
    let later = format!("2 {:.0} {{\"added\": 1}}", now * 1000.0);
    for (field, value) in [("2", later.as_str()), ("3", "foreign"), ("x", "1 5 old")] {
        let mut command = redis::cmd("HSET");
        command.arg("fleet:").arg(field).arg(value).exec_async(&mut raw).await.unwrap();
    }
    let register = written(&bench, 1, "one").await;
    assert_eq!(entries(&register), [(1, "one"), (2, r#"{"added": 1}"#)]);
    let left: i64 = redis::cmd("HLEN").arg("fleet:").query_async(&mut raw).await.unwrap();
    let expires: i64 = redis::cmd("TTL").arg("fleet:").query_async(&mut raw).await.unwrap();
    assert_eq!((left, (1..=60).contains(&expires)), (2, true));
}

#[tokio::test]
async fn keys_of_the_other_layout_are_noticed() {
    let server = RedisServer::start();
    for (layout, foreign) in [
        (Layout::Single, "a:login:{s63}"),
        (Layout::Sharded, "b:login:"),
        (Layout::Sharded, "c:fleet:"),
    ] {
        let settings = StoreSettings {
            url: Url::Redis(server.url()),
            prefix: foreign[..2].to_owned(),
            layout,
            limits: limits(),
        };
        let store = OpenStore::open(&settings).await.unwrap().thread_handle();
        connected(&store).await;
        store.register_proxy(1, "one", MINUTE).await.unwrap();
        assert!(!store.has_other_layout().await.unwrap(), "{foreign}");
        server.command::<i64>(&["HSET", foreign, "1", "x"]);
        assert!(store.has_other_layout().await.unwrap(), "{foreign}");
    }
}
