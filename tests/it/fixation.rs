//! Session fixation: an attacker plants a chosen token in a victim's browser before the login, and sends it
//! afterwards. The token is anonymous then, in every way that a login becomes known.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::own_sessions::{self, RULES, VERIFY, app, page, session};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};

on_both_stores!(
    a_planted_token_is_anonymous_after_a_minted_log_in,
    a_planted_token_is_anonymous_after_a_log_in_by_a_rule,
    a_planted_token_is_anonymous_where_the_app_is_asked,
    a_log_in_that_leaves_the_cookie_is_not_believed_where_a_new_one_is_the_proof,
);

/// Logs ann in, from a browser with this cookie, and returns the one that it has from then on.
fn log_in_over(proxy: &Proxy, planted: &str) -> String {
    let form = "application/x-www-form-urlencoded";
    let ask = proxy.post("/login?ann").header("Content-Type", form).cookie(planted);
    let given = ask.body(b"user=ann&pass=secret").send().cookie("SID");
    format!("SID={}", given.expect("the app gives a new one"))
}

fn a_planted_token_is_anonymous_after_a_minted_log_in(storage: &Storage) {
    let origin =
        shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("stranger")));
    let proxy = Proxy::start(&origin, storage, "session.mint = true");
    let who = |cookie: &str| proxy.get("/").cookie(cookie).send().text();
    let own = log_in(&proxy, "mallory");
    for (planted, before) in [("login=chosen-by-mallory-1", "stranger"), (own.as_str(), "mallory")]
    {
        assert_eq!(who(planted), before);
        let answer = proxy.post("/login?alice").cookie(planted).send();
        let alice = format!("login={}", answer.cookie("login").unwrap());
        assert_eq!((who(&alice), who(planted)), ("alice".to_owned(), "stranger".to_owned()));
        // Planted under another Path or Domain it comes beside hers: neither is believed.
        for both in [format!("{planted}; {alice}"), format!("{alice}; {planted}")] {
            assert_eq!(who(&both), "stranger");
        }
        assert_eq!((who(&alice), who(planted)), ("alice".to_owned(), "stranger".to_owned()));
    }
}

fn a_planted_token_is_anonymous_after_a_log_in_by_a_rule(storage: &Storage) {
    let origin = app();
    let proxy = Proxy::start(&origin, storage, RULES);
    let own = own_sessions::log_in(&proxy, "mallory");
    for (planted, its_page) in [
        ("SID=chosen-by-mallory-1", "a page for anybody"),
        // To the app this one goes on to be the attacker's own.
        (own.as_str(), "a page for mallory"),
    ] {
        assert_eq!(page(&proxy, planted).text(), its_page);
        let ann = log_in_over(&proxy, planted);
        assert_eq!(session(&proxy, &ann), ("known".to_owned(), Some("ann".to_owned())));
        for _ in 0..2 {
            assert_eq!(session(&proxy, planted), ("unknown".to_owned(), None));
            assert_eq!(page(&proxy, planted).text(), its_page);
            assert_eq!(origin.last().header("x-anteroom-session"), Some("unknown"));
        }
        assert_eq!(page(&proxy, &ann).text(), "a page for ann");
    }
}

fn a_planted_token_is_anonymous_where_the_app_is_asked(storage: &Storage) {
    let origin = app();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let own = own_sessions::log_in(&proxy, "mallory");
    for (planted, its_page, its_user) in [
        ("SID=chosen-by-mallory-1", "a page for anybody", None),
        // The app goes on to say that this one is the attacker's own.
        (own.as_str(), "a page for mallory", Some("mallory")),
    ] {
        assert_eq!(page(&proxy, planted).text(), its_page);
        let ann = log_in_over(&proxy, planted);
        let known = ("known".to_owned(), Some("ann".to_owned()));
        assert_eq!(page(&proxy, &ann).text(), "a page for ann");
        assert_eq!(session(&proxy, &ann), known);
        let more = format!("{planted}; REMEMBER=chosen-by-mallory-2");
        for cookie in [planted, more.as_str()] {
            assert_eq!(page(&proxy, cookie).text(), its_page, "{cookie}");
            let class = if its_user.is_some() { "known" } else { "none" };
            let expected = (class.to_owned(), its_user.map(str::to_owned));
            assert_eq!(session(&proxy, cookie), expected, "{cookie}");
        }
        assert_eq!(session(&proxy, &ann), known);
    }
}

fn a_log_in_that_leaves_the_cookie_is_not_believed_where_a_new_one_is_the_proof(storage: &Storage) {
    let is_in = AtomicBool::new(false);
    let origin = Origin::start(move |request| match request.path() {
        "/login" => {
            is_in.store(true, Ordering::SeqCst);
            Reply::status("302 Found").header("Location", "/").body("")
        }
        _ if is_in.load(Ordering::SeqCst) => Reply::unstored("a page for ann"),
        _ => Reply::unstored("a page for anybody"),
    });
    let proxy = Proxy::start(&origin, storage, RULES);
    let planted = "SID=chosen-by-mallory-1";
    let form = "application/x-www-form-urlencoded";
    let ask = proxy.post("/login").header("Content-Type", form).cookie(planted);
    assert_eq!(ask.body(b"user=ann").send().status, 302);
    // The app's own hole: the attacker sees what the app shows. To the proxy the attacker is not the victim.
    assert_eq!(page(&proxy, planted).text(), "a page for ann");
    assert_eq!(origin.last().header("x-anteroom-session"), Some("unknown"));
    assert_eq!(session(&proxy, planted), ("unknown".to_owned(), None));
}

#[test]
fn a_log_in_that_sets_the_planted_id_again_is_no_new_one() {
    let origin = Origin::start(|request| match request.path() {
        "/login" => Reply::status("302 Found")
            .header("Location", "/")
            .header("Set-Cookie", "SID=chosen-by-mallory-1; Path=/")
            .body(""),
        _ => Reply::unstored("a page"),
    });
    let proxy = Proxy::embedded(&origin, RULES);
    let planted = "SID=chosen-by-mallory-1";
    let form = "application/x-www-form-urlencoded";
    proxy.post("/login").header("Content-Type", form).cookie(planted).body(b"user=ann").send();
    assert_eq!(session(&proxy, planted), ("unknown".to_owned(), None));
}
