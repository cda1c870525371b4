//! What both stores promise of rows: their schedule, their claims and their content.

use anteroom_http::ident::Row;
use anteroom_store::traits::*;
use anteroom_store::{ClaimResult, RowClaim, RowTerm, StoreError};

use crate::store_contract::{Bench, contract};

/// For how long a claim keeps others away, in these cases.
const LEASE: f64 = 10.0;

contract!(
    two_workers_never_get_the_same_row,
    the_oldest_is_taken_first_and_the_next_is_told,
    a_claim_is_a_lease_and_no_longer,
    a_fetched_row_is_kept_and_due_again,
    a_row_rescheduled_during_its_fetch_is_due_at_once,
    an_older_fetch_never_overwrites_newer_content,
    only_the_holder_of_a_row_can_postpone_it,
    a_stopped_row_is_removed_whole,
    a_stopped_row_does_not_come_back,
    a_failure_keeps_the_last_good_content,
    a_removed_row_is_not_postponed_into_being,
    a_row_too_large_is_refused,
    a_changed_row_is_forgotten_and_due,
    a_change_does_not_schedule_a_row,
    a_row_with_an_end_leaves_the_schedule_when_it_comes,
    an_end_is_moved_on_and_never_back,
    a_row_that_a_command_scheduled_has_no_end,
    a_row_with_an_end_is_due_again_only_with_another_delay,
    no_row_with_an_end_is_added_beyond_the_bound,
    a_row_that_may_have_changed_is_due_and_keeps_its_content,
);

fn row(number: usize) -> Row {
    Row::new(&format!("row-{number:03}")).unwrap()
}

async fn claim(bench: &Bench, now: f64, most: usize) -> ClaimResult {
    bench.store.claim_rows(now, most, LEASE).await.unwrap()
}

/// The claim on the one row that is due.
async fn one(bench: &Bench, now: f64) -> RowClaim {
    let mut claimed = claim(bench, now, 8).await;
    assert_eq!(claimed.rows.len(), 1, "{claimed:?}");
    claimed.rows.remove(0)
}

fn numbers(claimed: &ClaimResult) -> Vec<&str> {
    claimed.rows.iter().map(|claim| claim.row.as_str()).collect()
}

async fn two_workers_never_get_the_same_row(bench: Bench) {
    for number in 0..40 {
        bench.store.schedule_row(&row(number), 5.0, 100.0).await.unwrap();
    }
    let worker = async || {
        let mut got = Vec::new();
        loop {
            let claimed = bench.store.claim_rows(100.0, 3, LEASE).await.unwrap();
            if claimed.rows.is_empty() {
                return got;
            }
            got.extend(claimed.rows.into_iter().map(|claim| claim.row));
        }
    };
    let (mut one, other) = tokio::join!(worker(), worker());
    one.extend(other);
    one.sort();
    assert_eq!(one, (0..40).map(row).collect::<Vec<_>>());
}

async fn the_oldest_is_taken_first_and_the_next_is_told(bench: Bench) {
    for (number, due) in [(1, 30.0), (2, 10.0), (3, 20.5)] {
        bench.store.schedule_row(&row(number), 5.0, due).await.unwrap();
    }
    assert_eq!(
        claim(&bench, 9.0, 8).await,
        ClaimResult { next: Some(10.0), ..ClaimResult::default() }
    );
    let claimed = claim(&bench, 25.0, 8).await;
    assert_eq!(numbers(&claimed), ["row-002", "row-003"]);
    assert_eq!((claimed.rows[1].due, claimed.rows[1].delay), (20.5, 5.0));
    assert_eq!(claimed.next, Some(30.0));
    assert_eq!(numbers(&claim(&bench, 35.0, 1).await), ["row-001"]);
}

async fn a_claim_is_a_lease_and_no_longer(bench: Bench) {
    bench.store.schedule_row(&row(1), 2.5, 100.0).await.unwrap();
    bench.store.schedule_row(&row(2), 3_600.25, 100.0).await.unwrap();
    let claimed = claim(&bench, 100.5, 8).await;
    assert_eq!([0, 1].map(|at| claimed.rows[at].fence), [110.5; 2]);
    let listed = bench.store.rows(8).await.unwrap();
    let due: Vec<_> = listed.iter().map(|row| (row.row.as_str(), row.due, row.delay)).collect();
    assert_eq!(due, [("row-001", 110.5, 2.5), ("row-002", 110.5, 3_600.25)]);
    assert_eq!(bench.store.rows(1).await.unwrap().len(), 1);
    // The worker that took them has died.
    assert_eq!(numbers(&claim(&bench, 110.5, 8).await), ["row-001", "row-002"]);
}

