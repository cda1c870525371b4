//! Several origins behind one proxy: which is asked, which learns of visitors, and which pages are of which.

use crate::support::client::SITE;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::wait_until;

/// `/blog/**` and the site `blog.test` belong to the other origin.
fn before(shop: &Origin, blog: &Origin, storage: &Storage, more: &str) -> Proxy {
    let settings = format!(
        "session.mint = true\norigins.blog.url = \"http://{}\"\n{more}\n\
         [[route]]\nmatch.path = \"/blog/**\"\norigin = \"blog\"\n\
         [[route]]\nmatch.host = \"blog.test\"\norigin = \"blog\"\n",
        blog.address()
    );
    Proxy::start(shop, storage, &settings)
}

fn header_of(request: &Request, name: &str) -> Option<String> {
    request.header(name).map(str::to_owned)
}

on_both_stores!(routes_say_which_origin_is_asked, pages_of_two_origins_never_meet);

fn routes_say_which_origin_is_asked(storage: &Storage) {
    let (shop, blog) = (Origin::always(Reply::html("shop")), Origin::always(Reply::html("blog")));
    let proxy = before(&shop, &blog, storage, "");
    for _ in 0..2 {
        assert_eq!(proxy.get("/").send().text(), "shop");
        assert_eq!(proxy.get("/blog/1").send().text(), "blog");
        assert_eq!(proxy.get("/").host("blog.test").send().text(), "blog");
        assert_eq!(proxy.post("/blog/1").send().text(), "blog");
    }
    assert_eq!((shop.count(), blog.count()), (1, 5));
}

fn pages_of_two_origins_never_meet(storage: &Storage) {
    let (shop, blog) = (Origin::always(Reply::html("shop")), Origin::always(Reply::html("blog")));
    let key = |proxy: &Proxy, path: &str| {
        assert!(proxy.get(path).send().status == 200);
        assert!(proxy.get(path).send().is_hit());
    };
    let mut proxy = before(&shop, &blog, storage, "");
    key(&proxy, "/blog/1");
    key(&proxy, "/");
    assert_eq!((shop.count(), blog.count()), (1, 1));
    // The same paths, and now they are the shop's.
    let file = proxy.folder().join("proxy.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let without = text.replace("\norigin = \"blog\"", "");
    std::fs::write(&file, without).unwrap();
    // What is stored is there still, but for what was not yet written.
    proxy.restart();
    assert_eq!(proxy.get("/blog/1").send().text(), "shop");
    assert_eq!(proxy.get("/").send().text(), "shop");
}

#[test]
fn no_fetch_for_the_cache_carries_a_session_to_another_origin() {
    let cookies = |request: &Request| Reply::html(request.header("cookie").unwrap_or("none"));
    let (main, blog) = (Origin::start(cookies), Origin::start(cookies));
    // An app in PHP reads `app.sid` as `app_sid`.
    let settings = format!(
        "session.cookie = \"app_sid\"\norigins.blog.url = \"http://{}\"\n[[route]]\n\
         origin = \"blog\"\nkey_cookies = [\"app.sid\", \"lang\"]\n",
        blog.address()
    );
    let proxy = Proxy::embedded(&main, &settings);
    let answer = proxy.get("/").cookie("app.sid=secret; lang=de").send();
    assert_eq!(answer.text(), "lang=de");
    assert_eq!(blog.count(), 1);
}

