//! A store in a real Cluster of six nodes, whose primaries fail and whose slots move; and what a login takes from one
//! shard to another.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anteroom::ident::{StoredToken, VisitorToken};
use anteroom::store::traits::*;
use anteroom::store::{
    AnyStore, CartChange, Layout, OpenStore, Rotation, StoreError, StoreLimits, StoreSettings, Url,
    Visit,
};

use crate::store_contract::{Bench, connected, item, limits, rotation, token, until, user, visit};
use crate::support::cluster::RedisCluster;

/// How many sessions a test has.
const SESSIONS: usize = 300;

pub(crate) fn cluster_limits() -> StoreLimits {
    StoreLimits { pages: 64 << 20, write_timeout: Duration::from_secs(2), ..limits() }
}

async fn open(cluster: &RedisCluster) -> (OpenStore, AnyStore) {
    let settings = StoreSettings {
        url: Url::Redis(cluster.url()),
        prefix: String::new(),
        layout: Layout::Sharded,
        limits: cluster_limits(),
    };
    let open = OpenStore::open(&settings).await.unwrap();
    let store = open.thread_handle();
    connected(&store).await;
    (open, store)
}

/// What was acknowledged of each session: whether it is there, and how many of an item are in its cart, if that is
/// known.
pub(crate) type Acknowledged = HashMap<usize, (bool, Option<i64>)>;

/// Changes sessions one after another, and notes what was acknowledged. After an error a session is left out: its
/// state is not known.
pub(crate) async fn change(
    store: &AnyStore,
    acknowledged: &mut Acknowledged,
    round: usize,
) -> (usize, Duration) {
    let (mut errors, mut longest) = (0, Duration::ZERO);
    for number in 0..SESSIONS {
        let began = Instant::now();
        // A log-out is ended again in a failover unless a later log-in followed.
        let now = anteroom::clock::unix_now();
        let known = acknowledged.get(&number).copied();
        let is_there = known.is_some_and(|(is_there, _)| is_there);
        let done: Result<(bool, Option<i64>), StoreError> = if number % 3 == 0 && is_there {
            store.revoke_token(&token(number)).await.map(|()| (false, Some(0)))
        } else if is_there {
            let count = 1 + round as i64;
            store.add_to_cart(&token(number), &item(1), count).await.map(|()| (true, Some(count)))
        } else {
            store
                .update_token(&token(number), &user("ann"), None, now)
                .await
                .map(|()| (true, known.and(Some(0))))
        };
        longest = longest.max(began.elapsed());
        match done {
            Ok(state) => drop(acknowledged.insert(number, state)),
            Err(_) => {
                errors += 1;
                acknowledged.remove(&number);
            }
        }
    }
    (errors, longest)
}

/// The sessions that are not as they were acknowledged.
pub(crate) async fn lost(store: &AnyStore, acknowledged: &Acknowledged) -> Vec<usize> {
    let mut lost = Vec::new();
    for (number, (is_there, count)) in acknowledged {
        let there = store.check_token(&token(*number)).await.unwrap().is_some();
        let cart = store.cart(&token(*number)).await.unwrap();
        let held = cart.first().map_or(0, |(_, count)| *count);
        if there != *is_there || (*is_there && count.is_some_and(|count| count != held)) {
            lost.push(*number);
        }
    }
    lost
}

#[tokio::test]
async fn a_killed_primary_loses_no_acknowledged_change_and_holds_up_no_call() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    let mut acknowledged = Acknowledged::new();
    for round in 0..3 {
        let (errors, _) = change(&store, &mut acknowledged, round).await;
        assert_eq!(errors, 0);
    }
    let killed = cluster.primary_of("login:{s0}");
    cluster.nodes[killed].kill();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut round, mut all_errors) = (3, 0);
    loop {
        let (errors, longest) = change(&store, &mut acknowledged, round).await;
        assert!(longest < Duration::from_secs(4), "a call took {longest:?}");
        all_errors += errors;
        round += 1;
        if errors == 0 && all_errors > 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{errors} errors after the failover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(lost(&store, &acknowledged).await, [0; 0]);
    // The other two thirds went on.
    assert!(all_errors < round * SESSIONS / 2, "{all_errors} errors in {round} rounds");
}

