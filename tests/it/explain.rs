//! `anteroom explain`: what it tells is what happens, and it leaves no trace.

use std::fs;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Answer, SITE};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, Storage, anteroom, log_in, on_both_stores, shop};
use crate::support::redis::RedisServer;
use crate::support::{unix_now, wait_until};

const TOKEN: &str = "0123456789abcdef";

on_both_stores!(
    a_page_not_requested_before_is_fetched,
    a_hit_is_told_with_its_arithmetic,
    a_stale_page_is_told_with_its_windows,
    variants_are_told,
    a_purge_is_told,
    the_explanation_matches_the_real_request,
);

/// A request, told of and sent.
#[derive(Clone, Copy, Default)]
struct Case {
    target: &'static str,
    method: &'static str,
    fields: &'static [(&'static str, &'static str)],
    reason: &'static str,
}

impl Case {
    const fn of(target: &'static str, reason: &'static str) -> Self {
        Self { target, method: "GET", fields: &[], reason }
    }

    const fn with(self, fields: &'static [(&'static str, &'static str)]) -> Self {
        Self { fields, ..self }
    }

    fn told(self, proxy: &Proxy) -> Value {
        let fields: Vec<_> = self.fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        let mut words = vec!["--method", self.method];
        words.extend(fields.iter().flat_map(|field| ["--header", field]));
        explain(proxy, self.target, &words)
    }

    fn sent(self, proxy: &Proxy) -> Answer {
        let ask = proxy.ask(self.method, self.target);
        self.fields.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send()
    }

    /// Both say the same, which is `reason`.
    fn assert_same(self, proxy: &Proxy) {
        let told = self.told(proxy);
        let happened = self.sent(proxy);
        let status = told["cache_status"].as_str().unwrap_or_default();
        assert_eq!(timeless(status), timeless(happened.cache_status()), "{}: {told}", self.target);
        assert_eq!(told["reason"].as_str().unwrap_or_default(), self.reason, "{told}");
        assert!(!told["why"].as_str().unwrap().is_empty());
    }
}

/// `Cache-Status` without seconds, which pass.
fn timeless(status: &str) -> String {
    status.split(';').filter(|part| !part.trim().starts_with("ttl=")).collect()
}

fn run(proxy: &Proxy, target: &str, words: &[&str]) -> Output {
    let url =
        if target.starts_with('/') { format!("http://{SITE}{target}") } else { target.into() };
    anteroom()
        .args(["explain", "--config", "proxy.toml", &url])
        .args(words)
        .current_dir(proxy.folder())
        .output()
        .unwrap()
}

/// `anteroom explain --json`, and what it says.
fn explain(proxy: &Proxy, target: &str, words: &[&str]) -> Value {
    let output = run(proxy, target, &[words, &["--json"]].concat());
    assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says to people.
fn said(proxy: &Proxy, target: &str, words: &[&str]) -> String {
    let output = run(proxy, target, words);
    assert!(output.status.success(), "{target}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn hints(told: &Value) -> Vec<&str> {
    let hints = told["hints"].as_array().unwrap();
    hints.iter().map(|hint| hint["key"].as_str().unwrap()).collect()
}

fn page() -> Origin {
    Origin::always(Reply::html("a page"))
}

#[test]
fn a_slow_clock_of_the_app_is_told() {
    let origin = Origin::start(|request| {
        let date = UNIX_EPOCH + Duration::from_secs_f64(unix_now() - 600.0);
        let page = Reply::html("page").header("Cache-Control", "max-age=60");
        let page = page.header("Date", &httpdate::fmt_http_date(date));
        if request.path() == "/tagged" { page.header("ETag", "\"1\"") } else { page }
    });
    let proxy = Proxy::embedded(&origin, "");
    for target in ["/plain", "/tagged"] {
        assert!([(); 2].map(|()| proxy.get(target).send().is_hit()) == [false; 2], "{target}");
    }
    let told = explain(&proxy, "/plain", &[]);
    assert_eq!(told["leak"]["reason"], "stale", "{told}");
    assert!(told["leak"]["why"].as_str().unwrap().contains("Date"), "{told}");
    let told = explain(&proxy, "/tagged", &[]);
    let notes = told["notes"].as_array().unwrap();
    let note = notes.iter().find_map(|note| note.as_str().filter(|note| note.contains("Date")));
    assert!(note.is_some_and(|note| note.contains("the clock of the app is slow")), "{told}");
}

#[test]
fn a_route_that_learns_forwards_and_tells_what_it_would_do() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "cache.mode = \"learn\"\n");
    Case::of("/a", "learn").assert_same(&proxy);
    let cookie = Case::of("/a", "unknown-cookie").with(&[("cookie", "consent=1")]);
    cookie.assert_same(&proxy);
    let text = said(&proxy, "/a", &[]);
    assert!(text.contains("\nForwarded (learn): the route learns"), "{text}");
    assert!(text.contains("\nNote      with mode = \"serve\": Fetched for the cache: "), "{text}");

    let settings = "cache.mode = \"learn\"\nlearn.mirror = true\n";
    let proxy = Proxy::embedded(&origin, settings);
    let text = said(&proxy, "/a", &[]);
    assert!(text.contains("\nAnswered by Anteroom (learn): 204"), "{text}");
}

