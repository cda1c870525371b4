//! The contract of both stores on carts that are told of: of idle sessions, and to a receiver.

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Item, StoredToken, TokenStorage, User};
use anteroom_store::traits::*;
use anteroom_store::{
    Cursor, DeliveryFailure, Eviction, EvictionResult, ExpiredSession, ExpiryAction,
    HandoverReason, IdleRange, IdleStep, ReceiverFailures, Rotation, TaskLease, WaitingEvent,
};

use crate::store_contract::{Bench, ask, contract, item, token, user, visit};

const PLAIN: TokenStorage = TokenStorage::Plain;
const OUTBOX: ExpiryAction = ExpiryAction::Outbox { storage: PLAIN };
const QUEUE: ExpiryAction = ExpiryAction::Queue { storage: PLAIN, keep: 100_000 };

contract!(
    only_delivered_events_are_removed,
    an_event_that_is_put_back_comes_last,
    when_it_was_refused_first_is_known_ever_after,
    how_its_receiver_failed_with_it_is_known_ever_after,
    events_of_a_forgotten_user_are_removed,
    a_returning_user_is_reported_again_when_idle_again,
    idle_carts_wait_while_the_outbox_is_not_empty,
    a_cart_is_told_of_as_idle_and_then_as_expired,
    a_log_in_takes_its_cart_to_be_idle_again,
    a_report_by_a_fast_clock_does_not_suppress_later_reports,
    ; of one place:
    an_event_has_all_details_of_the_cart,
    idle_carts_are_told_of_once_and_their_sessions_go_on,
    idle_carts_wait_while_much_waits,
    idle_sessions_of_one_time_are_all_reported_in_any_batch_size,
    waiting_events_are_bounded_and_the_oldest_are_dropped,
);

impl Bench {
    pub(crate) async fn with_cart(&self, number: usize, seen: f64) {
        self.log_in(&token(number), "ann", seen).await;
        self.store.add_to_cart(&token(number), &item(1), 2).await.unwrap();
    }

    async fn clean(&self, expiry_action: ExpiryAction) -> EvictionResult {
        let how = Eviction { keep: 0, batch: 100, carts: true, before: 0.0 };
        self.store.evict_expiring(how, &Cursor::default(), &expiry_action).await.unwrap()
    }

    async fn report_idle_carts(
        &self,
        until: f64,
        batch: u32,
        expiry_action: ExpiryAction,
    ) -> IdleStep {
        let told = self
            .store
            .report_idle_carts(IdleRange { until, now: unix_now(), batch }, &expiry_action)
            .await
            .unwrap();
        assert_eq!(told.refusal, None);
        told
    }

    async fn first(&self) -> WaitingEvent {
        self.store.first_event().await.unwrap().expect("an event waits")
    }

    /// Takes all events out, in their order.
    async fn drain(&self) -> Vec<ExpiredSession> {
        let mut told = Vec::new();
        while let Some(event) = self.store.first_event().await.unwrap() {
            self.store.remove_event(&event).await.unwrap();
            told.push(event.expired.expect("it is one of ours"));
        }
        assert_eq!(self.store.events_waiting().await.unwrap(), 0);
        told
    }

    pub(crate) async fn ids(&self) -> Vec<String> {
        self.drain().await.into_iter().map(|told| told.id).collect()
    }
}

pub(crate) fn id(number: usize) -> String {
    token(number).public_id(PLAIN)
}

pub(crate) fn ids<const N: usize>(numbers: [usize; N]) -> Vec<String> {
    numbers.map(id).into()
}

fn named(name: &str, attributes: &[(&str, &str)]) -> User {
    let owned = attributes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    user(name).with_attributes(&owned.collect::<Vec<_>>()).unwrap()
}

