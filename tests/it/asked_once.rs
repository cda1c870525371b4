//! A visitor's request reaches the app once, but for the reasons that are counted.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Mutex;

use crate::support::client::{Answer, Ask, Client};
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::Proxy;

/// Asks from an address of a visitor's own, which the proxy's is not.
fn visit(proxy: &Proxy, visitor: u8, target: &str) -> Answer {
    visit_with(proxy, visitor, &proxy.get(target))
}

fn visit_with(proxy: &Proxy, visitor: u8, ask: &Ask) -> Answer {
    ask.send_on(&mut Client::open_from(Ipv4Addr::new(127, 1, visitor, 1), proxy.address()))
}

fn asked_again(proxy: &Proxy, why: &str) -> f64 {
    proxy.metric(&format!("anteroom_origin_asked_again_total{{reason=\"{why}\"}}"))
}

/// How often the app was asked again, for all reasons.
fn asked_again_at_all(proxy: &Proxy) -> f64 {
    let reasons = ["refusal", "field", "cookie", "identity", "range", "coding", "not-modified"];
    reasons.iter().map(|why| asked_again(proxy, why)).sum()
}

/// An app whose links work once: what was opened before is gone.
fn links() -> Origin {
    let opened = Mutex::new(HashMap::new());
    Origin::start(move |request| {
        let mut opened = opened.lock().unwrap();
        let times = opened.entry(request.target.clone()).or_insert(0);
        *times += 1;
        match *times {
            1 => Reply::status("302 Found")
                .header("Location", "/account")
                .header("Set-Cookie", "sessionid=s3cr3t0123; Path=/; HttpOnly")
                .body(""),
            _ => Reply::status("410 Gone").body(""),
        }
    })
}

#[test]
fn a_link_that_works_once_reaches_the_app_once() {
    let origin = links();
    let proxy = Proxy::embedded(&origin, "session.cookie = [\"sessionid\"]");
    for (visitor, target) in [
        "/login?token=a1",
        "/login?token=b1&utm_source=mail",
        "/login?code=c1&state=x",
        "/confirm/4fd8a1c09be2773f",
        "/confirm/550e8400-e29b-41d4-a716-446655440000?utm_medium=mail",
        "/unsubscribe/aGVsbG8gd29ybGQhIQ/now",
        "/login?4fd8a1c09be2773f",
    ]
    .iter()
    .enumerate()
    {
        let answer = visit(&proxy, visitor as u8, target);
        assert_eq!(answer.status, 302, "{target}: {}", answer.cache_status());
        assert!(answer.set_cookie("sessionid").is_some(), "{target}");
    }
    let all = origin.seen();
    assert_eq!(all.len(), 7);
    assert!(all[1].target.ends_with("utm_source=mail"), "the request as it came");
    assert_eq!(asked_again_at_all(&proxy), 0.0);
}

/// Fields that networks in front of a site, and browsers, add to each request.
const ADDED: [&[(&str, &str)]; 6] = [
    &[("CF-Ray", "8f0a1b2c3d4e5f60-FRA"), ("CDN-Loop", "cloudflare")],
    &[("X-Amzn-Trace-Id", "Root=1-67891233-abcdef012345678912345678")],
    &[("X-Cloud-Trace-Context", "105445aa7843bc8bf206b12000100000/1"), ("Via", "1.1 google")],
    &[("tracestate", "a=b"), ("baggage", "c=d"), ("sentry-trace", "e-f-1")],
    &[("X-B3-TraceId", "105445aa7843bc8b"), ("Purpose", "prefetch"), ("Range", "bytes=0-1")],
    &[("Content-Type", "text/html"), ("Referer", "https://shop.test/before")],
];

fn with(ask: Ask, fields: &[(&str, &str)]) -> Ask {
    fields.iter().fold(ask, |ask, (name, value)| ask.header(name, value))
}

