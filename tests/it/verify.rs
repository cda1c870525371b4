//! `[session.verify]`: an app keeps its own sessions, and is asked who a visitor is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::client::Answer;
use crate::support::origin::{Gate, Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, on_both_stores};
use crate::support::{A_SECOND, at_once, old_result_seen_for, wait_until};

/// An app with sessions of its own, in PHP's manner: a cookie for everybody, a login that keeps the id,
/// and a page that names the user.
#[derive(Clone, Default)]
struct App {
    users: Arc<Mutex<HashMap<String, String>>>,
    is_ill: Arc<AtomicBool>,
}

const VERIFY: &str = r#"
session.cookie = "SID"
session.verify.path = "/whoami?format=json"
session.verify.user = { json = "/name" }
session.verify.nobody = { json = "/id", equals = 0 }
session.verify.attributes = { group = { json = "/group" } }
"#;

impl App {
    fn start(&self) -> Origin {
        let app = self.clone();
        Origin::start(move |request| app.answer(request))
    }

    fn user_of(&self, request: &Request) -> Option<String> {
        self.users.lock().unwrap().get(sid(request)?).cloned()
    }

    fn answer(&self, request: &Request) -> Reply {
        if self.is_ill.load(Ordering::SeqCst) && request.path() == "/whoami" {
            return Reply::status("503 Service Unavailable");
        }
        let user = self.user_of(request);
        match (request.path(), request.target.split_once('?')) {
            ("/whoami", _) => Reply::typed(
                "application/json",
                &match user {
                    Some(name) => format!(r#"{{"id":7,"name":"{name}","group":"trade"}}"#),
                    None => r#"{"id":0,"name":"192.0.2.7"}"#.to_owned(),
                },
            ),
            ("/login", Some((_, name))) => {
                let mut users = self.users.lock().unwrap();
                users.insert(sid(request).unwrap().to_owned(), name.to_owned());
                Reply::unstored("welcome")
            }
            ("/logout", _) => {
                self.users.lock().unwrap().remove(sid(request).unwrap());
                Reply::unstored("bye")
            }
            // The app tells the browser to forget the session, and would still accept it.
            ("/leave", _) => Reply::unstored("bye").header("Set-Cookie", "SID=gone; Max-Age=0"),
            _ => Reply::html(&format!("a page for {}", user.as_deref().unwrap_or("anybody"))),
        }
    }

    fn log_in(&self, sid: &str, name: &str) {
        self.users.lock().unwrap().insert(sid.to_owned(), name.to_owned());
    }
}

fn sid(request: &Request) -> Option<&str> {
    let cookies = request.header("cookie")?.split("; ");
    cookies.filter_map(|cookie| cookie.strip_prefix("SID=")).next()
}

fn page(proxy: &Proxy, sid: &str) -> Answer {
    proxy.get("/page").cookie(&format!("SID={sid}")).send()
}

fn questions(origin: &Origin) -> usize {
    origin.seen().iter().filter(|request| request.path() == "/whoami").count()
}

on_both_stores!(
    the_app_is_asked_once_and_given_the_user_it_named,
    an_anonymous_session_shares_the_pages_of_strangers,
    an_anonymous_session_shares_pages_that_vary_by_cookie,
    a_log_in_and_a_log_out_count_at_once,
    an_app_that_cannot_say_leaves_the_visitor_unknown,
    an_answer_the_app_withdraws_ends_the_session,
    an_anonymous_answer_to_one_cookie_does_not_end_the_whole_log_in,
    each_host_is_asked_for_itself,
    attributes_from_one_host_are_not_used_at_another,
);

fn the_app_is_asked_once_and_given_the_user_it_named(storage: &Storage) {
    let app = App::default();
    let origin = app.start();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    app.log_in("sid-of-ann-1", "ann");

    for _ in 0..3 {
        assert_eq!(page(&proxy, "sid-of-ann-1").text(), "a page for ann");
        let last = origin.last();
        assert_eq!(last.header("x-anteroom-user"), Some("ann"));
        assert_eq!(last.header("x-anteroom-session"), Some("known"));
    }
    assert_eq!(questions(&origin), 1);
    let question = origin.seen().into_iter().find(|request| request.path() == "/whoami").unwrap();
    assert_eq!(question.target, "/whoami?format=json");
    assert_eq!(question.header("cookie"), Some("SID=sid-of-ann-1"));
    assert_eq!(question.header("x-anteroom-session"), Some("unknown"));

    let me = proxy.get("/_anteroom/me").cookie("SID=sid-of-ann-1").send();
    let me: serde_json::Value = serde_json::from_str(&me.text()).unwrap();
    assert_eq!((&me["user"], &me["attributes"]["group"]), (&"ann".into(), &"trade".into()));
}

fn an_anonymous_session_shares_pages_that_vary_by_cookie(storage: &Storage) {
    // As PHP and Django sites say on every page.
    let app = App::default();
    let origin = {
        let app = app.clone();
        Origin::start(move |request| app.answer(request).header("Vary", "Cookie"))
    };
    let proxy = Proxy::start(&origin, storage, VERIFY);
    app.log_in("sid-of-ann-1", "ann");

    assert_eq!(proxy.get("/page").send().text(), "a page for anybody");
    let nobody = page(&proxy, "sid-of-nobody");
    let ann = page(&proxy, "sid-of-ann-1");
    let both = proxy.get("/page").cookie("SID=sid-of-nobody; lang=de").send();

    assert!(nobody.is_hit(), "{}", nobody.cache_status());
    assert_eq!(ann.text(), "a page for ann");
    assert!(!both.is_hit(), "another cookie may choose another page: {}", both.cache_status());
}

fn an_anonymous_session_shares_the_pages_of_strangers(storage: &Storage) {
    let app = App::default();
    let origin = app.start();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    app.log_in("sid-of-ann-1", "ann");

    // A fill leaves the session out: until a response shows that it may, the request is sent as it came.
    assert!(page(&proxy, "sid-nobody-1").cache_status().contains("unproven"));
    assert_eq!(origin.last().header("cookie"), Some("SID=sid-nobody-1"));
    assert!(!page(&proxy, "sid-nobody-1").is_hit());
    let fill = origin.last();
    assert_eq!((fill.path(), fill.header("cookie")), ("/page", None), "a fill has no visitor");
    for sid in ["sid-nobody-1", "sid-nobody-2"] {
        let answer = page(&proxy, sid);
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.text(), "a page for anybody");
    }
    let anns = page(&proxy, "sid-of-ann-1");
    assert!(!anns.is_hit());
    assert_eq!(anns.text(), "a page for ann");
    assert!(proxy.get("/page").send().is_hit());
}

