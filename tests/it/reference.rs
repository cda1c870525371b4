//! The generated pages of the reference: each is what the binary says of itself.
//!
//! `ANTEROOM_DOCS=record cargo nextest run reference::` rewrites them after a change of a key, a command or a
//! metric.

mod commands;
mod config_mistakes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::support::origin::Reply;
use crate::support::proxy::{Proxy, Storage, anteroom, shop};
use crate::support::{fixed_text, python};

/// From how many bytes on the beginning of a text says what a key is for.
const ENOUGH: usize = 40;
/// How many values of a default are shown.
const LISTED: usize = 3;

const HEAD_OF_KEYS: &str = "# Configuration keys

Every key of `proxy.toml` with its default, its form in parentheses, and the beginning of its text. A key without `=` \
                            has no default. The whole text stands above the key in [proxy.toml](../../proxy.toml), \
                            and so does a default that ends with `…`; editors show it by \
                            [proxy.schema.json](proxy.schema.json). `anteroom check` finds mistakes, \
                            `anteroom config print` shows the values in force.

1s–1d is a span of durations, 1KiB–1TiB of sizes, 1–512 of numbers. Words for forms:

| word | form |
|---|---|
| networks | a list of addresses and networks such as `\"10.0.0.0/8\"`; `\"file:\"` and a path: the lines of that file |
| secret | `{ file = \"…\" }` or `{ env = \"…\" }` |
| name | 1 to 32 letters, digits, `-` or `_` |
| rate | `\"10/m\"`, or `\"10/m burst 20\"` |
| server | `\"http://127.0.0.1:3000\"`, without path or user, or `\"unix:/run/app.sock\"` |
| host | `\"example.com\"` (in `hosts` with any port), `\"example.com:8080\"`; in lists also `\"*.example.com\"` |
| store | a URL as in `[store] url`, or a secret |
";

/// Forms in the words of the schema, and those of the page.
const SHORT_FORMS: [(&str, &str); 17] = [
    ("a list: an address or a network such as \"10.0.0.0/8\"", "networks"),
    (", or \"file:\" and the path of a list", ""),
    (
        "embedded:<dir>, redis://<host>, rediss://<host>, redis+unix:<path>, redis+cluster://<host>,<host> or \
         redis+sentinel://<host>,<host>/<primary>, or `{ file = \"…\" }` or `{ env = \"…\" }`",
        "a store",
    ),
    ("`{ file = \"…\" }` or `{ env = \"…\" }`", "a secret"),
    ("a name of 1 to 32 letters, digits, \"-\" or \"_\"", "a name"),
    ("a rate such as \"100/s\", \"10/m\" or \"10/m burst 20\"", "a rate"),
    (
        "a URL such as \"http://127.0.0.1:3000\", without path or user, or \"unix:\" and a path that begins with /",
        "a server",
    ),
    (
        "a host such as \"example.com\" (with any port), \"example.com:8080\" or \"*.example.com\"",
        "a host",
    ),
    ("a host such as \"example.com\" or \"example.com:8080\"", "a host"),
    (", or a duration such as \"300s\"", ""),
    ("a size from 0B", "a size"),
    ("a table such as ", ""),
    ("`true` or `false`", ""),
    ("the path of a PEM file", "a PEM file"),
    ("the path of a file", "a path"),
    ("the name of a ", "a "),
    ("a list: ", "list: "),
];

