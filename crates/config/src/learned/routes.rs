//! The `[[route]]` tables that were learned, and where they go.

use toml_edit::{
    Array, ArrayOfTables, Document, DocumentMut, Item, Table, TableLike, TomlError, Value,
};

use crate::text::NAME_MAX;

/// Keys that mean nothing where nothing is shared, or are refused there.
const OF_SHARED: [&str; 13] = [
    "ttl",
    "override_ttl",
    "override_private",
    "fragments",
    "segment",
    "segment_proof",
    "audit",
    "refresh_ahead",
    "min_uses",
    "only_top",
    "leak_guard",
    "set_cookie",
    "trust_public",
];

/// The learned routes of a configuration.
pub(super) struct LearnedRoutes {
    /// The names of the routes in the file, and the keys of each.
    known: Vec<(String, Table)>,
    /// Each learned route with its comment, and the place of the one that it comes before; `None`: it comes last.
    learned: Vec<(Option<usize>, String, Table)>,
}

impl LearnedRoutes {
    pub(super) fn of(document: &DocumentMut) -> Self {
        let mut known = Vec::new();
        each(document, |route| {
            let keys = route.iter().map(|(key, item)| (key.to_owned(), item.clone()));
            let mut table = Table::new();
            keys.for_each(|(key, item)| drop(table.insert(&key, item)));
            known.push((name(route), table));
        });
        Self { known, learned: Vec::new() }
    }

    /// Adds the learned route `lines`. `route`: the one whose pages it takes. False: that is not in this file.
    pub(super) fn add(&mut self, comment: &str, lines: &DocumentMut, route: Option<&str>) -> bool {
        let lines = lines.get("route").and_then(Item::as_array_of_tables);
        let Some(lines) = lines.and_then(|tables| tables.get(0)) else { return false };
        let named = |name: &str| self.known.iter().filter(|(known, _)| known == name).count();
        // Of two routes of one name, neither is meant for sure.
        let place = route.map(|name| {
            let only = named(name) == 1;
            self.known.iter().position(|(known, _)| only && known == name)
        });
        let table = match place {
            None => lines.clone(),
            Some(Some(place)) => merged(&self.known[place].1, lines),
            Some(None) => return false,
        };
        self.learned.push((place.flatten(), comment.to_owned(), table));
        true
    }

    /// Whether one of them learns on.
    pub(super) fn learn(&self) -> bool {
        self.learned.iter().any(|(_, _, route)| learns(route))
    }

    /// Puts them into `route = [{ … }]`, if the file has its routes so.
    pub(super) fn put_inline(&mut self, document: &mut DocumentMut) {
        let Some(list) = document.get_mut("route").and_then(Item::as_array_mut) else { return };
        // From behind, so that the places before stay.
        let mut learned = std::mem::take(&mut self.learned);
        learned.sort_by_key(|(place, ..)| std::cmp::Reverse(place.unwrap_or(usize::MAX)));
        for (place, comment, mut table) in learned {
            plain(&mut table);
            let mut value = Value::InlineTable(table.into_inline_table());
            value.decor_mut().set_prefix(format!("\n{comment}"));
            list.insert_formatted(place.unwrap_or(list.len()).min(list.len()), value);
        }
    }

    /// The text with them.
    pub(super) fn put(self, text: &str) -> Result<String, TomlError> {
        let spans = headers(text)?;
        let mut written = text.trim_end().to_owned() + "\n";
        let (before, last): (Vec<_>, Vec<_>) =
            self.learned.into_iter().partition(|(place, ..)| place.is_some());
        for (_, comment, table) in last {
            written += &format!("\n{}", lines(&comment, table));
        }
        let mut before: Vec<_> = before
            .into_iter()
            .filter_map(|(place, comment, table)| {
                let at = spans.get(place?)?;
                Some((above(text, *at), lines(&comment, table)))
            })
            .collect();
        before.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, lines) in before {
            written.insert_str(at, &format!("{lines}\n"));
        }
        Ok(written)
    }
}

/// Whether a route learns.
pub(super) fn learns(route: &dyn TableLike) -> bool {
    route.get("mode").and_then(Item::as_str) == Some("learn")
}