#[tokio::test]
async fn many_changes_at_once_are_taken_when_the_replica_is_gone() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    change(&store, &mut Acknowledged::new(), 0).await;
    let primary = cluster.primary_of("login:{s0}");
    cluster.kill_replica_of(primary);
    let shard = |number: &usize| anteroom::store::shard_of(token(*number).as_str(), 64);
    let of_primary = (0..SESSIONS)
        .filter(|number| cluster.primary_of(&format!("login:{{s{}}}", shard(number))) == primary);
    let numbers: Vec<usize> = of_primary.take(20).collect();
    let tokens: Vec<StoredToken> = numbers.into_iter().map(token).collect();
    let item = item(1);
    let changes = tokens.iter().map(|token| store.add_to_cart(token, &item, 1));
    for (place, done) in futures_util::future::join_all(changes).await.into_iter().enumerate() {
        assert!(done.is_ok(), "call {place}: {done:?}");
    }
}

#[tokio::test]
async fn slots_that_move_fail_no_call() {
    let cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    let mut acknowledged = Acknowledged::new();
    change(&store, &mut acknowledged, 0).await;
    let from = cluster.primary_of("login:{s0}");
    let shards = (1..64).map(|shard| cluster.primary_of(&format!("login:{{s{shard}}}")));
    let to = shards.into_iter().find(|node| *node != from).unwrap();
    let id = |node: usize| {
        let said = cluster.nodes[node].say("CLUSTER MYID");
        said.lines().nth(1).unwrap().to_owned()
    };
    let mut moving = Command::new("redis-cli");
    moving.args(["--cluster", "reshard", &format!("127.0.0.1:{}", cluster.nodes[from].port())]);
    moving.args(["--cluster-from", &id(from), "--cluster-to", &id(to)]);
    moving.args(["--cluster-slots", "1000", "--cluster-yes"]);
    let mut moving = moving.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut round = 1;
    while moving.try_wait().unwrap().is_none() {
        let (errors, _) = change(&store, &mut acknowledged, round).await;
        assert_eq!(errors, 0, "in round {round}");
        round += 1;
    }
    assert!(moving.wait().unwrap().success());
    let (errors, _) = change(&store, &mut acknowledged, round).await;
    assert_eq!(errors, 0);
    assert_eq!(lost(&store, &acknowledged).await, [0; 0]);
}

#[tokio::test]
async fn a_lost_share_refuses_no_log_in_of_the_others() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    let lost = cluster.primary_of("login:{s0}");
    let is_lost: Vec<bool> =
        (0..64).map(|shard| cluster.primary_of(&format!("login:{{s{shard}}}")) == lost).collect();
    let its = format!("master_port:{}\r", cluster.nodes[lost].port());
    let replica = cluster.nodes.iter().position(|node| node.say("INFO replication").contains(&its));
    for node in [lost, replica.unwrap()] {
        cluster.nodes[node].kill();
    }
    let shard = |number: usize| anteroom::store::shard_of(token(number).as_str(), 64);
    let left: Vec<usize> = (0..40).filter(|number| !is_lost[shard(*number)]).collect();
    until("calls to the lost share fail at once", || async {
        let began = Instant::now();
        store.sessions_of(&user("ann")).await.is_err() && began.elapsed().as_millis() < 200
    })
    .await;
    for number in left.clone() {
        let item = item(number);
        store.update_token(&token(number), &user("bob"), Some(&item), 1.0).await.unwrap();
        let limited = Rotation { most: 2, ..rotation(None, number, "ann") };
        store.rotate_token(&limited).await.unwrap();
    }
    // Visits fail as a whole, and are repeated; those of the other shards are recorded all the same.
    let newest = *left.last().unwrap();
    let lost = (0..40).filter(|number| is_lost[shard(*number)]);
    let visits: Vec<Visit> =
        lost.chain([newest]).map(|number| visit(number, "ann", 200.0, &[])).collect();
    store.touch_tokens(&visits).await.unwrap_err();
    let session = store.session(&token(newest)).await.unwrap().unwrap();
    assert_eq!(session.seen, Some(200.0));
}