#[test]
fn a_link_is_no_proof_for_another() {
    // What was used is a page like any other, and may be shared.
    let opened = Mutex::new(HashMap::new());
    let origin = Origin::start(move |request| {
        let mut opened = opened.lock().unwrap();
        let times = opened.entry(request.target.clone()).or_insert(0);
        *times += 1;
        let is_link = request.target.contains("550e8400");
        match (!is_link, *times) {
            (false, 1) => Reply::html("<p>welcome</p>").header("Set-Cookie", "sid=1234567890"),
            _ => Reply::html("<p>used already</p>"),
        }
    });
    let proxy = Proxy::embedded(&origin, "");
    for visitor in 0..6 {
        visit(&proxy, visitor, "/verify/old-4fd8a1c09be2773f");
        visit(&proxy, visitor, "/verify/help");
        let answer = visit(&proxy, visitor, &format!("/verify/{visitor}-550e8400e29b41d4a716"));
        assert_eq!(answer.text(), "<p>welcome</p>", "{visitor}");
    }
    assert_eq!(asked_again_at_all(&proxy), 0.0);
}

#[test]
fn a_request_with_fields_of_a_network_reaches_the_app_once() {
    let origin = Origin::always(Reply::unstored("<p>found</p>"));
    let proxy = Proxy::embedded(&origin, "client.trusted_proxies = [\"127.0.0.0/8\"]");
    for (number, fields) in ADDED.iter().enumerate() {
        let before = origin.count();
        for search in 0..5 {
            let ask = with(proxy.get(&format!("/search?q={number}.{search}")), fields);
            assert_eq!(ask.send().status, 200);
        }
        assert_eq!(origin.count() - before, 5, "{fields:?}");
    }
    assert_eq!(asked_again_at_all(&proxy), 0.0);
}

#[test]
fn a_page_is_shared_whatever_a_network_adds() {
    let origin = Origin::always(Reply::html("<p>a page</p>"));
    let proxy = Proxy::embedded(&origin, "");
    for (number, fields) in ADDED.iter().enumerate() {
        let ask = with(proxy.get(&format!("/{number}")), fields);
        ask.send();
        assert!(ask.send().is_hit(), "{fields:?}");
    }
    assert_eq!(origin.count(), ADDED.len());
}

#[test]
fn a_page_that_takes_its_time_begins_at_once() {
    let (first, second) = (Gate::closed(), Gate::closed());
    let reply = Reply::status("200 OK")
        .header("Content-Type", "text/html")
        .header("Transfer-Encoding", "chunked")
        .bytes("5\r\n<p>a \r\n")
        .until(&first)
        .bytes("5\r\nb</p>\r\n0\r\n\r\n")
        .until(&second);
    let origin = Origin::always(reply);
    let proxy = Proxy::embedded(&origin, "client.trusted_proxies = [\"127.0.0.1\"]");
    let ask = with(proxy.get("/slow"), ADDED[0]).header("X-Forwarded-For", "192.0.2.1");
    let mut client = ask.start();
    let head = client.until("<p>a ");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    first.open();
    second.open();
    client.until("b</p>");
    assert_eq!(origin.count(), 1);
}

#[test]
fn a_thousand_visitors_of_a_campaign_are_two_requests_at_most() {
    let origin = Origin::always(Reply::html("<p>the offer</p>"));
    let proxy = Proxy::embedded(&origin, "");
    for visitor in 0..1_000_u32 {
        let answer = visit(&proxy, visitor as u8, &format!("/offer?utm_campaign={visitor}"));
        assert_eq!(answer.text(), "<p>the offer</p>");
    }
    assert!(origin.count() <= 2, "{}", origin.count());
}

#[test]
fn a_field_that_no_list_names_costs_a_pattern_one_request() {
    let origin = Origin::always(Reply::html("<p>a product</p>"));
    let proxy = Proxy::embedded(&origin, "");
    let ask = |number: u32| proxy.get(&format!("/product/{number}")).header("X-Edge", "7");
    let answer = ask(1).send();
    assert!(answer.cache_status().contains("unproven"), "{}", answer.cache_status());
    for number in 1..10 {
        ask(number).send();
        assert!(ask(number).send().is_hit(), "{number}");
    }
    assert_eq!((origin.count(), asked_again_at_all(&proxy)), (10, 0.0));
    // Another pattern is another matter, and so is another field.
    assert!(!proxy.get("/other/1").header("X-Edge", "7").send().is_hit());
    assert!(ask(11).header("X-Other", "8").send().cache_status().contains("unproven"));
}

