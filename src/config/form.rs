//! Forms of values: how each is read from the sources, and how it is written.
//!
//! A form knows only its own value. The schema assigns forms to settings; `check` compares settings. Forms
//! for domain values (hosts, patterns, secrets) are in `text` and `credential`.

use std::fmt::Write as _;
use std::marker::PhantomData;
use std::time::Duration;

use serde_json::Value as Json;

use super::node::{Node, Value};
use super::problem::SettingLocation;
use super::{shape, unit};

/// The most values that a list may hold.
const LIST_MAX: usize = 1_000;

/// How a value of type `T` is read and written.
pub(super) trait Form<T> {
    /// Returns the value, or `None` after reporting to `faults`.
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<T>;

    /// The value as TOML that reads back to it; `None` if that is expressed by omitting the key.
    fn write(&self, value: &T) -> Option<String>;

    /// The shape of the value, see [`shape`].
    fn shape(&self) -> Json;
}

/// The faults found by forms, and the environment that secrets are read from.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    pub(super) environment: &'a [(String, String)],
    pub(super) found: Vec<(SettingLocation, String)>,
}

impl Faults<'_> {
    /// Reports a fault in `node`, and returns `None` for the form to return.
    pub(super) fn add<T>(&mut self, node: &Node, text: impl Into<String>) -> Option<T> {
        self.found.push((node.location.clone(), text.into()));
        None
    }

    /// Reports that something else was expected.
    pub(super) fn expected<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        self.add(node, format!("found {}; expected {expected}", node.shown()))
    }
}

/// `true` or `false`.
#[derive(Debug)]
pub(super) struct Flag;

impl Form<bool> for Flag {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<bool> {
        match node.value {
            Value::Boolean(flag) => Some(flag),
            _ => faults.expected(node, "true or false"),
        }
    }

    fn write(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }

    fn shape(&self) -> Json {
        shape::flag()
    }
}

/// A whole number within bounds.
#[derive(Debug)]
pub(super) struct CountForm {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl<T: TryFrom<u64> + TryInto<u64> + Copy> Form<T> for CountForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<T> {
        let number = match node.value {
            Value::Integer(number) => u64::try_from(number).ok(),
            _ => node.as_text().and_then(|text| text.parse().ok()),
        };
        let within = number.filter(|number| (self.min..=self.max).contains(number));
        let Some(count) = within.and_then(|number| T::try_from(number).ok()) else {
            let bounds = format!("a number from {} to {}", self.min, self.max);
            return faults.expected(node, &bounds);
        };
        Some(count)
    }

    fn write(&self, value: &T) -> Option<String> {
        (*value).try_into().ok().map(|number: u64| number.to_string())
    }

    fn shape(&self) -> Json {
        shape::count(self.min, self.max)
    }
}

/// A duration with its unit, within bounds.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) min: Duration,
    pub(super) max: Duration,
}

impl Form<Duration> for Span {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Duration> {
        if let Some(number) = bare_number(node) {
            let text = format!("found {number}, without a unit; write \"{number}s\" for seconds");
            return faults.add(node, text);
        }
        let Some(duration) = node.as_text().and_then(unit::duration) else {
            return faults
                .expected(node, r#"a duration such as "250ms", "300s", "5m", "1h" or "1d""#);
        };
        if !(self.min..=self.max).contains(&duration) {
            let (min, max) = (unit::show_duration(self.min), unit::show_duration(self.max));
            return faults.expected(node, &format!("a duration from \"{min}\" to \"{max}\""));
        }
        Some(duration)
    }

    fn write(&self, value: &Duration) -> Option<String> {
        Some(format!("\"{}\"", unit::show_duration(*value)))
    }

    fn shape(&self) -> Json {
        let (min, max) = (unit::show_duration(self.min), unit::show_duration(self.max));
        shape::pattern(&format!("a duration from {min} to {max}"), "^[0-9]+(ms|s|m|h|d)$")
    }
}

/// A number of bytes with its unit, within bounds.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl<T: TryFrom<u64> + TryInto<u64> + Copy> Form<T> for Size {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<T> {
        if let Some(number) = bare_number(node) {
            let text = format!("found {number}, without a unit; write \"{number}B\" for bytes");
            return faults.add(node, text);
        }
        if let Some(meant) = node.as_text().and_then(unit::meant_size) {
            let text = format!("found {}; write \"{meant}\"", node.shown());
            return faults.add(node, text);
        }
        let Some(bytes) = node.as_text().and_then(unit::size) else {
            return faults.expected(node, r#"a size such as "64KiB", "8MiB" or "1GiB""#);
        };
        let within = (self.min..=self.max).contains(&bytes);
        let Some(size) = T::try_from(bytes).ok().filter(|_| within) else {
            let (min, max) = (unit::show_size(self.min), unit::show_size(self.max));
            return faults.expected(node, &format!("a size from \"{min}\" to \"{max}\""));
        };
        Some(size)
    }

    fn write(&self, value: &T) -> Option<String> {
        (*value).try_into().ok().map(|bytes| format!("\"{}\"", unit::show_size(bytes)))
    }

