//! The modules of `src/`, and which file takes which names from which.
//!
//! It reads text. A path is followed through modules, imports and re-exports to the file that
//! defines what it names. Methods are not seen: an arrow is an import, or a path that is written out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tokens::{self, Token};

/// The modules of the binary.
const BINARY: [&str; 2] = ["main", "cli"];
/// How often a path may be handed on before it is given up: `use http;` names itself.
const STEPS_MAX: usize = 24;
/// What a name stands behind where it is defined.
const DEFINES: [&str; 9] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules"];

/// Every module.
pub(crate) struct Tree {
    pub(crate) modules: Vec<Module>,
    library: Option<usize>,
    binary: Option<usize>,
}

/// A module: a file of `src/`, or a part of one.
pub(crate) struct Module {
    /// Its file's path below `src/`.
    pub(crate) file: String,
    /// The names that lead to it from the root of its crate.
    pub(crate) names: Vec<String>,
    children: BTreeMap<String, usize>,
    text: Text,
}

/// What a file says of itself and of others.
#[derive(Default)]
struct Text {
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// Paths that stand in the code, outside of imports.
    paths: Vec<Vec<String>>,
    /// Every name that stands outside of imports.
    words: BTreeSet<String>,
    /// Modules in files of their own that only tests see.
    of_tests: Vec<String>,
    /// Modules that are written out here.
    inner: Vec<(String, Self)>,
}

/// One name of a `use`.
struct Use {
    path: Vec<String>,
    /// What it is called here; none where all is taken (`*`).
    alias: Option<String>,
    /// Whether it is `pub`: then it may stand for others alone.
    is_handed_on: bool,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathTarget {
    Module(usize),
    Item(usize, String),
    /// Something of another crate, by an import of ours.
    Outside,
}

/// What files take from each other: from which, of which, and the names.
pub(crate) type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

impl Tree {
    /// Reads the files of `src/`: paths below it, and texts.
    pub(crate) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let read = files.into_iter().flat_map(|(file, text)| Module::all(file, text));
        let read: Vec<Module> = read.collect();
        let of_tests: BTreeSet<Vec<String>> = read.iter().flat_map(Module::test_modules).collect();
        let is_for_tests = |module: &Module| {
            (1..=module.names.len()).any(|end| of_tests.contains(&module.names[..end]))
        };
        let modules: Vec<Module> = read.into_iter().filter(|one| !is_for_tests(one)).collect();
        let mut tree = Self { modules, library: None, binary: None };
        tree.tie();
        tree
    }

    /// Tells each module its children.
    fn tie(&mut self) {
        self.library = self.position(&[]);
        self.binary = self.position(&["main".to_owned()]);
        let with_parent: Vec<_> = (0..self.modules.len())
            .filter_map(|at| Some((self.parent(at)?, self.modules[at].names.last()?.clone(), at)))
            .collect();
        for (parent, name, child) in with_parent {
            self.modules[parent].children.insert(name, child);
        }
    }

    fn position(&self, names: &[String]) -> Option<usize> {
        self.modules.iter().position(|module| module.names == names)
    }

    fn parent(&self, at: usize) -> Option<usize> {
        let module = &self.modules[at];
        match module.names.as_slice() {
            [] => None,
            [one] if one == "main" => None,
            [_] if module.is_of_binary() => self.binary,
            [above @ .., _] => self.position(above),
        }
    }

    fn root(&self, at: usize) -> Option<usize> {
        if self.modules[at].is_of_binary() { self.binary } else { self.library }
    }