/// Two tokens of different shards, as it is with most.
fn tokens_apart() -> (usize, usize) {
    let shard = |number: usize| anteroom::store::shard_of(token(number).as_str(), 64);
    let other = (2..).find(|number| shard(*number) != shard(1)).unwrap();
    (1, other)
}

#[tokio::test]
async fn a_log_in_takes_cart_and_views_to_another_shard() {
    let bench = Bench::cluster().await;
    let (old, new) = tokens_apart();
    bench.log_in(&token(old), "ann", 1.0).await;
    bench.store.touch_tokens(&[visit(old, "ann", 2.0, &[7])]).await.unwrap();
    bench.store.add_to_cart(&token(old), &item(1), 3).await.unwrap();
    bench.store.rotate_token(&rotation(Some(old), new, "ann")).await.unwrap();
    assert_eq!(bench.user_of(&token(old)).await, None);
    assert_eq!(bench.user_of(&token(new)).await, Some(user("ann")));
    assert_eq!(bench.store.cart(&token(new)).await.unwrap(), [(item(1), 3)]);
    assert_eq!(bench.store.viewed(&token(new)).await.unwrap(), [(item(7), 2.0)]);
    let left: Vec<String> = bench.dump().await;
    assert!(!left.iter().any(|line| line.starts_with("handover:")), "{left:?}");
    assert!(!left.iter().any(|line| line.contains(token(old).as_str())), "{left:?}");
}

#[tokio::test]
async fn a_log_in_that_stops_halfway_is_finished_by_any_process() {
    let bench = Bench::cluster().await;
    let (old, new) = tokens_apart();
    let AnyStore::Sharded(store) = &bench.store else { unreachable!() };
    bench.log_in(&token(old), "ann", 1.0).await;
    bench.store.add_to_cart(&token(old), &item(1), 3).await.unwrap();
    // As `rotate_token`, until the old session has ended.
    bench.log_in(&token(new), "ann", 100.0).await;
    store.begin_handover(&rotation(Some(old), new, "ann")).await.unwrap();
    assert_eq!(bench.store.cart(&token(new)).await.unwrap(), []);
    assert_eq!(bench.members("handover:").await.len(), 1);
    assert_eq!(bench.store.finish_handovers(101.0).await.unwrap(), 0, "it may still be at work");
    assert_eq!(bench.store.finish_handovers(200.0).await.unwrap(), 1);
    assert_eq!(bench.store.cart(&token(new)).await.unwrap(), [(item(1), 3)]);
    assert_eq!(bench.members("handover:").await, [""; 0]);
}

#[tokio::test]
async fn a_user_keeps_the_newest_sessions_over_all_shards() {
    let bench = Bench::cluster().await;
    for number in 0..20 {
        let mut log_in = rotation(None, number, "ann");
        (log_in.most, log_in.now) = (5, 100.0 + number as f64);
        bench.store.rotate_token(&log_in).await.unwrap();
    }
    let sessions = bench.store.sessions_of(&user("ann")).await.unwrap();
    let kept: Vec<StoredToken> = sessions.into_iter().map(|session| session.token).collect();
    assert_eq!(kept, [15, 16, 17, 18, 19].map(token));
}

#[tokio::test]
async fn another_program_finds_a_token_by_its_shard() {
    let bench = Bench::cluster().await;
    let visitor = VisitorToken::of(&anteroom::ident::Token::mint().unwrap());
    bench.log_in(&token(1), "ann", 1.0).await;
    let change = CartChange::Set(vec![(item(1), 2)]);
    let now = anteroom::store::TokenCreation::Now;
    bench.store.change_visitor_cart(&visitor, now, &change, 1.0).await.unwrap();
    // binascii.crc_hqx(b"token-0001", 0) % 64
    let shard = anteroom::store::shard_of("token-0001", 64);
    let keys = bench.raw_keys().await;
    assert!(keys.contains(&format!("login:{{s{shard}}}")), "{keys:?}");
    let shard = anteroom::store::shard_of(visitor.as_str(), 64);
    let cart = format!("cart:{{s{shard}}}:{}", visitor.as_str());
    assert!(keys.contains(&cart), "{keys:?}");
    until("a write is read", || async { bench.user_of(&token(1)).await.is_some() }).await;
}
