//! One contract for all stores: the keys of TLS tickets, which proxies have alike.

use std::time::Duration;

use anteroom_store::StoreError;
use anteroom_store::traits::*;
use anteroom_tls::{TicketKey, TicketKeyOffer};

use crate::store_contract::{Bench, Ground, contract, until};

contract!(
    the_first_key_of_a_period_is_everyones,
    keys_of_tickets_end_by_themselves,
    what_is_no_key_of_tickets_is_an_error,
);

const HOUR: Duration = Duration::from_secs(3_600);

fn offer(period: u64, lifetime: Duration) -> TicketKeyOffer {
    TicketKeyOffer { period, key: TicketKey::mint().unwrap(), lifetime }
}

async fn the_first_key_of_a_period_is_everyones(bench: Bench) {
    let (one, other) = (&bench.store, bench.open.thread_handle());
    other.connected().await;
    assert!(one.exchange_ticket_keys(&[]).await.unwrap().is_empty());
    let first = [offer(7, HOUR), offer(8, HOUR)];
    let keys = [first[0].key.clone(), first[1].key.clone()];
    assert_eq!(one.exchange_ticket_keys(&first).await.unwrap(), keys);
    let later = [offer(9, HOUR), offer(8, HOUR), offer(7, HOUR)];
    let [seven, eight] = keys;
    let expected = [later[0].key.clone(), eight, seven];
    assert_eq!(other.exchange_ticket_keys(&later).await.unwrap(), expected);
}

async fn keys_of_tickets_end_by_themselves(bench: Bench) {
    let short = offer(7, Duration::from_millis(1));
    // One that ends at once is missing in the answer.
    drop(bench.store.exchange_ticket_keys(&[short]).await);
    let offered = offer(7, HOUR);
    until("it ends", async || {
        let keys = bench.store.exchange_ticket_keys(std::slice::from_ref(&offered)).await;
        keys.is_ok_and(|keys| keys == [offered.key.clone()])
    })
    .await;
}

async fn what_is_no_key_of_tickets_is_an_error(bench: Bench) {
    // The file of the embedded store is no other program's.
    let Ground::Server(server) = &bench.ground else { return };
    for value in ["short", &"long".repeat(1_000)] {
        server.say(&format!("SET tickets:1:7 {value}"));
        let answer = bench.store.exchange_ticket_keys(&[offer(7, HOUR)]).await;
        assert!(matches!(answer, Err(StoreError::Failed(_))), "{value}: {answer:?}");
    }
}
