//! Holes that the app marks with the tags of ESI.

use std::sync::Arc;

use crate::support::origin::{Gate, Origin, Rendezvous, Reply, Request};
use crate::support::proxy::{Proxy, log_in, shop};
use crate::support::wait_until;

/// Settings of a shop that carries out ESI under `/p/`.
fn with(esi: &str) -> String {
    format!(
        "session.mint = true\n[[route]]\nmatch.path = [\"/p/**\", \"/deep/**\"]\n\
         share = \"everyone\"\nesi = {esi}\n[[route]]\nmatch.path = \"/partials/**\"\nshare = \"none\""
    )
}

fn said(page: &str) -> Reply {
    Reply::html(page)
        .header("Cache-Control", "max-age=60")
        .header("Surrogate-Control", "content=\"ESI/1.0\"")
        .header("ETag", "\"stored\"")
}

fn include(path: &str) -> String {
    format!("<esi:include src=\"{path}\"/>")
}

fn user(request: &Request) -> &str {
    request.header("x-anteroom-user").unwrap_or("nobody")
}

/// An origin whose pages are `page`, and whose partials name the user.
fn serving(page: &str) -> Origin {
    let page = page.to_owned();
    shop(move |request| match request.path() {
        path if path.starts_with("/p/") => said(&page),
        "/partials/fails" => Reply::status("500 Oops").body("no"),
        path => Reply::html(&format!("{path} of {}", user(request))),
    })
}

#[test]
fn each_visitor_gets_personal_includes_in_the_same_page() {
    let origin = serving(&format!(
        "<p>{}</p><esi:remove>old</esi:remove>",
        include("/partials/a?x=1&amp;y=2")
    ));
    let proxy = Proxy::embedded(&origin, &with("true"));
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    for (number, (cookie, name)) in
        [(&alice, "alice"), (&bob, "bob"), (&alice, "alice")].into_iter().enumerate()
    {
        let answer = proxy.get("/p/1").cookie(cookie).header("If-None-Match", "\"stored\"").send();
        assert_eq!(answer.text(), format!("<p>/partials/a of {name}</p>"));
        assert_eq!(answer.is_hit(), number > 0, "{}", answer.cache_status());
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
        for field in ["surrogate-control", "etag", "content-length"] {
            assert_eq!(answer.header(field), None, "{field}");
        }
    }
    let seen = origin.seen();
    let pages: Vec<_> = seen.iter().filter(|request| request.path() == "/p/1").collect();
    assert_eq!(pages.len(), 1);
    let capability = pages[0].header("surrogate-capability");
    assert_eq!(capability, Some("anteroom=\"ESI/1.0\""));
    assert!(seen.iter().any(|request| request.target == "/partials/a?x=1&y=2"));
}

#[test]
fn a_source_is_an_attribute_with_its_references_decoded() {
    for (written, meant) in [
        ("/partials/alice&#x27;s%20house", "/partials/alice's%20house"),
        ("/partials/bob&#039;s", "/partials/bob's"),
        ("/partials/a?x=1&#38;y=2", "/partials/a?x=1&y=2"),
        ("/partials/a?x=1&amp;y=2&apos;", "/partials/a?x=1&y=2'"),
    ] {
        let origin = serving(&include(written));
        let proxy = Proxy::embedded(&origin, &with("true"));
        assert_eq!(proxy.get("/p/1").send().status, 200);
        let seen: Vec<_> = origin.seen().into_iter().map(|request| request.target).collect();
        assert_eq!(seen, ["/p/1", meant]);
    }
}

#[test]
fn a_reference_to_a_control_character_reaches_no_app() {
    let origin = serving(&format!("<p>{}</p>", include("/partials/a&#13;&#10;X-Mine:&#32;1")));
    let proxy = Proxy::embedded(&origin, &with("true"));
    assert_eq!(proxy.get("/p/1").send().text(), "<p></p>");
    assert_eq!(origin.count(), 1);
}

#[test]
fn tags_are_ignored_unless_enabled() {
    let page = format!("<p>{}</p>", include("/partials/a"));
    for (esi, said_so, is_filled) in [
        ("false", true, false),
        ("true", false, false),
        ("true", true, true),
        ("\"always\"", false, true),
    ] {
        let text = page.clone();
        let origin = Origin::start(move |request| match request.path() {
            "/p/1" if said_so => said(&text),
            "/p/1" => Reply::html(&text).header("Cache-Control", "max-age=60"),
            _ => Reply::html("filled"),
        });
        let proxy = Proxy::embedded(&origin, &with(esi));
        for _ in 0..2 {
            let answer = proxy.get("/p/1").send().text();
            assert_eq!(answer, if is_filled { "<p>filled</p>" } else { &*page }, "{esi} {said_so}");
        }
        assert_eq!(origin.seen().iter().any(|r| r.path() == "/partials/a"), is_filled);
        let told = origin.seen()[0].header("surrogate-capability").is_some();
        assert_eq!(told, esi != "false");
    }
}

