//! Logins and logouts of an app that keeps its own sessions: by its cookies and by rules.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use percent_encoding::percent_decode_str;

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::{Proxy, Storage, anteroom, on_both_stores};
use crate::support::wait_until;

/// By rules alone.
pub(crate) const RULES: &str = r#"
session.cookie = "SID"
session.login = { match = { method = "POST", path = "/login" }, success = { status = [302], set_cookie = "SID" }, user = { form = "user" } }
session.logout = { match = { method = ["GET", "POST"], path = "/logout" }, success = { status = [302] } }
"#;

/// By asking it.
pub(crate) const VERIFY: &str = r#"
session.cookie = ["SID", "REMEMBER"]
session.verify.path = "/whoami"
session.verify.user = { json = "/name" }
session.verify.nobody = { json = "/id", equals = 0 }
"#;

/// An app that gives a new id at login, takes it away at logout, and goes on to believe in it.
pub(crate) fn app() -> Origin {
    let users: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    Origin::start(move |request| {
        let mut users = users.lock().unwrap();
        let user = sid(request).and_then(|sid| users.get(&sid).cloned());
        match (request.path(), request.target.split_once('?')) {
            ("/whoami", _) => Reply::typed(
                "application/json",
                &match user {
                    Some(name) => format!(r#"{{"id":7,"name":"{name}"}}"#),
                    None => r#"{"id":0}"#.to_owned(),
                },
            ),
            ("/login", Some((_, name))) => {
                let sid = format!("sid-{name}-{}", users.len());
                users.insert(sid.clone(), name.to_owned());
                Reply::status("302 Found")
                    .header("Location", "/")
                    .header("Set-Cookie", &format!("SID={sid}; Path=/"))
                    .body("")
            }
            ("/login", None) => Reply::unstored("wrong password"),
            ("/logout", Some(_)) => Reply::status("302 Found").header("Location", "/").body(""),
            ("/logout", None) => Reply::status("302 Found")
                .header("Location", "/")
                .header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0")
                .body(""),
            _ => Reply::html(&format!("a page for {}", user.as_deref().unwrap_or("anybody"))),
        }
    })
}

/// As PHP reads it: names and values are decoded, and the first of a name counts.
fn sid(request: &Request) -> Option<String> {
    let cookies = request.header("cookie")?.split("; ");
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let mut pairs = cookies.filter_map(|cookie| cookie.split_once('='));
    pairs.find(|(name, _)| decoded(name) == "SID").map(|(_, value)| decoded(value))
}

/// Logs in, and returns the cookie.
pub(crate) fn log_in(proxy: &Proxy, user: &str) -> String {
    let answer = proxy
        .post(&format!("/login?{user}"))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(format!("pass=secret&user={user}").as_bytes())
        .send();
    format!("SID={}", answer.cookie("SID").expect("the app sets a cookie"))
}

pub(crate) fn page(proxy: &Proxy, cookie: &str) -> Answer {
    proxy.get("/page").cookie(cookie).send()
}

pub(crate) fn session(proxy: &Proxy, cookie: &str) -> (String, Option<String>) {
    let me = proxy.get("/_anteroom/me").cookie(cookie).send();
    let me: serde_json::Value = serde_json::from_str(&me.text()).unwrap();
    let text = |name: &str| me[name].as_str().map(str::to_owned);
    (text("session").unwrap(), text("user"))
}

on_both_stores!(
    a_log_in_is_known_by_its_rule_and_its_name_is_a_label,
    a_log_out_is_known_by_its_rule,
    a_cookie_that_is_taken_away_ends_the_session,
    a_logged_out_token_stays_anonymous_despite_the_app,
    a_revoked_session_stays_revoked_despite_the_app,
    a_token_that_was_logged_out_is_found_wherever_the_app_would_find_it,
    a_log_in_at_one_host_is_none_at_another,
    a_cookie_of_another_path_says_nothing_of_the_session,
);

fn a_log_in_is_known_by_its_rule_and_its_name_is_a_label(storage: &Storage) {
    let origin = app();
    let proxy = Proxy::start(&origin, storage, RULES);
    let unknown = proxy.post("/login").body(b"user=ann").send();
    assert_eq!(unknown.status, 200);

    let ann = log_in(&proxy, "ann");
    assert_eq!(session(&proxy, &ann), ("known".to_owned(), Some("ann".to_owned())));
    assert_eq!(page(&proxy, &ann).text(), "a page for ann");
    let seen = origin.last();
    assert_eq!(seen.header("x-anteroom-session"), Some("known"));
    assert_eq!(seen.header("x-anteroom-user"), None, "only the visitor has claimed this name");
    let mut list = anteroom();
    list.args(["sessions", "list", "--json", "--config", "proxy.toml"]).current_dir(proxy.folder());
    let mut listed = String::new();
    wait_until("the visit is recorded", || {
        listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
        !listed.is_empty()
    });
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!((&listed["user"], &listed["confirmed"]), (&"ann".into(), &false.into()));
    // A token that was never issued belongs to no user.
    assert_eq!(session(&proxy, "SID=sid-mallory-7").0, "unknown");
}

fn a_log_out_is_known_by_its_rule(storage: &Storage) {
    let origin = app();
    let proxy = Proxy::start(&origin, storage, RULES);
    let ann = log_in(&proxy, "ann");
    proxy.get("/logout?keeps=the-cookie").cookie(&ann).send();
    assert_eq!(session(&proxy, &ann), ("unknown".to_owned(), None));
}

fn a_cookie_that_is_taken_away_ends_the_session(storage: &Storage) {
    let origin = app();
    let without = RULES.lines().filter(|line| !line.starts_with("session.logout"));
    let proxy = Proxy::start(&origin, storage, &without.collect::<Vec<_>>().join("\n"));
    let ann = log_in(&proxy, "ann");
    proxy.get("/logout").cookie(&ann).send();
    assert_eq!(session(&proxy, &ann), ("unknown".to_owned(), None));
}

fn a_logged_out_token_stays_anonymous_despite_the_app(storage: &Storage) {
    let origin = app();
    let mut proxy = Proxy::start(&origin, storage, VERIFY);
    let ann = log_in(&proxy, "ann");
    assert_eq!(page(&proxy, &ann).text(), "a page for ann");
    proxy.get("/logout").cookie(&ann).send();

    let old = format!("{ann}; REMEMBER=remember-ann");
    for cookie in [&ann, &old] {
        let after = page(&proxy, cookie);
        assert_eq!(after.text(), "a page for anybody");
        assert_eq!(session(&proxy, cookie), ("none".to_owned(), None));
        let own = proxy.post("/other").cookie(cookie).send();
        assert_eq!(origin.last().header("cookie"), None, "the app does not see it");
        assert!(own.set_cookie("SID").unwrap().contains("Max-Age=0"));
    }
    proxy.restart();
    assert_eq!(session(&proxy, &ann), ("none".to_owned(), None), "it is kept");
    // A new login has another token.
    let again = log_in(&proxy, "ann");
    assert_ne!(again, ann);
    assert_eq!(page(&proxy, &again).text(), "a page for ann");
}

fn a_token_that_was_logged_out_is_found_wherever_the_app_would_find_it(storage: &Storage) {
    let origin = app();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let [ann, bob] = ["ann", "bob"].map(|user| log_in(&proxy, user));
    assert_eq!(page(&proxy, &ann).text(), "a page for ann");
    proxy.get("/logout").cookie(&ann).send();

    let token = ann.strip_prefix("SID=").unwrap();
    let many: String = (0..140).map(|number| format!("; SID=sid-of-nobody-{number}")).collect();
    for cookie in [
        format!("{ann}; SID=another-1"),
        format!("%53ID={token}"),
        format!("SID=%73{}", &token[1..]),
        format!("%53ID=%73{}; {bob}", &token[1..]),
        format!("SID=\"a\\\"; SID={token}"),
        format!("{ann}{many}"),
    ] {
        for path in ["/page", "/other"] {
            let after = proxy.post(path).cookie(&cookie).send();
            assert_eq!(after.text(), "a page for anybody", "{cookie}");
            assert_eq!(origin.last().header("cookie"), None, "the app does not see it: {cookie}");
        }
        assert_ne!(session(&proxy, &cookie).0, "known", "{cookie}");
    }
    assert_eq!(page(&proxy, &bob).text(), "a page for bob");
}

fn a_revoked_session_stays_revoked_despite_the_app(storage: &Storage) {
    let origin = app();
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let [ann, bob] = ["ann", "bob"].map(|user| log_in(&proxy, user));
    for (cookie, text) in [(&ann, "a page for ann"), (&bob, "a page for bob")] {
        assert_eq!(page(&proxy, cookie).text(), text);
    }
    let mut command = anteroom();
    command.args(["sessions", "revoke", "--user", "ann", "--config", "proxy.toml"]);
    let revoked = command.current_dir(proxy.folder()).output().unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(page(&proxy, &ann).text(), "a page for anybody");
    assert_eq!(session(&proxy, &ann), ("none".to_owned(), None));
    assert_eq!(page(&proxy, &bob).text(), "a page for bob");
}

#[test]
fn a_token_logged_out_elsewhere_stays_anonymous_while_the_app_fails() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let ill = Arc::clone(&is_ill);
    let origin = Origin::start(move |request| match (request.path(), sid(request)) {
        ("/whoami", _) if ill.load(Ordering::SeqCst) => Reply::status("503 Service Unavailable"),
        ("/whoami", Some(_)) => Reply::typed("application/json", r#"{"id":7,"name":"ann"}"#),
        ("/logout", _) => {
            Reply::unstored("bye").header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0")
        }
        (_, Some(_)) => Reply::unstored("a page for ann"),
        (_, None) => Reply::unstored("a page for anybody"),
    });
    let storage = Storage::redis();
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, VERIFY));
    let ann = "SID=sid-of-ann-1";
    assert_eq!(page(&other, ann).text(), "a page for ann", "she is passed on");
    is_ill.store(false, Ordering::SeqCst);
    one.post("/logout").cookie(ann).send();
    for proxy in [&one, &other] {
        assert_eq!(page(proxy, ann).text(), "a page for anybody");
    }
}

