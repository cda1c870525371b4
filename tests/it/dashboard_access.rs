//! Who may do what on the listener for operators: tokens with roles, the login to the dashboard, requests of other
//! pages, and the audit log.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::client::{Answer, Ask};
use crate::support::http2_client::{self, Http2Client};
use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom, shop};
use crate::support::wait_until;

/// Every role with the token that has it; the name of the token is that of the role.
const TOKENS: [(&str, &str); 4] = [
    ("read", "token-to-read"),
    ("purge", "token-to-purge"),
    ("sessions", "token-of-sessions"),
    ("all", "token-for-all"),
];

/// A proxy before an app.
struct Site {
    proxy: Proxy,
    _origin: Origin,
}

impl Deref for Site {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

impl Site {
    /// One with a token of each role.
    fn with_roles() -> Self {
        let entry = |(role, token): (&str, &str)| {
            let env = variable(token);
            format!("{{ name = \"{role}\", role = \"{role}\", token = {{ env = \"{env}\" }} }}")
        };
        let export = |(_, token): (&str, &str)| format!("export {}={token}", variable(token));
        let tokens = format!("admin.tokens = [{}]", TOKENS.map(entry).join(", "));
        Self::behind(&TOKENS.map(export).join("; "), &tokens)
    }

    /// One with the `[admin] token` in the file `token`, and one of alice in the file `alice`, with the role `read`.
    fn with_files(settings: &str) -> Self {
        let line = "printf secret-token >token; printf alices-token >alice";
        let tokens = "admin.token = { file = \"token\" }\n\
                      admin.tokens = [{ name = \"alice\", role = \"read\", token = { file = \"alice\" } }]";
        Self::behind(line, &format!("{tokens}\n{settings}"))
    }