#[test]
fn an_app_that_tells_its_pages_apart_by_such_a_field_is_asked_each_time() {
    let origin = Origin::start(|request| {
        let country = request.header("x-country").unwrap_or("none").to_owned();
        Reply::html(&format!("<p>{country}</p>")).header("Vary", "X-Country")
    });
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..3 {
        for country in ["at", "de"] {
            let answer = proxy.get("/prices/1").header("X-Country", country).send();
            assert_eq!(answer.text(), format!("<p>{country}</p>"));
        }
    }
    assert_eq!(origin.count(), 6);
    assert_eq!(asked_again_at_all(&proxy), 0.0);
}

#[test]
fn a_page_that_needs_the_field_after_all_is_asked_for_again_once() {
    // The first response of the pattern is for all, the others are for those with the field.
    let origin = Origin::start(|request| match (request.path(), request.header("x-edge")) {
        ("/p/1", _) => Reply::html("<p>for all</p>"),
        (_, edge) => Reply::unstored(&format!("<p>{}</p>", edge.unwrap_or("nothing"))),
    });
    let proxy = Proxy::embedded(&origin, "");
    let ask = |target: &str| proxy.get(target).header("X-Edge", "seven").send();
    assert_eq!(ask("/p/1").text(), "<p>for all</p>");
    for page in 2..8 {
        assert_eq!(ask(&format!("/p/{page}")).text(), "<p>seven</p>");
    }
    assert_eq!((origin.count(), asked_again(&proxy, "field")), (8, 1.0));
}

#[test]
fn a_redirect_back_is_the_visitors() {
    let origin = Origin::start(|request| {
        let before = request.header("referer").unwrap_or("/").to_owned();
        Reply::status("302 Found").header("Location", &before).body("")
    });
    let proxy = Proxy::embedded(&origin, "");
    // The first fill shows that such URLs redirect.
    for (language, expected) in [("de", "/"), ("fr", "/products"), ("it", "/products")] {
        let ask = proxy.get(&format!("/language/{language}")).header("Referer", "/products");
        assert_eq!(ask.send().header("location"), Some(expected), "{language}");
    }
    assert_eq!((origin.count(), asked_again_at_all(&proxy)), (3, 0.0));
}

#[test]
fn a_refusal_of_the_proxys_address_is_not_the_visitors() {
    let origin = Origin::start(|request| {
        let is_inside = request.header("x-forwarded-for").is_some_and(|it| it.contains("127.1.5."));
        match is_inside {
            true => Reply::unstored("<p>inside</p>"),
            false => Reply::status("403 Forbidden").body("no"),
        }
    });
    let proxy = Proxy::embedded(&origin, "");
    for page in 0..4 {
        assert_eq!(visit(&proxy, 5, &format!("/intra/{page}")).text(), "<p>inside</p>");
    }
    assert_eq!((origin.count(), asked_again(&proxy, "refusal")), (5, 1.0));
    assert_eq!(visit(&proxy, 6, "/intra/9").status, 403);
    assert_eq!(origin.count(), 6);
}

/// An app that binds its sessions to the address that it was told: phpBB does so by default.
fn bound_to_address() -> Origin {
    Origin::start(|request| {
        let address = request.header("x-forwarded-for").unwrap_or_default().to_owned();
        match request.header("cookie").and_then(|line| line.split_once("sid=")) {
            Some((_, sid)) if sid == format!("of-{address}") => {
                Reply::html("<p>welcome</p>").header("Cache-Control", "private")
            }
            _ => Reply::html("<p>log in</p>")
                .header("Set-Cookie", &format!("sid=of-{address}; Path=/")),
        }
    })
}

#[test]
fn a_session_that_is_bound_to_an_address_is_the_visitors() {
    let origin = bound_to_address();
    let proxy = Proxy::embedded(&origin, "session.cookie = [\"sid\"]");
    for visitor in 0..100 {
        let answer = visit(&proxy, visitor, &format!("/forum/{visitor}"));
        let cookie = answer.cookie("sid").expect("a session");
        let again = proxy.get("/forum/1").cookie(&format!("sid={cookie}"));
        assert_eq!(visit_with(&proxy, visitor, &again).text(), "<p>welcome</p>", "{visitor}");
    }
    assert_eq!((origin.count(), asked_again(&proxy, "cookie")), (201, 1.0));
}