fn a_log_in_and_a_log_out_count_at_once(storage: &Storage) {
    let app = App::default();
    let origin = app.start();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let cookie = "SID=sid-of-ann-1";

    for _ in 0..2 {
        assert_eq!(page(&proxy, "sid-of-ann-1").text(), "a page for anybody");
    }
    // The app keeps the id: what was said of it counts no more.
    proxy.post("/login?ann").cookie(cookie).send();
    assert_eq!(page(&proxy, "sid-of-ann-1").text(), "a page for ann");
    assert_eq!(origin.last().header("x-anteroom-user"), Some("ann"));
    // Nor does the app take its cookie away.
    proxy.post("/logout").cookie(cookie).send();
    let after = page(&proxy, "sid-of-ann-1");
    assert_eq!(after.text(), "a page for anybody");
    assert!(after.is_hit());
    let me = proxy.get("/_anteroom/me").cookie(cookie).send();
    assert!(me.text().contains("\"session\":\"none\""), "{}", me.text());
}

fn an_app_that_cannot_say_leaves_the_visitor_unknown(storage: &Storage) {
    let app = App::default();
    let origin = app.start();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    app.is_ill.store(true, Ordering::SeqCst);

    let answer = page(&proxy, "sid-nobody-1");
    assert!(answer.cache_status().contains("detail=unverified"), "{}", answer.cache_status());
    assert_eq!(origin.last().header("x-anteroom-session"), Some("unknown"));
    assert_eq!(origin.last().header("cookie"), Some("SID=sid-nobody-1"));

    // A missing answer is remembered for a moment only.
    app.is_ill.store(false, Ordering::SeqCst);
    wait_until("the app is asked again", || {
        page(&proxy, "sid-nobody-1").cache_status().contains("miss")
    });
    assert!(page(&proxy, "sid-nobody-1").is_hit());
}

fn an_answer_the_app_withdraws_ends_the_session(storage: &Storage) {
    let app = App::default();
    let origin = app.start();
    let settings = format!("{VERIFY}session.verify.verify_every = \"1s\"\n");
    let proxy = Proxy::start(&origin, storage, &settings);
    app.log_in("sid-of-ann-1", "ann");
    assert_eq!(page(&proxy, "sid-of-ann-1").text(), "a page for ann");

    // The app's own session runs out, and the proxy is not told.
    app.users.lock().unwrap().clear();
    wait_until("the app was asked again", || {
        let me = proxy.get("/_anteroom/me").cookie("SID=sid-of-ann-1").send();
        me.text().contains("\"session\":\"none\"")
    });
    for _ in 0..2 {
        page(&proxy, "sid-of-ann-1");
    }
    assert!(page(&proxy, "sid-of-ann-1").is_hit());
}

