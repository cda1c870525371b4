//! What a route does with requests and answers besides the cache: fields, redirects, required logins, and
//! maintenance.

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, log_in, shop};

fn route(path: &str, settings: &str) -> String {
    format!("[[route]]\nmatch.path = {path:?}\n{settings}\n")
}

#[test]
fn response_fields_are_set_last_on_hits_and_misses() {
    let origin = Origin::always(Reply::html("hello").header("X-Frame-Options", "ALLOWALL"));
    let settings =
        "set_headers = { X-Frame-Options = \"DENY\", \"X-At\" = \"{scheme}://{host}{path}\" }";
    let proxy = Proxy::embedded(&origin, &route("/page/**", settings));
    for (is_hit, method) in [(false, "GET"), (true, "GET"), (true, "HEAD")] {
        let answer = proxy.ask(method, "/page/a%20b").send();
        assert_eq!(answer.is_hit(), is_hit);
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        let at = answer.header("x-at").unwrap();
        assert!(at.starts_with("http://") && at.ends_with("/page/a%20b"), "{at}");
    }
    assert_eq!(proxy.get("/other").send().header("x-frame-options"), Some("ALLOWALL"));
}

#[test]
fn a_change_of_the_rules_changes_what_stored_pages_come_with() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, &route("/", "set_headers = { X-A = \"1\" }"));
    assert_eq!(proxy.get("/").send().header("x-a"), Some("1"));
    proxy.edit(|text| text.replace("X-A = \"1\"", "X-A = \"2\""));
    assert!(proxy.reload(), "{}", proxy.complaints());
    let answer = proxy.get("/").send();
    assert!(answer.is_hit());
    assert_eq!(answer.header("x-a"), Some("2"));
}

#[test]
fn the_app_gets_what_the_route_sets_and_not_what_it_removes() {
    let origin = Origin::always(Reply::html("hello"));
    let settings =
        "set_request_headers = { X-Shop = \"{host}\" }\nremove_request_headers = [\"Referer\"]";
    let proxy = Proxy::embedded(&origin, &route("/**", settings));
    for method in ["GET", "POST"] {
        let ask =
            proxy.ask(method, "/").header("Referer", "http://a.test/").header("X-Shop", "mine");
        ask.header("Accept-Language", "de").send();
        let last = origin.last();
        assert_eq!(last.header("x-shop"), last.header("host"), "{method}");
        assert_eq!(last.header("referer"), None, "{method}");
        assert_eq!(last.header("accept-language"), Some("de"), "{method}");
    }
}

#[test]
fn the_app_gets_a_rewritten_path_and_everything_else_uses_the_client_s() {
    let origin = Origin::start(|request| Reply::html(&request.target));
    let settings = "strip_prefix = \"/shop\"\nadd_prefix = \"/app\"\nkeep_query = [\"a\"]";
    let proxy = Proxy::embedded(&origin, &route("/shop/**", settings));
    for (target, sent) in [
        ("/shop/item/1?a=2&b=3", "/app/item/1?a=2"),
        ("/shop", "/app"),
        ("/sh%6Fp/x%2Fy", "/app/x%2Fy"),
        ("/shopping", "/shopping"),
    ] {
        assert_eq!(proxy.get(target).send().text(), sent, "{target}");
    }
    assert_eq!(proxy.post("/shop/a?b=3").send().text(), "/app/a?b=3");
    assert!(proxy.get("/shop/item/1?a=2").send().is_hit());
    assert!(!proxy.get("/app/item/1?a=2").send().is_hit());
    let lines = proxy.access_log(1);
    assert_eq!(lines[0]["path"], "/shop/item/1");
}