async fn a_fetched_row_is_kept_and_due_again(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    assert_eq!(store.row(&row(1)).await.unwrap(), None);
    // No round number: the fence is compared to its last bit.
    let taken = one(&bench, 1_790_000_000.123_456_7).await;
    let (now, due) = (1_790_000_001.25, 1_790_000_005.0);
    assert!(store.put_row(&taken, "{\"a\":1}".into(), due, now).await.unwrap());
    let stored = store.row(&row(1)).await.unwrap().unwrap();
    assert_eq!((&stored.json[..], stored.refreshed), (&b"{\"a\":1}"[..], Some(now)));
    assert_eq!(claim(&bench, due - 1.0, 8).await.next, Some(due));
    assert_eq!(numbers(&claim(&bench, due, 8).await), ["row-001"]);
    assert_eq!(store.rows(8).await.unwrap()[0].refreshed, Some(now));
}

async fn a_row_rescheduled_during_its_fetch_is_due_at_once(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 600.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    store.schedule_row(&row(1), 1.0, 101.0).await.unwrap();
    assert!(!store.put_row(&taken, "1".into(), 700.0, 102.0).await.unwrap());
    assert_eq!(store.row(&row(1)).await.unwrap(), None, "it may be from before");
    let claimed = claim(&bench, 102.0, 8).await;
    assert_eq!((numbers(&claimed), claimed.rows[0].delay), (vec!["row-001"], 1.0));
}

async fn an_older_fetch_never_overwrites_newer_content(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    let slow = one(&bench, 100.0).await;
    let quick = one(&bench, 111.0).await;
    assert!(!store.put_row(&slow, "\"old\"".into(), 116.0, 111.5).await.unwrap());
    assert!(store.put_row(&quick, "\"new\"".into(), 116.0, 112.0).await.unwrap());
    assert!(!store.put_row(&slow, "\"old\"".into(), 117.0, 113.0).await.unwrap());
    let stored = store.row(&row(1)).await.unwrap().unwrap();
    assert_eq!((&stored.json[..], stored.refreshed), (&b"\"new\""[..], Some(112.0)));
    assert_eq!(store.rows(8).await.unwrap()[0].due, 116.0);
}

async fn only_the_holder_of_a_row_can_postpone_it(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    let slow = one(&bench, 100.0).await;
    store.schedule_row(&row(1), 5.0, 101.0).await.unwrap();
    assert!(!store.postpone_row(&slow, 200.0).await.unwrap());
    let quick = one(&bench, 101.0).await;
    assert!(!store.postpone_row(&slow, 200.0).await.unwrap());
    assert!(store.postpone_row(&quick, 150.0).await.unwrap());
    assert!(!store.postpone_row(&quick, 300.0).await.unwrap());
    assert_eq!(store.rows(8).await.unwrap()[0].due, 150.0);
}

async fn a_stopped_row_is_removed_whole(bench: Bench) {
    let store = &bench.store;
    for number in [1, 2] {
        store.schedule_row(&row(number), 5.0, 100.0).await.unwrap();
    }
    for taken in claim(&bench, 100.0, 8).await.rows {
        assert!(store.put_row(&taken, "{}".into(), 105.0, 100.0).await.unwrap());
    }
    store.schedule_row(&row(1), 0.0, 101.0).await.unwrap();
    store.schedule_row(&row(2), -1.0, 101.0).await.unwrap();
    let claimed = claim(&bench, 101.0, 8).await;
    assert_eq!((claimed.removed, claimed.rows.len(), claimed.next), (2, 0, None));
    assert_eq!(bench.dump().await, [""; 0]);
    assert_eq!(store.row(&row(1)).await.unwrap(), None);
}

