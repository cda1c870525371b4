//! One visitor's own data that turns up in a page for everybody, however the app came to know the visitor:
//! planted in every way, and never shared.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::wait_until;

const EVERYONE: &str = "session.mint = true\nlog.user = true\n\
                        [[route]]\nmatch.path = \"/**\"\nshare = \"everyone\"\nttl = \"300s\"";

/// A shop whose next page a case may plant.
struct Shop {
    origin: Origin,
    page: Arc<Mutex<Reply>>,
}

impl Shop {
    fn open() -> Self {
        let page = Arc::new(Mutex::new(Reply::html("")));
        let shown = Arc::clone(&page);
        Self { origin: shop(move |_| shown.lock().unwrap().clone()), page }
    }

    fn plant(&self, reply: Reply) {
        *self.page.lock().unwrap() = reply;
    }
}

fn gzip(page: &str) -> Reply {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(page.as_bytes()).unwrap();
    Reply::status("200 OK")
        .header("Content-Type", "text/html")
        .header("Content-Encoding", "gzip")
        .body(coder.finish().unwrap())
}

on_both_stores!(a_page_with_something_of_its_visitor_s_is_not_shared);

fn a_page_with_something_of_its_visitor_s_is_not_shared(storage: &Storage) {
    let shop = Shop::open();
    let proxy = Proxy::start(&shop.origin, storage, EVERYONE);
    let session = log_in(&proxy, "Al%C3%ADce;mail=alice@example.com;customer=C-10442");
    let token = session.strip_prefix("login=").unwrap();
    let coded: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();

    let cases = [
        (Reply::html("<p>Hello, Alíce!</p>"), "leak-user"),
        (Reply::html("<p>Hello, Al&iacute;ce!</p>"), "leak-user"),
        (Reply::html("<a href='/user/al%C3%ADce'>you</a>"), "leak-user"),
        (Reply::html("<script>me = {\"name\": \"Al\\u00edce\"}</script>"), "leak-user"),
        (Reply::html("<!-- rendered for alíce -->"), "leak-user"),
        (gzip("<p>Hello, alíce!</p>"), "leak-user"),
        (Reply::html("<p>Mail to <b>alice@example.com</b></p>"), "leak-attribute"),
        (Reply::html("<p>Mail to alice&#64;example.com</p>"), "leak-attribute"),
        (Reply::html("<td>customer C-10442</td>"), "leak-attribute"),
        (Reply::html(&format!("<a href='/?s={token}'>")), "leak-token"),
        (Reply::html(&format!("<a href='/?s={coded}'>")), "leak-token"),
        (Reply::typed("application/json", "{\"user\":\"al\\u00edce\"}"), "leak-user"),
        (Reply::typed("application/xml", "<user>Al&#237;ce</user>"), "leak-user"),
        (Reply::html("hello").header("X-Mail", "alice@example.com"), "leak-attribute"),
        (Reply::typed("image/png", "picture").header("X-Session", token), "leak-token"),
    ];
    for (number, (reply, detail)) in cases.into_iter().enumerate() {
        // Each is of a pattern of its own: what one response shows does not count for the next.
        let path = format!("/page-{number}/a");
        shop.plant(reply);
        let answer = proxy.get(&path).cookie(&session).send();
        assert!(answer.cache_status().contains(detail), "{number}: {}", answer.cache_status());
        shop.plant(Reply::html("for all"));
        let other = proxy.get(&path).send();
        assert!(!other.is_hit() && other.text() == "for all", "{number}: {}", other.cache_status());
    }
}

