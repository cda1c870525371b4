//! What is decided about a request that the stages have identified: what its head, its route and its visitor make of it.

use std::rc::Rc;

use anteroom_proxy::WorkerContext;
use anteroom_proxy::testbed::{decision, log_in};

use crate::with_worker;

const SETTINGS: &str = r#"session.cookie = "SID"
[[route]]
match.path = "/mine/*"
share = "user"
[[route]]
match.path = "/none/*"
share = "none"
[[route]]
match.path = "/all/*"
share = "everyone"
[[route]]
match.path = "/top/{item}"
only_top = 1
[[route]]
match.path = "/rare/*"
min_uses = 2
[[route]]
match.path = "/learns/*"
mode = "learn"
"#;

/// Requests, and what is decided about each, in words; the same where it is only looked at.
async fn check(worker: &Rc<WorkerContext>, rows: &[(&str, &str)]) {
    for (request, expected) in rows {
        for peeks in [true, false] {
            let told = decision(worker, request, peeks).await;
            assert_eq!(told, *expected, "{request:?}, peeks: {peeks}");
        }
    }
}

#[test]
fn the_head_and_the_route_of_a_request_decide() {
    with_worker(SETTINGS, async |worker| {
        let rows = [
            ("GET /", "fetch"),
            ("HEAD /", "forward head"),
            ("POST /", "forward method"),
            ("GET /\nCache-Control: only-if-cached", "not stored"),
            ("HEAD /\nCache-Control: only-if-cached", "not stored"),
            ("POST /\nCache-Control: only-if-cached", "forward method"),
            ("GET /\nCache-Control: no-store", "forward request-no-store"),
            ("GET /\nIf-Match: \"a\"", "forward condition"),
            ("GET /\nAuthorization: Basic YTpi", "forward authorization"),
            ("GET /\nX-Requested-With: XMLHttpRequest", "forward fragment"),
            ("GET /a?token=abcdef0123456789", "as it came, unproven"),
            ("GET /none/a", "forward route"),
            ("GET /none/a\nCache-Control: only-if-cached", "not stored"),
            ("GET /all/a", "fetch"),
            ("GET /mine/a", "forward not-logged-in"),
            ("GET /top/mug", "fetch"),
            ("POST /top/mug", "forward method"),
            ("GET /learns/a", "fetch"),
            ("GET /learns/a\nCache-Control: only-if-cached", "not stored"),
        ];
        check(worker, &rows).await;
    });
}

#[test]
fn the_visitor_of_a_request_decides() {
    with_worker(SETTINGS, async |worker| {
        let alice = log_in(worker, "alice").await;
        let rows = [
            ("/", "forward login"),
            ("/a.css", "forward login"),
            ("/all/a", "fetch"),
            ("/mine/a", "fetch"),
            ("/none/a", "forward route"),
        ];
        for (path, expected) in rows {
            let request = format!("GET {path}\nCookie: SID={}", alice.as_str());
            check(worker, &[(&request, expected)]).await;
        }
        let rows = [
            ("GET /\nCookie: SID=fedcba9876543210fedcba", "forward unknown-token"),
            ("GET /mine/a\nCookie: SID=fedcba9876543210fedcba", "forward unknown-token"),
            ("GET /all/a\nCookie: SID=fedcba9876543210fedcba", "fetch"),
            ("GET /\nCookie: theme=dark", "forward unknown-cookie"),
            ("GET /\nCookie: _ga=1", "fetch"),
        ];
        check(worker, &rows).await;
    });
}

#[test]
fn a_look_that_is_no_request_counts_for_nothing() {
    with_worker(SETTINGS, async |worker| {
        let rare = async |peeks| decision(worker, "GET /rare/a", peeks).await;
        for _ in 0..3 {
            assert_eq!(rare(true).await, "forward min-uses");
        }
        assert_eq!(rare(false).await, "forward min-uses");
        assert_eq!([rare(true).await, rare(false).await], ["fetch", "fetch"]);
    });
}
