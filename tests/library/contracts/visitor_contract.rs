//! What both stores promise of the tokens of visitors without a login.

use std::collections::BTreeSet;

use anteroom_http::ident::{Item, StoredToken, Token, TokenStorage, VisitorToken};
use anteroom_store::traits::*;
use anteroom_store::{
    CART_MAX, Cart, CartAnswer, CartChange, MergeResult, Rotation, TokenCreation, VISITOR_CART_MAX,
    VisitorEviction, VisitorVisit, VisitorsEvicted,
};

use crate::store_contract::{Bench, contract, item, remote_contract, rotation, token, user};

contract!(
    a_token_begins_with_what_there_is_to_remember,
    a_visit_never_brings_a_token_back,
    a_cart_is_changed_only_where_its_token_is_there,
    the_cart_of_a_visitor_has_a_bound,
    a_log_in_takes_over_what_its_visitor_had,
    joined_carts_keep_the_larger_count_and_their_bound,
    of_joined_views_the_newest_stay,
    of_two_log_ins_one_gets_the_cart,
    visitor_data_is_merged_only_into_a_session_of_the_user,
    tokens_are_cleaned_by_count_and_by_age,
    a_member_that_is_no_token_goes_and_nothing_else,
    visitors_push_no_session_out,
    no_session_is_found_by_a_visitors_token,
);

remote_contract!(
    a_cart_is_changed_only_where_its_token_is_there,
    the_cart_of_a_visitor_has_a_bound,
    joined_carts_keep_the_larger_count_and_their_bound,
    of_two_log_ins_one_gets_the_cart,
    visitor_data_is_merged_only_into_a_session_of_the_user,
);

fn visitor(number: u8) -> VisitorToken {
    VisitorToken::of(&Token::parse(format!("visitor-{number:03}").as_bytes()).unwrap())
}

fn visit(number: u8, seen: f64, items: &[usize]) -> VisitorVisit {
    let items = items.iter().map(|number| (item(*number), seen)).collect();
    VisitorVisit { token: visitor(number), seen, items }
}

fn set(items: &[(usize, i64)]) -> CartChange {
    CartChange::Set(cart(items))
}

fn cart(items: &[(usize, i64)]) -> Cart {
    items.iter().map(|(number, count)| (item(*number), *count)).collect()
}

fn log_in(number: usize, name: &str, by: Option<u8>) -> Rotation {
    Rotation { visitor: by.map(visitor), ..rotation(None, number, name) }
}

impl Bench {
    async fn put_as_visitor(
        &self,
        number: u8,
        begins: TokenCreation,
        items: &[(usize, i64)],
    ) -> CartAnswer {
        let token = visitor(number);
        self.store.change_visitor_cart(&token, begins, &set(items), 1.0).await.unwrap()
    }

    async fn viewed_by(&self, token: &StoredToken) -> Vec<Item> {
        let viewed = self.store.viewed(token).await.unwrap();
        viewed.into_iter().map(|(item, _)| item).collect()
    }

    async fn clean_visitors(&self, keep: u64, before: f64) -> VisitorsEvicted {
        let how = VisitorEviction { keep, batch: 2, before };
        self.store.evict_visitors(how).await.unwrap()
    }

    /// Whether anything in the store mentions a visitor's token.
    async fn mentions(&self, number: u8) -> bool {
        let (token, lines) = (visitor(number), self.dump().await);
        lines.iter().any(|line| line.contains(token.as_str()))
    }
}