#[test]
fn pages_with_common_words_like_names_are_shared() {
    let shop = Shop::open();
    let proxy = Proxy::embedded(&shop.origin, EVERYONE);
    for (number, (user, page)) in [
        ("alice", "<p>malice, alices, alice_b</p>"),
        ("table", "<table class='x'><tr></table>"),
        ("class", "<p class=\"x\">text"),
        ("al", "<p>al dente</p>"),
        ("17", "<td>17</td>"),
        ("html", "<p>A page</p>"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/page/{number}");
        let session = log_in(&proxy, user);
        shop.plant(Reply::html(page));
        proxy.get(&path).cookie(&session).send();
        let other = proxy.get(&path).send();
        assert!(other.is_hit(), "{user}: {}", other.cache_status());
    }
}

#[test]
fn a_short_name_is_found_where_it_stands_alone() {
    let shop = Shop::open();
    let proxy = Proxy::embedded(&shop.origin, EVERYONE);
    let session = log_in(&proxy, "al");
    shop.plant(Reply::html("<b class=user>Al</b>"));

    let answer = proxy.get("/").cookie(&session).send();

    assert!(answer.cache_status().contains("leak-user"), "{}", answer.cache_status());
}

#[test]
fn an_operator_may_know_better() {
    for (settings, is_shared) in
        [("", [false, false]), ("marks", [true, false]), ("off", [true, true])]
    {
        let shop = Shop::open();
        let line = match settings {
            "" => String::new(),
            word => format!("leak_guard = \"{word}\""),
        };
        let route = EVERYONE.replace("/**", "/shared/**");
        let proxy = Proxy::embedded(&shop.origin, &format!("{route}\n{line}"));
        let session = log_in(&proxy, "alice");
        for (number, (page, is_shared)) in ["<p>alice's guide</p>", "<input name=csrf_token>"]
            .into_iter()
            .zip(is_shared)
            .enumerate()
        {
            let path = format!("/shared/{number}");
            shop.plant(Reply::html(page));
            proxy.get(&path).cookie(&session).send();
            let other = proxy.get(&path).send();
            assert_eq!(other.is_hit(), is_shared, "{settings} {page}: {}", other.cache_status());
        }
    }
}

#[test]
fn a_user_that_a_public_page_names_is_found() {
    let shop = Shop::open();
    let proxy = Proxy::embedded(&shop.origin, "cache.trust_public = true");
    let page = || Reply::html("Hello, alice!").header("Cache-Control", "public, max-age=60");
    shop.plant(page());

    // The visitor has the personal answer as it came, for nothing personal was left out of it; and the
    // visitor's data does not keep others from a page that is as it should be.
    for refused in [1.0, 2.0] {
        let answer = proxy.get("/").header("Authorization", "Basic YWxpY2U6c2VjcmV0MTI=").send();
        assert!(!answer.is_hit(), "{}", answer.cache_status());
        let name = "anteroom_pages_refused_total{reason=\"leak-user\"}";
        wait_until("it is refused", || proxy.metric(name) >= refused);
    }
    shop.plant(Reply::html("Hello, all!").header("Cache-Control", "public, max-age=60"));
    let bob = || proxy.get("/").header("Authorization", "Basic Ym9iOnNlY3JldDEy").send();
    assert!(!bob().is_hit());
    wait_until("the page is shared", || bob().is_hit());
}

#[test]
fn a_found_leak_is_counted_and_explained_but_not_shown() {
    let shop = Shop::open();
    let proxy = Proxy::embedded(&shop.origin, EVERYONE);
    let session = log_in(&proxy, "alice");
    shop.plant(Reply::html("Hello, alice!"));

    proxy.get("/hello").cookie(&session).send();

    assert!(proxy.metric("anteroom_pages_refused_total{reason=\"leak-user\"}") > 0.0);
    let told = proxy.complaints();
    assert!(told.contains("leak-user") && told.contains("/hello"), "{told}");
    assert!(!told.contains("alice"), "{told}");

    let mut explain = anteroom();
    explain.args(["explain", "--config", "proxy.toml", "http://shop.test/hello"]);
    let said = explain.current_dir(proxy.folder()).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("(leak-user): the page contains the name of the user"), "{said}");
    assert!(said.contains("Hint      [[route]] leak_guard: "), "{said}");
}
