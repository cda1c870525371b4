//! What both stores promise for the control of sessions: the index of users, the terms that sessions end by,
//! and walks through all of them.

use std::collections::BTreeSet;

use anteroom_http::ident::StoredToken;
use anteroom_store::traits::*;
use anteroom_store::{
    Bookmark, CartAnswer, CartChange, CartOwner, Cursor, Eviction, ExpiryAction, Rotation,
    SessionLifetimes, WALK_MAX,
};

use crate::store_contract::{Bench, ENDLESS, contract, item, rotation, token, user, visit};

contract!(
    the_index_has_every_logged_in_session,
    the_index_has_no_ended_sessions,
    a_log_in_under_a_token_of_another_user_moves_it_in_the_index,
    attributes_do_not_separate_a_user_from_other_sessions,
    an_idle_session_is_over,
    a_session_past_its_absolute_limit_is_over_even_if_busy,
    the_cart_of_a_session_that_is_over_is_not_changed,
    a_session_from_the_future_was_seen_now,
    sessions_that_were_not_seen_are_cleaned_below_the_limit,
    carts_of_sessions_that_were_not_seen_are_handed_on,
    of_too_many_sessions_the_oldest_log_in_goes,
    a_repeated_log_in_does_not_count_as_another_session,
    the_newest_are_shown_page_by_page,
    a_walk_meets_every_session,
    a_walk_finds_what_a_token_begins_with,
    the_details_of_a_session_are_returned,
);

impl Bench {
    async fn log_in_at(&self, number: usize, name: &str, now: f64, most: u32) -> Vec<StoredToken> {
        let rotation = Rotation { now, most, ..rotation(None, number, name) };
        self.store.rotate_token(&rotation).await.unwrap().gone
    }

    /// The numbers of this user's tokens, in the order of the index.
    async fn indexed(&self, name: &str) -> Vec<StoredToken> {
        let sessions = self.store.sessions_of(&user(name)).await.unwrap();
        sessions.into_iter().map(|session| session.token).collect()
    }

    async fn lives(&self, number: usize, terms: SessionLifetimes) -> bool {
        self.store.live_token(&token(number), &terms).await.unwrap().is_some()
    }
}

fn tokens<const N: usize>(numbers: [usize; N]) -> Vec<StoredToken> {
    numbers.map(token).into()
}

fn idle(now: f64, idle: f64) -> SessionLifetimes {
    SessionLifetimes { now, idle: Some(idle), notes: true, ..ENDLESS }
}

fn absolute(now: f64, absolute: f64) -> SessionLifetimes {
    SessionLifetimes { now, absolute: Some(absolute), notes: true, ..ENDLESS }
}

async fn the_index_has_every_logged_in_session(bench: Bench) {
    bench.log_in(&token(2), "ann", 1.0).await;
    bench.log_in_at(1, "ann", 2.0, 0).await;
    bench.log_in_at(3, "bob", 3.0, 0).await;
    // Seen again is not logged in again.
    bench.log_in(&token(2), "ann", 9.0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 9.5, &[])]).await.unwrap();
    assert_eq!(bench.indexed("ann").await, tokens([2, 1]));
    assert_eq!(bench.indexed("bob").await, tokens([3]));
    assert_eq!(bench.indexed("an").await, []);
}

