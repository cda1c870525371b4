//! What to write in place of a line that is not TOML.

use crate::unit;

/// Quotes of word processors.
const TYPOGRAPHIC: [char; 8] = ['“', '”', '„', '‟', '‘', '’', '«', '»'];

/// What is wrong with a line, and what to write; `said` is what the parser says of it.
pub(super) fn advice(line: &str, said: &str) -> Option<String> {
    if !is_shown(line) {
        return None;
    }
    if line.contains(TYPOGRAPHIC) {
        let plain = line.replace(TYPOGRAPHIC, "\"");
        return Some(format!("typographic quotes are no quotes; write {plain}"));
    }
    if let Some(comment) = line.strip_prefix("//") {
        return Some(format!("a comment begins with #; write #{comment}"));
    }
    if said.contains("dotted key") {
        let table = line.split('.').next().unwrap_or_default();
        let key = main_key(table);
        return Some(format!(
            "{table} has a value already; write {table}.{key} = … in its place, and keep this line"
        ));
    }
    if let Some(header) = header(line) {
        return Some(format!("the header of a table is not closed; write {header}"));
    }
    let ended = line.trim_end_matches(';').trim_end();
    match split(ended)? {
        Assignment { key, value, sign } if sign != "=" => {
            Some(format!("a key and its value are joined by =; write {key} = {}", written(value)))
        }
        Assignment { key, value, .. } => of_value(key, value, said).or_else(|| {
            let is_ended = ended.len() < line.len();
            is_ended.then(|| format!("a line does not end in a semicolon; write {ended}"))
        }),
    }
}

/// Whether a message may repeat the line: it is short, and holds no password or token.
pub(super) fn is_shown(line: &str) -> bool {
    const LONGEST: usize = 200;
    let lower = line.to_ascii_lowercase();
    let is_secret = ["@", "pass", "token", "secret"].iter().any(|word| lower.contains(word));
    line.len() <= LONGEST && !is_secret && !line.contains(char::is_control)
}

/// A line with a key and a value.
struct Assignment<'a> {
    key: &'a str,
    value: &'a str,
    /// What stands between them: `=`, `:` or a space.
    sign: &'a str,
}

/// Splits a line such as `a = 1`, `a: 1` or `a 1`.
fn split(line: &str) -> Option<Assignment<'_>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let end = line.find(|c| !is_name(c)).filter(|end| *end > 0)?;
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let (sign, value) = match rest.strip_prefix('=') {
        Some(value) => ("=", value),
        None => match rest.strip_prefix(':') {
            Some(value) => (":", value),
            None => (" ", rest),
        },
    };
    let value = value.trim();
    // A second key or a block is another mistake than a missing sign.
    let is_plain = sign == "=" || !value.contains(['=', '{', '}']);
    (is_plain && !value.is_empty()).then_some(Assignment { key, value, sign })
}

fn of_value(key: &str, value: &str, said: &str) -> Option<String> {
    let first = value.chars().next()?;
    if said.contains("escaped value") {
        let inner = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let example = inner.filter(|inner| !inner.contains(['"', '\'']));
        let example = example.map_or(String::new(), |inner| format!(": {key} = '{inner}'"));
        return Some(format!(
            "a \\ in \"…\" begins an escape; write single quotes, which have none{example}"
        ));
    }
    if matches!(first, '"' | '\'') {
        let inner = value.trim_matches(['"', '\'']);
        let is_closed = value.len() > 1 && value.ends_with(first);
        let is_plain = !inner.contains(['"', '\'', '\\']);
        return (!is_closed && is_plain).then(|| {
            format!("a text ends with the quote that it begins with; write {key} = \"{inner}\"")
        });
    }
    let is_bare = !matches!(first, '[' | '{' | '=') && !value.contains(['"', '\'']);
    is_bare.then(|| match unit::truth(value) {
        Some(flag) => format!("found {value}; write {key} = {flag}"),
        None => format!("a text needs quotes; write {key} = {}", written(value)),
    })
}

/// A value as TOML has it.
fn written(value: &str) -> String {
    let value = value.split(" #").next().unwrap_or_default().trim();
    if value.starts_with(['"', '\'', '[']) || value.parse::<u64>().is_ok() {
        return value.to_owned();
    }
    if let Some(flag) = unit::truth(value) {
        return flag.to_string();
    }
    // Both have an m: as a duration it is valid.
    let size = unit::meant_size(value).filter(|_| unit::duration(value).is_none());
    format!("\"{}\"", size.as_deref().unwrap_or(value))
}

/// The key that the value of a table written as a bare value stands for.
pub(super) fn main_key(table: &str) -> &'static str {
    match table {
        "match" => "path",
        "listen" | "admin" => "address",
        _ => "url",
    }
}

/// The header that was begun, as in `[cache` and `[[route]`.
fn header(line: &str) -> Option<String> {
    let name = line.trim_start_matches('[');
    let open = line.len() - name.len();
    let name = name.trim_end_matches(']');
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_name = !name.is_empty() && name.chars().all(fits);
    match open {
        1 if is_name => Some(format!("[{name}]")),
        2 if is_name => Some(format!("[[{name}]]")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_toml_is_written_as_it_should_be() {
        for (line, expected) in [
            ("url = http://a:1", "a text needs quotes; write url = \"http://a:1\""),
            ("ttl = 5m # short", "a text needs quotes; write ttl = \"5m\""),
            ("memory = 256MB", "a text needs quotes; write memory = \"256MiB\""),
            ("h2 = on", "found on; write h2 = true"),
            ("h2 = False", "found False; write h2 = false"),
            ("a = “b”", "typographic quotes are no quotes; write a = \"b\""),
            ("// why", "a comment begins with #; write # why"),
            ("[cache", "the header of a table is not closed; write [cache]"),
            ("[[route]", "the header of a table is not closed; write [[route]]"),
            ("a: b", "a key and its value are joined by =; write a = \"b\""),
            ("a \"b\"", "a key and its value are joined by =; write a = \"b\""),
            ("listen 80;", "a key and its value are joined by =; write listen = 80"),
            ("gzip on;", "a key and its value are joined by =; write gzip = true"),
            ("a = \"b\";", "a line does not end in a semicolon; write a = \"b\""),
            ("a = 'b\"", "a text ends with the quote that it begins with; write a = \"b\""),
            ("a = \"b", "a text ends with the quote that it begins with; write a = \"b\""),
        ] {
            assert_eq!(advice(line, "").as_deref(), Some(expected), "{line}");
        }
        for line in [
            "",
            "x",
            "= 1",
            "a = = 2",
            "a = [1",
            "server {",
            "a b = c",
            "}",
            "store = redis://:hunter2@a",
            "token = hunter2",
            "a = b\u{7}",
        ] {
            assert_eq!(advice(line, ""), None, "{line}");
        }
    }

    #[test]
    fn a_backslash_leads_to_single_quotes() {
        let start = "a \\ in \"…\" begins an escape; write single quotes, which have none";
        for (line, end) in [
            (r#"a = "~^/\d+$""#, r": a = '~^/\d+$'"),
            (r#"a = "it's \d""#, ""),
            (r#"a = ["\d"]"#, ""),
        ] {
            let expected = format!("{start}{end}");
            assert_eq!(advice(line, "missing escaped value"), Some(expected), "{line}");
        }
    }
}
