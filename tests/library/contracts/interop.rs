//! An app in Python and the proxy on one Redis: each sees what the other wrote.
//!
//! The app is `tests/interop/chapter.py`, written from the description of the functions and not
//! from our code. `tests/run` installs the Python module that it needs.

use std::process::Command;
use std::time::Duration;

use anteroom_http::ident::{Item, PageKey, Row, StoredToken, User};
use anteroom_store::traits::*;
use anteroom_store::{
    AnyStore, CartAnswer, CartChange, CartOwner, Eviction, Layout, OpenStore, RequestFrequency,
    RescaleResult, Rescaling, Rotation, SessionLifetimes, StoreLimits, StoreSettings, Url, Visit,
};
use bytes::Bytes;
use serde_json::{Value, json};

use anteroom_tests::python;
use anteroom_tests::redis::RedisServer;

const ANN: &str = "token-of-ann";
const BOB: &str = "token-of-bob";

#[test]
fn a_session_written_in_python_is_known_here() {
    with_both(async |app, store| {
        app.says(["update-token", ANN, "ann"], &Value::Null);
        assert_eq!(store.check_token(&token(ANN)).await.unwrap(), Some(user("ann")));
        assert_eq!(store.check_token(&token(BOB)).await.unwrap(), None);
    });
}

#[test]
fn a_session_written_here_is_known_in_python() {
    with_both(async |app, store| {
        store.update_token(&token(ANN), &user("ann"), Some(&item("book")), 1e9).await.unwrap();
        app.says(["check-token", ANN], &json!("ann"));
        app.says(["recent"], &json!([[ANN, 1e9]]));
        app.says(["viewed", ANN], &json!([["book", 1e9]]));
        app.says(["popularity", "book"], &json!(-1.0));
        let zset = "zset";
        let viewed = format!("viewed:{ANN}");
        app.says(
            ["keys"],
            &json!({
                "login:": "hash", "recent:": zset, "viewed:": zset, viewed: zset,
                // The index of her sessions, which the chapter does not know.
                "tokens:ann": zset,
            }),
        );
    });
}

#[test]
fn a_visit_recorded_here_renews_the_session_of_python() {
    with_both(async |app, store| {
        app.says(["update-token", ANN, "ann", "first"], &Value::Null);
        // Later than any clock that Python may have.
        let seen = 9e9;
        let visit = |whose: &str, name: &str| Visit {
            token: token(whose),
            user: user(name),
            seen,
            items: vec![(item("second"), seen)],
        };
        let visits = [visit(ANN, "ann"), visit(BOB, "bob")];
        assert_eq!(store.touch_tokens(&visits).await.unwrap(), [true, false]);
        app.says(["recent"], &json!([[ANN, seen]]));
        assert_eq!(app.ask(["viewed", ANN])[0], json!(["second", seen]));
        app.says(["mentions", BOB], &json!([]));
    });
}

#[test]
fn sessions_written_by_python_are_cleaned_here_without_a_trace() {
    with_both(async |app, store| {
        for (whose, name) in [(ANN, "ann"), (BOB, "bob")] {
            app.says(["update-token", whose, name, "book"], &Value::Null);
            app.says(["add-to-cart", whose, "book", "2"], &Value::Null);
        }
        let how = Eviction { keep: 1, batch: 100, carts: true, before: 0.0 };
        assert_eq!(store.evict_oldest(how).await.unwrap(), 1);
        app.says(["mentions", ANN], &json!([]));
        app.says(["check-token", BOB], &json!("bob"));
        app.says(["cart", BOB], &json!({"book": 2}));
    });
}

