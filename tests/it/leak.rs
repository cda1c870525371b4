//! Each kind of personal response, and the leak that must not happen with it.
//!
//! The pages that are shared on purpose are in `sharing`.

use std::io::Write as _;

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, log_in, shop};

/// Asks twice for `path` and says that the origin was asked each time.
#[track_caller]
fn assert_never_shared(origin: &Origin, proxy: &Proxy, path: &str) {
    let before = origin.count();
    let answers = [proxy.get(path).send(), proxy.get(path).send()];
    assert!(answers.iter().all(|a| !a.is_hit()), "{path}: {}", answers[1].cache_status());
    assert!(origin.count() >= before + 2, "{path}: the origin was asked once only");
}

#[track_caller]
fn assert_page_never_shared(page: Reply) {
    let origin = Origin::always(page);
    let proxy = Proxy::embedded(&origin, "");
    assert_never_shared(&origin, &proxy, "/");
}

#[test]
fn a_private_page_is_not_shared() {
    assert_page_never_shared(Reply::html("x").header("Cache-Control", "private, max-age=60"));
}

#[test]
fn a_no_store_page_is_not_shared() {
    assert_page_never_shared(Reply::html("x").header("Cache-Control", "no-store, max-age=60"));
}

#[test]
fn a_page_that_varies_by_everything_is_not_shared() {
    let page = Reply::html("x").header("Cache-Control", "max-age=60").header("Vary", "*");
    assert_page_never_shared(page);
}

#[test]
fn a_page_with_a_csrf_field_is_not_shared() {
    for field in [
        r#"<input type="hidden" name="csrfmiddlewaretoken" value="a1">"#,
        r#"<input value='a1' name='authenticity_token'>"#,
        r"<INPUT NAME=__RequestVerificationToken VALUE=a1>",
        r#"<meta name="csrf-token" content="a1">"#,
        r#"<input name="_token" value="a1">"#,
        r#"<input name="wpEditToken" value="a1+\">"#,
    ] {
        let page = format!("<html><body><form>{field}</form></body></html>");
        assert_page_never_shared(Reply::html(&page).header("Cache-Control", "max-age=60"));
    }
}

#[test]
fn a_page_that_may_turn_out_personal_is_not_said_to_be_kept() {
    let origin = Origin::start(|request| match request.path() {
        "/form" => Reply::html("<form><input name=csrf_token value=a1></form>"),
        "/style.css" => Reply::typed("text/css", "body {}"),
        _ => Reply::html("hello"),
    });
    let proxy = Proxy::embedded(&origin, "");
    for (path, later) in [("/form", "fwd=bypass; detail=csrf-field"), ("/", "hit; ttl=")] {
        let first = proxy.get(path).send();
        assert_eq!(first.cache_status(), "anteroom; fwd=uri-miss", "{path}");
        let second = proxy.get(path).send();
        assert!(second.cache_status().starts_with(&format!("anteroom; {later}")), "{second:?}");
    }
    let style = proxy.get("/style.css").send();
    assert!(style.cache_status().starts_with("anteroom; fwd=uri-miss; stored; ttl="), "{style:?}");
}

#[test]
fn a_page_with_the_constant_csrf_token_is_shared() {
    // MediaWiki gives every stranger the same constant; a person's token has digits before it.
    let page = r#"<form><input name="wpEditToken" value="+\"></form>"#;
    let origin = Origin::always(Reply::html(page));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    assert!(proxy.get("/").send().is_hit());
}

#[test]
fn a_page_that_only_talks_about_csrf_tokens_is_shared() {
    let page = "<p>Put csrf_token into a form, as <code>name=\"csrf_token\"</code> says.</p>";
    let origin = Origin::always(Reply::html(page));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    assert!(proxy.get("/").send().is_hit());
}

#[test]
fn a_page_with_a_session_id_in_a_link_is_not_shared() {
    for link in [
        "/cart;jsessionid=0A1B2C3D4E5F",
        "/cart?PHPSESSID=0a1b2c3d4e5f",
        "/cart?osCsid=0a1b2c3d4e5f",
        "/(S(lit3py55t21z5v55vlm25s55))/cart.aspx",
    ] {
        assert_page_never_shared(Reply::html(&format!("<a href=\"{link}\">cart</a>")));
    }
}

