//! The contents of Redis after a browse through the proxy: keys, names and types of the chapter's layout
//! (Redis in Action, chapter 2).

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

const TOKEN: &str = "0123456789abcdef";
const LOGIN: &str = "login=0123456789abcdef";

/// A proxy whose store knows [`TOKEN`] as alice, before an origin that has a page for everything.
struct Shop {
    proxy: Proxy,
    storage: Storage,
    origin: Origin,
}

impl Shop {
    fn open(settings: &str) -> Self {
        let server = RedisServer::start();
        server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
        let storage = Storage::Redis(server);
        let origin = Origin::start(|request| match request.path() {
            "/item/404" => Reply::status("404 Not Found").body("no such item"),
            _ => Reply::html("a page"),
        });
        let proxy = Proxy::start(&origin, &storage, settings);
        Self { proxy, storage, origin }
    }

    fn redis(&self) -> &RedisServer {
        match &self.storage {
            Storage::Redis(server) => server,
            Storage::Embedded => unreachable!("opened on redis"),
        }
    }

    fn score(&self, key: &str, member: &str) -> Option<f64> {
        self.redis().command(&["ZSCORE", key, member])
    }

    fn wait_views(&self, item: &str, count: f64) {
        wait_until("the views are counted", || self.score("viewed:", item) == Some(-count));
    }
}

const ITEM_IN_PATH: &str = "[[route]]\nmatch.path = \"/item/{item}\"";

#[test]
fn a_browse_leaves_the_book_s_keys() {
    let shop = Shop::open(ITEM_IN_PATH);

    shop.proxy.get("/item/7").send();
    shop.proxy.get("/item/7").cookie(LOGIN).send();

    shop.wait_views("7", 2.0);
    wait_until("the visit is noted", || shop.score("recent:", TOKEN).is_some());
    let viewed = format!("viewed:{TOKEN}");
    wait_until("the view is noted", || shop.score(&viewed, "7").is_some());
    wait_until("the page is stored", || !shop.redis().keys("cache:*").is_empty());
    let pages = shop.redis().keys("cache:*");
    let [page] = pages.as_slice() else { panic!("one page: {pages:?}") };
    let hash = page.trim_start_matches("cache:");
    assert!(hash.len() == 64 && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
    let ttl: i64 = shop.redis().command(&["TTL", page]);
    // The chapter's 300 s, and an hour in which it may be served should the app fail.
    assert!((3_601..=3_900).contains(&ttl), "{ttl}");
    for (key, kind) in [
        ("login:", "hash"),
        ("recent:", "zset"),
        ("viewed:", "zset"),
        (&viewed, "zset"),
        (page, "string"),
    ] {
        assert_eq!(shop.redis().command::<String>(&["TYPE", key]), kind, "{key}");
    }
    let now: (u64, u64) = shop.redis().command(&["TIME"]);
    let seen = shop.score("recent:", TOKEN).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are few")]
    let since = now.0 as f64 - seen;
    assert!((-1.0..60.0).contains(&since), "recent: holds Unix time in seconds: {seen}");
}

#[test]
fn the_item_can_stand_in_the_query() {
    let shop =
        Shop::open("[[route]]\nmatch.path = \"/product\"\nmatch.query = { id = \"{item}\" }");
    shop.proxy.get("/product?page=2&id=blue-shoe").cookie(LOGIN).send();
    shop.wait_views("blue-shoe", 1.0);
}

#[test]
fn views_from_the_cache_count_as_well() {
    let shop = Shop::open("[[route]]\nmatch.path = \"/item/{item}\"\nshare = \"everyone\"");
    shop.proxy.get("/item/7").cookie(LOGIN).send();
    assert!(shop.proxy.get("/item/7").cookie(LOGIN).send().is_hit());
    shop.wait_views("7", 2.0);
}

#[test]
fn requests_that_are_no_view_are_not_counted() {
    let shop = Shop::open(ITEM_IN_PATH);
    shop.proxy.ask("HEAD", "/item/1").cookie(LOGIN).send();
    shop.proxy.get("/item/2").header("Sec-Purpose", "prefetch").cookie(LOGIN).send();
    shop.proxy.get("/item/404").cookie(LOGIN).send();
    shop.proxy.post("/item/3").cookie(LOGIN).send();

    // Views are counted in order: when this one is there, the others would be.
    shop.proxy.get("/item/9").cookie(LOGIN).send();

    shop.wait_views("9", 1.0);
    let counted: Vec<String> = shop.redis().command(&["ZRANGE", "viewed:", "0", "-1"]);
    assert_eq!(counted, ["9"]);
}

#[test]
fn a_prefix_keeps_two_sites_apart() {
    let shop = Shop::open(&format!("store.prefix = \"shop1:\"\n{ITEM_IN_PATH}"));
    shop.redis().command::<()>(&["HSET", "shop1:login:", TOKEN, "alice"]);
    shop.redis().command::<()>(&["DEL", "login:"]);

    shop.proxy.get("/item/7").send();
    shop.proxy.get("/item/7").cookie(LOGIN).send();

    wait_until("the visit is noted", || shop.score("shop1:recent:", TOKEN).is_some());
    wait_until("the page is stored", || !shop.redis().keys("shop1:cache:*").is_empty());
    let foreign: Vec<_> =
        shop.redis().keys("*").into_iter().filter(|key| !key.starts_with("shop1:")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn redis_can_be_reached_through_a_socket_in_the_file_system() {
    let shop = Shop::open("");
    let settings = format!("store.url = \"{}\"", shop.redis().unix_url());
    let proxy = Proxy::with_settings(&shop.origin, &settings);
    proxy.get("/").send();
    wait_until("the page is stored", || !shop.redis().keys("cache:*").is_empty());
}

#[test]
fn a_page_that_an_app_stored_itself_is_served_or_ignored_but_never_breaks_us() {
    let shop = Shop::open("");
    shop.proxy.get("/").send();
    wait_until("the page is stored", || !shop.redis().keys("cache:*").is_empty());
    let page = shop.redis().keys("cache:*").remove(0);
    for junk in ["", "\u{1}", "<html>an app's own page</html>", "ANTR\u{1}\u{ff}\u{ff}\u{ff}\u{ff}"]
    {
        shop.redis().command::<()>(&["SETEX", &page, "300", junk]);
        let fresh = Proxy::start(&shop.origin, &shop.storage, "");
        assert_eq!(fresh.get("/").send().status, 200, "{junk:?}");
    }
}

#[test]
fn a_page_that_an_app_stored_in_the_book_s_layout_is_served_as_html() {
    let shop = Shop::open("");
    shop.proxy.get("/").send();
    wait_until("the page is stored", || !shop.redis().keys("cache:*").is_empty());
    let page = shop.redis().keys("cache:*").remove(0);
    shop.redis().command::<()>(&["SETEX", &page, "300", "<p>an app's own page</p>"]);
    let asked = shop.origin.count();

    let proxy = Proxy::start(&shop.origin, &shop.storage, "");
    let answer = proxy.get("/").send();

    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!((answer.status, answer.text().as_str()), (200, "<p>an app's own page</p>"));
    let kind = answer.header("content-type").unwrap_or("none");
    assert!(kind.starts_with("text/html"), "{kind}");
    assert_ne!(proxy.get("/").cookie(LOGIN).send().text(), answer.text(), "for strangers only");
    shop.redis().command::<()>(&["DEL", &page]);
    wait_until("it is gone with its key", || proxy.get("/").send().text() == "a page");
    assert_eq!(shop.origin.count(), asked + 2);
}
