//! A start reads the pages that were in use before from the store into memory.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom::task::{HotPages, Task as _};
use anteroom_cache::Pages;
use anteroom_cache::flight::Flights;
use anteroom_cache::purge::PurgeTable;
use anteroom_http::ident::PageKey;
use anteroom_store::RequestFrequency;
use anteroom_store::traits::*;
use anteroom_tests::on_cluster;
use anteroom_tests::origin::{Origin, Reply};
use anteroom_tests::proxy::{Proxy, Storage};
use anteroom_tests::wait_until;
use bytes::Bytes;

use crate::store_contract::{Bench, contract, until};

contract!(
    pages_are_read_in_their_order,
    ; of one place:
    the_list_is_replaced_and_ends_by_itself,
);

const PAGES: usize = 30;

/// An origin whose pages are fresh for minutes, in as many languages as are asked for.
fn origin() -> Origin {
    Origin::start(|request| {
        let language = request.header("accept-language").unwrap_or("none");
        Reply::html(&format!("{} in {language}", request.target))
            .header("Cache-Control", "max-age=600")
            .header("Vary", "Accept-Language")
    })
}

fn path(page: usize) -> String {
    format!("/page/{page}")
}

/// Requests every page. Returns how many came from memory, and how many from the store.
fn request_all(proxy: &Proxy) -> (usize, usize) {
    let tier = |page| {
        let answer = proxy.get(&path(page)).header("Accept-Language", "de").send();
        assert_eq!(answer.text(), format!("{} in de", path(page)));
        let status = answer.cache_status();
        (status.contains("detail=memory"), status.contains("detail=store"))
    };
    let tiers: Vec<_> = (0..PAGES).map(tier).collect();
    (tiers.iter().filter(|tier| tier.0).count(), tiers.iter().filter(|tier| tier.1).count())
}

/// Fills the store with all pages. A page that is requested once more is admitted in any case.
fn fill(proxy: &Proxy) {
    wait_until("the pages are in memory and in the store", || {
        request_all(proxy).0 == PAGES && proxy.metric("anteroom_pages_stored_total") >= PAGES as f64
    });
}

fn drain(proxy: &mut Proxy) {
    proxy.terminate();
    assert_eq!(proxy.exit_code(), Some(0));
}

fn comes_back(proxy: &mut Proxy) {
    fill(proxy);
    drain(proxy);
    proxy.restart();
    assert_eq!(request_all(proxy), (PAGES, 0), "{}", proxy.complaints());
    assert!(proxy.metric("anteroom_pages_warmed_at_start_total") >= PAGES as f64);
    // The list is still there.
    proxy.kill9();
    proxy.restart();
    assert_eq!(request_all(proxy), (PAGES, 0), "{}", proxy.complaints());
}

#[test]
fn pages_in_redis_are_in_memory_after_a_start() {
    let (origin, storage) = (origin(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "");
    comes_back(&mut proxy);
    assert_eq!(origin.count(), PAGES);
}

#[test]
fn pages_in_a_cluster_are_in_memory_after_a_start() {
    on_cluster::turn_on();
    let origin = origin();
    comes_back(&mut Proxy::start(&origin, &Storage::Embedded, ""));
}

#[test]
fn without_warm_start_the_store_answers_first() {
    let (origin, storage) = (origin(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "cache.warm_start = \"0s\"");
    fill(&proxy);
    drain(&mut proxy);
    proxy.restart();
    assert_eq!(request_all(&proxy), (0, PAGES));
    let Storage::Redis(server) = &storage else { unreachable!() };
    assert!(server.keys("hotpages:*").is_empty());
}

#[test]
fn a_page_that_was_changed_meanwhile_does_not_come_back() {
    let (origin, storage) = (origin(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "");
    fill(&proxy);
    drain(&mut proxy);
    // Another proxy on the store changes one page, and nothing of the list.
    let other = Proxy::start(&origin, &storage, "cache.warm_start = \"0s\"");
    assert_eq!(other.post(&path(7)).send().status, 200);
    drop(other);
    proxy.restart();
    let asked = origin.count();
    let first = proxy.get(&path(7)).header("Accept-Language", "de").send();
    assert!(!first.is_hit(), "{}", first.cache_status());
    assert_eq!(origin.count(), asked + 1);
    assert_eq!(request_all(&proxy), (PAGES, 0), "the others are in memory");
}

#[test]
fn a_store_that_is_away_or_frozen_does_not_hold_up_the_start() {
    let (origin, mut storage) = (origin(), Storage::redis());
    let mut proxy = Proxy::start(&origin, &storage, "cache.warm_start = \"60s\"");
    fill(&proxy);
    drain(&mut proxy);
    let Storage::Redis(server) = &mut storage else { unreachable!() };
    for away in [false, true] {
        if away {
            server.kill();
        } else {
            server.pause();
        }
        let began = Instant::now();
        proxy.restart();
        assert!(began.elapsed() < Duration::from_secs(20), "{away}");
        let answer = proxy.get(&path(1)).header("Accept-Language", "de").send();
        assert_eq!(answer.text(), format!("{} in de", path(1)));
        proxy.kill9();
        if !away {
            server.resume();
        }
    }
}

fn key(n: u8) -> PageKey {
    PageKey([n; 32])
}

async fn pages_are_read_in_their_order(bench: Bench) {
    let hour = Duration::from_secs(3_600);
    for n in 0..40 {
        let page = Bytes::from(vec![n + 1; 10]);
        bench.store.put_page(&key(n), page, hour, RequestFrequency::Again).await.unwrap();
    }
    let keys: Vec<_> = (0..50).rev().map(key).collect();
    let found = bench.store.pages(&keys).await.unwrap();
    let expected: Vec<_> =
        (0..50).rev().map(|n| (n < 40).then(|| Bytes::from(vec![n + 1; 10]))).collect();
    assert_eq!(found, expected);
    assert_eq!(bench.store.pages(&[]).await.unwrap(), []);
}

async fn the_list_is_replaced_and_ends_by_itself(bench: Bench) {
    let is_kept = !matches!(bench.store.engine(), anteroom_store::Engine::Embedded(_));
    let store = bench.store.background();
    let expected = |list: &'static [u8]| is_kept.then(|| Bytes::from_static(list));
    assert_eq!(store.hot_pages().await.unwrap(), None);
    for list in [&b"one"[..], b"two"] {
        store.put_hot_pages(list.into(), Duration::from_secs(60)).await.unwrap();
        assert_eq!(store.hot_pages().await.unwrap(), expected(list));
    }
    // Memory without a page leaves the list as it is, at once and later.
    let purged = Arc::new(PurgeTable::new(false));
    let pages = Arc::new(Pages::new(1 << 20, Flights::new(1 << 20, 10), purged, 32));
    let task = HotPages { store: store.clone(), pages, has_rested: Cell::new(true) };
    task.step().await.unwrap();
    assert_eq!(store.hot_pages().await.unwrap(), expected(b"two"));
    store.put_hot_pages("three".into(), Duration::from_millis(1)).await.unwrap();
    until("the list ends", async || store.hot_pages().await.unwrap().is_none()).await;
}