async fn the_index_has_no_ended_sessions(bench: Bench) {
    for number in 0..6 {
        bench.log_in_at(number, "ann", 1.0 + number as f64, 0).await;
    }
    bench.store.revoke_token(&token(3)).await.unwrap();
    bench.store.rotate_token(&rotation(Some(4), 7, "ann")).await.unwrap();
    bench.store.rotate_token(&rotation(Some(5), 8, "bob")).await.unwrap();
    let one = |batch| Eviction { keep: 0, batch, carts: true, before: 0.0 };
    assert_eq!(bench.store.evict_oldest(one(1)).await.unwrap(), 1);
    assert_eq!(bench.indexed("ann").await, tokens([1, 2, 7]));
    let expiry_action = ExpiryAction::Outbox { storage: anteroom_http::ident::TokenStorage::Plain };
    let evicted =
        bench.store.evict_expiring(one(1), &Cursor::default(), &expiry_action).await.unwrap();
    assert_eq!(evicted.removed, 1);
    assert_eq!(bench.indexed("ann").await, tokens([2, 7]));
    assert_eq!(bench.store.evict_oldest(one(9)).await.unwrap(), 3);
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn a_log_in_under_a_token_of_another_user_moves_it_in_the_index(bench: Bench) {
    bench.log_in(&token(1), "ann", 1.0).await;
    bench.log_in(&token(1), "bob", 2.0).await;
    assert_eq!(bench.indexed("ann").await, []);
    assert_eq!(bench.indexed("bob").await, tokens([1]));
    bench.log_in_at(1, "eve", 3.0, 0).await;
    assert_eq!(bench.indexed("bob").await, []);
    let session = bench.store.session(&token(1)).await.unwrap().unwrap();
    assert_eq!((session.user, session.since), (user("eve"), Some(3.0)));
}

async fn attributes_do_not_separate_a_user_from_other_sessions(bench: Bench) {
    let trade = user("ann").with_attributes(&[("group".into(), "trade".into())]).unwrap();
    bench.log_in_at(1, "ann", 1.0, 0).await;
    let other = Rotation { user: trade, now: 2.0, ..rotation(None, 2, "ann") };
    bench.store.rotate_token(&other).await.unwrap();
    assert_eq!(bench.indexed("ann").await, tokens([1, 2]));
    for number in [1, 2] {
        bench.store.revoke_token(&token(number)).await.unwrap();
    }
    assert_eq!(bench.dump().await, [""; 0]);
}

async fn an_idle_session_is_over(bench: Bench) {
    bench.log_in_at(1, "ann", 100.0, 0).await;
    assert!(bench.lives(1, idle(109.9, 10.0)).await);
    assert!(!bench.lives(1, idle(110.0, 10.0)).await);
    bench.store.touch_tokens(&[visit(1, "ann", 105.0, &[])]).await.unwrap();
    assert!(bench.lives(1, idle(114.0, 10.0)).await);
    assert!(!bench.lives(1, idle(115.0, 10.0)).await);
    assert!(bench.lives(1, SessionLifetimes { now: 1e9, ..ENDLESS }).await);
    assert!(!bench.lives(2, idle(105.0, 10.0)).await);
}

async fn a_session_past_its_absolute_limit_is_over_even_if_busy(bench: Bench) {
    bench.log_in_at(1, "ann", 100.0, 0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 150.0, &[])]).await.unwrap();
    let found = bench.store.live_token(&token(1), &absolute(150.0, 60.0)).await.unwrap();
    assert_eq!(found.unwrap().ends, 160.0);
    assert!(!bench.lives(1, absolute(160.0, 60.0)).await);
    // A login starts a new term.
    bench.log_in_at(1, "ann", 170.0, 0).await;
    assert!(bench.lives(1, absolute(180.0, 60.0)).await);
}

async fn the_cart_of_a_session_that_is_over_is_not_changed(bench: Bench) {
    bench.log_in_at(1, "ann", 100.0, 0).await;
    let change = CartChange::Set(vec![(item(1), 1)]);
    for (terms, over) in [
        (idle(120.0, 10.0), true),
        (absolute(120.0, 10.0), true),
        (SessionLifetimes { absolute: Some(50.0), ..idle(120.0, 30.0) }, false),
    ] {
        let whose = CartOwner { token: token(1), user: None, now: 120.0, terms };
        let answer = bench.store.change_cart(&whose, &change).await.unwrap();
        assert_eq!(answer == CartAnswer::NotLoggedIn, over, "{terms:?}");
    }
}