    fn behind(line: &str, settings: &str) -> Self {
        let origin = shop(|_| Reply::html("hello"));
        Self { proxy: Proxy::behind_with(line, &origin, settings), _origin: origin }
    }
}

/// The variable with a token.
fn variable(token: &str) -> String {
    token.replace('-', "_").to_uppercase()
}

fn bearer(ask: Ask, token: &str) -> Ask {
    ask.header("Authorization", &format!("Bearer {token}"))
}

/// The origin of the listener itself, as a browser sends it.
fn own_origin(proxy: &Proxy) -> String {
    format!("http://{}", proxy.admin_address())
}

/// The form of a login, as the page sends it.
fn log_in_form(proxy: &Proxy, token: &str) -> Ask {
    let ask = proxy.admin("/login").method("POST").header("Origin", &own_origin(proxy));
    ask.body(format!("token={token}").as_bytes())
}

/// The cookie of a session that begins with this token.
fn log_in(proxy: &Proxy, token: &str) -> String {
    let answer = log_in_form(proxy, token).send();
    assert_eq!(answer.status, 303, "{}", answer.text());
    format!("anteroom_admin={}", answer.cookie("anteroom_admin").unwrap())
}

/// An action that the page sends with its cookie.
fn action(proxy: &Proxy, cookie: &str, path: &str, body: &str) -> Ask {
    let ask = proxy.admin(path).method("POST").cookie(cookie).body(body.as_bytes());
    ask.header("Origin", &own_origin(proxy)).header("X-Anteroom-Admin", "1")
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.text()).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// The entries of the audit log, each as name, action, what and status.
fn audited(proxy: &Proxy, token: &str) -> Vec<(String, String, String, u64)> {
    let answer = bearer(proxy.admin("/audit"), token).send();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let entries = json_of(&answer)["entries"].as_array().unwrap().clone();
    let read = |entry: &Value| {
        assert!(entry["at"].as_f64().unwrap() > 1.6e9, "{entry}");
        let status = entry["status"].as_u64().unwrap();
        (text(&entry["name"]), text(&entry["action"]), text(&entry["what"]), status)
    };
    entries.iter().map(read).collect()
}

#[test]
fn each_role_may_do_what_the_reference_says_and_nothing_else() {
    let proxy = Site::with_roles();
    let page = include_str!("../../docs/reference/admin-api.md");
    let mut seen = 0;
    for line in
        page.lines().filter(|line| line.starts_with("| `GET /") || line.starts_with("| `POST /"))
    {
        let cells: Vec<&str> = line.split(" | ").collect();
        let (method, path) = cells[0].trim_matches(['|', ' ', '`']).split_once(' ').unwrap();
        let needed = cells[1].trim_matches('`');
        let path = path.replace("most=N", "most=1");
        // Not among those of a session.
        if path == "/dashboard/*" || path == "/login" {
            continue;
        }
        seen += 1;
        let ask = proxy.admin(&path).method(method);
        let ask = if method == "POST" { ask.body(b"{}") } else { ask };
        for (role, token) in TOKENS {
            // Its body does not end for a while.
            let ask =
                if path == "/events" { proxy.admin(&path).method("HEAD") } else { ask.clone() };
            let status = bearer(ask, token).send().status;
            let may = role == "all" || needed == "read" || needed == role || needed == "open";
            match (needed, may) {
                ("socket", _) => {
                    assert!(matches!(status, 404 | 405), "{method} {path} {role} {status}")
                }
                // An empty command is an invalid one.
                (_, true) => {
                    assert!(matches!(status, 200 | 400), "{method} {path} {role} {status}")
                }
                (_, false) => assert_eq!(status, 403, "{method} {path} {role}"),
            }
        }
        for stranger in [ask.clone(), bearer(ask.clone(), "token-of-nothing"), bearer(ask, "")] {
            let answer = stranger.send();
            match needed {
                "open" => assert_eq!(answer.status, 200, "{path}"),
                "socket" => assert!(matches!(answer.status, 404 | 405), "{path}"),
                _ => {
                    assert_eq!(answer.status, 401, "{method} {path}");
                    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                    assert!(json_of(&answer)["error"].is_string());
                }
            }
        }
    }
    assert!(seen > 20, "{seen}");
    let me = |token| json_of(&bearer(proxy.admin("/me"), token).send());
    assert_eq!(me("token-to-purge"), json!({ "name": "purge", "role": "purge" }));
    let refused = bearer(proxy.admin("/purge").method("POST").body(b"{}"), "token-to-read").send();
    assert!(json_of(&refused)["error"].as_str().unwrap().contains("purge or all"), "{refused:?}");
}

#[test]
fn without_a_token_the_page_says_how_to_set_one() {
    let origin = shop(|_| Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "");
    let page = proxy.admin("/").send();
    assert_eq!(page.header("content-type"), Some("text/plain; charset=utf-8"));
    assert!(page.text().contains("[admin] token"), "{}", page.text());
    for path in ["/me", "/config", "/dashboard/app.js", "/audit"] {
        assert_eq!(proxy.admin(path).send().status, 404, "{path}");
    }
    assert_eq!(log_in_form(&proxy, "").send().status, 405);
}

#[test]
fn the_page_and_its_files_may_load_nothing_from_elsewhere() {
    let proxy = Site::with_files("");
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/dashboard/app.js", "text/javascript; charset=utf-8"),
        ("/dashboard/style.css", "text/css; charset=utf-8"),
    ] {
        let answer = proxy.admin(path).send();
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        assert_eq!(
            answer.header("content-security-policy"),
            Some(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                 connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
            )
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        let tag = answer.header("etag").unwrap();
        let again = proxy.admin(path).header("If-None-Match", tag).send();
        assert_eq!(again.status, 304, "{path}");
        assert_eq!(proxy.admin(path).host("dashboard.test").send().status, 421, "{path}");
    }
    for path in ["/dashboard/other.js", "/dashboard/", "/dashboard/page.html"] {
        assert_eq!(proxy.admin(path).send().status, 404, "{path}");
    }
}

#[test]
fn a_log_in_begins_a_session_that_a_log_out_ends() {
    let proxy = Site::with_files("");
    let answer = log_in_form(&proxy, "alices-token").send();
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let line = answer.set_cookie("anteroom_admin").unwrap();
    let (token, attributes) = line.split_once("; ").unwrap();
    assert_eq!(token.len(), "anteroom_admin=".len() + 43, "256 bits");
    assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/; Max-Age=43200");
    let cookie = token.to_owned();
    let me = |cookie: &str| proxy.admin("/me").cookie(cookie).send();
    assert_eq!(json_of(&me(&cookie)), json!({ "name": "alice", "role": "read" }));
    assert_eq!(me("anteroom_admin=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA").status, 401);
    assert_eq!(me("anteroom_admin=alices-token").status, 401);
    // A wrong bearer token is not overruled by the cookie.
    assert_eq!(bearer(proxy.admin("/me").cookie(&cookie), "wrong").send().status, 401);

    let out = action(&proxy, &cookie, "/logout", "").send();
    assert_eq!(out.status, 200);
    assert!(out.set_cookie("anteroom_admin").unwrap().ends_with("Max-Age=0"));
    assert_eq!(me(&cookie).status, 401);
}

#[test]
fn an_action_with_the_cookie_must_come_from_the_page() {
    let proxy = Site::with_files("");
    let cookie = log_in(&proxy, "secret-token");
    proxy.get("/").send();
    let body = "{\"all\": true}";
    let post = || proxy.admin("/purge").method("POST").cookie(&cookie).body(body.as_bytes());
    let own = own_origin(&proxy);
    let other = format!("http://{}", proxy.address());
    for (name, ask) in [
        ("nothing", post()),
        ("no Origin", post().header("X-Anteroom-Admin", "1")),
        ("no field", post().header("Origin", &own)),
        ("another value", post().header("Origin", &own).header("X-Anteroom-Admin", "0")),
        ("another port", post().header("Origin", &other).header("X-Anteroom-Admin", "1")),
        ("no page", post().header("Origin", "null").header("X-Anteroom-Admin", "1")),
        (
            "https",
            post().header("Origin", &own.replace("http", "https")).header("X-Anteroom-Admin", "1"),
        ),
        (
            "another site",
            action(&proxy, &cookie, "/purge", body).header("Sec-Fetch-Site", "cross-site"),
        ),
        (
            "another app of the host",
            action(&proxy, &cookie, "/purge", body).header("Sec-Fetch-Site", "same-site"),
        ),
    ] {
        let answer = ask.send();
        assert_eq!(answer.status, 403, "{name}: {}", answer.text());
        assert!(answer.header("access-control-allow-origin").is_none());
    }
    assert!(proxy.get("/").send().is_hit(), "nothing was done");
    let done =
        action(&proxy, &cookie, "/purge", body).header("Sec-Fetch-Site", "same-origin").send();
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(!proxy.get("/").send().is_hit());
    // A program with a bearer token is no browser.
    let bare = proxy.admin("/purge").method("POST").body(body.as_bytes());
    assert_eq!(bearer(bare, "secret-token").send().status, 200);
}

#[test]
fn another_page_can_neither_read_nor_log_in() {
    let proxy = Site::with_files("");
    let cookie = log_in(&proxy, "secret-token");
    for site in ["cross-site", "same-site"] {
        let read = |path| proxy.admin(path).cookie(&cookie).header("Sec-Fetch-Site", site).send();
        for path in ["/me", "/config", "/dashboard/app.js", "/metrics"] {
            assert_eq!(read(path).status, 403, "{path} {site}");
        }
        assert_eq!(read("/").status, 200, "a link leads to the page");
    }
    let form = proxy.admin("/login").method("POST").body(b"token=secret-token");
    for origin in [None, Some("null"), Some("http://evil.test")] {
        let form = match origin {
            Some(origin) => form.clone().header("Origin", origin),
            None => form.clone(),
        };
        let answer = form.send();
        assert_eq!(answer.status, 403, "{origin:?}");
        assert!(answer.set_cookie("anteroom_admin").is_none());
    }
    // By a name of its own it reaches nothing (DNS rebinding).
    let rebound = proxy.admin("/me").host("evil.test").cookie(&cookie).send();
    assert_eq!(rebound.status, 421);
}

#[test]
fn wrong_tokens_are_bounded_and_right_bearer_tokens_never_wait() {
    let proxy = Site::with_files("");
    for _ in 0..10 {
        assert_eq!(log_in_form(&proxy, "wrong").send().status, 401);
    }
    for token in ["wrong", "secret-token"] {
        let refused = log_in_form(&proxy, token).send();
        assert_eq!(refused.status, 429, "{token}");
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=61).contains(&wait), "{wait}");
    }
    for _ in 0..20 {
        assert_eq!(bearer(proxy.admin("/me"), "wrong").send().status, 401);
    }
    assert_eq!(bearer(proxy.admin("/me"), "secret-token").send().status, 200);
}

