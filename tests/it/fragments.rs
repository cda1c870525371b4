//! Holes in shared pages: one page for all, and in it what is each visitor's own.

use std::io::Read as _;
use std::sync::Arc;

use crate::support::client::{Answer, Client};
use crate::support::http2_client::{self, Http2Client};
use crate::support::origin::{Gate, Origin, Rendezvous, Reply, Request};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};
use crate::support::{at_once, wait_until};

on_both_stores!(
    each_visitor_sees_a_personal_hole_in_the_same_page,
    we_fill_holes_with_what_we_know_of_the_visitor,
);

/// Settings of a shop whose pages under `/p/` have these holes.
fn with(fragments: &str) -> String {
    format!(
        "session.mint = true\n[[route]]\nmatch.path = \"/p/**\"\nshare = \"everyone\"\n\
         fragments = [{fragments}]\n[[route]]\nmatch.path = \"/partials/**\"\nshare = \"none\""
    )
}

const CART: &str = r##"{ selector = "#cart", from = "/partials/cart" }"##;
const PAGE: &str = "<html><p>before</p><div id=\"cart\"><i>empty</i></div><p>after</p></html>";

/// The page with this inside of its hole.
fn page(inside: &str) -> String {
    PAGE.replace("<i>empty</i>", inside)
}

fn user(request: &Request) -> &str {
    request.header("x-anteroom-user").unwrap_or("nobody")
}

/// A shop whose pages are all the same, and whose cart names its user.
fn carts() -> Origin {
    shop(|request| match request.path() {
        "/partials/cart" => Reply::html(&format!("<b>cart of {}</b>", user(request))),
        _ => stored(PAGE),
    })
}

fn stored(page: &str) -> Reply {
    Reply::html(page)
        .header("Cache-Control", "public, max-age=60")
        .header("ETag", "\"stored\"")
        .header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
}

fn pages_seen(origin: &Origin) -> usize {
    origin.seen().iter().filter(|request| request.path().starts_with("/p/")).count()
}

fn each_visitor_sees_a_personal_hole_in_the_same_page(storage: &Storage) {
    let origin = carts();
    let proxy = Proxy::start(&origin, storage, &with(CART));
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));

    for (number, (cookie, name)) in
        [(Some(&alice), "alice"), (Some(&bob), "bob"), (None, "nobody"), (Some(&alice), "alice")]
            .into_iter()
            .enumerate()
    {
        let ask = proxy.get("/p/1");
        let answer = match cookie {
            Some(cookie) => ask.cookie(cookie).send(),
            None => ask.send(),
        };
        assert_eq!(answer.text(), page(&format!("<b>cart of {name}</b>")));
        assert_eq!(answer.is_hit(), number > 0, "{}", answer.cache_status());
    }
    assert_eq!(pages_seen(&origin), 1);
    let fill = origin.seen().into_iter().find(|request| request.path() == "/p/1").unwrap();
    assert_eq!((fill.header("cookie"), fill.header("x-anteroom-user")), (None, None));
}

