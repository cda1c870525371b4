//! Reads a plan: walks the schema with what was said, and gathers every problem on the way.
//!
//! Which keys there are is told by the schema; what values mean, by the forms.

use std::collections::BTreeMap;

use super::form::{Faults, Form};
use super::node::{Node, Table, Value};
use super::problem::{Place, Problem};
use super::schema::Walk;
use super::text;

/// Where each setting was said, by its path: `cache.memory`, `route[2].match.path`.
#[derive(Debug)]
pub(super) struct Places {
    said: BTreeMap<String, Place>,
    /// The file as a whole, for what was said nowhere.
    whole: Place,
}

impl Places {
    pub(super) fn new(whole: Place) -> Self {
        Self { said: BTreeMap::new(), whole }
    }

    /// Whether the setting was said, well or badly.
    pub(super) fn said(&self, path: &str) -> bool {
        self.said.contains_key(path)
    }

    /// Where the setting was said; else where the table begins that it belongs to.
    pub(super) fn of(&self, path: &str) -> Place {
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

/// Walks the schema beside a tree of what was said.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    /// The table in which keys are looked up now; `None` where it was not said.
    table: Option<&'a Table>,
    /// Its path.
    path: String,
    /// The keys that the schema asked for in it: the valid ones.
    asked: Vec<&'static str>,
    environment: &'a [(String, String)],
    pub(super) places: Places,
    pub(super) problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        root: &'a Table,
        environment: &'a [(String, String)],
        places: Places,
    ) -> Self {
        Self {
            table: Some(root),
            path: String::new(),
            asked: Vec::new(),
            environment,
            places,
            problems: Vec::new(),
        }
    }

    /// Ends the walk: tells of the keys at the top that nobody asked for.
    pub(super) fn finish(mut self) -> (Places, Vec<Problem>) {
        self.tell_unknown();
        (self.places, self.problems)
    }

    fn ask(&mut self, name: &'static str) -> Option<&'a Node> {
        self.asked.push(name);
        let node = self.table?.get(name)?;
        self.places.said.insert(self.path_of(name), node.place.clone());
        Some(node)
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn problem(&mut self, place: Place, path: &str, text: impl Into<String>) {
        self.problems.push(Problem::new(place, path, text));
    }

    /// Looks keys up in `table` while `keys` runs, then tells which of it nobody asked for.
    fn inside(&mut self, table: Option<&'a Table>, path: String, keys: impl FnOnce(&mut Self)) {
        let outer_table = std::mem::replace(&mut self.table, table);
        let outer_path = std::mem::replace(&mut self.path, path);
        let outer_asked = std::mem::take(&mut self.asked);
        keys(self);
        self.tell_unknown();
        self.table = outer_table;
        self.path = outer_path;
        self.asked = outer_asked;
    }

    fn tell_unknown(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        for (name, node) in self.table.into_iter().flatten() {
            if asked.contains(&name.as_str()) {
                continue;
            }
            let text = match nearest(name, &asked) {
                Some(near) => format!("unknown key; did you mean {near}?"),
                None => format!("unknown key; valid here: {}", asked.join(", ")),
            };
            let path = self.path_of(&name.escape_debug().to_string());
            self.problem(node.place.clone(), &path, text);
        }
    }

    fn table_in(&mut self, node: &'a Node, path: &str, expected: &str) -> Option<&'a Table> {
        if let Value::Table(table) = &node.value {
            return Some(table);
        }
        let text = format!("found {}; expected {expected}", node.shown());
        self.problem(node.place.clone(), path, text);
        None
    }
}

impl Walk for Reader<'_> {
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>) {
        let Some(node) = self.ask(name) else { return };
        let mut faults = Faults { environment: self.environment, found: Vec::new() };
        if let Some(read) = form.read(node, &mut faults) {
            *value = read;
        }
        let path = self.path_of(name);
        for (place, text) in faults.found {
            self.problem(place, &path, text);
        }
    }

    fn required<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>, hint: &str) {
        self.key(name, value, form);
        let path = self.path_of(name);
        if !self.places.said(&path) {
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
            self.problem(node.place.clone(), name, text);
            return;
        }
        items.clear();
        for (index, node) in nodes.iter().enumerate() {
            let path = format!("{}[{index}]", self.path_of(name));
            self.places.said.insert(path.clone(), node.place.clone());
            // What is no table is told and kept as an item, so that places keep their index.
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
            self.problem(node.place.clone(), name, text);
            return;
        }
        items.clear();
        for (own, node) in tables {
            let path = format!("{path}.{}", own.escape_debug());
            if let Err(why) = text::origin_name(own) {
                self.problem(node.place.clone(), &path, format!("expected {why}"));
                continue;
            }
            self.places.said.insert(path.clone(), node.place.clone());
            let mut item = fresh();
            if let Some(table) = self.table_in(node, &path, "a table of keys") {
                self.inside(Some(table), path, |at| keys(at, &mut item));
            }
            items.push((own.clone(), item));
        }
    }
}

/// The name among `valid` that was probably meant.
pub(super) fn nearest<'n>(name: &str, valid: &[&'n str]) -> Option<&'n str> {
    // The comparison takes the product of both lengths: not for a name of a megabyte.
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let apart = |known: &&'n str| (strsim::osa_distance(name, known), *known);
    let (distance, near) = valid.iter().map(apart).min()?;
    (distance <= near.len().div_ceil(3)).then_some(near)
}
