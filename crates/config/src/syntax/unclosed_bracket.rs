//! Finds a `{` or `[` of a value that is left open, for which the parser reports the lines behind it.

/// A bracket that is not closed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnclosedBracket {
    /// Its offset.
    pub(super) at: usize,
    pub(super) text: String,
}

/// The bracket of a value that is open where the next table or key begins, or at the end of the text.
pub(super) fn find(text: &str) -> Option<UnclosedBracket> {
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if !open.is_empty() && begins_anew(line.trim(), &open) {
            break;
        }
        if open.is_empty() && line.trim_start().starts_with('[') {
            start += line.len();
            continue;
        }
        // A text over several lines may hold any bracket.
        if line.contains("\"\"\"") || line.contains("'''") {
            return None;
        }
        for (at, sign) in brackets(line) {
            match sign {
                '{' | '[' => open.push((start + at, sign)),
                _ => drop(open.pop()),
            }
        }
        start += line.len();
    }
    let (at, sign) = *open.last()?;
    let end = if sign == '{' { '}' } else { ']' };
    let text = format!("not TOML: the {sign} in this line is not closed; write {end} at its end");
    Some(UnclosedBracket { at, text })
}

/// Whether a line begins a table or a key of the file, and is no part of an open value.
fn begins_anew(line: &str, open: &[(usize, char)]) -> bool {
    let name = line.trim_start_matches('[');
    let is_header = name.len() < line.len()
        && name.ends_with(']')
        && name.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_key = line.split_once('=').is_some_and(|(key, _)| is_name(key.trim()));
    is_header || is_key && open.last().is_some_and(|(_, sign)| *sign == '[')
}

fn is_name(key: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !key.is_empty() && key.chars().all(fits)
}

/// The brackets of a line that are neither in a text nor in a comment.
fn brackets(line: &str) -> Vec<(usize, char)> {
    let mut quote = None;
    let mut is_escaped = false;
    let mut found = Vec::new();
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some('"'), '\\') => {
                is_escaped = !is_escaped;
                continue;
            }
            (Some(open), c) if c == open && !is_escaped => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => break,
            (None, '{' | '}' | '[' | ']') => found.push((at, c)),
            _ => {}
        }
        is_escaped = false;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracket_that_is_left_open_is_found() {
        for (text, at) in [
            ("a = { b = 1\n[c]\n", Some(4)),
            ("a = { b = [1, 2]\n", Some(4)),
            ("a = [1,\n2\nb = 3\n", Some(4)),
            ("a = [1\n[[c]]\n", Some(4)),
            ("a = [{ b = 1 }, { b = 2 ]", Some(4)),
            ("x = 1\na = {", Some(10)),
            ("a = { b = 1 }\n[c]\n", None),
            ("a = [\n  [1, 2],\n  [3]\n]\n", None),
            ("a = [\n  { b = 1 },\n]\n[c]\nd = 1\n", None),
            ("a = \"{\" # [\nb = '['\nc = \"\\\"{\"\n", None),
            ("[c\nd = 1\n", None),
            ("a = \"\"\"{\n\"\"\"\n", None),
        ] {
            assert_eq!(find(text).map(|open| open.at), at, "{text}");
        }
    }
}
