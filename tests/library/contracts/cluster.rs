//! A store in a real Cluster of six nodes, whose primaries fail and whose slots move; and what a login takes from one
//! shard to another.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anteroom_http::ident::{Item, StoredToken, Token, TokenStorage, VisitorToken};
use anteroom_session::visit::{PopularityRanks, VisitQueue};
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, CartChange, Cursor, Engine, Eviction, ExpiryAction, Layout, OpenStore, Rotation,
    StoreError, StoreLimits, StoreSettings, TopBound, Url, Visit,
};
use anteroom_tests::cluster::RedisCluster;

use crate::store_contract::{Bench, connected, item, limits, rotation, token, until, user, visit};

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
pub(crate) type AcknowledgedSessions = HashMap<usize, (bool, Option<i64>)>;

/// Changes sessions one after another, and notes what was acknowledged. After an error a session is left out: its
/// state is not known.
pub(crate) async fn change(
    store: &AnyStore,
    acknowledged: &mut AcknowledgedSessions,
    round: usize,
) -> (usize, Duration) {
    let (mut errors, mut longest) = (0, Duration::ZERO);
    for number in 0..SESSIONS {
        let began = Instant::now();
        // A logout is ended again in a failover unless a later login followed.
        let now = anteroom_http::clock::unix_now();
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
pub(crate) async fn lost(store: &AnyStore, acknowledged: &AcknowledgedSessions) -> Vec<usize> {
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
    let mut acknowledged = AcknowledgedSessions::new();
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
    change(&store, &mut AcknowledgedSessions::new(), 0).await;
    let primary = cluster.primary_of("login:{s0}");
    cluster.kill_replica_of(primary);
    let shard = |number: &usize| anteroom_store::shard_of(token(*number).as_str(), 64);
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
    let mut acknowledged = AcknowledgedSessions::new();
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

/// Stops a primary and its replica. Returns of each shard whether it is lost.
fn lose_a_share(cluster: &mut RedisCluster) -> Vec<bool> {
    let lost = cluster.primary_of("login:{s0}");
    let is_lost: Vec<bool> =
        (0..64).map(|shard| cluster.primary_of(&format!("login:{{s{shard}}}")) == lost).collect();
    let its = format!("master_port:{}\r", cluster.nodes[lost].port());
    let replica = cluster.nodes.iter().position(|node| node.say("INFO replication").contains(&its));
    for node in [lost, replica.unwrap()] {
        cluster.nodes[node].kill();
    }
    is_lost
}

fn shard_of_token(number: usize) -> usize {
    anteroom_store::shard_of(token(number).as_str(), 64)
}

/// Waits until calls to a share that was lost fail at once.
async fn until_lost(store: &AnyStore) {
    until("calls to the lost share fail at once", || async {
        let began = Instant::now();
        store.sessions_of(&user("ann")).await.is_err() && began.elapsed().as_millis() < 200
    })
    .await;
}

/// Removes sessions until a step removes none; returns the most that a step has removed.
async fn clean(store: &AnyStore, keep: u64, batch: u32) -> usize {
    let mut most = 0;
    loop {
        let how = Eviction { keep, batch, carts: true, before: 0.0 };
        match store.evict_oldest(how).await.unwrap() {
            0 => return most,
            removed => most = most.max(removed),
        }
    }
}

async fn log_in_many(store: &AnyStore, count: usize) {
    let numbers: Vec<usize> = (0..count).collect();
    for part in numbers.chunks(100) {
        let log_ins = part.iter().map(|number| async move {
            let (token, user) = (token(*number), user("ann"));
            store.update_token(&token, &user, None, *number as f64).await.unwrap();
        });
        futures_util::future::join_all(log_ins).await;
    }
}

async fn those_left(store: &AnyStore, numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut left = Vec::new();
    for number in numbers {
        if store.check_token(&token(number)).await.unwrap().is_some() {
            left.push(number);
        }
    }
    left
}

#[tokio::test]
async fn a_lost_share_holds_up_the_cleaning_of_its_own_sessions_only() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    log_in_many(&store, 600).await;
    let is_lost = lose_a_share(&mut cluster);
    until_lost(&store).await;
    let here = || (0..600).filter(|number| !is_lost[shard_of_token(*number)]);
    let shards = is_lost.iter().filter(|is_lost| !**is_lost).count();

    // Small steps remove the very oldest of those within reach.
    clean(&store, 300, 50).await;
    let left = those_left(&store, here()).await;
    let kept = 300 * shards / 64;
    assert_eq!(left, here().skip(here().count() - kept).collect::<Vec<_>>());

    clean(&store, 0, 50).await;
    assert_eq!(those_left(&store, here()).await, [0; 0]);

    let expiring = Eviction { keep: 0, batch: 50, carts: true, before: 0.0 };
    log_in_again(&store, here().take(40)).await;
    let action = ExpiryAction::Stream { storage: TokenStorage::Plain, keep: 1_000 };
    let mut from = Cursor::default();
    until("sessions are cleaned with their carts", || {
        let evicted = store.evict_expiring(expiring, &from, &action);
        async { evicted.await.unwrap().removed == 0 }
    })
    .await;
    from = Cursor::default();
    let evicted = store.evict_expiring(expiring, &from, &action).await.unwrap();
    assert_eq!((evicted.removed, evicted.more), (0, false));
    assert_eq!(those_left(&store, here()).await, [0; 0]);
}

async fn log_in_again(store: &AnyStore, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        // On a busy machine an answer may come later than the store's budget allows.
        let (token, ann, item) = (token(number), user("ann"), item(1));
        until("the login is stored", || {
            let stored = store.update_token(&token, &ann, None, number as f64);
            async { stored.await.is_ok() }
        })
        .await;
        until("the cart is filled", || {
            let filled = store.add_to_cart(&token, &item, 1);
            async { filled.await.is_ok() }
        })
        .await;
    }
}

#[tokio::test]
async fn a_lost_share_holds_up_its_own_visits_and_views_only() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    log_in_many(&store, 40).await;
    let is_lost = lose_a_share(&mut cluster);
    until_lost(&store).await;
    let is_here = |number: &usize| !is_lost[shard_of_token(*number)];
    let (here, away): (Vec<usize>, Vec<usize>) = (0..40).partition(is_here);

    let queue = VisitQueue::new(100 * away.len(), 25);
    for number in &away {
        queue.note(token(*number), user("ann"), None, 500.0);
    }
    until("no part of the store takes these", || {
        let drained = queue.drain(&store);
        async { drained.await.failure.is_some() }
    })
    .await;
    for number in here.iter().take(away.len()) {
        queue.note(token(*number), user("ann"), None, 500.0);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let (mut touched, mut waiting) = (0, 0);
    while touched < here.len().min(away.len()) {
        let progress = queue.drain(&store).await;
        touched += progress.visits;
        waiting = progress.postponed;
        assert!(Instant::now() < deadline, "{touched} visits of {}", here.len());
        let _ = tokio::time::timeout(Duration::from_millis(100), queue.due()).await;
    }
    assert_eq!((waiting, queue.backlog(), queue.dropped()), (away.len(), away.len(), 0));
    let newest = here[0];
    let session = store.session(&token(newest)).await.unwrap().unwrap();
    assert_eq!(session.seen, Some(500.0));

    let views: Vec<(Item, u64)> = (0..60).map(|number| (item(number), 2)).collect();
    let of_lost = |(item, _): &&(Item, u64)| is_lost[anteroom_store::shard_of(item.as_str(), 64)];
    let mut of_lost: Vec<(Item, u64)> = views.iter().filter(of_lost).cloned().collect();
    let uncounted = store.count_within_reach(&views).await.unwrap();
    let mut not_sent = uncounted.not_sent;
    not_sent.sort();
    of_lost.sort();
    assert_eq!((not_sent, uncounted.unknown), (of_lost, Vec::new()));
}

#[tokio::test]
async fn a_cleaner_far_behind_removes_a_batch_of_each_shard() {
    let bench = Bench::cluster().await;
    log_in_many(&bench.store, 900).await;
    let of_shards = |numbers: &[usize]| {
        let mut counts = vec![0; 64];
        numbers.iter().for_each(|number| counts[shard_of_token(*number)] += 1);
        counts
    };
    let how = Eviction { keep: 100, batch: 5, carts: true, before: 0.0 };
    let before = of_shards(&those_left(&bench.store, 0..900).await);
    let removed = bench.store.evict_oldest(how).await.unwrap();
    let after = of_shards(&those_left(&bench.store, 0..900).await);
    assert!(removed > 100 && removed <= 64 * 5, "{removed}");
    let gone = before.iter().zip(&after).map(|(before, after)| before - after);
    assert!(gone.clone().all(|gone| gone <= 5), "{:?}", gone.collect::<Vec<_>>());
    clean(&bench.store, 100, 5).await;
    let left = those_left(&bench.store, 0..900).await;
    assert_eq!(left.len(), 100);
    // About the newest.
    assert!(left.iter().all(|number| *number > 600), "{left:?}");
}

/// How often all nodes were given a command.
fn calls(cluster: &RedisCluster, command: &str) -> u64 {
    let prefix = format!("cmdstat_{command}:calls=");
    let said = cluster.nodes.iter().map(|node| node.say("INFO commandstats"));
    let count = said.filter_map(|said| {
        let (_, stat) = said.split_once(&prefix)?;
        stat.split(',').next()?.parse::<u64>().ok()
    });
    count.sum()
}

#[tokio::test]
async fn far_below_the_limit_a_look_asks_a_few_shards() {
    let cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    log_in_many(&store, 200).await;
    let look = |keep| {
        let how = Eviction { keep, batch: 100, carts: true, before: 0.0 };
        let store = &store;
        async move { store.evict_oldest(how).await.unwrap() }
    };
    assert_eq!(look(1_000_000).await, 0);
    let before = calls(&cluster, "zcard");
    for _ in 0..16 {
        assert_eq!(look(1_000_000).await, 0);
    }
    assert_eq!(calls(&cluster, "zcard") - before, 64);
    assert_eq!(look(150).await, 50);
}

#[tokio::test]
async fn the_most_viewed_are_told_by_a_bound_that_one_look_finds() {
    let cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    assert_eq!(store.bound_of_top(10).await.unwrap(), Some(TopBound::Every));
    let views: Vec<(Item, u64)> = (1..=900).map(|number| (item(number), number as u64)).collect();
    store.count_views(&views).await.unwrap();
    for top in [1, 10, 100, 800] {
        let bound = store.bound_of_top(top).await.unwrap().unwrap();
        assert_eq!(bound, TopBound::Score(-(901.0 - top as f64)), "of {top}");
        for number in [901 - top as usize, 900 - top as usize, 900, 1] {
            let found = store.ranks_within(&item(number), top, bound).await.unwrap();
            let exact = store.ranks_under(&item(number), top).await.unwrap();
            assert_eq!(found, exact, "item {number} of {top}");
        }
    }
    assert_eq!(store.bound_of_top(901).await.unwrap(), Some(TopBound::Every));

    let ranks = PopularityRanks::default();
    let before = calls(&cluster, "zcount") + calls(&cluster, "zrange");
    for number in 1..=500 {
        ranks.is_in_top(&store, &item(number), 100, 1.0).await.unwrap();
    }
    let calls = calls(&cluster, "zcount") + calls(&cluster, "zrange") - before;
    assert!(calls <= 128, "{calls} calls");
}

#[tokio::test]
async fn a_lost_share_refuses_no_log_in_of_the_others() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    let is_lost = lose_a_share(&mut cluster);
    let shard = |number: usize| anteroom_store::shard_of(token(number).as_str(), 64);
    let left: Vec<usize> = (0..40).filter(|number| !is_lost[shard(*number)]).collect();
    until_lost(&store).await;
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
    let shard = |number: usize| anteroom_store::shard_of(token(number).as_str(), 64);
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
    let Engine::Sharded(store) = bench.store.engine() else { unreachable!() };
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
async fn a_log_in_stands_once_the_old_session_has_ended() {
    let mut cluster = RedisCluster::start();
    let (_open, store) = open(&cluster).await;
    let is_lost = lose_a_share(&mut cluster);
    until_lost(&store).await;
    let is_here = |number: &usize| !is_lost[shard_of_token(*number)];
    let mut here = (0..).filter(is_here);
    let (old, new) = (here.next().unwrap(), here.next().unwrap());
    let visitors = std::iter::repeat_with(|| VisitorToken::of(&Token::mint().unwrap()));
    let mut visitors = visitors.filter(|it| is_lost[anteroom_store::shard_of(it.as_str(), 64)]);
    let visitor = visitors.next();
    store.update_token(&token(old), &user("ann"), None, 1.0).await.unwrap();
    store.add_to_cart(&token(old), &item(1), 3).await.unwrap();

    // Without an old session nothing has ended, and the client tries again.
    let log_in = Rotation { visitor: visitor.clone(), ..rotation(None, new, "ann") };
    store.rotate_token(&log_in).await.unwrap_err();
    let log_in = Rotation { visitor, ..rotation(Some(old), new, "ann") };
    store.rotate_token(&log_in).await.unwrap();
    assert_eq!(store.check_token(&token(old)).await.unwrap(), None);
    assert_eq!(store.check_token(&token(new)).await.unwrap(), Some(user("ann")));
    assert_eq!(store.cart(&token(new)).await.unwrap(), [(item(1), 3)]);
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
    let visitor = VisitorToken::of(&Token::mint().unwrap());
    bench.log_in(&token(1), "ann", 1.0).await;
    let change = CartChange::Set(vec![(item(1), 2)]);
    let now = anteroom_store::TokenCreation::Now;
    bench.store.change_visitor_cart(&visitor, now, &change, 1.0).await.unwrap();
    // binascii.crc_hqx(b"token-0001", 0) % 64
    let shard = anteroom_store::shard_of("token-0001", 64);
    let keys = bench.raw_keys().await;
    assert!(keys.contains(&format!("login:{{s{shard}}}")), "{keys:?}");
    let shard = anteroom_store::shard_of(visitor.as_str(), 64);
    let cart = format!("cart:{{s{shard}}}:{}", visitor.as_str());
    assert!(keys.contains(&cart), "{keys:?}");
    until("a write is read", || async { bench.user_of(&token(1)).await.is_some() }).await;
}