fn a_page_not_requested_before_is_fetched(storage: &Storage) {
    let origin = page();
    let proxy = Proxy::start(&origin, storage, "");
    let told = explain(&proxy, "/a?utm_source=x&b=1", &["--header", "Accept-Language: de"]);
    assert_eq!((told["outcome"].as_str(), &told["reason"]), (Some("fetch"), &Value::Null));
    assert_eq!(told["url"], "http://shop.test/a?utm_source=&b=");
    assert_eq!((&told["memory"]["page"], &told["store"]["page"]), (&Value::Null, &Value::Null));
    assert_eq!(told["key"]["query"], "b=");
    assert_eq!(told["key"]["ignored"][0], "utm_source");
    let fill = &told["fill"];
    assert!(fill["fields"].as_array().unwrap().contains(&"accept-language".into()), "{fill}");
    assert_eq!((fill["spares"].as_bool(), fill["target"].as_str()), (Some(true), Some("/a?b=")));
    assert_eq!(told["silent"]["source"], "[cache] default_ttl");
    assert_eq!(told["silent"]["lifetime"], 300);
    assert_eq!(origin.count(), 0, "nothing was sent");
    let fetched = proxy.get("/a?b=1").send();
    assert!(fetched.cache_status().contains("fwd=uri-miss"), "nothing was kept: {fetched:?}");
}

fn a_hit_is_told_with_its_arithmetic(storage: &Storage) {
    let origin = Origin::always(
        Reply::html("a page")
            .header("Cache-Control", "max-age=10, s-maxage=60")
            .header("Age", "20")
            .header("ETag", "\"one\""),
    );
    let proxy = Proxy::start(&origin, storage, "");
    proxy.get("/").send();
    let told = explain(&proxy, "/?utm_source=x", &[]);
    assert_eq!(told["outcome"], "hit", "{told}");
    let page = &told["page"];
    assert_eq!(page["source"], "Cache-Control: s-maxage");
    assert_eq!((page["lifetime"].as_u64(), page["standing"].as_str()), (Some(60), Some("fresh")));
    let (age, ttl) = (page["age"].as_u64().unwrap(), page["ttl"].as_u64().unwrap());
    assert!(age >= 20 && age + ttl == 60, "{page}");
    assert_eq!((&page["validators"][0], &page["refused"]), (&"etag".into(), &Value::Null));
    assert_eq!(told["memory"]["page"], "fresh");
    assert!(proxy.get("/").send().is_hit());
    assert_eq!(origin.count(), 1);
}

fn a_stale_page_is_told_with_its_windows(storage: &Storage) {
    let control = "max-age=60, stale-while-revalidate=1000, stale-if-error=2000";
    let origin = Origin::start(move |_| {
        let stale = Reply::html("a page").header("Age", "100").header("ETag", "\"one\"");
        stale.header("Cache-Control", control)
    });
    let proxy = Proxy::start(&origin, storage, "");
    proxy.get("/").send();
    let told = explain(&proxy, "/", &[]);
    assert_eq!(told["outcome"], "stale", "{told}");
    let page = &told["page"];
    assert_eq!(
        (page["stale_while_revalidate"].as_u64(), page["stale_if_error"].as_u64()),
        (Some(1000), Some(2000))
    );
    assert!(page["ttl"].as_i64().unwrap() <= -40, "{page}");
    assert!(told["cache_status"].as_str().unwrap().ends_with("detail=stale"), "{told}");
    assert_eq!(told["fill"]["validates"], true);
    assert_eq!(origin.count(), 1, "nothing is fetched for an explanation");
    let answer = proxy.get("/").send();
    assert!(answer.cache_status().ends_with("detail=stale"), "{}", answer.cache_status());
}

fn variants_are_told(storage: &Storage) {
    let origin = Origin::start(|request| {
        let page = Reply::html(request.header("accept-language").unwrap_or("none"));
        page.header("Vary", "Accept-Language").header("Cache-Control", "max-age=60")
    });
    let proxy = Proxy::start(&origin, storage, "");
    for language in ["de", "fr"] {
        proxy.get("/").header("Accept-Language", language).send();
    }
    let told = explain(&proxy, "/", &["--header", "Accept-Language: fr"]);
    assert_eq!(told["outcome"], "hit", "{told}");
    let variants = &told["memory"]["variants"];
    assert_eq!(
        (&variants["fields"][0], &variants["count"]),
        (&"accept-language".into(), &2.into())
    );
    let other = explain(&proxy, "/", &["--header", "Accept-Language: en"]);
    assert_eq!((&other["outcome"], &other["memory"]["page"]), (&"fetch".into(), &Value::Null));
    assert_eq!(origin.count(), 2);
}

