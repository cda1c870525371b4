//! Tables written as a bare value: `origin = "http://127.0.0.1:3000"` stands for `origin.url`.
//!
//! They are written out in the tree of settings, so that the reader knows tables only.

use super::node::{Node, TomlTable, Value};

/// Tables, and the key that a bare value stands for.
const TABLES: [(&str, &str); 3] = [("origin", "url"), ("store", "url"), ("admin", "address")];

/// The key that a bare value at this path stands for.
pub(super) fn key_of(path: &[&str]) -> Option<&'static str> {
    let [name] = path else { return None };
    TABLES.iter().find(|(table, _)| table == name).map(|(_, key)| *key)
}

/// The key that a bare value stands for, of the table at this path of the schema, such as `route[].match`.
pub(super) fn main_key(path: &str) -> Option<&'static str> {
    match path {
        "listen[]" => Some("address"),
        "listen[].tls" => Some("cert"),
        "route[].match" => Some("path"),
        path => key_of(&[path]),
    }
}

/// Writes every bare value out. A second time changes nothing.
pub(super) fn write_out(tree: &mut TomlTable) {
    for (name, key) in TABLES {
        if let Some(node) = tree.get_mut(name) {
            // A port alone is refused as the URL that it is not.
            if let ("origin", Value::Integer(port)) = (name, &node.value) {
                node.value = Value::Text(port.to_string());
            }
            wrap(node, key);
        }
    }
    if let Some(listen) = tree.get_mut("listen") {
        each(listen, |node| {
            write_port_out(node);
            wrap(node, "address");
            let Value::Table(keys) = &mut node.value else { return };
            if let Some(tls) = keys.get_mut("tls") {
                wrap_list(tls, "cert");
            }
        });
    }
    if let Some(routes) = tree.get_mut("route") {
        each(routes, |route| {
            let Value::Table(keys) = &mut route.value else { return };
            if let Some(matched) = keys.get_mut("match") {
                wrap_list(matched, "path");
            }
        });
    }
}

/// Makes a port an address: `8080` stands for `":8080"`, as in nginx. The form refuses one out of range.
fn write_port_out(node: &mut Node) {
    if let Value::Integer(port) = node.value {
        node.value = Value::Text(format!(":{port}"));
    }
}

/// Calls `change` with each value of a list, or with the single value.
fn each(node: &mut Node, change: impl Fn(&mut Node)) {
    match &mut node.value {
        Value::List(nodes) => nodes.iter_mut().for_each(change),
        _ => change(node),
    }
}

/// Makes a text a table with this key.
fn wrap(node: &mut Node, key: &str) {
    if node.as_text().is_some() {
        put(node, key);
    }
}

/// As [`wrap`], for a list, too.
fn wrap_list(node: &mut Node, key: &str) {
    if node.as_text().is_some() || matches!(node.value, Value::List(_)) {
        put(node, key);
    }
}

fn put(node: &mut Node, key: &str) {
    let location = node.location.clone();
    let value = std::mem::replace(node, Node::table(location, TomlTable::new()));
    if let Value::Table(table) = &mut node.value {
        table.insert(key.to_owned(), value);
    }
}