/// Whether a route of the file is so.
pub(super) fn any(document: &DocumentMut, is_one: impl Fn(&dyn TableLike) -> bool) -> bool {
    let mut found = false;
    each(document, |route| found |= is_one(route));
    found
}

fn each(document: &DocumentMut, mut see: impl FnMut(&dyn TableLike)) {
    match document.get("route") {
        Some(Item::ArrayOfTables(tables)) => tables.iter().for_each(|table| see(table)),
        Some(Item::Value(Value::Array(list))) => {
            list.iter().filter_map(Value::as_inline_table).for_each(|table| see(table));
        }
        Some(_) | None => {}
    }
}

/// The name of a route: that which it has, or its first path.
fn name(route: &dyn TableLike) -> String {
    let first = |item: &Item| match item.as_array() {
        Some(list) => list.get(0).and_then(Value::as_str).map(str::to_owned),
        None => item.as_str().map(str::to_owned),
    };
    let path = |item: &Item| match item.as_table_like() {
        Some(table) => table.get("path").and_then(first),
        None => first(item),
    };
    let own = route.get("name").and_then(Item::as_str).map(str::to_owned);
    let first = || route.get("match").and_then(path).unwrap_or_else(|| "/**".to_owned());
    own.unwrap_or_else(|| first().chars().take(NAME_MAX).collect())
}

/// The keys of a route, with those of a learned one in their place.
fn merged(route: &Table, learned: &Table) -> Table {
    let mut merged = route.clone();
    merged.remove("name");
    if learned.get("share").is_some() {
        OF_SHARED.iter().for_each(|key| drop(merged.remove(key)));
    }
    for (key, item) in learned.iter() {
        let known = merged.get_mut(key);
        match (known.and_then(Item::as_table_like_mut), item.as_table_like()) {
            (Some(table), Some(from)) => {
                from.iter().for_each(|(key, item)| drop(table.insert(key, item.clone())));
            }
            _ => match merged.get_mut(key).and_then(as_list) {
                Some(list) if item.is_array() => add(list, item),
                _ => drop(merged.insert(key, item.clone())),
            },
        }
    }
    merged
}

/// A list, or one text that stands for a list of it.
fn as_list(item: &mut Item) -> Option<&mut Array> {
    if let Some(text) = item.as_str() {
        let list: Array = [text].into_iter().collect();
        *item = Item::Value(Value::Array(list));
    }
    item.as_array_mut()
}

/// Adds the names of a list.
fn add(list: &mut Array, item: &Item) {
    for value in item.as_array().into_iter().flatten() {
        if !list.iter().any(|known| known.as_str() == value.as_str()) {
            list.push(value.as_str().unwrap_or_default());
        }
    }
}

/// A route as text, with its comment above.
fn lines(comment: &str, mut table: Table) -> String {
    plain(&mut table);
    let (mut document, mut tables) = (DocumentMut::new(), ArrayOfTables::new());
    tables.push(table);
    document.insert("route", Item::ArrayOfTables(tables));
    format!("{comment}{}", document.to_string().trim_start())
}

/// A table without the comments and the place of the one that it is a copy of.
fn plain(table: &mut Table) {
    table.decor_mut().clear();
    table.set_position(None);
    for (mut key, item) in table.iter_mut() {
        key.leaf_decor_mut().clear();
        if let Some(value) = item.as_value_mut() {
            value.decor_mut().clear();
        }
        if let Some(inner) = item.as_table_mut() {
            plain(inner);
        }
    }
}

/// Where the header of each `[[route]]` begins.
fn headers(text: &str) -> Result<Vec<usize>, TomlError> {
    let document = Document::parse(text)?;
    let tables = document.get("route").and_then(Item::as_array_of_tables);
    let spans = tables.into_iter().flat_map(ArrayOfTables::iter).filter_map(Table::span);
    Ok(spans.map(|span| span.start).collect())
}

/// Where the comment right above a header begins, or the header.
fn above(text: &str, header: usize) -> usize {
    let mut at = text[..header].rfind('\n').map_or(0, |end| end + 1);
    while let Some(end) = text[..at].strip_suffix('\n') {
        let start = end.rfind('\n').map_or(0, |end| end + 1);
        if !end[start..].trim_start().starts_with('#') {
            break;
        }
        at = start;
    }
    at
}