    /// Which names each file takes from which other. A name that a file merely hands on counts for the files
    /// that take it.
    pub(crate) fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        let homes: Vec<usize> = self.modules.iter().map(|module| self.home(module)).collect();
        for (from, module) in self.modules.iter().enumerate() {
            let Text { uses, paths, words, .. } = &module.text;
            let used = uses.iter().filter(|one| {
                !one.is_handed_on || one.alias.as_ref().is_some_and(|alias| words.contains(alias))
            });
            for path in paths.iter().chain(used.map(|one| &one.path)) {
                if let Some(PathTarget::Item(to, name)) = self.follow(from, path, STEPS_MAX)
                    && homes[to] != homes[from]
                {
                    arrows.entry((homes[from], homes[to])).or_default().insert(name);
                }
            }
        }
        arrows
    }

    /// The module that is the whole of the same file.
    fn home(&self, of: &Module) -> usize {
        self.modules.iter().position(|module| module.file == of.file).unwrap()
    }

    /// The paths into this crate that could not be followed: what holds the reader itself to account.
    pub(crate) fn lost(&self) -> Vec<String> {
        let mut lost = Vec::new();
        for (from, module) in self.modules.iter().enumerate() {
            for path in module.all_paths() {
                let is_ours = matches!(path[0].as_str(), "crate" | "super" | "self");
                if is_ours && self.follow(from, path, STEPS_MAX).is_none() {
                    lost.push(format!("{}: {} leads nowhere", module.file, path.join("::")));
                }
            }
        }
        lost
    }

    fn follow(&self, from: usize, path: &[String], steps: usize) -> Option<PathTarget> {
        let steps = steps.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => PathTarget::Module(self.root(from)?),
            "self" => PathTarget::Module(from),
            "super" => PathTarget::Module(self.parent(from)?),
            name if self.modules[from].names_library(name) => PathTarget::Module(self.library?),
            name => self.look_up(from, name, steps)?,
        };
        for name in rest {
            let PathTarget::Module(at) = found else { break };
            found = match name.as_str() {
                "super" => PathTarget::Module(self.parent(at)?),
                name => self.look_up(at, name, steps)?,
            };
        }
        Some(found)
    }

    fn look_up(&self, at: usize, name: &str, steps: usize) -> Option<PathTarget> {
        let module = &self.modules[at];
        if let Some(child) = module.children.get(name) {
            return Some(PathTarget::Module(*child));
        }
        if module.text.items.contains(name) {
            return Some(PathTarget::Item(at, name.to_owned()));
        }
        let uses = &module.text.uses;
        let mut named = uses.iter().filter(|one| one.alias.as_deref() == Some(name)).peekable();
        if named.peek().is_some() {
            return named
                .find_map(|one| self.follow(at, &one.path, steps))
                .or(Some(PathTarget::Outside));
        }
        let mut all = uses.iter().filter(|one| one.alias.is_none());
        all.find_map(|one| match self.follow(at, &one.path, steps)? {
            PathTarget::Module(other) if other != at => {
                self.look_up(other, name, steps.checked_sub(1)?)
            }
            PathTarget::Module(_) | PathTarget::Item(..) | PathTarget::Outside => None,
        })
    }
}

impl Module {
    /// The module that is a file, and those that are written out in it.
    fn all(file: &str, text: &str) -> Vec<Self> {
        let path = Path::new(file).with_extension("");
        let mut names: Vec<String> =
            path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        names.pop_if(|name| name == "mod" || name == "lib");
        let mut all = Vec::new();
        let mut texts = vec![(names, Text::read(text))];
        while let Some((names, mut text)) = texts.pop() {
            let inner = std::mem::take(&mut text.inner).into_iter();
            texts.extend(inner.map(|(name, text)| ([names.as_slice(), &[name]].concat(), text)));
            all.push(Self { file: file.to_owned(), names, children: BTreeMap::new(), text });
        }
        all
    }

    /// The module at the top of `src/` that it belongs to; none has `lib.rs`, which is the list of them.
    pub(crate) fn room(&self) -> Option<&str> {
        self.names.first().map(String::as_str)
    }

    /// The modules at the top of `src/` that its text names.
    pub(crate) fn rooms(&self) -> BTreeSet<&str> {
        self.all_paths().filter_map(|path| self.named_room(path)).collect()
    }

    /// The modules that stand in its text as files of their own, or that it is the list of.
    pub(crate) fn children(&self) -> impl Iterator<Item = &str> {
        self.children.keys().map(String::as_str)
    }

    fn named_room<'a>(&self, path: &'a [String]) -> Option<&'a str> {
        let to_root = match path.first()?.as_str() {
            "crate" => 1,
            "super" => self.names.len(),
            name if self.names_library(name) => 1,
            _ => return None,
        };
        let is_at_root = path[1..to_root.min(path.len())].iter().all(|name| name == "super");
        path.get(to_root).filter(|_| is_at_root).map(String::as_str)
    }

    fn all_paths(&self) -> impl Iterator<Item = &Vec<String>> {
        self.text.paths.iter().chain(self.text.uses.iter().map(|one| &one.path))
    }

    fn is_of_binary(&self) -> bool {
        self.room().is_some_and(|room| BINARY.contains(&room))
    }

    /// The binary is a crate of its own and sees the library by its name.
    fn names_library(&self, name: &str) -> bool {
        self.is_of_binary() && name == env!("CARGO_PKG_NAME")
    }

    fn test_modules(&self) -> Vec<Vec<String>> {
        let of_tests = self.text.of_tests.iter();
        of_tests.map(|name| self.names.iter().chain([name]).cloned().collect()).collect()
    }
}

impl Text {
    fn read(text: &str) -> Self {
        let (tokens, of_tests) = tokens::read(text);
        Self { of_tests, ..Self::of(&tokens) }
    }

