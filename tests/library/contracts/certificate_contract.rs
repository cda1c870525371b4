//! What proxies share of certificates. The embedded store shares nothing.

use std::time::Duration;

use anteroom_store::traits::*;
use anteroom_store::{Engine, SEALED_MAX, StoreError, TaskLease};
use bytes::Bytes;

use crate::store_contract::{Bench, contract, until};

contract!(what_proxies_share_of_certificates_is_replaced_and_ends, one_proxy_orders_certificates);

const HOUR: Duration = Duration::from_secs(3_600);

async fn what_proxies_share_of_certificates_is_replaced_and_ends(bench: Bench) {
    let store = bench.store.background();
    store.connected().await;
    let is_shared = !matches!(store.engine(), Engine::Embedded(_));
    assert_eq!(store.sealed("account").await.unwrap(), None);
    for value in [Bytes::from_static(b"\x00\xff"), Bytes::from(vec![7; SEALED_MAX])] {
        store.put_sealed("account", value.clone(), HOUR).await.unwrap();
        assert_eq!(store.sealed("account").await.unwrap(), is_shared.then_some(value));
    }
    assert_eq!(store.sealed("cert:a.test").await.unwrap(), None, "of another name");
    let more = Bytes::from(vec![7; SEALED_MAX + 1]);
    let refused = store.put_sealed("account", more, HOUR).await;
    assert!(matches!(refused, Err(StoreError::TooLarge)), "{refused:?}");
    store.put_sealed("account", "last".into(), Duration::from_millis(1)).await.unwrap();
    until("it ends", async || store.sealed("account").await.unwrap().is_none()).await;
}

async fn one_proxy_orders_certificates(bench: Bench) {
    let is_shared = !matches!(bench.store.engine(), Engine::Embedded(_));
    let turn = Duration::from_secs(60);
    for (process, has_it) in [(1, true), (2, !is_shared), (1, true)] {
        let taken = bench.store.take_lease(TaskLease::Certifier, process, turn).await.unwrap();
        assert_eq!(taken, has_it, "{process}");
    }
}