fn a_purge_is_told(storage: &Storage) {
    let origin = Origin::always(Reply::html("a page").header("Cache-Control", "max-age=60"));
    let proxy = Proxy::start(&origin, storage, "");
    for (hard, standing, purged) in [(&[][..], "stale", "soft"), (&["--hard"], "purged", "hard")] {
        proxy.get("/").send();
        purge(&proxy, hard);
        let told = explain(&proxy, "/", &[]);
        assert_eq!(
            (&told["outcome"], &told["memory"]["page"]),
            (&"fetch".into(), &standing.into())
        );
        assert_eq!(told["page"]["purged"], purged, "{told}");
        assert!(!proxy.get("/").send().is_hit());
    }
}

/// `anteroom purge` of the root.
fn purge(proxy: &Proxy, words: &[&str]) {
    let output = anteroom()
        .args(["purge", "--config", "proxy.toml", &format!("http://{SITE}/")])
        .args(words)
        .current_dir(proxy.folder())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_mark_hides_what_another_proxy_stored_until_the_page_is_purged() {
    let sets_cookie = Arc::new(AtomicBool::new(true));
    let sets = Arc::clone(&sets_cookie);
    let origin = Origin::start(move |_| match sets.load(Ordering::SeqCst) {
        true => Reply::html("a page").header("Set-Cookie", "basket=1"),
        false => Reply::html("a page"),
    });
    let storage = Storage::Redis(RedisServer::start());
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, ""));
    let case = Case::of("/", "set-cookie");
    one.get("/").send();
    case.assert_same(&one);
    sets_cookie.store(false, Ordering::SeqCst);
    // The fleet leaves an uncacheable page alone for a moment.
    wait_until("the page is in the store", || {
        other.get("/").send();
        explain(&one, "/", &[])["store"]["page"] == "fresh"
    });
    case.assert_same(&one);
    purge(&one, &["--hard"]);
    other.get("/").send();
    wait_until("the page is found again", || one.get("/").send().is_hit());
}

/// An origin that says of each page what its path names.
fn speaking() -> Origin {
    Origin::start(|request| {
        let page = Reply::html("<p>a page</p>");
        match request.path() {
            "/set-cookie" => page.header("Set-Cookie", "visited=1"),
            "/no-store" => page.header("Cache-Control", "no-store"),
            "/private" => page.header("Cache-Control", "private"),
            "/no-cache" => page.header("Cache-Control", "no-cache"),
            "/vary-any" => page.header("Vary", "*").header("Cache-Control", "max-age=60"),
            "/csrf" => Reply::html("<form><input name=csrf_token value=a1b2c3d4></form>"),
            "/json" => Reply::typed("application/json", "{}"),
            "/found" => Reply::status("302 Found").header("Location", "/").body(""),
            "/by-form" => page.header("Vary", "X-Form").header("Cache-Control", "max-age=60"),
            "/a.css" => Reply::typed("text/css", "p{}").header("ETag", "\"css\""),
            _ => page,
        }
    })
}

const ROUTES: &str = "[[route]]\nmatch.path = \"/mine/**\"\nshare = \"none\"\n\
                      [[route]]\nmatch.path = \"/all\"\nshare = \"everyone\"\n\
                      [[route]]\nmatch.path = \"/keyed\"\nkey_cookies = [\"lang\"]\n";

fn the_explanation_matches_the_real_request(storage: &Storage) {
    let origin = speaking();
    let proxy =
        Proxy::start(&origin, storage, &format!("cache.client_directives = \"honour\"\n{ROUTES}"));
    // What a page turned out to be, and what is there.
    for target in ["/set-cookie", "/no-store", "/private", "/no-cache", "/vary-any", "/csrf"] {
        proxy.get(target).send();
    }
    for target in ["/json", "/found", "/by-form", "/a.css", "/", "/keyed", "/all"] {
        proxy.get(target).send();
    }
    let unknown: &[_] = &[("Cookie", "_ga=1; consent=1")];
    for case in [
        Case::of("/", ""),
        Case::of("/a.css", "").with(unknown),
        Case::of("/keyed", "unknown-cookie").with(unknown),
        Case::of("/", "unknown-cookie").with(unknown),
        Case::of("/", "").with(&[("Cookie", "_ga=1")]),
        Case::of("/", "unknown-token").with(&[("Cookie", "login=nobodys-token")]),
        Case::of("/", "bad-session-cookie").with(&[("Cookie", "login=short")]),
        Case::of("/", "authorization").with(&[("Authorization", "Basic eDp5")]),
        Case::of("/", "bound-connection").with(&[("Authorization", "NTLM eDp5")]),
        Case::of("/", "condition").with(&[("If-Match", "\"one\"")]),
        Case::of("/", "request-no-store").with(&[("Cache-Control", "no-store")]),
        Case::of("/", "fragment").with(&[("X-Requested-With", "XMLHttpRequest")]),
        Case::of("/", "accept").with(&[("Accept", "application/json")]),
        Case::of("/by-form", "vary").with(&[("X-Form", "one")]),
        Case::of("/mine/a", "route"),
        Case::of("/a.css", "request-directive")
            .with(&[("Cookie", "consent=1"), ("Cache-Control", "no-cache")]),
        Case::of("/never", "request-directive").with(&[("Cache-Control", "only-if-cached")]),
        Case::of("/mine/a", "request-directive").with(&[("Cache-Control", "only-if-cached")]),
        Case::of("/all", "").with(unknown),
        Case::of("/a;jsessionid=0123456789", "session-in-url"),
        Case::of("/a//b%2fc", "odd-path"),
        Case::of("/_anteroom/me", "endpoint"),
        Case { method: "HEAD", ..Case::of("/never", "head") },
        Case { method: "HEAD", ..Case::of("/", "") },
        Case::of("/set-cookie", "set-cookie"),
        Case::of("/no-store", "no-store"),
        Case::of("/private", "private"),
        Case::of("/no-cache", "no-cache"),
        Case::of("/vary-any", "vary-any"),
        Case::of("/csrf", "csrf-field"),
        Case::of("/json", "content-type"),
        Case::of("/found", "status"),
        // Last: it changes the page.
        Case { method: "POST", ..Case::of("/", "method") },
    ] {
        case.assert_same(&proxy);
    }
}

