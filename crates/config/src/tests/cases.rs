//! Tables of requests: what is read, and what is said of mistakes.

use super::super::cases::{Case, CaseVisitor, CaseWords, read_cases};

const WORDS: CaseWords<'_> =
    CaseWords { reasons: &["login", "unknown-cookie"], routes: &["pages", "default"] };

fn read(text: &str) -> Result<Vec<Case>, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cases.toml");
    std::fs::write(&path, text).unwrap();
    let cut = format!("{}/", folder.path().display());
    read_cases(&path, &WORDS).map_err(|problems| {
        problems.iter().map(|problem| problem.to_string().replace(&cut, "")).collect()
    })
}

#[test]
fn a_case_is_read_whole() {
    let cases = read(
        "[[case]]\nname = \"a\"\nurl = \"https://shop.example/\"\nmethod = \"POST\"\n\
         cookies = [\"_ga=1\", \"sid=abcdefgh\"]\nheaders = { Accept = \"text/html\" }\n\
         from = \"192.0.2.1\"\nuser = { name = \"ada\", group = \"trade\" }\n\
         expect = { route = \"pages\", share = \"segment\", reason = \"login\" }\n",
    )
    .unwrap();
    let [case] = &cases[..] else { unreachable!("{cases:?}") };
    let request = &case.request;
    assert_eq!((case.name.as_str(), request.method.as_str()), ("a", "POST"));
    assert_eq!(request.cookies, ["_ga=1", "sid=abcdefgh"]);
    assert_eq!(request.headers, [("Accept".to_owned(), "text/html".to_owned())]);
    assert_eq!(request.from, Some("192.0.2.1".parse().unwrap()));
    let group = vec![("group".to_owned(), "trade".to_owned())];
    assert_eq!(request.visitor, Some(CaseVisitor::User("ada".to_owned(), group)));
    let expect: Vec<_> = case.expect.iter().map(|(key, word)| (*key, word.as_str())).collect();
    assert_eq!(expect, [("route", "pages"), ("share", "segment"), ("reason", "login")]);
}

#[test]
fn mistakes_are_told_with_their_lines_all_at_once() {
    let told = read(
        "[[case]]\nname = \"a\"\nurl = \"/\"\nmethd = \"GET\"\nexpect = { rout = \"pages\", share = \"all\" }\n\
         [[case]]\nname = \"b\"\nroute = \"pages\"\nanonymous = false\ncookies = [\"secret\"]\n\
         expect = { route = \"page\", reason = \"unknown-cooky\", verdict = \"maybe\" }\n[case2]\n",
    );
    assert_eq!(
        told.unwrap_err(),
        [
            "cases.toml:4: [[case]] methd: unknown key; did you mean method?",
            "cases.toml:5: [[case]] expect.rout: unknown key; did you mean route?",
            "cases.toml:5: [[case]] expect.share: found \"all\"; expected one of anonymous, everyone, segment, user, none",
            "cases.toml:6: [[case]] url: missing",
            "cases.toml:8: [[case]] route: unknown key; did you mean expect.route?",
            "cases.toml:9: [[case]] anonymous: found false; expected true; leave the key out otherwise",
            "cases.toml:10: [[case]] cookies: expected \"NAME=VALUE\"",
            "cases.toml:11: [[case]] expect.route: found \"page\"; did you mean \"pages\"?",
            "cases.toml:11: [[case]] expect.verdict: found \"maybe\"; expected one of cacheable, forwarded, own, refused",
            "cases.toml:11: [[case]] expect.reason: found \"unknown-cooky\"; did you mean \"unknown-cookie\"?",
            "cases.toml:12: case2: unknown key; did you mean case?",
        ]
    );
}

#[test]
fn a_file_without_cases_is_a_mistake() {
    assert_eq!(
        read("").unwrap_err(),
        ["cases.toml: case: missing; write [[case]] with name, url and expect"]
    );
    assert_eq!(
        read("[[case]]\nname = \"a\"\nurl = \"/\"\nexpect = {}\n").unwrap_err(),
        [
            "cases.toml:4: [[case]] expect: expected at least one of route, share, verdict, reason, visitor"
        ]
    );
}
