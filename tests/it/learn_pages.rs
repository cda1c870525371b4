//! Learn mode: which pages differ between visitors that would share them, wherever the difference stands, and which only
//! seem to.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::Value;

use crate::learn::{LEARNS, cookie, report, same, verdict, wait_for};
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, log_in, shop};
use crate::support::wait_until;

/// Asks as a visitor at an address of its own, with these fields.
fn ask(proxy: &Proxy, visitor: u8, target: &str, fields: &[(&str, &str)]) {
    let address = format!("192.0.2.{visitor}");
    let asked = proxy.get(target).header("X-Forwarded-For", &address);
    fields.iter().fold(asked, |asked, (name, value)| asked.header(name, value)).send();
}

fn deflated(text: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Pages that differ in another place each, or seem to.
fn site() -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |request: &Request| {
        let nth = asked.fetch_add(1, Ordering::SeqCst);
        let who = request.header("cookie").unwrap_or_default().replace("who=", "");
        let address = request.header("x-forwarded-for").unwrap_or_default().replace('.', "-");
        let number: usize = address.rsplit('-').next().unwrap_or_default().parse().unwrap_or(0);
        let page = same("<p>same</p>");
        match request.path() {
            "/greeting" => page.header("X-Greeting", &who),
            "/link" => page.header("Link", &format!("</of/{address}>; rel=next")),
            "/moved" => Reply::status("301 Moved Permanently")
                .header("Location", &format!("/of/{address}"))
                .header("Cache-Control", "max-age=300")
                .body(""),
            "/plain" => Reply::typed("text/plain", &format!("{nth}\nYou are at {address}\n"))
                .header("Cache-Control", "max-age=300"),
            "/attributes" => same(&format!("<body data-nonce=\"{nth}\" data-at=\"{address}\">")),
            "/script" => same(&format!("<script>var n='{nth}';var at='{address}'</script>")),
            "/stars" => same(&"<i>*</i>".repeat(number)),
            "/order" if number == 1 => same("<b>1</b><b>2</b>"),
            "/order" => same("<b>2</b><b>1</b>"),
            "/deflate" => Reply::status("200 OK")
                .header("Content-Type", "text/html")
                .header("Content-Encoding", "deflate")
                .header("Cache-Control", "max-age=300")
                .body(deflated(&format!("<p>You are at {address}</p>"))),
            "/language" => same(&format!("<p>{}</p>", request.header("accept-language").unwrap()))
                .header("Vary", "Accept-Language"),
            "/ids" => page
                .header("X-Request-Id", &format!("r{nth}"))
                .header("X-Unheard-Of", &format!("{nth}"))
                .header("ETag", &format!("W/\"{nth}\"")),
            "/word" => same(&format!("<i>{nth}</i><p>Anneliese and Bartholomew</p>")),
            _ => same(&format!("<p>You are at {address}</p>")),
        }
    })
}

const DIFFERING: [(&str, &str); 10] = [
    ("/greeting", "own-words"),
    ("/link", "by-visitor"),
    ("/moved", "by-visitor"),
    ("/plain", "by-visitor"),
    ("/attributes", "by-visitor"),
    ("/script", "by-visitor"),
    ("/stars", "by-visitor"),
    ("/order", "by-visitor"),
    ("/deflate", "by-visitor"),
    ("/last", "by-visitor"),
];

/// What pages show that are no leak.
const OTHERS: [(&str, Option<&str>); 3] =
    [("/language", None), ("/ids", None), ("/word", Some("noise"))];

