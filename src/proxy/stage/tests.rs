//! How far a request comes, as tables: from its head to the visitor.

use std::rc::Rc;

use anteroom_cache::rules::verdict::Sharing;
use anteroom_telemetry::access_log::VisitorClass;

use super::*;
use crate::proxy::testbed::{at_stage, log_in, with_worker};

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
        let told = at_stage(worker, request, async |_, reached| in_words(reached)).await;
        assert_eq!(told, *expected, "{request:?}");
    }
}

fn in_words(reached: Result<Reached<'_>, Error>) -> String {
    let identified = match reached {
        Err(error) => return format!("{} {}", error.status().as_u16(), error.reason().as_str()),
        Ok(Reached::Diverted(diverted)) => {
            return match diverted {
                Diverted::Purge(..) => "purge".to_owned(),
                Diverted::Redirect(..) => "redirect to https".to_owned(),
                Diverted::RouteRedirect(routed) => format!("{}: redirect", routed.route().name),
                Diverted::Endpoint(_) => "endpoint".to_owned(),
                Diverted::No(_) => "not diverted".to_owned(),
            };
        }
        Ok(Reached::Identified(identified)) => identified,
    };
    let visitor = identified.visitor();
    let who = match (visitor.class, visitor.sharing) {
        (VisitorClass::Known, Sharing::Known) => "known".to_owned(),
        (VisitorClass::Known, Sharing::Apart(reason) | Sharing::Unknown(reason)) => {
            format!("known, {}", reason.as_str())
        }
        (_, Sharing::Unknown(reason)) => format!("unknown, {}", reason.as_str()),
        (_, _) => "anonymous".to_owned(),
    };
    let item = identified.item().map_or_else(String::new, |item| format!(" {}", item.as_str()));
    let name = &identified.route().name;
    let route = if name.is_empty() { "default" } else { &**name };
    format!("{route}{item}: {who}")
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
