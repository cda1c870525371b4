//! Included files: `include = "conf.d/*.toml"` reads them after the file itself, and their settings join its
//! settings.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use glob::MatchOptions;

use super::key_paths::KeyPaths;
use super::node::{Node, TomlTable, Value, parse_file};
use super::problem::{Problem, Warning};
use super::{file, shorthand, text};

/// The largest configuration file, in bytes.
pub(super) const FILE_MAX: u64 = 1 << 20;

/// The most included files.
const FILES_MAX: usize = 1_000;

/// The key.
const INCLUDE: &str = "include";

/// Lists of tables, which grow from file to file.
const LISTS: [&str; 4] = ["listen", "route", "cookies", "rows"];

/// As in a shell: files that begin with a dot, such as those of an editor, are named explicitly.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Reads the files that the settings of `path` include, and joins their settings to `tree`. Returns the keys
/// that two files set, and patterns without a file.
///
/// # Errors
/// Each file that is missing, cannot be read or is not TOML.
pub(super) fn read(
    tree: &mut TomlTable,
    path: &Path,
) -> Result<(Vec<Problem>, Vec<Warning>), Vec<Problem>> {
    let Some(named) = tree.get(INCLUDE).cloned() else { return Ok((Vec::new(), Vec::new())) };
    let mut found = IncludedFiles::default();
    found.is_new(path);
    for node in named.as_list() {
        // The form reports what is no path.
        let path = node.as_text().filter(|text| text::config_pattern(text).is_ok());
        if let Some(pattern) = path {
            found.add(node, pattern);
        }
    }
    let mut join = Join { paths: KeyPaths::of_schema(), problems: Vec::new() };
    for (node, path) in found.files {
        match read_one(node, &path) {
            Ok(further) => join.tables(tree, further, ""),
            Err(problems) => found.unread.extend(problems),
        }
    }
    if found.unread.is_empty() { Ok((join.problems, found.warnings)) } else { Err(found.unread) }
}

/// The settings of an included file.
fn read_one(node: &Node, path: &Path) -> Result<TomlTable, Vec<Problem>> {
    let text = file::read(path, FILE_MAX).map_err(|error| {
        vec![problem(node, format!("the file {} cannot be read: {error}", path.display()))]
    })?;
    let mut tree = parse_file(path, &text)?;
    if let Some(node) = tree.get(INCLUDE) {
        let text =
            "an included file cannot include others; name them in the file that is read first";
        return Err(vec![problem(node, text)]);
    }
    shorthand::write_out(&mut tree);
    Ok(tree)
}

fn problem(node: &Node, text: impl Into<String>) -> Problem {
    Problem::new(node.location.clone(), INCLUDE, text)
}

/// The files to include.
#[derive(Debug, Default)]
struct IncludedFiles<'a> {
    /// In order, each once, with the text that names it.
    files: Vec<(&'a Node, PathBuf)>,
    known: HashSet<PathBuf>,
    unread: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl<'a> IncludedFiles<'a> {
    /// Adds the files that `pattern` names.
    fn add(&mut self, node: &'a Node, pattern: &str) {
        let result = if pattern.contains(['*', '?', '[']) {
            self.add_matching(node, pattern)
        } else {
            self.add_named(node, pattern)
        };
        self.unread.extend(result.err().map(|text| problem(node, text)));
    }

    fn add_named(&mut self, node: &'a Node, name: &str) -> Result<(), String> {
        let path = file::path_at(&node.location, name);
        if path.is_dir() {
            let name = name.trim_end_matches('/');
            return Err(format!("{} is a folder; write \"{name}/*.toml\"", path.display()));
        }
        self.push(node, path)
    }

    fn add_matching(&mut self, node: &'a Node, pattern: &str) -> Result<(), String> {
        let whole = file::pattern_at(&node.location, pattern);
        let paths = glob::glob_with(&whole, MATCHING).map_err(|why| {
            format!("{pattern:?} is no pattern of files ({}); write \"conf.d/*.toml\"", why.msg)
        })?;
        let mut matching = Vec::new();
        for path in paths {
            let path = path.map_err(|why| {
                format!("the folder {} cannot be read: {}", why.path().display(), why.error())
            })?;
            if !path.is_dir() {
                matching.push(path);
            }
            if matching.len() > FILES_MAX {
                return Err(too_many());
            }
        }
        if matching.is_empty() {
            let problem = problem(node, format!("{whole} matches no file"));
            self.warnings.push(Warning { problem, fails_check: false });
        }
        matching.sort_unstable_by(|a, b| {
            a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes())
        });
        matching.into_iter().try_for_each(|path| self.push(node, path))
    }

    fn push(&mut self, node: &'a Node, path: PathBuf) -> Result<(), String> {
        if !self.is_new(&path) {
            return Ok(());
        }
        if self.files.len() == FILES_MAX {
            return Err(too_many());
        }
        self.files.push((node, path));
        Ok(())
    }

    /// Whether the file was not named before. A pattern may match the file that it is written in.
    fn is_new(&mut self, path: &Path) -> bool {
        self.known.insert(path.canonicalize().unwrap_or_else(|_| path.to_owned()))
    }
}

fn too_many() -> String {
    format!("names more files; expected at most {FILES_MAX}")
}

/// Joins the settings of two files.
#[derive(Debug)]
struct Join {
    paths: KeyPaths,
    problems: Vec<Problem>,
}

impl Join {
    fn tables(&mut self, first: &mut TomlTable, further: TomlTable, within: &str) {
        for (name, node) in further {
            let path = if within.is_empty() {
                name.escape_debug().to_string()
            } else {
                format!("{within}.{}", name.escape_debug())
            };
            match first.get_mut(&name) {
                None => drop(first.insert(name, node)),
                Some(known) => self.nodes(known, node, &path),
            }
        }
    }

    fn nodes(&mut self, first: &mut Node, further: Node, path: &str) {
        if LISTS.contains(&path) {
            return append(first, further);
        }
        match (&mut first.value, further.value) {
            // A table that is the value of a key, such as a secret, is not a table of keys.
            (Value::Table(first), Value::Table(table)) if !self.paths.is_key(path) => {
                self.tables(first, table, path);
            }
            _ => {
                let text = format!("is already set at {}; remove one of the two", first.location);
                self.problems.push(Problem::new(further.location, path, text));
            }
        }
    }
}

/// Adds the items of one list to another. A single value is a list of one.
fn append(first: &mut Node, further: Node) {
    let mut items =
        std::mem::replace(first, Node::list(first.location.clone(), Vec::new())).into_list();
    items.extend(further.into_list());
    first.value = Value::List(items);
}
