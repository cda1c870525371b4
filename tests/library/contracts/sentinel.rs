//! A store behind Sentinel, in both layouts: a primary that dies or is replaced, and a replica that is silent.

use std::time::{Duration, Instant};

use anteroom_store::traits::*;
use anteroom_store::{AnyStore, Layout, OpenStore, StoreSettings, Url};
use anteroom_tests::sentinel::SentinelGroup;

use crate::cluster::{AcknowledgedSessions, change, cluster_limits, lost};
use crate::store_contract::{connected, token, until, user};

/// The budget of a write, and what a busy machine adds.
const BUDGET: Duration = Duration::from_secs(4);

async fn open(watched: &SentinelGroup, layout: Layout) -> (OpenStore, AnyStore) {
    let (url, prefix) = (Url::Redis(watched.url()), String::new());
    let limits = cluster_limits();
    let open = OpenStore::open(&StoreSettings { url, prefix, layout, limits }).await.unwrap();
    let store = open.thread_handle();
    connected(&store).await;
    (open, store)
}

async fn a_killed_primary_loses_nothing(layout: Layout) {
    let mut watched = SentinelGroup::start();
    let (_open, store) = open(&watched, layout).await;
    let mut acknowledged = AcknowledgedSessions::new();
    for round in 0..3 {
        let (errors, _) = change(&store, &mut acknowledged, round).await;
        assert_eq!(errors, 0);
    }
    watched.servers[0].kill();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut round, mut all_errors) = (3, 0);
    loop {
        let (errors, longest) = change(&store, &mut acknowledged, round).await;
        assert!(longest < BUDGET, "a call took {longest:?}");
        all_errors += errors;
        round += 1;
        if errors == 0 && all_errors > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{errors} errors after the failover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lost(&store, &acknowledged).await, [0; 0]);
}

#[tokio::test]
async fn a_killed_primary_loses_no_acknowledged_change() {
    a_killed_primary_loses_nothing(Layout::Single).await;
}

#[tokio::test]
async fn a_killed_primary_loses_no_acknowledged_change_in_shards() {
    a_killed_primary_loses_nothing(Layout::Sharded).await;
}

#[tokio::test]
async fn a_log_out_that_a_failover_took_back_is_repeated() {
    let watched = SentinelGroup::start();
    let (_open, store) = open(&watched, Layout::Single).await;
    for number in [1, 2] {
        store.update_token(&token(number), &user("ann"), None, 1.0).await.unwrap();
    }
    store.revoke_token(&token(1)).await.unwrap();
    // As if the replica had not heard of the logout.
    let [primary, replica] = &watched.servers;
    primary.say(&format!("HSET login: {} ann", token(1).as_str()));
    let is_there = || replica.say(&format!("HEXISTS login: {}", token(1).as_str()));
    watched.until("the replica has the session", |_| is_there().starts_with(":1"));
    watched.fail_over();
    until("the logout is repeated", || async { is_there().starts_with(":0") }).await;
    // This thread's own connection may come up later than the one that repeated the logout.
    until("the other session is there", || async {
        store.check_token(&token(2)).await.is_ok_and(|found| found == Some(user("ann")))
    })
    .await;
}

#[tokio::test]
async fn a_silent_replica_holds_up_log_ins_for_seconds_only() {
    let watched = SentinelGroup::start();
    let (_open, store) = open(&watched, Layout::Single).await;
    store.update_token(&token(1), &user("ann"), None, 1.0).await.unwrap();
    watched.servers[1].pause();
    until("logins are possible without the replica", || async {
        let began = Instant::now();
        let done = store.update_token(&token(2), &user("ann"), None, 1.0).await;
        assert!(began.elapsed() < BUDGET, "{:?}", began.elapsed());
        done.is_ok()
    })
    .await;
    // The primary is known to be alone: many logins at once do not wait one behind the other.
    let log_ins = (3..40).map(|number| {
        let store = store.clone();
        async move { store.update_token(&token(number), &user("ann"), None, 1.0).await }
    });
    let began = Instant::now();
    for done in futures_util::future::join_all(log_ins).await {
        done.unwrap();
    }
    assert!(began.elapsed() < BUDGET, "{:?}", began.elapsed());
    watched.servers[1].resume();
}
