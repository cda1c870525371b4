//! What the shipped `proxy.toml` says of each key, for the schema.

use std::collections::BTreeMap;

/// The shipped file.
const SHIPPED: &str = include_str!("../../../proxy.toml");

/// A comment of the shipped file, with the keys below it.
#[derive(Debug, Default)]
struct KeyGroup {
    /// The table of the keys, such as `route[]`; `""` is the top.
    table: String,
    /// The paths of the keys: `route[].match.path`. None, when the comment describes the table.
    keys: Vec<String>,
    /// The comment, with its line ends.
    text: String,
}

/// All comments of the shipped file that describe keys or tables, in order.
fn key_groups() -> Vec<KeyGroup> {
    let mut groups: Vec<KeyGroup> = Vec::new();
    let mut table = String::new();
    let mut current = KeyGroup::default();
    for line in SHIPPED.lines() {
        let said = line.strip_prefix('#').unwrap_or(line);
        if line.is_empty() || (said.starts_with(' ') && !current.keys.is_empty()) {
            finish(&mut groups, &mut current, &table);
        }
        if let Some(text) = said.strip_prefix(' ') {
            current.text.push_str(text);
            current.text.push('\n');
        } else if let Some(header) = said.strip_prefix('[') {
            table = table_of(header);
            finish(&mut groups, &mut current, &table);
        } else if let Some((key, _)) = said.split_once(" = ") {
            let within = if table.is_empty() { String::new() } else { format!("{table}.") };
            current.keys.push(format!("{within}{key}"));
        }
    }
    finish(&mut groups, &mut current, &table);
    // The head of the file belongs to no key.
    groups.retain(|group| !group.keys.is_empty() || !group.table.is_empty());
    groups
}

/// What the shipped file says of each key and table, by its path.
pub(super) fn descriptions() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for group in key_groups() {
        // What is true of the file only.
        let text = group.text.replace("No default; an example.", "");
        let text = text.trim_end().to_owned();
        match group.keys.as_slice() {
            [] => drop(found.entry(group.table).or_insert(text)),
            // A further example shows a key again without a comment.
            keys if text.is_empty() => {
                for key in keys {
                    found.entry(key.clone()).or_default();
                }
            }
            keys => found.extend(keys.iter().map(|key| (key.clone(), text.clone()))),
        }
    }
    found
}

fn finish(groups: &mut Vec<KeyGroup>, current: &mut KeyGroup, table: &str) {
    let done = std::mem::take(current);
    if !done.text.is_empty() || !done.keys.is_empty() {
        groups.push(KeyGroup { table: table.to_owned(), ..done });
    }
}

/// The path of a table from the rest of its header: `[route]]` is `route[]`, `origins.blog]` is `origins.NAME`.
fn table_of(header: &str) -> String {
    match (header.strip_prefix('['), header.trim_end_matches(']')) {
        (Some(list), _) => format!("{}[]", list.trim_end_matches(']')),
        (None, table) if table.starts_with("origins.") => "origins.NAME".to_owned(),
        (None, table) if table.starts_with("databases.") => "databases.NAME".to_owned(),
        (None, table) => table.to_owned(),
    }
}
