//! What a route can say of its pages: keyed cookies and fields, cookies that a fill may lose,
//! lifetimes instead of the app's word.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, log_in, on_both_stores, shop};

on_both_stores!(a_keyed_cookie_splits_a_page, an_override_outweighs_the_app_s_word_on_time);

/// One route, for everything below `/page`.
fn route(settings: &str) -> String {
    format!("[[route]]\nmatch.path = \"/page/**\"\n{settings}")
}

/// An origin whose pages tell what it was sent in a field.
fn echo(name: &'static str) -> Origin {
    Origin::start(move |request| Reply::html(request.header(name).unwrap_or("none")))
}

fn a_keyed_cookie_splits_a_page(storage: &Storage) {
    let origin = echo("cookie");
    let proxy = Proxy::start(&origin, storage, &route("key_cookies = [\"lang\", \"money\"]"));
    let page = |cookie: &str| proxy.get("/page").cookie(cookie).send();

    for cookie in ["lang=de", "lang=en", "lang=", "lang=de; money=eur"] {
        assert_eq!(page(cookie).text(), cookie, "the fill is sent what is keyed");
    }
    assert_eq!(proxy.get("/page").send().text(), "none");
    assert_eq!(origin.count(), 5);

    for (cookie, text) in [
        ("_ga=1; lang=de", "lang=de"),
        ("lang=en; _gid=2", "lang=en"),
        ("lang=", "lang="),
        ("money=eur; lang=de", "lang=de; money=eur"),
        ("_ga=3", "none"),
    ] {
        let answer = page(cookie);
        assert!(answer.is_hit(), "{cookie}: {}", answer.cache_status());
        assert_eq!(answer.text(), text, "{cookie}");
    }
}

#[test]
fn a_keyed_cookie_does_not_make_its_visitor_unknown() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, &route("key_cookies = [\"lang\"]"));
    let told = |target: &str, cookie: &str| {
        proxy.post(target).cookie(cookie).send();
        origin.last().header("x-anteroom-session").map(str::to_owned)
    };
    assert_eq!(told("/page", "lang=de").as_deref(), Some("none"));
    assert_eq!(told("/page", "lang=de; other=1").as_deref(), Some("unknown"));
    assert_eq!(told("/elsewhere", "lang=de").as_deref(), Some("unknown"));
}

#[test]
fn an_override_for_a_whole_site_leaves_paths_out() {
    let origin = Origin::always(Reply::html("hello").header("Cache-Control", "no-store"));
    let settings = r#"
[[route]]
match.path = ["/account/**", "/login"]
share = "none"
[[route]]
match.path = "/**"
override_ttl = "60s"
"#;
    let proxy = Proxy::embedded(&origin, settings);
    for (path, is_kept) in [
        ("/", true),
        ("/news/7", true),
        ("/Accounts", true),
        ("/account/orders", false),
        ("/login", false),
        ("/ACCOUNT/orders", false),
        ("/account;x=1/orders", false),
        ("/account%2Forders", false),
        ("/%61ccount/orders", false),
        ("/%2561ccount/orders", false),
        ("//account/orders", false),
        ("/Login", false),
        ("/login/", false),
        ("/login;x=1", false),
        ("/login%20", false),
    ] {
        proxy.get(path).send();
        let answer = proxy.get(path).send();
        assert_eq!(answer.is_hit(), is_kept, "{path}: {}", answer.cache_status());
    }
}

#[test]
fn a_keyed_field_splits_a_page_and_reaches_the_fill() {
    let origin = echo("x-country");
    let proxy = Proxy::embedded(&origin, &route("key_headers = [\"X-Country\"]"));
    let page = |target: &str, country: &str| proxy.get(target).header("X-Country", country).send();

    for country in ["de", "fr"] {
        assert_eq!(page("/page", country).text(), country);
        assert!(page("/page", country).is_hit());
    }
    assert_eq!(proxy.get("/page").send().text(), "none");
    assert_eq!(page("/elsewhere", "de").text(), "de", "the visitor's own request");
    assert_eq!(page("/elsewhere", "de").text(), "none", "not where it is not keyed");
}

#[test]
fn a_field_no_client_may_send_is_not_sent_in_a_fill() {
    let origin = echo("x_country");
    for key in ["key_headers", "send_headers"] {
        let proxy = Proxy::embedded(&origin, &route(&format!("{key} = [\"x_country\"]")));
        assert_eq!(proxy.get("/page").header("x_country", "de").send().text(), "none", "{key}");
    }
}