#[test]
fn includes_of_other_sites_are_never_fetched() {
    let sources = [
        "http://other.test/partials/a",
        "//other.test/partials/a",
        "https://shop.test/partials/a",
        "ftp://shop.test/partials/a",
        "/_anteroom/me",
        "/%5fanteroom/me",
        "",
        "/\u{e9} x",
        "javascript:alert(1)",
    ];
    let page: String = sources.iter().map(|source| include(source)).collect();
    let origin = serving(&format!("[{page}]"));
    let proxy = Proxy::embedded(&origin, &with("true"));
    let alice = log_in(&proxy, "alice");
    let before = origin.count();
    assert_eq!(proxy.get("/p/1").cookie(&alice).send().text(), "[]");
    assert_eq!(origin.count(), before + 1);
}

#[test]
fn sources_are_resolved_against_the_page() {
    let page =
        ["http://shop.test/partials/a", "//shop.test/partials/b", "/partials/c", "../partials/d#x"];
    let page: String = page.iter().map(|source| format!("{};", include(source))).collect();
    let proxy_page = serving(&page);
    let proxy = Proxy::embedded(&proxy_page, &with("true"));
    let expected = ["a", "b", "c", "d"].map(|name| format!("/partials/{name} of nobody;")).concat();
    assert_eq!(proxy.get("/p/1").send().text(), expected);
}

#[test]
fn an_include_that_fails_is_tried_by_its_alt_or_left_out() {
    let page = "1<esi:include src=\"/partials/fails\" alt=\"/partials/a\"/>\
                2<esi:include src=\"/partials/fails\" onerror=\"continue\"/>\
                3<esi:include src=\"/partials/fails\" alt=\"/partials/fails\"/>4";
    let proxy_origin = serving(page);
    let proxy = Proxy::embedded(&proxy_origin, &with("true"));
    assert_eq!(proxy.get("/p/1").send().text(), "1/partials/a of nobody234");
}

#[test]
fn includes_are_asked_for_side_by_side_wherever_they_stand() {
    let meeting = Rendezvous::of(3);
    let inside = Arc::clone(&meeting);
    let gap = "x".repeat(100_000);
    let page = format!(
        "{}{gap}{}{gap}{}",
        include("/partials/a"),
        include("/partials/b"),
        include("/partials/c")
    );
    let origin = Origin::start(move |request| match request.path() {
        "/p/1" => said(&page),
        path => {
            inside.arrive();
            Reply::html(path)
        }
    });
    let proxy = Proxy::embedded(&origin, &with("true"));
    let answer = proxy.get("/p/1").send().text();
    assert!(answer == format!("/partials/a{gap}/partials/b{gap}/partials/c"));
    assert!(meeting.is_complete());
}

#[test]
fn includes_within_includes_end_at_a_depth_and_a_number() {
    let origin = Origin::start(|request| {
        let name = request.path().to_owned();
        said(&format!("({name} {}{})", include(&format!("{name}l")), include(&format!("{name}r"))))
    });
    let proxy = Proxy::embedded(&origin, &format!("limits.fragments = 100\n{}", with("true")));
    let text = proxy.get("/deep/").send().text();
    assert_eq!(text.matches('(').count(), 1 + 2 + 4 + 8, "{text}");
    assert!(!text.contains("esi:"));

    let proxy = Proxy::embedded(&origin, &format!("limits.fragments = 5\n{}", with("true")));
    let text = proxy.get("/deep/").send().text();
    assert_eq!(text.matches('(').count(), 1 + 5, "{text}");
    assert!(!text.contains("esi:"));
}

#[test]
fn a_forwarded_answer_is_processed_too() {
    let page = include("/partials/a");
    let origin = shop(move |request| match request.path() {
        "/p/1" => said(&page).header("Set-Cookie", "a=b"),
        _ => Reply::html(user(request)),
    });
    let proxy = Proxy::embedded(&origin, &with("true"));
    let alice = log_in(&proxy, "alice");
    let answer = proxy.post("/p/1").cookie(&alice).send();
    assert_eq!((answer.text().as_str(), answer.header("set-cookie")), ("alice", Some("a=b")));
    let last = origin.last();
    assert_eq!((last.method.as_str(), last.body.bytes.len()), ("GET", 0));
}