    fn of(tokens: &[Token]) -> Self {
        let mut read = Self::default();
        let mut depth = 0_usize;
        let mut at = 0;
        while at < tokens.len() {
            let before = at.checked_sub(1).map(|before| &tokens[before]);
            match &tokens[at] {
                Token::Name(name) if name == "use" && tokens[at + 1] != Token::Mark('<') => {
                    let is_handed_on = before.is_some_and(ends_visibility);
                    at = read.import(tokens, at + 1, &[], is_handed_on);
                    continue;
                }
                Token::Name(keyword) if keyword == "mod" => {
                    let inside = at + 3;
                    if let [Token::Name(name), Token::Mark('{'), ..] = &tokens[at + 1..] {
                        let end = closing_brace(tokens, inside);
                        read.inner.push((name.clone(), Self::of(&tokens[inside..end])));
                        at = end;
                    }
                }
                Token::Name(name) => {
                    read.words.insert(name.clone());
                    if depth == 0 {
                        read.define(name, &tokens[at + 1..]);
                    }
                    if !matches!(before, Some(Token::Colons | Token::Mark('.'))) {
                        read.paths.extend(path_at(&tokens[at..]));
                    }
                }
                // A macro at the top of a file writes items: its braces are the file's own.
                Token::Mark('{') if depth == 0 && before == Some(&Token::Mark('!')) => {}
                Token::Mark('{') => depth += 1,
                Token::Mark('}') => depth = depth.saturating_sub(1),
                Token::Mark(_) | Token::Colons => {}
            }
            at += 1;
        }
        read
    }

    /// Notes the name that a keyword gives to something.
    fn define(&mut self, keyword: &str, behind: &[Token]) {
        if !DEFINES.contains(&keyword) {
            return;
        }
        match behind {
            [Token::Mark('!'), Token::Name(name), ..] => self.items.insert(name.clone()),
            [Token::Name(name), ..] => self.items.insert(name.clone()),
            _ => false,
        };
    }

    /// Reads one tree of a `use` that begins at `at`; says where the next begins.
    fn import(
        &mut self,
        tokens: &[Token],
        mut at: usize,
        above: &[String],
        is_handed_on: bool,
    ) -> usize {
        let mut path = above.to_vec();
        if tokens[at] == Token::Colons {
            // A crate, whatever our own modules are called.
            path.push(String::new());
            at += 1;
        }
        loop {
            match &tokens[at] {
                Token::Name(name) if name == "as" => {
                    let alias = tokens[at + 1].name().map(str::to_owned);
                    self.uses.push(Use { path, alias, is_handed_on });
                    return at + 2;
                }
                Token::Name(name) if name == "self" && !path.is_empty() => at += 1,
                Token::Name(name) => {
                    path.push(name.clone());
                    at += 1;
                }
                Token::Colons => at += 1,
                Token::Mark('*') => {
                    self.uses.push(Use { path, alias: None, is_handed_on });
                    return at + 1;
                }
                Token::Mark('{') => {
                    at += 1;
                    while tokens[at] != Token::Mark('}') {
                        at = self.import(tokens, at, &path, is_handed_on);
                        at += usize::from(tokens[at] == Token::Mark(','));
                    }
                    return at + 1;
                }
                Token::Mark(_) => {
                    let alias = path.last().cloned();
                    self.uses.push(Use { path, alias, is_handed_on });
                    return at;
                }
            }
        }
    }
}

/// Where the brace stands that closes what `inside` is the beginning of.
fn closing_brace(tokens: &[Token], inside: usize) -> usize {
    let mut depth = 0_usize;
    let closes = |token: &Token| {
        match token {
            Token::Mark('{') => depth += 1,
            Token::Mark('}') if depth == 0 => return true,
            Token::Mark('}') => depth -= 1,
            Token::Mark(_) | Token::Name(_) | Token::Colons => {}
        }
        false
    };
    inside + tokens[inside..].iter().position(closes).unwrap_or(tokens.len() - inside)
}

/// Whether a token is the end of `pub` or `pub(crate)`.
fn ends_visibility(token: &Token) -> bool {
    token.is_name("pub") || *token == Token::Mark(')')
}