#[test]
fn a_route_may_redirect() {
    let origin = Origin::always(Reply::html("hello"));
    let settings = "redirect = \"https://new.example/shop{path}{query}\"\nredirect_status = 301";
    let proxy = Proxy::embedded(&origin, &route("/old/**", settings));
    for (target, location) in [
        ("/old/a%2Fb?c=d", "https://new.example/shop/old/a%2Fb?c=d"),
        ("/old/", "https://new.example/shop/old/"),
    ] {
        let answer = proxy.get(target).send();
        assert_eq!((answer.status, answer.header("location")), (301, Some(location)));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(proxy.get("/older").send().status, 200);
    assert_eq!(origin.count(), 1);
}

#[test]
fn only_visitors_with_a_login_use_a_route_that_requires_one() {
    let origin = shop(|_| Reply::html("members"));
    let settings = "session.mint = true\n".to_owned()
        + &route("/members/log-in", "require = \"none\"")
        + &route(
            "/members/**",
            "require = \"login\"\nlogin_page = \"/login?next={path}\"\nshare = \"everyone\"",
        );
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let before = origin.count();

    let page = proxy.get("/members/a").header("Accept", "text/html").send();
    assert_eq!((page.status, page.header("location")), (302, Some("/login?next=/members/a")));
    let data = proxy.get("/members/a").header("Accept", "application/json").send();
    assert_eq!((data.status, data.header("www-authenticate")), (401, Some("Cookie")));
    assert!(data.cache_status().contains("detail=login-required"), "{}", data.cache_status());
    for target in ["//members/a", "/Members/a", "/members;x/a", "/x/../members/a"] {
        let status = proxy.get(target).header("Accept", "application/json").send().status;
        assert_eq!(status, 401, "{target}");
    }
    assert_eq!(proxy.post("/members/a").send().status, 401);
    assert_eq!(origin.count(), before, "the app is not asked");

    for target in ["/members/a", "/members/a"] {
        assert_eq!(proxy.get(target).cookie(&alice).send().text(), "members");
    }
    // A stored page is no way around.
    let status = proxy.get("/members/a").header("Accept", "application/json").send().status;
    assert_eq!(status, 401);
    assert_eq!(proxy.get("/members/log-in").send().text(), "members");
}

#[test]
fn a_required_login_is_not_waived_while_the_visitor_is_unknown() {
    let origin = shop(|_| Reply::html("members"));
    let redis = crate::support::redis::RedisServer::start();
    let storage = crate::support::proxy::Storage::Redis(redis);
    let settings = "session.mint = true\nstore.timeout = \"50ms\"\n".to_owned()
        + &route("/members/**", "require = \"login\"");
    let mut proxy = Proxy::start(&origin, &storage, &settings);
    let alice = log_in(&proxy, "alice");
    assert_eq!(proxy.get("/members/a").cookie(&alice).send().status, 200);
    let crate::support::proxy::Storage::Redis(redis) = &storage else { unreachable!() };
    redis.pause();
    let answer = proxy.get("/members/a").cookie("login=another-token-of-a-visitor").send();
    redis.resume();
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some());
    proxy.terminate();
    let _ = proxy.exit_code();
}

#[test]
fn under_maintenance_stored_pages_are_served_and_the_app_is_left_alone() {
    let origin = Origin::start(|request| {
        Reply::html(&request.target).header("Cache-Control", "max-age=0").header("ETag", "\"a\"")
    });
    let settings =
        "cache.stale_if_error = \"1h\"\n".to_owned() + &route("/**", "maintenance = false");
    let proxy = Proxy::embedded(&origin, &settings);
    assert_eq!(proxy.get("/stored").send().text(), "/stored");
    proxy.edit(|text| text.replace("maintenance = false", "maintenance = true"));
    assert!(proxy.reload(), "{}", proxy.complaints());
    let before = origin.count();
    assert_eq!(proxy.get("/stored").send().text(), "/stored");
    for answer in [proxy.get("/other").send(), proxy.post("/stored").send()] {
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
        assert!(answer.cache_status().contains("detail=maintenance"), "{}", answer.cache_status());
    }
    assert_eq!(origin.count(), before);
}

#[test]
fn a_request_has_one_id_for_the_app_the_client_and_the_log() {
    let origin =
        Origin::start(|request| Reply::html(request.header("x-request-id").unwrap_or("none")));
    let proxy = Proxy::embedded(&origin, "client.request_id = \"X-Request-Id\"");
    let forwarded = proxy.post("/a").header("X-Request-Id", "mine").send();
    let id = forwarded.header("x-request-id").unwrap().to_owned();
    assert_eq!((id.len(), forwarded.text()), (32, id.clone()));
    let filled = proxy.get("/b").header("X-Request-Id", "mine").send();
    assert_eq!(filled.header("x-request-id"), Some(filled.text().as_str()));
    let hit = proxy.get("/b").send();
    assert!(hit.is_hit());
    assert_ne!(
        hit.header("x-request-id"),
        Some(hit.text().as_str()),
        "each request has an id of its own"
    );
    assert_eq!(origin.count(), 2);
    let lines = proxy.access_log(3);
    assert!(lines.iter().any(|line| line["request_id"] == id.as_str()), "{lines:?}");

    let refused = proxy.get("/c").header("Expect", "nonsense").send();
    let text = refused.text();
    assert_eq!(refused.status, 417);
    assert!(
        text.ends_with(&format!("Request: {}\n", refused.header("x-request-id").unwrap())),
        "{text}"
    );
}