#[test]
fn a_fragment_is_cached_beside_its_page_where_its_field_is_keyed() {
    let origin = echo("hx-request");
    let proxy = Proxy::embedded(&origin, &route("key_headers = [\"HX-Request\"]"));
    let fragment = || proxy.get("/page").header("HX-Request", "true").send();

    assert_eq!(
        (fragment().text(), proxy.get("/page").send().text().as_str()),
        ("true".into(), "none")
    );

    for (answer, text) in [(fragment(), "true"), (proxy.get("/page").send(), "none")] {
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), text);
    }
    let other = proxy.get("/page").header("X-Requested-With", "XMLHttpRequest").send();
    assert!(!other.is_hit(), "another fragment field is not keyed");
}

#[test]
fn a_fill_loses_the_cookies_that_its_route_names() {
    let origin = Origin::start(|request| {
        let reply = Reply::html("hello").header("Set-Cookie", "JSESSIONID=0a1b; Path=/");
        if request.path() == "/page/two" { reply.header("Set-Cookie", "b=1") } else { reply }
    });
    let proxy = Proxy::embedded(&origin, &route("strip_set_cookie = [\"JSESSIONID\"]"));

    let one = [proxy.get("/page/one").send(), proxy.get("/page/one").send()];
    let two = [proxy.get("/page/two").send(), proxy.get("/page/two").send()];
    let elsewhere = [proxy.get("/").send(), proxy.get("/").send()];

    assert!(one[1].is_hit(), "{}", one[1].cache_status());
    assert!(one.iter().all(|answer| answer.set_cookie("JSESSIONID").is_none()), "{one:?}");
    for answers in [two, elsewhere] {
        assert!(!answers[1].is_hit(), "{}", answers[1].cache_status());
        assert!(answers.iter().all(|answer| answer.set_cookie("JSESSIONID").is_some()));
    }
}

#[test]
fn a_log_in_is_not_lost_where_a_route_strips_the_cookies_of_all_pages() {
    // As DokuWiki does: everybody gets one cookie and loses the other, which is the login's.
    let origin = Origin::start(|request| {
        if request.target.ends_with("?u=alice") {
            Reply::html("hello, alice").header("Set-Cookie", "DWab=alice; path=/")
        } else {
            let reply = Reply::html("hello").header("Set-Cookie", "DokuWiki=0a1b; path=/");
            reply.header("Set-Cookie", "DWab=deleted; Max-Age=0; path=/")
        }
    });
    let proxy = Proxy::embedded(&origin, &route("strip_set_cookie = [\"DokuWiki\"]"));

    let page = [proxy.get("/page").send(), proxy.get("/page").send()];
    let log_in = [proxy.get("/page?u=alice").send(), proxy.get("/page?u=alice").send()];

    assert!(page[1].is_hit(), "{}", page[1].cache_status());
    assert!(page[1].set_cookie("DWab").is_none());
    for answer in log_in {
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.set_cookie("DWab"), Some("DWab=alice; path=/"));
    }
}

/// What PHP sends with every page once a session was begun.
fn php(reply: Reply) -> Reply {
    reply
        .header("Expires", "Thu, 19 Nov 1981 08:52:00 GMT")
        .header("Cache-Control", "no-store, no-cache, must-revalidate")
        .header("Pragma", "no-cache")
}

fn an_override_outweighs_the_app_s_word_on_time(storage: &Storage) {
    let origin = Origin::always(php(Reply::html("hello")));
    let proxy = Proxy::start(&origin, storage, &route("override_ttl = \"60s\""));

    let [page, elsewhere] = ["/page", "/"].map(|path| {
        proxy.get(path).send();
        proxy.get(path).send()
    });

    assert!(page.is_hit(), "{}", page.cache_status());
    assert_eq!(page.header("pragma"), Some("no-cache"), "browsers are told what the app said");
    assert!(!elsewhere.is_hit(), "{}", elsewhere.cache_status());
}

#[test]
fn an_override_never_outweighs_what_makes_a_page_personal() {
    let origin = Origin::start(|request| match request.path() {
        "/page/private" => Reply::html("x").header("Cache-Control", "private"),
        "/page/cookie" => php(Reply::html("x")).header("Set-Cookie", "a=1"),
        "/page/vary" => php(Reply::html("x")).header("Vary", "*"),
        "/page/form" => php(Reply::html("<form><input name=csrf_token value=1></form>")),
        "/page/file" => php(Reply::html("x")).header("Content-Disposition", "attachment"),
        "/page/x.css" => php(Reply::html("x")),
        "/page/login" => Reply::status("302 Found").header("Location", "/").body(""),
        _ => php(Reply::html(request.header("authorization").unwrap_or("nobody"))),
    });
    let proxy = Proxy::embedded(&origin, &route("override_ttl = \"60s\""));

    for path in ["private", "cookie", "vary", "form", "file", "x.css", "login"] {
        let path = format!("/page/{path}");
        proxy.get(&path).send();
        let again = proxy.get(&path).send();
        assert!(!again.is_hit(), "{path}: {}", again.cache_status());
    }
    for who in ["Basic YWxpY2U6", "Basic Ym9iOg=="] {
        assert_eq!(proxy.get("/page/me").header("Authorization", who).send().text(), who);
    }
    assert_eq!(proxy.get("/page/me").send().text(), "nobody");
}