#[test]
fn all_that_blocks_is_named_and_not_the_first_alone() {
    let proxy = Proxy::start(&page(), &Storage::Embedded, "");
    let words = ["--header", "If-Match: \"a\"", "--header", "Cache-Control: no-store"];
    let told = explain(&proxy, "/a", &[&["--method", "POST"], &words[..]].concat());
    assert_eq!(told["reason"], "method", "{told}");
    let notes = told["notes"].to_string();
    assert!(
        notes.contains("also condition: ") && notes.contains("also request-no-store: "),
        "{told}"
    );
    assert!(!notes.contains("also method"), "{told}");
}

#[test]
fn all_obstacles_of_the_last_response_are_named() {
    // As PHP answers, whose session_start() says all of this at once.
    let origin = Origin::always(
        Reply::html("hello")
            .header("Set-Cookie", "PHPSESSID=abcdefgh; path=/")
            .header("Expires", "Thu, 19 Nov 1981 08:52:00 GMT")
            .header("Cache-Control", "no-store, no-cache, must-revalidate")
            .header("Pragma", "no-cache"),
    );
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    let told = explain(&proxy, "/", &[]);
    assert_eq!(told["uncacheable"]["reason"], "set-cookie", "{told}");
    let further = told["uncacheable"]["further"].as_array().unwrap();
    let words: Vec<_> = further.iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert_eq!(words, ["no-store", "no-cache", "stale", "response-field"], "{told}");
    let hints = hints(&told);
    for wanted in ["[[route]] strip_set_cookie", "[[route]] override_ttl"] {
        assert!(hints.contains(&wanted), "{wanted}: {told}");
    }
    let text = said(&proxy, "/", &[]);
    assert!(text.contains("          also no-store: the response has no-store\n"), "{text}");
}

#[test]
fn a_method_in_lower_case_is_the_usual_one() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "");
    let told = explain(&proxy, "/", &["--method", "get"]);
    assert_eq!((&told["method"], &told["outcome"]), (&"GET".into(), &"fetch".into()), "{told}");
}

#[test]
fn the_reason_is_named_with_a_hint() {
    let origin = speaking();
    let proxy = Proxy::embedded(&origin, "");
    let told = explain(&proxy, "/", &["--cookie", "consent=yes", "--cookie", "_ga=GA1.2.3"]);
    assert_eq!(told["reason"], "unknown-cookie");
    assert!(told["visitor"]["why"].as_str().unwrap().ends_with(": consent"), "{told}");
    assert_eq!(told["cookies"][0]["class"], "unknown");
    assert_eq!(told["cookies"][1]["class"], "harmless");
    assert_eq!(
        hints(&told),
        ["[cache] ignore_cookies", "[[route]] key_cookies", "[session] cookie"]
    );
    for (target, wanted) in [
        ("/set-cookie", "[[route]] strip_set_cookie"),
        ("/no-store", "[[route]] override_ttl"),
        ("/no-cache", "[[route]] override_ttl"),
        ("/private", "[[route]] override_private"),
        ("/json", "[[route]] ttl"),
    ] {
        proxy.get(target).send();
        let told = explain(&proxy, target, &[]);
        assert_eq!(told["uncacheable"]["reason"], told["reason"], "{told}");
        assert!(told["uncacheable"]["seconds"].as_u64().unwrap() <= 120, "{told}");
        assert!(hints(&told).contains(&wanted), "{target}: {told}");
    }
    proxy.get("/csrf").send();
    assert_eq!(hints(&explain(&proxy, "/csrf", &[])), ["[[route]] fragments"]);
    proxy.get("/by-form").send();
    let vary = explain(&proxy, "/by-form", &["--header", "X-Form: a"]);
    assert_eq!(
        (&vary["page"]["refused"], hints(&vary)),
        (&"vary".into(), vec!["[[route]] send_headers"])
    );
    let fragment = explain(&proxy, "/", &["--header", "X-Requested-With: XMLHttpRequest"]);
    assert!(fragment["hints"][0]["text"].as_str().unwrap().contains("x-requested-with"));
}