/// The path that `tokens` begin with, of at least two names.
fn path_at(tokens: &[Token]) -> Option<Vec<String>> {
    let mut path = vec![tokens[0].name()?.to_owned()];
    let mut rest = &tokens[1..];
    while let [Token::Colons, Token::Name(name), behind @ ..] = rest {
        path.push(name.clone());
        rest = behind;
    }
    (path.len() > 1).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrows between the files, as `from -> to: names`.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files.iter().copied());
        assert_eq!(tree.lost(), [""; 0]);
        let file = |at: usize| tree.modules[at].file.as_str();
        let name = |((from, to), names): ((usize, usize), BTreeSet<String>)| {
            let names: Vec<_> = names.into_iter().collect();
            format!("{} -> {}: {}", file(from), file(to), names.join(", "))
        };
        tree.arrows().into_iter().map(name).collect()
    }

    const FACE: (&str, &str) = ("a/mod.rs", "mod deep; pub use deep::Deep; pub fn own() {}");
    const DEEP: (&str, &str) = ("a/deep.rs", "pub struct Deep; pub fn help() {}");

    #[test]
    fn an_import_leads_to_the_file_that_defines_the_name_however_it_is_written() {
        for text in [
            "use crate::a::Deep;",
            "use super::a::Deep;",
            "use crate::{a::{own as _, Deep as D}};",
            "use crate::a; fn f(x: a::Deep) {}",
            "use crate::a::deep; fn f() -> deep::Deep { g() }",
            "use crate::a::*; fn f() { Deep::new() } fn g() { crate::a::Deep::new() }",
            "fn f() { crate::a::deep::Deep::new() }",
            "fn f() { use crate::a::Deep; }",
        ] {
            let arrows = arrows(&[("lib.rs", ""), FACE, DEEP, ("b.rs", text)]);
            assert!(arrows.contains(&"b.rs -> a/deep.rs: Deep".to_owned()), "{text}: {arrows:?}");
            assert!(!arrows.iter().any(|one| one.starts_with("a/")), "{arrows:?}");
        }
    }

    #[test]
    fn a_re_exported_and_used_name_counts_as_taken() {
        let face = ("a/mod.rs", "mod deep; pub use deep::Deep; fn f(x: Deep) {}");
        assert_eq!(arrows(&[("lib.rs", ""), face, DEEP]), ["a/mod.rs -> a/deep.rs: Deep"]);
    }

    #[test]
    fn other_crates_and_what_only_tests_see_are_no_arrows() {
        for text in [
            "use ::a::Deep;",
            "use std::fmt; fn f() { fmt::Debug::fmt() }",
            "#[cfg(test)] mod tests { use crate::a::Deep; }",
            "#[cfg(test)] use crate::a::Deep;",
            "// crate::a::Deep\nconst TEXT: &str = \"crate::a::Deep\";",
        ] {
            assert_eq!(arrows(&[("lib.rs", ""), FACE, DEEP, ("b.rs", text)]), [""; 0], "{text}");
        }
        let above = ("b/mod.rs", "#[cfg(test)] mod tests;");
        let test = ("b/tests.rs", "use crate::a::Deep;");
        assert_eq!(arrows(&[("lib.rs", ""), FACE, DEEP, above, test]), [""; 0]);
    }

    #[test]
    fn a_module_that_is_written_out_belongs_to_its_file() {
        let face = ("a/mod.rs", "mod deep; pub mod all { pub use super::deep::{Deep, help}; }");
        let inner =
            "use crate::a::all::help; mod b { use super::super::a::all::*; fn f() { Deep }}";
        let files = [("lib.rs", ""), face, DEEP, ("b.rs", inner)];
        assert_eq!(arrows(&files), ["b.rs -> a/deep.rs: help"]);
        let path = "mod b { fn f() { super::super::a::deep::Deep::new() } }";
        let files = [("lib.rs", ""), face, DEEP, ("b.rs", path)];
        assert_eq!(arrows(&files), ["b.rs -> a/deep.rs: Deep"]);
    }

    #[test]
    fn names_defined_by_a_top_level_macro_belong_to_its_file() {
        let words = ("a.rs", "words! { pub enum Reason { A = \"a\", } } pub struct Last;");
        let taken = ("b.rs", "use crate::a::{Last, Reason};");
        let files = [("lib.rs", ""), words, taken];
        assert_eq!(arrows(&files), ["b.rs -> a.rs: Last, Reason"]);
    }

    #[test]
    fn the_binary_sees_the_library_by_its_name() {
        let text = format!("use {}::a::Deep;", env!("CARGO_PKG_NAME"));
        let files = [("lib.rs", ""), ("main.rs", "mod cli;"), FACE, DEEP, ("cli.rs", &text)];
        assert_eq!(arrows(&files), ["cli.rs -> a/deep.rs: Deep"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_named() {
        let tree = Tree::of([("lib.rs", ""), FACE, DEEP, ("b.rs", "use crate::a::Gone;")]);
        assert_eq!(tree.lost(), ["b.rs: crate::a::Gone leads nowhere"]);
    }
}
