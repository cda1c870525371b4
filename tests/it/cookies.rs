//! Cookies as the operator sees them, counted and with what would help; and what is added to them on their
//! way out.

use std::fs;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::origin::{Origin, Reply};
use crate::support::proxy::{Proxy, anteroom};
use crate::support::wait_until;

/// What `anteroom top cookies` says, with these words.
fn top_cookies(proxy: &Proxy, words: &[&str]) -> String {
    let mut command = anteroom();
    command.args(["top", "cookies"]).args(words).args(["--config", "proxy.toml"]);
    let output = command.current_dir(proxy.folder()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

fn cookie(report: &Value, name: &str) -> Value {
    let cookies = report["cookies"].as_array().unwrap();
    cookies.iter().find(|cookie| cookie["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn an_operator_sees_why_a_stock_app_gets_no_hits() {
    let origin = Origin::always(
        Reply::html("hello").header("Set-Cookie", "PHPSESSID=0a1b2c3d4e5f60718293; Path=/"),
    );
    let proxy = Proxy::embedded(&origin, "");
    proxy.get("/").send();
    for _ in 0..9 {
        proxy.get("/").cookie("PHPSESSID=0a1b2c3d4e5f60718293; _ga=GA1; secretvalue").send();
    }

    let report: Value = serde_json::from_str(&top_cookies(&proxy, &["--json"])).unwrap();
    let session = cookie(&report, "PHPSESSID");
    assert_eq!(
        (&report["requests"], &report["hits"], &session["requests"], &session["class"]),
        (&10.into(), &0.into(), &9.into(), &"unknown".into())
    );
    assert_eq!(session["pages_percent"], 100.0);
    // The first was kept from the cache by the cookie that its page sets, the others by the one they have.
    assert_eq!(session["bypasses"], 10);
    assert_eq!(cookie(&report, "_ga")["class"], "harmless");
    let told = top_cookies(&proxy, &[]);
    assert!(told.contains("PHPSESSID is sent with 90 % of requests"), "{told}");
    assert!(told.contains("[session] cookie, and configure [session.verify]"), "{told}");
    assert!(!told.contains("secretvalue") && !told.contains("0a1b2c"), "{told}");
    assert!(proxy.metric("anteroom_cookie_bypasses_total{cookie=\"PHPSESSID\"}") >= 9.0);
}

#[test]
fn a_bearer_of_the_token_may_query_the_admin_listener() {
    let origin = Origin::always(Reply::html("hello"));
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "secret-token").unwrap();
    let proxy =
        Proxy::embedded(&origin, &format!("admin.token = {{ file = \"{}\" }}", file.display()));
    assert_eq!(proxy.admin("/top/cookies").send().status, 401);
    let told = proxy.admin("/top/cookies").header("Authorization", "Bearer secret-token").send();
    assert_eq!(told.status, 200, "{told:?}");
    assert!(told.text().contains("\"cookies\":[]"), "{}", told.text());
}

#[test]
fn the_log_tells_once_of_a_cookie_that_keeps_pages_out_of_the_cache() {
    let origin = Origin::always(Reply::html("hello"));
    let proxy = Proxy::embedded(&origin, "log.access = \"off\"");
    let mut client = proxy.connect();
    let mut ask = |count: usize| {
        for _ in 0..count {
            proxy.get("/").cookie("JSESSIONID=0a1b2c3d").send_on(&mut client);
        }
    };
    let said = || proxy.complaints().matches("JSESSIONID is sent with 100 %").count();

    ask(999);
    assert_eq!(said(), 0, "it is early");
    ask(2);
    wait_until("the log tells of it", || said() == 1);
    proxy.wait_for_complaint("[session] cookie");
    assert!(proxy.reload());
    ask(200);
    assert_eq!(said(), 1);
}

#[test]
fn cookies_are_hardened_where_the_app_says_nothing() {
    let origin = Origin::start(|request| {
        let status = if request.method == "POST" { "303 See Other" } else { "200 OK" };
        Reply::status(status)
            .header("Set-Cookie", "PHPSESSID=0a1b; Path=/")
            .header("Set-Cookie", "lang=de")
            .header("Set-Cookie", "said=1; SameSite=None; Secure")
            .body("")
    });
    let settings = "client.trusted_proxies = [\"127.0.0.1\"]\n\
                    [[cookies]]\nname = \"lang\"\n\
                    [[cookies]]\nname = \"*\"\nsecure = \"auto\"\nhttp_only = \"always\"\n\
                    same_site = \"Lax\"";
    let proxy = Proxy::embedded(&origin, settings);
    for (scheme, expected) in [
        ("https", "PHPSESSID=0a1b; Path=/; Secure; HttpOnly; SameSite=Lax"),
        ("http", "PHPSESSID=0a1b; Path=/; HttpOnly; SameSite=Lax"),
    ] {
        for method in ["GET", "POST"] {
            let ask = proxy.ask(method, "/").header("X-Forwarded-Proto", scheme);
            let ask = if method == "POST" { ask.body(b"") } else { ask };
            let answer = ask.send();
            let lines: Vec<_> = answer.fields.all("set-cookie").collect();
            let said = "said=1; SameSite=None; Secure; HttpOnly";
            assert_eq!(lines, [expected, "lang=de", said], "{scheme} {method}");
        }
    }
}