#[test]
fn a_log_in_that_the_app_states_to_the_proxys_address_is_no_visitors() {
    let origin = Origin::start(|request| {
        let reply = Reply::html("<p>a page</p>");
        match request.header("x-forwarded-for") {
            Some("127.0.0.1") => reply.header("Anteroom-Login", "reception"),
            _ => reply,
        }
    });
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let answer = visit(&proxy, 9, "/a/1");
    assert_eq!((answer.text().as_str(), answer.set_cookie("login")), ("<p>a page</p>", None));
    assert_eq!((origin.count(), asked_again(&proxy, "cookie")), (2, 1.0));
}

#[test]
fn a_part_of_what_is_not_shared_is_the_apps() {
    let origin = Origin::start(|request| {
        let reply = match request.header("range") {
            Some(_) => Reply::status("206 Partial Content").header("Content-Range", "bytes 0-1/9"),
            None => Reply::status("200 OK"),
        };
        let body = if request.header("range").is_some() { "ab" } else { "abcdefghi" };
        reply
            .header("Content-Type", "video/mp4")
            .header("Accept-Ranges", "bytes")
            .header("Cache-Control", "no-store")
            .body(body)
    });
    let proxy = Proxy::embedded(&origin, "");
    for _ in 0..3 {
        let answer = proxy.get("/film/1.mp4").header("Range", "bytes=0-1").send();
        assert_eq!((answer.status, answer.text().as_str()), (206, "ab"));
    }
    assert_eq!((origin.count(), asked_again(&proxy, "range")), (4, 1.0));
}

#[test]
fn a_cookie_on_which_no_page_depends_is_sent_where_one_does() {
    let origin = Origin::start(|request| {
        let cart = request.header("cookie").unwrap_or("empty").to_owned();
        Reply::html(&format!("<p>{cart}</p>")).header("Cache-Control", "private")
    });
    let settings = "cache.unknown_cookies = \"ignore\"\ncache.fill_client_address = true";
    let proxy = Proxy::embedded(&origin, settings);
    for page in 0..3 {
        let answer = proxy.get(&format!("/cart/{page}")).cookie("cart=abc").send();
        assert_eq!(answer.text(), "<p>cart=abc</p>", "{}", answer.cache_status());
    }
    assert_eq!((origin.count(), asked_again_at_all(&proxy)), (3, 0.0));
}

#[test]
fn an_image_that_wants_to_know_its_page_is_shown() {
    // Against pages of other sites; a fill does not name the page.
    let origin = Origin::start(|request| match request.header("referer") {
        Some(_) => Reply::typed("image/png", "picture").header("Cache-Control", "no-store"),
        None => Reply::status("403 Forbidden").body("no"),
    });
    let proxy = Proxy::embedded(&origin, "cache.fill_client_address = true");
    let answer = proxy.get("/img/1.png").header("Referer", "http://shop.test/").send();
    assert_eq!((answer.status, asked_again(&proxy, "refusal")), (200, 1.0));
}

