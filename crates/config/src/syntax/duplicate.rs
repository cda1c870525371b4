//! Keys and tables that a file sets twice: their path and the place of the first.
//!
//! The TOML parser reports the second place only.

use std::collections::HashMap;

use toml_parser::Source;
use toml_parser::parser::{Event, EventKind, RecursionGuard, parse_document};

/// The deepest nesting, which is that of the TOML parser.
const DEPTH_MAX: u32 = 80;

/// A key or a table that is not the first of its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RepeatedKey {
    /// The path of the setting, such as `cache.default_ttl`.
    pub(super) path: String,
    /// Where the first one is, as an offset.
    pub(super) first: usize,
    /// Whether it is a table with a header.
    pub(super) is_table: bool,
}

/// What may be repeated in a text, by the offset of its last name. Whether that is an error depends on its kind:
/// `[a]` may follow `[a.b]`.
pub(super) fn repeated(text: &str) -> HashMap<usize, RepeatedKey> {
    let tokens = Source::new(text).lex().into_vec();
    let mut names = Names { text, ..Names::default() };
    let mut receiver = |event: Event| names.event(&event);
    let mut guarded = RecursionGuard::new(&mut receiver, DEPTH_MAX);
    parse_document(&tokens, &mut guarded, &mut ());
    names.repeated
}

/// Follows the parser through a text.
#[derive(Debug, Default)]
struct Names<'a> {
    text: &'a str,
    /// The path of the table that keys belong to.
    table: String,
    /// The names of the key or the header that is being read, and the offset of the last one.
    key: Vec<String>,
    at: usize,
    /// The path of the value that is being read.
    value: String,
    /// What surrounds it.
    scopes: Vec<Scope>,
    /// The number of tables in each list of tables so far, and where the last one begins.
    lists: HashMap<String, (usize, usize)>,
    first: HashMap<String, usize>,
    repeated: HashMap<usize, RepeatedKey>,
}

/// A value with values in it.
#[derive(Debug)]
enum Scope {
    /// An inline table; with the path of the table around it.
    Table(String),
    /// A list; with its path and the index of the value in it.
    List(String, usize),
}

impl Names<'_> {
    fn event(&mut self, event: &Event) {
        match event.kind() {
            EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                self.table.clear();
                self.key.clear();
                self.scopes.clear();
            }
            EventKind::SimpleKey => self.name(event),
            EventKind::StdTableClose => self.table = self.finish_key(true),
            EventKind::ArrayTableClose => self.table = self.next_in_list(),
            EventKind::KeyValSep => self.value = self.finish_key(false),
            EventKind::InlineTableOpen => {
                let outer = std::mem::replace(&mut self.table, self.value.clone());
                self.scopes.push(Scope::Table(outer));
                self.key.clear();
            }
            EventKind::ArrayOpen => {
                self.scopes.push(Scope::List(self.value.clone(), 0));
                self.value.push_str("[0]");
            }
            EventKind::ValueSep => {
                if let Some(Scope::List(path, index)) = self.scopes.last_mut() {
                    *index += 1;
                    self.value = format!("{path}[{index}]");
                }
                self.key.clear();
            }
            EventKind::InlineTableClose | EventKind::ArrayClose => match self.scopes.pop() {
                Some(Scope::Table(outer)) => self.table = outer,
                Some(Scope::List(path, _)) => self.value = path,
                None => {}
            },
            EventKind::Newline if self.scopes.is_empty() => self.key.clear(),
            _ => {}
        }
    }

    fn name(&mut self, event: &Event) {
        let mut name = String::new();
        if let Some(raw) = Source::new(self.text).get(event) {
            raw.decode_key(&mut name, &mut ());
        }
        self.key.push(name.escape_debug().to_string());
        self.at = event.span().start();
    }

    /// The path of the key or the table that was read. Its place and those of the tables in it are noted.
    fn finish_key(&mut self, is_table: bool) -> String {
        let names = std::mem::take(&mut self.key);
        // The parser refuses such a key.
        if names.len() > DEPTH_MAX as usize {
            return self.table.clone();
        }
        let mut path = self.table.clone();
        for (index, name) in names.iter().enumerate() {
            path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            if let Some((count, begins)) = self.lists.get(&path) {
                if is_table && index + 1 == names.len() {
                    let repeated = RepeatedKey { path: path.clone(), first: *begins, is_table };
                    self.repeated.insert(self.at, repeated);
                }
                path = format!("{path}[{}]", count - 1);
            }
            let first = *self.first.entry(path.clone()).or_insert(self.at);
            if index + 1 == names.len() && first != self.at {
                let repeated = RepeatedKey { path: path.clone(), first, is_table };
                self.repeated.insert(self.at, repeated);
            }
        }
        path
    }

    /// The path of a further table of a list.
    fn next_in_list(&mut self) -> String {
        let last = self.key.pop().unwrap_or_default();
        let within = self.finish_key(true);
        let path = if within.is_empty() { last } else { format!("{within}.{last}") };
        if let (Some(first), None) = (self.first.get(&path), self.lists.get(&path)) {
            let repeated = RepeatedKey { path: path.clone(), first: *first, is_table: true };
            self.repeated.insert(self.at, repeated);
        }
        let (count, begins) = self.lists.entry(path.clone()).or_default();
        *count += 1;
        *begins = self.at;
        format!("{path}[{}]", *count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_of_each_key_is_found() {
        for (text, path, first, second) in [
            ("a = 1\na = 2\n", "a", 0, 6),
            ("[t]\na = 1\n[u]\n[t]\n", "t", 1, 15),
            ("[t]\na = 1\nb = 2\n\"a\" = 3\n", "t.a", 4, 16),
            ("t.a = 1\n[t]\n", "t", 2, 9),
            ("t = { a = 1, b = { a = 1 }, a = 2 }", "t.a", 6, 28),
            ("l = [{ a = 1 }, { a = 1, a = 2 }]", "l[1].a", 18, 25),
            ("[[l]]\na = 1\n[[l]]\na = 1\n[l.m]\nb = 1\nb = 2", "l[1].m.b", 30, 36),
            ("[[l]]\n[l.m]\n[[l]]\n[l.m]\n[l.m]", "l[1].m", 21, 27),
            ("[l]\na = 1\n[[l]]\n", "l", 1, 12),
            ("[[l]]\na = 1\n[l]\n", "l", 2, 13),
            ("l = 1\n[[l]]\n", "l", 0, 8),
        ] {
            let found = repeated(text);
            let repeated = found.get(&second).unwrap_or_else(|| panic!("{text}: {found:?}"));
            assert_eq!((repeated.path.as_str(), repeated.first), (path, first), "{text}");
        }
        assert!(repeated(&"[".repeat(1 << 20)).is_empty());
        assert!(repeated("a = 1\n[b]\na = 1\n[[l]]\na = 1\n[[l]]\na = { a = 1 }").is_empty());
    }
}