#[test]
fn a_known_visitor_is_told_of_and_named_only_where_the_log_does() {
    for (user, named) in [(false, Value::Null), (true, "alice".into())] {
        let origin = shop(|_| Reply::html("a page"));
        let settings = format!("session.mint = true\nlog.user = {user}");
        let proxy = Proxy::embedded(&origin, &settings);
        let cookie = log_in(&proxy, "alice");
        let told = explain(&proxy, "/", &["--cookie", &cookie]);
        assert_eq!(
            (&told["reason"], &told["visitor"]["class"]),
            (&"login".into(), &"known".into())
        );
        assert_eq!(told["visitor"]["user"], named);
        assert_eq!(hints(&told), ["[[route]] share"]);
        let answer = proxy.get("/").cookie(&cookie).send();
        assert!(answer.cache_status().ends_with("detail=login"), "{}", answer.cache_status());
        let text = said(&proxy, "/", &["--cookie", &cookie]);
        assert_eq!(text.contains("alice"), user, "{text}");
        assert!(text.contains("known"), "{text}");
    }
}

#[test]
fn an_explanation_leaves_no_trace() {
    let server = RedisServer::start();
    server.command::<()>(&["HSET", "login:", TOKEN, "alice"]);
    let storage = Storage::Redis(server);
    let Storage::Redis(server) = &storage else { unreachable!() };
    let origin = speaking();
    let settings = "[[route]]\nmatch.path = \"/item/{item}\"\nonly_top = 1";
    let proxy = Proxy::start(&origin, &storage, settings);
    for target in ["/", "/set-cookie"] {
        proxy.get(target).send();
    }
    // A page is stored, and a request counted, behind the answer.
    proxy.access_log(2);
    let kept = || server.keys("cache:*").len();
    wait_until("the page is in the store", || kept() == 1);
    wait_until("its fetch is over", || proxy.metric("anteroom_in_flight_bytes") == 0.0);
    let traces = || {
        let keys = ["login:", "recent:", "viewed:", "cache:", "inv:", "cart:"];
        let dump = server.dump();
        let mut lines: Vec<_> = dump
            .lines()
            .filter(|line| keys.iter().any(|key| line.starts_with(key)))
            .map(str::to_owned)
            .collect();
        lines.sort_unstable();
        (lines, numbers(&proxy), origin.count())
    };
    let before = traces();
    let cookie = format!("login={TOKEN}");
    for target in ["/", "/set-cookie", "/item/mug", "/never", "/a.css"] {
        for words in [&[][..], &["--cookie", &cookie], &["--cookie", "consent=a"]] {
            explain(&proxy, target, words);
        }
    }
    explain(&proxy, "/", &["--method", "POST"]);
    assert_eq!(traces(), before);
    assert_eq!(proxy.access_log(2).len(), 2, "no line for an explanation");
}

/// All numbers, but those of connections, of what background tasks find, and of the process.
fn numbers(proxy: &Proxy) -> Vec<String> {
    let others = ["anteroom_connections", "anteroom_store", "anteroom_cut_off", "process_"];
    let page = proxy.admin("/metrics").send().text();
    let lines = page.lines().filter(|line| !others.iter().any(|name| line.starts_with(name)));
    let lines: Vec<_> = lines.map(str::to_owned).collect();
    assert!(lines.iter().any(|line| line.starts_with("anteroom_requests")), "{page}");
    lines
}

/// The keys that hints name.
fn hinted(told: &Value) -> Vec<&str> {
    told["hints"].as_array().unwrap().iter().map(|hint| hint["key"].as_str().unwrap()).collect()
}