#[test]
fn another_origin_learns_nothing_of_sessions() {
    let main = shop(|request| Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")));
    let blog = Origin::always(
        Reply::unstored("blog")
            .header("Anteroom-Login", "mallory")
            .header("Anteroom-Item", "42")
            .header("Anteroom-Cart", "mug;count=3")
            .header("Set-Cookie", "login=a-token-of-mallory; Path=/")
            // Which others read as the same.
            .header("Set-Cookie", "login[]=a-token-of-mallory")
            .header("Set-Cookie", "__Host-Login=a-token-of-mallory; Path=/")
            .header("Set-Cookie", "theme=dark"),
    );
    let proxy = before(&main, &blog, &Storage::Embedded, "");
    let alice = log_in(&proxy, "alice");
    wait_until("she is known", || proxy.post("/").cookie(&alice).send().text() == "alice");

    let answer = proxy
        .post("/blog/1")
        .cookie(&format!("a=1; {alice}; login[a]=x; b=2"))
        .header("X-Anteroom-User", "forged")
        .send();

    let seen = blog.last();
    assert_eq!(header_of(&seen, "cookie").as_deref(), Some("a=1; b=2"));
    for name in ["x-anteroom-user", "x-anteroom-session", "x-anteroom-signature"] {
        assert_eq!(header_of(&seen, name), None, "{name}");
    }
    for name in ["anteroom-login", "anteroom-item", "anteroom-cart"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    let cookies: Vec<_> = answer.fields.all("set-cookie").collect();
    assert_eq!(cookies, ["theme=dark"]);
    // She is still logged in.
    assert_eq!(proxy.post("/").cookie(&alice).send().text(), "alice");
    proxy.post("/blog/1").cookie(&alice).send();
    assert_eq!(header_of(&blog.last(), "cookie"), None);
}

#[test]
fn the_first_origin_keeps_a_session_of_its_own_where_it_has_no_part_in_ours() {
    let main = Origin::always(Reply::unstored("shop").header("Set-Cookie", "login=the-app-s-own"));
    let proxy = Proxy::embedded(&main, "origin.sessions = false");
    let answer = proxy.post("/").cookie("login=a-token; a=1").send();
    assert!(answer.set_cookie("login").is_some());
    let seen = main.last();
    assert_eq!(header_of(&seen, "cookie").as_deref(), Some("login=a-token; a=1"));
    assert_eq!(header_of(&seen, "x-anteroom-session"), None);
}

#[test]
fn a_session_that_we_mint_is_kept_from_the_first_origin_where_it_has_no_part_in_it() {
    let main = Origin::always(Reply::unstored("shop").header("Set-Cookie", "login=of-the-app-s"));
    let blog = shop(|_| Reply::unstored("blog"));
    let settings = "origin.sessions = false\norigins.blog.sessions = true\n\
                    [[route]]\nmatch.path = \"/login\"\norigin = \"blog\"";
    let proxy = before(&main, &blog, &Storage::Embedded, settings);
    let alice = log_in(&proxy, "alice");
    for ask in [proxy.post("/"), proxy.get("/")] {
        let answer = ask.cookie(&format!("a=1; {alice}; b=2")).send();
        assert_eq!(header_of(&main.last(), "cookie").as_deref(), Some("a=1; b=2"));
        assert_eq!(answer.set_cookie("login"), None);
    }
}

#[test]
fn another_origin_ends_no_session() {
    let main = shop(|_| Reply::unstored("shop").header("Clear-Site-Data", "\"cookies\""));
    let blog = Origin::start(|request| {
        let values: &[&str] = match request.path() {
            "/blog/all" => &["\"*\""],
            "/blog/cookies" => &["\"cache\"", "\"cookies\""],
            "/blog/storage" => &["\"cache\", \"storage\""],
            _ => &["\"cache\""],
        };
        let reply = Reply::unstored("blog");
        values.iter().fold(reply, |reply, value| reply.header("Clear-Site-Data", value))
    });
    let proxy = before(&main, &blog, &Storage::Embedded, "");
    for (target, expected) in [
        ("/", Some("\"cookies\"")),
        ("/blog/all", None),
        ("/blog/cookies", None),
        ("/blog/storage", None),
        ("/blog/cache", Some("\"cache\"")),
    ] {
        assert_eq!(proxy.post(target).send().header("clear-site-data"), expected, "{target}");
    }
}

#[test]
fn another_origin_that_is_trusted_is_told_as_the_first_is() {
    let main = shop(|_| Reply::unstored("shop"));
    let blog = Origin::always(Reply::unstored("blog"));
    let proxy = before(&main, &blog, &Storage::Embedded, "origins.blog.sessions = true");
    let alice = log_in(&proxy, "alice");
    wait_until("she is known", || {
        proxy.post("/blog/1").cookie(&alice).send();
        header_of(&blog.last(), "x-anteroom-user").as_deref() == Some("alice")
    });
    assert_eq!(header_of(&blog.last(), "cookie"), Some(alice));
}

#[test]
fn rows_come_from_the_origin_that_has_them() {
    let main = Origin::always(Reply::typed("application/json", "\"shop\""));
    let blog = Origin::always(Reply::typed("application/json", "\"blog\""));
    let settings = "[[rows]]\nname = \"posts\"\npath = \"/api/{row}\"\norigin = \"blog\"\n\
                    [[route]]\nmatch.path = \"/posts/{item}\"\nrows = \"posts\"\n";
    let proxy = before(&main, &blog, &Storage::Embedded, settings);
    let done = anteroom()
        .args(["rows", "schedule", "posts", "7", "--config"])
        .arg(proxy.folder().join("proxy.toml"))
        .current_dir(proxy.folder())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    wait_until("the row is there", || proxy.get("/posts/7").send().text() == "\"blog\"");
    assert!(blog.seen().iter().any(|request| request.target == "/api/7"));
}

#[test]
fn a_connection_that_is_bound_to_a_client_goes_to_no_other_origin() {
    let main = Origin::always(
        Reply::status("401 Unauthorized").header("WWW-Authenticate", "NTLM").body("who are you?"),
    );
    let blog = Origin::always(Reply::unstored("blog"));
    let proxy = before(&main, &blog, &Storage::Embedded, "");
    let mut client = proxy.connect();
    let log_in = |path: &str| proxy.get(path).header("Authorization", "NTLM TlRMTVNTUAAB");
    assert_eq!(log_in("/").send_on(&mut client).status, 401);
    assert_eq!(log_in("/blog/1").send_on(&mut client).text(), "blog");
    assert_eq!(log_in("/").send_on(&mut client).status, 401);
    assert_eq!((main.count(), blog.count()), (2, 1));
}

#[test]
fn explain_says_which_origin_is_asked() {
    let (main, blog) = (Origin::always(Reply::html("shop")), Origin::always(Reply::html("blog")));
    let proxy = before(&main, &blog, &Storage::Embedded, "");
    for (path, expected) in [("/", "; origin origin"), ("/blog/1", "; origin blog")] {
        let output = anteroom()
            .args(["explain", "--config", "proxy.toml", &format!("http://{SITE}{path}")])
            .current_dir(proxy.folder())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains(expected), "{told}");
    }
}
