//! What both stores promise of the room that pages take; and the ledger by which Redis knows it.

use std::time::Duration;

use anteroom_http::ident::PageKey;
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, Layout, OpenStore, PAGE_HEAD, RequestFrequency, StoreError, StoreLimits,
    StoreSettings, Url,
};
use bytes::Bytes;
use redis::aio::MultiplexedConnection;

use crate::store_contract::{Bench, ask, connected, contract, limits, until};

contract!(
    a_page_that_is_there_is_replaced_at_once,
    deleted_pages_make_room,
    ; of one place:
    the_last_fifth_is_for_pages_that_are_asked_for_again,
);

/// What a page in Redis takes beside its bytes, as the ledger has it.
const BESIDE: u64 = 256;
const HOUR: Duration = Duration::from_secs(3_600);

fn key(n: u32) -> PageKey {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    PageKey(bytes)
}

/// A page of ours of that many bytes.
fn page(size: usize) -> Bytes {
    [&PAGE_HEAD[..], &vec![7; size - PAGE_HEAD.len()]].concat().into()
}

/// Puts pages of 60 KiB under keys from `first` on, until one is refused.
async fn fill(store: &AnyStore, first: u32, demand: RequestFrequency) -> (u32, StoreError) {
    let mut next = first;
    loop {
        match store.put_page(&key(next), page(60 << 10), HOUR, demand).await {
            Ok(()) => next += 1,
            Err(error) => return (next, error),
        }
    }
}

async fn the_last_fifth_is_for_pages_that_are_asked_for_again(bench: Bench) {
    let (store, bound) = (&bench.store, limits().pages);
    let (new, refused) = fill(store, 0, RequestFrequency::Once).await;
    assert!(matches!(refused, StoreError::NearlyFull), "{refused:?}");
    assert!((12..=13).contains(&new), "{new} pages of 60 KiB are four fifths of a MiB");
    assert!(bench.open.counters().page_bytes() <= bound / 5 * 4);
    assert!(store.page(&key(new)).await.unwrap().is_none());

    let (all, refused) = fill(store, new, RequestFrequency::Again).await;
    assert!(matches!(refused, StoreError::Full), "{refused:?}");
    assert!((16..=17).contains(&all), "{all} pages of 60 KiB are a MiB");
    assert!(bench.open.counters().page_bytes() <= bound);
    for n in 0..all {
        assert!(store.page(&key(n)).await.unwrap().is_some(), "{n}");
    }
}

async fn a_page_that_is_there_is_replaced_at_once(bench: Bench) {
    let store = &bench.store;
    let (new, _) = fill(store, 0, RequestFrequency::Again).await;
    store.delete_pages(&[key(new - 1)]).await.unwrap();
    until("there is room", async || {
        store.put_page(&key(0), page(30 << 10), HOUR, RequestFrequency::Once).await.is_ok()
    })
    .await;
    assert_eq!(store.page(&key(0)).await.unwrap().unwrap().len(), 30 << 10);
}

async fn deleted_pages_make_room(bench: Bench) {
    let store = &bench.store;
    let (all, _) = fill(store, 0, RequestFrequency::Again).await;
    let keys: Vec<_> = (0..all).map(key).collect();
    store.delete_pages(&keys).await.unwrap();
    assert_eq!(bench.open.counters().page_bytes(), 0);
    until("there is room for all of them again", async || {
        let (again, _) = fill(store, 0, RequestFrequency::Again).await;
        again == all
    })
    .await;
}

// The ledger in Redis.

/// The sum that the ledger says, and the sum of its buckets.
async fn booked(on: &mut MultiplexedConnection) -> (u64, u64) {
    let fields: Vec<(String, u64)> = {
        let mut command = redis::cmd("HGETALL");
        command.arg("pagebytes:");
        command.query_async(on).await.unwrap()
    };
    let all = fields.iter().find(|(name, _)| name == "all").map_or(0, |(_, all)| *all);
    let buckets = fields.iter().filter(|(name, _)| name.contains(':'));
    (all, buckets.map(|(_, bytes)| bytes).sum())
}

