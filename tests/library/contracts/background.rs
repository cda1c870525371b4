//! What goes over the pool of connections to Redis, and what that is spared which requests ask.

use std::time::{Duration, Instant};

use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, Layout, OpenStore, StoreError, StoreLimits, StoreSettings, StoreState, Url,
};
use anteroom_tests::redis::RedisServer;
use anteroom_tests::relay::Relay;
use futures_util::future::join_all;

use crate::store_contract::{Bench, connected, limits, tight, token, until, user};

/// The connections of the pool.
const POOL: usize = 4;
/// More than requests can have answered while they stand behind something that is held up.
const LOOK_UPS: usize = 1_000;

/// A store behind a relay, with a session.
struct RelayedStore {
    store: AnyStore,
    relay: Relay,
    _server: RedisServer,
}

impl RelayedStore {
    async fn start(limits: StoreLimits) -> Self {
        let server = RedisServer::start();
        let relay = Relay::start(server.port());
        let url = Url::Redis(format!("redis://127.0.0.1:{}", relay.port()));
        let open = OpenStore::open(&StoreSettings {
            url,
            prefix: String::new(),
            layout: Layout::Single,
            limits,
        })
        .await
        .unwrap();
        let store = open.thread_handle();
        connected(&store).await;
        store.update_token(&token(1), &user("ann"), None, 1.0).await.unwrap();
        Self { store, relay, _server: server }
    }

    /// Look-ups as requests make them. None of them fails or waits for its budget.
    async fn look_up(&self, times: usize) {
        for _ in 0..times {
            assert_eq!(self.store.check_token(&token(1)).await.unwrap(), Some(user("ann")));
        }
    }
}

#[tokio::test]
async fn look_ups_go_on_while_exports_wait_for_their_answers() {
    let patient = StoreLimits { write_timeout: Duration::from_secs(60), ..limits() };
    let relayed = RelayedStore::start(patient).await;
    let tasks = relayed.store.background();
    relayed.relay.hold_those_that_ask("HSCAN");
    let exports = join_all((0..POOL).map(|_| tasks.walk(None, "")));
    let meanwhile = async {
        until("all exports wait", async || relayed.relay.caught() == POOL).await;
        relayed.look_up(LOOK_UPS).await;
        relayed.relay.pass();
    };
    let (exported, ()) = tokio::join!(exports, meanwhile);
    for walked in exported {
        assert_eq!(walked.unwrap().met, [(token(1), user("ann"))]);
    }
}

#[tokio::test]
async fn a_command_without_a_connection_changes_nothing_and_trips_the_breaker() {
    let budget = Duration::from_secs(2);
    let relayed = RelayedStore::start(StoreLimits { write_timeout: budget, ..limits() }).await;
    let tasks = relayed.store.background();
    relayed.relay.hold_those_that_ask("HSCAN");
    let begun = Instant::now();
    let exports = join_all((0..=POOL).map(|_| tasks.walk(None, ""))).await;
    assert!(begun.elapsed() < budget * 4, "the budget holds");
    let timed_out = |export: &&Result<_, StoreError>| matches!(export, Err(StoreError::TimedOut));
    assert_eq!(exports.iter().filter(timed_out).count(), POOL);
    let left_out = |export: &&Result<_, StoreError>| matches!(export, Err(StoreError::Away));
    assert_eq!(exports.iter().filter(left_out).count(), 1);

    let begun = Instant::now();
    let refused = tasks.walk(None, "").await;
    assert!(matches!(refused, Err(StoreError::Away)), "{refused:?}");
    assert!(begun.elapsed() < budget, "it is away at once");
    assert_eq!(relayed.store.counted().breaker_openings, 1);
    relayed.look_up(1).await;
    assert_eq!(relayed.store.state(), StoreState::Connected);

    relayed.relay.pass();
    until("exports go on", async || tasks.walk(None, "").await.is_ok()).await;
}

#[tokio::test]
async fn when_redis_is_gone_tasks_know_at_once_and_recover_by_themselves() {
    let mut bench = Bench::redis_with(tight()).await;
    let tasks = bench.store.background();
    tasks.update_token(&token(1), &user("ann"), None, 1.0).await.unwrap();
    bench.server().kill();
    until("it is away", async || bench.store.state() == StoreState::Away).await;
    let begun = Instant::now();
    let refused = tasks.check_token(&token(1)).await;
    assert!(matches!(refused, Err(StoreError::Away)), "{refused:?}");
    assert!(begun.elapsed() < tight().write_timeout, "it is away at once");

    bench.server().restart();
    until("it is back", async || matches!(tasks.check_token(&token(1)).await, Ok(Some(_)))).await;
}

#[tokio::test]
async fn a_task_write_with_a_lost_answer_is_reported_unanswered() {
    let relayed = RelayedStore::start(limits()).await;
    let tasks = relayed.store.background();
    tasks.check_token(&token(1)).await.unwrap();
    relayed.relay.lose_answer_to("EVALSHA");
    let lost = tasks.revoke_token(&token(1)).await;
    assert!(matches!(lost, Err(StoreError::Unanswered(_))), "{lost:?}");
    tasks.revoke_token(&token(1)).await.unwrap();
    assert_eq!(relayed.store.check_token(&token(1)).await.unwrap(), None);
}
