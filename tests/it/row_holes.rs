//! Parts of cached pages that are filled from rows.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::wait_until;

on_both_stores!(a_cached_page_shows_the_row_of_now, a_list_page_names_its_rows_in_its_elements,);

/// Settings of a shop with rows of two sources, whose pages have these holes.
fn with(holes: &str) -> String {
    with_rows("rows = [\"7..9\"], every = \"100ms\"", holes)
}

fn with_rows(keys: &str, holes: &str) -> String {
    format!(
        "session.mint = true\n\
         rows = [{{ name = \"inventory\", path = \"/rows/{{row}}\", {keys} }},\n\
         {{ name = \"prices\", path = \"/prices/{{row}}\", rows = [\"7\"] }}]\n\
         [[route]]\nmatch.path = \"/item/{{item}}\"\nshare = \"everyone\"\nfragments = [{holes}]\n\
         [[route]]\nmatch.path = \"/api/stock/{{item}}\"\nrows = \"inventory\""
    )
}

const STOCK: &str =
    r##"{ selector = "#stock", fill = "row:inventory:{item}", template = "{qty} in stock" }"##;
const LIST: &str = r##"{ selector = "[data-stock]", fill = "row:inventory:{data-stock}", template = "<b>{qty}</b>" }"##;
const PAGE: &str = "<html><p>before</p><p id=\"stock\">ask us</p><p>after</p></html>";

/// The page with this inside of its hole.
fn page(inside: &str) -> String {
    PAGE.replace("ask us", inside)
}

fn stored(page: &str) -> Reply {
    Reply::html(page)
        .header("Cache-Control", "public, max-age=3600")
        .header("ETag", "\"stored\"")
        .header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
}

fn missing() -> Reply {
    Reply::status("404 Not Found").body("no")
}

fn json(text: &str) -> Reply {
    Reply::typed("application/json", text)
}

/// An app with this page for each item, and this content for each row of 7 to 9.
fn app(page: impl Into<String>, row: impl Into<String>) -> Origin {
    let (page, row) = (page.into(), row.into());
    shop(move |request| match request.path() {
        "/rows/7" | "/rows/8" | "/rows/9" => json(&row),
        "/prices/7" => json("{\"qty\":\"a price\"}"),
        path if path.starts_with("/item/") => stored(&page),
        _ => missing(),
    })
}

fn hits(origin: &Origin, start: &str) -> usize {
    origin.seen().iter().filter(|request| request.path().starts_with(start)).count()
}

/// Waits until row 7 of the inventory is stored.
fn wait_for_row(proxy: &Proxy) {
    wait_until("the row is stored", || {
        proxy.get("/api/stock/7").send().cache_status().contains("detail=rows")
    });
}

fn plain(answer: &Answer) -> String {
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    let mut coder = flate2::read::GzDecoder::new(answer.body.bytes.as_slice());
    coder.read_to_string(&mut text).unwrap();
    text
}