async fn a_stopped_row_does_not_come_back(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    store.schedule_row(&row(1), 0.0, 101.0).await.unwrap();
    assert!(!store.put_row(&taken, "{}".into(), 105.0, 101.0).await.unwrap());
    claim(&bench, 101.0, 8).await;
    assert!(!store.put_row(&taken, "{}".into(), 105.0, 101.0).await.unwrap());
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn a_failure_keeps_the_last_good_content(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    store.put_row(&taken, "[1]".into(), 105.0, 100.0).await.unwrap();
    let taken = one(&bench, 105.0).await;
    assert!(store.postpone_row(&taken, 200.0).await.unwrap());
    let stored = store.row(&row(1)).await.unwrap().unwrap();
    assert_eq!((&stored.json[..], stored.refreshed), (&b"[1]"[..], Some(100.0)));
    assert_eq!(claim(&bench, 199.0, 8).await.next, Some(200.0));
}

async fn a_removed_row_is_not_postponed_into_being(bench: Bench) {
    let gone = RowClaim { row: row(1), delay: 5.0, due: 100.0, fence: 110.0 };
    assert!(!bench.store.postpone_row(&gone, 200.0).await.unwrap());
    assert_eq!(bench.dump().await, [""; 0]);
    assert_eq!(claim(&bench, 300.0, 8).await, ClaimResult::default());
}

async fn a_row_too_large_is_refused(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    let larger = vec![b'1'; (1 << 20) + 1];
    let refused = store.put_row(&taken, larger.into(), 105.0, 100.0).await;
    assert!(matches!(refused, Err(StoreError::Full)), "{refused:?}");
    let largest = vec![b'1'; 1 << 20];
    assert!(store.put_row(&taken, largest.clone().into(), 105.0, 100.0).await.unwrap());
    assert_eq!(store.row(&row(1)).await.unwrap().unwrap().json, largest);
}

async fn a_changed_row_is_forgotten_and_due(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 600.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    assert!(store.put_row(&taken, "1".into(), 700.0, 100.5).await.unwrap());
    store.outdate_row(&row(1), 300.0).await.unwrap();
    assert_eq!(store.row(&row(1)).await.unwrap(), None);
    assert_eq!(store.rows(8).await.unwrap()[0].refreshed, None);
    // Once more while it is fetched: that may be from before.
    let early = one(&bench, 300.0).await;
    store.outdate_row(&row(1), 301.0).await.unwrap();
    assert!(!store.put_row(&early, "2".into(), 900.0, 302.0).await.unwrap());
    assert!(!store.postpone_row(&early, 900.0).await.unwrap());
    let late = one(&bench, 302.0).await;
    assert_eq!((late.delay, late.due), (600.0, 301.0));
    assert!(store.put_row(&late, "3".into(), 901.0, 302.0).await.unwrap());
    assert_eq!(store.row(&row(1)).await.unwrap().unwrap().json, "3");
}

async fn a_change_does_not_schedule_a_row(bench: Bench) {
    let store = &bench.store;
    store.outdate_row(&row(1), 100.0).await.unwrap();
    assert_eq!(bench.dump().await, [""; 0]);
    store.schedule_row(&row(1), 0.0, 100.0).await.unwrap();
    store.outdate_row(&row(1), 200.0).await.unwrap();
    assert_eq!(store.rows(8).await.unwrap()[0].due, 100.0);
    assert_eq!(claim(&bench, 100.0, 8).await.removed, 1);
    assert_eq!(bench.dump().await, [""; 0]);
}

fn term(until: f64) -> RowTerm {
    RowTerm { delay: 5.0, due: 100.0, until, most: 8 }
}

async fn a_row_with_an_end_leaves_the_schedule_when_it_comes(bench: Bench) {
    let store = &bench.store;
    assert_eq!(store.schedule_until(&[row(1), row(2)], term(160.0)).await.unwrap(), 0);
    let taken = one_of(&bench, 100.0, 1).await;
    store.put_row(&taken, "{}".into(), 105.0, 100.0).await.unwrap();
    assert_eq!(store.drop_rows(159.0, 8).await.unwrap(), 0);
    assert_eq!(store.drop_rows(160.0, 1).await.unwrap(), 1);
    assert_eq!(store.drop_rows(160.0, 8).await.unwrap(), 1);
    assert_eq!(bench.dump().await, [""; 0]);
    // A fetch under way does not bring it back.
    assert!(!store.put_row(&taken, "{}".into(), 105.0, 160.0).await.unwrap());
    assert_eq!(bench.dump().await, [""; 0]);
}

/// The claim on the first of `count` rows that are due.
async fn one_of(bench: &Bench, now: f64, count: usize) -> RowClaim {
    claim(bench, now, count).await.rows.remove(0)
}

async fn an_end_is_moved_on_and_never_back(bench: Bench) {
    let store = &bench.store;
    for until in [160.0, 200.0, 150.0] {
        store.schedule_until(&[row(1)], term(until)).await.unwrap();
    }
    assert_eq!(store.drop_rows(199.0, 8).await.unwrap(), 0);
    assert_eq!(store.drop_rows(200.0, 8).await.unwrap(), 1);
}

async fn a_row_that_a_command_scheduled_has_no_end(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 2.5, 100.0).await.unwrap();
    store.schedule_until(&[row(1), row(2)], term(160.0)).await.unwrap();
    store.schedule_row(&row(2), 2.5, 100.0).await.unwrap();
    assert_eq!(store.drop_rows(1_000.0, 8).await.unwrap(), 0);
    let listed = store.rows(8).await.unwrap();
    assert!(listed.iter().all(|row| row.delay == 2.5), "{listed:?}");
    assert_eq!(listed.len(), 2);
}

