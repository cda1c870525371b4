//! Holds the source to the import map of ARCHITECTURE.md: who may name whom.
//!
//! It reads text, so a macro or a re-export can fool it; `pub(crate)` and `unreachable_pub` do the
//! rest. Comments and `#[cfg(test)]` modules are left out: a test may use what it likes.

#![allow(clippy::unwrap_used, reason = "a test stops where its input is not as arranged")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the binary.
const BINARY: [&str; 2] = ["main", "cli"];
/// The line before the map, which stands in a fenced block.
const MARKER: &str = "<!-- import map";

#[test]
fn the_source_keeps_to_the_import_map() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let map = Map::parse(&fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap());
    let sources = sources(&root.join("src"));
    let wrongs = wrongs(&map, &sources);
    assert!(wrongs.is_empty(), "against the map in ARCHITECTURE.md:\n{}", wrongs.join("\n"));
}

#[test]
fn the_proxy_does_not_depend_on_what_its_rules_are_held_against() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let (_, behind) = manifest.split_once("\n[dependencies]\n").expect("there are dependencies");
    let (normal, for_tests) = behind.split_once("\n[").expect("a table follows them");
    assert!(for_tests.contains("\nhttp-cache-semantics ="));
    assert!(!normal.contains("http-cache-semantics"));
}

/// Everything that is wrong, each in a line of its own.
fn wrongs(map: &Map, sources: &[Source]) -> Vec<String> {
    let there: BTreeSet<&str> = sources.iter().map(|source| source.module.as_str()).collect();
    let gone = map.allowed.keys().filter(|module| !there.contains(module.as_str()));
    let mut wrongs = map.upward.clone();
    wrongs.extend(gone.map(|module| format!("the map has `{module}`, and src/ does not")));
    for source in sources {
        let (module, path) = (&source.module, source.path.display());
        let Some(allowed) = map.allowed.get(module) else {
            wrongs.push(format!("{path}: the map has no line for `{module}`"));
            continue;
        };
        let imports = source.imports();
        let forbidden = imports.iter().filter(|name| *name != module && !allowed.contains(*name));
        wrongs.extend(forbidden.map(|name| format!("{path}: `{module}` imports `{name}`")));
    }
    wrongs
}

/// What each module may import.
#[derive(Default)]
struct Map {
    allowed: BTreeMap<String, BTreeSet<String>>,
    /// Imports of something that is not stated above: arrows point down, so none can go round.
    upward: Vec<String>,
}

impl Map {
    /// Reads `module -> one, two` lines; `nothing` stands for no imports.
    fn parse(page: &str) -> Self {
        let (_, behind) = page.split_once(MARKER).expect("ARCHITECTURE.md has the marker");
        let fenced = behind.split("```").nth(1).expect("a fenced block follows the marker");
        let mut map = Self::default();
        for line in fenced.lines().skip(1).filter(|line| !line.trim().is_empty()) {
            let (module, names) = line.split_once("->").expect("each line is `module -> names`");
            let names = names.split(',').map(|name| name.trim().to_owned());
            map.add(module.trim(), names.filter(|name| name != "nothing").collect());
        }
        map
    }

    fn add(&mut self, module: &str, names: BTreeSet<String>) {
        let unstated = names.iter().filter(|name| !self.allowed.contains_key(*name));
        self.upward.extend(
            unstated.map(|name| format!("the map has `{module} -> {name}` above `{name}`")),
        );
        let twice = self.allowed.insert(module.to_owned(), names).is_some();
        assert!(!twice, "the map has `{module}` twice");
    }
}

/// One file of `src/`.
struct Source {
    path: PathBuf,
    /// The top-level module that it belongs to.
    module: String,
    /// How many `super::` lead from it to the crate's root.
    depth: usize,
    /// Its text without comment lines and tests.
    code: String,
}

impl Source {
    /// A file of `src/` by its path below it; `lib.rs` is the map itself and belongs to nobody.
    fn new(path: &Path, text: &str) -> Option<Self> {
        let mut names: Vec<_> = path.with_extension("").iter().map(os_to_string).collect();
        names.pop_if(|name| name == "mod");
        let module = names.first()?.clone();
        let code = without_tests(text);
        (module != "lib").then(|| Self { path: path.into(), module, depth: names.len(), code })
    }