#[test]
fn a_compressed_page_with_a_csrf_field_is_not_shared() {
    let page = b"<form><input type=hidden name=csrf_token value=a1></form>";
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(page).unwrap();
    let reply = Reply::status("200 OK")
        .header("Content-Type", "text/html")
        .header("Content-Encoding", "gzip")
        .body(coder.finish().unwrap());
    assert_page_never_shared(reply);
}

#[test]
fn a_page_in_an_unknown_coding_is_not_shared() {
    assert_page_never_shared(Reply::html("??").header("Content-Encoding", "x-secret"));
}

#[test]
fn a_session_id_in_the_url_is_not_shared() {
    let origin = Origin::always(Reply::html("your cart").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    for path in [
        "/cart;jsessionid=0A1B2C3D",
        "/cart?PHPSESSID=0a1b2c",
        "/cart?sid=0a1b2c",
        "/(S(abc123))/cart",
    ] {
        assert_never_shared(&origin, &proxy, path);
    }
}

#[test]
fn a_one_time_link_is_not_stored_by_default() {
    let origin = Origin::always(Reply::html("confirmed"));
    let proxy = Proxy::embedded(&origin, "");
    for path in ["/a?token=9f3", "/a?code=9f3", "/a?signature=9f3", "/a?X-Amz-Signature=9f3"] {
        assert_never_shared(&origin, &proxy, path);
    }
}

#[test]
fn an_odd_path_is_never_shared() {
    let origin = Origin::always(Reply::html("whose?").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "");
    for path in ["/static/..%2faccount", "/static/../account", "/static/%2e%2e/account", "/a%00b"] {
        assert_never_shared(&origin, &proxy, path);
        assert_eq!(origin.last().target, path, "it goes on byte for byte");
    }
}

#[test]
fn a_personal_page_under_a_style_sheet_s_name_is_not_stored() {
    let origin = shop(|request| Reply::html(request.header("x-anteroom-user").unwrap_or("nobody")));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let alice = log_in(&proxy, "alice");

    assert_eq!(proxy.get("/account/x.css").cookie(&alice).send().text(), "alice");

    assert_never_shared(&origin, &proxy, "/account/x.css");
}

#[test]
fn a_fill_carries_nothing_of_the_visitor() {
    let origin = Origin::always(Reply::html("welcome"));
    let proxy = Proxy::embedded(&origin, "session.mint = true");

    let ask = proxy
        .get("/?utm_source=mail")
        .cookie("login=0123456789abcdef0123456789abcdef; _ga=GA1.2.3")
        .header("X-Whatever", "evil")
        .header("If-None-Match", "\"1\"");
    // The first shows that such a page may be shared.
    assert!([ask.send(), ask.send()].iter().all(|answer| !answer.is_hit()));

    let fill = origin.last();
    assert_eq!(fill.target, "/");
    for name in ["cookie", "x-whatever", "if-none-match", "x-anteroom-user"] {
        assert_eq!(fill.header(name), None, "{name}");
    }
}

#[test]
fn a_fill_cannot_be_poisoned_by_override_headers() {
    let origin = Origin::start(|request| {
        Reply::html(&format!("{:?}", request.fields.iter().collect::<Vec<_>>()))
    });
    let proxy = Proxy::embedded(&origin, "");

    let ask = proxy
        .get("/")
        .header("X-Forwarded-Host", "evil.test")
        .header("X-Forwarded-For", "evil.test")
        .header("Forwarded", "host=evil.test")
        .header("X-Original-URL", "/evil.test")
        .header("X-Rewrite-URL", "/evil.test")
        .header("X-Host", "evil.test")
        .header("X-HTTP-Method-Override", "evil.test");

    // The first is sent as it came, and shows that such a page may be shared.
    assert!(ask.send().text().contains("evil.test"));
    for answer in [proxy.get("/").send(), ask.send(), proxy.get("/").send()] {
        assert!(!answer.text().contains("evil.test"), "{}", answer.text());
    }
}

#[test]
fn a_part_of_a_page_is_never_given_as_the_page() {
    let origin = Origin::start(|request| match request.header("range") {
        Some(_) => Reply::status("206 Partial Content")
            .header("Content-Type", "text/html")
            .header("Content-Range", "bytes 0-3/9")
            .header("Cache-Control", "max-age=60")
            .body("part"),
        None => Reply::html("all of it").header("Cache-Control", "max-age=60"),
    });
    let proxy = Proxy::embedded(&origin, "");

    let part = proxy.get("/").header("Range", "bytes=0-3").send();

    assert!(matches!((part.status, part.text().as_str()), (206, "part") | (200, "all of it")));
    for _ in 0..2 {
        assert_eq!(proxy.get("/").send().text(), "all of it");
    }
}

#[test]
fn a_get_with_a_body_never_fills() {
    let origin =
        Origin::start(|request| Reply::html(&String::from_utf8_lossy(&request.body.bytes)));
    let proxy = Proxy::embedded(&origin, "");

    assert_eq!(proxy.get("/").body(b"poison").send().text(), "poison");

    assert_eq!(proxy.get("/").send().text(), "");
}

#[test]
fn a_request_with_a_session_that_is_over_is_sent_as_it_came() {
    let origin = Origin::start(|request| {
        let came_with = request.header("cookie").unwrap_or("nothing").to_owned();
        Reply::html(&format!("for {came_with}")).header("Set-Cookie", "basket=7")
    });
    let proxy = Proxy::embedded(&origin, "session.mint = true");

    let answer = proxy.get("/").cookie("login=no-longer-known").send();

    assert_eq!(answer.text(), "for login=no-longer-known");
    assert_eq!(answer.set_cookie("basket"), Some("basket=7"));
    let seen = origin.seen();
    let cookies: Vec<_> = seen.iter().map(|request| request.header("cookie")).collect();
    assert_eq!(cookies, [Some("login=no-longer-known")]);
}

#[test]
fn a_body_that_broke_off_is_never_stored_and_the_visitor_sees_it() {
    let page = Reply::status("200 OK")
        .header("Content-Type", "text/html")
        .header("Cache-Control", "max-age=60");
    let fixed = page.clone().header("Content-Length", "100");
    let chunked = page.header("Transfer-Encoding", "chunked").bytes("64\r\n");
    for page in [fixed, chunked] {
        let page = page.bytes("only half").closing();
        let origin = Origin::always(page);
        let proxy = Proxy::embedded(&origin, "");
        for asked in 1..=2 {
            let answer = proxy.get("/").try_send_on(&mut proxy.connect());
            assert!(was_cut(answer.as_ref()), "{answer:?}");
            assert_eq!(origin.count(), asked);
        }
    }
}

/// Whether a visitor can tell that this is not the whole page.
fn was_cut(answer: Option<&Answer>) -> bool {
    answer.is_none_or(|answer| !answer.body.whole || answer.status == 502)
}

#[test]
fn a_fragment_for_scripts_is_not_given_as_a_page() {
    for (name, value) in
        [("X-Requested-With", "XMLHttpRequest"), ("HX-Request", "true"), ("RSC", "1")]
    {
        let origin = Origin::start(move |request| {
            Reply::html(if request.header(name).is_some() { "fragment" } else { "page" })
        });
        let proxy = Proxy::embedded(&origin, "");

        for _ in 0..2 {
            assert_eq!(proxy.get("/").header(name, value).send().text(), "fragment");
            assert_eq!(proxy.get("/").send().text(), "page");
        }
    }
}

#[test]
fn a_page_by_language_goes_to_that_language() {
    let origin = Origin::start(|request| {
        Reply::html(request.header("accept-language").unwrap_or("none"))
            .header("Vary", "Accept-Language")
    });
    let proxy = Proxy::embedded(&origin, "");

    for _ in 0..2 {
        for language in ["de", "fr"] {
            let answer = proxy.get("/").header("Accept-Language", language).send();
            assert_eq!(answer.text(), language);
        }
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn a_page_that_the_app_may_choose_by_a_removed_field_goes_past_the_cache() {
    let origin = Origin::start(|request| {
        Reply::html(request.header("x-country").unwrap_or("none")).header("Vary", "X-Country")
    });
    let proxy = Proxy::embedded(&origin, "");

    assert_eq!(proxy.get("/").send().text(), "none");

    assert_eq!(proxy.get("/").header("X-Country", "de").send().text(), "de");
    assert_eq!(proxy.get("/").send().text(), "none");
}

#[test]
fn two_sites_do_not_share_a_page() {
    let origin = Origin::start(|request| Reply::html(request.header("host").unwrap_or("none")));
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..2 {
        for site in ["one.test", "two.test", "one.test:8080"] {
            assert_eq!(proxy.get("/").host(site).send().text(), site);
        }
    }
}

#[test]
fn behind_a_proxy_that_mixes_visitors_a_login_of_a_connection_stays_with_its_request() {
    let origin = Origin::start(|request| match request.header("authorization") {
        Some(_) => Reply::unstored("hello alice"),
        None => Reply::unstored("hello stranger"),
    });
    let settings = "threads = 1\nclient.trusted_proxies = [\"127.0.0.0/8\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let mut front = proxy.connect();

    let alice = proxy.get("/").header("Authorization", "NTLM TlRMTVNTUAAD").send_on(&mut front);
    let bob = proxy.post("/").send_on(&mut front);

    assert_eq!((alice.text().as_str(), bob.text().as_str()), ("hello alice", "hello stranger"));
    let seen = origin.seen();
    let [.., hers, his] = &seen[..] else { panic!("{seen:?}") };
    assert_ne!(hers.connection, his.connection, "Bob's request went over Alice's connection");
}

#[test]
fn a_connection_authenticated_by_ntlm_serves_no_other_client() {
    let origin = Origin::start(|request| match request.header("authorization") {
        Some(_) => Reply::unstored("hello alice"),
        None => Reply::status("401 Unauthorized").header("WWW-Authenticate", "NTLM").body("who?"),
    });
    let proxy = Proxy::embedded(&origin, "threads = 1");
    let mut alice = proxy.connect();

    let [offer, first, second] =
        [None, Some("NTLM TlRMTVNTUAAB"), Some("NTLM TlRMTVNTUAAD")].map(|credentials| {
            let ask = proxy.get("/");
            let ask = match credentials {
                Some(credentials) => ask.header("Authorization", credentials),
                None => ask,
            };
            ask.send_on(&mut alice)
        });
    let still_hers = proxy.get("/").send_on(&mut alice);
    proxy.post("/").send();

    let statuses = [offer, first, second, still_hers].map(|answer| answer.status);
    assert_eq!(statuses, [401, 200, 200, 401]);
    let on: Vec<_> = origin.seen().iter().rev().map(|request| request.connection).collect();
    let [stranger, third, second, first, ..] = on[..] else { panic!("{on:?}") };
    assert!(first == second && second == third, "{on:?}");
    assert_ne!(third, stranger, "{on:?}");
    drop(alice);
    proxy.post("/").send();
    assert_ne!(origin.last().connection, third, "it ends with her connection");
}

#[test]
fn unknown_cookies_can_be_declared_harmless_for_a_whole_site() {
    let origin = Origin::always(Reply::html("hello").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::embedded(&origin, "cache.unknown_cookies = \"ignore\"");

    // The first is sent as it came: its response shows that the page is the same for all.
    for expected in [Some("language=de"), None] {
        proxy.get("/").cookie("language=de").send();
        assert_eq!(origin.last().header("cookie"), expected);
    }
    assert!(proxy.get("/").cookie("language=fr").send().is_hit());
}

#[test]
fn where_public_is_believed_nothing_less_is() {
    for (said, shared) in [("max-age=60", false), ("public, max-age=60", true)] {
        let origin = shop(move |request| {
            let who = ["authorization", "x-anteroom-user"].map(|name| request.header(name));
            let who = match who {
                [Some(_), _] => "somebody",
                [None, Some(user)] => user,
                [None, None] => "nobody",
            };
            Reply::html(who).header("Cache-Control", said)
        });
        let proxy = Proxy::embedded(&origin, "session.mint = true\ncache.trust_public = true");
        let alice = log_in(&proxy, "alice");

        for again in [false, true] {
            let known = proxy.get("/known").cookie(&alice).send();
            assert_eq!(known.text(), if shared { "nobody" } else { "alice" }, "{said}");
            let basic = proxy.get("/basic").header("Authorization", "Basic Ym9iOg==").send();
            // RFC 9111 §3.5: the origin has seen the credentials, and calls its answer public.
            assert_eq!((basic.text().as_str(), basic.is_hit()), ("somebody", shared && again));
        }
    }
}

#[test]
fn a_cookie_named_harmless_neither_splits_nor_blocks() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "cache.ignore_cookies = [\"consent\", \"ab_*\"]");

    proxy.get("/").cookie("consent=yes; ab_test=1").send();

    assert!(proxy.get("/").cookie("ab_test=2").send().is_hit());
    assert!(!proxy.get("/").cookie("consent=yes; other=1").send().is_hit());
}

#[test]
fn a_page_for_everyone_is_filled_without_the_visitor() {
    let origin = shop(echo_who);
    let proxy = Proxy::embedded(
        &origin,
        "session.mint = true\n[[route]]\nmatch.path = \"/public/**\"\nshare = \"everyone\"",
    );
    let (alice, bob) = (log_in(&proxy, "alice"), log_in(&proxy, "bob"));

    let first = proxy.get("/public/a").cookie(&alice).send();
    let second = proxy.get("/public/a").cookie(&bob).send();

    assert_eq!((first.text(), second.text()), ("- -".to_owned(), "- -".to_owned()));
    assert!(second.is_hit(), "{}", second.cache_status());
}

fn echo_who(request: &Request) -> Reply {
    let [cookie, user] =
        ["cookie", "x-anteroom-user"].map(|name| request.header(name).unwrap_or("-").to_owned());
    Reply::html(&format!("{cookie} {user}"))
}

#[test]
fn a_route_without_sharing_stores_nothing() {
    let origin = Origin::always(Reply::html("x").header("Cache-Control", "public, max-age=60"));
    let proxy =
        Proxy::embedded(&origin, "[[route]]\nmatch.path = \"/account/**\"\nshare = \"none\"");
    assert_never_shared(&origin, &proxy, "/account/orders");
}

#[test]
fn a_known_visitor_s_page_is_marked_private_for_caches_behind_us() {
    let origin = shop(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let alice = log_in(&proxy, "alice");

    let answer = proxy.get("/").cookie(&alice).send();

    assert_eq!(answer.header("cache-control"), Some("private, no-cache"));
    assert!(answer.fields.all("vary").any(|vary| vary.eq_ignore_ascii_case("cookie")));
}

#[test]
fn a_post_is_never_answered_from_the_cache() {
    let origin = Origin::start(|request| Reply::html(&request.method));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    assert_eq!(proxy.post("/").send().text(), "POST");
}

#[test]
fn a_keyed_cookie_that_comes_twice_or_in_quotes_fills_no_other_visitor_s_page() {
    // Some apps believe the last cookie of a name, and some keep its quotes.
    let origin = Origin::start(|request| Reply::html(request.header("cookie").unwrap_or("-")));
    let route = "[[route]]\nmatch.path = \"/{item}\"\nkey_cookies = [\"lang\"]";
    for (path, odd) in [("/twice", "lang=de; lang=xx"), ("/quoted", "lang=\"de\"")] {
        let proxy = Proxy::embedded(&origin, route);
        proxy.get(path).cookie(odd).send();
        assert_eq!(proxy.get(path).cookie("lang=de").send().text(), "lang=de");
    }
}

#[test]
fn a_shared_page_is_asked_for_by_the_site_s_own_name() {
    let origin = Origin::start(|request| Reply::html(request.header("host").unwrap_or("-")));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").host("shop.test:80").send();
    assert_eq!(proxy.get("/").send().text(), "shop.test");
    let sent = origin.last();
    assert_eq!(sent.header("x-forwarded-host"), Some("shop.test"));
}

#[test]
fn a_path_that_no_route_can_read_is_never_shared() {
    let origin = Origin::always(Reply::html("whose?").header("Cache-Control", "max-age=60"));
    let route = "[[route]]\nmatch.path = \"/account/**\"\nshare = \"none\"";
    let proxy = Proxy::embedded(&origin, route);
    assert_never_shared(&origin, &proxy, "/%61ccount/%ff");
}