#[test]
fn sessions_written_here_are_cleaned_in_python() {
    with_both(async |app, store| {
        store.update_token(&token(ANN), &user("ann"), Some(&item("book")), 1e9).await.unwrap();
        store.add_to_cart(&token(ANN), &item("book"), 3).await.unwrap();
        app.says(["cart", ANN], &json!({"book": 3}));
        app.says(["clean-full-sessions", "0", "100"], &json!([ANN]));
        assert_eq!(store.check_token(&token(ANN)).await.unwrap(), None);
        // The chapter does not know the index, which notices at her next login.
        app.says(["mentions", ANN], &json!(["tokens:ann"]));
        assert_eq!(store.sessions_of(&user("ann")).await.unwrap(), []);
        store.update_token(&token(BOB), &user("ann"), None, 2e9).await.unwrap();
        let (old, new) = (Some(token(BOB)), token("another-of-hers"));
        let again = Rotation {
            old,
            new,
            user: user("ann"),
            now: 3e9,
            most: 0,
            expiry_action: None,
            visitor: None,
        };
        store.rotate_token(&again).await.unwrap();
        app.says(["mentions", ANN], &json!([]));
    });
}

#[test]
fn an_empty_token_of_python_does_not_cost_the_popularity() {
    with_both(async |app, store| {
        app.says(["update-token", ANN, "ann", "book"], &Value::Null);
        app.says(["update-token", "", "nobody"], &Value::Null);
        let how = Eviction { keep: 0, batch: 100, carts: true, before: 0.0 };
        assert_eq!(store.evict_oldest(how).await.unwrap(), 2);
        app.says(["keys"], &json!({"viewed:": "zset"}));
        app.says(["rank", "book"], &json!(0));
    });
}

#[test]
fn views_counted_here_rank_items_in_python() {
    with_both(async |app, store| {
        app.says(["update-token", ANN, "ann", "book"], &Value::Null);
        store.count_views(&[(item("pen"), 3), (item("book"), 1)]).await.unwrap();
        app.says(["rank", "pen"], &json!(0));
        app.says(["popularity", "book"], &json!(-2.0));
        app.says(["can-cache", "pen"], &json!(true));
    });
}

#[test]
fn a_cart_is_the_same_in_python_and_here() {
    with_both(async |app, store| {
        app.says(["update-token", ANN, "ann"], &Value::Null);
        app.says(["add-to-cart", ANN, "book", "2"], &Value::Null);
        assert_eq!(store.cart(&token(ANN)).await.unwrap(), [(item("book"), 2)]);

        let change = CartChange::Set(vec![(item("pen"), 5), (item("book"), 0)]);
        let whose = CartOwner {
            token: token(ANN),
            user: Some(user("ann")),
            now: 1.0,
            terms: SessionLifetimes::endless(1.0),
        };
        let answer = store.change_cart(&whose, &change).await.unwrap();
        assert_eq!(answer, CartAnswer::Changed(vec![(item("pen"), 5)]));
        app.says(["cart", ANN], &json!({"pen": 5}));
        app.says(["add-to-cart", ANN, "pen", "0"], &Value::Null);
        assert_eq!(store.cart(&token(ANN)).await.unwrap(), []);
    });
}

#[test]
fn either_rescales_what_the_other_counted() {
    with_both(async |app, store| {
        store.count_views(&[(item("pen"), 8), (item("book"), 4)]).await.unwrap();
        app.says(["rescale-viewed"], &Value::Null);
        app.says(["popularity", "pen"], &json!(-4.0));
        assert_eq!(store.top(2).await.unwrap(), [(item("pen"), 4.0), (item("book"), 2.0)]);

        for (now, done) in [(1e9, false), (1e9 + 300.0, true)] {
            let every = Duration::from_secs(300);
            let how = Rescaling { keep_top: 1, factor: 0.5, every, now };
            assert_eq!(store.rescale_views(how).await.unwrap() == RescaleResult::Done, done);
        }
        app.says(["popularity", "pen"], &json!(-2.0));
        app.says(["rank", "book"], &Value::Null);
    });
}

