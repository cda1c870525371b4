//! The operator's table of requests, for `anteroom test`: what each request is, and what it must get.
//!
//! The format is small and apart from that of `proxy.toml`. Only the tree, the problems and the suggestions
//! are shared.

use std::net::IpAddr;
use std::path::Path;

use super::node::{Node, TomlTable, Value, parse_file};
use super::problem::{Problem, SettingLocation};
use super::source::read_file;
use super::suggest::nearest;

/// The most cases in a file.
const CASES_MAX: usize = 10_000;

/// The keys of a case.
const KEYS: [&str; 9] =
    ["name", "url", "method", "cookies", "headers", "from", "user", "anonymous", "expect"];

/// What a case may expect, with the valid words. Routes and reasons are known to the caller.
const EXPECTATIONS: [&str; 5] = ["route", "share", "verdict", "reason", "visitor"];
const SHARES: [&str; 5] = ["anonymous", "everyone", "segment", "user", "none"];
const VERDICTS: [&str; 4] = ["cacheable", "forwarded", "own", "refused"];
const VISITORS: [&str; 3] = ["anonymous", "known", "unknown"];

/// One `[[case]]`.
#[derive(Clone, Debug)]
pub struct Case {
    /// Where it was written.
    pub location: SettingLocation,
    /// `name`. Required.
    pub name: String,
    /// The request.
    pub request: CaseRequest,
    /// `expect`: the keys with their values, in the order of the report. At least one.
    pub expect: Vec<(&'static str, String)>,
}

/// The request of a case. Cookies and fields may be secrets, so `Debug` leaves them out.
#[derive(Clone, Default)]
pub struct CaseRequest {
    /// `url`. Required.
    pub url: String,
    /// `method`, GET.
    pub method: String,
    /// `cookies`: `name=value`.
    pub cookies: Vec<String>,
    /// `headers`: names and values.
    pub headers: Vec<(String, String)>,
    /// `from`: the client's address.
    pub from: Option<IpAddr>,
    /// `user` or `anonymous`: the owner of the session cookie.
    pub visitor: Option<CaseVisitor>,
}

impl std::fmt::Debug for CaseRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaseRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// The owner of the session cookie of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaseVisitor {
    /// A user, with attributes: `user = "ada"`, `user = { name = "ada", group = "trade" }`.
    User(String, Vec<(String, String)>),
    /// A visitor without a login, with a session of the app.
    Anonymous,
}

/// The words that depend on the program and on the configuration.
#[derive(Debug)]
pub struct CaseWords<'a> {
    /// Every reason.
    pub reasons: &'a [&'a str],
    /// The names of all routes.
    pub routes: &'a [&'a str],
}

/// Reads the cases of a file.
///
/// # Errors
/// All problems at once, by line.
pub fn read_cases(path: &Path, words: &CaseWords<'_>) -> Result<Vec<Case>, Vec<Problem>> {
    let text = read_file(path).map_err(|problem| vec![problem])?;
    let tree = parse_file(path, &text)?;
    let whole = SettingLocation::File(path.into());
    let mut reader = CaseReader { words, problems: Vec::new() };
    reader.unknown_keys(&tree, "", &["case"]);
    let nodes = tree.get("case").map_or(&[][..], Node::as_list);
    if nodes.is_empty() {
        reader.add(&whole, "case", "missing; write [[case]] with name, url and expect");
    } else if nodes.len() > CASES_MAX {
        reader.add(&whole, "case", format!("found {}; expected at most {CASES_MAX}", nodes.len()));
    }
    let cases: Vec<Case> = nodes.iter().filter_map(|node| reader.case(node)).collect();
    if reader.problems.is_empty() {
        return Ok(cases);
    }
    reader.problems.sort_by(|a, b| a.location.cmp(&b.location));
    Err(reader.problems)
}

/// Reads cases, and collects the problems.
struct CaseReader<'a> {
    words: &'a CaseWords<'a>,
    problems: Vec<Problem>,
}