#[test]
fn a_reload_ends_the_sessions_of_tokens_that_have_changed() {
    let proxy = Site::with_files("");
    let (admin, alice) = (log_in(&proxy, "secret-token"), log_in(&proxy, "alices-token"));
    let status = |cookie: &str| proxy.admin("/me").cookie(cookie).send().status;
    assert!(proxy.reload());
    assert_eq!((status(&admin), status(&alice)), (200, 200), "nothing has changed");

    fs::write(proxy.folder().join("alice"), "alices-next-token\n").unwrap();
    assert!(proxy.reload());
    assert_eq!((status(&admin), status(&alice)), (200, 401), "a changed token");
    assert_eq!(bearer(proxy.admin("/me"), "alices-token").send().status, 401);
    assert_eq!(bearer(proxy.admin("/me"), "alices-next-token").send().status, 200);

    let alice = log_in(&proxy, "alices-next-token");
    proxy.edit(|text| text.replace("role = \"read\"", "role = \"purge\""));
    assert!(proxy.reload());
    assert_eq!((status(&admin), status(&alice)), (200, 401), "another role");

    let alice = log_in(&proxy, "alices-next-token");
    proxy.edit(|text| text.replace("admin.token = { file = \"token\" }\n", ""));
    assert!(proxy.reload());
    assert_eq!((status(&admin), status(&alice)), (401, 200), "a token that is gone");
}

