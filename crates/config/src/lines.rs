//! A plan as a list of its keys and their values.

use super::form::Form;
use super::plan::Plan;
use super::schema::walk;
use super::walk::Walk;

/// Each key of a plan with its value.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The name of the table, with what stands behind it.
    table: String,
    found: Vec<(String, String)>,
}

impl Lines {
    /// Those of a plan.
    pub(super) fn of(plan: &Plan) -> Vec<(String, String)> {
        let mut lines = Self::default();
        walk(&mut lines, &mut plan.clone());
        lines.found
    }

    /// The lines of a table.
    fn within(&mut self, name: &str, keys: impl FnOnce(&mut Self)) -> Vec<(String, String)> {
        let mut table = Self { table: format!("{}{name}", self.table), found: Vec::new() };
        keys(&mut table);
        table.found
    }

    /// Adds an item of a list: that it is there, and those of its lines that are not `usual`.
    fn add_item(&mut self, name: String, own: Vec<(String, String)>, usual: &[(String, String)]) {
        self.found.push((name, String::new()));
        self.found.extend(own.into_iter().filter(|line| !usual.contains(line)));
    }
}

impl Walk for Lines {
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>) {
        if let Some(value) = form.write(value) {
            self.found.push((format!("{}{name}", self.table), value));
        }
    }

    fn required<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>, _: &str) {
        self.key(name, value, form);
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        let found = self.within(&format!("{name}."), keys);
        self.found.extend(found);
    }

    fn tables<T>(
        &mut self,
        name: &'static str,
        _: usize,
        items: &mut Vec<T>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        for (place, item) in items.iter_mut().enumerate() {
            let name = format!("{name}[{place}]");
            let usual = self.within(&format!("{name}."), |at| keys(at, &mut fresh()));
            let own = self.within(&format!("{name}."), |at| keys(at, item));
            self.add_item(name, own, &usual);
        }
    }

    fn named<T>(
        &mut self,
        name: &'static str,
        _: usize,
        items: &mut Vec<(String, T)>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        for (own_name, item) in items {
            let name = format!("{name}.{own_name}");
            let usual = self.within(&format!("{name}."), |at| keys(at, &mut fresh()));
            let own = self.within(&format!("{name}."), |at| keys(at, item));
            self.add_item(name, own, &usual);
        }
    }
}