#[test]
fn an_unframed_body_gets_a_hint_at_the_server_of_the_app() {
    let origin =
        Origin::always(Reply::raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\nhello"));
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    let told = explain(&proxy, "/", &[]);
    assert_eq!(told["uncacheable"]["reason"], "unframed");
    let hint = &told["hints"][0];
    assert!(hint["text"].as_str().unwrap().contains("php -S"), "{hint}");
}

#[test]
fn what_is_in_force_is_not_hinted_at() {
    let origin =
        Origin::always(Reply::typed("application/json", "{}").header("Pragma", "no-cache"));
    let route = |settings: &str| format!("[[route]]\nmatch = \"/a/**\"\n{settings}");
    let proxy = Proxy::embedded(&origin, &route("name = \"a\""));
    proxy.get("/a/b").send();
    let told = explain(&proxy, "/a/b", &[]);
    assert_eq!(hinted(&told), ["[[route]] override_ttl", "[[route]] ttl"], "{told}");
    let origin = Origin::always(Reply::typed("application/json", "{}").header("Refresh", "5"));
    let proxy = Proxy::embedded(&origin, &route("override_ttl = \"60s\""));
    proxy.get("/a/b").send();
    let told = explain(&proxy, "/a/b", &[]);
    assert_eq!(told["uncacheable"]["reason"], "response-field");
    assert_eq!(hinted(&told), [""; 0]);
}

#[test]
fn maintenance_is_told_as_it_is_answered() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "[[route]]\nmatch = \"/**\"\nmaintenance = true");
    for words in [&[][..], &["--method", "POST"], &["--cookie", "consent=a"]] {
        let told = explain(&proxy, "/a", words);
        assert_eq!(told["reason"], "maintenance", "{told}");
        assert!(told["why"].as_str().unwrap().starts_with("503"), "{told}");
    }
    assert_eq!(proxy.get("/a").send().status, 503);
}

#[test]
fn no_token_and_no_value_is_shown() {
    let origin = speaking();
    let proxy = Proxy::embedded(&origin, ROUTES);
    let secret = "s3cr3t-0123456789";
    let cookies = [format!("login={secret}"), format!("lang={secret}"), format!("other={secret}")];
    let field = format!("Authorization: Bearer {secret}");
    let target = format!("/keyed/a;jsessionid={secret}?token={secret}&{secret}&b={secret}");
    for target in [target.as_str(), "/keyed"] {
        let mut words = vec!["--header", field.as_str()];
        words.extend(cookies.iter().flat_map(|cookie| ["--cookie", cookie]));
        let told = explain(&proxy, target, &words).to_string();
        assert!(!told.contains(secret), "{told}");
        let told = said(&proxy, target, &words);
        assert!(!told.contains(secret), "{told}");
    }
    for words in [["--cookie", secret], ["--header", &format!("Cookie: a=1; {secret}")]] {
        let output = run(&proxy, "/", &words);
        assert_eq!(output.status.code(), Some(1));
        assert!(!String::from_utf8_lossy(&output.stderr).contains(secret));
    }
}

#[test]
fn people_read_short_sentences() {
    let origin = speaking();
    let proxy = Proxy::embedded(&origin, "");
    let text = said(&proxy, "/", &["--cookie", "consent=1"]);
    for line in [
        "GET http://shop.test/",
        "Forwarded (unknown-cookie): a cookie matches no rule (session, harmless or keyed)",
        "Cache-Status: anteroom; fwd=bypass; detail=unknown-cookie",
        "Route     default, shared among anonymous visitors",
        "Cookies   consent: unknown",
        "Memory    nothing",
        "Store     nothing",
    ] {
        assert!(text.lines().any(|said| said == line), "{line:?} is missing in:\n{text}");
    }
    assert!(text.contains("Hint      [cache] ignore_cookies: "), "{text}");
}

#[test]
fn requests_that_never_reach_the_cache_are_explained_too() {
    let origin = page();
    let settings = "origin.hosts = [\"shop.test\"]";
    let proxy = Proxy::embedded(&origin, settings);
    let told = explain(&proxy, "http://other.test/", &[]);
    assert_eq!((&told["outcome"], &told["reason"]), (&"refuse".into(), &"refused".into()));
    assert!(told["why"].as_str().unwrap().starts_with("421"), "{told}");
    assert_eq!(hints(&told), ["[origin] hosts"]);
    let told = explain(&proxy, "http://other.test:81/", &[]);
    assert!(told["hints"].to_string().contains("add \\\"other.test\\\""), "{told}");
    assert_eq!(proxy.get("/").host("other.test").send().status, 421);
    let alone = explain(&proxy, "http://shop.test:80", &[]);
    assert_eq!((&alone["url"], &alone["outcome"]), (&"http://shop.test/".into(), &"fetch".into()));
    let long = format!("/{}", "a".repeat(20_000));
    assert!(explain(&proxy, &long, &[])["why"].as_str().unwrap().starts_with("414"));
    for wrong in
        ["shop.test/a", "ftp://shop.test/", "http://user@shop.test/", "http://shop.test/ü b"]
    {
        let output = run(&proxy, wrong, &[]);
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(&format!("\"{wrong}\": write a complete URL")), "{error}");
        assert!(error.contains("a path alone works where [origin] hosts"), "{error}");
    }
    let output = run(&proxy, "shop.test/a?key=s3cr3t", &[]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("s3cr3t"));
}

#[test]
fn a_redirect_to_https_is_the_answer_of_a_listener() {
    let origin = page();
    let proxy = Proxy::embedded(
        &origin,
        "listen = [{ address = \"{listen}\", redirect = \"https\", redirect_except = [\"/plain/**\"] }]",
    );
    let redirected = explain(&proxy, "/a", &[]);
    assert_eq!(redirected["outcome"], "own", "{redirected}");
    assert!(redirected["why"].as_str().unwrap().starts_with("308"), "{redirected}");
    assert_eq!(proxy.get("/a").send().status, 308);
    assert_eq!(explain(&proxy, "/plain/a", &[])["outcome"], "fetch");
    assert_eq!(proxy.get("/plain/a").send().status, 200);
}

