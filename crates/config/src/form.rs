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
use super::suggest::nearest;
use super::{meant, shape, unit};

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
    /// The path of the key that is read.
    pub(super) path: &'a str,
    pub(super) found: Vec<Fault>,
}

/// What is wrong with a value.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) location: SettingLocation,
    /// What was found, and what was expected.
    pub(super) text: String,
    /// What to write instead.
    pub(super) advice: Option<String>,
}

impl Faults<'_> {
    /// Reports a fault in `node`, and returns `None` for the form to return.
    pub(super) fn add<T>(&mut self, node: &Node, text: impl Into<String>) -> Option<T> {
        let location = node.location.clone();
        self.found.push(Fault { location, text: text.into(), advice: None });
        None
    }

    /// Reports that something else was expected.
    pub(super) fn expected<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        self.expected_or(node, expected, None)
    }

    /// As [`Self::expected`]; with `advice` where none is known for the key.
    fn expected_or<T>(&mut self, node: &Node, expected: &str, advice: Option<String>) -> Option<T> {
        let location = node.location.clone();
        let text = format!("found {}; expected {expected}", node.shown());
        let advice = meant::advice(self.path, node).or(advice);
        self.found.push(Fault { location, text, advice });
        None
    }

    /// Reports what has to be written instead.
    pub(super) fn instead<T>(&mut self, node: &Node, meant: &str) -> Option<T> {
        self.add(node, format!("found {}; write {meant}", node.shown()))
    }
}

/// `true` or `false`.
#[derive(Debug)]
pub(super) struct Flag;

impl Form<bool> for Flag {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<bool> {
        let word = match node.value {
            Value::Boolean(flag) => return Some(flag),
            Value::Integer(number) => Some(number.to_string()),
            _ => node.as_text().map(str::to_owned),
        };
        match word.and_then(|word| unit::truth(&word)) {
            Some(flag) => faults.instead(node, &flag.to_string()),
            None => faults.expected(node, "true or false"),
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
            let meant = number.is_none().then(|| node.as_text().and_then(unit::meant_count));
            let bounds = format!("a number from {} to {}", self.min, self.max);
            let advice = meant.flatten().map(|meant| format!("write {meant}"));
            return faults.expected_or(node, &bounds, advice);
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
        if let Some(meant) = node.as_text().and_then(unit::meant_duration) {
            return faults.instead(node, &format!("\"{meant}\""));
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
            return faults.instead(node, &format!("\"{meant}\""));
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
        known.map(|(_, value)| *value).or_else(|| {
            let near = self.near(word).map(|near| format!("did you mean \"{near}\"?"));
            faults.expected_or(node, &self.listed(), near)
        })
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
    /// The word that is spelled alike.
    fn near(&self, word: &str) -> Option<&'static str> {
        let names: Vec<&'static str> = self.0.iter().map(|(name, _)| *name).collect();
        let same = names.iter().find(|name| name.eq_ignore_ascii_case(word)).copied();
        same.or_else(|| nearest(word, &names))
    }

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
        for fault in faults.found.iter_mut().skip(before) {
            let _ = write!(fault.text, ", or \"{}\"", self.0);
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
        let before = faults.found.len();
        let read: Vec<Option<T>> = nodes.iter().map(|node| self.of.read(node, faults)).collect();
        if faults.found.len() > before
            && let Some(list) = meant_list(node, faults, |one, faults| self.of.read(one, faults))
        {
            faults.found.truncate(before);
            return faults.instead(node, &list);
        }
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

/// The list that is meant by a single text with several values in it, such as `"a, b"`.
pub(super) fn meant_list<T>(
    node: &Node,
    faults: &Faults<'_>,
    read: impl Fn(&Node, &mut Faults<'_>) -> Option<T>,
) -> Option<String> {
    let mut unheard =
        Faults { environment: faults.environment, path: faults.path, found: Vec::new() };
    // A longer one is another mistake, and too much for a message.
    const LONGEST: usize = 256;
    let parts = node.as_text().filter(|text| text.len() <= LONGEST)?.split([',', ';', '|', ' ']);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let is_valid =
        |part: &&str| read(&Node::text(node.location.clone(), *part), &mut unheard).is_some();
    if parts.len() < 2 || !parts.iter().all(is_valid) {
        return None;
    }
    let quoted: Vec<String> = parts.iter().map(|part| string(part)).collect();
    Some(format!("[{}]", quoted.join(", ")))
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