#[test]
fn a_row_that_python_schedules_is_refreshed_here_and_the_other_way_round() {
    with_both(async |app, store| {
        let (ours, theirs) = (Row::new("ours").unwrap(), Row::new("theirs").unwrap());
        app.says(["schedule-row-cache", "theirs", "60"], &Value::Null);
        let claimed = store.claim_rows(9e9, 10, 10.0).await.unwrap();
        assert_eq!(claimed.rows.len(), 1);
        assert_eq!((&claimed.rows[0].row, claimed.rows[0].delay), (&theirs, 60.0));
        // Claimed is not due for the other either.
        app.says(["cache-row", "[0]"], &Value::Null);

        store.schedule_row(&ours, 60.0, 1e9).await.unwrap();
        // We take it, and are so slow that Python does, too.
        let slow = store.claim_rows(1e9, 10, 10.0).await.unwrap().rows.remove(0);
        app.says(["cache-row", "[1]"], &json!("ours"));
        let row = store.row(&ours).await.unwrap().expect("Python refreshed it");
        assert_eq!(row.json, "[1]");
        assert!(!store.put_row(&slow, "[0]".into(), 9e9, 1e9).await.unwrap());
        assert!(!store.postpone_row(&slow, 9e9).await.unwrap());
        assert_eq!(store.row(&ours).await.unwrap(), Some(row), "its content is newer");

        app.says(["schedule-row-cache", "ours", "0"], &Value::Null);
        assert_eq!(store.claim_rows(9.1e9, 10, 10.0).await.unwrap().removed, 1);
        assert!(store.row(&ours).await.unwrap().is_none());
    });
}

#[test]
fn pages_lie_where_the_other_looks_for_them() {
    with_both(async |app, store| {
        let (ours, theirs) = (PageKey([1; 32]), PageKey([2; 32]));
        let ttl = Duration::from_secs(60);
        store
            .put_page(&ours, Bytes::from_static(b"hello"), ttl, RequestFrequency::Again)
            .await
            .unwrap();
        let found = app.ask(["page", &ours.hex()]);
        assert_eq!(found["base64"], "aGVsbG8=");
        assert!((1..=60_000).contains(&found["ttl_ms"].as_i64().unwrap()), "{found}");
        app.says(["cache-page", &theirs.hex(), "aGk="], &Value::Null);
        assert_eq!(store.page(&theirs).await.unwrap().as_deref(), Some(b"hi".as_slice()));
    });
}

/// Runs a test with the app and the proxy's store on one empty Redis.
fn with_both(test: impl AsyncFnOnce(&App, &AnyStore)) {
    let server = RedisServer::start();
    let app = App { url: server.url() };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let open = OpenStore::open(&settings(server.url())).await.unwrap();
        let store = open.thread_handle();
        tokio::time::timeout(Duration::from_secs(10), store.connected()).await.unwrap();
        test(&app, &store).await;
        open.close().await;
    });
}

fn settings(url: String) -> StoreSettings {
    // A patient read: what is tested here is what is read, not how fast.
    let limits = StoreLimits {
        read_timeout: Duration::from_secs(5),
        write_timeout: Duration::from_secs(5),
        viewed_items: 25,
        pages: 1 << 30,
        max_page: 1 << 20,
    };
    StoreSettings { url: Url::Redis(url), prefix: String::new(), layout: Layout::Single, limits }
}

/// The app in Python.
struct App {
    url: String,
}

impl App {
    /// What the app answers to a verb.
    #[track_caller]
    fn ask<const N: usize>(&self, verb: [&str; N]) -> Value {
        let script = anteroom_tests::root().join("tests/interop/chapter.py");
        let output = Command::new(python())
            .arg(script)
            .arg(&self.url)
            .args(verb)
            .output()
            .expect("Python is there: tests/run installs it");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "chapter.py {verb:?}: {complaint}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Asks, and holds the app to its answer.
    #[track_caller]
    fn says<const N: usize>(&self, verb: [&str; N], answer: &Value) {
        assert_eq!(&self.ask(verb), answer, "chapter.py {verb:?}");
    }
}

fn token(text: &str) -> StoredToken {
    StoredToken::from_store(text.as_bytes()).unwrap()
}

fn user(name: &str) -> User {
    User::new(name.as_bytes()).unwrap()
}

fn item(id: &str) -> Item {
    Item::new(id).unwrap()
}
