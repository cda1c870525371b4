//! `[session] app`: log-ins of well-known apps in the shapes that they have on the wire, which are written
//! down in `tests/apps/README.md`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::support::client::Answer;
use crate::support::origin::{Origin, Reply, Request};
use crate::support::proxy::Proxy;

const LONG_AGO: &str = "expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0; path=/";

/// A browser that keeps cookies.
struct Browser<'p> {
    proxy: &'p Proxy,
    cookies: RefCell<BTreeMap<String, String>>,
}

impl<'p> Browser<'p> {
    fn new(proxy: &'p Proxy) -> Self {
        Self { proxy, cookies: RefCell::default() }
    }

    fn get(&self, target: &str) -> Answer {
        self.send("GET", target, "")
    }

    fn post(&self, target: &str, form: &str) -> Answer {
        self.send("POST", target, form)
    }

    fn send(&self, method: &str, target: &str, form: &str) -> Answer {
        let mut ask = self.proxy.ask(method, target);
        let line = self.line();
        if !line.is_empty() {
            ask = ask.cookie(&line);
        }
        if method == "POST" {
            ask = ask
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body(form.as_bytes());
        }
        let answer = ask.send();
        for line in answer.fields.all("set-cookie") {
            let (pair, attributes) = line.trim().split_once(';').unwrap_or((line, ""));
            let (name, value) = pair.split_once('=').unwrap();
            if attributes.contains("Max-Age=0") {
                self.cookies.borrow_mut().remove(name);
            } else {
                self.cookies.borrow_mut().insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    fn line(&self) -> String {
        let cookies = self.cookies.borrow();
        let pairs = cookies.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    /// What Anteroom says of the visitor: his session, and who he is.
    fn me(&self) -> (String, Option<String>) {
        let me = self.get("/_anteroom/me").text();
        let me: serde_json::Value = serde_json::from_str(&me).unwrap();
        let text = |name: &str| me[name].as_str().map(str::to_owned);
        (text("session").unwrap(), text("user"))
    }
}

fn cookie(request: &Request, name: &str) -> Option<String> {
    let pairs = request.header("cookie")?.split("; ");
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.find(|(have, _)| *have == name).map(|(_, value)| value.to_owned())
}

fn form_field(request: &Request, name: &str) -> Option<String> {
    let body = String::from_utf8_lossy(&request.body.bytes).into_owned();
    let mut pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(have, _)| *have == name).map(|(_, value)| value.to_owned())
}

fn redirect(status: &str, to: &str) -> Reply {
    Reply::status(status).header("Location", to).body("")
}

fn greeting(user: Option<&str>) -> String {
    format!("<p>Welcome, {}</p>", user.unwrap_or("stranger"))
}

/// Who is logged in under which id, as the app keeps it.
#[derive(Clone, Default)]
struct Known(Arc<Mutex<HashMap<String, String>>>);

impl Known {
    fn user(&self, id: Option<&str>) -> Option<String> {
        self.0.lock().unwrap().get(id?).cloned()
    }

    fn log_in(&self, id: &str, user: &str) {
        self.0.lock().unwrap().insert(id.to_owned(), user.to_owned());
    }

    fn log_out(&self, id: &str) {
        self.0.lock().unwrap().remove(id);
    }

    /// An id that was not given out before.
    fn next(&self, manner: &str) -> String {
        format!("{manner}{}", self.0.lock().unwrap().len())
    }
}

/// What the app was told of whoever asked last: his session, and his name.
fn told(origin: &Origin) -> (String, Option<String>) {
    let last = origin.last();
    let field = |name: &str| last.header(name).map(str::to_owned);
    (field("x-anteroom-session").unwrap(), field("x-anteroom-user"))
}

fn known(user: &str) -> (String, Option<String>) {
    ("known".to_owned(), Some(user.to_owned()))
}

#[test]
fn wordpress_names_its_users_in_the_cookie_of_a_log_in() {
    const COOKIE: &str = "wordpress_logged_in_5c016e8f0f95f039102cbe8366c5c7f3";
    let sessions = Known::default();
    let origin = Origin::start(move |request| {
        let value = cookie(request, COOKIE);
        let user = sessions.user(value.as_deref());
        match (request.method.as_str(), request.target.as_str()) {
            ("GET", "/blog/wp-login.php") => Reply::unstored("<form>")
                .header("Set-Cookie", "wordpress_test_cookie=WP%20Cookie%20check; path=/"),
            ("POST", "/blog/wp-login.php") => match form_field(request, "pwd").as_deref() {
                Some("secret") => {
                    let user = form_field(request, "log").unwrap();
                    let id = format!("{user}%7C1790000000%7C{}%7C9f0a", sessions.next("Tok"));
                    sessions.log_in(&id, &user);
                    redirect("302 Found", "/blog/wp-admin/")
                        .header("Set-Cookie", &format!("{COOKIE}={id}; path=/; HttpOnly"))
                        .header("Set-Cookie", "wp-settings-time-1=1790000000; path=/")
                }
                _ => Reply::unstored("<form>wrong"),
            },
            ("GET", "/blog/wp-login.php?action=logout&_wpnonce=1f") => {
                sessions.log_out(&value.unwrap());
                redirect("302 Found", "/blog/wp-login.php?loggedout=true")
                    .header("Set-Cookie", &format!("{COOKIE}=%20; {LONG_AGO}"))
            }
            _ => Reply::html(&greeting(user.as_deref())),
        }
    });
    let proxy = Proxy::embedded(&origin, "session.app = \"wordpress\"");
    let ann = Browser::new(&proxy);
    ann.get("/blog/wp-login.php");
    ann.post("/blog/wp-login.php", "log=ann&pwd=wrong");
    assert_eq!(ann.me().0, "none");

    // As it stands in the form and the cookie; the user; and how the app is told of him.
    for (sent, user, field) in [
        ("ann%40a.test", "ann@a.test", "ann@a.test"),
        ("ann%40b.test", "ann@b.test", "ann@b.test"),
        ("ann", "ann", "ann"),
        ("ann+o", "ann o", "ann%20o"),
        ("ann%2Bo", "ann+o", "ann+o"),
        ("ann%2540a.test", "ann%40a.test", "ann%2540a.test"),
    ] {
        ann.post("/blog/wp-login.php", &format!("log={sent}&pwd=secret"));
        assert_eq!(ann.me(), known(user));
        assert!(ann.get("/blog/").text().contains(&format!("Welcome, {sent}<")));
        assert_eq!(told(&origin), known(field), "the whole name, or two were one");
    }
    let old = ann.line();
    ann.get("/blog/wp-login.php?action=logout&_wpnonce=1f");
    assert_eq!(
        ann.line(),
        "wordpress_test_cookie=WP%20Cookie%20check; wp-settings-time-1=1790000000"
    );
    assert!(!ann.get("/blog/").is_hit());
    assert!(ann.get("/blog/").is_hit(), "what is left behind a log-out keeps no page away");
    assert_eq!(ann.me().0, "none");
    let again = proxy.get("/blog/").cookie(&old).send();
    assert_eq!(told(&origin), ("unknown".to_owned(), None));
    assert!(again.text().contains("stranger"));
    // The name of a commenter stands in the forms of pages.
    let commenter = proxy.get("/blog/").cookie("comment_author_5c016e8f=Ann").send();
    assert!(!commenter.is_hit(), "{}", commenter.cache_status());
}

#[test]
fn mediawiki_is_asked_by_its_api() {
    let sessions = Known::default();
    let origin = Origin::start(move |request| {
        let id = cookie(request, "wikidb_session");
        let user = sessions.user(id.as_deref());
        let clears = |reply: Reply| {
            reply.header("Set-Cookie", &format!("wikidb_session=deleted; {LONG_AGO}"))
        };
        match (request.method.as_str(), request.path()) {
            ("GET", "/api.php") => {
                let said = match &user {
                    Some(name) => format!(r#"{{"id":3,"name":"{name}"}}"#),
                    None => r#"{"id":0,"name":"127.0.0.1","anon":true}"#.to_owned(),
                };
                let json = format!(r#"{{"batchcomplete":true,"query":{{"userinfo":{said}}}}}"#);
                let reply = Reply::typed("application/json", &json)
                    .header("Cache-Control", "private, must-revalidate, max-age=0");
                // Stale cookies are taken away in every answer.
                if user.is_none() && id.is_some_and(|id| id.starts_with("in")) {
                    clears(reply)
                } else {
                    reply
                }
            }
            ("POST", "/api.php") => {
                sessions.log_out(&id.unwrap());
                clears(Reply::typed("application/json", "{}"))
                    .header("Set-Cookie", &format!("wikidbUserID=deleted; {LONG_AGO}"))
                    .header("Set-Cookie", "wikidbLoggedOut=1790000000; path=/; HttpOnly")
            }
            ("GET", "/index.php") => Reply::unstored("<form>")
                .header("Set-Cookie", "wikidb_session=out7f1q0k; path=/; HttpOnly"),
            ("POST", "/index.php") => {
                let id = sessions.next("in5e55i0n");
                let user = form_field(request, "wpName").unwrap();
                sessions.log_in(&id, &user);
                redirect("302 Found", "/index.php?title=Main_Page")
                    .header("Set-Cookie", &format!("wikidb_session={id}; path=/; HttpOnly"))
                    .header("Set-Cookie", "wikidbUserID=3; Max-Age=2592000; path=/; HttpOnly")
                    .header(
                        "Set-Cookie",
                        &format!("wikidbUserName={user}; Max-Age=2592000; path=/"),
                    )
            }
            _ => Reply::html(&greeting(user.as_deref()))
                .header("Cache-Control", "private, must-revalidate, max-age=0")
                .header("Vary", "Accept-Encoding, Cookie"),
        }
    });
    let settings = r#"
session.app = "mediawiki"
[[route]]
match.path = "/wiki/**"
override_ttl = "300s"
override_private = true
"#;
    let proxy = Proxy::embedded(&origin, settings);
    let ann = Browser::new(&proxy);
    ann.get("/index.php?title=Special:UserLogin");
    assert!(ann.get("/wiki/Main").text().contains("stranger"));
    assert_eq!(ann.me().0, "none", "a session that is nobody's");
    assert!(proxy.get("/wiki/Main").send().is_hit(), "and shares what others see");

    ann.post("/index.php?title=Special:UserLogin", "wpName=Ann&wpPassword=secret");
    assert!(ann.get("/wiki/Main").text().contains("Welcome, Ann"));
    assert_eq!(told(&origin), known("Ann"));
    assert!(proxy.get("/wiki/Main").send().text().contains("stranger"));
    let old = ann.line();

    ann.post("/api.php?action=logout&format=json", "token=x");
    assert!(ann.line().contains("wikidbUserName=Ann"), "{}", ann.line());
    let after = ann.get("/wiki/Main");
    assert!(after.is_hit() && after.text().contains("stranger"), "{}", after.cache_status());
    let again = proxy.get("/wiki/Main").cookie(&old).send();
    assert!(again.text().contains("stranger"));
}

#[test]
fn django_labels_who_logs_in_and_shares_pages_beside_its_csrf_cookie() {
    let sessions = Known::default();
    let origin = Origin::start(move |request| {
        let id = cookie(request, "sessionid");
        let user = sessions.user(id.as_deref());
        match (request.method.as_str(), request.path()) {
            ("GET", "/accounts/login/") => Reply::unstored("<form>")
                .header("Set-Cookie", " csrftoken=one; Max-Age=31449600; Path=/; SameSite=Lax"),
            ("POST", "/accounts/login/") => match form_field(request, "password").as_deref() {
                Some("secret") => {
                    let id = sessions.next("s3ss10n");
                    sessions.log_in(&id, &form_field(request, "username").unwrap());
                    redirect("302 Found", "/accounts/profile/")
                        .header("Set-Cookie", " csrftoken=two; Max-Age=31449600; Path=/")
                        .header(
                            "Set-Cookie",
                            &format!(" sessionid={id}; HttpOnly; Max-Age=1209600; Path=/"),
                        )
                }
                _ => Reply::unstored("<form>wrong"),
            },
            ("POST", "/accounts/logout/") => {
                sessions.log_out(&id.unwrap());
                Reply::unstored("Logged out")
                    .header("Set-Cookie", &format!(" sessionid=\"\"; {LONG_AGO}; SameSite=Lax"))
            }
            _ => Reply::html(&greeting(user.as_deref())).header("Vary", "Cookie"),
        }
    });
    let proxy = Proxy::embedded(&origin, "session.app = \"django\"");
    let ann = Browser::new(&proxy);
    ann.get("/accounts/login/");
    assert_eq!(ann.line(), "csrftoken=one");
    assert!(!ann.get("/").is_hit());
    assert!(ann.get("/").is_hit(), "who once opened the form shares pages");
    ann.post("/accounts/login/", "username=ann&password=wrong");
    assert_eq!(ann.me().0, "none");

    ann.post("/accounts/login/", "username=ann&password=secret");
    assert_eq!(ann.me(), known("ann"));
    assert!(ann.get("/").text().contains("Welcome, ann"));
    assert_eq!(told(&origin), ("known".to_owned(), None), "a label is not told");
    let old = ann.line();

    ann.post("/accounts/logout/", "csrfmiddlewaretoken=two");
    assert!(ann.get("/").is_hit());
    assert!(ann.get("/").text().contains("stranger"));
    proxy.get("/").cookie(&old).send();
    assert_eq!(told(&origin).0, "unknown");
}

#[test]
fn tomcat_gives_a_new_id_at_log_in_and_its_route_may_change() {
    let sessions = Known::default();
    let origin = Origin::start(move |request| {
        let id = cookie(request, "JSESSIONID");
        let id = id.as_deref().and_then(|id| id.split('.').next());
        let user = sessions.user(id);
        match (request.method.as_str(), request.path()) {
            ("GET", "/shop/account") if user.is_none() => {
                Reply::html("<form action=\"j_security_check\">")
                    .header("Cache-Control", "private")
                    .header("Set-Cookie", "JSESSIONID=F0F0F0F0F0F0.node1; Path=/; HttpOnly")
            }
            ("POST", "/shop/j_security_check") => {
                match form_field(request, "j_password").as_deref() {
                    Some("secret") => {
                        let id = sessions.next("5F0B8C1A9E7D44");
                        sessions.log_in(&id, &form_field(request, "j_username").unwrap());
                        redirect("303 See Other", "/shop/account").header(
                            "Set-Cookie",
                            &format!("JSESSIONID={id}.node1; Path=/; HttpOnly"),
                        )
                    }
                    _ => Reply::html("wrong").header("Cache-Control", "private"),
                }
            }
            ("GET", "/shop/leave") => {
                sessions.log_out(id.unwrap());
                redirect("302 Found", "/shop/")
            }
            _ => Reply::html(&greeting(user.as_deref())),
        }
    });
    let settings = r#"
session.app = "tomcat"
session.logout = { match = { method = "GET", path = "/shop/leave" }, success = { status = [302] } }
"#;
    let proxy = Proxy::embedded(&origin, settings);
    let ann = Browser::new(&proxy);
    ann.get("/shop/account");
    ann.post("/shop/j_security_check", "j_username=ann&j_password=wrong");
    assert_eq!(ann.me().0, "unknown", "a session of which nothing is known");
    ann.post("/shop/j_security_check", "j_username=ann&j_password=secret");
    assert_eq!(ann.me(), known("ann"));
    assert!(ann.get("/shop/").text().contains("Welcome, ann"));
    assert_eq!(told(&origin), ("known".to_owned(), None));

    // Another server has taken over.
    let moved = ann.line().replace(".node1", ".node2");
    proxy.get("/shop/").cookie(&moved).send();
    assert_eq!(told(&origin).0, "known");

    // Nothing tells a browser to forget the cookie.
    ann.get("/shop/leave");
    assert_eq!(ann.me().0, "unknown");
    assert!(ann.get("/shop/").text().contains("stranger"));
}

#[test]
fn php_keeps_its_id_at_log_in_and_log_out_and_the_app_is_asked() {
    let sessions = Known::default();
    let origin = Origin::start(move |request| {
        let id = cookie(request, "PHPSESSID");
        let user = sessions.user(id.as_deref());
        let reply = match (request.method.as_str(), request.path()) {
            ("GET", "/me.php") => match &user {
                Some(name) => Reply::typed("application/json", &format!(r#"{{"user":"{name}"}}"#)),
                None => Reply::status("401 Unauthorized").body(""),
            },
            ("GET", "/login.php") => Reply::html("<form method=\"post\"><input type=\"password\">"),
            ("POST", "/login.php") => {
                sessions.log_in(id.as_deref().unwrap(), &form_field(request, "user").unwrap());
                redirect("302 Found", "/account.php")
            }
            ("POST", "/logout.php") => {
                sessions.log_out(id.as_deref().unwrap());
                redirect("302 Found", "/bye.php")
            }
            _ => Reply::html(&greeting(user.as_deref())),
        };
        match id {
            Some(_) => reply,
            None => reply.header("Set-Cookie", "PHPSESSID=4g7fqk2m1v; path=/"),
        }
    });
    let settings = r#"
session.app = "php"
session.verify = { path = "/me.php", user = { json = "/user" }, nobody = { status = [401] } }
[[route]]
match.path = "/**"
set_cookie = "strip_for_anonymous"
"#;
    let proxy = Proxy::embedded(&origin, settings);
    let ann = Browser::new(&proxy);
    assert!(!ann.get("/").is_hit());
    assert!(ann.get("/").is_hit());
    assert_eq!(ann.line(), "", "a page that others see gives nobody a session");
    ann.get("/login.php");
    assert_eq!(ann.line(), "PHPSESSID=4g7fqk2m1v");
    assert!(ann.get("/").is_hit(), "a session that is nobody's");
    ann.post("/login.php", "user=ann&password=secret");
    assert!(ann.get("/").text().contains("Welcome, ann"));
    assert_eq!(told(&origin), known("ann"));
    ann.post("/logout.php", "");
    let after = ann.get("/");
    assert!(after.is_hit() && after.text().contains("stranger"), "{}", after.cache_status());
}