async fn sessions_that_were_not_seen_are_cleaned_below_the_limit(bench: Bench) {
    for number in 0..7 {
        bench.log_in_at(number, "ann", 100.0 + number as f64, 0).await;
    }
    let how = |keep, batch| Eviction { keep, batch, carts: true, before: 104.0 };
    assert_eq!(bench.store.evict_oldest(how(100, 3)).await.unwrap(), 3);
    assert_eq!(bench.store.evict_oldest(how(100, 3)).await.unwrap(), 1);
    assert_eq!(bench.store.evict_oldest(how(100, 3)).await.unwrap(), 0);
    assert_eq!(bench.indexed("ann").await, tokens([4, 5, 6]));
    // Of both limits the tighter one holds.
    assert_eq!(bench.store.evict_oldest(how(1, 9)).await.unwrap(), 2);
    assert_eq!(bench.indexed("ann").await, tokens([6]));
}

async fn a_session_from_the_future_was_seen_now(bench: Bench) {
    bench.log_in_at(1, "ann", 100.0, 0).await;
    bench.log_in_at(2, "ann", 120.0, 0).await;
    bench.log_in_at(3, "ann", 86_500.0, 0).await;
    // Clocks may be a little apart.
    assert_eq!(bench.store.correct_times(100.0, 10).await.unwrap(), 1);
    assert_eq!(bench.store.correct_times(100.0, 10).await.unwrap(), 0);
    let seen_before = |before| Eviction { keep: 100, batch: 10, carts: true, before };
    assert_eq!(bench.store.evict_oldest(seen_before(100.0)).await.unwrap(), 0);
    assert_eq!(bench.store.evict_oldest(seen_before(101.0)).await.unwrap(), 2);
    assert_eq!(bench.indexed("ann").await, tokens([2]));
}

async fn carts_of_sessions_that_were_not_seen_are_handed_on(bench: Bench) {
    for number in 0..6 {
        bench.log_in_at(number, "ann", 100.0 + number as f64, 0).await;
        bench.store.add_to_cart(&token(number), &item(1), 1).await.unwrap();
    }
    let how = Eviction { keep: 100, batch: 3, carts: true, before: 104.0 };
    let expiry_action = ExpiryAction::Keep;
    let kept = bench.store.evict_expiring(how, &Cursor::default(), &expiry_action).await.unwrap();
    assert_eq!((kept.removed, kept.waiting, kept.more), (0, 3, true));
    let kept = bench.store.evict_expiring(how, &kept.cursor, &expiry_action).await.unwrap();
    assert_eq!((kept.removed, kept.waiting, kept.more), (0, 1, false));
    let kept = bench.store.evict_expiring(how, &kept.cursor, &expiry_action).await.unwrap();
    assert_eq!((kept.removed, kept.waiting, kept.more), (0, 0, false));

    let expiry_action = ExpiryAction::Outbox { storage: anteroom_http::ident::TokenStorage::Plain };
    let gone = bench.store.evict_expiring(how, &Cursor::default(), &expiry_action).await.unwrap();
    assert_eq!((gone.removed, gone.handed_on, gone.more), (3, 3, true));
    let outbox = bench.store.outbox().await.unwrap();
    bench.store.clear_outbox(&outbox).await.unwrap();
    let gone = bench.store.evict_expiring(how, &Cursor::default(), &expiry_action).await.unwrap();
    assert_eq!((gone.removed, gone.handed_on, gone.more), (1, 1, false));
    assert_eq!(bench.indexed("ann").await, tokens([4, 5]));
}

async fn of_too_many_sessions_the_oldest_log_in_goes(bench: Bench) {
    for number in 1..=4 {
        assert_eq!(bench.log_in_at(number, "ann", number as f64, 0).await, []);
        bench.store.add_to_cart(&token(number), &item(1), 1).await.unwrap();
    }
    bench.log_in_at(8, "bob", 1.0, 2).await;
    // The session seen last may have the earliest login.
    bench.store.touch_tokens(&[visit(1, "ann", 99.0, &[1])]).await.unwrap();

    let gone = bench.log_in_at(5, "ann", 5.0, 2).await;

    assert_eq!(gone, tokens([1, 2, 3]));
    assert_eq!(bench.indexed("ann").await, tokens([4, 5]));
    let left = bench.dump().await;
    for number in [1, 2, 3] {
        assert!(!left.iter().any(|line| line.contains(token(number).as_str())), "{left:?}");
        assert_eq!(bench.user_of(&token(number)).await, None);
    }
    assert_eq!(bench.user_of(&token(8)).await, Some(user("bob")));
    assert_eq!(bench.store.cart(&token(4)).await.unwrap(), [(item(1), 1)]);
}