#[test]
fn every_action_is_in_the_audit_log_with_its_operator() {
    let proxy = Site::with_files("admin.audit_log = \"audit.log\"");
    let cookie = log_in(&proxy, "secret-token");
    assert_eq!(
        action(&proxy, &cookie, "/purge", "{\"urls\":[\"/a?t=1\"],\"hard\":true}").send().status,
        200
    );
    log_in_form(&proxy, "wrong-token").send();
    bearer(proxy.admin("/purge").method("POST").body(b"{\"all\":true}"), "alices-token").send();
    bearer(proxy.admin("/user/delete").method("POST").body(b"{\"user\":\"ann\"}"), "secret-token")
        .send();
    proxy.admin("/purge").method("POST").body(b"{\"all\":true}").send();
    bearer(
        proxy
            .admin("/explain")
            .method("POST")
            .body(b"{\"url\":\"http://shop.test/x\",\"cookies\":[\"sid=hush\"]}"),
        "alices-token",
    )
    .send();
    let purge = anteroom()
        .args(["purge", "--tag", "goods", "--config", "proxy.toml"])
        .current_dir(proxy.folder())
        .output()
        .unwrap();
    assert!(purge.status.success(), "{purge:?}");

    let expected = [
        ("admin", "login", "", 303),
        ("admin", "purge", "urls /a?t=1; hard", 200),
        ("(none)", "login", "", 401),
        ("alice", "purge", "", 403),
        ("admin", "user/delete", "user ann", 200),
        ("(none)", "purge", "", 401),
        ("alice", "explain", "url http://shop.test/x", 200),
        ("socket", "purge", "tags goods", 200),
    ];
    let expected = expected.map(|(name, action, what, status)| {
        (name.to_owned(), action.to_owned(), what.to_owned(), status)
    });
    assert_eq!(audited(&proxy, "alices-token"), expected);

    let file = proxy.folder().join("audit.log");
    let read = || fs::read_to_string(&file).unwrap_or_default();
    wait_until("the file has the entries", || read().lines().count() == expected.len());
    let lines: Vec<Value> =
        read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, expected.each_ref().map(|entry| entry.0.as_str()));
    assert_eq!(lines[1]["what"], "urls /a?t=1; hard");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let everything = read() + &proxy.complaints();
    for secret in
        ["secret-token", "alices-token", "wrong-token", "hush", cookie.split_once('=').unwrap().1]
    {
        assert!(!everything.contains(secret), "{secret}: {everything}");
    }

    // A rotation: the file is moved away, and the proxy told.
    fs::rename(&file, proxy.folder().join("audit.log.1")).unwrap();
    assert!(proxy.reload());
    action(&proxy, &cookie, "/purge", "{\"tags\":[\"later\"]}").send();
    wait_until("the next file has the next entry", || read().lines().count() == 1);
    assert!(read().contains("tags later"));
}

#[test]
fn without_a_file_the_log_of_the_process_has_actions_and_no_users() {
    let proxy = Site::with_files("");
    let cookie = log_in(&proxy, "secret-token");
    action(&proxy, &cookie, "/purge", "{\"urls\":[\"/a?t=hush\"]}").send();
    action(&proxy, &cookie, "/user/delete", "{\"user\":\"annabel\"}").send();
    let told = proxy.complaints();
    assert!(told.contains("\"admin\"") && told.contains("urls /a\""), "{told}");
    assert!(told.contains("user (hidden)"), "{told}");
    assert!(!told.contains("annabel") && !told.contains("hush"), "{told}");
    assert_eq!(audited(&proxy, "secret-token").last().unwrap().2, "user annabel");
}