fn stdout(words: &[&str]) -> String {
    let mut command = anteroom();
    let output = command.args(words).env_clear().stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_schema_is_the_one_in_the_reference() {
    fixed_text("docs/reference/proxy.schema.json", &stdout(&["config", "schema"]));
}

#[test]
fn the_page_of_keys_has_what_the_schema_says() {
    let schema: Json = serde_json::from_str(&stdout(&["config", "schema"])).unwrap();
    fixed_text("docs/reference/config.md", &KeyPage::of(&schema));
}

#[test]
fn the_page_of_metrics_has_what_the_proxy_exports() {
    let origin = shop(|_| Reply::html("hello"));
    let mut metrics = BTreeMap::new();
    for storage in [Storage::Embedded, Storage::redis()] {
        let proxy = Proxy::start(&origin, &storage, "");
        proxy.get("/").send();
        add_metrics(&mut metrics, &proxy.admin("/metrics").send().text());
    }
    let mut page = String::from(
        "# Metrics\n\nWhat `/metrics` on the address of `[admin]` exports, in the text format of Prometheus. \
         Every number counts from the start of the process, and for this process alone. Names of counters end \
         with `_total`; histograms are marked, and all others are gauges.\n\n\
         | Metric, with its labels | What it is |\n|---|---|\n",
    );
    for (name, Metric { kind, help, labels }) in &metrics {
        let labels: Vec<&str> =
            labels.iter().map(String::as_str).filter(|label| *label != "le").collect();
        let labels = match labels.join(",") {
            none if none.is_empty() => none,
            names => format!(" `{{{names}}}`"),
        };
        let (end, mark) = match kind.as_str() {
            "counter" => ("_total", ""),
            "histogram" => ("", " (histogram)"),
            _ => ("", ""),
        };
        let _ = writeln!(page, "| `{name}{end}`{labels} | {help}{mark} |");
    }
    fixed_text("docs/reference/metrics.md", &page);
}

#[test]
fn an_editor_with_the_schema_accepts_what_check_accepts_and_marks_mistakes() {
    let folder = TempDir::new().unwrap();
    let schema = folder.path().join("schema.json");
    fs::write(&schema, stdout(&["config", "schema"])).unwrap();
    let taplo = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        let mut command = Command::new(Path::new(&python()).with_file_name("taplo"));
        let url = format!("file://{}", schema.display());
        let output = command.args(["check", "--schema", &url]).arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };

    let shipped = include_str!("../../proxy.toml");
    let key = |line: &'static str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with([' ', ':']) => key,
        _ => line,
    };
    let whole: String = shipped.lines().map(|line| format!("{}\n", key(line))).collect();
    let short = "listen = [8080, \":8081\"]\norigin = \"http://127.0.0.1:3000\"\nadmin = \"off\"\n\
                 [[route]]\nmatch = \"/a\"\n[[route]]\nmatch = [\"/b\", \"/c\"]\n";
    for (name, text) in [("shipped.toml", shipped), ("whole.toml", &whole), ("short.toml", short)] {
        let (is_accepted, said) = taplo(name, text);
        assert!(is_accepted, "{name}: {said}");
    }
    for mistake in [
        "[cache]\ndefault_ttl = 300\n",
        "[cache]\nmemory = \"256MB\"\n",
        "[cache]\ndefault_tll = \"300s\"\n",
        "[[route]]\nmatch = \"/a\"\nshare = \"everybody\"\n",
        "[limits]\nvariants = 1000\n",
        "[admin]\ntoken = \"secret\"\n",
    ] {
        let (is_accepted, said) = taplo("mistake.toml", mistake);
        assert!(!is_accepted, "{mistake}: {said}");
    }
}

#[derive(Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Adds the metrics of one answer, without the series that a histogram is made of.
fn add_metrics(metrics: &mut BTreeMap<String, Metric>, text: &str) {
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            let (name, help) = said.split_once(' ').unwrap();
            metrics.entry(name.to_owned()).or_default().help = help.replace('|', "\\|");
        } else if let Some(said) = line.strip_prefix("# TYPE ") {
            let (name, kind) = said.split_once(' ').unwrap();
            kind.clone_into(&mut metrics.entry(name.to_owned()).or_default().kind);
        } else if let Some((series, labels)) = line.split_once('{') {
            let whole = ["_bucket", "_sum", "_count", "_total"].iter().find_map(|end| {
                series.strip_suffix(end).filter(|name| metrics.contains_key(*name))
            });
            let metric = metrics.get_mut(whole.unwrap_or(series)).expect(series);
            let names = labels.split("=\"").filter_map(|part| part.rsplit(['{', ',']).next());
            let is_name = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            metric
                .labels
                .extend(names.filter(is_name).filter(|n| !n.is_empty()).map(str::to_owned));
        }
    }
}

/// Writes the page of keys from the schema.
struct KeyPage<'a> {
    definitions: &'a Json,
    text: String,
}

impl<'a> KeyPage<'a> {
    fn of(schema: &'a Json) -> String {
        let mut page = Self { definitions: &schema["definitions"], text: String::new() };
        page.text.push_str(HEAD_OF_KEYS);
        let (tables, keys): (Vec<_>, Vec<_>) =
            properties(schema).into_iter().partition(|(_, shape)| page.table(shape).is_some());
        page.heading("Top level", "");
        page.keys("", &keys);
        for (name, shape) in tables {
            page.section(&name, shape);
        }
        page.text
    }

