//! Filters over one request, and their errors.

use std::time::Duration;

use ::http::{Method, Version};
use proptest::prelude::*;

use super::*;
use crate::access_log::{LogRecord, VisitorClass};
use crate::metrics::Outcome;
use crate::reason::Reason;
use crate::request_feed::Steps;

fn event() -> RequestEvent {
    RequestEvent {
        record: LogRecord {
            at: 1.0,
            client: None,
            method: Method::GET,
            version: Version::HTTP_11,
            status: 200,
            outcome: Outcome::Bypass,
            reason: Some(Reason::UnknownCookie),
            visitor: VisitorClass::Unknown,
            class: None,
            sent: 1_000,
            received: None,
            took: Duration::from_millis(250),
            origin: None,
            aborted: false,
        },
        host: Some("shop.example".into()),
        path: "/item/7".to_owned(),
        parameters: Vec::new(),
        route: None,
        request_id: None,
        steps: Steps::default(),
    }
}

fn holds(filter: &str) -> bool {
    RequestFilter::parse(filter).unwrap_or_else(|error| panic!("{error}")).matches(&event())
}

#[test]
fn each_field_is_compared() {
    for filter in [
        "reason = unknown-cookie and ms > 200",
        "REASON = Unknown-Cookie AND status = 200",
        "reason ~ cookie",
        "result = bypass",
        "result != hit",
        "not result = hit",
        "method = get",
        "host = Shop.Example",
        "path = /item/7",
        "path ~ '/item'",
        "path ~ \"\"",
        "visitor = unknown",
        "ms >= 250 and ms <= 250 and ms < 251",
        "bytes = 1000",
        "not aborted",
        "aborted = false",
        "aborted != true",
        "status = 404 or (status = 200 and not (ms > 1000 or aborted))",
        "status=404 or status=200",
    ] {
        assert!(holds(filter), "{filter}");
    }
    for filter in ["aborted", "result = hit", "status >= 500", "method = POST", "path = /item"] {
        assert!(!holds(filter), "{filter}");
    }
}

#[test]
fn a_field_that_is_absent_is_unequal_to_everything() {
    for filter in ["route != shop", "origin_ms != 0", "not origin_ms > 0", "not route ~ ''"] {
        assert!(holds(filter), "{filter}");
    }
    for filter in ["route = shop", "origin_ms < 1000", "origin_ms >= 0"] {
        assert!(!holds(filter), "{filter}");
    }
}

#[test]
fn and_binds_before_or() {
    assert!(holds("status = 200 or status = 404 and aborted"));
    assert!(!holds("(status = 200 or status = 404) and aborted"));
}

#[test]
fn all_hits_have_a_word_in_common() {
    let filter = RequestFilter::parse("result = hit").unwrap();
    for outcome in Outcome::ALL {
        let mut event = event();
        event.record.outcome = outcome;
        assert_eq!(filter.matches(&event), outcome.is_hit(), "{outcome:?}");
    }
}

#[test]
fn an_error_points_at_its_place_and_names_the_nearest() {
    for (filter, told) in [
        ("reson = miss", "unknown field `reson`; the nearest is `reason`."),
        ("cache = miss", "unknown field `cache`; the nearest is `result`."),
        ("ms == 3", "unknown operator `==`; the nearest is `=`."),
        ("path =~ x", "unknown operator `=~`; the nearest is `~`."),
        ("ms > 3 && aborted", "expected `and` or `or`; write `and`"),
        ("! aborted", "expected a field, such as `status`; write `not`"),
        ("reason = unknown-cooky", "`unknown-cooky` is no reason; the nearest is `unknown-cookie`"),
        ("result = hits", "`hits` is no result; the nearest is `hit`"),
        ("ms > 200ms", "expected a number of milliseconds, such as 200"),
        ("ms > NaN", "expected a number of milliseconds, such as 200"),
        ("ms ~ 3", "`~` is not for `ms`: a number is compared by"),
        ("path < a", "`<` is not for `path`: a text is compared by =, != or ~"),
        ("aborted = maybe", "expected `true` or `false`"),
        ("ms", "expected an operator after `ms`"),
        ("ms >", "expected a value, such as `ms > 200`"),
        ("reason = ", "expected a value, such as `reason = method`"),
        ("(ms > 3", "this parenthesis is not closed"),
        ("ms > 3)", "this parenthesis closes none"),
        ("path = 'a", "the quote has no end; close it with '"),
        ("ms > 3 status = 3", "expected `and` or `or`"),
        ("", "expected a field"),
    ] {
        let error = RequestFilter::parse(filter).unwrap_err().to_string();
        assert!(error.starts_with(told), "{filter}: {error}");
    }
    let error = RequestFilter::parse("ms > 3 and statis = 4").unwrap_err().to_string();
    assert!(error.ends_with("\n  ms > 3 and statis = 4\n             ^^^^^^"), "{error}");
    let error = RequestFilter::parse("höst\u{1b}[2J = 4").unwrap_err().to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn length_and_depth_are_bounded() {
    assert!(RequestFilter::parse(&format!("path = {}", "a".repeat(FILTER_MAX))).is_err());
    let deep = |depth: usize| format!("{}aborted{}", "(".repeat(depth), ")".repeat(depth));
    assert!(RequestFilter::parse(&deep(32)).is_ok());
    assert!(RequestFilter::parse(&deep(33)).is_err());
    assert!(RequestFilter::parse(&format!("{}aborted", "not ".repeat(200))).is_err());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}") {
        if let Err(error) = RequestFilter::parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_row_of_tokens_is_read_or_refused(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "reason", "status", "aborted", "miss", "200", "'x'", "\"", "\\", "é", "(", ")", "=", "!=",
                "<", ">=", "~", "&&", "and", "or", "not", " ",
            ]),
            0..24,
        )
    ) {
        let text = parts.join(" ");
        match RequestFilter::parse(&text) {
            Ok(filter) => { let _ = filter.matches(&event()); }
            Err(error) => { prop_assert!(!error.to_string().is_empty()); }
        }
    }
}
