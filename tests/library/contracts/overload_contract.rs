//! One contract for all stores: what is known of servers, from which the next process begins.

use std::time::Duration;

use anteroom_store::traits::*;
use anteroom_store::{KNOWN_SERVERS_MAX, StoreError};
use bytes::Bytes;

use crate::store_contract::{Bench, contract, until};

contract!(
    what_is_known_of_servers_is_replaced_and_ends_by_itself,
    what_is_known_of_servers_has_a_bound,
);

const HOUR: Duration = Duration::from_secs(3_600);

async fn what_is_known_of_servers_is_replaced_and_ends_by_itself(bench: Bench) {
    let store = bench.store.background();
    assert_eq!(store.known_servers(1, "origin").await.unwrap(), None);
    for known in [&b"one"[..], b"\x00\xff"].map(Bytes::from_static) {
        store.put_known_servers(1, "origin", known.clone(), HOUR).await.unwrap();
        assert_eq!(store.known_servers(1, "origin").await.unwrap(), Some(known));
    }
    assert_eq!(store.known_servers(2, "origin").await.unwrap(), None, "of another version");
    assert_eq!(store.known_servers(1, "blog").await.unwrap(), None, "of another origin");
    store.put_known_servers(1, "origin", "last".into(), Duration::from_millis(1)).await.unwrap();
    until("it ends", async || store.known_servers(1, "origin").await.unwrap().is_none()).await;
}

async fn what_is_known_of_servers_has_a_bound(bench: Bench) {
    let store = bench.store.background();
    let most = Bytes::from(vec![7_u8; KNOWN_SERVERS_MAX]);
    store.put_known_servers(1, "origin", most.clone(), HOUR).await.unwrap();
    let more = Bytes::from(vec![7_u8; KNOWN_SERVERS_MAX + 1]);
    let refused = store.put_known_servers(1, "origin", more, HOUR).await;
    assert!(matches!(refused, Err(StoreError::TooLarge)), "{refused:?}");
    assert_eq!(store.known_servers(1, "origin").await.unwrap(), Some(most));
}
