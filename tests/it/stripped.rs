//! Apps that set a cookie on every page (`set_cookie = "strip_for_anonymous"`): what is shared without it,
//! and which visitors get a cookie all the same.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};

const STRIPPED: &str = "session.cookie = \"PHPSESSID\"\n\
                        [[route]]\nmatch.path = \"/**\"\nset_cookie = \"strip_for_anonymous\"";

const SESSION: &str = "0a1b2c3d4e5f60718293a4b5c6";

fn with_cookie(reply: Reply) -> Reply {
    reply.header("Set-Cookie", &format!("PHPSESSID={SESSION}; Path=/; HttpOnly"))
}

on_both_stores!(a_page_is_shared_without_the_cookie_that_it_sets);

fn a_page_is_shared_without_the_cookie_that_it_sets(storage: &Storage) {
    let page = "<form action=/search><input name=q></form><a href=/login>log in</a>";
    let origin = Origin::start(move |request| {
        let reply = with_cookie(Reply::html(page));
        if request.method == "POST" { reply.header("Set-Cookie", "b=1") } else { reply }
    });
    let proxy = Proxy::start(&origin, storage, STRIPPED);

    let answers =
        [proxy.get("/").send(), proxy.get("/").send(), proxy.get("/?utm_source=x").send()];
    for answer in &answers {
        assert_eq!(answer.text(), page);
        assert!(answer.set_cookie("PHPSESSID").is_none(), "{answer:?}");
    }
    assert!(answers[1].is_hit() && answers[2].is_hit(), "{}", answers[1].cache_status());
    assert_eq!(origin.count(), 1);

    let posted = proxy.post("/").send();
    assert!(posted.set_cookie("PHPSESSID").is_some(), "what is forwarded sets it");

    let mine = proxy.get("/").cookie(&format!("PHPSESSID={SESSION}")).send();
    assert!(!mine.is_hit(), "{}", mine.cache_status());
    assert!(mine.set_cookie("PHPSESSID").is_some());
}

/// Each visitor gets the app's own answer, cookie and all, and never that of another.
#[track_caller]
fn assert_forwarded(reply: &Reply, detail: &str) {
    let origin = Origin::always(with_cookie(reply.clone()));
    let proxy = Proxy::embedded(&origin, STRIPPED);
    for _ in 0..3 {
        let answer = proxy.get("/").send();
        assert!(!answer.is_hit(), "{detail}: {}", answer.cache_status());
        assert!(answer.cache_status().contains(detail), "{detail}: {}", answer.cache_status());
        assert!(answer.set_cookie("PHPSESSID").is_some(), "{detail}: the first to ask, too");
    }
    // The first visitor may cause two fetches: the shared one, and a personal one.
    assert!(origin.count() <= 4, "{detail}: the app was asked {} times", origin.count());
}

#[test]
fn a_page_that_needs_its_cookie_is_forwarded_with_it() {
    let echo = format!("<script>var id = '{}'</script>", SESSION.to_uppercase());
    let script = format!("var id = '{SESSION}'");
    for (reply, detail) in [
        (Reply::html("<input type=password>"), "password-field"),
        (Reply::html("<form method=post>"), "post-form"),
        (Reply::html("<form><button formmethod=POST></form>"), "post-form"),
        (Reply::html("<input name=csrf_token value=1>"), "csrf-field"),
        (Reply::html("x").header("X-CSRF-Token", "1"), "csrf-field"),
        (Reply::html("<a href='/?PHPSESSID=1'>"), "session-id-in-link"),
        (Reply::html(&echo), "leak-token"),
        (Reply::html("x").header("X-Session", SESSION), "leak-token"),
        (Reply::typed("text/javascript", &script), "leak-token"),
        (
            Reply::typed("application/json", "{}").header("Cache-Control", "max-age=60"),
            "set-cookie",
        ),
        (Reply::typed("image/png", "captcha").header("Cache-Control", "max-age=60"), "set-cookie"),
        (Reply::html("x").header("Cache-Control", "private"), "private"),
    ] {
        assert_forwarded(&reply, detail);
    }
    let redirect =
        Reply::status("301 Moved Permanently").header("Location", "/?checked=1").body("");
    assert_forwarded(&redirect.header("Cache-Control", "max-age=60"), "set-cookie");
}

#[test]
fn forms_pass_where_no_cookie_goes_with_them() {
    let origin = Origin::always(Reply::html("<form method=post><input type=password></form>"));
    let proxy = Proxy::embedded(&origin, STRIPPED);
    proxy.get("/").send();
    assert!(proxy.get("/").send().is_hit());
}

#[test]
fn a_log_in_is_never_stored_without_its_cookie() {
    let origin = shop(|_| with_cookie(Reply::html("hello").header("Anteroom-Login", "alice")));
    let settings = "session.mint = true\nsession.cookie = \"login\"\n\
                    [[route]]\nmatch.path = \"/**\"\nset_cookie = \"strip_for_anonymous\"";
    let proxy = Proxy::embedded(&origin, settings);
    for _ in 0..2 {
        let answer = proxy.get("/welcome").send();
        assert!(!answer.is_hit() && answer.cookie("login").is_some(), "{}", answer.cache_status());
    }
    assert!(!log_in(&proxy, "bob").is_empty());
}

#[test]
fn a_304_that_sets_a_cookie_has_the_page_looked_through_again() {
    let origin = Origin::start(|request| match request.header("if-none-match") {
        Some(_) => with_cookie(Reply::status("304 Not Modified").header("ETag", "\"1\"")),
        None if request.header("cookie").is_some() => {
            with_cookie(Reply::html("<form method=post>"))
        }
        None => Reply::html("<form method=post>")
            .header("ETag", "\"1\"")
            .header("Cache-Control", "no-cache"),
    });
    let proxy = Proxy::embedded(&origin, STRIPPED);

    proxy.get("/").send();
    let second = proxy.get("/").send();

    assert!(second.cache_status().contains("post-form"), "{}", second.cache_status());
}