#[test]
fn a_page_with_holes_is_one_visitor_s_for_caches_behind_us() {
    let origin = carts();
    let proxy = Proxy::embedded(&origin, &with(CART));
    proxy.get("/p/1").send();

    for ask in [
        proxy.get("/p/1"),
        proxy.get("/p/1").header("If-None-Match", "\"stored\""),
        proxy.get("/p/1").header("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        proxy.get("/p/1").header("Range", "bytes=0-4"),
        proxy.get("/p/1").header("Range", "bytes=0-4").header("If-Range", "\"stored\""),
    ] {
        let answer = ask.send();
        assert_eq!((answer.status, answer.is_hit()), (200, true), "{}", answer.cache_status());
        assert_eq!(answer.text(), page("<b>cart of nobody</b>"));
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
        assert!(answer.fields.all("vary").any(|vary| vary.eq_ignore_ascii_case("cookie")));
        for name in ["etag", "last-modified", "content-length", "accept-ranges"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }
    let head = proxy.ask("HEAD", "/p/1").send();
    assert_eq!((head.status, head.header("etag")), (200, None));
    assert_eq!(head.header("cache-control"), Some("private, no-cache"));
    assert_eq!(pages_seen(&origin), 1);
}

#[test]
fn holes_are_asked_for_side_by_side() {
    let meeting = Rendezvous::of(3);
    let inside = Arc::clone(&meeting);
    let origin = Origin::start(move |request| match request.path() {
        "/p/1" => stored("<i id=a></i><i id=b></i><i id=c></i>"),
        path => {
            inside.arrive();
            Reply::html(path)
        }
    });
    let hole = |name: &str| format!("{{ selector = \"#{name}\", from = \"/partials/{name}\" }}");
    let proxy = Proxy::embedded(&origin, &with(&["a", "b", "c"].map(hole).join(", ")));
    let answer = proxy.get("/p/1").send();
    assert_eq!(
        answer.text(),
        "<i id=a>/partials/a</i><i id=b>/partials/b</i><i id=c>/partials/c</i>"
    );
    assert!(meeting.is_complete());
}

#[test]
fn a_hole_that_fails_shows_its_fallback_and_never_another_visitor_s() {
    let origin = shop(|request| match (request.path(), user(request)) {
        ("/p/1", _) => stored(PAGE),
        (_, "alice") => Reply::html("alice's"),
        ("/partials/status", _) => {
            Reply::status("500 Oops").header("Content-Type", "text/html").body("no")
        }
        ("/partials/redirect", _) => {
            Reply::status("302 Found").header("Location", "/partials/other").body("no")
        }
        ("/partials/type", _) => Reply::typed("application/json", "{\"no\":1}"),
        ("/partials/large", _) => Reply::html(&"x".repeat(2_000)),
        ("/partials/cut", _) => Reply::raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 50\r\n\r\nno",
        ),
        ("/partials/silent", _) => Reply::silence(),
        ("/partials/coding", _) => Reply::html("no").header("Content-Encoding", "gzip"),
        ("/partials/unknown", _) => Reply::html("no").header("Content-Encoding", "x-own"),
        _ => Reply::nothing(),
    });
    for (fallback, expected) in
        [("", "<i>empty</i>"), (", fallback = \"<b>none</b>\"", "<b>none</b>")]
    {
        for name in
            ["status", "redirect", "type", "large", "cut", "silent", "coding", "unknown", "gone"]
        {
            let hole = format!("{{ selector = \"#cart\", from = \"/partials/{name}\"{fallback} }}");
            let limits = "limits.fragment_timeout = \"2s\"\nlimits.fragment_size = \"1KiB\"\n";
            let proxy = Proxy::embedded(&origin, &format!("{limits}{}", with(&hole)));
            let alice = log_in(&proxy, "alice");

            let first = proxy.get("/p/1").cookie(&alice).send();
            assert_eq!(first.text(), page("alice's"), "{name}");
            let second = proxy.get("/p/1").send();
            assert_eq!((second.text(), second.is_hit()), (page(expected), true), "{name}");
            assert!(proxy.metric("anteroom_fragments_unfilled_total") == 1.0, "{name}");
            assert!(proxy.metric("anteroom_fragments_filled_total") == 1.0, "{name}");
        }
    }
}

#[test]
fn a_page_streams_before_the_hole_at_its_end_is_filled() {
    let gate = Gate::closed();
    let inside = Arc::clone(&gate);
    let long = format!("{}<div id=cart></div>", "<p>paragraph</p>".repeat(60 * 1_024));
    let served = long.clone();
    let origin = Origin::start(move |request| match request.path() {
        "/p/1" => stored(&served),
        _ => Reply::status("200 OK")
            .header("Content-Type", "text/html")
            .header("Content-Length", "4")
            .until(&inside)
            .bytes("late"),
    });
    let proxy =
        Proxy::embedded(&origin, &format!("limits.fragment_timeout = \"60s\"\n{}", with(CART)));
    let expected = long.replace("></div>", ">late</div>");
    for coding in ["identity", "gzip"] {
        let mut client = proxy.get("/p/1").header("Accept-Encoding", coding).start();
        let begun = client.head();
        if coding == "identity" {
            let start = client.until("paragraph");
            assert!(start.ends_with("<p>paragraph"));
            wait_until("the hole was asked for", || origin.busy() > 0);
            assert!(!gate.is_open());
            gate.open();
        } else {
            let answer = client.rest(begun);
            assert!(plain(&answer) == expected);
        }
    }
}

/// The body without its coding.
fn plain(answer: &Answer) -> String {
    let mut text = String::new();
    match answer.header("content-encoding") {
        None => text = answer.text(),
        Some("gzip") => {
            let mut coder = flate2::read::GzDecoder::new(answer.body.bytes.as_slice());
            coder.read_to_string(&mut text).unwrap();
        }
        Some(other) => panic!("{other}"),
    }
    text
}

#[test]
fn a_page_with_holes_is_filled_in_every_coding() {
    use std::io::Write as _;
    let text = format!("{}{PAGE}", "<p>the same again</p>".repeat(200));
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(text.as_bytes()).unwrap();
    let gzipped = coder.finish().unwrap();
    let expected = text.replace("<i>empty</i>", "<b>cart</b>");
    for comes_coded in [false, true] {
        let (text, gzipped) = (text.clone(), gzipped.clone());
        let origin = Origin::start(move |request| match request.path() {
            "/p/1" if comes_coded => Reply::status("200 OK")
                .header("Content-Type", "text/html")
                .header("Content-Encoding", "gzip")
                .header("Cache-Control", "max-age=60")
                .body(&gzipped),
            "/p/1" => stored(&text),
            _ => Reply::html("<b>cart</b>"),
        });
        for settings in ["", "cache.compress = []\n"] {
            let proxy = Proxy::embedded(&origin, &format!("{settings}{}", with(CART)));
            for accepted in [None, Some("gzip"), Some("br, zstd"), Some("gzip, br")] {
                let ask = proxy.get("/p/1");
                let answer = match accepted {
                    Some(value) => ask.header("Accept-Encoding", value).send(),
                    None => ask.send(),
                };
                if comes_coded && !settings.is_empty() {
                    continue;
                }
                assert!(plain(&answer) == expected, "{accepted:?} {comes_coded} {settings}");
                let is_zipped = settings.is_empty() && accepted.is_some_and(|a| a.contains("gzip"));
                assert_eq!(answer.header("content-encoding").is_some(), is_zipped);
                assert!(!is_zipped || answer.body.bytes.len() < text_length(&expected) / 2);
            }
        }
    }
}

fn text_length(text: &str) -> usize {
    text.len()
}

fn we_fill_holes_with_what_we_know_of_the_visitor(storage: &Storage) {
    const STRANGERS: &str =
        "<b id=name>you</b><u id=greeting>Log in</u><i id=count>0</i><p id=seen>nothing</p>";
    let holes = r##"{ selector = "#name", fill = "user" },
        { selector = "#greeting", fill = "user", template = "Hello, <a href='/users/{user}'>{user}</a>" },
        { selector = "#count", fill = "cart_count" },
        { selector = "#seen", fill = "recent", template = "<a href=\"/item/{item}\">{item}</a>" }"##;
    let holes = holes.replace('\n', " ");
    let settings = with(&holes);
    let origin = shop(|request| match request.path() {
        "/item/x" => Reply::html("an item")
            .header("Anteroom-Item", "a%20%22b%22%3C")
            .header("Cache-Control", "private"),
        "/buy" => Reply::html("bought").header("Anteroom-Cart", "mug;count=2, tea;count=3"),
        _ => stored(STRANGERS),
    });
    let proxy = Proxy::start(&origin, storage, &settings);
    let eve = log_in(&proxy, "%3Cscript%3E%26");
    assert_eq!(proxy.get("/p/1").send().text(), STRANGERS);
    proxy.get("/item/x").cookie(&eve).send();
    proxy.post("/buy").cookie(&eve).send();
    let expected = "<b id=name>&lt;script&gt;&amp;</b>\
                    <u id=greeting>Hello, <a href='/users/%3Cscript%3E%26'>&lt;script&gt;&amp;</a></u><i id=count>5</i>\
                    <p id=seen><a href=\"/item/a%20%22b%22%3C\">a &quot;b&quot;&lt;</a></p>";
    // What was viewed is written behind the answer.
    let mut text = String::new();
    wait_until("the view is known", || {
        text = proxy.get("/p/1").cookie(&eve).send().text();
        text.contains("item/a")
    });
    assert_eq!(text, expected);
}

#[test]
fn holes_for_sessions_cost_strangers_nothing() {
    let origin = carts();
    let hole = CART.replace(" }", ", on = \"session\", fallback = \"failed\" }");
    let proxy = Proxy::embedded(&origin, &with(&hole));
    assert_eq!(proxy.get("/p/1").send().text(), PAGE);
    assert_eq!(origin.count(), 1);
    let alice = log_in(&proxy, "alice");
    assert_eq!(proxy.get("/p/1").cookie(&alice).send().text(), page("<b>cart of alice</b>"));
}

#[test]
fn session_holes_are_filled_only_with_a_session_cookie() {
    let unstored = |page: &str| Reply::html(page).header("Cache-Control", "no-store");
    let session = |request: &Request| {
        let cookies = request.header("cookie").unwrap_or_default();
        cookies.split("; ").find_map(|cookie| cookie.strip_prefix("SID=")).map(str::to_owned)
    };
    let origin = shop(move |request| match request.path() {
        "/whoami" => Reply::typed("application/json", r#"{"id":0}"#),
        "/partials/cart" => {
            let whose = session(request).unwrap_or_else(|| "a stranger".to_owned());
            unstored(&format!("<b>cart of {whose}</b>"))
        }
        // The answer that takes the session away, or gives one.
        "/p/bye" => unstored(PAGE).header("Set-Cookie", "SID=; Max-Age=0; path=/"),
        "/p/hello" => unstored(PAGE).header("Set-Cookie", "SID=guest-three-3; path=/"),
        _ => stored(PAGE),
    });
    let hole = CART.replace(" }", ", on = \"session\", fallback = \"failed\" }");
    let verify = "session.cookie = \"SID\"\nsession.verify.path = \"/whoami\"\n\
                  session.verify.user = { json = \"/name\" }\n\
                  session.verify.nobody = { json = \"/id\", equals = 0 }";
    let settings = with(&hole).replace("session.mint = true", verify);
    let proxy = Proxy::embedded(&origin, &settings);
    let seen = |path: &str, cookie: &str| proxy.get(path).cookie(cookie).send().text();
    let carts = || {
        let seen = origin.seen();
        seen.iter().filter(|request| request.path() == "/partials/cart").count()
    };

    // A visitor with only an unconfigured cookie is unknown, and not a guest because of it.
    for cookie in ["consent=1", "_ga=GA1.1.2", "SIDE=guest-none-0"] {
        assert_eq!(seen("/p/1", cookie), PAGE, "{cookie}");
    }
    assert_eq!(seen("/p/hello", "consent=1"), page("<b>cart of guest-three-3</b>"));
    assert_eq!(carts(), 1);

    // The app calls them anonymous, and each has a cart in a session of the app.
    for guest in ["guest-one-1", "guest-two-2", "guest-one-1"] {
        let cookie = format!("SID={guest}");
        assert_eq!(seen("/p/1", &cookie), page(&format!("<b>cart of {guest}</b>")));
    }
    assert_eq!(carts(), 4);
    assert_eq!(proxy.get("/p/1").send().text(), PAGE, "a stranger sees no cart");
    assert_eq!(seen("/p/bye", "SID=guest-one-1"), PAGE);
    assert_eq!(carts(), 4);
}

#[test]
fn a_stranger_s_name_is_no_hole_that_failed() {
    let hole = "{ selector = \"#cart\", fill = \"user\", fallback = \"nobody\" }";
    let origin = carts();
    let proxy = Proxy::embedded(&origin, &with(hole));
    let alice = log_in(&proxy, "alice");
    for _ in 0..3 {
        assert_eq!(proxy.get("/p/1").send().text(), page("nobody"));
    }
    assert_eq!(proxy.get("/p/1").cookie(&alice).send().text(), page("alice"));
    assert_eq!(proxy.metric("anteroom_fragments_filled_total"), 1.0);
    assert_eq!(proxy.metric("anteroom_fragments_unfilled_total"), 0.0);
}

#[test]
fn a_page_that_logs_in_a_visitor_without_a_cookie_is_filled_for_the_user() {
    let hole = "{ selector = \"#cart\", fill = \"user\", fallback = \"nobody\" }";
    let origin = shop(|request| match request.path() {
        "/p/magic-link" => Reply::html(PAGE)
            .header("Cache-Control", "private, no-store")
            .header("Anteroom-Login", "alice"),
        _ => stored(PAGE),
    });
    let proxy = Proxy::embedded(&origin, &with(hole));
    assert_eq!(proxy.get("/p/magic-link").send().text(), page("alice"));
    assert_eq!(proxy.get("/p/1").send().text(), page("nobody"));
}

#[test]
fn a_hole_s_answer_changes_nothing_but_the_hole() {
    let origin = shop(|request| match request.path() {
        "/partials/cart" => Reply::html("hole")
            .header("Set-Cookie", "tracker=1")
            .header("Anteroom-Logout", "1")
            .header("Anteroom-Cart", "mug;count=2")
            .header("Anteroom-Item", "mug"),
        _ => stored(PAGE),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let alice = log_in(&proxy, "alice");
    for _ in 0..2 {
        let answer = proxy.get("/p/1").cookie(&alice).send();
        assert_eq!(answer.text(), page("hole"));
        for name in ["set-cookie", "anteroom-logout", "anteroom-cart", "anteroom-item"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }
    let me = proxy.get("/_anteroom/me").cookie(&alice).send().text();
    assert!(me.contains("alice"), "{me}");
    let cart = proxy.get("/_anteroom/cart").cookie(&alice).send().text();
    assert!(!cart.contains("mug"), "{cart}");
}

#[test]
fn a_hole_is_shared_as_its_route_or_it_says() {
    for (share, asked) in [("", 3), (", share = \"everyone\"", 1)] {
        let origin = carts();
        let hole = CART.replace(" }", &format!("{share} }}"));
        let proxy = Proxy::embedded(&origin, &with(&hole));
        let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
        for cookie in [&alice, &bob, &alice] {
            let text = proxy.get("/p/1").cookie(cookie).send().text();
            // What is everybody's is asked for without anybody.
            assert_eq!(text == page("<b>cart of nobody</b>"), asked == 1, "{text}");
        }
        let carts = origin.seen().iter().filter(|r| r.path() == "/partials/cart").count();
        assert_eq!(carts, asked, "{share}");
    }
}

#[test]
fn a_hole_of_a_segment_is_of_the_segment_of_its_page() {
    let origin = shop(|request| match (request.path(), user(request)) {
        ("/partials/cart", "alice" | "bob") => Reply::html("prices for trade"),
        ("/partials/cart", _) => Reply::html("prices for retail"),
        _ => stored(PAGE),
    });
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\nsession.mint = true\n[[route]]\nmatch.path = \"/p/**\"\nshare = \"segment\"\n\
                    segment = [\"attribute:group\"]\nfragments = [{ selector = \"#cart\", \
                    from = \"/partials/cart\", share = \"segment\" }]\n";
    let proxy = Proxy::embedded(&origin, settings);
    let members = [("alice", "trade"), ("bob", "trade"), ("carol", "retail"), ("dave", "retail")];
    let cookies = members.map(|(name, group)| log_in(&proxy, &format!("{name};group={group}")));
    for _ in 0..3 {
        for ((_, group), cookie) in members.iter().zip(&cookies) {
            let answer = proxy.get("/p/1").cookie_at_home(cookie).send();
            assert_eq!(answer.text(), page(&format!("prices for {group}")));
        }
    }
    let asked = origin.seen().iter().filter(|seen| seen.path() == "/partials/cart").count();
    assert_eq!(asked, 4, "two of each segment have proved it");
}

#[test]
fn a_hole_is_asked_for_without_what_is_the_page_s() {
    let origin = carts();
    let proxy = Proxy::embedded(&origin, &with(CART));
    let alice = log_in(&proxy, "alice");
    let answer = proxy
        .get("/p/1?q=1")
        .cookie(&format!("{alice}; lang=de"))
        .header("If-None-Match", "\"x\"")
        .header("Range", "bytes=0-1")
        .header("X-Original-URL", "/admin")
        .header("X-HTTP-Method-Override", "DELETE")
        .header("Accept-Language", "de")
        .header("Accept-Encoding", "gzip")
        .header("Anteroom-Login", "root")
        .header("X-Anteroom-User", "root")
        .send();
    assert_eq!(plain(&answer), page("<b>cart of alice</b>"));
    let hole = origin.seen().into_iter().find(|r| r.path() == "/partials/cart").unwrap();
    assert_eq!((hole.method.as_str(), hole.target.as_str()), ("GET", "/partials/cart"));
    for name in ["if-none-match", "range", "x-original-url", "x-http-method-override"] {
        assert_eq!(hole.header(name), None, "{name}");
    }
    assert_eq!(hole.header("accept-language"), Some("de"));
    assert_eq!(hole.header("accept-encoding"), Some("identity"));
    assert!(hole.header("cookie").unwrap().contains("lang=de"));
    assert_eq!(hole.header("host"), Some("shop.test"));
}

#[test]
fn a_route_that_is_guarded_is_so_for_holes_too() {
    let origin = carts();
    let settings = format!("{}\nallow_from = [\"192.0.2.0/24\"]", with(CART));
    let proxy = Proxy::embedded(&origin, &settings);
    assert_eq!(proxy.get("/p/1").send().text(), PAGE);
    assert_eq!(origin.count(), 1);
}

#[test]
fn plain_text_in_a_hole_stays_text_and_charsets_are_brought_together() {
    for (kind, body, expected) in [
        ("text/plain; charset=utf-8", &b"<b>\xc3\xa9"[..], &b"&lt;b&gt;\xe9"[..]),
        ("text/html; charset=utf-8", b"<b>\xc3\xa9\xe2\x82\xac\xe2\x98\x83", b"<b>\xe9\x80&#9731;"),
        ("text/html; charset=iso-8859-1", b"<b>\xe9", b"<b>\xe9"),
    ] {
        let origin = Origin::start(move |request| match request.path() {
            "/p/1" => Reply::typed("text/html; charset=iso-8859-1", "<p id=cart>x</p>")
                .header("Cache-Control", "max-age=60"),
            _ => Reply::status("200 OK").header("Content-Type", kind).body(body),
        });
        let proxy = Proxy::embedded(&origin, &with(CART));
        let expected = [b"<p id=cart>", expected, b"</p>"].concat();
        assert_eq!(proxy.get("/p/1").send().body.bytes, expected, "{kind}");
    }
}

#[test]
fn responses_that_are_no_page_are_left_alone() {
    let origin = Origin::start(|request| match request.path() {
        "/p/json" => Reply::typed("application/json", PAGE).header("Cache-Control", "max-age=60"),
        "/p/error" => Reply::status("500 Oops").header("Content-Type", "text/html").body(PAGE),
        "/p/none" => stored("<p>no hole</p>"),
        _ => Reply::html("hole"),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    assert_eq!(proxy.get("/p/json").send().text(), PAGE);
    assert_eq!(proxy.get("/p/error").send().text(), PAGE);
    assert_eq!(proxy.get("/p/none").send().text(), "<p>no hole</p>");
}

#[test]
fn a_forwarded_page_is_filled_too_and_a_broken_one_is_never_whole() {
    let origin = Origin::start(|request| match request.path() {
        "/p/own" => Reply::html(PAGE).header("Set-Cookie", "a=b"),
        "/p/cut" => Reply::status("200 OK")
            .header("Content-Type", "text/html")
            .header("Content-Length", "5000")
            .bytes(PAGE)
            .closing(),
        _ => Reply::html("hole"),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let own = proxy.get("/p/own").send();
    assert_eq!((own.text(), own.header("set-cookie")), (page("hole"), Some("a=b")));
    assert_eq!(own.header("cache-control"), Some("private, no-cache"));
    for _ in 0..2 {
        let cut = proxy.get("/p/cut").send();
        assert!(cut.status != 200 || !cut.body.whole, "{cut:?}");
    }
}

#[test]
fn a_client_that_leaves_calls_its_holes_off() {
    let origin = Origin::start(|request| match request.path() {
        "/p/1" => stored(PAGE),
        _ => Reply::silence(),
    });
    let proxy =
        Proxy::embedded(&origin, &format!("limits.fragment_timeout = \"60s\"\n{}", with(CART)));
    let client: Client = proxy.get("/p/1").start();
    wait_until("the hole is asked for", || origin.busy() == 1);
    client.leave();
    wait_until("nobody waits for it any more", || origin.busy() == 0);
}

#[test]
fn many_visitors_at_once_see_their_own() {
    let origin = carts();
    let proxy = Proxy::embedded(&origin, &with(CART));
    let tokens: Vec<_> = (0..8).map(|number| log_in(&proxy, &format!("user{number}"))).collect();
    let texts = at_once(8, |number| {
        let mut client = proxy.connect();
        let ask = proxy.get("/p/1").cookie(&tokens[number]);
        (0..20).map(|_| ask.send_on(&mut client).text()).collect::<Vec<_>>()
    });
    for (number, texts) in texts.into_iter().enumerate() {
        let own = page(&format!("<b>cart of user{number}</b>"));
        assert!(texts.iter().all(|text| *text == own), "user{number}: {texts:?}");
    }
}

#[test]
fn other_types_on_the_route_keep_conditions_ranges_and_codings() {
    let css = "p { color: red }\n".repeat(200);
    let origin = Origin::start(move |request| match request.path() {
        "/p/a.css" => Reply::typed("text/css", &css)
            .header("Cache-Control", "max-age=60")
            .header("ETag", "\"css\""),
        "/p/1" => stored(PAGE),
        _ => Reply::html("hole"),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let css = || proxy.get("/p/a.css");
    css().send();
    assert_eq!(css().header("If-None-Match", "\"css\"").send().status, 304);
    assert_eq!(css().header("Range", "bytes=0-4").send().status, 206);
    let coded = css().header("Accept-Encoding", "br").send();
    assert_eq!(coded.header("content-encoding"), Some("br"));
    // A page that is requested as an image is no cacheable copy of the page.
    let page = proxy.get("/p/1").header("Sec-Fetch-Dest", "image").send();
    assert_eq!((page.text().as_str(), page.header("etag")), (PAGE, None));
    assert_eq!(page.header("cache-control"), Some("private, no-cache"));
}

#[test]
fn a_visitor_over_http2_sees_personal_holes() {
    let origin = carts();
    let settings = format!("listen = [{{ address = \"{{listen}}\", h2 = true }}]\n{}", with(CART));
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let mut connection = Http2Client::open(proxy.address());
    for is_hit in [false, true] {
        let ask = http2_client::ask("GET", "/p/1", &[("cookie", &alice)]);
        let reply = connection.get(ask).unwrap();
        assert_eq!(reply.text(), page("<b>cart of alice</b>"));
        assert_eq!(reply.is_hit(), is_hit);
    }
}

#[test]
fn random_pages_are_filled_as_a_simple_replacement_would() {
    // The reference: marks in the page stand for holes, and for what they are filled with.
    let pages: Vec<String> = (0..40).map(|_| random_page()).collect();
    let served = pages.clone();
    let origin = Origin::start(move |request| match request.path().strip_prefix("/p/") {
        Some(number) => stored(
            &served[number.parse::<usize>().unwrap()]
                .replace("{{", "<b class=hole>")
                .replace("}}", "</b>"),
        ),
        None => Reply::html("<u>filled</u>"),
    });
    let hole = r#"{ selector = "b.hole", from = "/partials/cart" }"#;
    let proxy = Proxy::embedded(&origin, &with(hole));
    for (number, page) in pages.iter().enumerate() {
        let mut expected = String::new();
        for (place, part) in page.split("{{").enumerate() {
            let own = part.split_once("}}").filter(|_| place > 0);
            match own {
                Some((_, rest)) => expected += &format!("<b class=hole><u>filled</u></b>{rest}"),
                None => expected += part,
            }
        }
        for accepted in ["identity", "gzip"] {
            let ask = proxy.get(&format!("/p/{number}")).header("Accept-Encoding", accepted);
            assert_eq!(plain(&ask.send()), expected, "{page}");
        }
    }
}

/// Well-formed html with up to 20 holes, `{{own}}`.
fn random_page() -> String {
    const PARTS: [&str; 9] = [
        "text",
        "<p title='{ }'>",
        "</p>",
        "<!-- </b> -->",
        "{{}}",
        "{{own <i>content</i>}}",
        "<script>\"<b>\"</script>",
        "\u{e9}\u{1f642}",
        "<br/>",
    ];
    (0..fastrand::usize(0..60)).map(|_| PARTS[fastrand::usize(..PARTS.len())]).collect()
}

/// A page with the field by which Django knows its own forms.
fn form(token: &str, place: &str) -> String {
    let field = format!("<form><input name=csrfmiddlewaretoken value={token}></form>");
    PAGE.replace(place, &format!("{field}{place}"))
}

#[test]
fn a_csrf_field_in_a_hole_is_stored_with_no_page() {
    for settings in ["", "cache.compress = []\n"] {
        let origin = shop(|request| match request.path() {
            "/partials/cart" if user(request) == "bob" => Reply::status("500 Oops").body("no"),
            "/partials/cart" => Reply::html(user(request)),
            _ => stored(&form("secret", "<i>empty</i>")),
        });
        let proxy = Proxy::embedded(&origin, &format!("{settings}{}", with(CART)));
        let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
        assert_eq!(proxy.get("/p/1").cookie(&alice).send().text(), page("alice"));
        wait_until("the page is kept", || proxy.get("/p/1").cookie(&alice).send().is_hit());
        let before = pages_seen(&origin);
        assert_eq!(proxy.get("/p/1").send().text(), page("nobody"));
        assert_eq!(proxy.get("/p/1").cookie(&bob).send().text(), page(""));
        assert_eq!(pages_seen(&origin), before);
    }
}

#[test]
fn a_page_with_a_csrf_field_beside_a_hole_is_not_shared() {
    let origin = shop(|request| match request.path() {
        "/partials/cart" => Reply::html(user(request)),
        _ => stored(&form(user(request), "<p>after</p>")),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let alice = log_in(&proxy, "alice");
    for _ in 0..3 {
        for (cookie, name) in [(&*alice, "alice"), ("_ga=1", "nobody")] {
            let answer = proxy.get("/p/1").cookie(cookie).send();
            let expected = form(name, "<p>after</p>").replace("<i>empty</i>", name);
            assert_eq!((answer.text(), answer.is_hit()), (expected, false));
        }
    }
}

#[test]
fn a_page_that_varies_by_cookie_is_shared_among_sessions_where_it_has_holes() {
    let origin = shop(|request| match request.path() {
        "/partials/cart" => Reply::html(user(request)),
        _ => stored(PAGE).header("Vary", "Cookie"),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let alice = log_in(&proxy, "alice");
    proxy.get("/p/1").send();
    let shared = proxy.get("/p/1").cookie(&alice).send();
    assert_eq!((shared.text(), shared.is_hit()), (page("alice"), true));
    let other = proxy.get("/p/1").cookie(&format!("{alice}; lang=de")).send();
    assert_eq!((other.text(), other.is_hit()), (page("alice"), false));
}

#[test]
fn waiting_visitors_get_the_page_without_personal_content() {
    let gate = Gate::closed();
    let inside = Arc::clone(&gate);
    let origin = shop(move |request| match request.path() {
        "/partials/cart" => Reply::html(user(request)),
        _ => {
            inside.pass();
            stored(&form("secret", "<i>empty</i>"))
        }
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let names: Vec<_> = (0..4).map(|number| format!("user{number}")).collect();
    let cookies: Vec<_> = names.iter().map(|name| log_in(&proxy, name)).collect();
    let mut clients = Vec::new();
    for (number, cookie) in cookies.iter().enumerate() {
        clients.push(proxy.get("/p/1").cookie(cookie).start());
        if number == 0 {
            wait_until("the page is asked for", || origin.busy() == 1);
        }
        wait_until("he waits", || proxy.metric("anteroom_waiting") == number as f64);
    }
    gate.open();
    for (name, client) in names.iter().zip(&mut clients) {
        assert_eq!(client.answer().text(), page(name));
    }
    assert_eq!(pages_seen(&origin), 1);
    assert!(proxy.get("/p/1").cookie(&cookies[1]).send().is_hit());
}

#[test]
fn a_page_stored_with_empty_holes_stays_so_when_it_is_called_right() {
    let is_question = |request: &Request| request.header("if-none-match").is_some();
    let origin = shop(move |request| match (request.path(), user(request)) {
        ("/partials/cart", "bob") => Reply::status("500 Oops").body("no"),
        ("/partials/cart", name) => Reply::html(name),
        _ if is_question(request) => Reply::status("304 Not Modified")
            .header("ETag", "\"stored\"")
            .header("Content-Length", "1000")
            .header("Cache-Control", "max-age=60"),
        _ => Reply::html(&form("secret", "<i>empty</i>"))
            .header("Cache-Control", "max-age=60")
            .header("Age", "60")
            .header("ETag", "\"stored\""),
    });
    let proxy = Proxy::embedded(&origin, &with(CART));
    let [alice, bob] = ["alice", "bob"].map(|name| log_in(&proxy, name));
    assert_eq!(proxy.get("/p/1").cookie(&alice).send().text(), page("alice"));
    wait_until("the page is kept", || proxy.metric("anteroom_pages_stored_total") > 0.0);
    // The stale page is validated by a request without a visitor.
    let renewed = proxy.get("/p/1").cookie(&bob).send();
    assert_eq!(renewed.text(), page(""), "{}", renewed.cache_status());
    assert!(origin.seen().iter().any(is_question));
    let seen = pages_seen(&origin);
    for (ask, expected) in [
        (proxy.get("/p/1"), "nobody"),
        (proxy.get("/p/1").cookie(&alice), "alice"),
        (proxy.get("/p/1").cookie(&bob), ""),
        (proxy.get("/p/1").cookie(&bob).header("Sec-Fetch-Dest", "image"), ""),
    ] {
        let answer = ask.send();
        assert_eq!((answer.text(), answer.is_hit()), (page(expected), true));
    }
    assert_eq!(pages_seen(&origin), seen);
}

#[test]
fn the_answer_that_logs_out_shows_the_old_name_in_no_hole() {
    let origin = shop(|request| match (request.path(), request.header("cookie")) {
        ("/p/out", _) => Reply::html("<b id=name>you</b><i id=cart>none</i>")
            .header("Anteroom-Logout", "1")
            .header("Set-Cookie", "known=; Path=/; Max-Age=0"),
        (_, cookie) => Reply::html(&format!("{} {}", user(request), cookie.unwrap_or("nothing"))),
    });
    let name = r##"{ selector = "#name", fill = "user" }"##;
    let proxy = Proxy::embedded(&origin, &with(&format!("{name}, {CART}")));
    let alice = log_in(&proxy, "alice");
    let cookies = format!("{alice}; known=alice");
    let answer = proxy.get("/p/out").cookie(&cookies).send();
    assert_eq!(answer.text(), "<b id=name>you</b><i id=cart>nobody nothing</i>");
}
