//! Reads a plan: walks the schema along the merged sources, and collects every problem.
//!
//! The schema lists the keys; the forms give values their meaning.

use std::collections::BTreeMap;

use super::form::{Fault, Faults, Form};
use super::key_paths::KeyPaths;
use super::node::{Node, TomlTable, Value};
use super::problem::{Problem, SettingLocation};
use super::walk::Walk;
use super::{meant, text, unknown_key};

/// Where each setting was written, by its path: `cache.memory`, `route[2].match.path`.
#[derive(Debug)]
pub(super) struct SettingLocations {
    said: BTreeMap<String, SettingLocation>,
    /// The file as a whole, for settings that were not written.
    whole: SettingLocation,
}

impl SettingLocations {
    pub(super) fn new(whole: SettingLocation) -> Self {
        Self { said: BTreeMap::new(), whole }
    }

    /// Whether the setting was written, validly or not.
    pub(super) fn said(&self, path: &str) -> bool {
        self.said.contains_key(path)
    }

    /// Where the setting was written, or else where its table begins.
    pub(super) fn of(&self, path: &str) -> SettingLocation {
        let mut path = path;
        loop {
            if let Some(place) = self.said.get(path) {
                return place.clone();
            }
            match path.rsplit_once('.') {
                Some((table, _)) => path = table,
                None => return self.whole.clone(),
            }
        }
    }
}

/// Walks the schema along a tree of settings.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    /// The table in which keys are looked up; `None` if it was not written.
    table: Option<&'a TomlTable>,
    /// Its path.
    path: String,
    /// The keys that the schema has visited in it: the valid ones.
    read_keys: Vec<&'static str>,
    environment: &'a [(String, String)],
    pub(super) places: SettingLocations,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        root: &'a TomlTable,
        environment: &'a [(String, String)],
        places: SettingLocations,
    ) -> Self {
        Self {
            table: Some(root),
            path: String::new(),
            read_keys: Vec::new(),
            environment,
            places,
            problems: Vec::new(),
        }
    }

    /// Ends the walk, and reports the unknown keys at the top.
    pub(super) fn finish(mut self) -> (SettingLocations, Vec<Problem>) {
        self.report_unknown_keys();
        (self.places, self.problems)
    }

    fn ask(&mut self, name: &'static str) -> Option<&'a Node> {
        self.read_keys.push(name);
        let node = self.table?.get(name)?;
        self.places.said.insert(self.path_of(name), node.location.clone());
        Some(node)
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn problem(&mut self, place: SettingLocation, path: &str, text: impl Into<String>) {
        self.problems.push(Problem::new(place, path, text));
    }

    /// Looks keys up in `table` while `keys` runs, then reports the unknown ones.
    fn inside(&mut self, table: Option<&'a TomlTable>, path: String, keys: impl FnOnce(&mut Self)) {
        let outer_table = std::mem::replace(&mut self.table, table);
        let outer_path = std::mem::replace(&mut self.path, path);
        let outer_read_keys = std::mem::take(&mut self.read_keys);
        keys(self);
        self.report_unknown_keys();
        self.table = outer_table;
        self.path = outer_path;
        self.read_keys = outer_read_keys;
    }

    fn report_unknown_keys(&mut self) {
        let read_keys = std::mem::take(&mut self.read_keys);
        for (name, node) in self.table.into_iter().flatten() {
            if read_keys.contains(&name.as_str()) {
                continue;
            }
            let text = unknown_key::text(name, node, &self.path, &read_keys);
            let path = self.path_of(&name.escape_debug().to_string());
            self.problem(node.location.clone(), &path, text);
        }
    }

    fn table_in(&mut self, node: &'a Node, path: &str, expected: &str) -> Option<&'a TomlTable> {
        if let Value::Table(table) = &node.value {
            return Some(table);
        }
        let text = match meant::table(path, node) {
            Some(meant) => format!("found {}; write {meant}", node.shown()),
            None => {
                let paths = KeyPaths::of_schema();
                let example =
                    paths.example(path).map_or(String::new(), |key| format!(" such as {key}"));
                format!("found {}; expected {expected}{example}", node.shown())
            }
        };
        self.problem(node.location.clone(), path, text);
        None
    }
}

/// The place of a variable in a value of a file, and what to say of it.
fn variable_in(node: &Node, path: &str) -> Option<(SettingLocation, String)> {
    node.as_list().iter().find_map(|node| {
        let variable = meant::variable(node.as_text()?)?;
        node.location.file()?;
        Some((node.location.clone(), meant::instead_of_variable(path, variable)))
    })
}

impl Walk for Reader<'_> {
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>) {
        let Some(node) = self.ask(name) else { return };
        let path = self.path_of(name);
        if let Some((place, text)) = variable_in(node, &path) {
            self.problem(place, &path, text);
            return;
        }
        let mut faults = Faults { environment: self.environment, path: &path, found: Vec::new() };
        if let Some(read) = form.read(node, &mut faults) {
            *value = read;
        }
        for Fault { location, text, advice } in faults.found {
            let advice = advice.map_or(String::new(), |advice| format!("; {advice}"));
            self.problem(location, &path, text + &advice);
        }
    }

    fn required<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>, hint: &str) {
        self.key(name, value, form);
        let path = self.path_of(name);
        // A table that is no table is told as a whole.
        let is_told = self.problems.iter().any(|problem| problem.setting == self.path);
        if !self.places.said(&path) && !is_told {
            let place = self.places.of(&path);
            self.problem(place, &path, format!("missing; {hint}"));
        }
    }

    fn preset(&mut self, set: impl FnOnce()) {
        set();
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        let path = self.path_of(name);
        let table = match self.ask(name) {
            Some(node) => self.table_in(node, &path, "a table of keys"),
            None => None,
        };
        self.inside(table, path, keys);
    }

    fn tables<T>(
        &mut self,
        name: &'static str,
        max: usize,
        items: &mut Vec<T>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        let Some(node) = self.ask(name) else { return };
        let nodes = node.as_list();
        if nodes.len() > max {
            let text = format!("found {}; expected at most {max}", nodes.len());
            self.problem(node.location.clone(), name, text);
            return;
        }
        items.clear();
        for (index, node) in nodes.iter().enumerate() {
            let path = format!("{}[{index}]", self.path_of(name));
            self.places.said.insert(path.clone(), node.location.clone());
            // A value that is not a table is reported and kept as an item, so that places keep their
            // index.
            let mut item = fresh();
            if let Some(table) = self.table_in(node, &path, "a table of keys") {
                self.inside(Some(table), path, |at| keys(at, &mut item));
            }
            items.push(item);
        }
    }

    fn named<T>(
        &mut self,
        name: &'static str,
        max: usize,
        items: &mut Vec<(String, T)>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        let Some(node) = self.ask(name) else { return };
        let path = self.path_of(name);
        let Some(tables) = self.table_in(node, &path, "tables under names of their own") else {
            return;
        };
        if tables.len() > max {
            let text = format!("found {}; expected at most {max}", tables.len());
            self.problem(node.location.clone(), name, text);
            return;
        }
        items.clear();
        for (own, node) in tables {
            let path = format!("{path}.{}", own.escape_debug());
            if let Err(why) = text::origin_name(own) {
                self.problem(node.location.clone(), &path, format!("expected {why}"));
                continue;
            }
            self.places.said.insert(path.clone(), node.location.clone());
            let mut item = fresh();
            if let Some(table) = self.table_in(node, &path, "a table of keys") {
                self.inside(Some(table), path, |at| keys(at, &mut item));
            }
            items.push((own.clone(), item));
        }
    }
}