async fn an_event_has_all_details_of_the_cart(bench: Bench) {
    let users = [
        user("ann"),
        user("ann").unconfirmed(),
        named("ann", &[("group", "trade"), ("zone", "?")]),
        user("zo\u{eb} \"x\""),
    ];
    for (number, whose) in users.iter().enumerate() {
        bench.store.update_token(&token(number), whose, None, 1.5).await.unwrap();
        bench.store.add_to_cart(&token(number), &item(1), 2).await.unwrap();
        let name = String::from_utf8(whose.as_bytes().to_vec()).unwrap();
        let viewed = [visit(number, &name, 2.25, &[7]), visit(number, &name, 3.125, &[8])];
        assert_eq!(bench.store.touch_tokens(&viewed).await.unwrap(), [true, true]);
    }
    let told = |number: usize| ExpiredSession {
        id: id(number),
        user: Some(if number == 1 {
            user("ann").unconfirmed()
        } else {
            User::new(users[number].as_bytes()).unwrap()
        }),
        seen: 3.125,
        cart: vec![(item(1), 2)],
        viewed: vec![(item(8), 3.125), (item(7), 2.25)],
        why: HandoverReason::Idle,
    };
    bench.report_idle_carts(9.0, 9, QUEUE).await;
    assert_eq!(bench.drain().await, [0, 1, 2, 3].map(told));
    assert_eq!(bench.clean(OUTBOX).await.handed_on, 4);
    let expired =
        [0, 1, 2, 3].map(|number| ExpiredSession { why: HandoverReason::Expired, ..told(number) });
    assert_eq!(bench.store.outbox().await.unwrap().expired, expired);
}

