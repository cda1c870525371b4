//! One contract for all stores: the bypass switches, and how a change of them is told.

use std::time::Duration;

use anteroom_store::bypass::{BYPASSES_MAX, BypassChange, STOPS_MAX};
use anteroom_store::traits::*;
use anteroom_store::{
    BypassScope, PurgePosition, StoppedPages, StoreError, StoredBypass, StoredBypasses,
};
use tokio::time::timeout;

use crate::store_contract::{Bench, contract, until};

contract!(
    switches_are_kept_until_their_end,
    switches_have_a_bound,
    stops_of_pages_are_ended_by_their_own_order,
    stops_of_pages_take_no_room_from_switches,
    news_tell_of_switches,
);

/// The longest wait for a message. A subscription that breaks off reports more seldom.
const MESSAGE: Duration = Duration::from_secs(20);

fn on(route: Option<&str>, milliseconds: u64) -> BypassChange {
    let lasts = Some(Duration::from_millis(milliseconds));
    let scope = route.map_or(BypassScope::All, |name| BypassScope::Route(name.to_owned()));
    BypassChange { scope, lasts, by: "ann".to_owned() }
}

fn off(route: Option<&str>) -> BypassChange {
    BypassChange { lasts: None, ..on(route, 0) }
}

fn routes(list: &StoredBypasses) -> Vec<Option<&str>> {
    list.bypasses.iter().map(|bypass| bypass.scope.route()).collect()
}

fn pages(pattern: &str) -> BypassScope {
    let [rules, host, digest, pattern] =
        ["0f", "shop.test", &format!("d{}", pattern.len()), pattern].map(str::to_owned);
    BypassScope::Pages(StoppedPages { rules, host, digest, pattern })
}

/// Stops and switches have room of their own, and a stop that no proxy renews makes room for another.
async fn stops_of_pages_take_no_room_from_switches(bench: Bench) {
    let stop = async |number: usize, milliseconds| {
        let scope = pages(&format!("/{number}"));
        bench.store.change_bypass(&BypassChange { scope, ..on(None, milliseconds) }).await
    };
    for number in 0..STOPS_MAX {
        stop(number, 600_000).await.unwrap();
    }
    let refused = stop(STOPS_MAX, 600_000).await;
    assert!(matches!(refused, Err(StoreError::BypassesFull)), "{refused:?}");
    for number in 0..BYPASSES_MAX {
        let on = on(Some(&format!("r{number}")), 600_000);
        bench.store.change_bypass(&on).await.unwrap();
    }
    let list = stop(STOPS_MAX, 6_000_000).await.unwrap();
    assert_eq!(list.bypasses.len(), BYPASSES_MAX + STOPS_MAX);
    assert_eq!(bench.store.bypasses().await.unwrap().bypasses, list.bypasses);
    let is_new = |one: &StoredBypass| one.until - list.now > 600_000;
    assert_eq!(list.bypasses.iter().filter(|one| is_new(one)).count(), 1);
}

async fn stops_of_pages_are_ended_by_their_own_order(bench: Bench) {
    let change = async |change| bench.store.change_bypass(&change).await.unwrap().bypasses;
    let pages = pages("/item/* …");
    let stop = BypassChange { scope: pages.clone(), ..on(None, 600_000) };
    change(on(Some("shop"), 600_000)).await;
    assert_eq!(change(stop.clone()).await.len(), 2);
    let left = change(off(None)).await;
    assert_eq!(left.iter().map(|one| &one.scope).collect::<Vec<_>>(), [&pages]);
    assert_eq!(bench.store.bypasses().await.unwrap().bypasses, left);
    assert!(change(BypassChange { lasts: None, ..stop }).await.is_empty());
}

async fn switches_are_kept_until_their_end(bench: Bench) {
    let change = async |change| bench.store.change_bypass(&change).await.unwrap();
    assert!(routes(&bench.store.bypasses().await.unwrap()).is_empty());
    change(on(Some("*"), 600_000)).await;
    let both = change(on(None, 300_000)).await;
    assert_eq!(routes(&both), [None, Some("*")], "no name of a route means all of them");
    let all = &both.bypasses[0];
    assert_eq!((all.until - both.now, all.by.as_str()), (300_000, "ann"));
    assert_eq!(bench.store.bypasses().await.unwrap().bypasses, both.bypasses);
    let longer = change(on(None, 400_000)).await;
    assert_eq!(longer.bypasses[0].until - longer.now, 400_000, "the later counts");
    assert_eq!(routes(&change(off(Some("*"))).await), [None]);
    change(on(Some("a"), 1)).await;
    until("one has ended", async || routes(&bench.store.bypasses().await.unwrap()) == [None]).await;
    change(on(Some("b"), 600_000)).await;
    assert!(routes(&change(off(None)).await).is_empty());
    assert!(routes(&bench.store.bypasses().await.unwrap()).is_empty());
}

async fn switches_have_a_bound(bench: Bench) {
    for number in 0..BYPASSES_MAX {
        bench.store.change_bypass(&on(Some(&format!("r{number}")), 600_000)).await.unwrap();
    }
    let refused = bench.store.change_bypass(&on(Some("one more"), 600_000)).await;
    assert!(matches!(refused, Err(StoreError::BypassesFull)), "{refused:?}");
    let again = bench.store.change_bypass(&on(Some("r1"), 900_000)).await.unwrap();
    assert_eq!(again.bypasses.len(), BYPASSES_MAX);
    bench.store.change_bypass(&off(Some("r1"))).await.unwrap();
    bench.store.change_bypass(&on(Some("one more"), 600_000)).await.unwrap();
    assert!(bench.store.change_bypass(&off(None)).await.unwrap().bypasses.is_empty());
}

async fn news_tell_of_switches(bench: Bench) {
    let list = bench.store.change_bypass(&on(Some("shop"), 600_000)).await.unwrap();
    let news = bench.store.news_since(1, PurgePosition::default()).await.unwrap();
    assert_eq!(news.bypasses.bypasses, list.bypasses);
    assert!(news.bypasses.now >= list.now);
}

/// A message reaches a handle that asks nothing.
async fn a_change_is_announced(bench: Bench) {
    let other = bench.open.thread_handle();
    // A new subscription reports once, for what came before it.
    timeout(MESSAGE, other.purge_announced()).await.expect("it subscribes");
    for change in [on(None, 600_000), off(None)] {
        bench.store.change_bypass(&change).await.unwrap();
        timeout(MESSAGE, other.purge_announced()).await.expect("it is told");
    }
}

#[tokio::test]
async fn a_change_is_announced_in_redis() {
    a_change_is_announced(Bench::redis().await).await;
}

#[tokio::test]
async fn a_change_is_announced_in_a_cluster() {
    a_change_is_announced(Bench::cluster().await).await;
}