#[test]
fn a_logged_out_token_is_anonymous_at_several_proxies_at_once() {
    let origin = app();
    let storage = Storage::redis();
    let proxies = [(); 2].map(|()| Proxy::start(&origin, &storage, VERIFY));
    for _ in 0..20 {
        let ann = log_in(&proxies[0], "ann");
        proxies[0].get("/logout").cookie(&ann).send();
        let mut clients: Vec<_> =
            proxies.iter().map(|proxy| proxy.get("/page").cookie(&ann).start()).collect();
        for client in &mut clients {
            assert_eq!(client.answer().text(), "a page for anybody");
        }
    }
}

#[test]
fn a_log_out_counts_where_nothing_is_known_yet_of_the_log_in() {
    let is_in = Arc::new(AtomicBool::new(false));
    let origin = Origin::start(move |request| match (request.path(), sid(request)) {
        ("/login", _) => {
            is_in.store(true, Ordering::SeqCst);
            Reply::unstored("welcome")
        }
        ("/logout", _) => {
            Reply::unstored("bye").header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0")
        }
        ("/whoami", Some(_)) if is_in.load(Ordering::SeqCst) => {
            Reply::typed("application/json", r#"{"id":7,"name":"ann"}"#)
        }
        ("/whoami", _) => Reply::typed("application/json", r#"{"id":0}"#),
        (_, Some(_)) if is_in.load(Ordering::SeqCst) => Reply::unstored("a page for ann"),
        _ => Reply::unstored("a page for anybody"),
    });
    let storage = Storage::redis();
    let [one, other] = [(); 2].map(|()| Proxy::start(&origin, &storage, VERIFY));
    let ann = "SID=sid-of-ann-1";
    assert_eq!(page(&other, ann).text(), "a page for anybody");
    one.post("/login").cookie(ann).send();
    other.post("/logout").cookie(ann).send();
    for proxy in [&one, &other] {
        assert_eq!(page(proxy, ann).text(), "a page for anybody");
    }
}

#[test]
fn a_log_in_or_log_out_ends_that_users_pages_in_all_sessions() {
    let origin = app();
    let settings =
        format!("{RULES}[[route]]\nmatch.path = \"/page\"\nshare = \"user\"\nttl = \"60s\"\n");
    let proxy = Proxy::embedded(&origin, &settings);
    let alice = log_in(&proxy, "alice");
    let bob = log_in(&proxy, "bob");
    let is_kept = || {
        let before = page(&proxy, &alice).is_hit();
        assert!(page(&proxy, &alice).is_hit());
        before
    };
    assert!(!is_kept());
    let again = log_in(&proxy, "alice");
    assert!(!is_kept(), "a login may greet her everywhere");
    proxy.get("/logout").cookie(&again).send();
    assert!(!is_kept(), "a logout of one session may mean all of them");
    proxy.get("/logout").cookie(&bob).send();
    assert!(is_kept());
}

#[test]
fn a_log_in_over_a_session_leaves_nothing_of_it() {
    let origin = app();
    let proxy = Proxy::embedded(&origin, RULES);
    let ann = log_in(&proxy, "ann");
    let answer = proxy.post("/login?bob").cookie(&ann).body(b"user=bob").send();
    let bob = format!("SID={}", answer.cookie("SID").unwrap());
    assert_eq!(session(&proxy, &bob), ("known".to_owned(), Some("bob".to_owned())));
    assert_eq!(session(&proxy, &ann).0, "unknown");
}

#[test]
fn an_app_that_writes_its_name_into_its_cookie_is_believed() {
    let origin = Origin::start(|request| match request.path() {
        "/wp-login.php" => Reply::status("302 Found")
            .header("Location", "http://other.port:81/wp-admin/")
            .header("Set-Cookie", "wordpress_logged_in_0f=ann%7C1799999999%7Cx%7Cy; Path=/")
            .body(""),
        _ => Reply::unstored("a page"),
    });
    let rules = r#"
session.cookie = "wordpress_logged_in_*"
session.login.match = { path = "/wp-login.php" }
session.login.success = { location = "/wp-admin/*", set_cookie = "wordpress_logged_in_*" }
session.login.user = { set_cookie = "wordpress_logged_in_*", regex = "^([^|%]+)" }
"#;
    let proxy = Proxy::embedded(&origin, rules);
    let answer = proxy.post("/wp-login.php").body(b"log=ann").send();
    let cookie =
        format!("wordpress_logged_in_0f={}", answer.cookie("wordpress_logged_in_0f").unwrap());
    page(&proxy, &cookie);
    assert_eq!(origin.last().header("x-anteroom-user"), Some("ann"));
}

fn a_log_in_at_one_host_is_none_at_another(storage: &Storage) {
    let user = |request: &Request| request.header("x-anteroom-user").unwrap_or("-").to_owned();
    let origin = Origin::start(move |request| match request.target.split_once('?') {
        // A cookie that the visitor has chosen is taken.
        Some(("/login", "wide")) => Reply::status("302 Found")
            .header("Location", "/")
            .header("Set-Cookie", "SID=sid-for-all-hosts; Path=/; Domain=.shop.test")
            .body(""),
        // An old cookie of the domain is taken away, and another is set for it.
        Some(("/login", "tidy")) => Reply::status("302 Found")
            .header("Location", "/")
            .header("Set-Cookie", "SID=tidy-sid-of-mallory; Path=/")
            .header("Set-Cookie", "SID=; Path=/; Domain=shop.test; Max-Age=0")
            .header("Set-Cookie", "REMEMBER=me-for-long; Path=/; Domain=shop.test")
            .body(""),
        // Browsers refuse it.
        Some(("/login", "bare")) => Reply::status("302 Found")
            .header("Location", "/")
            .header("Set-Cookie", "SID=bare-sid-of-mallory; Path=/; Domain=test")
            .body(""),
        Some(("/login", _)) => Reply::status("302 Found")
            .header("Location", "/")
            .header("Set-Cookie", "SID=sid-of-mallory; Path=/")
            .body(""),
        _ => Reply::unstored(&user(request)),
    });
    let proxy = Proxy::start(&origin, storage, RULES);
    let log_in = |host: &str, how: &str| {
        let form = "application/x-www-form-urlencoded";
        let ask = proxy.post(&format!("/login?{how}")).host(host).header("Content-Type", form);
        assert_eq!(ask.body(b"user=admin").send().status, 302);
    };
    let get = |host: &str, sid: &str| {
        let ask = proxy.get("/page").host(host).cookie(&format!("SID={sid}"));
        ask.send();
        origin.last().header("x-anteroom-session").map(str::to_owned).unwrap()
    };
    log_in("a.shop.test", "own");
    assert_eq!(get("a.shop.test", "sid-of-mallory"), "known");
    assert_eq!(get("b.shop.test", "sid-of-mallory"), "unknown");
    assert_eq!(get("a.shop.test", "sid-of-mallory"), "known");

    log_in("a.shop.test", "wide");
    assert_eq!(get("b.shop.test", "sid-for-all-hosts"), "known");
    assert_eq!(get("shop.test:8080", "sid-for-all-hosts"), "known");
    for (how, sid) in [("tidy", "tidy-sid-of-mallory"), ("bare", "bare-sid-of-mallory")] {
        log_in("a.shop.test", how);
        assert_eq!(get("a.shop.test", sid), "known", "{how}");
        assert_eq!(get("b.shop.test", sid), "unknown", "{how}");
        assert_eq!(get("test", sid), "unknown", "{how}");
    }
    assert_eq!(get("shop.example", "sid-for-all-hosts"), "unknown");
    assert_eq!(get("myshop.test", "sid-for-all-hosts"), "unknown");
}

fn a_cookie_of_another_path_says_nothing_of_the_session(storage: &Storage) {
    let asked = Arc::new(AtomicBool::new(false));
    let renewed = Arc::clone(&asked);
    let origin = Origin::start(move |request| match request.path() {
        "/whoami" => match sid(request).as_deref() {
            Some("sid-of-ann-1" | "sid-of-ann-2") => {
                Reply::typed("application/json", r#"{"id":7,"name":"ann"}"#)
            }
            _ => Reply::typed("application/json", r#"{"id":0}"#),
        },
        "/tidy" => {
            Reply::unstored("tidied").header("Set-Cookie", "SID=deleted; Path=/old; Max-Age=0")
        }
        "/again" => Reply::unstored("again")
            .header("Set-Cookie", "SID=sid-of-ann-1; Path=/")
            .header("Set-Cookie", "SID=deleted; Path=/old; Max-Age=0"),
        "/renew" => {
            renewed.store(true, Ordering::SeqCst);
            Reply::unstored("renewed")
                .header("Set-Cookie", "SID=sid-of-ann-2; Path=/")
                .header("Set-Cookie", "SID=deleted; Path=/old; Max-Age=0")
        }
        "/logout" => Reply::unstored("bye").header("Set-Cookie", "SID=deleted; Path=/; Max-Age=0"),
        _ => Reply::unstored("a page"),
    });
    let proxy = Proxy::start(&origin, storage, VERIFY);
    let ann = ("known".to_owned(), Some("ann".to_owned()));
    assert_eq!(session(&proxy, "SID=sid-of-ann-1"), ann);
    for path in ["/tidy", "/again", "/renew"] {
        proxy.get(path).cookie("SID=sid-of-ann-1").send();
        assert_eq!(session(&proxy, "SID=sid-of-ann-1"), ann, "{path}");
    }
    assert!(asked.load(Ordering::SeqCst));
    assert_eq!(session(&proxy, "SID=sid-of-ann-2"), ann);
    proxy.get("/logout").cookie("SID=sid-of-ann-2").send();
    assert_eq!(session(&proxy, "SID=sid-of-ann-2").0, "none");
}

/// A login of that body and type, as `SID` from then on.
fn log_in_by(proxy: &Proxy, target: &str, kind: &str, body: &str) -> String {
    let ask = proxy.post(target).header("Content-Type", kind).cookie("SID=sid-before-1");
    let answer = ask.body(body.as_bytes()).send();
    format!("SID={}", answer.cookie("SID").unwrap_or_else(|| "sid-before-1".to_owned()))
}

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn a_log_in_that_the_app_is_asked_about_has_the_app_s_name_and_not_the_form_s() {
    let origin = app();
    let rule = r#"session.login = { match = { path = "/login" }, verify = true }"#;
    let proxy = Proxy::embedded(&origin, &format!("{VERIFY}{rule}\n"));
    // It has failed, whatever the form says.
    let before = log_in_by(&proxy, "/login", FORM, "user=ann&pass=wrong");
    assert_eq!(before, "SID=sid-before-1");
    assert_eq!(session(&proxy, &before), ("none".to_owned(), None));
    assert_eq!(page(&proxy, &before).text(), "a page for anybody");

    let ann = log_in_by(&proxy, "/login?ann", FORM, "user=mallory&pass=secret");
    assert_eq!(page(&proxy, &ann).text(), "a page for ann");
    assert_eq!(origin.last().header("x-anteroom-user"), Some("ann"));
    assert_eq!(session(&proxy, &ann), ("known".to_owned(), Some("ann".to_owned())));
    assert_eq!(session(&proxy, &before), ("none".to_owned(), None));
}

#[test]
fn a_log_in_is_proved_by_a_field_of_the_answer_and_named_by_another() {
    let origin = Origin::start(|request| {
        let welcome = Reply::unstored("welcome").header("Set-Cookie", "SID=sid-after-1; Path=/");
        match request.target.as_str() {
            "/login?proof" => welcome.header("X-Logged-In", "1").header("X-User", "ann"),
            "/login?nameless" => welcome.header("X-Logged-In", "1"),
            "/login?unproved" => welcome.header("X-User", "ann"),
            _ => Reply::unstored("a page"),
        }
    });
    let rule = r#"
session.cookie = "SID"
session.login = { match = { path = "/login" }, success = { header = "X-Logged-In" }, user = { header = "X-User" } }
"#;
    for (how, known) in [("proof", true), ("nameless", false), ("unproved", false)] {
        let proxy = Proxy::embedded(&origin, rule);
        let cookie = log_in_by(&proxy, &format!("/login?{how}"), FORM, "user=mallory");
        page(&proxy, &cookie);
        let (last, said) = (origin.last(), session(&proxy, &cookie));
        let told = (last.header("x-anteroom-session"), last.header("x-anteroom-user"));
        if known {
            assert_eq!(told, (Some("known"), Some("ann")), "the app's word");
            assert_eq!(said, ("known".to_owned(), Some("ann".to_owned())));
        } else {
            assert_eq!(told, (Some("unknown"), None), "{how}");
            assert_eq!(said, ("unknown".to_owned(), None), "{how}");
        }
    }
}

#[test]
fn a_name_in_the_json_of_a_log_in_is_a_label() {
    let origin = Origin::start(|request| match request.path() {
        "/api/login" => Reply::typed("application/json", "{}")
            .header("X-Logged-In", "1")
            .header("Set-Cookie", "SID=sid-after-1; Path=/"),
        _ => Reply::unstored("a page"),
    });
    let rule = r#"
session.cookie = "SID"
session.login = { match = { path = "/api/login" }, success = { header = "X-Logged-In" }, user = { json = "/who/name" } }
"#;
    for (body, name) in [
        (r#"{"who":{"name":"zo\u00eb"},"pass":"secret"}"#, Some("zo\u{eb}")),
        (r#"{"who":{"name":["ann"]}}"#, None),
        (r#"{"name":"ann"}"#, None),
        (r#"{"who":{"name":"ann"}"#, None),
        ("who=ann", None),
    ] {
        let proxy = Proxy::embedded(&origin, rule);
        let cookie = log_in_by(&proxy, "/api/login", "application/json", body);
        page(&proxy, &cookie);
        let (last, class) = (origin.last(), if name.is_some() { "known" } else { "unknown" });
        assert_eq!(session(&proxy, &cookie), (class.to_owned(), name.map(str::to_owned)), "{body}");
        assert_eq!(last.header("x-anteroom-session"), Some(class), "{body}");
        assert_eq!(last.header("x-anteroom-user"), None, "only the visitor has claimed this name");
    }
}