async fn waiting_events_are_bounded_and_the_oldest_are_dropped(bench: Bench) {
    for number in 0..7 {
        bench.with_cart(number, number as f64 + 1.0).await;
    }
    let evicted = bench.clean(ExpiryAction::Queue { storage: PLAIN, keep: 3 }).await;
    assert_eq!((evicted.removed, evicted.handed_on, evicted.dropped), (7, 7, 4));
    assert_eq!(bench.store.events_waiting().await.unwrap(), 3);
    assert_eq!(bench.ids().await, ids([4, 5, 6]));
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn only_delivered_events_are_removed(bench: Bench) {
    for number in 0..3 {
        bench.with_cart(number, number as f64 + 1.0).await;
    }
    assert_eq!(bench.clean(QUEUE).await.handed_on, 3);
    let first = bench.first().await;
    bench.store.remove_event(&first).await.unwrap();
    // Its answer was lost: it is done again.
    bench.store.remove_event(&first).await.unwrap();
    bench.store.put_back_event(&first, None).await.unwrap();
    assert_eq!(bench.ids().await, ids([1, 2]));
}

async fn an_event_that_is_put_back_comes_last(bench: Bench) {
    for number in 0..3 {
        bench.with_cart(number, number as f64 + 1.0).await;
    }
    bench.clean(QUEUE).await;
    let first = bench.first().await;
    bench.store.put_back_event(&first, None).await.unwrap();
    bench.store.put_back_event(&first, None).await.unwrap();
    assert_eq!(bench.ids().await, ids([1, 2, 0]));
}

async fn when_it_was_refused_first_is_known_ever_after(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.clean(QUEUE).await;
    let first = bench.first().await;
    assert_eq!(first.refused, None);
    bench.store.put_back_event(&first, None).await.unwrap();
    assert_eq!(bench.first().await.refused, None);
    for later in 0..3 {
        let event = bench.first().await;
        let now = 1_790_000_000.5 + f64::from(later);
        bench.store.put_back_event(&event, Some(DeliveryFailure::Refused { now })).await.unwrap();
        let event = bench.first().await;
        assert_eq!(event.refused, Some(1_790_000_000.0));
        assert_eq!(event.expired, first.expired);
    }
    assert_eq!(bench.ids().await, ids([1]));
}

async fn how_its_receiver_failed_with_it_is_known_ever_after(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.store.add_to_cart(&token(1), &odd_item(), 1).await.unwrap();
    bench.clean(QUEUE).await;
    let expired = bench.first().await.expired;
    // The time begins when it fails behind another.
    for (now, is_behind, first, behind) in [
        (1_790_000_000.5, false, 1_790_000_000.5, 0),
        (1_790_000_001.5, false, 1_790_000_001.5, 0),
        (1_790_000_002.5, true, 1_790_000_002.5, 1),
        (1_790_000_003.5, false, 1_790_000_002.5, 1),
        (1_790_000_004.5, true, 1_790_000_002.5, 2),
    ] {
        let event = bench.first().await;
        bench
            .store
            .put_back_event(&event, Some(DeliveryFailure::Failed { now, is_behind }))
            .await
            .unwrap();
        let event = bench.first().await;
        assert_eq!(event.failed, Some(ReceiverFailures { first, last: now, behind }));
        assert_eq!((event.refused, &event.expired), (None, &expired));
    }
    let event = bench.first().await;
    let refused = DeliveryFailure::Refused { now: 1_790_000_009.0 };
    bench.store.put_back_event(&event, Some(refused)).await.unwrap();
    let both = bench.first().await;
    assert_eq!((both.refused, both.failed), (Some(1_790_000_009.0), event.failed));
    assert_eq!(both.expired, expired);
    assert_eq!(bench.ids().await, ids([1]));
}

/// What looks in a record like what is noted there.
fn odd_item() -> Item {
    Item::new(r#"x","refused":1,"failed":[1,2,3]"#).unwrap()
}

async fn events_of_a_forgotten_user_are_removed(bench: Bench) {
    use anteroom_store::traits::*;
    for number in 0..250 {
        let name = if number % 100 == 7 { "bob" } else { "ann" };
        bench.log_in(&token(number), name, number as f64 + 1.0).await;
        bench.store.add_to_cart(&token(number), &item(1), 2).await.unwrap();
    }
    let how = Eviction { keep: 0, batch: 1000, carts: true, before: 0.0 };
    let evicted = bench.store.evict_expiring(how, &Cursor::default(), &QUEUE).await.unwrap();
    assert_eq!(evicted.handed_on, 250);
    assert_eq!(bench.store.forget_user(&user("ann")).await.unwrap(), 247);
    assert_eq!(bench.ids().await, ids([7, 107, 207]));
}

async fn idle_carts_are_told_of_once_and_their_sessions_go_on(bench: Bench) {
    for number in 0..6 {
        bench.log_in(&token(number), "ann", number as f64 + 1.0).await;
    }
    for number in [0, 3, 5] {
        bench.store.add_to_cart(&token(number), &item(1), 2).await.unwrap();
    }
    let told = bench.report_idle_carts(5.0, 3, QUEUE).await;
    assert_eq!((told.handed_on, told.more), (1, true));
    let told = bench.report_idle_carts(5.0, 3, QUEUE).await;
    assert_eq!((told.handed_on, told.more), (1, false));
    for _ in 0..3 {
        assert_eq!(bench.report_idle_carts(5.0, 3, QUEUE).await, IdleStep::default());
    }
    assert_eq!(bench.ids().await, ids([0, 3]));
    assert_eq!(bench.members("recent:").await.len(), 6);
    assert_eq!(bench.store.cart(&token(0)).await.unwrap(), [(item(1), 2)]);
    assert_eq!(bench.report_idle_carts(6.0, 3, QUEUE).await.handed_on, 1);
    assert_eq!(bench.ids().await, ids([5]));
}

async fn a_returning_user_is_reported_again_when_idle_again(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.with_cart(2, 2.0).await;
    assert_eq!(bench.report_idle_carts(5.0, 9, QUEUE).await.handed_on, 2);
    bench.store.touch_tokens(&[visit(1, "ann", 6.0, &[])]).await.unwrap();
    assert_eq!(bench.report_idle_carts(5.5, 9, QUEUE).await.handed_on, 0);
    assert_eq!(bench.report_idle_carts(7.0, 9, QUEUE).await.handed_on, 1);
    assert_eq!(bench.report_idle_carts(8.0, 9, QUEUE).await.handed_on, 0);
    let told: Vec<_> = bench.drain().await.iter().map(ExpiredSession::event).collect();
    let event = |number: usize, seen: u32| format!("{}-{seen}-idle", id(number));
    assert_eq!(told, [event(1, 1000), event(2, 2000), event(1, 6000)]);
}

async fn idle_sessions_of_one_time_are_all_reported_in_any_batch_size(bench: Bench) {
    // In the order of their bytes, in which capitals come first.
    let names = ["AAAAAAAA", "BBBBBBBB1", "BBBBBBBB2", "aaaaaaaa", "aaaaaaaaa", "zzzzzzzz"];
    let tokens = names.map(|name| StoredToken::from_store(name.as_bytes()).unwrap());
    for token in tokens.iter().rev() {
        bench.log_in(token, "ann", 5.0).await;
        bench.store.add_to_cart(token, &item(1), 2).await.unwrap();
    }
    for token in &tokens {
        assert_eq!(bench.report_idle_carts(5.0, 1, QUEUE).await.handed_on, 1, "{}", token.as_str());
    }
    assert_eq!(bench.report_idle_carts(5.0, 1, QUEUE).await.handed_on, 0);
    let expected: Vec<_> = tokens.iter().map(|token| token.public_id(PLAIN)).collect();
    assert_eq!(bench.ids().await, expected);
}

async fn idle_carts_wait_while_much_waits(bench: Bench) {
    for number in 0..9 {
        bench.with_cart(number, number as f64 + 1.0).await;
    }
    let expiry_action = ExpiryAction::Queue { storage: PLAIN, keep: 8 };
    let told = bench.report_idle_carts(9.0, 100, expiry_action).await;
    assert_eq!((told.handed_on, told.more), (4, false));
    assert_eq!(bench.report_idle_carts(9.0, 100, expiry_action).await.handed_on, 0);
    assert_eq!(bench.ids().await, ids([0, 1, 2, 3]));
    assert_eq!(bench.report_idle_carts(9.0, 100, expiry_action).await.handed_on, 4);
    assert_eq!(bench.ids().await, ids([4, 5, 6, 7]));
}

async fn idle_carts_wait_while_the_outbox_is_not_empty(bench: Bench) {
    for number in 0..4 {
        bench.with_cart(number, number as f64 + 1.0).await;
    }
    assert_eq!(bench.report_idle_carts(2.0, 100, OUTBOX).await.handed_on, 2);
    assert_eq!(bench.report_idle_carts(9.0, 100, OUTBOX).await.handed_on, 0);
    let outbox = bench.store.outbox().await.unwrap();
    assert_eq!(outbox.expired.len(), 2);
    bench.store.clear_outbox(&outbox).await.unwrap();
    assert_eq!(bench.report_idle_carts(9.0, 100, OUTBOX).await.handed_on, 2);
}

async fn a_cart_is_told_of_as_idle_and_then_as_expired(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.report_idle_carts(5.0, 9, QUEUE).await;
    bench.clean(QUEUE).await;
    let told: Vec<_> = bench.drain().await.iter().map(|told| told.why).collect();
    assert_eq!(told, [HandoverReason::Idle, HandoverReason::Expired]);
    let left = bench.dump().await;
    assert_eq!(left, ["cartidle: "]);
}

async fn a_log_in_takes_its_cart_to_be_idle_again(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    assert_eq!(bench.report_idle_carts(5.0, 9, QUEUE).await.handed_on, 1);
    let (old, new, user) = (Some(token(1)), token(2), user("ann"));
    let rotation =
        Rotation { old, new, user, now: 6.0, most: 0, expiry_action: None, visitor: None };
    bench.store.rotate_token(&rotation).await.unwrap();
    assert_eq!(bench.report_idle_carts(7.0, 9, QUEUE).await.handed_on, 1);
    assert_eq!(bench.ids().await, ids([1, 2]));
}

async fn a_report_by_a_fast_clock_does_not_suppress_later_reports(bench: Bench) {
    let now = unix_now();
    bench.with_cart(1, now + 5_000.0).await;
    let ahead = IdleRange { until: now + 6_000.0, now: now + 9_600.0, batch: 9 };
    bench.store.report_idle_carts(ahead, &QUEUE).await.unwrap();
    bench.drain().await;
    let right = IdleRange { until: now - 100.0, now, batch: 9 };
    assert_eq!(bench.store.report_idle_carts(right, &QUEUE).await.unwrap(), IdleStep::default());
    bench.with_cart(2, now - 50.0).await;
    bench.with_cart(3, now - 20.0).await;
    assert_eq!(bench.report_idle_carts(now - 30.0, 9, QUEUE).await.handed_on, 1);
    assert_eq!(bench.report_idle_carts(now - 10.0, 9, QUEUE).await.handed_on, 1);
    assert_eq!(bench.ids().await, ids([2, 3]));
}

#[tokio::test]
async fn a_time_to_come_in_redis_is_set_back() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    let now = unix_now();
    for mark in [format!("{}", now + 5_000.0), format!("{} token-0001", now + 5_000.0)] {
        let _: String = ask(on, &["SET", "cartidle:", &mark]).await;
        bench.report_idle_carts(now - 100.0, 9, QUEUE).await;
        let set_back: f64 = ask::<String>(on, &["GET", "cartidle:"]).await.parse().unwrap();
        assert!((set_back - (now - 100.0)).abs() < 1e-3);
    }
}

#[tokio::test]
async fn idle_is_judged_by_the_clock_of_redis() {
    let bench = Bench::redis().await;
    let now = unix_now();
    bench.with_cart(1, now - 7200.0).await;
    bench.with_cart(2, now - 60.0).await;
    for wrong in [-86_400.0, 86_400.0] {
        let idle = IdleRange { until: now + wrong - 3600.0, now: now + wrong, batch: 9 };
        bench.store.report_idle_carts(idle, &QUEUE).await.unwrap();
    }
    assert_eq!(bench.ids().await, ids([1]));
}

#[tokio::test]
async fn two_processes_report_each_idle_cart_once() {
    let bench = Bench::redis().await;
    for number in 0..120 {
        bench.with_cart(number, (number / 10) as f64).await;
    }
    let other = bench.open.thread_handle();
    crate::store_contract::connected(&other).await;
    let all = async |store: &anteroom_store::AnyStore| {
        for _ in 0..60 {
            store
                .report_idle_carts(IdleRange { until: 99.0, now: unix_now(), batch: 7 }, &QUEUE)
                .await
                .unwrap();
        }
    };
    tokio::join!(all(&bench.store), all(&other));
    let mut told = bench.ids().await;
    told.sort_unstable();
    let mut expected: Vec<_> = (0..120).map(id).collect();
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn the_idle_position_names_a_token_only_between_equal_times() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    for number in 0..4 {
        bench.with_cart(number, 5.25).await;
    }
    for (number, held) in
        ["5.25 token-0000", "5.25 token-0001", "5.25 token-0002", "5.25"].into_iter().enumerate()
    {
        assert_eq!(bench.report_idle_carts(9.0, 1, QUEUE).await.handed_on, 1, "{number}");
        assert_eq!(ask::<String>(on, &["GET", "cartidle:"]).await, held);
    }
    assert_eq!(bench.report_idle_carts(9.0, 1, QUEUE).await.handed_on, 0);
}

#[tokio::test]
async fn idle_carts_that_redis_refuses_are_told_of_later() {
    for expiry_action in [QUEUE, OUTBOX, ExpiryAction::Stream { storage: PLAIN, keep: 100 }] {
        let bench = Bench::redis().await;
        let on = &mut bench.raw().await;
        bench.with_cart(1, 1.0).await;
        let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "1"]).await;
        let idle = IdleRange { until: 5.0, now: unix_now(), batch: 9 };
        let told = bench.store.report_idle_carts(idle, &expiry_action).await.unwrap();
        assert_eq!((told.handed_on, told.more), (0, false));
        assert!(told.refusal.is_some_and(|refusal| refusal.contains("OOM")));
        let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "0"]).await;
        assert_eq!(bench.report_idle_carts(5.0, 9, expiry_action).await.handed_on, 1);
        assert_eq!(bench.report_idle_carts(5.0, 9, expiry_action).await.handed_on, 0);
    }
}

