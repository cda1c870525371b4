//! What is moved from one store to another, for pairs of stores.

use std::time::Duration;

use anteroom_http::clock::unix_now;
use anteroom_http::ident::{Row, StoredToken, Token, TokenStorage, User, VisitorToken};
use anteroom_store::traits::*;
use anteroom_store::transfer::{
    LogInTime, SharedKind, SharedRecord, Transfer, TransferProgress, TransferRecord,
};
use anteroom_store::{
    AnyStore, CartChange, Eviction, ExpiryAction, IdleRange, Rotation, RowTerm, SessionLifetimes,
    StoreError, TokenCreation,
};
use bytes::Bytes;

use crate::store_contract::{Bench, ask, item, rotation, token, user, visit};

const QUEUE: ExpiryAction = ExpiryAction::Queue { storage: TokenStorage::Plain, keep: 1000 };
const OUTBOX: ExpiryAction = ExpiryAction::Outbox { storage: TokenStorage::Plain };

/// Makes a test of each promise for each pair of stores.
macro_rules! pairs {
    (promises $promises:tt $($pair:ident: $from:ident to $to:ident;)*) => {
        $(pairs!(@one $pair $from $to $promises);)*
    };
    (@one $pair:ident $from:ident $to:ident ($($promise:ident)*)) => {
        mod $pair {
            $(#[tokio::test]
            async fn $promise() {
                let (from, to) = (super::Bench::$from().await, super::Bench::$to().await);
                super::$promise(&super::Pair::of(from, to)).await;
            })*
        }
    };
}

pairs! {
    promises (
        everything_arrives_and_again_nothing_changes
        what_changes_during_the_copy_is_caught_up
        an_end_that_was_missed_is_swept
        a_source_that_lost_its_data_ends_no_session
        times_stay_with_their_sessions
        revoked_tokens_stay_revoked_for_the_time_that_is_left
    )
    embedded_to_redis: embedded to redis;
    redis_to_embedded: redis to embedded;
    redis_to_cluster: redis to cluster;
    cluster_to_redis: cluster to redis;
    embedded_to_cluster: embedded to cluster;
    cluster_to_cluster: cluster to cluster;
}

struct Pair {
    from: Bench,
    to: Bench,
    transfer: Transfer,
}

impl Pair {
    fn of(from: Bench, to: Bench) -> Self {
        let transfer = Transfer { from: from.store.clone(), to: to.store.clone() };
        Self { from, to, transfer }
    }

    async fn copy_all(&self) {
        self.transfer.copy_all(&TransferProgress::default()).await.unwrap();
    }
}

fn visitor(number: usize) -> VisitorToken {
    VisitorToken::of(&Token::parse(format!("visitor-{number:03}").as_bytes()).unwrap())
}

fn detailed(name: &str) -> User {
    let attributes = [("group".to_owned(), "trade".to_owned())];
    user(name).with_attributes(&attributes).unwrap()
}

/// All tokens with their data, in the order of the tokens.
pub(crate) async fn tokens_of(store: &AnyStore) -> Vec<TransferRecord> {
    let (mut records, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.walk_tokens(cursor).await.unwrap();
        for batch in page.found.chunks(100) {
            records.extend(store.export(batch).await.unwrap().into_iter().flatten());
        }
        cursor = page.next;
        if cursor.is_none() {
            records.sort_by(|one, other| one.token.cmp(&other.token));
            records.dedup_by(|one, other| one.token == other.token);
            return records;
        }
    }
}

/// What belongs to no token, as text in some order; revoked tokens without their times.
pub(crate) async fn shared_of(store: &AnyStore) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in SharedKind::ALL {
        let mut cursor = None;
        loop {
            let page = store.export_shared(kind, cursor).await.unwrap();
            lines.extend(page.found.iter().map(line_of));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    lines.sort_unstable();
    lines
}

fn line_of(record: &SharedRecord) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match record {
        SharedRecord::Popularity(item, score) => format!("viewed {} {score}", item.as_str()),
        SharedRecord::Row { row, delay, due, refreshed, until, json } => {
            format!("row {} {delay} {due:?} {refreshed:?} {until:?} {json:?}", row.as_str())
        }
        SharedRecord::Revoked { digest, .. } => format!("revoked {digest}"),
        SharedRecord::Event(event) => format!("event {}", text(event)),
        SharedRecord::Outbox(cart) => format!("outbox {}", text(cart)),
        SharedRecord::Stream { id, .. } => format!("stream {id:?}"),
        SharedRecord::IdleMark(mark) => format!("idle {}", mark.until),
    }
}