/// What pages of ours take in truth.
async fn truth(on: &mut MultiplexedConnection) -> u64 {
    let mut sum = 0;
    for key in ask::<Vec<String>>(on, &["KEYS", "cache:*"]).await {
        let value: Vec<u8> = ask(on, &["GET", &key]).await;
        if value.starts_with(&PAGE_HEAD) {
            sum += value.len() as u64 + BESIDE;
        }
    }
    sum
}

async fn roomy() -> Bench {
    Bench::redis_with(StoreLimits { pages: 1 << 40, ..limits() }).await
}

#[tokio::test]
async fn the_ledger_says_what_there_is() {
    let bench = roomy().await;
    let (store, on) = (&bench.store, &mut bench.raw().await);
    let mut random = fastrand::Rng::with_seed(7);
    let seconds = [60, 119, 121, 7_100, 7_300, 86_400, 3 * 86_400, 40 * 86_400, u64::MAX];
    for step in 0..2_000 {
        let key = key(random.u32(..50));
        if random.u8(..10) == 0 {
            store.delete_pages(&[key, PageKey([0xff; 32])]).await.unwrap();
        } else {
            let ttl = Duration::from_secs(*random.choice(&seconds).unwrap());
            let size = random.usize(PAGE_HEAD.len()..2_000);
            store.put_page(&key, page(size), ttl, RequestFrequency::Once).await.unwrap();
        }
        if step % 100 == 0 {
            assert_eq!(booked(on).await.0, truth(on).await, "after {step} steps");
        }
    }
    let (all, buckets) = booked(on).await;
    assert_eq!((all, buckets), (truth(on).await, all));
    assert_eq!(bench.open.counters().page_bytes(), all);
    let fields: u64 = ask(on, &["HLEN", "pagebytes:"]).await;
    assert!(fields < 100, "{fields} fields, whatever the number of pages");
    let keys: Vec<_> = (0..50).map(key).collect();
    store.delete_pages(&keys).await.unwrap();
    assert_eq!(booked(on).await, (0, 0));
}

#[tokio::test]
async fn expired_pages_leave_the_ledger() {
    let bench = roomy().await;
    let (store, on) = (&bench.store, &mut bench.raw().await);
    for n in 0..20 {
        let ttl = Duration::from_millis(200 + 50 * u64::from(n));
        store.put_page(&key(n), page(1_000), ttl, RequestFrequency::Once).await.unwrap();
    }
    store.put_page(&key(100), page(500), HOUR, RequestFrequency::Once).await.unwrap();
    assert!(booked(on).await.0 >= 500 + BESIDE);
    until("only what is there is booked", async || {
        store.put_page(&key(101), page(300), HOUR, RequestFrequency::Once).await.unwrap();
        let on = &mut bench.raw().await;
        booked(on).await == (800 + 2 * BESIDE, 800 + 2 * BESIDE)
    })
    .await;
    assert_eq!(truth(on).await, 800 + 2 * BESIDE);
}

#[tokio::test]
async fn an_outdated_ledger_is_rebuilt_from_the_stored_pages() {
    let bench = roomy().await;
    let (store, on) = (&bench.store, &mut bench.raw().await);
    store.put_page(&key(1), page(1_000), 2 * HOUR, RequestFrequency::Once).await.unwrap();
    // As if pages of every kind had been booked years ago, and not looked at since.
    let long_ago = 1_500_000_000_u64;
    let mut sum = 0;
    for (level, width, reach) in [(1, 1, 121), (2, 60, 121), (3, 3_600, 73), (4, 86_400, 3_000)] {
        for ahead in 0..reach {
            let field = format!("{level}:{}", long_ago / width + ahead);
            ask::<u64>(on, &["HSET", "pagebytes:", &field, "1000"]).await;
            sum += 1_000;
        }
    }
    ask::<u64>(on, &["HINCRBY", "pagebytes:", "all", &sum.to_string()]).await;
    let swept = (long_ago * 1_000).to_string();
    ask::<u64>(on, &["HSET", "pagebytes:", "swept", &swept]).await;
    store.put_page(&key(2), page(1_000), HOUR, RequestFrequency::Once).await.unwrap();
    assert_eq!(booked(on).await, (2_000 + 2 * BESIDE, 2_000 + 2 * BESIDE));
}

