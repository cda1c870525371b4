//! Holds the source to the import maps of ARCHITECTURE.md, all crates to having no circles of files,
//! the links and the code names of the documentation to what they name, and types to being named as things.
//!
//! It reads text, so a macro can fool it; `pub(crate)` and `unreachable_pub` do the rest. Imports in
//! `#[cfg(test)]` modules are left out: a test may use what it likes.

#![allow(clippy::unwrap_used, reason = "a test stops where its input is not as arranged")]

mod circles;
mod map;
mod names;
mod pages;
mod tokens;
mod tree;
mod types;

use std::fs;
use std::path::{Path, PathBuf};

use map::Map;
use names::Names;
use pages::Pages;
use tree::Tree;

/// How many modules there may be at the top of `src/`: as many as a newcomer can hold in mind.
const ROOMS_MAX: usize = 18;
/// The most bytes of README, which is read before a trial.
const README_MAX: usize = 8_192;
/// The pages that describe code, or their folder.
const OF_CODE: [&str; 5] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/design", "tests/README.md"];
/// Where Rust is.
const OF_RUST: [&str; 4] = ["src", "crates", "tests", "benches"];
/// Folders whose circles are still to be opened.
const NOT_YET: [&str; 0] = [];

#[test]
fn the_source_keeps_to_the_import_map() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, folder) in [("src", "src"), ("crates/proxy", "crates/proxy/src")] {
        let wrongs = Map::parse(&page, name).wrongs(&tree(&root().join(folder)));
        let wrongs = wrongs.join("\n");
        assert!(wrongs.is_empty(), "against the map of {name} in ARCHITECTURE.md:\n{wrongs}");
    }
}

#[test]
fn links_of_the_documentation_lead_somewhere() {
    let pages = Pages::read(root());
    let broken = pages.broken_links();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let missing = pages.missing_in_summary();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {}", missing.join(", "));
    assert!(pages.size("README.md") <= README_MAX, "{} bytes", pages.size("README.md"));
}

#[test]
fn no_page_asks_with_head() {
    let found = Pages::read(root()).requests_with_head();
    assert!(found.is_empty(), "a HEAD request stores no page:\n{}", found.join("\n"));
    let demo = fs::read_to_string(root().join("crates/demo/src/templates/frame.html")).unwrap();
    assert_eq!(pages::requests_with_head(&demo).count(), 0);
}

#[test]
fn code_that_the_documentation_names_exists() {
    let (pages, names) = (Pages::read(root()), Names::read(root()));
    let metrics = names::metrics(&pages.texts()[Path::new("docs/reference/metrics.md")]);
    let mut wrongs = Vec::new();
    for (page, text) in pages.texts() {
        let at = page.display();
        if OF_CODE.iter().any(|one| page.starts_with(one)) {
            let unknown = names.unknown(text).into_iter();
            wrongs.extend(unknown.map(|(line, name)| format!("{at}:{line}: {name}")));
        }
        let unknown = names::unknown_metrics(text, &metrics).into_iter();
        wrongs.extend(unknown.map(|name| format!("{at}: {name}")));
    }
    assert!(wrongs.is_empty(), "not in the source:\n{}", wrongs.join("\n"));
}

#[test]
fn each_promise_of_security_names_its_test() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let names = Names::read(root());
    let (_, table) = page.split_once("| promise |").expect("the table");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10, "{} promises", rows.len());
    for row in rows {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap();
        let test = tests.split('`').nth(1).unwrap_or_default();
        assert!(names.has_function(test), "there is no test {test:?}: {row}");
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for folder in crates() {
        let source = tree(&folder);
        let lost = source.lost();
        let name = folder.display();
        assert!(
            lost.is_empty(),
            "{name}: paths that this test cannot follow:\n{}",
            lost.join("\n")
        );
        let circles = circles::circles(&source, &NOT_YET);
        assert!(circles.is_empty(), "{name}: {}", circles.join("\n"));
    }
}

#[test]
fn no_type_is_named_by_a_participle() {
    let found = in_rust(types::participles);
    assert!(found.is_empty(), "a type is a thing, and its name a noun:\n{}", found.join("\n"));
}

#[test]
fn no_parameter_is_a_tuple_of_its_own() {
    let found = in_rust(types::tuple_parameters);
    assert!(found.is_empty(), "each of these is several parameters:\n{}", found.join("\n"));
}

#[test]
fn the_source_has_few_modules_at_the_top() {
    let source = source();
    let top =
        source.modules.iter().filter(|one| ["lib.rs", "main.rs"].contains(&one.file.as_str()));
    let rooms: Vec<_> = top.flat_map(|one| one.children()).collect();
    assert!(rooms.len() <= ROOMS_MAX, "{} modules: {}", rooms.len(), rooms.join(", "));
}

#[test]
fn the_proxy_does_not_depend_on_what_its_rules_are_held_against() {
    let own = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, behind) = own.split_once("\n[package]\n").expect("the package follows the workspace");
    assert!(!behind.contains("http-cache-semantics"));
    for folder in crates().iter().skip(1) {
        let manifest = fs::read_to_string(folder.with_file_name("Cargo.toml")).unwrap();
        assert!(!manifest.contains("http-cache-semantics"), "{}", folder.display());
    }
    let of_tests = fs::read_to_string(root().join("tests/library/Cargo.toml")).unwrap();
    assert!(of_tests.contains("\nhttp-cache-semantics"));
}

#[test]
fn all_packages_share_one_lock_file() {
    let mut folders = vec![root().to_owned()];
    let mut locks = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            match name.as_str() {
                "Cargo.lock" => locks.push(path),
                _ if path.is_dir() && name != "target" && !name.starts_with('.') => {
                    folders.push(path)
                }
                _ => {}
            }
        }
    }
    assert_eq!(locks, [root().join("Cargo.lock")]);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The program's source.
fn source() -> Tree {
    tree(&root().join("src"))
}

/// The folders of the sources of all crates, the program's first.
fn crates() -> Vec<PathBuf> {
    let others = fs::read_dir(root().join("crates")).unwrap();
    let others = others.map(|entry| entry.unwrap().path().join("src"));
    [root().join("src")].into_iter().chain(others).collect()
}

/// What `find` finds in all Rust files, each with its file.
fn in_rust(find: impl Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    for folder in OF_RUST {
        for (file, text) in texts(&root().join(folder)) {
            all.extend(find(&text).iter().map(|found| format!("{folder}/{file}: {found}")));
        }
    }
    all
}

fn tree(folder: &Path) -> Tree {
    let files = texts(folder);
    Tree::of(files.iter().map(|(file, text)| (file.as_str(), text.as_str())))
}

/// Every Rust file below `folder`: its path there, and its text.
fn texts(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !names::APART.iter().any(|name| path.ends_with(name)) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.push((file, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort_unstable();
    found
}