#[test]
fn a_burst_of_requests_asks_once() {
    let app = App::default();
    let gate = Gate::closed();
    let origin = {
        let (app, gate) = (app.clone(), Arc::clone(&gate));
        Origin::start(move |request| match request.path() {
            "/whoami" => app.answer(request).until(&gate),
            _ => app.answer(request),
        })
    };
    let proxy = Proxy::embedded(&origin, VERIFY);
    app.log_in("sid-of-ann-1", "ann");
    let mut clients: Vec<_> =
        (0..20).map(|_| proxy.get("/page").cookie("SID=sid-of-ann-1").start()).collect();
    wait_until("the app is asked", || questions(&origin) == 1);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.answer().text(), "a page for ann");
    }
    assert_eq!(questions(&origin), 1);
}

#[test]
fn an_answer_that_sets_a_session_cookie_speaks_of_another_session() {
    let origin = Origin::start(|request| match request.path() {
        "/whoami" => {
            let json = Reply::typed("application/json", r#"{"id":7,"name":"ann"}"#);
            match sid(request) {
                Some("sid-renewed-1") => json.header("Set-Cookie", "SID=sid-renewed-2; Path=/"),
                Some("sid-the-same") => json.header("Set-Cookie", "SID=sid-the-same; Path=/"),
                _ => json.header("Set-Cookie", "SID=deleted; Max-Age=0"),
            }
        }
        _ => Reply::unstored("a page"),
    });
    let proxy = Proxy::embedded(&origin, VERIFY);
    for (sid, expected) in
        [("sid-renewed-1", "unknown"), ("sid-the-same", "known"), ("sid-cleared-1", "unknown")]
    {
        let answer = page(&proxy, sid);
        assert_eq!(origin.last().header("x-anteroom-session"), Some(expected), "{sid}");
        assert_eq!(answer.cookie("SID"), None, "a cookie set there reaches no visitor");
    }
}

#[test]
fn two_instances_agree_within_a_second() {
    let app = App::default();
    let origin = app.start();
    let storage = Storage::redis();
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, VERIFY));
    for proxy in [&one, &other] {
        assert_eq!(page(proxy, "sid-of-ann-1").text(), "a page for anybody");
    }
    assert_eq!(questions(&origin), 1, "what one has learned the other need not ask");
    let lasted = old_result_seen_for(
        || {
            one.post("/login?ann").cookie("SID=sid-of-ann-1").send();
            assert_eq!(page(&one, "sid-of-ann-1").text(), "a page for ann");
        },
        || page(&other, "sid-of-ann-1").text() == "a page for anybody",
    );
    assert_eq!(page(&other, "sid-of-ann-1").text(), "a page for ann");
    assert!(lasted < A_SECOND, "a promise of a second: {lasted:?}");
}

#[test]
fn a_revocation_holds_at_once_after_an_anonymous_answer() {
    let app = App::default();
    let origin = app.start();
    let storage = Storage::redis();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "secret-token").unwrap();
    let settings = format!("{VERIFY}\nadmin.token = {{ file = \"{}\" }}", file.display());
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, &settings));
    for proxy in [&one, &other] {
        assert_eq!(page(proxy, "sid-of-ann-1").text(), "a page for anybody");
    }
    one.post("/login?ann").cookie("SID=sid-of-ann-1").send();
    assert_eq!(page(&one, "sid-of-ann-1").text(), "a page for ann");

    let order = other.admin("/sessions/revoke").method("POST").body(b"{\"user\":\"ann\"}");
    let revoked = order.header("Authorization", "Bearer secret-token").send();
    assert!(revoked.text().contains("\"sessions\":1"), "{}", revoked.text());
    let answer = other.post("/page").cookie("SID=sid-of-ann-1").send();
    assert_eq!(answer.text(), "a page for anybody", "the app believes in the session still");
}