    /// The table that a shape is or refers to, and how its header is written.
    fn table(&self, shape: &'a Json) -> Option<(&'a Json, [&'static str; 2])> {
        // A table within a value has a title.
        if shape["properties"].is_object() && shape["title"].is_null() {
            return Some((shape, ["[", "]"]));
        }
        let alternatives = shape["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = &shape["additionalProperties"];
        if named["$ref"].is_string() {
            return Some((self.defined(named), ["[", ".NAME]"]));
        }
        for one in alternatives {
            if one["$ref"].is_string() {
                let defined = self.defined(one);
                let forms = defined["anyOf"].as_array().map_or(defined, |forms| &forms[0]);
                return Some((forms, ["[[", "]]"]));
            }
            // A short form stands beside the table.
            if one["properties"].is_object() && alternatives.len() == 2 && shape["title"].is_null()
            {
                return Some((one, ["[", "]"]));
            }
        }
        None
    }

    fn defined(&self, reference: &Json) -> &'a Json {
        let name = reference["$ref"].as_str().unwrap().trim_start_matches("#/definitions/");
        &self.definitions[name]
    }

    fn section(&mut self, name: &str, shape: &'a Json) {
        let (table, [open, close]) = self.table(shape).unwrap();
        self.heading(&format!("`{open}{name}{close}`"), text(shape));
        if name == "origins" {
            return;
        }
        let mut keys = Vec::new();
        let mut inner = Vec::new();
        for (key, shape) in properties(table) {
            match self.table(shape) {
                Some((table, _))
                    if open == "[[" || key != "verify" && key != "login" && key != "logout" =>
                {
                    let within = properties(table).into_iter();
                    keys.extend(within.map(|(below, shape)| (format!("{key}.{below}"), shape)));
                }
                Some(_) => inner.push((format!("{name}.{key}"), shape)),
                None => keys.push((key, shape)),
            }
        }
        self.keys(name, &keys);
        for (name, shape) in inner {
            self.section(&name, shape);
        }
    }

    fn heading(&mut self, title: &str, text: &str) {
        let _ = write!(self.text, "\n## {title}\n");
        if !text.is_empty() {
            let _ = write!(self.text, "\n{}\n", escaped(&beginning(text)));
        }
    }

    /// The keys of a table; those with one description stand together.
    fn keys(&mut self, table: &str, keys: &[(String, &Json)]) {
        let mut groups: Vec<Vec<&(String, &Json)>> = Vec::new();
        for key in keys {
            let described = text(key.1);
            let same = |group: &&mut Vec<&(String, &Json)>| text(group[0].1) == described;
            match groups.iter_mut().find(same).filter(|_| !described.is_empty()) {
                Some(group) => group.push(key),
                None => groups.push(vec![key]),
            }
        }
        self.text.push('\n');
        for group in groups {
            let described = beginning(text(group[0].1));
            let forms: Vec<String> =
                group.iter().map(|(_, shape)| escaped(&form(shape, &described))).collect();
            let are_alike = forms.iter().all(|form| *form == forms[0]);
            let key = |(at, (name, shape)): (usize, &&(String, &Json))| {
                // One form stands behind the last key.
                let is_shown = !forms[at].is_empty() && (!are_alike || at + 1 == forms.len());
                let form = if is_shown { format!(" ({})", forms[at]) } else { String::new() };
                format!("`{}`{form}", with_default(table, name, shape))
            };
            let keys: Vec<String> = group.iter().enumerate().map(key).collect();
            let colon = if described.is_empty() { "" } else { ": " };
            let _ = writeln!(self.text, "- {}{colon}{}", keys.join(", "), escaped(&described));
        }
    }
}

/// The first sentences of a text, until they say [`ENOUGH`].
fn beginning(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take_while(|line| !line.starts_with("  ")).collect();
    let whole = lines.join(" ");
    let end = whole.match_indices(". ").map(|(at, _)| at + 1).find(|end| *end >= ENOUGH);
    whole[..end.unwrap_or(whole.len())].to_owned()
}

fn properties(table: &Json) -> Vec<(String, &Json)> {
    let keys = table["properties"].as_object().into_iter().flatten();
    keys.map(|(name, shape)| (name.clone(), shape)).collect()
}

fn text(shape: &Json) -> &str {
    shape["description"].as_str().unwrap_or_default()
}

/// A key with its default, if it has one.
fn with_default(table: &str, name: &str, shape: &Json) -> String {
    match &shape["default"] {
        // Its text has the default.
        _ if table.is_empty() && name == "threads" => name.to_owned(),
        Json::Null => name.to_owned(),
        Json::Array(values) if values.len() > LISTED => {
            let first: Vec<String> = values.iter().take(LISTED).map(Json::to_string).collect();
            format!("{name} = [{},…]", first.join(","))
        }
        value => format!("{name} = {value}"),
    }
}

/// The form of a value in few words; none where the default or the text has it.
fn form(shape: &Json, described: &str) -> String {
    let title = shape["title"].as_str().unwrap_or_default().to_owned();
    let form = SHORT_FORMS.into_iter().fold(title, |form, (long, short)| form.replace(long, short));
    let span = Regex::new("a (?:duration|number|size) from ([^ ,]+) to ([^ ,]+)").unwrap();
    let form = span.replace_all(&form, "${1}–${2}").into_owned();
    let example = r#" such as (?:"[^"]*"|`[^`]*`)(?:, "[^"]*")*(?: or "[^"]*")?"#;
    let form = Regex::new(example).unwrap().replace_all(&form, "").into_owned();
    let form = form.strip_prefix(", or ").unwrap_or(&form);
    let parts: Vec<&str> = form.split('`').collect();
    let between = parts.iter().step_by(2).all(|part| ["", ", ", " or ", ", or "].contains(part));
    let are_said = parts.iter().skip(1).step_by(2).all(|word| described.contains(*word));
    if parts.len() > 1 && between && are_said { String::new() } else { form.to_owned() }
}

/// Text in which Markdown sees no marks.
fn escaped(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        is_code ^= c == '`';
        match c {
            '<' if !is_code => escaped.push_str("&lt;"),
            '*' | '[' if !is_code => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}
