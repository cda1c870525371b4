//! How far a request comes: from its head to the visitor.

use std::rc::Rc;

use anteroom_proxy::WorkerContext;
use anteroom_proxy::testbed::{log_in, stages};

use crate::with_worker;

const SETTINGS: &str = r#"session.cookie = "SID"
[[route]]
name = "old"
match.path = "/old/**"
redirect = "/new"
[[route]]
name = "items"
match.path = "/item/{item}"
[[route]]
name = "account"
match.path = "/account"
require = "login"
[[route]]
name = "office"
match.path = "/office"
allow_from = ["10.0.0.0/8"]
[[route]]
name = "slow"
match.path = "/slow"
requests_per_address = "1/m"
"#;

/// Requests, and how far each comes, in words.
async fn check(worker: &Rc<WorkerContext>, rows: &[(&str, &str)]) {
    for (request, expected) in rows {
        assert_eq!(stages(worker, request).await, *expected, "{request:?}");
    }
}

#[test]
fn a_request_comes_as_far_as_its_head_lets_it() {
    with_worker(SETTINGS, async |worker| {
        let rows: &[(&str, &str)] = &[
            ("GET /", "default: anonymous"),
            ("GET /item/mug", "items mug: anonymous"),
            ("GET /old/a", "old: redirect"),
            ("POST /old/a", "old: redirect"),
            ("GET /account", "401 login-required"),
            ("GET /office", "403 denied"),
            ("GET /slow", "slow: anonymous"),
            ("GET /slow", "429 rate-limited"),
            ("GET /_anteroom/health", "endpoint"),
            ("GET /%5fanteroom/health", "endpoint"),
            ("PURGE /", "default: anonymous"),
            ("GET /\nHost: other.test", "421 refused"),
            ("GET /\nHost: shop.test\nHost: shop.test", "400 refused"),
        ];
        check(worker, rows).await;
    });
}

#[test]
fn a_visitor_is_known_by_the_session_cookie_alone_and_unknown_is_never_anonymous() {
    with_worker(SETTINGS, async |worker| {
        let alice = log_in(worker, "alice").await;
        let token = alice.as_str();
        let of = |fields: &str| format!("GET /{}", fields.replace("ALICE", token));
        let rows = [
            ("\nCookie: SID=ALICE", "default: known"),
            ("\nCookie: SID=ALICE; theme=dark", "default: known, unknown-cookie"),
            ("\nCookie: SID=ALICE; _ga=1", "default: known"),
            ("\nCookie: SID=fedcba9876543210fedcba", "default: unknown, unknown-token"),
            ("\nCookie: SID=x", "default: unknown, bad-session-cookie"),
            ("\nCookie: SID=ALICE; SID=ALICE", "default: unknown, bad-session-cookie"),
            ("\nCookie: theme=dark", "default: unknown, unknown-cookie"),
            ("\nCookie: _ga=1", "default: anonymous"),
            ("?PHPSESSID=1234567890", "default: unknown, session-in-url"),
            ("account\nCookie: SID=ALICE", "account: known"),
        ];
        for (fields, expected) in rows {
            check(worker, &[(&of(fields), expected)]).await;
        }
    });
}