    /// The top-level modules that the file names.
    fn imports(&self) -> BTreeSet<String> {
        let to_root = "super::".repeat(self.depth);
        let mut roots = vec!["crate::", to_root.as_str()];
        if BINARY.contains(&self.module.as_str()) {
            // The binary is a crate of its own and sees the library by its name.
            roots.push(concat!(env!("CARGO_PKG_NAME"), "::"));
        }
        roots.iter().flat_map(|root| names_after(&self.code, root)).collect()
    }
}

fn os_to_string(name: &std::ffi::OsStr) -> String {
    name.to_str().unwrap().to_owned()
}

/// The text without comment lines and without `#[cfg(test)] mod … { … }`, which rustfmt ends with
/// a brace in the column in which the module begins.
fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//")).peekable();
    while let Some(line) = lines.next() {
        let opens_tests = line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.contains("mod ") && next.ends_with('{'));
        if opens_tests {
            let end = line.replace("#[cfg(test)]", "}");
            lines.by_ref().find(|line| *line == end);
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// The first name of each path that begins with `root`: one, or those of a `{…}` group.
fn names_after(code: &str, root: &str) -> BTreeSet<String> {
    let starts = code.match_indices(root).filter(|(at, _)| !code[..*at].ends_with(is_path_char));
    starts
        .flat_map(|(at, _)| {
            let rest = &code[at + root.len()..];
            rest.strip_prefix('{').map_or_else(|| vec![first_name(rest)], group_names)
        })
        .filter(|name| !name.is_empty())
        .collect()
}

/// The first name of each member of a group, of which `rest` stands behind the opening brace.
fn group_names(rest: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut names = vec![first_name(rest.trim_start())];
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(first_name(rest[at + 1..].trim_start())),
            _ => {}
        }
    }
    names
}

fn first_name(path: &str) -> String {
    path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn is_path_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

/// Every Rust file below `folder`.
fn sources(folder: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(folder).unwrap();
                found.extend(Source::new(below, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "Text.\n<!-- import map -->\n```text\nlow -> nothing\nhigh -> low\n```\n";

    fn wrongs_of(path: &str, text: &str) -> Vec<String> {
        let others = ["low.rs", "high.rs"].into_iter().filter(|other| *other != path);
        let files = others.map(|other| (other, "")).chain([(path, text)]);
        let sources: Vec<_> =
            files.filter_map(|(path, text)| Source::new(Path::new(path), text)).collect();
        wrongs(&Map::parse(PAGE), &sources)
    }

    #[test]
    fn what_the_map_allows_is_allowed() {
        let itself = "use crate::high::x;\nuse crate::low::{A, b::C};\nuse super::low::D;\n";
        assert_eq!(wrongs_of("high.rs", itself), [""; 0]);
    }

    #[test]
    fn a_wrong_import_is_named_however_it_is_written() {
        for (path, text) in [
            ("low.rs", "use crate::high::Thing;"),
            ("low.rs", "pub(crate) use super::high;"),
            ("low/deep.rs", "use super::super::high;"),
            ("low/mod.rs", "fn f() -> crate::high::Thing { g() }"),
            ("low.rs", "use crate::{\n    low::{a, b},\n    high::{self, c},\n};"),
        ] {
            assert_eq!(wrongs_of(path, text), [format!("{path}: `low` imports `high`")], "{text}");
        }
    }

    #[test]
    fn comments_and_test_modules_may_name_anything() {
        let text = "//! See [`crate::high`].\n#[cfg(test)]\nmod tests {\n    use crate::high;\n}\n";
        assert_eq!(wrongs_of("low.rs", text), [""; 0]);
        let behind = format!("{text}use crate::high;\n");
        assert_eq!(wrongs_of("low.rs", &behind), ["low.rs: `low` imports `high`"]);
    }

    #[test]
    fn the_map_and_the_source_have_the_same_modules() {
        assert_eq!(wrongs_of("new/mod.rs", ""), ["new/mod.rs: the map has no line for `new`"]);
        let missing = wrongs(&Map::parse(PAGE), &[]);
        assert_eq!(missing.len(), 2, "{missing:?}");
    }

    #[test]
    fn an_arrow_that_points_up_is_named() {
        let page = PAGE.replace("low -> nothing", "low -> high");
        assert_eq!(Map::parse(&page).upward, ["the map has `low -> high` above `high`"]);
    }
}