#[test]
fn an_action_goes_on_when_its_audit_log_cannot_be_written() {
    let proxy = Site::with_files("admin.audit_log = \"missing/audit.log\"");
    let cookie = log_in(&proxy, "secret-token");
    assert_eq!(action(&proxy, &cookie, "/purge", "{\"all\":true}").send().status, 200);
    wait_until("it is warned of", || proxy.complaints().contains("[admin] audit_log"));
    assert_eq!(audited(&proxy, "secret-token").len(), 2);
}

#[test]
fn the_cookie_of_the_dashboard_reaches_no_app_and_splits_no_page() {
    let origin = Origin::start(|request| {
        Reply::html("hello").header("X-Cookies", request.header("cookie").unwrap_or("none"))
    });
    let proxy = Proxy::embedded(&origin, "");
    let admin = format!("anteroom_admin={}", "A".repeat(43));
    proxy.get("/").send();
    assert!(proxy.get("/").cookie(&admin).send().is_hit(), "as without a cookie");
    let among = format!("_ga=GA1; {admin}; _gid=2");
    assert!(proxy.get("/").cookie(&among).send().is_hit(), "among harmless ones");
    let mut browser = Http2Client::open(proxy.address());
    let over_http2 = |browser: &mut Http2Client, path| {
        browser.get(http2_client::ask("GET", path, &[("cookie", &admin)])).unwrap()
    };
    assert!(over_http2(&mut browser, "/").is_hit());

    // A request that is forwarded has the other cookies only.
    let forwarded = proxy.post("/write").cookie(&format!("a=1; {admin}; b=2")).send();
    assert_eq!(forwarded.header("x-cookies"), Some("a=1; b=2"));
    let forwarded = proxy.post("/write").cookie(&admin).send();
    assert_eq!(forwarded.header("x-cookies"), Some("none"));
    over_http2(&mut browser, "/other");
    assert!(
        origin.seen().iter().all(|one| !one.header("cookie").unwrap_or("").contains("anteroom"))
    );

    let words = ["top", "cookies", "--json", "--config", "proxy.toml"];
    let report = anteroom().args(words).current_dir(proxy.folder()).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(report.contains("_gid") && !report.contains("anteroom_admin"), "{report}");
}

#[test]
fn operators_read_origins_certificates_and_the_configuration() {
    let proxy = Site::with_files("log.access = \"off\"\norigin.hosts = [\"shop.test\"]");
    let read = |path| json_of(&bearer(proxy.admin(path), "alices-token").send());
    let origins = read("/origins");
    let origin = &origins["origins"][0];
    assert_eq!((origin["name"].as_str(), origin["waiting"].as_u64()), (Some("origin"), Some(0)));
    let server = &origin["servers"][0];
    assert!(server["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{origins}");
    assert_eq!(server["up"], true);
    assert_eq!(read("/certificates"), json!({ "certificates": [] }));
    assert_eq!(read("/rows"), json!({ "rows": [], "more": false }));
    assert_eq!(read("/top?most=5"), json!({ "items": [] }));

    let config = read("/config");
    let text = config["text"].as_str().unwrap();
    assert!(text.contains("name = \"alice\", role = \"read\""), "{text}");
    assert!(!text.contains("alices-token") && !text.contains("secret-token"), "{text}");
    let changed = config["changed"].as_array().unwrap();
    assert!(changed.contains(&json!("admin.tokens")) && changed.contains(&json!("log.access")));
    assert!(!changed.contains(&json!("cache.memory")), "{changed:?}");
    assert_eq!(config["reloads"], json!({ "done": 0, "refused": 0 }));
    assert_eq!(config["warnings"], json!([]));

    proxy.edit(|text| format!("client.trusted_proxies = [\"0.0.0.0/0\"]\n{text}"));
    assert!(proxy.reload());
    proxy.edit(|text| format!("nonsense = 1\n{text}"));
    assert!(!proxy.reload());
    let config = read("/config");
    assert_eq!(config["reloads"], json!({ "done": 1, "refused": 1 }));
    let warning = config["warnings"][0].as_str().unwrap();
    assert!(warning.contains("[client] trusted_proxies: 0.0.0.0/0 covers every"), "{warning}");
    assert!(config["changed"].as_array().unwrap().contains(&json!("client.trusted_proxies")));
}