#[tokio::test]
async fn another_program_s_pages_count_once_they_are_ours() {
    let bench = roomy().await;
    let (store, on) = (&bench.store, &mut bench.raw().await);
    let name = format!("cache:{}", "07".repeat(32));
    let theirs = PageKey([7; 32]);
    ask::<String>(on, &["SETEX", &name, "300", "<p>theirs"]).await;
    store.put_page(&key(1), page(1_000), HOUR, RequestFrequency::Once).await.unwrap();
    assert_eq!(booked(on).await.0, 1_000 + BESIDE);
    store.put_page(&theirs, page(2_000), HOUR, RequestFrequency::Once).await.unwrap();
    assert_eq!(booked(on).await.0, 3_000 + 2 * BESIDE);
    // It writes over ours: that counts until its time is over, which is the safe side.
    ask::<String>(on, &["SETEX", &name, "300", "<p>theirs"]).await;
    store.delete_pages(&[theirs]).await.unwrap();
    assert_eq!(booked(on).await.0, 3_000 + 2 * BESIDE);
    assert_eq!(truth(on).await, 1_000 + BESIDE);
}

#[tokio::test]
async fn a_fleet_has_one_ledger_and_a_restart_loses_nothing() {
    let mut bench = Bench::redis().await;
    let url = Url::Redis(bench.server().url());
    let other =
        StoreSettings { url, prefix: String::new(), layout: Layout::Single, limits: limits() };
    let other = OpenStore::open(&other).await.unwrap().thread_handle();
    connected(&other).await;
    let (one, _) = fill(&bench.store, 0, RequestFrequency::Once).await;
    let (none, refused) = fill(&other, 1_000, RequestFrequency::Once).await;
    assert_eq!(none, 1_000, "the other one has filled it");
    assert!(matches!(refused, StoreError::NearlyFull), "{refused:?}");

    let before = booked(&mut bench.raw().await).await;
    bench.server().restart();
    assert_eq!(booked(&mut bench.raw().await).await, before);
    bench.server().restart_empty();
    until("an empty one has room for as many", async || {
        let (again, _) = fill(&other, 0, RequestFrequency::Once).await;
        again == one
    })
    .await;
}

#[tokio::test]
async fn a_redis_without_memory_takes_no_page_and_books_none() {
    let bench = roomy().await;
    let (store, on) = (&bench.store, &mut bench.raw().await);
    store.put_page(&key(1), page(1_000), HOUR, RequestFrequency::Again).await.unwrap();
    store.put_page(&key(2), page(1_000), HOUR, RequestFrequency::Again).await.unwrap();
    ask::<String>(on, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for (n, booked_then) in [(3, 2), (2, 1)] {
        until("it is refused", async || {
            let put = store.put_page(&key(n), page(2_000), HOUR, RequestFrequency::Again).await;
            assert!(matches!(put, Err(StoreError::Full)), "{put:?}");
            booked(&mut bench.raw().await).await.0 == booked_then * (1_000 + BESIDE)
        })
        .await;
    }
    assert_eq!(truth(on).await, 1_000 + BESIDE, "what was to be replaced is gone");
    store.delete_pages(&[key(1)]).await.unwrap();
    assert_eq!(booked(on).await, (0, 0));
    ask::<String>(on, &["CONFIG", "SET", "maxmemory", "0"]).await;
    until("there is room again", async || {
        store.put_page(&key(4), page(2_000), HOUR, RequestFrequency::Once).await.is_ok()
    })
    .await;
    assert_eq!(booked(on).await.0, 2_000 + BESIDE);
}