impl CaseReader<'_> {
    fn add(&mut self, location: &SettingLocation, key: &str, text: impl Into<String>) {
        self.problems.push(Problem::new(location.clone(), key, text));
    }

    fn expected(&mut self, node: &Node, key: &str, expected: &str) {
        self.add(&node.location, key, format!("found {}; expected {expected}", node.shown()));
    }

    fn unknown_keys(&mut self, table: &TomlTable, path: &str, valid: &[&str]) {
        for (name, node) in table.iter().filter(|(name, _)| !valid.contains(&name.as_str())) {
            let key = format!("{path}{}", name.escape_debug());
            let near = match nearest(name, valid) {
                // A request and what it must get are easily mixed up.
                None if path == "case[]." && EXPECTATIONS.contains(&name.as_str()) => {
                    format!("did you mean expect.{name}?")
                }
                None => format!("valid here: {}", valid.join(", ")),
                Some(near) => format!("did you mean {near}?"),
            };
            self.add(&node.location, &key, format!("unknown key; {near}"));
        }
    }

    fn case(&mut self, node: &Node) -> Option<Case> {
        let Value::Table(table) = &node.value else {
            self.expected(node, "case", "a table: write [[case]]");
            return None;
        };
        self.unknown_keys(table, "case[].", &KEYS);
        for key in ["name", "url", "expect"] {
            if !table.contains_key(key) {
                self.add(&node.location, &format!("case[].{key}"), "missing");
            }
        }
        let request = CaseRequest {
            url: self.text(table, "url").unwrap_or_default(),
            method: self.text(table, "method").unwrap_or_default(),
            cookies: self.cookies(table),
            headers: table.get("headers").map_or_else(Vec::new, |node| {
                self.pairs(node, "case[].headers", "{ \"Accept-Language\" = \"de\" }")
            }),
            from: self.address(table),
            visitor: self.visitor(table),
        };
        let name = self.text(table, "name").unwrap_or_default();
        let expect = table.get("expect").map_or_else(Vec::new, |node| self.expect(node));
        Some(Case { location: node.location.clone(), name, request, expect })
    }

    fn text(&mut self, table: &TomlTable, key: &str) -> Option<String> {
        let node = table.get(key)?;
        let text = node.as_text().filter(|text| !text.is_empty()).map(str::to_owned);
        if text.is_none() {
            self.expected(node, &format!("case[].{key}"), "a text in quotes");
        }
        text
    }

    fn cookies(&mut self, table: &TomlTable) -> Vec<String> {
        let Some(node) = table.get("cookies") else { return Vec::new() };
        let mut cookies = Vec::new();
        for node in node.as_list() {
            match node.as_text().filter(|text| text.contains('=')) {
                Some(text) => cookies.push(text.to_owned()),
                // The value may be a secret.
                None => self.add(&node.location, "case[].cookies", "expected \"NAME=VALUE\""),
            }
        }
        cookies
    }

    fn pairs(&mut self, node: &Node, key: &str, example: &str) -> Vec<(String, String)> {
        let Value::Table(table) = &node.value else {
            self.expected(node, key, example);
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for (name, node) in table {
            match node.as_text() {
                Some(text) => pairs.push((name.clone(), text.to_owned())),
                None => self.add(&node.location, key, format!("expected texts: {example}")),
            }
        }
        pairs
    }

    fn address(&mut self, table: &TomlTable) -> Option<IpAddr> {
        let node = table.get("from")?;
        let address = node.as_text().and_then(|text| text.parse().ok());
        if address.is_none() {
            self.expected(node, "case[].from", "an address such as \"192.0.2.1\"");
        }
        address
    }

    fn visitor(&mut self, table: &TomlTable) -> Option<CaseVisitor> {
        let anonymous = table.get("anonymous").and_then(|node| {
            let is_true = matches!(node.value, Value::Boolean(true));
            if !is_true {
                self.expected(node, "case[].anonymous", "true; leave the key out otherwise");
            }
            is_true.then_some(CaseVisitor::Anonymous)
        });
        let Some(node) = table.get("user") else { return anonymous };
        if anonymous.is_some() {
            self.add(&node.location, "case[].user", "contradicts anonymous; leave one out");
        }
        if let Some(name) = node.as_text() {
            return Some(CaseVisitor::User(name.to_owned(), Vec::new()));
        }
        let mut pairs = self.pairs(node, "case[].user", "{ name = \"ada\", group = \"trade\" }");
        let Some(at) = pairs.iter().position(|(key, _)| key == "name") else {
            self.add(&node.location, "case[].user", "needs name: { name = \"ada\", … }");
            return None;
        };
        let (_, name) = pairs.remove(at);
        Some(CaseVisitor::User(name, pairs))
    }

    fn expect(&mut self, node: &Node) -> Vec<(&'static str, String)> {
        let Value::Table(table) = &node.value else {
            self.expected(node, "case[].expect", "{ route = \"…\", verdict = \"cacheable\" }");
            return Vec::new();
        };
        self.unknown_keys(table, "case[].expect.", &EXPECTATIONS);
        if table.is_empty() {
            let text = format!("expected at least one of {}", EXPECTATIONS.join(", "));
            self.add(&node.location, "case[].expect", text);
        }
        let mut expect = Vec::new();
        for key in EXPECTATIONS {
            let Some(node) = table.get(key) else { continue };
            let words = match key {
                "route" => self.words.routes,
                "share" => &SHARES,
                "verdict" => &VERDICTS,
                "visitor" => &VISITORS,
                _ => self.words.reasons,
            };
            match node.as_text() {
                Some(word) if words.contains(&word) => expect.push((key, word.to_owned())),
                word => {
                    let near = word.and_then(|word| nearest(word, words));
                    let wanted = match near {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None if words.len() > 10 => "expected a word of the reference".to_owned(),
                        None => format!("expected one of {}", words.join(", ")),
                    };
                    let text = format!("found {}; {wanted}", node.shown());
                    self.add(&node.location, &format!("case[].expect.{key}"), text);
                }
            }
        }
        expect
    }
}