async fn a_repeated_log_in_does_not_count_as_another_session(bench: Bench) {
    for number in [1, 2] {
        bench.log_in_at(number, "ann", number as f64, 2).await;
    }
    let again = Rotation { now: 3.0, most: 2, ..rotation(Some(2), 3, "ann") };
    assert_eq!(bench.store.rotate_token(&again).await.unwrap().gone, []);
    let same = Rotation { now: 4.0, most: 2, ..rotation(Some(1), 1, "ann") };
    assert_eq!(bench.store.rotate_token(&same).await.unwrap().gone, []);
    assert_eq!(bench.indexed("ann").await, tokens([3, 1]));
    assert_eq!(bench.log_in_at(9, "ann", 5.0, 1).await, tokens([3, 1]));
}

async fn the_newest_are_shown_page_by_page(bench: Bench) {
    // Three of them were seen at one time.
    for (number, now) in [(1, 10.0), (2, 20.0), (3, 20.0), (4, 20.0), (5, 30.0)] {
        bench.log_in_at(number, "ann", now, 0).await;
    }
    for most in 1..=6 {
        let (mut shown, mut from, mut pages) = (Vec::new(), None::<Bookmark>, 0);
        loop {
            let page = bench.store.newest(from, most).await.unwrap();
            assert!(page.met.len() <= most);
            shown.extend(page.met.into_iter().map(|session| (session.seen, session.token)));
            pages += 1;
            assert!(pages < 10, "it ends");
            match page.next {
                Some(next) => from = Some(next.to_string().parse().unwrap()),
                None => break,
            }
        }
        let times: Vec<_> = shown.iter().map(|(seen, _)| seen.unwrap()).collect();
        assert_eq!(times, [30.0, 20.0, 20.0, 20.0, 10.0], "by {most}");
        let all: BTreeSet<_> = shown.into_iter().map(|(_, token)| token).collect();
        assert_eq!(all.len(), 5, "by {most}");
    }
}