/// Some of everything that a store holds.
pub(crate) async fn fill(store: &AnyStore) {
    for number in 0..300 {
        let seen = 1_000.0 + number as f64 / 3.0;
        let name = format!("user-{}", number % 40);
        store.update_token(&token(number), &detailed(&name), None, seen).await.unwrap();
        if number % 3 == 0 {
            store.add_to_cart(&token(number), &item(number % 7), 2).await.unwrap();
            store.add_to_cart(&token(number), &item(9), 1).await.unwrap();
        }
        if number % 5 == 0 {
            let visits = [visit(number, &name, seen + 1.5, &[number % 7, 8])];
            assert_eq!(store.touch_tokens(&visits).await.unwrap(), [true]);
        }
    }
    store.update_token(&token(900), &user("ann").unconfirmed(), None, 1_500.25).await.unwrap();
    for number in 0..30 {
        let change = CartChange::Set(vec![(item(number), 3)]);
        let token = visitor(number);
        let now = 2_000.0 + number as f64;
        store.change_visitor_cart(&token, TokenCreation::Now, &change, now).await.unwrap();
    }
    store.begin_visitor(&visitor(50), &item(1), 2_100.5).await.unwrap();
    let views: Vec<_> = (0..50).map(|number| (item(number), number as u64 + 1)).collect();
    store.count_views(&views).await.unwrap();
    for number in 0..19 {
        let row = Row::new(&format!("row-{number}")).unwrap();
        store.schedule_row(&row, 5.0 + number as f64, 10.0).await.unwrap();
    }
    let term = RowTerm { delay: 24.0, due: 10.0, until: 1e10, most: 100 };
    store.schedule_until(&[Row::new("row-19").unwrap()], term).await.unwrap();
    let claimed = store.claim_rows(20.0, 10, 60.0).await.unwrap();
    for claim in &claimed.rows {
        let json = Bytes::from(format!("{{\"row\":\"{}\"}}", claim.row.as_str()));
        assert!(store.put_row(claim, json, 99.5, 21.25).await.unwrap());
    }
    // The idle carts of some are told of, and some sessions end with carts that wait.
    let idle = IdleRange { until: 1_020.0, now: unix_now(), batch: 1_000 };
    while store.report_idle_carts(idle, &QUEUE).await.unwrap().more {}
    for number in [201, 204, 207] {
        store.dismiss_token(&token(number), &OUTBOX).await.unwrap();
    }
    for number in 0..10 {
        store.mark_revoked(&token(number), unix_now()).await.unwrap();
    }
}

async fn everything_arrives_and_again_nothing_changes(pair: &Pair) {
    fill(&pair.from.store).await;
    // What the target has of an earlier attempt.
    pair.to.store.update_token(&token(1), &user("eve"), None, 5.0).await.unwrap();
    pair.to.store.add_to_cart(&token(1), &item(77), 7).await.unwrap();
    pair.to.store.count_views(&[(item(777), 7)]).await.unwrap();

    let progress = TransferProgress::default();
    let copied = pair.transfer.copy_all(&progress).await.unwrap();
    assert_eq!((copied.sessions, copied.visitors), (298, 31));
    assert_eq!((progress.done(), progress.of()), (329, 329));
    pair.transfer.copy_rest().await.unwrap();
    let (tokens, shared) = (tokens_of(&pair.from.store).await, shared_of(&pair.from.store).await);
    assert_eq!(tokens.len(), 329);
    assert!(tokens.iter().any(|record| !record.cart.is_empty() && !record.viewed.is_empty()));
    assert_eq!(tokens_of(&pair.to.store).await, tokens);
    assert_eq!(shared_of(&pair.to.store).await, shared);
    let (from, to) = pair.transfer.counts().await.unwrap();
    assert_eq!((from, to), (to, from));

    let again = pair.transfer.copy_all(&progress).await.unwrap();
    assert_eq!(again.changed, 0);
    pair.transfer.copy_rest().await.unwrap();
    assert_eq!(tokens_of(&pair.to.store).await, tokens);
    assert_eq!(shared_of(&pair.to.store).await, shared);

    // The index of users has come along, and idle carts that were told of are not told of again.
    let named = user("user-2");
    let sessions = pair.to.store.sessions_of(&named).await.unwrap();
    assert_eq!(sessions, pair.from.store.sessions_of(&named).await.unwrap());
    let idle = IdleRange { until: 1_020.0, now: unix_now(), batch: 1_000 };
    let step = pair.to.store.report_idle_carts(idle, &QUEUE).await.unwrap();
    assert_eq!(step.handed_on, 0);
}

