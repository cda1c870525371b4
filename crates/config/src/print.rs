//! Writes a plan as TOML that reads back to it.
//!
//! A secret is written as its source; the password in a plain store URL is hidden, and must be restored by
//! hand.

use std::fmt::Write as _;

use super::form::Form;
use super::plan::Plan;
use super::schema::walk;
use super::walk::Walk;

/// The whole effective configuration, for `anteroom config print`, without secrets.
#[must_use]
pub fn print(plan: &Plan) -> String {
    let mut plan = plan.clone();
    let mut printer = Printer::default();
    walk(&mut printer, &mut plan);
    printer.written
}

/// Writes each key that it visits.
#[derive(Debug, Default)]
struct Printer {
    written: String,
    /// Whether the keys belong to a `[…]` or `[[…]]`, where a section is written as `section.key`.
    is_within: bool,
    dotted: Option<&'static str>,
}

impl Printer {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing into a String cannot fail.
        let _ = writeln!(self.written, "{line}");
    }

    fn heading(&mut self, line: std::fmt::Arguments<'_>) {
        if !self.written.is_empty() {
            self.written.push('\n');
        }
        self.line(line);
    }
}

impl Walk for Printer {
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>) {
        match (form.write(value), self.dotted) {
            (Some(toml), Some(section)) => self.line(format_args!("{section}.{name} = {toml}")),
            (Some(toml), None) => self.line(format_args!("{name} = {toml}")),
            (None, _) => {}
        }
    }

    fn required<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>, _: &str) {
        self.key(name, value, form);
    }

    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        if self.is_within {
            self.dotted = Some(name);
            keys(self);
            self.dotted = None;
            return;
        }
        self.heading(format_args!("[{name}]"));
        self.is_within = true;
        keys(self);
        self.is_within = false;
    }

    fn tables<T>(
        &mut self,
        name: &'static str,
        _: usize,
        items: &mut Vec<T>,
        _: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        self.is_within = true;
        for item in items {
            self.heading(format_args!("[[{name}]]"));
            keys(self, item);
        }
        self.is_within = false;
    }

    fn named<T>(
        &mut self,
        name: &'static str,
        _: usize,
        items: &mut Vec<(String, T)>,
        _: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    ) {
        self.is_within = true;
        for (own, item) in items {
            self.heading(format_args!("[{name}.{own}]"));
            keys(self, item);
        }
        self.is_within = false;
    }
}
