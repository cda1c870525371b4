//! The import map of ARCHITECTURE.md: what it says, and what the source does against it.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;

/// What each module may import. A key with slashes is a module inside another, and its line says
/// which of its neighbours it may import.
#[derive(Default)]
pub(crate) struct Map {
    allowed: BTreeMap<String, BTreeSet<String>>,
    /// Imports of something that is not stated above: arrows point up the list, so none can go round.
    upward: Vec<String>,
}

impl Map {
    /// Reads `module -> one, two` lines; `nothing` stands for no imports. The names behind a module inside
    /// a folder are its neighbours; `all` stands for those that are stated above it.
    /// `name`: that of the tree whose map it is, as the line before the map has it.
    pub(crate) fn parse(page: &str, name: &str) -> Self {
        let marker = format!("<!-- import map of {name}:");
        let (_, behind) = page.split_once(&marker).expect("ARCHITECTURE.md has the marker");
        let fenced = behind.split("```").nth(1).expect("a fenced block follows the marker");
        let mut map = Self::default();
        for line in fenced.lines().skip(1).filter(|line| !line.trim().is_empty()) {
            let (module, names) = line.split_once("->").expect("each line is `module -> names`");
            let module = module.trim();
            let names = names.split(',').map(str::trim).filter(|name| *name != "nothing");
            let names = names.flat_map(|name| map.meant(module, name)).collect();
            map.add(module, names);
        }
        map
    }

    /// The modules that a name behind `module` stands for.
    fn meant(&self, module: &str, name: &str) -> Vec<String> {
        let folder = folder(module);
        match name {
            "all" => {
                let stated = self.allowed.keys().filter(|key| self::folder(key) == folder);
                stated.cloned().collect()
            }
            _ if folder.is_empty() => vec![name.to_owned()],
            _ => vec![format!("{folder}/{name}")],
        }
    }

    fn add(&mut self, module: &str, names: BTreeSet<String>) {
        let unstated = names.iter().filter(|name| !self.allowed.contains_key(*name));
        self.upward.extend(
            unstated.map(|name| format!("the map has `{module} -> {name}` above `{name}`")),
        );
        let twice = self.allowed.insert(module.to_owned(), names).is_some();
        assert!(!twice, "the map has `{module}` twice");
    }

    /// Everything that is wrong, each in a line of its own.
    pub(crate) fn wrongs(&self, tree: &Tree) -> Vec<String> {
        let mut wrongs = self.upward.clone();
        wrongs.extend(self.gone(tree));
        wrongs.extend(self.unstated(tree));
        wrongs.extend(self.between_rooms(tree));
        wrongs.extend(self.inside_rooms(tree));
        wrongs
    }

    fn gone(&self, tree: &Tree) -> Vec<String> {
        let there: BTreeSet<String> =
            tree.modules.iter().flat_map(|one| places(&one.file)).collect();
        let gone = self.allowed.keys().filter(|module| !there.contains(*module));
        gone.map(|module| format!("the map has `{module}`, and the source does not")).collect()
    }

    /// The modules without a line: each at the top has one, and each in a folder of which others have.
    fn unstated(&self, tree: &Tree) -> BTreeSet<String> {
        let stated: BTreeSet<&str> = self.allowed.keys().map(|module| folder(module)).collect();
        let places = tree.modules.iter().flat_map(|one| places(&one.file));
        let missing = places
            .filter(|place| stated.contains(folder(place)) && !self.allowed.contains_key(place));
        missing.map(|place| format!("the map has no line for `{place}`")).collect()
    }

    /// What modules at the top name of each other.
    fn between_rooms(&self, tree: &Tree) -> Vec<String> {
        // What a `lib.rs` exports itself is no module.
        let rooms: BTreeSet<&str> = tree.modules.iter().filter_map(|one| one.room()).collect();
        let mut wrongs = Vec::new();
        for module in &tree.modules {
            let Some(room) = module.room() else { continue };
            let Some(allowed) = self.allowed.get(room) else { continue };
            let named = module.rooms();
            let is_wrong = |name: &&&str| {
                **name != room && rooms.contains(**name) && !allowed.contains(**name)
            };
            let wrong = named.iter().filter(is_wrong);
            wrongs.extend(wrong.map(|name| format!("{}: `{room}` imports `{name}`", module.file)));
        }
        wrongs
    }

    /// What neighbours in a folder take from each other.
    fn inside_rooms(&self, tree: &Tree) -> Vec<String> {
        let mut wrongs = Vec::new();
        for ((from, to), names) in tree.arrows() {
            let (from, to) = (&tree.modules[from].file, &tree.modules[to].file);
            let apart = places(from).into_iter().zip(places(to)).find(|(from, to)| from != to);
            let Some((importer, imported)) = apart else { continue };
            if self.allowed.get(&importer).is_some_and(|allowed| !allowed.contains(&imported)) {
                let names: Vec<_> = names.into_iter().collect();
                let names = names.join(", ");
                wrongs.push(format!("{from}: `{importer}` imports `{imported}` ({names})"));
            }
        }
        wrongs
    }
}

/// The folder that a module stands in.
fn folder(place: &str) -> &str {
    place.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The modules that a file belongs to, from the top: `a`, `a/b`, `a/b/c`. A `mod.rs` is the last of
/// them by that name; `lib.rs` belongs to none.
fn places(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs");
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| path[..end].to_owned()).filter(|place| place != "lib").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str =
        "Text.\n<!-- import map of src: -->\n```text\nlow -> nothing\nhigh -> low\n```\n";

    fn wrongs_of(path: &str, text: &str) -> Vec<String> {
        let others = ["lib.rs", "low.rs", "high.rs"].into_iter().filter(|other| *other != path);
        let files = others.map(|other| (other, "")).chain([(path, text)]);
        Map::parse(PAGE, "src").wrongs(&Tree::of(files))
    }

    #[test]
    fn uses_that_the_map_allows_are_accepted() {
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
        assert_eq!(wrongs_of("new/mod.rs", ""), ["the map has no line for `new`"]);
        let missing = Map::parse(PAGE, "src").wrongs(&Tree::of([]));
        assert_eq!(missing.len(), 2, "{missing:?}");
    }

    #[test]
    fn an_arrow_that_points_up_is_named() {
        let page = PAGE.replace("low -> nothing", "low -> high");
        assert_eq!(Map::parse(&page, "src").upward, ["the map has `low -> high` above `high`"]);
    }

    const INNER: &str = "<!-- import map of src: -->\n```text\na -> nothing\na/rules -> nothing\na/fill -> rules\n```\n";

    #[test]
    fn a_line_inside_a_folder_says_what_neighbours_may_take() {
        let rules = "use super::fill::Fill; pub struct Rule;";
        let fill = "use crate::a::rules::Rule; pub struct Fill;";
        let files =
            [("lib.rs", ""), ("a/rules/mod.rs", rules), ("a/fill.rs", fill), ("a/mod.rs", "")];
        let wrongs = Map::parse(INNER, "src").wrongs(&Tree::of(files));
        assert_eq!(
            wrongs,
            [
                "the map has no line for `a/mod`",
                "a/rules/mod.rs: `a/rules` imports `a/fill` (Fill)"
            ]
        );
    }
}
