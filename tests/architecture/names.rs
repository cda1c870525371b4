//! The names of code in the documentation: each has to be in the source, so that a page does not outlive what it
//! describes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::pages::prose;

/// Where code is.
const FOLDERS: [&str; 5] = ["src", "crates", "tests", "benches", "packaging"];
/// Folders in which nothing is named.
pub(crate) const APART: [&str; 3] = ["target", "node_modules", "recorded"];
/// The ends of files that a page may name without their folder.
const ENDS: [&str; 3] = [".rs", ".py", ".lua"];
/// How a metric begins.
const METRIC: &str = "anteroom_";
/// What follows the name of a metric in its series.
const SERIES: [&str; 4] = ["_total", "_bucket", "_count", "_sum"];

/// What the source has.
pub(crate) struct Names {
    root: PathBuf,
    /// The ends of all paths, without `crates` and `src`: `proxy/plan`, `plan`, `proxy/plan/tests.rs`, ….
    paths: HashSet<String>,
    /// The words of each file.
    files: Vec<HashSet<String>>,
    /// What is defined as a function.
    functions: HashSet<String>,
    /// Which files lie in a module, by its path from any place on: `serve/http1`, `http1`, ….
    modules: HashMap<String, Vec<usize>>,
}

impl Names {
    pub(crate) fn read(root: &Path) -> Self {
        let mut names = Self {
            root: root.to_owned(),
            paths: HashSet::new(),
            files: Vec::new(),
            functions: HashSet::new(),
            modules: HashMap::new(),
        };
        for folder in FOLDERS {
            names.add(Path::new(folder));
        }
        for entry in fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "toml") {
                names.files.push(words(&fs::read_to_string(path).unwrap()));
            }
        }
        names
    }

    fn add(&mut self, folder: &Path) {
        self.add_path(folder);
        for entry in fs::read_dir(self.root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = folder.join(&name);
            if !entry.file_type().unwrap().is_dir() {
                self.add_file(&path);
            } else if !name.starts_with('.') && !APART.contains(&name.as_str()) {
                self.add(&path);
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        self.add_path(path);
        self.add_path(&path.with_extension(""));
        if path.extension().is_some_and(|end| end == "md") {
            // A page would prove the names that it has itself.
            return;
        }
        // Pictures and the like have no words.
        let Ok(text) = fs::read_to_string(self.root.join(path)) else { return };
        self.files.push(words(&text));
        if path.extension().is_none_or(|end| end != "rs") {
            return;
        }
        self.functions.extend(text.split("fn ").skip(1).map(identifier));
        let module = short(&path.with_extension("")).join("/");
        let module = ["/mod", "/lib", "/main"]
            .iter()
            .find_map(|end| module.strip_suffix(end))
            .unwrap_or(&module);
        let parts: Vec<&str> = module.split('/').collect();
        for begin in 0..parts.len() {
            for end in begin + 1..=parts.len() {
                let files = self.modules.entry(parts[begin..end].join("/")).or_default();
                files.push(self.files.len() - 1);
            }
        }
    }

    fn add_path(&mut self, path: &Path) {
        let whole: Vec<String> =
            path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        for parts in [whole, short(path)] {
            self.paths.extend((0..parts.len()).map(|begin| parts[begin..].join("/")));
        }
    }

    /// The names of code on a page that the source lacks, each with the line in which its paragraph begins.
    pub(crate) fn unknown(&self, page: &str) -> Vec<(usize, String)> {
        let spans = spans(page).into_iter();
        spans.filter(|(_, span)| self.knows(span) == Some(false)).collect()
    }

    /// Whether the source has what a span of code names; `None` if it names nothing of the source.
    fn knows(&self, span: &str) -> Option<bool> {
        if is_path(span) {
            let has = |path: &String| {
                self.paths.contains(path.trim_end_matches('/')) || self.root.join(path).exists()
            };
            return Some(variants(span).iter().all(has));
        }
        if ENDS.iter().any(|end| span.ends_with(end)) && !span.contains([' ', '/', '*']) {
            return Some(self.paths.contains(span));
        }
        let item = span.trim_end_matches("()").trim_end_matches('!');
        let parts: Vec<&str> = item.split("::").collect();
        if !parts.iter().all(|part| is_identifier(part)) {
            return None;
        }
        match parts.as_slice() {
            [one] => is_of_code(one).then(|| self.has_word(one)),
            parts => Some(self.has_item(parts)),
        }
    }

    /// Whether there is a module with what follows it; of a type, whether both are there.
    fn has_item(&self, parts: &[&str]) -> bool {
        let parts: Vec<&str> =
            parts.iter().map(|part| part.strip_prefix(METRIC).unwrap_or(part)).collect();
        for end in (1..=parts.len()).rev() {
            if let Some(files) = self.modules.get(&parts[..end].join("/")) {
                let has = |word: &&str| files.iter().any(|file| self.files[*file].contains(*word));
                return parts[end..].iter().all(has);
            }
        }
        parts[0].starts_with(|c: char| c.is_ascii_uppercase())
            && parts.iter().all(|part| self.has_word(part))
    }

    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    fn has_word(&self, word: &str) -> bool {
        self.files.iter().any(|file| file.contains(word))
    }
}

/// The parts of a path without `crates` and without the `src` of a package.
fn short(path: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts[0] == "crates" {
        parts.remove(0);
        if parts.get(1).is_some_and(|part| part == "src") {
            parts.remove(1);
        }
    } else if parts[0] == "src" {
        parts.remove(0);
    }
    parts
}

/// The identifier with which a text begins.
fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

fn words(text: &str) -> HashSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// What stands between backticks in the prose of a page, each with the line in which its paragraph begins.
fn spans(page: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut last = 0;
    for (number, line) in prose(page).filter(|(_, line)| !line.trim().is_empty()) {
        match paragraphs.last_mut().filter(|_| number == last + 1) {
            Some((_, text)) => *text += &format!(" {}", line.trim()),
            None => paragraphs.push((number, line.trim().to_owned())),
        }
        last = number;
    }
    let spans = |(number, text): &(usize, String)| {
        let spans = text.split('`').skip(1).step_by(2).map(|span| (*number, span.to_owned()));
        spans.collect::<Vec<_>>()
    };
    paragraphs.iter().flat_map(spans).collect()
}

/// Whether it is the path of a file or folder of ours.
fn is_path(span: &str) -> bool {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    span.contains('/')
        && span.starts_with(|c: char| c.is_ascii_lowercase() || c == '{')
        && span.chars().all(is_of_path)
        && !span.contains("NAME")
}

/// `a/{b,{c,d}/e}` stands for three paths.
fn variants(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.rsplit_once('{') else { return vec![path.to_owned()] };
    let Some((inner, behind)) = rest.split_once('}') else { return vec![path.to_owned()] };
    inner.split(',').flat_map(|one| variants(&format!("{before}{one}{behind}"))).collect()
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a word is written as a function or as a type: `with_parts`, `TwoParts`.
fn is_of_code(word: &str) -> bool {
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_function = word.contains('_') && word.chars().all(|c| is_lower(c) || c == '_');
    let humps = word.chars().filter(char::is_ascii_uppercase).count();
    let is_type = word.starts_with(|c: char| c.is_ascii_uppercase())
        && humps > 1
        && word
            .chars()
            .zip(word.chars().skip(1))
            .all(|(one, next)| is_lower(one) || is_lower(next))
        && word.ends_with(is_lower);
    is_function || is_type
}

/// The names of metrics on a page that `known`, the page of metrics, lacks.
pub(crate) fn unknown_metrics(page: &str, known: &HashSet<String>) -> Vec<String> {
    let is_known = |name: &str| {
        let bare = SERIES.iter().find_map(|end| name.strip_suffix(end));
        [Some(name), bare]
            .into_iter()
            .flatten()
            .any(|name| known.contains(name) || known.contains(&format!("{name}_total")))
    };
    let named = words(page).into_iter().filter(|word| {
        // Crates and cookies begin like that, too, and have no further part.
        word.strip_prefix(METRIC).is_some_and(|rest| rest.contains('_') && !rest.ends_with('_'))
    });
    named.filter(|name| !is_known(name)).collect()
}

/// The metrics that their page lists.
pub(crate) fn metrics(page: &str) -> HashSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(str::to_owned).collect()
}

#[test]
fn names_of_code_are_told_from_other_words() {
    let names = Names::read(super::root());
    let known =
        ["tests/architecture/names.rs", "architecture/{names,pages}.rs", "names.rs", "Names::read"];
    for name in known.into_iter().chain(["architecture::names::spans", "is_identifier"]) {
        assert_eq!(names.knows(name), Some(true), "{name}");
    }
    assert!(names.has_function("is_identifier") && !names.has_function("no_function_at_all"));
    for name in ["tests/architecture/nothing.rs", "nothing.rs", "architecture/{names,nothing}.rs"] {
        assert_eq!(names.knows(name), Some(false), "{name}");
    }
    for other in ["GET /me", "10.0.0.0/8", "WAIT 1 500", "max", "a b::c", "/readyz"] {
        assert_eq!(names.knows(other), None, "{other}");
    }
    assert!(is_of_code("RowSource") && !is_of_code("IPv4") && !is_of_code("JSON"));
    let nested = HashSet::from_iter(variants("a/{b,{c,d}/e}.rs"));
    assert_eq!(nested, HashSet::from(["a/b.rs", "a/c/e.rs", "a/d/e.rs"].map(str::to_owned)));
    let found = spans("# A\n`a`, `b\nc`\n\n```\n`d`\n```\n");
    assert_eq!(found, [(1, "a".to_owned()), (1, "b c".to_owned())]);
}

#[test]
fn a_metric_is_known_by_its_series() {
    let known = metrics("# Metrics\n\n| Metric |\n|---|\n| `anteroom_log_ins_total` | counter |\n");
    let of = |page: &str| unknown_metrics(page, &known);
    assert!(of("`anteroom_log_ins_total`, `anteroom_log_ins`, anteroom_proxy::x").is_empty());
    assert_eq!(of("anteroom_log_offs_total{a=\"b\"}"), ["anteroom_log_offs_total"]);
}