#[test]
fn a_trusted_proxy_may_choose_the_id() {
    let origin =
        Origin::start(|request| Reply::html(request.header("x-request-id").unwrap_or("none")));
    let settings = "client.request_id = \"X-Request-Id\"\nclient.trusted_proxies = [\"127.0.0.1\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let id = |sent: &str| {
        let answer = proxy.post("/a").header("X-Request-Id", sent).send();
        assert_eq!(answer.header("x-request-id"), Some(answer.text().as_str()));
        answer.text()
    };
    assert_eq!(id("0af7-651916.cd"), "0af7-651916.cd");
    // A page for all is requested with no id that a client chose.
    let fill = proxy.get("/page").header("X-Request-Id", "0af7-651916.cd").send();
    assert_eq!(
        (fill.header("x-request-id"), fill.text()),
        (Some("0af7-651916.cd"), "none".to_owned())
    );
    for unusable in ["a b", "<script>", &"a".repeat(129)] {
        assert_eq!(id(unusable).len(), 32, "{unusable}");
    }
}

#[test]
fn errors_of_the_proxy_may_have_pages_of_the_operator() {
    let origin = Origin::always(Reply::nothing());
    let proxy = Proxy::embedded(&origin, "errors.pages = { 502 = \"/dev/null\" }");
    let page = proxy.folder().join("502.html");
    std::fs::write(&page, "<h1>Back soon</h1>").unwrap();
    proxy.edit(|text| text.replace("/dev/null", page.to_str().unwrap()));
    assert!(proxy.reload(), "{}", proxy.complaints());
    for (accept, kind) in [("text/html,*/*", "text/html"), ("application/json", "text/plain")] {
        let answer = proxy.get("/").header("Accept", accept).send();
        assert_eq!(answer.status, 502);
        assert!(answer.header("content-type").unwrap().starts_with(kind), "{accept}");
        assert_eq!(answer.text() == "<h1>Back soon</h1>", kind == "text/html");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(proxy.get("/").header("Expect", "nonsense").send().status, 417);
}

#[test]
fn a_page_may_be_stored_from_its_third_request_on() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, &route("/rare/**", "min_uses = 3"));
    for (target, detail) in [
        ("/rare/a", "detail=min-uses"),
        ("/rare/b", "detail=min-uses"),
        ("/rare/a", "detail=min-uses"),
        ("/rare/a", "fwd=uri-miss"),
        ("/rare/a", "hit"),
        ("/rare/b", "detail=min-uses"),
        ("/other", "fwd=uri-miss"),
    ] {
        let answer = proxy.get(target).send();
        assert!(answer.cache_status().contains(detail), "{target}: {}", answer.cache_status());
    }
    assert_eq!(origin.count(), 6);
}

#[test]
fn a_rewrite_opens_no_guarded_path() {
    let origin = shop(|request| Reply::html(&request.target));
    let settings = [
        route("/admin/**", "allow_from = [\"192.0.2.0/24\"]"),
        route("/members/**", "require = \"login\""),
        route("/shop/**", "strip_prefix = \"/shop\""),
    ]
    .concat();
    let proxy = Proxy::embedded(&origin, &settings);
    for (target, status) in [
        ("/shop/a", 200),
        ("/admin/a", 403),
        ("/shop/admin/a", 403),
        ("/shop/Admin/a", 403),
        ("/shop/%61dmin/a", 403),
        ("/members/a", 401),
        ("/shop/members/a", 401),
        ("/shop/Members;x/a", 401),
    ] {
        let answer = proxy.get(target).header("Accept", "application/json").send();
        assert_eq!(answer.status, status, "{target}");
    }
}

#[test]
fn cache_control_of_a_route_releases_no_personal_answer() {
    let origin = shop(|request| match request.target.as_str() {
        "/cookie" => Reply::html("hello").header("Set-Cookie", "a=b"),
        _ => Reply::html("hello"),
    });
    let rule = "share = \"everyone\"\nset_headers = { Cache-Control = \"public, max-age=60\" }";
    let settings = "session.mint = true\n".to_owned() + &route("/**", rule);
    let proxy = Proxy::embedded(&origin, &settings);
    assert_eq!(proxy.get("/page").send().header("cache-control"), Some("public, max-age=60"));
    assert_eq!(proxy.get("/cookie").send().header("cache-control"), None);
    let login = proxy.post("/login?ada").send();
    let control = login.header("cache-control").unwrap_or_default().to_owned();
    assert!(!control.contains("public"), "{control}");
}