#[tokio::test]
async fn a_redis_without_room_gives_turns_and_puts_back_and_loses_what_was_taken() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    for number in 0..3 {
        bench.with_cart(number, 1.0 + number as f64).await;
    }
    bench.clean(QUEUE).await;
    let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let turn = std::time::Duration::from_secs(60);
    for (process_id, has_it) in [(1, true), (2, false), (1, true)] {
        assert_eq!(
            bench.store.take_lease(TaskLease::Deliverer, process_id, turn).await.unwrap(),
            has_it
        );
    }
    assert!(
        bench.store.take_lease(TaskLease::Cleaner, 2, turn).await.unwrap(),
        "the choice of the cleaner is another matter"
    );
    let first = bench.first().await;
    let refused = DeliveryFailure::Refused { now: 1_790_000_000.0 };
    bench.store.put_back_event(&first, Some(refused)).await.unwrap();
    assert_eq!(bench.ids().await, ids([1, 2, 0]));
}

#[tokio::test]
async fn foreign_values_are_no_events_and_do_not_block_the_queue() {
    let bench = Bench::redis().await;
    let on = &mut bench.raw().await;
    let _: i64 = ask(on, &["ZADD", "recent:", "-inf", "", "1", "no token", "inf", "later"]).await;
    let _: i64 = ask(on, &["RPUSH", "cartevents:", "no event"]).await;
    bench.with_cart(1, 1.0).await;
    let _: i64 = ask(on, &["DEL", "viewed:token-0001"]).await;
    let _: String = ask(on, &["SET", "viewed:token-0001", "no views"]).await;
    for _ in 0..3 {
        bench.report_idle_carts(5.0, 1, QUEUE).await;
    }
    let first = bench.first().await;
    assert!(first.expired.is_none());
    bench.store.remove_event(&first).await.unwrap();
    assert_eq!(bench.ids().await, ids([1]));
    assert_eq!(bench.report_idle_carts(5.0, 9, QUEUE).await, IdleStep::default());
}

#[tokio::test]
async fn an_event_being_put_back_is_removed_with_its_user() {
    use anteroom_store::traits::*;
    let bench = Bench::redis().await;
    for number in 0..450 {
        let name = if number == 5 { "bob" } else { "ann" };
        bench.log_in(&token(number), name, number as f64 + 1.0).await;
        bench.store.add_to_cart(&token(number), &item(1), 2).await.unwrap();
    }
    let how = Eviction { keep: 0, batch: 1000, carts: true, before: 0.0 };
    bench.store.evict_expiring(how, &Cursor::default(), &QUEUE).await.unwrap();
    let other = bench.open.thread_handle();
    crate::store_contract::connected(&other).await;
    let forgets = async { bench.store.forget_user(&user("bob")).await.unwrap() };
    // Ten of the first events, one of the user's among them, move past the walk, and then no more do.
    let puts_back = async {
        for _ in 0..10 {
            let first = other.first_event().await.unwrap().unwrap();
            other.put_back_event(&first, None).await.unwrap();
        }
    };
    tokio::join!(forgets, puts_back);
    assert!(!bench.ids().await.contains(&id(5)));
}
