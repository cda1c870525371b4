//! `anteroom test`: a table of requests, run through the rules of a configuration without any other process.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::proxy::anteroom;

/// The origin, the store and the listener are nowhere: nothing is sent.
const CONFIG: &str = r#"
listen = "192.0.2.9:80"
origin = { url = "http://192.0.2.10:3000", hosts = ["shop.example"] }
store = "redis://192.0.2.11:6379"
session = { cookie = ["sid"] }
[client]
deny = ["203.0.113.0/24"]
[[route]]
name = "goods"
match.path = ["/", "/item/{item}"]
[[route]]
name = "static"
match.path = "/static/**"
share = "everyone"
[[route]]
name = "offers"
match.path = "/offers"
share = "segment"
segment = ["attribute:group"]
[[route]]
name = "account"
match.path = "/account/**"
share = "user"
[[route]]
name = "checkout"
match.path = "/checkout"
share = "none"
"#;

/// What a run came to.
struct Ran {
    code: Option<i32>,
    out: String,
    text: String,
}

fn run(config: &str, cases: &str, options: &[&str]) -> Ran {
    let folder = TempDir::new().unwrap();
    let scratch = folder.path().join("tmp");
    fs::create_dir(&scratch).unwrap();
    fs::write(folder.path().join("proxy.toml"), config).unwrap();
    fs::write(folder.path().join("cases.toml"), cases).unwrap();
    let output = anteroom()
        .args(["test", "cases.toml", "--config", "proxy.toml"])
        .args(options)
        .current_dir(folder.path())
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(count(&scratch) == 0 && count(folder.path()) == 3, "something was left behind");
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    Ran { code: output.status.code(), text: format!("{out}{err}"), out }
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn case(lines: &str) -> String {
    format!("[[case]]\nname = \"a case\"\n{lines}\n")
}

#[test]
fn requests_come_to_what_the_rules_say() {
    let cases: String = [
        "url = \"http://shop.example/\"\nexpect = { route = \"goods\", share = \"anonymous\", \
         verdict = \"cacheable\", visitor = \"anonymous\" }",
        "url = \"/item/mug\"\ncookies = [\"_ga=1\"]\nexpect = { verdict = \"cacheable\" }",
        "url = \"/\"\ncookies = [\"consent=1\"]\n\
         expect = { verdict = \"forwarded\", reason = \"unknown-cookie\" }",
        "url = \"/\"\ncookies = [\"sid=0123456789\"]\nexpect = { reason = \"unknown-token\" }",
        "url = \"/\"\ncookies = [\"sid=0123456789\"]\nuser = \"ada\"\n\
         expect = { visitor = \"known\", verdict = \"forwarded\", reason = \"login\" }",
        "url = \"/\"\ncookies = [\"sid=0123456789\"]\nanonymous = true\n\
         expect = { visitor = \"anonymous\", verdict = \"cacheable\" }",
        "url = \"/account/\"\ncookies = [\"sid=0123456789\"]\nuser = \"ada\"\n\
         expect = { share = \"user\", verdict = \"cacheable\" }",
        "url = \"/offers\"\ncookies = [\"sid=0123456789\"]\n\
         user = { name = \"ada\", group = \"trade\" }\n\
         expect = { share = \"segment\", verdict = \"cacheable\" }",
        "url = \"/static/a.css\"\ncookies = [\"sid=0123456789\"]\nexpect = { verdict = \"cacheable\" }",
        "url = \"/checkout\"\nexpect = { verdict = \"forwarded\", reason = \"route\" }",
        "url = \"/\"\nmethod = \"POST\"\nexpect = { reason = \"method\" }",
        "url = \"/else\"\nexpect = { route = \"default\" }",
        "url = \"/\"\nheaders = { Authorization = \"Basic eDp5\" }\n\
         expect = { reason = \"authorization\" }",
        "url = \"/\"\nfrom = \"203.0.113.7\"\nexpect = { verdict = \"refused\", reason = \"denied\" }",
        "url = \"http://other.example/\"\nexpect = { verdict = \"refused\" }",
        "url = \"/_anteroom/me\"\nexpect = { verdict = \"own\", reason = \"endpoint\" }",
    ]
    .map(case)
    .concat();
    let ran = run(CONFIG, &cases, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "16 cases: 16 passed, 0 failed\n"));
}