async fn a_row_with_an_end_is_due_again_only_with_another_delay(bench: Bench) {
    let store = &bench.store;
    store.schedule_until(&[row(1)], term(160.0)).await.unwrap();
    let taken = one(&bench, 100.0).await;
    store.put_row(&taken, "{}".into(), 105.0, 100.0).await.unwrap();
    store.schedule_until(&[row(1)], RowTerm { due: 102.0, ..term(160.0) }).await.unwrap();
    assert_eq!(store.rows(8).await.unwrap()[0].due, 105.0);
    let other = RowTerm { delay: 2.5, due: 102.0, ..term(160.0) };
    store.schedule_until(&[row(1)], other).await.unwrap();
    let listed = store.rows(8).await.unwrap().remove(0);
    assert_eq!((listed.due, listed.delay), (102.0, 2.5));
    assert_eq!(store.row(&row(1)).await.unwrap().unwrap().json, "{}");
}

async fn no_row_with_an_end_is_added_beyond_the_bound(bench: Bench) {
    let store = &bench.store;
    let rows: Vec<Row> = (0..4).map(row).collect();
    let bounded = |most| RowTerm { most, ..term(160.0) };
    assert_eq!(store.schedule_until(&rows, bounded(3)).await.unwrap(), 1);
    assert_eq!(store.schedule_until(&rows[..3], bounded(0)).await.unwrap(), 0, "they are known");
    assert_eq!(store.schedule_until(&rows[3..], bounded(0)).await.unwrap(), 1);
    assert_eq!(store.rows(8).await.unwrap().len(), 3);
}

async fn a_row_that_may_have_changed_is_due_and_keeps_its_content(bench: Bench) {
    let store = &bench.store;
    store.schedule_row(&row(1), 600.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    store.put_row(&taken, "1".into(), 700.0, 100.0).await.unwrap();
    assert_eq!(store.make_due(&[row(1), row(2)], 101.0).await.unwrap(), 1);
    assert_eq!(store.row(&row(1)).await.unwrap().unwrap().json, "1");
    let earlier = one(&bench, 101.0).await;
    // It changes again while it is fetched.
    assert_eq!(store.make_due(&[row(1)], 101.5).await.unwrap(), 1);
    assert!(!store.put_row(&earlier, "2".into(), 701.0, 102.0).await.unwrap());
    assert_eq!(one(&bench, 102.0).await.due, 101.5);
    // A row that waits already keeps its place.
    store.schedule_row(&row(3), 5.0, 90.0).await.unwrap();
    store.make_due(&[row(3)], 103.0).await.unwrap();
    assert_eq!(one(&bench, 103.0).await.due, 90.0);
}

// What only Redis promises.

#[tokio::test]
async fn rows_have_the_names_of_the_chapter_and_one_of_our_own() {
    let bench = Bench::redis().await;
    bench.store.schedule_row(&row(1), 5.0, 100.0).await.unwrap();
    let taken = one(&bench, 100.0).await;
    bench.store.put_row(&taken, "{}".into(), 105.0, 100.0).await.unwrap();
    let mut dump = bench.dump().await;
    dump.sort();
    let names = ["delay: row-001", "inv:row-001 ", "refreshed: row-001", "schedule: row-001"];
    assert_eq!(dump, names);
}

#[tokio::test]
async fn no_more_rows_are_scheduled_than_the_bound() {
    let bench = Bench::redis().await;
    let mut raw = bench.raw().await;
    for first in (1..=100_000).step_by(10_000) {
        let mut fill = redis::cmd("EVAL");
        fill.arg(
            "for n = ARGV[1], ARGV[1] + 9999 do redis.call('ZADD', 'delay:', 5, 'x' .. n) end",
        );
        fill.arg(0).arg(first).exec_async(&mut raw).await.unwrap();
    }
    let refused = bench.store.schedule_row(&row(1), 5.0, 100.0).await;
    assert!(matches!(refused, Err(StoreError::RowsFull)), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("100000"));
    let known = Row::new("x7").unwrap();
    bench.store.schedule_row(&known, 0.0, 100.0).await.unwrap();
}