async fn what_changes_during_the_copy_is_caught_up(pair: &Pair) {
    let from = &pair.from.store;
    for number in 0..20 {
        from.update_token(&token(number), &user("ann"), None, 100.0).await.unwrap();
        from.add_to_cart(&token(number), &item(1), 1).await.unwrap();
    }
    pair.copy_all().await;
    from.revoke_token(&token(1)).await.unwrap();
    from.add_to_cart(&token(2), &item(2), 5).await.unwrap();
    from.touch_tokens(&[visit(2, "ann", 200.0, &[3])]).await.unwrap();
    let again = Rotation { now: 201.0, ..rotation(Some(3), 30, "ann") };
    from.rotate_token(&again).await.unwrap();
    from.update_token(&token(4), &user("bob"), None, 202.0).await.unwrap();
    from.begin_visitor(&visitor(1), &item(1), 203.0).await.unwrap();

    let gone = [token(1), token(3), token(99)];
    let caught_up = pair.transfer.catch_up(150.0, &gone).await.unwrap();
    assert_eq!((caught_up.looked_at, caught_up.changed, caught_up.removed), (7, 4, 2));
    assert_eq!(tokens_of(&pair.to.store).await, tokens_of(from).await);
    assert!(pair.to.members("tokens:bob").await.contains(&token(4).as_str().to_owned()));
    assert!(!pair.to.dump().await.iter().any(|line| line.contains(token(1).as_str())));
    let caught_up = pair.transfer.catch_up(150.0, &gone).await.unwrap();
    assert_eq!((caught_up.changed, caught_up.removed), (0, 0));
}

async fn an_end_that_was_missed_is_swept(pair: &Pair) {
    let (from, to) = (&pair.from.store, &pair.to.store);
    for number in 0..10 {
        from.update_token(&token(number), &user("ann"), None, 100.0).await.unwrap();
    }
    from.begin_visitor(&visitor(1), &item(1), 100.0).await.unwrap();
    pair.copy_all().await;
    from.revoke_token(&token(1)).await.unwrap();
    from.forget_visitor(&visitor(1)).await.unwrap();
    // A login at the target stays, and so does one that was renewed there.
    to.update_token(&token(20), &user("ann"), None, 300.0).await.unwrap();
    assert_eq!(pair.transfer.sweep(200.0).await.unwrap(), 2);
    let left: Vec<StoredToken> =
        tokens_of(to).await.into_iter().map(|record| record.token).collect();
    let expected: Vec<_> = [0, 2, 3, 4, 5, 6, 7, 8, 9, 20].map(token).into();
    assert_eq!(left, expected);
    assert_eq!(pair.transfer.sweep(200.0).await.unwrap(), 0);
}

async fn a_source_that_lost_its_data_ends_no_session(pair: &Pair) {
    for number in 0..120 {
        pair.to.store.update_token(&token(number), &user("ann"), None, 100.0).await.unwrap();
    }
    let error = pair.transfer.sweep(200.0).await.unwrap_err();
    assert!(matches!(error, StoreError::Failed(_)), "{error}");
    assert_eq!(tokens_of(&pair.to.store).await.len(), 120);
}

async fn times_stay_with_their_sessions(pair: &Pair) {
    let (from, to) = (&pair.from.store, &pair.to.store);
    for number in 0..8 {
        let now = 1_000.0 + number as f64;
        from.update_token(&token(number), &user("ann"), None, now).await.unwrap();
    }
    from.touch_tokens(&[visit(0, "ann", 5_000.0, &[])]).await.unwrap();
    pair.copy_all().await;
    // Token 0 was seen last and logged in first.
    let terms = |now| SessionLifetimes { now, idle: None, absolute: Some(100.0), notes: false };
    assert!(to.live_token(&token(0), &terms(1_099.0)).await.unwrap().is_some());
    assert!(to.live_token(&token(0), &terms(1_101.0)).await.unwrap().is_none());
    assert!(to.live_token(&token(1), &terms(1_100.5)).await.unwrap().is_some());
    let how = Eviction { keep: 2, batch: 100, carts: true, before: 0.0 };
    assert_eq!(to.evict_oldest(how).await.unwrap(), 6);
    let left: Vec<_> = tokens_of(to).await.into_iter().map(|record| record.token).collect();
    assert_eq!(left, [token(0), token(7)]);
}

