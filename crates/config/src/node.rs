//! The settings as a tree of values, each with the place that it came from.
//!
//! Knows TOML, and how sources are merged, but not the settings themselves.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, SettingLocation};
use super::syntax::{self, Lines};

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) location: SettingLocation,
    pub(super) value: Value,
    /// The raw text of an environment variable, for text settings with a value that parses as something
    /// else, such as a prefix of `123`.
    raw: Option<String>,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
    List(Vec<Node>),
    Table(TomlTable),
    /// A value that fits no setting: a date, a fraction, an integer beyond 64 bits; as written.
    Other(String),
}

/// Named values.
pub(super) type TomlTable = BTreeMap<String, Node>;

impl Node {
    pub(super) fn text(place: SettingLocation, text: impl Into<String>) -> Self {
        Self { location: place, value: Value::Text(text.into()), raw: None }
    }

    pub(super) fn table(place: SettingLocation, table: TomlTable) -> Self {
        Self { location: place, value: Value::Table(table), raw: None }
    }

    pub(super) fn list(place: SettingLocation, nodes: Vec<Self>) -> Self {
        Self { location: place, value: Value::List(nodes), raw: None }
    }

    /// The value of an environment variable: TOML if it parses as TOML, otherwise a text.
    pub(super) fn from_variable(name: &str, raw: &str) -> Self {
        let place = SettingLocation::Variable(name.to_owned());
        let value = match DeValue::parse(raw) {
            Ok(value) => convert(value.get_ref(), &|_| place.clone()),
            Err(_) => Value::Text(raw.to_owned()),
        };
        Self { location: place, value, raw: Some(raw.to_owned()) }
    }

    /// The text, if this is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match (&self.value, &self.raw) {
            (Value::Text(text), _) => Some(text),
            (Value::List(_) | Value::Table(_), _) => None,
            (_, raw) => raw.as_deref(),
        }
    }

    /// The values of a list; a single value counts as a list.
    pub(super) fn as_list(&self) -> &[Self] {
        match &self.value {
            Value::List(nodes) => nodes,
            _ => std::slice::from_ref(self),
        }
    }

    /// As [`Self::as_list`], by value.
    pub(super) fn into_list(self) -> Vec<Self> {
        match self.value {
            Value::List(nodes) => nodes,
            _ => vec![self],
        }
    }

    /// The value for a message: short, printable, and without the password of a URL.
    pub(super) fn shown(&self) -> String {
        match &self.value {
            Value::Text(text) => quoted(&without_password(text)),
            Value::Integer(number) => number.to_string(),
            Value::Boolean(flag) => flag.to_string(),
            Value::List(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            Value::Other(written) => shortened(written),
        }
    }
}

/// Puts `node` at `path`, replacing what is there.
pub(super) fn lay_over(table: &mut TomlTable, path: &[&str], node: Node) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut table = table;
    for name in parents {
        let parent = table
            .entry((*name).to_owned())
            .or_insert_with(|| Node::table(node.location.clone(), TomlTable::new()));
        if !matches!(parent.value, Value::Table(_)) {
            *parent = Node::table(node.location.clone(), TomlTable::new());
        }
        let Value::Table(inner) = &mut parent.value else { return };
        table = inner;
    }
    table.insert((*last).to_owned(), node);
}

/// Parses the text of a file.
///
/// # Errors
/// Every line where the text is not TOML. The remaining settings are not read, because the rest of a
/// broken file is unreliable.
pub(super) fn parse_file(path: &Path, text: &str) -> Result<TomlTable, Vec<Problem>> {
    let lines = Lines::of(path, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(convert_table(table.get_ref(), &|offset| lines.place(offset)));
    }
    Err(syntax::problems(&lines, &errors))
}

fn convert_table(table: &DeTable<'_>, place: &impl Fn(usize) -> SettingLocation) -> TomlTable {
    table
        .iter()
        .map(|(name, value)| {
            let node = Node {
                location: place(name.span().start),
                value: convert(value.get_ref(), place),
                raw: None,
            };
            (name.get_ref().clone().into_owned(), node)
        })
        .collect()
}

fn convert(value: &DeValue<'_>, place: &impl Fn(usize) -> SettingLocation) -> Value {
    let item = |value: &Spanned<DeValue<'_>>| Node {
        location: place(value.span().start),
        value: convert(value.get_ref(), place),
        raw: None,
    };
    match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Other(number.to_string()), Value::Integer),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Float(number) => Value::Other(number.to_string()),
        DeValue::Datetime(date) => Value::Other(date.to_string()),
        DeValue::Array(values) => Value::List(values.iter().map(item).collect()),
        DeValue::Table(table) => Value::Table(convert_table(table, place)),
    }
}

/// `text` as a TOML string, shortened if long: for messages, not for files.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// The beginning of a text, with control characters escaped, so that a message stays on one line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    let cut = text.chars().nth(SHOWN).is_some();
    let head: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if cut { head + "…" } else { head }
}

/// Replaces a password wherever one would be shown.
pub(super) const HIDDEN: &str = "(hidden)";

/// `url` with its password hidden: the text between `://` and the last `@` (an unencoded password may
/// contain `@` or `/`), and the query parameter `pass`.
pub(super) fn without_password(url: &str) -> Cow<'_, str> {
    // The login at Sentinels is a part of the query, and stands after the other.
    if let Some((before, after)) = url.split_once("sentinel_password=") {
        let before = without_password(before);
        let others = after.split_once('&').map_or(String::new(), |(_, more)| format!("&{more}"));
        return format!("{before}sentinel_password={HIDDEN}{others}").into();
    }
    // The first colon may belong to a leading "webhook:".
    let is_scheme = |(scheme, _): &(&str, &str)| !scheme.contains(['/', '?', '@']);
    let parts = url.split_once("://").filter(is_scheme);
    if let Some((scheme, (credentials, host))) =
        parts.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)))
    {
        let user = credentials.split_once(':').map_or("", |(user, _)| user);
        return format!("{scheme}://{user}:{HIDDEN}@{host}").into();
    }
    if let (None, Some((credentials, host))) = (parts, url.rsplit_once('@'))
        && let Some((user, _)) = credentials.split_once(':')
        && !credentials.contains(['/', '?'])
    {
        return format!("{user}:{HIDDEN}@{host}").into();
    }
    match url.split_once("pass=") {
        Some((before, after)) => {
            let others =
                after.split_once('&').map_or(String::new(), |(_, more)| format!("&{more}"));
            format!("{before}pass={HIDDEN}{others}").into()
        }
        None => url.into(),
    }
}
