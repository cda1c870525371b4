//! Forms that describe where a response contains a value, and tables in a value.

use ::http::HeaderName;
use anteroom_http::extract::{ExpectedValue, Extractor, ResponseMatcher};
use anteroom_http::pattern::Pattern;
use serde_json::Value as Json;

use super::shared::{count, expression};
use crate::form::{Faults, Flag, Form, List, Text, string};
use crate::node::{Node, TomlTable, Value};
use crate::shape;
use crate::suggest::nearest;
use crate::text;

/// The keys of a table in a value, each read by name.
pub(super) struct TableReader<'n> {
    table: &'n TomlTable,
    read_keys: Vec<&'static str>,
}

impl<'n> TableReader<'n> {
    pub(super) fn of(node: &'n Node, faults: &mut Faults<'_>, expected: &str) -> Option<Self> {
        match &node.value {
            Value::Table(table) => Some(Self { table, read_keys: Vec::new() }),
            _ => faults.expected(node, expected),
        }
    }

    pub(super) fn node(&mut self, name: &'static str) -> Option<&'n Node> {
        self.read_keys.push(name);
        self.table.get(name)
    }

    /// The value of a key. The outer `None`: the value is invalid; the inner one: the key is not set.
    pub(super) fn read<T>(
        &mut self,
        name: &'static str,
        form: &impl Form<T>,
        faults: &mut Faults<'_>,
    ) -> Option<Option<T>> {
        match self.node(name) {
            Some(node) => form.read(node, faults).map(Some),
            None => Some(None),
        }
    }

    /// Reports the keys that were not read.
    pub(super) fn end(self, faults: &mut Faults<'_>) -> Option<()> {
        let mut is_known = true;
        for (name, node) in self.table {
            if self.read_keys.contains(&name.as_str()) {
                continue;
            }
            let shown = name.escape_debug();
            is_known = false;
            let text = match nearest(name, &self.read_keys) {
                Some(near) => format!("unknown key {shown}; did you mean {near}?"),
                None => format!("unknown key {shown}; valid here: {}", self.read_keys.join(", ")),
            };
            faults.add::<()>(node, text);
        }
        is_known.then_some(())
    }
}

pub(super) fn pointer() -> Text<String> {
    let parse = |text: &str| match text.is_empty() || text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("a JSON pointer such as \"/user/name\"".to_owned()),
    };
    Text { parse, show: String::clone }
}

pub(super) fn field() -> Text<HeaderName> {
    let parse = |text: &str| {
        HeaderName::from_bytes(text.as_bytes()).map_err(|_| "the name of a field".to_owned())
    };
    Text { parse, show: |name| name.as_str().to_owned() }
}

pub(super) fn cookie() -> Text<Pattern> {
    Text { parse: text::pattern_of_values, show: ToString::to_string }
}

/// `{ json = "/name" }`, `{ header = "X-User" }`, `{ regex = "…" }`, and for the response to a login `{
/// set_cookie = "name", regex = "…", decode = true }`.
pub(super) struct ExtractorForm {
    pub(super) set_cookie: bool,
}

pub(super) const EXTRACTOR: &str =
    r#"a table such as { json = "/name" }, { header = "X-User" } or { regex = "…" }"#;