fn a_cached_page_shows_the_row_of_now(storage: &Storage) {
    let qty = Arc::new(AtomicUsize::new(5));
    let told = Arc::clone(&qty);
    let origin = shop(move |request| match request.path() {
        "/rows/7" => json(&format!("{{\"qty\":{}}}", told.load(Ordering::SeqCst))),
        "/item/7" => stored(PAGE),
        _ => missing(),
    });
    let proxy = Proxy::start(&origin, storage, &with(STOCK));
    wait_for_row(&proxy);
    let alice = log_in(&proxy, "alice");
    let shows = |inside: &str| proxy.get("/item/7").send().text() == page(inside);
    wait_until("it is filled", || shows("5 in stock"));
    qty.store(4, Ordering::SeqCst);
    wait_until("it has changed", || shows("4 in stock"));
    for ask in [
        proxy.get("/item/7"),
        proxy.get("/item/7").cookie(&alice),
        proxy.get("/item/7").header("If-None-Match", "\"stored\""),
        proxy.get("/item/7").header("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        proxy.get("/item/7").header("Range", "bytes=0-4"),
    ] {
        let answer = ask.send();
        assert_eq!((answer.status, answer.is_hit()), (200, true), "{}", answer.cache_status());
        assert_eq!(answer.text(), page("4 in stock"));
        // It is no visitor's own, and no cache shows it again without asking.
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert!(!answer.fields.all("vary").any(|vary| vary.eq_ignore_ascii_case("cookie")));
        for name in ["etag", "last-modified", "content-length", "accept-ranges"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }
    let head = proxy.ask("HEAD", "/item/7").send();
    assert_eq!((head.header("cache-control"), head.header("etag")), (Some("no-cache"), None));
    assert_eq!(head.header("content-length"), None);
    let zipped = proxy.get("/item/7").header("Accept-Encoding", "gzip, br").send();
    assert_eq!(plain(&zipped), page("4 in stock"));
    assert_eq!(hits(&origin, "/item/"), 1);
}

fn a_list_page_names_its_rows_in_its_elements(storage: &Storage) {
    let long = "7".repeat(10_000);
    let line = |id: &str| format!("<li data-stock=\"{id}\"><i>ask us</i></li>");
    let ids = ["7", "8", "77", "&#55;", "", "..", "prices:7", "inventory:7", "7 ", "../prices/7"];
    let list = format!(
        "{}{}<li data-stock>x</li><p class=\"data-stock\">x</p>",
        ids.map(line).concat(),
        line(&long)
    );
    let origin = app(list.as_str(), "{\"qty\":3}");
    let proxy = Proxy::start(&origin, storage, &with(LIST));
    wait_for_row(&proxy);
    let filled = |id: &str| line(id).replace("<i>ask us</i>", "<b>3</b>");
    let expected = list
        .replace(&line("7"), &filled("7"))
        .replace(&line("8"), &filled("8"))
        .replace(&line("&#55;"), &filled("&#55;"));
    wait_until("it is filled", || proxy.get("/item/1").send().text() == expected);
    // The rows of another source are not shown.
    assert!(!proxy.get("/item/1").send().text().contains("a price"));

    // With a fallback, what the page has there is not shown.
    let proxy =
        Proxy::start(&origin, storage, &with(&LIST.replace(" }", ", fallback = \"sold out\" }")));
    wait_for_row(&proxy);
    let expected = expected
        .replace("<i>ask us</i>", "sold out")
        .replace("data-stock>x", "data-stock>sold out");
    wait_until("it is filled", || proxy.get("/item/1").send().text() == expected);
}

#[test]
fn what_a_row_says_is_text() {
    let evil = r#"{"qty":"\"'><script>alert(1)</script>&amp;","list":{"a":["</p>"]}}"#;
    let hole = "{ selector = \"#stock\", fill = \"row:inventory:7\", template = '<a title=\"{qty}\" href=\"/x/{qty}\">{qty}</a>{list.a}{no}' }";
    let script = "{ selector = \"script\", fill = \"row:inventory:7\", template = '{qty}' }";
    let page = format!("{PAGE}<script>1</script>");
    let origin = app(page.as_str(), evil);
    let proxy = Proxy::embedded(&origin, &with(&format!("{hole}, {script}")));
    wait_for_row(&proxy);
    let escaped = "&quot;&#39;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;";
    let address = "%22%27%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E%26amp%3B";
    let inside = format!(
        "<a title=\"{escaped}\" href=\"/x/{address}\">{escaped}</a>[&quot;&lt;/p&gt;&quot;]"
    );
    let answer = proxy.get("/item/7").send();
    assert_eq!(answer.text(), page.replace("ask us", &inside), "no script is filled");
}

#[test]
fn a_row_that_cannot_be_shown_leaves_what_the_page_has() {
    let large = format!("{{\"qty\":\"{}\"}}", "x".repeat((1 << 20) - 20));
    for row in ["7", "[1]", large.as_str()] {
        let origin = app(PAGE, row);
        let proxy = Proxy::embedded(&origin, &with(STOCK));
        wait_for_row(&proxy);
        assert_eq!(proxy.get("/item/7").send().text(), PAGE, "{}", &row[..row.len().min(9)]);
        assert!(proxy.metric("anteroom_fragments_unfilled_total") >= 1.0);
    }
    let origin = app(PAGE, r#"[{"qty":1},{"qty":2}]"#);
    let proxy = Proxy::embedded(&origin, &with(STOCK));
    wait_for_row(&proxy);
    assert_eq!(proxy.get("/item/7").send().text(), page("1 in stock2 in stock"));
    // The item of the request is one that the rows do not have.
    assert_eq!(proxy.get("/item/prices%3A7").send().text(), PAGE);
    assert_eq!(proxy.get("/item/5").send().text(), PAGE);
}

#[test]
fn as_many_elements_are_filled_as_the_limit_says() {
    let line = "<li data-stock=7>?</li>";
    let origin = app(line.repeat(40), "{\"qty\":3}");
    let proxy = Proxy::embedded(&origin, &with(LIST));
    wait_for_row(&proxy);
    let text = proxy.get("/item/7").send().text();
    assert_eq!((text.matches("<b>3</b>").count(), text.matches(">?<").count()), (32, 8));
    let settings = format!("limits.fragments = 40\n{}", with(LIST));
    let proxy = Proxy::embedded(&origin, &settings);
    wait_for_row(&proxy);
    let text = proxy.get("/item/7").send().text();
    assert_eq!(text.matches("<b>3</b>").count(), 40);
}

#[test]
fn a_store_that_is_away_leaves_what_the_page_has() {
    // A long page: its holes are not all found at once.
    let line = format!("<li data-stock=7>?</li><p>{}</p>", "filling ".repeat(5_000));
    let list = line.repeat(20);
    let origin = app(list.as_str(), "{\"qty\":3}");
    let redis = RedisServer::start();
    let settings = format!("store.url = \"{}\"\n{}", redis.url(), with(LIST));
    let proxy = Proxy::with_settings(&origin, &settings);
    wait_for_row(&proxy);
    let filled = list.replace('?', "<b>3</b>");
    wait_until("it is filled", || proxy.get("/item/7").send().text() == filled);
    redis.pause();
    wait_until("the page is as the app wrote it", || proxy.get("/item/7").send().text() == list);
    redis.resume();
    wait_until("it is filled again", || proxy.get("/item/7").send().text() == filled);
    assert_eq!(hits(&origin, "/item/"), 1);
}

#[test]
fn a_row_on_demand_is_fetched_for_the_next_page() {
    let gate = Gate::closed();
    let passes = Arc::clone(&gate);
    let origin = shop(move |request| match request.path() {
        "/rows/7" => {
            passes.pass();
            json("{\"qty\":3}")
        }
        "/item/7" => stored(PAGE),
        _ => missing(),
    });
    let proxy = Proxy::embedded(&origin, &with_rows("on_demand = true", STOCK));
    assert_eq!(proxy.get("/item/7").send().text(), PAGE, "the page did not wait");
    wait_until("the row is asked for", || hits(&origin, "/rows/7") == 1);
    gate.open();
    // Nothing but pages asks for it.
    wait_until("it is filled", || proxy.get("/item/7").send().text() == page("3 in stock"));
    assert_eq!((hits(&origin, "/item/"), hits(&origin, "/api/")), (1, 0));
    let listed = anteroom()
        .args(["rows", "list", "--config", "proxy.toml"])
        .current_dir(proxy.folder())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("inventory  7"), "{listed:?}");
}

#[test]
fn an_include_of_a_row_does_not_ask_the_app() {
    let origin = Origin::start(|request| match request.path() {
        "/rows/7" => json("{\"qty\":\"<3>\"}"),
        "/esi/7" => stored("<script>var row = <esi:include src=\"/api/stock/7\"/></script>")
            .header("Surrogate-Control", "content=\"ESI/1.0\""),
        _ => Reply::html("from the app"),
    });
    let esi = "\n[[route]]\nmatch.path = \"/esi/**\"\nshare = \"everyone\"\nesi = true";
    let proxy = Proxy::embedded(&origin, &format!("{}{esi}", with(STOCK)));
    wait_for_row(&proxy);
    let asked = hits(&origin, "/api/");
    let answer = proxy.get("/esi/7").send();
    assert_eq!(answer.text(), "<script>var row = {\"qty\":\"<3>\"}</script>");
    assert_eq!(hits(&origin, "/api/"), asked);

    // One of a source on demand does not hold the page up, either.
    let settings = format!("{}{esi}", with_rows("on_demand = true", STOCK));
    let proxy = Proxy::embedded(&origin, &settings);
    let with_row = "<script>var row = {\"qty\":\"<3>\"}</script>";
    wait_until("the row is there", || proxy.get("/esi/7").send().text() == with_row);
}

#[test]
fn what_is_personal_in_the_hole_of_a_row_keeps_a_page_from_being_shared() {
    let form = "<form><input type=hidden name=csrf_token value=abcdef123456></form>";
    let origin = app(page(form), "{\"qty\":3}");
    let proxy = Proxy::embedded(&origin, &with(STOCK));
    wait_for_row(&proxy);
    for _ in 0..2 {
        let answer = proxy.get("/item/7").send();
        assert_eq!((answer.text(), answer.is_hit()), (page("3 in stock"), false));
    }
    assert_eq!(hits(&origin, "/item/"), 2);
}

#[test]
fn an_explanation_names_the_rows() {
    let origin = app(PAGE, "{\"qty\":3}");
    let proxy = Proxy::embedded(&origin, &with(&format!("{STOCK}, {LIST}")));
    wait_for_row(&proxy);
    let explain = |target: &str| {
        let output = anteroom()
            .args(["explain", target, "--config", "proxy.toml"])
            .current_dir(proxy.folder())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let told = explain("http://shop.example/item/7");
    for part in [
        "fragments are filled in from rows",
        "#stock is filled in from row 7 of inventory, which is stored",
        "[data-stock] is filled in from the row of inventory that its data-stock names",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(
        explain("http://shop.example/item/5").contains("row 5 of inventory, which is not stored")
    );
}
