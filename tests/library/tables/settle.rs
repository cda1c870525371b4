//! What a response means, and what carrying it out leaves in the store.

use std::rc::Rc;

use anteroom_http::ident::Token;
use anteroom_proxy::WorkerContext;
use anteroom_proxy::testbed::{SettledResponse, effects, log_in, settled};
use anteroom_store::{CartStore as _, TokenStore as _};

use crate::with_worker;

/// A proxy that makes the sessions.
const MINTED: &str = "session.mint = true\n[[route]]\nmatch.path = \"/mine/*\"\nshare = \"user\"";

/// An app that makes the sessions.
const WATCHED: &str = r#"session.cookie = "SID"
session.login = { match = { method = "POST", path = "/login" }, success = { status = [302], set_cookie = "SID" }, user = { header = "X-User" } }
session.logout = { match = { method = "GET", path = "/logout" } }
[[route]]
match.path = "/mine/*"
share = "user""#;

/// A request, the status and the fields of its response, a line each, and what that means, in words.
type Row = (&'static str, u16, &'static str, &'static str);

async fn check(worker: &Rc<WorkerContext>, cookie: Option<&str>, rows: &[Row]) {
    for (request, status, answer, expected) in rows {
        let line = cookie.map(|cookie| format!("\nCookie: {cookie}")).unwrap_or_default();
        let told = effects(worker, &format!("{request}{line}"), *status, answer).await;
        assert_eq!(told, *expected, "{request:?} {status} {answer:?}");
    }
}

#[test]
fn a_cooperating_app_states_session_item_and_cart() {
    with_worker(MINTED, async |worker| {
        let rows: &[Row] = &[
            ("GET /page", 200, "", ""),
            ("GET /page", 200, "Anteroom-Login: alice", "login of alice"),
            (
                "POST /login",
                302,
                "Anteroom-Login: alice",
                "login of alice; changed /login, no rows",
            ),
            ("POST /login", 403, "Anteroom-Login: alice", "login of alice"),
            ("GET /page", 200, "Anteroom-Logout: 1", "logout"),
            // A logout outweighs a login.
            ("GET /page", 200, "Anteroom-Login: alice\nAnteroom-Logout: 1", "logout"),
            // A name that is cut at a semicolon could match another user's.
            ("GET /page", 200, "Anteroom-Login: alice;x", ""),
            ("GET /page", 200, "Anteroom-Login: ", ""),
            ("GET /page", 200, "Anteroom-Item: mug", "item mug"),
            ("GET /page", 200, "Anteroom-Cart: mug;count=2", "cart mug=2"),
            ("GET /page", 200, "Anteroom-Cart: mug;count=x", ""),
            ("GET /page", 200, "Set-Cookie: SID=1", ""),
        ];
        check(worker, None, rows).await;
    });
}

#[test]
fn an_unsafe_request_that_was_answered_well_has_changed_its_pages() {
    with_worker(MINTED, async |worker| {
        let rows: &[Row] = &[
            ("POST /a?b=1", 200, "", "changed /a?b=1"),
            ("DELETE /a", 204, "", "changed /a"),
            ("POST /a", 303, "Location: /b", "changed /a /b"),
            ("POST /a", 302, "Location: http://shop.test/b?c", "changed /a /b?c, no rows"),
            ("POST /a", 201, "Content-Location: b", "changed /a /b"),
            ("POST /a", 302, "Location: http://other.test/b", "changed /a, no rows"),
            ("POST /a", 404, "Location: /b", ""),
            ("POST /a", 500, "", ""),
            ("GET /a", 200, "Content-Location: /b", ""),
            ("OPTIONS /a", 200, "", ""),
        ];
        check(worker, None, rows).await;
    });
}

#[test]
fn an_app_of_its_own_is_watched() {
    with_worker(WATCHED, async |worker| {
        let rows: &[Row] = &[
            (
                "POST /login",
                302,
                "Set-Cookie: SID=0123456789abcdef\nX-User: ann",
                "the app's login of ann; changed /login, no rows",
            ),
            // Each part of the rule is needed.
            (
                "POST /login",
                200,
                "Set-Cookie: SID=0123456789abcdef\nX-User: ann",
                "own pages end; changed /login",
            ),
            ("POST /login", 302, "X-User: ann", "changed /login, no rows"),
            (
                "POST /login",
                302,
                "Set-Cookie: SID=0123456789abcdef",
                "own pages end; changed /login, no rows",
            ),
            ("GET /login", 302, "Set-Cookie: SID=0123456789abcdef\nX-User: ann", "own pages end"),
            ("GET /logout", 302, "", "the app's logout by rule, 0 left"),
            // What only a cooperating app may say.
            ("GET /page", 200, "Anteroom-Login: ann", ""),
        ];
        check(worker, None, rows).await;
        let token = log_in(worker, "ann").await;
        let rows: &[Row] = &[
            ("GET /page", 200, "", ""),
            ("GET /page", 200, "Set-Cookie: SID=; Max-Age=0", "the app's logout by cookie, 0 left"),
            ("GET /logout", 302, "", "the app's logout by rule, 1 left"),
            ("GET /page", 200, "Set-Cookie: theme=; Max-Age=0", ""),
            // Many apps renew the cookie with every response.
            ("GET /page", 200, "Set-Cookie: SID=fedcba9876543210", ""),
            ("POST /page", 200, "Set-Cookie: SID=fedcba9876543210", "own pages end; changed /page"),
        ];
        check(worker, Some(&format!("SID={}", token.as_str())), rows).await;
    });
}

/// The token in the cookie that a response sets.
fn token_in(settled: &SettledResponse) -> Option<Token> {
    let (_, value) = settled.cookie.as_ref()?.split(';').next()?.split_once('=')?;
    Token::parse(value.as_bytes())
}

#[test]
fn a_session_and_its_cart_are_in_the_store_before_the_response_goes_out() {
    with_worker(MINTED, async |worker| {
        let user = async |token: &Token| {
            let found = worker.store.check_token(&worker.sessions.stored(token)).await.unwrap();
            found.map(|user| String::from_utf8(user.as_bytes().to_vec()).unwrap())
        };
        let cart = async |token: &Token| {
            let stored = worker.sessions.stored(token);
            worker.store.cart(&stored).await.unwrap().len()
        };
        let answer =
            settled(worker, "GET /", "Anteroom-Login: alice\nAnteroom-Cart: mug;count=2").await;
        let alice = token_in(&answer).unwrap();
        assert!(answer.has_filled_cart);
        assert_eq!((user(&alice).await, cart(&alice).await), (Some("alice".to_owned()), 1));

        // Another login replaces the session, and the cart is that of the user.
        let with_cookie = |token: &Token| format!("GET /\nCookie: login={}", token.as_str());
        let answer = settled(worker, &with_cookie(&alice), "Anteroom-Login: alice").await;
        let again = token_in(&answer).unwrap();
        assert_eq!((user(&alice).await, cart(&alice).await), (None, 0));
        assert_eq!((user(&again).await, cart(&again).await), (Some("alice".to_owned()), 1));

        let answer = settled(worker, &with_cookie(&again), "Anteroom-Logout: 1").await;
        assert!(answer.cookie.unwrap().starts_with("login=;"));
        assert_eq!((user(&again).await, cart(&again).await), (None, 0));

        // A cart belongs to a session: there is none.
        let answer = settled(worker, "GET /", "Anteroom-Cart: mug;count=2").await;
        assert!(!answer.has_filled_cart && answer.cookie.is_none());
    });
}