#[test]
fn private_can_be_known_for_a_habit_and_hides_no_visitor_s_page() {
    let origin = shop(|request| {
        let user = request.header("x-anteroom-user").unwrap_or("stranger");
        Reply::html(user).header("Cache-Control", "private, no-store")
    });
    let settings = route("override_ttl = \"60s\"\noverride_private = true");
    let settings = format!("session.cookie = \"login\"\nsession.mint = true\n{settings}");
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");

    for _ in 0..2 {
        assert_eq!(proxy.get("/page").send().text(), "stranger");
        assert_eq!(proxy.get("/page").cookie(&alice).send().text(), "alice");
    }
    assert!(proxy.get("/page").send().is_hit());
    proxy.get("/").send();
    assert!(!proxy.get("/").send().is_hit(), "only on its route");
}

#[test]
fn only_kept_parameters_split_a_page_and_reach_the_fill() {
    let origin = Origin::start(|request| Reply::html(&request.target));
    let proxy = Proxy::embedded(&origin, &route("keep_query = [\"page\"]"));
    let page = |target: &str| proxy.get(target).send();

    assert_eq!(page("/page?page=1&ref=a").text(), "/page?page=1");
    assert_eq!(page("/page?x=2").text(), "/page");
    for target in ["/page?ref=b&page=1", "/page?page=1", "/page", "/page?y"] {
        assert!(page(target).is_hit(), "{target}");
    }
    assert_eq!(origin.count(), 2);
    // Elsewhere the whole query counts.
    assert_eq!(page("/other?x=2").text(), "/other?x=2");
}

#[test]
fn a_purge_finds_the_page_whatever_the_query_that_it_names() {
    let origin = Origin::start(|request| Reply::html(&request.target));
    let settings =
        "purge.method = true\npurge.purge_from = [\"127.0.0.1\"]\npurge.purge_token = \"none\"\n";
    let proxy = Proxy::embedded(&origin, &(settings.to_owned() + &route("keep_query = []")));
    for target in ["/page?ref=a", "/page", "/page?page=7"] {
        proxy.get("/page").send();
        assert!(proxy.get("/page?ref=b").send().is_hit());
        assert_eq!(proxy.ask("PURGE", target).send().status, 200);
        assert!(!proxy.get("/page").send().is_hit(), "{target}");
    }
}

#[test]
fn a_post_outdates_the_page_whose_url_lacks_the_query() {
    let origin = Origin::start(|request| Reply::html(&request.target));
    let proxy = Proxy::embedded(&origin, &route("keep_query = []"));
    proxy.get("/page").send();
    proxy.post("/page?action=buy").send();
    assert!(!proxy.get("/page").send().is_hit());
}

#[test]
fn a_route_may_match_by_a_regular_expression() {
    let origin = Origin::always(Reply::typed("application/json", "{}"));
    let settings = "[[route]]\nmatch.path = '~^/api/v[0-9]+/(?P<item>[a-z]+)$'\nttl = \"60s\"";
    let proxy = Proxy::embedded(&origin, settings);
    for (target, is_stored) in [
        ("/api/v1/mug", true),
        ("/api/v22/mug", true),
        ("/api/vx/mug", false),
        ("/api/v1/mug/a", false),
    ] {
        proxy.get(target).send();
        assert_eq!(proxy.get(target).send().is_hit(), is_stored, "{target}");
    }
}

#[test]
fn a_status_may_have_a_lifetime_of_its_own() {
    let origin = Origin::start(|request| match request.target.as_str() {
        "/page/moved" => Reply::status("302 Found").header("Location", "/elsewhere").body(""),
        _ => Reply::status("404 Not Found").body(""),
    });
    let proxy = Proxy::embedded(&origin, &route("ttl = { 302 = \"60s\" }"));
    for (target, is_stored) in [("/page/moved", true), ("/page/gone", false)] {
        proxy.get(target).send();
        let answer = proxy.get(target).send();
        assert_eq!(answer.is_hit(), is_stored, "{target}: {}", answer.cache_status());
    }
}

#[test]
fn a_route_may_stay_out_of_the_access_log() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, &route("access_log = false"));
    proxy.get("/page").send();
    proxy.get("/elsewhere").send();
    let lines = proxy.access_log(1);
    assert_eq!(lines[0]["path"], "/elsewhere");
    assert_eq!(proxy.metric("anteroom_requests_total{status=\"2xx\"}"), 2.0);
}