    fn shape(&self) -> Json {
        let title = match (unit::show_size(self.min), self.max) {
            (min, u64::MAX) => format!("a size from {min}"),
            (min, max) => format!("a size from {min} to {}", unit::show_size(max)),
        };
        shape::pattern(&title, "^[0-9]+(B|KiB|MiB|GiB|TiB)$")
    }
}

/// A number where a unit is required, as a TOML number or in an environment variable.
fn bare_number(node: &Node) -> Option<u64> {
    match node.value {
        Value::Integer(number) => u64::try_from(number).ok(),
        _ => node.as_text().and_then(|text| text.parse().ok()),
    }
}

/// One of a fixed set of words.
#[derive(Debug)]
pub(super) struct Words<'a, T>(pub(super) &'a [(&'static str, T)]);

impl<T: Copy + PartialEq> Form<T> for Words<'_, T> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<T> {
        let Some(word) = node.as_text() else {
            return faults.expected(node, &self.listed());
        };
        let known = self.0.iter().find(|(name, _)| *name == word);
        known.map(|(_, value)| *value).or_else(|| faults.expected(node, &self.listed()))
    }

    fn write(&self, value: &T) -> Option<String> {
        self.0.iter().find(|(_, known)| known == value).map(|(name, _)| format!("\"{name}\""))
    }

    fn shape(&self) -> Json {
        let words: Vec<&str> = self.0.iter().map(|(name, _)| *name).collect();
        shape::words(&words)
    }
}

impl<T> Words<'_, T> {
    fn listed(&self) -> String {
        let quoted: Vec<String> = self.0.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        match quoted.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => quoted.concat(),
        }
    }
}

/// A text that stands for a `T`.
#[derive(Debug)]
pub(super) struct Text<T> {
    /// The value, or what was expected instead.
    pub(super) parse: fn(&str) -> Result<T, String>,
    /// The text that reads back to the value.
    pub(super) show: fn(&T) -> String,
}

impl<T> Text<T> {
    /// What is expected, in words.
    fn expected(&self) -> String {
        // No text with a control character is valid, so the answer to one says it.
        (self.parse)("\u{1}").err().unwrap_or_else(|| "a text in quotes".to_owned())
    }
}

impl<T> Form<T> for Text<T> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<T> {
        let Some(text) = node.as_text() else {
            return faults.expected(node, &self.expected());
        };
        (self.parse)(text).map_or_else(|why| faults.expected(node, &why), Some)
    }

    fn write(&self, value: &T) -> Option<String> {
        Some(string(&(self.show)(value)))
    }

    fn shape(&self) -> Json {
        shape::text(&self.expected())
    }
}

/// An optional value without a default.
#[derive(Debug)]
pub(super) struct Optional<F>(pub(super) F);

impl<T, F: Form<T>> Form<Option<T>> for Optional<F> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Option<T>> {
        self.0.read(node, faults).map(Some)
    }

    fn write(&self, value: &Option<T>) -> Option<String> {
        value.as_ref().and_then(|value| self.0.write(value))
    }

    fn shape(&self) -> Json {
        self.0.shape()
    }
}

/// A word for `None`, or a value.
#[derive(Debug)]
pub(super) struct Either<F>(pub(super) &'static str, pub(super) F);

impl<T, F: Form<T>> Form<Option<T>> for Either<F> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Option<T>> {
        if node.as_text() == Some(self.0) {
            return Some(None);
        }
        let before = faults.found.len();
        let value = self.1.read(node, faults).map(Some);
        for (_, text) in faults.found.iter_mut().skip(before) {
            let _ = write!(text, ", or \"{}\"", self.0);
        }
        value
    }

    fn write(&self, value: &Option<T>) -> Option<String> {
        match value {
            Some(value) => self.1.write(value),
            None => Some(string(self.0)),
        }
    }

    fn shape(&self) -> Json {
        shape::any_of(&[shape::words(&[self.0]), self.1.shape()])
    }
}

/// A list of values; a single value counts as a list. All faults in it are reported.
#[derive(Debug)]
pub(super) struct List<T, F> {
    of: F,
    item: PhantomData<T>,
}

impl<T, F> List<T, F> {
    pub(super) const fn of(of: F) -> Self {
        Self { of, item: PhantomData }
    }
}

impl<T, F: Form<T>> Form<Vec<T>> for List<T, F> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<T>> {
        let nodes = node.as_list();
        if nodes.len() > LIST_MAX {
            let text = format!("found {} values; expected at most {LIST_MAX}", nodes.len());
            return faults.add(node, text);
        }
        let read: Vec<Option<T>> = nodes.iter().map(|node| self.of.read(node, faults)).collect();
        read.into_iter().collect()
    }

    fn write(&self, values: &Vec<T>) -> Option<String> {
        let written: Vec<String> = values.iter().filter_map(|v| self.of.write(v)).collect();
        Some(format!("[{}]", written.join(", ")))
    }

    fn shape(&self) -> Json {
        shape::list(&self.of.shape(), LIST_MAX)
    }
}

/// `text` as a TOML basic string.
pub(super) fn string(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    written.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => written.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(written, "\\U{:08X}", u32::from(c));
            }
            c => written.push(c),
        }
    }
    written.push('"');
    written
}