#[test]
fn https_is_what_a_trusted_proxy_says() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "");
    let told = explain(&proxy, "https://shop.test/", &[]);
    assert_eq!(
        (&told["url"], &told["key"]["scheme"]),
        (&"http://shop.test/".into(), &"http".into())
    );
    assert_eq!(hints(&told), ["[client] trusted_proxies"]);

    let proxy = Proxy::embedded(&origin, "client.trusted_proxies = [\"127.0.0.1\"]");
    proxy.get("/").header("X-Forwarded-Proto", "https").send();
    let told = explain(&proxy, "https://shop.test/", &[]);
    assert_eq!((&told["outcome"], &told["key"]["scheme"]), (&"hit".into(), &"https".into()));
    assert_eq!(explain(&proxy, "http://shop.test/", &[])["outcome"], "fetch");
}

#[test]
fn request_directives_are_explained() {
    let origin = page();
    let proxy = Proxy::embedded(&origin, "cache.client_directives = \"honour\"");
    proxy.get("/").send();
    let told = explain(&proxy, "/", &["--header", "Cache-Control: no-cache"]);
    assert_eq!((&told["outcome"], &told["page"]["standing"]), (&"fetch".into(), &"fresh".into()));
    assert_eq!(hints(&told), ["[cache] client_directives"]);
    let answer = proxy.get("/").header("Cache-Control", "no-cache").send();
    assert!(answer.cache_status().contains("fwd=request"), "{}", answer.cache_status());
    let told = explain(&proxy, "/never", &["--header", "Cache-Control: only-if-cached"]);
    assert!(told["why"].as_str().unwrap().starts_with("504"), "{told}");
    assert_eq!(hints(&told), Vec::<&str>::new());
}

#[test]
fn an_explanation_needs_the_running_proxy() {
    let origin = page();
    let mut proxy = Proxy::embedded(&origin, "");
    proxy.kill9();
    let output = run(&proxy, "/", &[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("no running proxy answers"), "{error}");
}

#[test]
fn a_bearer_of_the_token_may_query_over_the_listener() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let origin = page();
    let settings = format!("admin.token = {{ file = \"{}\" }}", file.display());
    let proxy = Proxy::embedded(&origin, &settings);
    let ask = |token: &str, question: &str| {
        let ask = proxy.admin("/explain").method("POST").body(question.as_bytes());
        ask.header("Authorization", &format!("Bearer {token}")).send()
    };
    let question = "{\"url\":\"http://shop.test/\",\"headers\":[[\"Accept-Language\",\"de\"]]}";
    assert_eq!(ask("other-token", question).status, 401);
    let answer = ask("secret-token", question);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told: Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(told["outcome"], "fetch");
    for wrong in [
        "{\"url\":\"/a\"}",
        "{\"link\":\"/a\"}",
        "{}",
        "[",
        "{\"url\":\"http://a/\",\"method\":\" \"}",
    ] {
        assert_eq!(ask("secret-token", wrong).status, 400, "{wrong}");
    }
}

#[test]
fn public_responses_are_explained() {
    let public = Reply::html("a page").header("Cache-Control", "public, max-age=60");
    let origin = Origin::always(public);
    let proxy = Proxy::embedded(&origin, "cache.trust_public = true");
    let login: &[_] = &[("Authorization", "Basic YW5uOg==")];
    assert_eq!(Case::of("/", "").with(login).told(&proxy)["outcome"], "fetch");
    Case::of("/", "").with(login).sent(&proxy);
    for fields in [login, &[]] {
        Case::of("/", "").with(fields).assert_same(&proxy);
    }
    let told = explain(&proxy, "/", &[]);
    assert!(told["notes"][0].as_str().unwrap().contains("public"), "{told}");
}

#[test]
fn the_rank_of_an_item_is_looked_up_and_nothing_more() {
    let server = RedisServer::start();
    server.command::<()>(&["ZADD", "viewed:", "-2", "mug", "-1", "cup"]);
    let storage = Storage::Redis(server);
    let settings = "[[route]]\nmatch.path = \"/item/{item}\"\nonly_top = 1";
    let origin = page();
    let proxy = Proxy::start(&origin, &storage, settings);
    for (target, reason, item) in [("/item/cup", "rank", "cup"), ("/item/mug", "", "mug")] {
        // A store that does not answer in time costs no rank.
        wait_until("the rank is known", || {
            let told = explain(&proxy, target, &[]);
            assert_eq!(told["route"]["item"], item);
            told["reason"].as_str().unwrap_or_default() == reason
        });
    }
    let Storage::Redis(server) = &storage else { unreachable!() };
    // What was looked up for an explanation is not remembered for a visitor.
    server.command::<()>(&["ZADD", "viewed:", "-9", "cup"]);
    let answer = proxy.get("/item/cup").send();
    assert!(answer.cache_status().contains("uri-miss"), "{}", answer.cache_status());
}