async fn a_walk_meets_every_session(bench: Bench) {
    let all = WALK_MAX + 150;
    for first in (0..all).step_by(50) {
        let some =
            (first..all.min(first + 50)).map(|number| bench.log_in_at(number, "ann", 1.0, 0));
        futures_util::future::join_all(some).await;
    }
    let (mut met, mut from) = (BTreeSet::new(), None);
    loop {
        let step = bench.store.walk(from, "").await.unwrap();
        met.extend(step.met.into_iter().map(|(token, _)| token));
        // A session that is seen meanwhile is met all the same.
        bench.store.touch_tokens(&[visit(7, "ann", 5.0, &[])]).await.unwrap();
        match step.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    assert_eq!(met, (0..all).map(token).collect());
}

async fn a_walk_finds_what_a_token_begins_with(bench: Bench) {
    for number in [11, 12, 21] {
        bench.log_in_at(number, "ann", 1.0, 0).await;
    }
    let found = async |prefix: &str| {
        let (mut met, mut from) = (BTreeSet::new(), None);
        loop {
            let step = bench.store.walk(from, prefix).await.unwrap();
            met.extend(step.met.into_iter().map(|(token, _)| token));
            match step.next {
                Some(next) => from = Some(next),
                None => return met.into_iter().collect::<Vec<_>>(),
            }
        }
    };
    assert_eq!(found("token-001").await, tokens([11, 12]));
    assert_eq!(found(token(21).as_str()).await, tokens([21]));
    assert_eq!(found("tok*").await, []);
}

async fn the_details_of_a_session_are_returned(bench: Bench) {
    assert_eq!(bench.store.session(&token(1)).await.unwrap(), None);
    bench.log_in_at(1, "ann", 2.5, 0).await;
    bench.store.touch_tokens(&[visit(1, "ann", 7.5, &[])]).await.unwrap();
    let session = bench.store.session(&token(1)).await.unwrap().unwrap();
    assert_eq!((session.token, session.user), (token(1), user("ann")));
    assert_eq!((session.since, session.seen), (Some(2.5), Some(7.5)));
}

/// A HASH that an app fills in the chapter's layout (Redis in Action, chapter 2), without an index.
#[tokio::test]
async fn a_session_that_the_app_wrote_is_counted_from_when_it_was_first_seen() {
    let bench = Bench::redis().await;
    let mut raw = bench.raw().await;
    let write = |number: usize| {
        let mut command = redis::cmd("HSET");
        command.arg("login:").arg(token(number).as_str()).arg("ann");
        command
    };
    for number in 0..40 {
        write(number).exec_async(&mut raw).await.unwrap();
    }
    let peek = SessionLifetimes { notes: false, ..absolute(100.0, 10.0) };
    assert!(bench.lives(1, peek).await);
    assert_eq!(bench.members("since:").await, [""; 0]);
    assert!(bench.lives(1, absolute(100.0, 10.0)).await);
    assert!(bench.lives(1, absolute(109.0, 10.0)).await);
    assert!(!bench.lives(1, absolute(110.0, 10.0)).await);
    let session = bench.store.session(&token(1)).await.unwrap().unwrap();
    assert_eq!((session.since, session.seen), (Some(100.0), None));

    // What the app has ended is forgotten while others come: a few are looked at for each.
    redis::cmd("DEL").arg("login:").exec_async(&mut raw).await.unwrap();
    for number in 40..80 {
        write(number).exec_async(&mut raw).await.unwrap();
        assert!(bench.lives(number, absolute(200.0, 10.0)).await);
    }
    assert!(bench.members("since:").await.len() <= 41);
    bench.store.revoke_token(&token(41)).await.unwrap();
    assert!(!bench.members("since:").await.contains(&token(41).as_str().to_owned()));
}

#[tokio::test]
async fn sessions_ended_by_another_program_leave_the_index_at_a_log_in() {
    let bench = Bench::redis().await;
    for number in 1..=3 {
        bench.log_in_at(number, "ann", number as f64, 0).await;
    }
    let mut raw = bench.raw().await;
    for gone in [1, 2] {
        let mut command = redis::cmd("HDEL");
        command.arg("login:").arg(token(gone).as_str()).exec_async(&mut raw).await.unwrap();
    }
    assert_eq!(bench.indexed("ann").await, tokens([3]));
    assert_eq!(bench.log_in_at(4, "ann", 4.0, 2).await, [], "they do not count");
    assert_eq!(bench.members("tokens:ann").await.len(), 2);
}

#[tokio::test]
async fn other_processes_are_notified_of_ended_sessions() {
    let bench = Bench::redis().await;
    let other = bench.open.thread_handle();
    crate::store_contract::connected(&other).await;
    for number in 1..=3 {
        bench.log_in_at(number, "ann", number as f64, 0).await;
    }
    // It listens from its first question on, which may take it a moment.
    crate::store_contract::until("it is told", async || {
        bench.store.revoke_token(&token(1)).await.unwrap();
        let told =
            tokio::time::timeout(std::time::Duration::from_millis(50), other.ended_sessions());
        told.await.is_ok_and(|gone| gone.contains(&token(1)))
    })
    .await;
    let again = Rotation { now: 9.0, most: 1, ..rotation(Some(3), 4, "ann") };
    assert_eq!(bench.store.rotate_token(&again).await.unwrap().gone, tokens([2]));
    let mut told = Vec::new();
    while told.len() < 2 {
        let gone = tokio::time::timeout(std::time::Duration::from_secs(20), other.ended_sessions());
        told.extend(gone.await.unwrap().into_iter().filter(|one| *one != token(1)));
    }
    assert_eq!(told, tokens([2, 3]));
}