impl Form<Extractor> for ExtractorForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<Extractor> {
        let mut keys = TableReader::of(node, faults, EXTRACTOR)?;
        let json = keys.read("json", &pointer(), faults)?;
        let header = keys.read("header", &field(), faults)?;
        let regex = keys.read("regex", &expression(), faults)?;
        let (set_cookie, decode) = match self.set_cookie {
            true => {
                (keys.read("set_cookie", &cookie(), faults)?, keys.read("decode", &Flag, faults)?)
            }
            false => (None, None),
        };
        keys.end(faults)?;
        match (json, header, regex, set_cookie, decode) {
            (Some(pointer), None, None, None, None) => Some(Extractor::Json(pointer)),
            (None, Some(name), None, None, None) => Some(Extractor::Header(name)),
            (None, None, Some(expression), None, None) => Some(Extractor::Regex(expression)),
            (None, None, part, Some(name), decode) => {
                Some(Extractor::SetCookie { name, part, decode: decode.unwrap_or(false) })
            }
            _ => faults.expected(node, EXTRACTOR),
        }
    }

    fn write(&self, extractor: &Extractor) -> Option<String> {
        Some(match extractor {
            Extractor::Json(pointer) => format!("{{ json = {} }}", string(pointer)),
            Extractor::Header(name) => format!("{{ header = {} }}", string(name.as_str())),
            Extractor::Regex(regex) => format!("{{ regex = {} }}", string(regex.as_str())),
            Extractor::SetCookie { name, part, decode } => {
                let mut pairs = vec![format!("set_cookie = {}", string(&name.to_string()))];
                pairs.extend(part.as_ref().map(|one| format!("regex = {}", string(one.as_str()))));
                pairs.extend(decode.then(|| "decode = true".to_owned()));
                format!("{{ {} }}", pairs.join(", "))
            }
        })
    }

    fn shape(&self) -> Json {
        let plain = || [pointer().shape(), field().shape(), expression().shape()];
        let [json, header, regex] = plain();
        if !self.set_cookie {
            return shape::table(EXTRACTOR, [("json", json), ("header", header), ("regex", regex)]);
        }
        let cookie = [("set_cookie", cookie().shape()), ("decode", Flag.shape())];
        let [set_cookie, decode] = cookie;
        let keys = [("json", json), ("header", header), ("regex", regex), set_cookie, decode];
        shape::table(EXTRACTOR, keys)
    }
}

/// `{ status = [401] }`, `{ json = "/id", equals = 0 }` or `{ regex = "…" }`.
pub(super) struct ResponseMatcherForm;

const SIGN: &str =
    r#"a table such as { status = [401] }, { json = "/id", equals = 0 } or { regex = "…" }"#;

impl Form<ResponseMatcher> for ResponseMatcherForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<ResponseMatcher> {
        let mut keys = TableReader::of(node, faults, SIGN)?;
        let status = keys.read("status", &List::of(count(100, 999)), faults)?;
        let json = keys.read("json", &pointer(), faults)?;
        let equals = keys.read("equals", &ExpectedValueForm, faults)?;
        let regex = keys.read("regex", &expression(), faults)?;
        keys.end(faults)?;
        match (status, json, equals, regex) {
            (Some(status), None, None, None) if !status.is_empty() => {
                Some(ResponseMatcher::Status(status))
            }
            (None, Some(pointer), Some(plain), None) => Some(ResponseMatcher::Json(pointer, plain)),
            (None, None, None, Some(expression)) => Some(ResponseMatcher::Regex(expression)),
            _ => faults.expected(node, SIGN),
        }
    }

    fn write(&self, sign: &ResponseMatcher) -> Option<String> {
        Some(match sign {
            ResponseMatcher::Status(status) => format!("{{ status = {status:?} }}"),
            ResponseMatcher::Json(pointer, plain) => {
                let plain = ExpectedValueForm.write(plain)?;
                format!("{{ json = {}, equals = {plain} }}", string(pointer))
            }
            ResponseMatcher::Regex(regex) => format!("{{ regex = {} }}", string(regex.as_str())),
        })
    }

    fn shape(&self) -> Json {
        let status: List<u16, _> = List::of(count(100, 999));
        let keys = [
            ("status", status.shape()),
            ("json", pointer().shape()),
            ("equals", ExpectedValueForm.shape()),
            ("regex", expression().shape()),
        ];
        shape::table(SIGN, keys)
    }
}

/// A text, a whole number, `true` or `false`; the text `"null"` means JSON's `null`.
struct ExpectedValueForm;

impl Form<ExpectedValue> for ExpectedValueForm {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<ExpectedValue> {
        match &node.value {
            Value::Text(text) if text == "null" => Some(ExpectedValue::Null),
            Value::Text(text) => Some(ExpectedValue::Text(text.clone())),
            Value::Integer(number) => Some(ExpectedValue::Number(*number)),
            Value::Boolean(flag) => Some(ExpectedValue::Flag(*flag)),
            _ => faults.expected(node, r#"a text, a whole number, true, false or "null""#),
        }
    }

    fn write(&self, plain: &ExpectedValue) -> Option<String> {
        Some(match plain {
            ExpectedValue::Text(text) => string(text),
            ExpectedValue::Number(number) => number.to_string(),
            ExpectedValue::Flag(flag) => flag.to_string(),
            ExpectedValue::Null => string("null"),
        })
    }

    fn shape(&self) -> Json {
        let number = serde_json::json!({ "type": "integer", "title": "a whole number" });
        shape::any_of(&[shape::text("a text"), number, shape::flag()])
    }
}