#[test]
fn a_row_is_told() {
    let origin = Origin::always(Reply::typed("application/json", "{\"left\":7}"));
    let settings = "rows = [{ name = \"stock\", every = \"100ms\", path = \"/stock/{row}\" }]\n\
                    route = [{ match.path = \"/api/{item}\", rows = \"stock\" }]";
    let proxy = Proxy::embedded(&origin, settings);
    assert_eq!(explain(&proxy, "/api/7", &[])["outcome"], "fetch");
    let scheduled = anteroom()
        .args(["rows", "schedule", "stock", "7", "--config", "proxy.toml"])
        .current_dir(proxy.folder())
        .status();
    assert!(scheduled.unwrap().success());
    wait_until("the row is answered", || {
        proxy.get("/api/7").send().cache_status().ends_with("detail=rows")
    });
    let told = explain(&proxy, "/api/7", &[]);
    assert_eq!((&told["outcome"], &told["route"]["item"]), (&"row".into(), &"7".into()));
    assert_eq!(told["cache_status"], "anteroom; hit; detail=rows");
}

#[test]
fn a_store_that_is_away_is_told() {
    let storage = Storage::redis();
    let origin = page();
    let proxy = Proxy::start(&origin, &storage, "");
    let Storage::Redis(mut server) = storage else { unreachable!() };
    server.kill();
    let cookie: &[_] = &[("Cookie", "login=0123456789abcdef")];
    wait_until("the proxy knows", || {
        let answer = Case::of("/", "").with(cookie).sent(&proxy);
        answer.cache_status().ends_with("detail=store-away")
    });
    Case::of("/", "store-away").with(cookie).assert_same(&proxy);
    let told = explain(&proxy, "/", &[]);
    assert!(!told["store"]["error"].as_str().unwrap().is_empty(), "{told}");
    assert!(said(&proxy, "/", &[]).contains("Store     unknown: "));
}

#[test]
fn a_session_that_the_app_was_not_asked_about_is_told_of_without_a_hint() {
    let origin = Origin::start(|request| match request.path() {
        "/whoami" => Reply::status("503 Service Unavailable"),
        _ => Reply::html("a page"),
    });
    let settings = "session.cookie = \"sid\"\nsession.verify.path = \"/whoami\"\n\
                    session.verify.user = { header = \"X-User\" }\n\
                    session.verify.nobody = { status = [401] }\n";
    let proxy = Proxy::embedded(&origin, settings);
    let cookie = format!("sid={TOKEN}");
    let told = || explain(&proxy, "/", &["--cookie", &cookie]);
    let first = told();
    assert_eq!(first["reason"], "unverified");
    assert!(first["visitor"]["why"].as_str().unwrap().contains("has not been asked"), "{first}");
    assert_eq!(hinted(&first), [""; 0]);
    assert_eq!(origin.count(), 0);

    proxy.get("/").cookie(&cookie).send();
    let then = told();
    assert!(then["visitor"]["why"].as_str().unwrap().contains("neither user nor nobody"), "{then}");
    assert_eq!(hinted(&then), ["[session.verify] path"]);
}

#[test]
fn the_route_is_told_with_its_rules_also_where_it_answers_itself() {
    let rules = "set_headers = { X-A = \"1\" }\nstrip_prefix = \"/a\"\naccess_log = false";
    let settings = format!(
        "[[route]]\nname = \"old\"\nmatch = \"/old\"\nredirect = \"/new\"\n\
         [[route]]\nname = \"all\"\nmatch = \"/a/**\"\n{rules}\n\
         [[route]]\nname = \"members\"\nmatch = \"/m\"\nrequire = \"login\"\n"
    );
    let origin = page();
    let proxy = Proxy::embedded(&origin, &settings);
    let route = |target: &str| explain(&proxy, target, &[])["route"].clone();
    assert_eq!(route("/a/b")["settings"], json!(["set_headers", "strip_prefix", "access_log"]));
    assert_eq!(
        route("/old"),
        json!({"name": "old", "share": "anonymous", "origin": null, "item": null, "settings": ["redirect"]})
    );
    assert_eq!(route("/m")["name"], "members");
}

#[test]
fn a_page_by_a_cookie_is_told_to_be_for_visitors_without_a_login() {
    let origin = shop(|_| Reply::html("a page").header("Vary", "Cookie"));
    let proxy = Proxy::embedded(&origin, "session.mint = true");
    let cookie = log_in(&proxy, "ada");
    proxy.get("/").send();
    let told = explain(&proxy, "/", &["--cookie", &cookie]);
    assert_eq!(told["reason"], "vary");
    assert!(told["why"].as_str().unwrap().contains("visitors without a login"), "{told}");
}