#[test]
fn a_table_that_holds_passes() {
    let ran = run(CONFIG, &case("url = \"/\"\nexpect = { verdict = \"cacheable\" }"), &[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "1 cases: 1 passed, 0 failed\n"));
}

#[test]
fn a_table_holds_in_learn_mode_as_it_does_where_routes_serve() {
    let cases = case("url = \"/\"\nexpect = { verdict = \"cacheable\" }");
    for learn in ["cache.mode = \"learn\"\n", "cache.mode = \"learn\"\nlearn.mirror = true\n"] {
        let ran = run(&format!("{learn}{CONFIG}"), &cases, &[]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(0), "1 cases: 1 passed, 0 failed\n"));
    }
}

#[test]
fn a_failed_case_says_what_was_found_and_why() {
    let lines = "url = \"/\"\ncookies = [\"consent=secret-value\"]\n\
                 expect = { share = \"everyone\", verdict = \"cacheable\" }";
    let ran = run(CONFIG, &case(lines), &[]);
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    let told = "cases.toml:1: \"a case\" failed; share: expected everyone, found anonymous; \
                verdict: expected cacheable, found forwarded (unknown-cookie)\n";
    assert!(ran.out.starts_with(told), "{}", ran.out);

    let ran = run(CONFIG, &case(lines), &["--json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["passed"], &report["failed"]), (&0.into(), &1.into()));
    let case = &report["cases"][0];
    assert_eq!(case["location"], "cases.toml:1");
    assert_eq!(case["mismatches"][0]["key"], "share");
    assert_eq!(case["mismatches"][0]["found"], "anonymous");
    assert!(!ran.text.contains("secret-value"), "{}", ran.text);
}

#[test]
fn a_table_that_is_wrong_is_told_by_file_line_and_key() {
    for (lines, told) in [
        (
            "url = \"/\"\nexpect = { route = \"good\" }",
            "cases.toml:4: [[case]] expect.route: found \"good\"; did you mean \"goods\"?",
        ),
        (
            "url = \"ftp://x/\"\nexpect = { route = \"goods\" }",
            "cases.toml:1: [[case]] \"ftp://x/\": write a complete URL",
        ),
        (
            "url = \"/\"\nuser = \"ada\"\nexpect = { visitor = \"known\" }",
            "cases.toml:1: [[case]] user: the request has no session cookie",
        ),
        ("url = \"/\"\nexpect = {", "not TOML"),
    ] {
        let ran = run(CONFIG, &case(lines), &[]);
        assert_eq!(ran.code, Some(64), "{}", ran.text);
        assert!(ran.text.contains(told), "{told} in:\n{}", ran.text);
    }
}

#[test]
fn a_stated_user_counts_whatever_keeps_the_sessions() {
    let lines = |expect: &str| {
        case(&format!(
            "url = \"/\"\ncookies = [\"sid=0123456789\"]\nuser = \"ada\"\nexpect = {{ {expect} }}"
        ))
    };
    let verify = "origin = \"http://192.0.2.10:3000\"\nsession.cookie = [\"sid\"]\n[session.verify]\n\
                  path = \"/whoami\"\nuser = { header = \"X-User\" }\nnobody = { status = [401] }\n";
    let mint =
        "origin = \"http://192.0.2.10:3000\"\nsession = { cookie = [\"sid\"], mint = true }\n";
    for config in [verify, mint] {
        let ran = run(
            config,
            &lines("visitor = \"known\", reason = \"login\"")
                .replace("url = \"/\"", "url = \"http://a.example/\""),
            &[],
        );
        assert_eq!(ran.code, Some(0), "{}", ran.text);
    }
}

#[test]
fn a_request_that_is_redirected_or_needs_a_login_has_a_route() {
    let config = format!(
        "{CONFIG}[[route]]\nname = \"old\"\nmatch.path = \"/old\"\nredirect = \"/\"\n\
         [[route]]\nname = \"members\"\nmatch.path = \"/members/**\"\nrequire = \"login\"\n"
    );
    let cases = [
        "url = \"/old\"\nexpect = { route = \"old\", verdict = \"own\" }",
        "url = \"/members/a\"\n\
         expect = { route = \"members\", verdict = \"refused\", reason = \"login-required\" }",
    ];
    let ran = run(&config, &cases.map(case).concat(), &[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "2 cases: 2 passed, 0 failed\n"));
}