#[test]
fn a_difference_is_found_wherever_it_stands_and_none_is_made_up() {
    let origin = site();
    let settings = format!("{LEARNS}cache.ignore_cookies = [\"who\"]\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let others = OTHERS.iter().map(|(path, _)| *path);
    let paths: Vec<&str> = others.chain(DIFFERING.iter().map(|(path, _)| *path)).collect();
    for _ in 0..3 {
        for (visitor, who, language) in [(1, "Anneliese", "de"), (2, "Bartholomew", "fr")] {
            let fields = [("Cookie", &*format!("who={who}")), ("Accept-Language", language)];
            for path in &paths {
                ask(&proxy, visitor, path, &fields);
            }
        }
    }
    // Each visitor has a page of its own language.
    wait_for(&proxy, "compared_pages", paths.len() as u64 - 1);
    let answers = |learned: &Value, path: &str| {
        let pages = learned["pages"].as_array().unwrap();
        let page = pages.iter().find(|page| page["path"] == path);
        page.map_or(0, |page| page["answers"].as_u64().unwrap())
    };
    wait_until("the last page is compared", || answers(&report(&proxy), "/last") == 6);
    let learned = report(&proxy);
    let said: Vec<_> = DIFFERING.iter().map(|(path, _)| (*path, verdict(&learned, path))).collect();
    let expected: Vec<_> =
        DIFFERING.iter().map(|(path, verdict)| (*path, Value::from(*verdict))).collect();
    assert_eq!(said, expected);
    let said: Vec<_> = OTHERS.iter().map(|(path, _)| (*path, verdict(&learned, path))).collect();
    let expected: Vec<_> = OTHERS
        .iter()
        .map(|(path, verdict)| (*path, verdict.map_or(Value::Null, Value::from)))
        .collect();
    assert_eq!(said, expected);
}

#[test]
fn a_clock_alone_is_no_reason_to_key_a_cookie() {
    let asked = AtomicUsize::new(0);
    let origin = Origin::start(move |request| match request.path() {
        "/clock" => same(&format!("<p>It is {}</p>", asked.fetch_add(1, Ordering::SeqCst) / 3)),
        _ => same("<p>the same</p>"),
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    for _ in 0..6 {
        for visitor in 1..=8 {
            let theme = if visitor % 2 == 0 { "theme=dark" } else { "theme=light" };
            for path in ["/clock", "/a", "/b", "/c"] {
                ask(&proxy, visitor, path, &[("Cookie", theme)]);
            }
        }
    }
    // Answers are compared behind the requests.
    let is_noise = || verdict(&report(&proxy), "/clock") == "noise";
    wait_until("the clock is told from what visitors see", is_noise);
    wait_until("the cookie is harmless", || {
        cookie(&report(&proxy), "theme")["verdict"] == "harmless"
    });
    let report = report(&proxy);
    let proposals = report["proposals"].to_string();
    assert!(proposals.contains("ignore_cookies"), "{proposals}");
    assert!(!proposals.contains("key_cookies"), "{proposals}");
}

#[test]
fn own_words_are_found_in_any_form_and_an_answer_cut_short_teaches_nothing() {
    let origin = Origin::start(|request: &Request| {
        let who = request.header("cookie").unwrap_or_default().replace("who=", "");
        let (start, end) = who.split_at(4.min(who.len()));
        let fresh = |reply: Reply| reply.header("Cache-Control", "max-age=300");
        match request.path() {
            "/chunks" => fresh(Reply::status("200 OK").header("Content-Type", "text/html"))
                .chunks(&["<p>Hello ", start, end, "</p>"], &[]),
            "/json" => fresh(Reply::typed("application/json", &format!("{{\"me\": \"{who}\"}}"))),
            "/encoded" => same(&format!("<p>&#{};{}</p>", u32::from(who.as_bytes()[0]), &who[1..])),
            "/gone" => fresh(Reply::status("404 Not Found").header("Content-Type", "text/html"))
                .body(format!("<p>No page for {who}</p>")),
            _ => fresh(Reply::status("200 OK").header("Content-Length", "100"))
                .bytes(&format!("<p>Hello {who}</p>"))
                .closing(),
        }
    });
    let settings = format!("{LEARNS}cache.ignore_cookies = [\"who\"]\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let found = ["/chunks", "/json", "/encoded", "/gone"];
    for _ in 0..2 {
        for (visitor, who) in (1..).zip(["Anneliese", "Bartholomew"]) {
            let address = format!("192.0.2.{visitor}");
            let cut = proxy.get("/cut").header("X-Forwarded-For", &address);
            drop(cut.cookie(&format!("who={who}")).try_send_on(&mut proxy.connect()));
            for path in found {
                ask(&proxy, visitor, path, &[("Cookie", &*format!("who={who}"))]);
            }
        }
    }
    wait_until("all are found", || {
        let learned = report(&proxy);
        found.iter().all(|path| verdict(&learned, path) == "own-words")
    });
    let learned = report(&proxy);
    assert_eq!(verdict(&learned, "/cut"), Value::Null, "{learned}");
    assert_eq!(learned["compared_pages"], found.len(), "{learned}");
}

#[test]
fn a_page_that_differs_by_authorization_is_found_where_public_is_trusted() {
    let origin = Origin::start(|request: &Request| {
        let number = request.header("authorization").map_or(0, str::len);
        Reply::typed("text/plain", &format!("account {number}"))
            .header("Cache-Control", "public, max-age=300")
    });
    let settings = format!("{LEARNS}\n[[route]]\nmatch.path = \"/**\"\ntrust_public = true\n");
    let proxy = Proxy::embedded(&origin, &settings);
    for _ in 0..3 {
        for secret in ["Bearer 0a1b2c3d4e", "Bearer 0a1b2c3d4e5f6a7b8c9d"] {
            ask(&proxy, 1, "/account", &[("Authorization", secret)]);
        }
    }
    wait_until("it is found", || verdict(&report(&proxy), "/account") == "by-visitor");
}

#[test]
fn a_visitor_whose_cookie_each_answer_renews_is_known_again() {
    let sessions = Mutex::new(HashMap::from([("0".to_owned(), 0), ("1".to_owned(), 1)]));
    let next = AtomicUsize::new(2);
    let origin = Origin::start(move |request: &Request| {
        let came = request.header("cookie").unwrap_or_default().replace("sid=", "");
        let mut sessions = sessions.lock().unwrap();
        let cart: usize = sessions.remove(&came).unwrap_or(7);
        let id = next.fetch_add(1, Ordering::SeqCst).to_string();
        sessions.insert(id.clone(), cart);
        Reply::typed("application/json", &format!("{{\"cart\": {cart}}}"))
            .header("Cache-Control", "max-age=300")
            .header("Set-Cookie", &format!("sid={id}"))
    });
    let settings = format!("{LEARNS}cache.unknown_cookies = \"ignore\"\n");
    let route = "[[route]]\nmatch.path = \"/**\"\nstrip_set_cookie = [\"sid\"]\n";
    let proxy = Proxy::embedded(&origin, &format!("{settings}{route}"));
    let mut ids = ["0".to_owned(), "1".to_owned()];
    for _ in 0..6 {
        for (visitor, id) in (1..).zip(&mut ids) {
            let asked = proxy.get("/cart").header("X-Forwarded-For", &format!("192.0.2.{visitor}"));
            *id = asked.cookie(&format!("sid={id}")).send().cookie("sid").unwrap();
        }
    }
    wait_until("it is found", || verdict(&report(&proxy), "/cart") == "by-visitor");
}

#[test]
fn a_script_that_is_static_by_proof_and_differs_for_users_is_found() {
    let origin = shop(|request| {
        let is_user = request.header("cookie").is_some();
        Reply::typed("text/javascript", if is_user { "x = 1\ny = 2" } else { "x = 1" })
            .header("Cache-Control", "max-age=300")
            .header("ETag", "\"1\"")
    });
    let proxy = Proxy::embedded(&origin, &format!("{LEARNS}session.mint = true"));
    let alice = log_in(&proxy, "alice");
    for _ in 0..3 {
        for visitor in [1, 2] {
            ask(&proxy, visitor, "/me.js", &[]);
            ask(&proxy, visitor + 2, "/me.js", &[("Cookie", &alice)]);
        }
        wait_until("it is learned", || report(&proxy)["unknown"] == 0);
    }
    let verdict = || verdict(&report(&proxy), "/me.js");
    wait_until("it is found", || verdict() == "by-cookie" || verdict() == "by-visitor");
}

/// An app that can be away, and answers 503 then.
struct App {
    origin: Origin,
    is_away: Arc<AtomicBool>,
}

impl App {
    fn start(page: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let origin = Origin::start(move |request| match away.load(Ordering::SeqCst) {
            _ if request.method == "POST" => Reply::unstored("changed"),
            true => Reply::status("503 Service Unavailable").body("away"),
            false => page(request),
        });
        Self { origin, is_away }
    }

    fn is_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }
}

#[test]
fn an_error_of_the_origin_hides_no_leak() {
    let app = App::start(|request| {
        let address = request.header("x-forwarded-for").unwrap_or_default().replace('.', "-");
        same(&format!("<p>You are at {address}</p>"))
    });
    let proxy = Proxy::embedded(&app.origin, LEARNS);
    for _ in 0..3 {
        ask(&proxy, 1, "/a", &[]);
        ask(&proxy, 2, "/a", &[]);
    }
    wait_until("it is found", || verdict(&report(&proxy), "/a") == "by-visitor");
    proxy.post("/a").send();
    app.is_away(true);
    ask(&proxy, 1, "/a", &[]);
    ask(&proxy, 1, "/b", &[]);
    wait_for(&proxy, "requests", 9);
    assert_eq!(verdict(&report(&proxy), "/a"), "by-visitor");
}

#[test]
fn a_stale_page_is_foretold_as_a_hit_while_the_origin_fails() {
    let app = App::start(|_| Reply::html("<p>same</p>").header("Cache-Control", "max-age=1"));
    let proxy = Proxy::embedded(&app.origin, LEARNS);
    proxy.get("/a").send();
    wait_until("it is learned", || report(&proxy)["unknown"] == 0);
    app.is_away(true);
    wait_until("its lifetime is over for long", || {
        proxy.get("/a").send();
        let learned = report(&proxy);
        learned["at"].as_f64().unwrap() - learned["since"].as_f64().unwrap() > 2.5
    });
    let learned = report(&proxy);
    assert_eq!(learned["hits"].as_u64().unwrap() + 1, learned["requests"].as_u64().unwrap());
    app.is_away(false);
    proxy.get("/a").send();
    wait_until("it is fetched again", || report(&proxy)["routes"][0]["fetches"] == 2);
}

#[test]
fn what_visitors_call_their_cookies_widens_no_pattern_and_tells_no_secret() {
    let origin = Origin::always(same("<p>same</p>"));
    let proxy = Proxy::embedded(&origin, LEARNS);
    let cookies = ["*=1", "s*=1", "_0123456789ab=1", "Zm9vc2VjcmV0", "=c2VjcmV0", "a\\x=1", "ok=1"];
    for target in ["/1", "/2", "/3", "/4"] {
        for _ in 0..2 {
            ask(&proxy, 1, target, &[]);
            for (visitor, line) in (2..).zip(cookies) {
                ask(&proxy, visitor, target, &[("Cookie", line)]);
                ask(&proxy, visitor + 20, target, &[("Cookie", line)]);
            }
        }
    }
    wait_until("the cookies are known", || cookie(&report(&proxy), "ok")["verdict"] == "harmless");
    let learned = report(&proxy);
    let proposed = learned["proposals"].to_string();
    assert!(proposed.contains("ignore_cookies = [\\\"ok\\\"]"), "{proposed}");
    assert!(!learned.to_string().contains("Zm9vc2VjcmV0"), "{learned}");
}

#[test]
fn a_cookie_that_the_app_sets_for_seconds_is_not_called_harmless() {
    let origin = Origin::start(|request: &Request| match request.method.as_str() {
        "POST" => Reply::unstored("saved").header("Set-Cookie", "UseDC=master; Max-Age=10"),
        _ => same("<p>same</p>"),
    });
    let proxy = Proxy::embedded(&origin, LEARNS);
    proxy.post("/edit").send();
    for target in ["/1", "/2", "/3", "/4"] {
        for _ in 0..2 {
            ask(&proxy, 1, target, &[]);
            for visitor in [2, 3] {
                ask(&proxy, visitor, target, &[("Cookie", "UseDC=master; ok=1")]);
                ask(&proxy, visitor, target, &[("Cookie", "ok=1")]);
            }
        }
    }
    wait_until("the pages are compared", || {
        let learned = report(&proxy);
        cookie(&learned, "ok")["verdict"] == "harmless"
            && cookie(&learned, "UseDC")["pages_same"] == 4
    });
    let learned = report(&proxy);
    let told = cookie(&learned, "UseDC");
    assert_eq!(told["verdict"], "unclear", "{told}");
    assert!(told["text"].as_str().unwrap().contains("for 10 s only"), "{told}");
}