#[test]
fn tags_in_included_content_are_never_processed() {
    // Neither in a content's text, nor in what includes are not carried out in.
    let origin = Origin::start(|request| match request.path() {
        "/p/1" => said(&include("/partials/comment")),
        "/partials/comment" => Reply::html(&include("/partials/secret"))
            .header("Surrogate-Control", "content=\"ESI/1.0\""),
        _ => Reply::html("secret"),
    });
    let proxy = Proxy::embedded(&origin, &with("true"));
    assert_eq!(proxy.get("/p/1").send().text(), include("/partials/secret"));
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_page_on_its_way_streams_while_an_include_is_waited_for() {
    let gate = Gate::closed();
    let inside = Arc::clone(&gate);
    let page = format!("start{}end", include("/partials/a"));
    let origin = Origin::start(move |request| match request.path() {
        "/p/1" => said(&page).header("Cache-Control", "no-store"),
        _ => {
            inside.pass();
            Reply::html("-late-")
        }
    });
    let proxy =
        Proxy::embedded(&origin, &format!("limits.fragment_timeout = \"60s\"\n{}", with("true")));
    let mut client = proxy.get("/p/1").start();
    client.until("start");
    wait_until("the include is asked for", || origin.busy() == 1);
    gate.open();
    assert!(client.until("end").contains("-late-"));
}

#[test]
fn an_unclosed_tag_is_served_as_received() {
    let page = format!("1<esi:remove>2{}3", include("/partials/a"));
    let origin = serving(&page);
    let proxy = Proxy::embedded(&origin, &with("true"));
    for _ in 0..2 {
        let text = proxy.get("/p/1").send().text();
        assert_eq!(text, "1<esi:remove>2/partials/a of nobody3");
    }
}

#[test]
fn sources_in_a_part_are_resolved_against_the_part() {
    let parts = ["b", "./b", "../c", "?d", "//shop.test/deep/e", "http://other.test/deep/e"];
    let parts: String = parts.iter().map(|source| format!("{};", include(source))).collect();
    let origin = Origin::start(move |request| match &*request.target {
        "/p/1" => said(&include("/deep/parts/a")),
        "/deep/parts/a" => said(&parts),
        target => Reply::html(target),
    });
    let proxy = Proxy::embedded(&origin, &with("true"));
    let expected = "/deep/parts/b;/deep/parts/b;/deep/c;/deep/parts/a?d;/deep/e;;";
    assert_eq!(proxy.get("/p/1").send().text(), expected);
}

#[test]
fn the_answer_that_logs_out_shows_the_old_name_nowhere() {
    let out = |reply: Reply| {
        reply.header("Anteroom-Logout", "1").header("Set-Cookie", "known=; Path=/; Max-Age=0")
    };
    let origin = shop(move |request| match request.path() {
        "/p/out" => out(Reply::html(&format!("{}|{}", include("/partials/a"), include("/p/part"))))
            .header("Surrogate-Control", "content=\"ESI/1.0\""),
        "/p/part" => said(&include("/partials/b")).header("Cache-Control", "no-store"),
        _ => Reply::html(&format!(
            "{} {}",
            user(request),
            request.header("cookie").unwrap_or("nothing")
        )),
    });
    let proxy = Proxy::embedded(&origin, &with("true"));
    for method in ["POST", "GET"] {
        let alice = log_in(&proxy, "alice");
        let cookies = format!("{alice}; known=alice; theme=dark");
        let answer = proxy.ask(method, "/p/out").cookie(&cookies).send();
        assert_eq!(answer.text(), "nobody theme=dark|nobody theme=dark", "{method}");
    }
}

#[test]
fn an_answer_that_logs_in_is_filled_for_the_new_user() {
    let origin = shop(|request| match request.path() {
        "/p/in" => Reply::html(&include("/partials/a"))
            .header("Surrogate-Control", "content=\"ESI/1.0\"")
            .header("Anteroom-Login", "bob")
            .header("Set-Cookie", "known=bob; Path=/; HttpOnly")
            .header("Set-Cookie", "refresh=secret; Path=/auth")
            .header("Set-Cookie", "step=2"),
        _ => Reply::html(&format!("{} {}", user(request), request.header("cookie").unwrap())),
    });
    let proxy = Proxy::embedded(&origin, &with("true"));
    let alice = log_in(&proxy, "alice");
    for cookie in ["known=none; theme=dark".to_owned(), format!("{alice}; known=alice; theme=dark")]
    {
        let text = proxy.post("/p/in").cookie(&cookie).send().text();
        // A cookie without a path is for the folder of the page that sets it.
        assert!(text.starts_with("bob theme=dark; known=bob; login="), "{text}");
        for other in [&*alice, "alice", "secret", "step"] {
            assert!(!text.contains(other), "{other} in {text}");
        }
    }
}

#[test]
fn tags_are_carried_out_though_no_cache_is_told_of_the_page() {
    // What is one user's is kept from caches, and with it goes the field that speaks of tags.
    let origin = serving(&include("/partials/a"));
    let proxy = Proxy::embedded(&origin, &with("true").replace("\"everyone\"", "\"user\""));
    let alice = log_in(&proxy, "alice");
    for is_hit in [false, true] {
        let answer = proxy.get("/p/1").cookie(&alice).send();
        assert_eq!((&*answer.text(), answer.is_hit()), ("/partials/a of alice", is_hit));
    }
}