async fn a_token_begins_with_what_there_is_to_remember(bench: Bench) {
    bench.store.begin_visitor(&visitor(1), &item(1), 1.0).await.unwrap();
    assert_eq!(bench.members("visitors:").await, [visitor(1).as_str()]);
    let held = bench.store.touch_visitors(&[visit(1, 2.0, &[2]), visit(1, 3.0, &[])]).await;
    assert_eq!(held.unwrap(), [true, true]);
    let viewed = bench.store.visitor_viewed(&visitor(1)).await.unwrap();
    assert_eq!(viewed, [(item(2), 2.0), (item(1), 1.0)]);
    assert_eq!(bench.members("viewed:").await, [""; 0], "popularity is counted elsewhere");

    let answer = bench.put_as_visitor(2, TokenCreation::Now, &[(7, 2)]).await;
    assert_eq!(answer, CartAnswer::Changed(cart(&[(7, 2)])));
    assert_eq!(bench.store.visitor_cart(&visitor(2)).await.unwrap(), cart(&[(7, 2)]));

    bench.store.forget_visitor(&visitor(1)).await.unwrap();
    bench.store.forget_visitor(&visitor(2)).await.unwrap();
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn a_visit_never_brings_a_token_back(bench: Bench) {
    let visits: Vec<_> = (0..120).map(|number| visit(number, 2.0, &[1, 2])).collect();
    bench.store.begin_visitor(&visitor(60), &item(1), 1.0).await.unwrap();
    let held = bench.store.touch_visitors(&visits).await.unwrap();
    let expected: Vec<_> = (0..120).map(|number| number == 60).collect();
    assert_eq!(held, expected);
    assert_eq!(bench.members("visitors:").await, [visitor(60).as_str()]);
    assert_eq!(bench.members(&format!("viewed:{}", visitor(59).as_str())).await, [""; 0]);
    // Nor does an earlier one make it look older.
    bench.store.begin_visitor(&visitor(1), &item(1), 1.5).await.unwrap();
    bench.store.touch_visitors(&[visit(60, 0.5, &[])]).await.unwrap();
    let oldest_first = [visitor(1), visitor(60)].map(|token| token.as_str().to_owned());
    assert_eq!(bench.members("visitors:").await, oldest_first);
}

async fn a_cart_is_changed_only_where_its_token_is_there(bench: Bench) {
    assert_eq!(
        bench.put_as_visitor(1, TokenCreation::Before, &[(1, 1)]).await,
        CartAnswer::NotLoggedIn
    );
    assert_eq!(bench.dump().await, [""; 0]);
    bench.put_as_visitor(1, TokenCreation::Now, &[(1, 1), (2, 2)]).await;
    let less = bench.put_as_visitor(1, TokenCreation::Before, &[(1, 0), (3, 3)]).await;
    assert_eq!(less, CartAnswer::Changed(cart(&[(2, 2), (3, 3)])));
    let (token, empty) = (visitor(1), CartChange::Empty);
    let emptied = bench.store.change_visitor_cart(&token, TokenCreation::Before, &empty, 9.0).await;
    assert_eq!(emptied.unwrap(), CartAnswer::Changed(Cart::new()));
    assert_eq!(bench.members("visitors:").await, [token.as_str()]);
}

async fn the_cart_of_a_visitor_has_a_bound(bench: Bench) {
    let all: Vec<_> = (0..VISITOR_CART_MAX).map(|number| (number, 1)).collect();
    let more: Vec<_> = (0..=VISITOR_CART_MAX).map(|number| (number, 1)).collect();
    assert_eq!(bench.put_as_visitor(1, TokenCreation::Now, &more).await, CartAnswer::Full);
    assert_eq!(bench.dump().await, [""; 0]);
    bench.put_as_visitor(1, TokenCreation::Now, &all).await;
    assert_eq!(
        bench.put_as_visitor(1, TokenCreation::Before, &[(VISITOR_CART_MAX, 1)]).await,
        CartAnswer::Full
    );
    assert_eq!(bench.store.visitor_cart(&visitor(1)).await.unwrap().len(), VISITOR_CART_MAX);
}

async fn a_log_in_takes_over_what_its_visitor_had(bench: Bench) {
    bench.put_as_visitor(1, TokenCreation::Now, &[(1, 2)]).await;
    bench.store.touch_visitors(&[visit(1, 2.0, &[4, 5])]).await.unwrap();
    bench.store.rotate_token(&log_in(7, "ann", Some(1))).await.unwrap();
    assert_eq!(bench.store.cart(&token(7)).await.unwrap(), cart(&[(1, 2)]));
    assert_eq!(bench.viewed_by(&token(7)).await, [item(5), item(4)]);
    assert!(!bench.mentions(1).await);
    assert_eq!(bench.members("visitors:").await, [""; 0]);
    // It is over: neither a visit nor a change begins it again.
    let held = bench.store.touch_visitors(&[visit(1, 3.0, &[6])]).await.unwrap();
    assert_eq!(held, [false]);
    assert_eq!(
        bench.put_as_visitor(1, TokenCreation::Before, &[(9, 1)]).await,
        CartAnswer::NotLoggedIn
    );
    assert!(!bench.mentions(1).await);
    bench.store.revoke_token(&token(7)).await.unwrap();
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn joined_carts_keep_the_larger_count_and_their_bound(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    for (number, count) in [(1, 5), (2, 1), (3, 1)] {
        bench.store.add_to_cart(&token(1), &item(number), count).await.unwrap();
    }
    bench.put_as_visitor(1, TokenCreation::Now, &[(1, 2), (2, 4), (4, 1)]).await;
    let again = Rotation { visitor: Some(visitor(1)), ..rotation(Some(1), 2, "ann") };
    bench.store.rotate_token(&again).await.unwrap();
    let joined = cart(&[(1, 5), (2, 4), (3, 1), (4, 1)]);
    assert_eq!(bench.store.cart(&token(2)).await.unwrap(), joined);

    let nearly: Vec<_> = (10..10 + CART_MAX - 5).map(|number| (number, 1)).collect();
    for (number, count) in nearly {
        bench.store.add_to_cart(&token(2), &item(number), count).await.unwrap();
    }
    bench.put_as_visitor(2, TokenCreation::Now, &[(1, 9), (900, 1), (901, 1), (902, 1)]).await;
    let merged = bench.store.merge_visitor(&visitor(2), &token(2), &user("ann")).await.unwrap();
    assert_eq!(merged, MergeResult::Done);
    let full = bench.store.cart(&token(2)).await.unwrap();
    assert_eq!(full.len(), CART_MAX);
    assert!(full.contains(&(item(1), 9)) && full.contains(&(item(900), 1)));
    assert!(!full.contains(&(item(902), 1)));
    assert!(!bench.mentions(2).await);
}

async fn of_joined_views_the_newest_stay(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    for number in 0..20_u8 {
        let seen = f64::from(number) * 2.0;
        let visits = [crate::store_contract::visit(1, "ann", seen, &[number.into()])];
        bench.store.touch_tokens(&visits).await.unwrap();
        let begun = number > 0;
        let viewed = usize::from(number) + 100;
        match begun {
            false => {
                bench.store.begin_visitor(&visitor(1), &item(viewed), seen + 1.0).await.unwrap()
            }
            true => {
                bench.store.touch_visitors(&[visit(1, seen + 1.0, &[viewed])]).await.unwrap();
            }
        }
    }
    // The visitor has seen one of them with a login, too, and earlier.
    bench.store.touch_visitors(&[visit(1, 100.0, &[0])]).await.unwrap();
    bench.store.merge_visitor(&visitor(1), &token(1), &user("ann")).await.unwrap();
    let joined = bench.viewed_by(&token(1)).await;
    assert_eq!(joined.len(), 25);
    assert_eq!(joined[..4], [item(0), item(119), item(19), item(118)]);
}

async fn of_two_log_ins_one_gets_the_cart(bench: Bench) {
    for round in 0..20_u8 {
        bench.put_as_visitor(round, TokenCreation::Now, &[(1, 2)]).await;
        let sessions = [usize::from(round) * 2, usize::from(round) * 2 + 1];
        let [one, other] = sessions.map(|number| log_in(number, "ann", Some(round)));
        let (one, other) =
            tokio::join!(bench.store.rotate_token(&one), bench.store.rotate_token(&other));
        one.and(other).unwrap();
        let mut carts = Vec::new();
        for number in sessions {
            carts.push(bench.store.cart(&token(number)).await.unwrap().len());
        }
        carts.sort_unstable();
        assert_eq!(carts, [0, 1]);
    }
}

async fn visitor_data_is_merged_only_into_a_session_of_the_user(bench: Bench) {
    bench.put_as_visitor(1, TokenCreation::Now, &[(1, 2)]).await;
    let merge = async |name: &str| {
        bench.store.merge_visitor(&visitor(1), &token(1), &user(name)).await.unwrap()
    };
    assert_eq!(merge("ann").await, MergeResult::NoSession);
    bench.log_in(&token(1), "bob", 1.0).await;
    assert_eq!(merge("ann").await, MergeResult::NoSession);
    assert_eq!(bench.store.visitor_cart(&visitor(1)).await.unwrap().len(), 1);
    assert_eq!(merge("bob").await, MergeResult::Done);
    assert_eq!(merge("bob").await, MergeResult::Nothing);
    assert_eq!(bench.store.cart(&token(1)).await.unwrap(), cart(&[(1, 2)]));
}

async fn tokens_are_cleaned_by_count_and_by_age(bench: Bench) {
    for number in 0..6_u8 {
        let seen = f64::from(number) + 1.0;
        bench.store.begin_visitor(&visitor(number), &item(1), seen).await.unwrap();
        bench.put_as_visitor(number, TokenCreation::Before, &[(1, 1)]).await;
    }
    bench.store.touch_visitors(&[visit(0, 9.0, &[])]).await.unwrap();
    assert_eq!(bench.clean_visitors(6, 1.0).await, VisitorsEvicted { removed: 0, kept: 6 });
    assert_eq!(bench.clean_visitors(3, 1.0).await, VisitorsEvicted { removed: 2, kept: 4 });
    assert!(!bench.mentions(1).await && !bench.mentions(2).await);
    assert_eq!(bench.clean_visitors(3, 1.0).await, VisitorsEvicted { removed: 1, kept: 3 });
    assert_eq!(bench.clean_visitors(3, 5.5).await, VisitorsEvicted { removed: 1, kept: 2 });
    assert_eq!(bench.clean_visitors(3, 5.5).await, VisitorsEvicted { removed: 0, kept: 2 });
    let left = [visitor(5), visitor(0)].map(|token| token.as_str().to_owned());
    assert_eq!(bench.members("visitors:").await, left);
    assert_eq!(bench.clean_visitors(0, 0.0).await, VisitorsEvicted { removed: 2, kept: 0 });
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn a_member_that_is_no_token_goes_and_nothing_else(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.store.add_to_cart(&token(1), &item(1), 1).await.unwrap();
    let dump = async || BTreeSet::from_iter(bench.dump().await);
    let before = dump().await;
    if matches!(bench.store.engine(), anteroom_store::Engine::Redis(_)) {
        let mut raw = bench.raw().await;
        for junk in ["", token(1).as_str(), "v,short"] {
            let words = ["ZADD", "visitors:", "0", junk];
            crate::store_contract::ask::<i64>(&mut raw, &words).await;
        }
        assert_eq!(bench.clean_visitors(0, 0.0).await.removed, 2);
    }
    assert!(bench.clean_visitors(0, 0.0).await.removed <= 1);
    assert_eq!(dump().await, before);
}

async fn visitors_push_no_session_out(bench: Bench) {
    bench.log_in(&token(1), "ann", 0.5).await;
    for number in 0..20 {
        bench.put_as_visitor(number, TokenCreation::Now, &[(1, 1)]).await;
    }
    let how = anteroom_store::Eviction { keep: 1, batch: 10, carts: true, before: 0.0 };
    assert_eq!(bench.store.evict_oldest(how).await.unwrap(), 0);
    assert_eq!(bench.user_of(&token(1)).await, Some(user("ann")));
    assert_eq!(bench.members("recent:").await, [token(1).as_str()]);
}

async fn no_session_is_found_by_a_visitors_token(bench: Bench) {
    let minted = Token::mint().unwrap();
    let token = VisitorToken::of(&minted);
    bench.store.begin_visitor(&token, &item(1), 1.0).await.unwrap();
    for how in [TokenStorage::Plain, TokenStorage::Sha256] {
        assert_eq!(bench.user_of(&minted.stored(how)).await, None);
        assert!(bench.store.viewed(&minted.stored(how)).await.unwrap().is_empty());
    }
    assert_eq!(bench.user_of(token.as_stored()).await, None);
    assert_eq!(bench.members("login:").await, [""; 0]);
}