async fn revoked_tokens_stay_revoked_for_the_time_that_is_left(pair: &Pair) {
    let now = unix_now();
    let until = now + 1_234.0;
    let record = SharedRecord::Revoked { digest: token(1).digest(), until };
    assert_eq!(pair.from.store.import_shared(&[record]).await.unwrap(), 0);
    assert!(pair.from.store.is_revoked(&token(1), now).await.unwrap());
    pair.copy_all().await;
    assert!(pair.to.store.is_revoked(&token(1), now).await.unwrap());
    assert!(!pair.to.store.is_revoked(&token(2), now).await.unwrap());
    let page = pair.to.store.export_shared(SharedKind::Revoked, None).await.unwrap();
    let mut found = page.found;
    let mut next = page.next;
    while let Some(cursor) = next {
        let page = pair.to.store.export_shared(SharedKind::Revoked, Some(cursor)).await.unwrap();
        found.extend(page.found);
        next = page.next;
    }
    let [SharedRecord::Revoked { until: moved, .. }] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert!((moved - until).abs() < 5.0, "{moved} {until}");
}

#[tokio::test]
async fn what_an_app_has_written_arrives() {
    let (from, to) = (Bench::redis().await, Bench::cluster().await);
    let mut raw = from.raw().await;
    // A login without a time, one that was seen, what is left of one whose end the app has written, and junk.
    let tokens = [token(1), token(2), token(3)];
    let [one, two, three] = tokens.each_ref().map(StoredToken::as_str);
    ask::<()>(&mut raw, &["HSET", "login:", one, "ada", two, "bob\0group=trade", "", "junk"]).await;
    ask::<()>(&mut raw, &["ZADD", "recent:", "100.5", two, "101", three, "1", "x y"]).await;
    ask::<()>(&mut raw, &["ZADD", "since:", "50.25", two]).await;
    ask::<()>(&mut raw, &["HSET", &format!("cart:{three}"), "mug", "2", "bad", "x"]).await;
    ask::<()>(&mut raw, &["XADD", "expired:", "5-1", "id", "a", "user", "ada"]).await;
    ask::<()>(&mut raw, &["XADD", "expired:", "5-2", "id", "b", "user", "ada"]).await;

    let pair = Pair::of(from, to);
    pair.copy_all().await;
    let rest = pair.transfer.copy_rest().await.unwrap();
    assert_eq!((rest.others, rest.left_out), (2, 0));
    let moved = tokens_of(&pair.to.store).await;
    let times: Vec<_> = moved.iter().map(|record| (record.seen, record.since)).collect();
    let expected = [
        (None, LogInTime::Unknown),
        (Some(100.5), LogInTime::FirstSeen(50.25)),
        (Some(101.0), LogInTime::Unknown),
    ];
    assert_eq!(times, expected);
    assert_eq!(moved[1].user.as_ref().map(User::as_stored), Some(b"bob\0group=trade".as_slice()));
    assert_eq!((moved[2].user.as_ref(), moved[2].cart.len()), (None, 1));
    assert_eq!(shared_of(&pair.to.store).await, ["stream (5, 1)", "stream (5, 2)"]);
    let members = pair.to.members("recent:").await;
    assert_eq!(members, [two, three]);

    // To the embedded store: it has no stream, and a session without a time counts from its copy.
    let embedded = Bench::embedded().await;
    let begun = unix_now();
    let onwards = Pair::of(pair.to, embedded);
    onwards.copy_all().await;
    assert_eq!(onwards.transfer.copy_rest().await.unwrap().left_out, 2);
    let moved = tokens_of(&onwards.to.store).await;
    assert!(moved[0].seen.unwrap() >= begun);
    assert_eq!(moved[1].since, LogInTime::At(50.25));
    let again = onwards.transfer.copy_all(&TransferProgress::default()).await.unwrap();
    assert_eq!(again.changed, 0);
}

#[tokio::test]
async fn a_copy_waits_for_a_store_that_is_away_for_a_moment() {
    let (from, mut to) = (Bench::embedded().await, Bench::redis().await);
    for number in 0..50 {
        from.store.update_token(&token(number), &user("ann"), None, 100.0).await.unwrap();
    }
    to.server().kill();
    let mut pair = Pair::of(from, to);
    let (transfer, progress) = (pair.transfer.clone(), TransferProgress::default());
    let mut copy = std::pin::pin!(transfer.copy_all(&progress));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut copy).await;
    assert!(early.is_err(), "the copy waits: {early:?}");
    pair.to.server().restart();
    assert_eq!(copy.await.unwrap().changed, 50);
}