#[test]
fn a_log_out_that_the_store_is_slow_to_confirm_revokes_the_session_at_once() {
    let app = App::default();
    let origin = app.start();
    let storage = Storage::redis();
    let proxy = Proxy::start(&origin, &storage, &format!("store.timeout = \"50ms\"\n{VERIFY}"));
    app.log_in("sid-of-ann-1", "ann");
    assert_eq!(page(&proxy, "sid-of-ann-1").text(), "a page for ann");
    let Storage::Redis(server) = &storage else { return };

    server.command::<()>(&["CLIENT", "PAUSE", "20000", "WRITE"]);
    proxy.get("/leave").cookie("SID=sid-of-ann-1").send();
    let after = page(&proxy, "sid-of-ann-1");
    let changed = proxy.post("/page").cookie("SID=sid-of-ann-1").send();
    server.command::<()>(&["CLIENT", "UNPAUSE"]);
    assert_eq!(after.text(), "a page for anybody");
    assert_eq!(changed.text(), "a page for anybody");
    let last = origin.seen().into_iter().rfind(|request| request.path() == "/page").unwrap();
    assert_eq!(last.header("cookie"), None, "the app accepts the session still");
}

#[test]
fn a_long_or_rolling_cookie_has_a_token_in_a_part_of_it() {
    let origin = Origin::start(|request| match request.path() {
        "/whoami" => Reply::typed("application/json", r#"{"id":7,"name":"ann"}"#),
        _ => Reply::unstored("a page"),
    });
    let settings =
        format!("{VERIFY}session.token_from = \"sha256\"\nsession.part = '^([^.]+)\\.'\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let long = "x".repeat(1_000);
    for rolling in ["1", "2", "3"] {
        page(&proxy, &format!("{long}.{rolling}"));
        assert_eq!(origin.last().header("x-anteroom-user"), Some("ann"));
    }
    assert_eq!(questions(&origin), 1);
    page(&proxy, "nopart");
    assert_eq!(origin.last().header("x-anteroom-session"), Some("unknown"));
}

const TWO_COOKIES: &str = r#"
session.cookie = ["SID", "REMEMBER"]
session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { json = "/id", equals = 0 }
session.verify.verify_every = "1s"
"#;

/// The visitor with these cookies, by `/_anteroom/me`.
fn who(proxy: &Proxy, cookies: &str) -> (String, String) {
    let me = proxy.get("/_anteroom/me").cookie(cookies).send();
    let me: serde_json::Value = serde_json::from_str(&me.text()).unwrap();
    let text = |name: &str| me[name].as_str().unwrap_or("-").to_owned();
    (text("session"), text("user"))
}

fn known(name: &str) -> (String, String) {
    ("known".to_owned(), name.to_owned())
}

fn nobody() -> (String, String) {
    ("none".to_owned(), "-".to_owned())
}

fn an_anonymous_answer_to_one_cookie_does_not_end_the_whole_log_in(storage: &Storage) {
    // Both are needed.
    let is_ann = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&is_ann);
    let origin = Origin::start(move |request| match request.path() {
        "/whoami" => {
            let cookies = request.header("cookie").unwrap_or_default();
            let is_whole = cookies.contains("SID=") && cookies.contains("REMEMBER=remember-ann");
            let name = match is_whole && says.load(Ordering::SeqCst) {
                true => r#"{"id":7,"name":"ann"}"#,
                false => r#"{"id":0}"#,
            };
            Reply::typed("application/json", name)
        }
        _ => Reply::unstored("a page"),
    });
    let proxy = Proxy::start(&origin, storage, TWO_COOKIES);
    let both = "SID=sid-of-ann-1; REMEMBER=remember-ann";
    assert_eq!(who(&proxy, both), known("ann"));
    let json = "application/json";
    let put = proxy.ask("PUT", "/_anteroom/cart").cookie(both).header("Content-Type", json);
    let put = put.header("Sec-Fetch-Site", "same-origin").body(br#"{"item":"mug","count":2}"#);
    assert_eq!(put.send().status, 200);

    assert_eq!(who(&proxy, "SID=sid-of-ann-1"), nobody());
    assert_eq!(who(&proxy, "SID=sid-of-ann-1; REMEMBER=guessed-123"), nobody());
    assert_eq!(who(&proxy, both), known("ann"));
    let cart = proxy.get("/_anteroom/cart").cookie(both).send().text();
    assert!(cart.contains("mug"), "{cart}");

    is_ann.store(false, Ordering::SeqCst);
    wait_until("the app was asked again", || who(&proxy, both) == nobody());
    is_ann.store(true, Ordering::SeqCst);
    wait_until("the app was asked again", || who(&proxy, both) == known("ann"));
    let cart = proxy.get("/_anteroom/cart").cookie(both).send().text();
    assert!(!cart.contains("mug"), "what was said of both ended it: {cart}");
}

fn each_host_is_asked_for_itself(storage: &Storage) {
    // Users of either app may choose their session's id.
    let origin = Origin::start(|request| {
        let host = request.header("host").unwrap_or_default();
        match (request.path(), host) {
            ("/whoami", "a.test") => Reply::typed("application/json", r#"{"id":7,"name":"admin"}"#),
            ("/whoami", _) => Reply::typed("application/json", r#"{"id":0}"#),
            _ => Reply::unstored(request.header("x-anteroom-user").unwrap_or("-")),
        }
    });
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let get = |host: &str| proxy.get("/page").host(host).cookie("SID=sid-of-mallory").send().text();
    assert_eq!(get("a.test"), "admin");
    assert_eq!(get("b.test"), "-");
    assert_eq!(questions(&origin), 2);
    assert_eq!((get("a.test"), get("b.test")), ("admin".to_owned(), "-".to_owned()));
    assert_eq!(questions(&origin), 2, "what one host does not know ends no login of another's");
}

fn attributes_from_one_host_are_not_used_at_another(storage: &Storage) {
    let origin = Origin::start(|request| {
        let host = request.header("host").unwrap_or_default();
        let group = if host == "a.test" { "admin" } else { "member" };
        match request.path() {
            "/whoami" => {
                let text = format!(r#"{{"id":7,"name":"mallory","group":"{group}"}}"#);
                Reply::typed("application/json", &text)
            }
            _ => Reply::unstored("a page"),
        }
    });
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let group = |host: &str| {
        let me = proxy.get("/_anteroom/me").host(host).cookie("SID=sid-of-mallory").send();
        let me: serde_json::Value = serde_json::from_str(&me.text()).unwrap();
        me["attributes"]["group"].as_str().unwrap().to_owned()
    };
    for _ in 0..2 {
        assert_eq!(group("b.test"), "member");
        assert_eq!(group("a.test"), "admin");
    }
}

#[test]
fn it_is_told_once_that_attributes_are_lost() {
    let long = "x".repeat(129);
    let app = Origin::start(move |request| match request.path() {
        "/whoami" => {
            let text = format!(r#"{{"id":7,"name":"ann","group":"{long}","role":"buyer"}}"#);
            Reply::typed("application/json", &text)
        }
        _ => Reply::html("a page"),
    });
    let settings = VERIFY.replace("{ group =", "{ role = { json = \"/role\" }, group =");
    let proxy = Proxy::embedded(&app, &settings);
    let told = || proxy.complaints().matches("[session.verify] finds is over 128 bytes").count();
    for sid in ["sid-of-ann-1", "sid-of-ann-2"] {
        let me = proxy.get("/_anteroom/me").cookie(&format!("SID={sid}")).send();
        let me: serde_json::Value = serde_json::from_str(&me.text()).unwrap();
        assert_eq!(
            (me["user"].as_str(), &me["attributes"]["role"]),
            (Some("ann"), &serde_json::Value::Null)
        );
    }
    wait_until("it is told", || told() > 0);
    assert_eq!(told(), 1, "{}", proxy.complaints());
    proxy.wait_for_complaint("group");
    assert!(!proxy.complaints().contains("xxxx"), "no value is shown");
}

#[test]
fn a_cookie_of_which_the_app_cannot_speak_counts_as_what_kept_requests_from_the_cache() {
    let app = App::default();
    let origin = app.start();
    let proxy = Proxy::embedded(&origin, VERIFY);
    app.is_ill.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        let answer = page(&proxy, "sid-of-ann-1");
        assert!(answer.cache_status().contains("unverified"), "{}", answer.cache_status());
    }
    assert_eq!(proxy.metric("anteroom_cookie_bypasses_total{cookie=\"SID\"}"), 3.0);
}

#[test]
fn the_log_tells_once_of_cookies_that_change_with_every_answer() {
    const VISITORS: usize = 1_000;
    let app = App::default();
    let origin = app.start();
    let proxy = Proxy::embedded(&origin, VERIFY);
    let told = || proxy.complaints().matches("asked about were seen once").count();
    at_once(8, |part| {
        let mut client = proxy.connect();
        for number in 0..VISITORS / 8 {
            // A few frequent visitors hide no others.
            for _ in 0..2 {
                proxy.get("/page").cookie("SID=sid-of-a-busy-one").send_on(&mut client);
            }
            let cookie = format!("SID=sid-of-visitor-{part}-{number}");
            let answer = proxy.get("/page").cookie(&cookie).send_on(&mut client);
            assert_eq!(answer.text(), "a page for anybody");
        }
    });
    wait_until("it is told", || told() == 1);
    for number in 0..20 {
        page(&proxy, &format!("sid-of-another-{number}"));
    }
    assert_eq!(told(), 1, "{}", proxy.complaints());
}