#[test]
fn a_page_for_pages_of_all_sites_may_name_one() {
    let origin = Origin::start(|_| {
        let reply = Reply::typed("application/json", "{\"at\": \"https://www.shop.example/a\"}");
        reply.header("Access-Control-Allow-Origin", "*").header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::embedded(&origin, "");
    let ask = proxy.get("/products.json").header("Origin", "https://www.shop.example");
    ask.send();
    let answer = ask.send();
    assert!(answer.is_hit(), "{}", answer.cache_status());
}

#[test]
fn a_response_that_is_not_shared_is_its_visitors() {
    let reply = |request: &Request| match request.path() {
        "/private/1" => Reply::html("<p>private</p>").header("Cache-Control", "private"),
        "/private/2" => Reply::html("<input name=csrf_token value=a1>"),
        "/private/3" => Reply::status("302 Found").header("Location", "/").body(""),
        "/private/4" => Reply::status("500 Internal Server Error").body("<p>broken</p>"),
        _ => Reply::status("404 Not Found").header("Cache-Control", "no-store").body("none"),
    };
    let origin = Origin::start(reply);
    let proxy = Proxy::embedded(&origin, "");
    for (page, status) in [(1, 200), (2, 200), (3, 302), (4, 500), (5, 404)] {
        let before = origin.count();
        let answer = visit(&proxy, page, &format!("/private/{page}?utm_source=x"));
        assert_eq!(answer.status, status, "{page}");
        assert_eq!(origin.count() - before, 1, "{page}: {}", answer.cache_status());
    }
}

#[test]
fn a_response_comes_in_a_coding_that_its_visitor_reads() {
    let origin = Origin::start(|request| {
        let accepted = request.header("accept-encoding").unwrap_or_default();
        match accepted.contains("br") {
            true => Reply::unstored("coded").header("Content-Encoding", "br"),
            false => Reply::unstored("plain"),
        }
    });
    let proxy = Proxy::embedded(&origin, "");
    for (page, accepted, expected) in
        [(1, None, "plain"), (2, Some("gzip"), "plain"), (3, Some("br"), "coded")]
    {
        let ask = proxy.get(&format!("/{page}"));
        let ask = match accepted {
            Some(codings) => ask.header("Accept-Encoding", codings),
            None => ask,
        };
        assert_eq!(ask.send().text(), expected, "{accepted:?}");
    }
    assert_eq!(origin.count(), 3);
}

#[test]
fn a_visitor_with_a_login_on_a_page_for_everyone_is_not_taken_for_a_stranger() {
    // To those without a session this app shows its login, with a new session.
    let origin = Origin::start(|request| match request.header("cookie") {
        Some(_) => Reply::unstored("<p>members</p>"),
        None => Reply::status("302 Found")
            .header("Location", "/login")
            .header("Set-Cookie", "sid=another; Path=/")
            .body(""),
    });
    let settings = "session.cookie = [\"sid\"]\ncache.fill_client_address = true\n\
                    [[route]]\nmatch.path = \"/club/**\"\nshare = \"everyone\"";
    let proxy = Proxy::embedded(&origin, settings);
    for page in 1..4 {
        let answer = proxy.get(&format!("/club/{page}")).cookie("sid=0123456789abcdef").send();
        assert_eq!((answer.text().as_str(), answer.set_cookie("sid")), ("<p>members</p>", None));
    }
    // The first shows what strangers get there.
    assert_eq!((origin.count(), asked_again(&proxy, "identity")), (4, 1.0));
}

#[test]
fn a_field_that_says_who_asks_is_answered_by_the_app() {
    let origin = Origin::start(|request| {
        let name = ["x-api-key", "dpop", "x-auth-token", "x-tenant"];
        let name = name.iter().find_map(|name| request.header(name)).unwrap_or("nobody");
        Reply::html(&format!("<p>{name}</p>"))
    });
    let settings = "[[route]]\nmatch.path = \"/keyed/**\"\nkey_headers = [\"x-api-key\"]";
    let proxy = Proxy::embedded(&origin, settings);
    proxy.get("/a").send();
    assert!(proxy.get("/a").send().is_hit());
    for name in ["X-Api-Key", "DPoP", "X-Auth-Token"] {
        for _ in 0..3 {
            let answer = proxy.get("/a").header(name, "bob").send();
            assert_eq!(answer.text(), "<p>bob</p>", "{name}");
            assert!(answer.cache_status().contains("identity-field"), "{name}");
        }
    }
    assert!(proxy.get("/a").send().is_hit());
    // A page for each value is what a route may keep.
    for name in ["ann", "bob"] {
        let ask = proxy.get("/keyed/a").header("X-Api-Key", name);
        ask.send();
        let answer = ask.send();
        assert_eq!((answer.text(), answer.is_hit()), (format!("<p>{name}</p>"), true));
    }
}

#[test]
fn the_list_of_fields_that_say_who_asks_is_the_operators() {
    let origin = Origin::start(|request| {
        Reply::html(&format!("<p>{}</p>", request.header("x-tenant").unwrap_or("nobody")))
    });
    let proxy = Proxy::embedded(&origin, "cache.identity_headers = [\"X_Tenant\", \"x-own-*\"]");
    for name in ["X-Tenant", "X-Own-Name"] {
        let answer = proxy.get("/a").header(name, "bob").send();
        assert!(answer.cache_status().contains("identity-field"), "{name}");
    }
    proxy.get("/b").send();
    assert!(proxy.get("/b").header("X-Api-Key", "1").send().is_hit(), "the list is another");
}

#[test]
fn what_a_page_says_of_its_request_is_not_shared() {
    for (name, value) in [
        ("User-Agent", "Mozilla/5.0 (an unusual one)"),
        ("Accept-Language", "de-AT,de;q=0.7"),
        ("Origin", "https://evil.example"),
        ("Sec-CH-UA", "\"Evil\";v=\"99\""),
    ] {
        let field = name.to_ascii_lowercase();
        let origin = Origin::start(move |request| {
            let value = request.header(&field).unwrap_or("nothing").to_owned();
            Reply::html(&format!("<p>{}</p>", value.replace('"', "&quot;")))
        });
        let proxy = Proxy::embedded(&origin, "");
        let poisoned = proxy.get("/a").header(name, value).send();
        assert!(!poisoned.text().contains("nothing"), "{name}: its visitor gets it");
        let answer = proxy.get("/a").send();
        assert_eq!(answer.text(), "<p>nothing</p>", "{name}: {}", answer.cache_status());
        assert!(proxy.get("/a").send().is_hit(), "{name}: one client does not keep others from it");
    }
}

#[test]
fn a_field_that_the_app_believes_reaches_no_page_of_others() {
    for name in [
        "X-Forwarded-Host",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-Invented",
    ] {
        let field = name.to_ascii_lowercase();
        let origin = Origin::start(move |request| {
            let value = request.header(&field).unwrap_or("shop.test").to_owned();
            Reply::html(&format!("<script src=\"//{value}/a.js\"></script>"))
        });
        let proxy = Proxy::embedded(&origin, "");
        for page in ["/a/1", "/a/2"] {
            for _ in 0..3 {
                proxy.get(page).header(name, "evil.example").send();
            }
            for visitor in 1..3 {
                let answer = visit(&proxy, visitor, page);
                assert!(!answer.text().contains("evil"), "{name}: {}", answer.cache_status());
            }
        }
    }
}

#[test]
fn a_page_for_one_address_is_no_page_of_others() {
    // Who is banned is told so, and the app allows every cache to keep what it says.
    let origin = Origin::start(|request| {
        let address = request.header("x-forwarded-for").unwrap_or_default().to_owned();
        match address.starts_with("127.1.66.") {
            true => Reply::html("<p>you are banned</p>"),
            false => Reply::html("<p>welcome</p>"),
        }
    });
    let proxy = Proxy::embedded(&origin, "");
    for page in 0..3 {
        for visitor in [66, 1, 66, 2] {
            let ask = proxy.get(&format!("/a/{page}?utm_source={visitor}")).header("X-Edge", "7");
            let answer = visit_with(&proxy, visitor, &ask);
            let is_welcome = answer.text().contains("welcome");
            assert!(is_welcome || visitor == 66, "{page} {visitor}: {}", answer.cache_status());
        }
    }
}

#[test]
fn the_page_before_is_not_said_to_a_shared_page() {
    let origin = Origin::start(|request| {
        let before = request.header("referer").unwrap_or("/").to_owned();
        Reply::html(&format!("<a href=\"{before}\">back</a>"))
    });
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/a").header("Referer", "https://evil.example/x").send();
    let answer = proxy.get("/a").send();
    assert!(!answer.text().contains("evil"), "{}", answer.text());
}

#[test]
fn one_client_cannot_switch_the_cache_off_for_a_pattern() {
    let origin = Origin::start(|request| match request.target.contains("bad") {
        true => Reply::unstored("<p>nothing to share</p>"),
        false => Reply::html("<p>a product</p>"),
    });
    let proxy = Proxy::embedded(&origin, "");
    for number in 0..40 {
        visit(&proxy, 9, &format!("/product/bad{number}"));
        let field = proxy.get(&format!("/product/bad{number}-x")).header("X-Invented", "1");
        visit_with(&proxy, 9, &field);
    }
    for number in 0..20 {
        let target = format!("/product/{number}");
        visit(&proxy, 1, &target);
        assert!(visit(&proxy, 2, &target).is_hit(), "{target}");
    }
}

#[test]
fn a_pattern_that_is_never_shared_is_forwarded_soon() {
    let origin = Origin::always(Reply::unstored("<p>search</p>"));
    let proxy = Proxy::embedded(&origin, "");
    for visitor in 0..8 {
        visit(&proxy, visitor, &format!("/find/{visitor}"));
    }
    let is_forwarded = |page: u32| {
        visit(&proxy, 20, &format!("/find/more{page}")).cache_status().contains("detail=pattern")
    };
    // One in sixteen is fetched all the same.
    let forwarded = (0..64).filter(|page| is_forwarded(*page)).count();
    assert!(forwarded > 32, "{forwarded}");
    assert_eq!(origin.count(), 8 + 64, "the app was asked once for each");
}
