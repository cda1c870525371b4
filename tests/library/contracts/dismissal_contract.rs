//! The contract of both stores on carts of sessions that end before the cleaner comes to them: by another
//! login, or by an operator.

use anteroom_http::ident::TokenStorage;
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, CartAnswer, CartChange, CartOwner, EndedCarts, ExpiryAction, Rotation, RotationResult,
};

use crate::event_contract::{id, ids};
use crate::store_contract::{
    Bench, ENDLESS, ask, connected, contract, item, rotation, token, user,
};

const PLAIN: TokenStorage = TokenStorage::Plain;
const OUTBOX: ExpiryAction = ExpiryAction::Outbox { storage: PLAIN };
const QUEUE: ExpiryAction = ExpiryAction::Queue { storage: PLAIN, keep: 100_000 };
const STREAM: ExpiryAction = ExpiryAction::Stream { storage: PLAIN, keep: 100_000 };

contract!(
    carts_of_sessions_that_are_too_many_are_handed_on,
    a_cart_that_moves_to_the_new_session_is_not_handed_on,
    a_cart_that_finds_another_in_the_new_session_is_handed_on,
    the_cart_of_a_session_that_another_user_takes_over_is_handed_on,
    the_cart_under_a_token_that_becomes_another_s_is_handed_on,
    the_cart_of_a_session_that_is_dismissed_is_handed_on_once,
    without_an_expiry_action_a_cart_goes_as_on_a_log_out,
    dismissed_carts_queue_behind_carts_waiting_for_the_file,
    a_cart_that_cannot_be_handed_on_is_lost_and_counted,
    ; of one place:
    dismissed_carts_keep_to_the_bound_of_the_queue,
);

impl Bench {
    async fn rotate(&self, rotation: Rotation, expiry_action: ExpiryAction) -> RotationResult {
        self.store
            .rotate_token(&Rotation { expiry_action: Some(expiry_action), ..rotation })
            .await
            .unwrap()
    }

    async fn dismiss(&self, number: usize, expiry_action: ExpiryAction) -> EndedCarts {
        self.store.dismiss_token(&token(number), &expiry_action).await.unwrap()
    }

    async fn is_gone(&self, number: usize) -> bool {
        let left = self.dump().await;
        !left.iter().any(|line| line.contains(token(number).as_str()))
    }
}

fn handed_on(handed_on: usize) -> EndedCarts {
    EndedCarts { handed_on, ..EndedCarts::default() }
}

async fn carts_of_sessions_that_are_too_many_are_handed_on(bench: Bench) {
    for number in 1..=4 {
        bench.with_cart(number, number as f64).await;
    }
    bench.log_in(&token(5), "ann", 5.0).await;
    bench.log_in(&token(9), "bob", 0.5).await;
    let most = Rotation { most: 2, ..rotation(None, 6, "ann") };
    let rotated = bench.rotate(most, QUEUE).await;
    assert_eq!(rotated.gone, [1, 2, 3, 4].map(token));
    assert_eq!(rotated.ended_carts, handed_on(4));
    assert_eq!(bench.ids().await, ids([1, 2, 3, 4]));
    assert!(bench.is_gone(1).await && bench.is_gone(4).await);
    assert!(!bench.is_gone(5).await && !bench.is_gone(9).await);
}

async fn a_cart_that_moves_to_the_new_session_is_not_handed_on(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    let rotated = bench.rotate(rotation(Some(1), 2, "ann"), QUEUE).await;
    assert_eq!(rotated, RotationResult::default());
    assert_eq!(bench.store.cart(&token(2)).await.unwrap(), [(item(1), 2)]);
    assert_eq!(bench.ids().await, ids([]));
}

async fn a_cart_that_finds_another_in_the_new_session_is_handed_on(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.with_cart(2, 2.0).await;
    let rotated = bench.rotate(rotation(Some(1), 2, "ann"), QUEUE).await;
    assert_eq!(rotated.ended_carts, handed_on(1));
    assert_eq!(bench.store.cart(&token(2)).await.unwrap(), [(item(1), 2)]);
    assert_eq!(bench.ids().await, ids([1]));
    assert!(bench.is_gone(1).await);
}

async fn the_cart_of_a_session_that_another_user_takes_over_is_handed_on(bench: Bench) {
    bench.with_cart(1, 1.5).await;
    let rotated = bench.rotate(rotation(Some(1), 2, "bob"), OUTBOX).await;
    assert_eq!(rotated.ended_carts, handed_on(1));
    let outbox = bench.store.outbox().await.unwrap();
    let told = &outbox.expired[0];
    assert_eq!((outbox.expired.len(), &told.id, told.seen), (1, &id(1), 1.5));
    assert_eq!((&told.user, &told.cart), (&Some(user("ann")), &vec![(item(1), 2)]));
    assert!(bench.is_gone(1).await);
    assert_eq!(bench.store.cart(&token(2)).await.unwrap(), []);
}

async fn the_cart_under_a_token_that_becomes_another_s_is_handed_on(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    let rotated = bench.rotate(rotation(None, 1, "bob"), QUEUE).await;
    assert_eq!(rotated.ended_carts, handed_on(1));
    assert_eq!(bench.store.cart(&token(1)).await.unwrap(), []);
    assert_eq!(bench.user_of(&token(1)).await, Some(user("bob")));
    assert_eq!(bench.ids().await, ids([1]));
}

