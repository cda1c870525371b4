//! Writes what was learned into a configuration, and leaves the rest of its text as it is.

mod routes;

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, TomlError, Value};

use self::routes::LearnedRoutes;

/// A proposal, as the report has it.
#[derive(Clone, Copy, Debug)]
pub struct LearnedLines<'p> {
    /// Why.
    pub reason: &'p str,
    /// The lines.
    pub toml: &'p str,
    /// The route whose other keys a `[[route]]` among them keeps.
    pub route: Option<&'p str>,
}

/// The configuration `text` with the lines of the proposals, and `[cache] mode`: what no route matches is served if
/// `serves_rest` and each route has its place, and learns on otherwise.
///
/// Names that a list lacks are added to it, and those that the proposal lacks go. A `[[route]]` comes before the one whose
/// pages it takes, with a copy of that one's keys, because the first that matches decides; another comes last. Lines
/// that are comments stand at the end.
///
/// # Errors
/// If the text, or a proposal, is no TOML.
pub fn learned_config<'p>(
    text: &str,
    proposals: impl Iterator<Item = LearnedLines<'p>>,
    serves_rest: bool,
) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let (mut routes, mut remarks) = (LearnedRoutes::of(&document), String::new());
    let mut is_complete = true;
    for LearnedLines { reason, toml, route } in proposals {
        let reason = comment(reason);
        if toml.starts_with('#') {
            remarks += &format!("\n{reason}{toml}\n");
        } else if toml.starts_with("[[route]]") {
            let lines: DocumentMut = toml.parse()?;
            if !routes.add(&reason, &lines, route) {
                is_complete = false;
                // The keys of that route are not in this file.
                let lines = toml.lines().map(|line| format!("# {line}\n"));
                remarks += &format!("\n{reason}{}", lines.collect::<String>());
            }
        } else {
            set_keys(&mut document, &toml.parse()?, &reason);
        }
    }
    // What must not be shared, and cannot be said here, is not served.
    let serves_rest = serves_rest && is_complete;
    let learns = !serves_rest || routes.learn();
    end_learning(&mut document, serves_rest, learns)?;
    routes.put_inline(&mut document);
    let written = format!("{}\n{remarks}", routes.put(&document.to_string())?.trim_end());
    let has_crlf = text.contains("\r\n");
    let plain = written.replace("\r\n", "\n");
    Ok(if has_crlf { plain.replace('\n', "\r\n") } else { plain })
}

/// Ends learning where it ends, and what belongs to it and would be a mistake without it. `learns`: whether what no route
/// matches, or a learned route, learns on.
fn end_learning(
    document: &mut DocumentMut,
    serves_rest: bool,
    learns: bool,
) -> Result<(), TomlError> {
    let mode = if serves_rest { "serve" } else { "learn" };
    set_keys(document, &format!("[cache]\nmode = \"{mode}\"").parse()?, "");
    let still_learns = learns || routes::any(document, routes::learns);
    let Some(learn) = document.get_mut("learn").and_then(Item::as_table_like_mut) else {
        return Ok(());
    };
    for (key, ends) in [("mirror", true), ("probe", !still_learns)] {
        if ends && learn.contains_key(key) {
            set(learn, key, &Value::from(false));
        }
    }
    Ok(())
}

/// Sets each key of the tables of `from`, with the comment above it.
fn set_keys(document: &mut DocumentMut, from: &DocumentMut, comment: &str) {
    for (section, item) in from.iter() {
        let Some(keys) = item.as_table() else { continue };
        let entry = document.entry(section).or_insert_with(|| Item::Table(Table::new()));
        let is_inline = entry.is_inline_table();
        let Some(table) = entry.as_table_like_mut() else { continue };
        for (key, value) in keys.iter() {
            let Some(value) = value.as_value() else { continue };
            set(table, key, value);
            if let (false, Some(mut key)) = (is_inline, table.key_mut(key)) {
                add_comment(key.leaf_decor_mut(), comment);
            }
        }
        if let (true, Some(mut key)) = (is_inline, document.key_mut(section)) {
            add_comment(key.leaf_decor_mut(), comment);
        }
    }
}

/// Adds a comment to those above a key.
fn add_comment(decor: &mut toml_edit::Decor, comment: &str) {
    let before = decor.prefix().and_then(|text| text.as_str()).unwrap_or_default();
    let before = before.to_owned();
    decor.set_prefix(format!("{before}{comment}"));
}

/// Sets a key, and keeps the comments of its value.
fn set(table: &mut dyn TableLike, key: &str, value: &Value) {
    let known = table.get_mut(key).and_then(Item::as_value_mut);
    match (known, value) {
        (Some(Value::Array(list)), Value::Array(wanted)) => change(list, wanted),
        (Some(known), _) => {
            let decor = known.decor().clone();
            *known = value.clone();
            *known.decor_mut() = decor;
        }
        (None, _) => {
            let mut value = value.clone();
            value.decor_mut().set_prefix(" ");
            value.decor_mut().set_suffix("");
            table.insert(key, Item::Value(value));
        }
    }
}

/// Changes a list to the wanted names. Those that stay keep their lines.
fn change(list: &mut Array, wanted: &Array) {
    let names =
        |list: &Array| list.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let all = names(wanted);
    list.retain(|value| value.as_str().is_some_and(|name| all.iter().any(|one| one == name)));
    let known = names(list);
    for name in all.iter().filter(|name| !known.contains(name)) {
        list.push(name.as_str());
    }
    if names(list) != all {
        // The order of session cookies is their rank.
        let decor = list.decor().clone();
        *list = wanted.clone();
        *list.decor_mut() = decor;
    }
}

/// A reason as a comment. Names in it are text of visitors: it stays on one line.
fn comment(reason: &str) -> String {
    let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# Learned: {line}\n")
}

#[cfg(test)]
mod tests;
