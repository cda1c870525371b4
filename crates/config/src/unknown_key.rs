//! What is said of a key that is not valid where it stands.

use super::key_paths::KeyPaths;
use super::node::{Node, Value};
use super::suggest::{LISTS, advice, called_elsewhere, nearest};

/// Keys at the top of a file that take a plain value.
const PLAIN: [&str; 6] = ["include", "threads", "listen", "origin", "store", "admin"];
/// What the sites of a further app are called in its own table, where they do not stand.
const NAMES_OF_SITES: [&str; 3] = ["hosts", "server_name", "domains"];

/// What to say of a key in the table at `path`, where these are `valid`.
pub(super) fn text(name: &str, node: &Node, path: &str, valid: &[&str]) -> String {
    if let Some(advice) = advice(path, name) {
        return format!("unknown key; {advice}");
    }
    if let (true, Some(pages)) = (path == "errors", error_page(name, node)) {
        return format!("unknown key; write {pages}");
    }
    if let Some(app) = path.strip_prefix("origins.").filter(|_| NAMES_OF_SITES.contains(&name)) {
        return format!(
            "unknown key; [origin] hosts names the sites of all apps, and a [[route]] with match.host and \
             origin = {app:?} leads to this one"
        );
    }
    let paths = KeyPaths::of_schema();
    // A key of a table within comes first, then what others call a key, then a key that is spelled alike.
    let here = paths.within(path, name).map(str::to_owned);
    let of_others = || called_elsewhere(path, name).map(|key| paths.place(path, key));
    if let Some(place) = here.or_else(of_others) {
        return format!("unknown key; did you mean {place}?");
    }
    if !path.is_empty() && paths.is_at_top(name) && fits_at_top(name, node) {
        return format!(
            "unknown key; write {name} above the first [table] of the file: a key below {} belongs to it",
            header(path)
        );
    }
    let alike = nearest(name, valid).map(|near| as_written(near, node, path));
    match alike.or_else(|| paths.elsewhere(name)) {
        Some(place) => format!("unknown key; did you mean {place}?"),
        None => format!("unknown key; valid here: {}", valid.join(", ")),
    }
}

/// `[errors] pages` with a page that was written beside it.
fn error_page(name: &str, node: &Node) -> Option<String> {
    let status = name.parse::<u16>().ok()?;
    node.as_text()?;
    Some(format!("pages = {{ {status} = {} }}", node.shown()))
}

/// Whether a value may be that of a key or a table at the top of the file.
fn fits_at_top(name: &str, node: &Node) -> bool {
    let is_table = |node: &Node| matches!(node.value, Value::Table(_));
    match &node.value {
        Value::Table(_) => true,
        Value::List(nodes) if !nodes.is_empty() => nodes.iter().all(is_table),
        _ => PLAIN.contains(&name),
    }
}

/// The name of a key; that of a table at the top of a file as its header.
fn as_written(name: &str, node: &Node, path: &str) -> String {
    let is_header = path.is_empty() && node.location.file().is_some();
    match &node.value {
        Value::Table(_) | Value::List(_) if is_header && LISTS.contains(&name) => {
            format!("[[{name}]]")
        }
        Value::Table(_) if is_header => format!("[{name}]"),
        _ => name.to_owned(),
    }
}

/// The header of the table at `path`.
fn header(path: &str) -> String {
    let (name, within) = path.split_once('[').unwrap_or((path, ""));
    match within.split_once(']') {
        Some((_, key)) => format!("[[{name}]]{key}"),
        None => format!("[{name}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::TomlTable;
    use crate::problem::SettingLocation;

    #[test]
    fn a_key_leads_to_the_place_where_it_belongs() {
        let place = || SettingLocation::Line(std::path::Path::new("a.toml").into(), 1);
        let of_text = || Node::text(place(), "x");
        let of_table = || Node::table(place(), TomlTable::new());
        let valid = ["cookie", "session", "route"];
        for (name, node, path, expected) in [
            ("cookies", Node::list(place(), vec![of_text()]), "session", "did you mean cookie?"),
            ("rooute", of_table(), "", "did you mean [[route]]?"),
            ("sessions", of_table(), "", "did you mean [session]?"),
            (
                "listen",
                of_text(),
                "cache",
                "write listen above the first [table] of the file: a key below [cache] belongs to it",
            ),
            (
                "session",
                of_table(),
                "route[2]",
                "write session above the first [table] of the file: a key below [[route]] belongs to it",
            ),
            (
                "hosts",
                Node::list(place(), vec![of_text()]),
                "origins.blog",
                "[origin] hosts names the sites of all apps, and a [[route]] with match.host and \
                 origin = \"blog\" leads to this one",
            ),
            ("502", of_text(), "errors", "write pages = { 502 = \"x\" }"),
        ] {
            let said = text(name, &node, path, &valid);
            assert_eq!(said, format!("unknown key; {expected}"), "{name}");
        }
    }
}