async fn the_cart_of_a_session_that_is_dismissed_is_handed_on_once(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.log_in(&token(2), "ann", 2.0).await;
    assert_eq!(bench.dismiss(1, QUEUE).await, handed_on(1));
    for number in [1, 2, 3] {
        assert_eq!(bench.dismiss(number, QUEUE).await, EndedCarts::default());
    }
    assert_eq!(bench.ids().await, ids([1]));
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn without_an_expiry_action_a_cart_goes_as_on_a_log_out(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.with_cart(2, 2.0).await;
    bench.store.revoke_token(&token(1)).await.unwrap();
    let rotated = bench.store.rotate_token(&rotation(Some(2), 3, "bob")).await.unwrap();
    assert_eq!(rotated, RotationResult::default());
    assert_eq!(bench.ids().await, ids([]));
    assert!(bench.is_gone(1).await && bench.is_gone(2).await);
}

async fn dismissed_carts_keep_to_the_bound_of_the_queue(bench: Bench) {
    let queue = ExpiryAction::Queue { storage: PLAIN, keep: 2 };
    for number in 0..3 {
        bench.with_cart(number, number as f64).await;
        let dropped = usize::from(number == 2);
        assert_eq!(bench.dismiss(number, queue).await, EndedCarts { dropped, ..handed_on(1) });
    }
    assert_eq!(bench.ids().await, ids([1, 2]));
}

async fn dismissed_carts_queue_behind_carts_waiting_for_the_file(bench: Bench) {
    for number in 0..3 {
        bench.with_cart(number, number as f64).await;
    }
    assert_eq!(bench.dismiss(0, OUTBOX).await, handed_on(1));
    let read = bench.store.outbox().await.unwrap();
    assert!(!read.more);
    assert_eq!(bench.dismiss(1, OUTBOX).await, handed_on(1));
    assert!(bench.store.clear_outbox(&read).await.unwrap());
    assert!(!bench.store.clear_outbox(&read).await.unwrap(), "it is gone");
    let read = bench.store.outbox().await.unwrap();
    let told: Vec<_> = read.expired.iter().map(|told| told.id.clone()).collect();
    assert_eq!(told, ids([1]));
}

async fn a_cart_that_cannot_be_handed_on_is_lost_and_counted(bench: Bench) {
    bench.with_cart(1, 1.0).await;
    bench.log_in(&token(2), "ann", 2.0).await;
    let ended_carts = bench.dismiss(1, ExpiryAction::Keep).await;
    assert_eq!((ended_carts.handed_on, ended_carts.lost), (0, 1));
    assert!(ended_carts.refusal.is_some());
    assert_eq!(bench.dismiss(2, ExpiryAction::Keep).await, EndedCarts::default());
    assert_eq!(bench.dump().await, [""; 0]);
}

#[tokio::test]
async fn a_full_redis_takes_the_carts_of_dismissed_sessions() {
    for expiry_action in [QUEUE, OUTBOX, STREAM] {
        let bench = Bench::redis().await;
        let on = &mut bench.raw().await;
        bench.with_cart(1, 1.0).await;
        let _: String = ask(on, &["CONFIG", "SET", "maxmemory", "1"]).await;
        assert_eq!(bench.dismiss(1, expiry_action).await, handed_on(1));
        assert!(bench.is_gone(1).await);
    }
}

#[tokio::test]
async fn where_another_program_s_key_is_in_the_way_a_session_ends_without_its_cart() {
    for (key, expiry_action) in
        [("expired:", STREAM), ("expiring:", OUTBOX), ("cartevents:", QUEUE)]
    {
        let bench = Bench::redis().await;
        let on = &mut bench.raw().await;
        let _: String = ask(on, &["SET", key, "no list"]).await;
        bench.with_cart(1, 1.0).await;
        bench.with_cart(2, 2.0).await;
        let most = Rotation { most: 1, ..rotation(Some(1), 3, "bob") };
        let ended_carts = bench.rotate(most, expiry_action).await.ended_carts;
        assert_eq!((ended_carts.handed_on, ended_carts.lost), (0, 1), "{key}");
        assert!(ended_carts.refusal.is_some_and(|refusal| refusal.contains("WRONGTYPE")));
        assert_eq!(bench.dismiss(2, expiry_action).await.lost, 1);
        assert!(bench.is_gone(1).await && bench.is_gone(2).await);
        assert_eq!(bench.user_of(&token(3)).await, Some(user("bob")));
    }
}

/// Logs ann in time and again, one session at a time, each with a cart if it lives for so long. Returns how
/// many carts there were.
async fn log_in_and_buy(store: &AnyStore, numbers: std::ops::Range<usize>) -> usize {
    let mut carts = 0;
    for number in numbers {
        let now = number as f64;
        let expiry_action = Some(QUEUE);
        let log_in = Rotation { most: 1, now, expiry_action, ..rotation(None, number, "ann") };
        assert_eq!(store.rotate_token(&log_in).await.unwrap().ended_carts.lost, 0);
        let owner = CartOwner { token: token(number), user: None, now, terms: ENDLESS };
        let change = CartChange::Set(vec![(item(1), 1)]);
        let answer = store.change_cart(&owner, &change).await.unwrap();
        carts += usize::from(matches!(answer, CartAnswer::Changed(_)));
    }
    carts
}

#[tokio::test]
async fn while_a_user_logs_in_at_two_proxies_each_cart_is_handed_on_once() {
    let bench = Bench::redis().await;
    let other = bench.open.thread_handle();
    connected(&other).await;
    let (one, two) =
        tokio::join!(log_in_and_buy(&bench.store, 0..60), log_in_and_buy(&other, 60..120));
    let mut told = bench.ids().await;
    let left = bench.dump().await.iter().filter(|line| line.starts_with("cart:")).count();
    assert_eq!(told.len() + left, one + two);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len() + left, one + two);
}
