//! The settings as they were said: a tree of values, each with the place that it came from.
//!
//! Knows TOML, and how sources are laid over each other; not which settings there are.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problem};

/// A value and where it was said.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
    /// The text of an environment variable as it came, for settings that are texts although
    /// this one reads as something else: a prefix of `123`.
    raw: Option<String>,
}

/// A TOML value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Table),
    /// What no setting is: dates, fractions, integers beyond 64 bits; as it was written.
    Other(String),
}

/// Named values.
pub(super) type Table = BTreeMap<String, Node>;

impl Node {
    pub(super) fn text(place: Place, text: impl Into<String>) -> Self {
        Self { place, value: Value::Text(text.into()), raw: None }
    }

    pub(super) fn table(place: Place, table: Table) -> Self {
        Self { place, value: Value::Table(table), raw: None }
    }

    pub(super) fn list(place: Place, nodes: Vec<Self>) -> Self {
        Self { place, value: Value::List(nodes), raw: None }
    }

    /// The value of an environment variable: TOML where it reads as TOML, else a text.
    pub(super) fn from_variable(name: &str, raw: &str) -> Self {
        let place = Place::Variable(name.to_owned());
        let value = match DeValue::parse(raw) {
            Ok(value) => convert(value.get_ref(), &|_| place.clone()),
            Err(_) => Value::Text(raw.to_owned()),
        };
        Self { place, value, raw: Some(raw.to_owned()) }
    }

    /// The text, where this is one.
    pub(super) fn as_text(&self) -> Option<&str> {
        match (&self.value, &self.raw) {
            (Value::Text(text), _) => Some(text),
            (Value::List(_) | Value::Table(_), _) => None,
            (_, raw) => raw.as_deref(),
        }
    }

    /// The values of a list; one value stands for a list of it.
    pub(super) fn as_list(&self) -> &[Self] {
        match &self.value {
            Value::List(nodes) => nodes,
            _ => std::slice::from_ref(self),
        }
    }

    /// What was found, for a person: short, printable, and without the password of a URL.
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

/// Puts `node` at `path`, in place of what stood there.
pub(super) fn lay_over(table: &mut Table, path: &[&str], node: Node) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut table = table;
    for name in parents {
        let parent = table
            .entry((*name).to_owned())
            .or_insert_with(|| Node::table(node.place.clone(), Table::new()));
        if !matches!(parent.value, Value::Table(_)) {
            *parent = Node::table(node.place.clone(), Table::new());
        }
        let Value::Table(inner) = &mut parent.value else { return };
        table = inner;
    }
    table.insert((*last).to_owned(), node);
}

/// The settings in the text of a file.
///
/// # Errors
/// Every place where the text is not TOML. What is left is not looked at: the rest of a broken
/// file cannot be trusted to mean what it seems to.
pub(super) fn parse_file(path: &Path, text: &str) -> Result<Table, Vec<Problem>> {
    let path: Arc<Path> = path.into();
    let starts: Vec<usize> =
        std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let place = |offset: usize| {
        Place::Line(Arc::clone(&path), starts.partition_point(|start| *start <= offset))
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(convert_table(table.get_ref(), &place));
    }
    // The end of a text without a last newline may be given as one byte behind it.
    let at = |error: &toml::de::Error| error.span().map_or(0, |span| span.start.min(text.len()));
    let mut problems: Vec<Problem> =
        errors.iter().map(|e| Problem::new(place(at(e)), "", syntax(e))).collect();
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    Err(problems)
}

fn syntax(error: &toml::de::Error) -> String {
    format!("not TOML: {}", error.message().replace('\n', "; "))
}

fn convert_table(table: &DeTable<'_>, place: &impl Fn(usize) -> Place) -> Table {
    table
        .iter()
        .map(|(name, value)| {
            let node = Node {
                place: place(name.span().start),
                value: convert(value.get_ref(), place),
                raw: None,
            };
            (name.get_ref().clone().into_owned(), node)
        })
        .collect()
}

fn convert(value: &DeValue<'_>, place: &impl Fn(usize) -> Place) -> Value {
    let item = |value: &Spanned<DeValue<'_>>| Node {
        place: place(value.span().start),
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

/// `text` as a TOML string, cut where it is long: for messages, not for files.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", shortened(text))
}

/// Shows the beginning, with control characters escaped so that a message stays on its line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 60;
    let cut = text.chars().nth(SHOWN).is_some();
    let head: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if cut { head + "…" } else { head }
}

/// What stands for a password wherever one would be shown.
pub(super) const HIDDEN: &str = "(hidden)";

/// `url` with its password hidden: what stands between `://` and the last `@` (a password that
/// nobody encoded may hold an `@` or a `/` of its own), and a query parameter `pass`.
pub(super) fn without_password(url: &str) -> Cow<'_, str> {
    // Not the first colon: "webhook:" may stand before the scheme.
    let is_scheme = |(scheme, _): &(&str, &str)| !scheme.contains(['/', '?', '@']);
    let parts = url.split_once("://").filter(is_scheme);
    if let Some((scheme, (credentials, host))) =
        parts.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)))
    {
        let user = credentials.split_once(':').map_or("", |(user, _)| user);
        return format!("{scheme}://{user}:{HIDDEN}@{host}").into();
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
