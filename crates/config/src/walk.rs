//! The visitors of the schema: a reader and a printer.

use crate::form::Form;

/// Visits every key of the schema in turn.
pub(super) trait Walk: Sized {
    /// Visits a key with a value of this form.
    fn key<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>);

    /// As [`Self::key`], for a required key; `hint` says what to write.
    fn required<T>(&mut self, name: &'static str, value: &mut T, form: &impl Form<T>, hint: &str);

    /// Sets defaults of later keys by the value of an earlier key. Only the reader does.
    fn preset(&mut self, set: impl FnOnce()) {
        // A printer takes all values from the plan.
        drop(set);
    }

    /// Visits a table of further keys.
    fn section(&mut self, name: &'static str, keys: impl FnOnce(&mut Self));

    /// Visits a list of tables, at most `max`, each initialised by `fresh`.
    fn tables<T>(
        &mut self,
        name: &'static str,
        max: usize,
        items: &mut Vec<T>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    );

    /// Visits tables with names from the operator, at most `max`, each initialised by `fresh`.
    fn named<T>(
        &mut self,
        name: &'static str,
        max: usize,
        items: &mut Vec<(String, T)>,
        fresh: impl Fn() -> T,
        keys: impl Fn(&mut Self, &mut T),
    );
}
