//! What is said of a text that is not TOML: one problem for each line that has to change.
//!
//! The parser reports positions and tokens. The files here look at the lines instead, and say what to write.

mod duplicate;
mod foreign;
mod line;
mod unclosed_bracket;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::problem::{Problem, SettingLocation};
use super::suggest::LISTS;
use duplicate::RepeatedKey;
use unclosed_bracket::UnclosedBracket;

/// The lines of a file.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    path: Arc<Path>,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(path: &Path, text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { path: path.into(), text, starts: starts.collect() }
    }

    /// The place of the line that has this offset.
    pub(super) fn place(&self, offset: usize) -> SettingLocation {
        SettingLocation::Line(Arc::clone(&self.path), self.number(offset))
    }

    /// The number of the line that has this offset, from 1.
    fn number(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The line that has this offset, without the spaces around it.
    fn line(&self, offset: usize) -> &'a str {
        let start = self.number(offset).checked_sub(1).and_then(|index| self.starts.get(index));
        let rest = start.and_then(|start| self.text.get(*start..)).unwrap_or_default();
        rest.lines().next().unwrap_or_default().trim()
    }
}

/// The problems behind the parser's errors.
pub(super) fn problems(lines: &Lines<'_>, errors: &[toml::de::Error]) -> Vec<Problem> {
    // The end of a text without a final newline may be reported as one byte past it.
    let at =
        |error: &toml::de::Error| error.span().map_or(0, |span| span.start.min(lines.text.len()));
    let mut found: Vec<(usize, &toml::de::Error)> =
        errors.iter().map(|error| (at(error), error)).collect();
    found.sort_by_key(|(at, _)| *at);
    // What follows from the first error of a line is no problem of its own.
    found.dedup_by_key(|(at, _)| lines.number(*at));
    if let Some(problem) = other_language(lines, &found) {
        return vec![problem];
    }
    let open = unclosed_bracket::find(lines.text);
    if let Some(open) = &open {
        found.retain(|(at, _)| lines.number(*at) < lines.number(open.at));
    }
    let has_repetition = found.iter().any(|(_, error)| is_repetition(error));
    let repeated = if has_repetition { duplicate::repeated(lines.text) } else { HashMap::new() };
    // A table that stands twice is one problem, whatever keys both have.
    let mut twice: Vec<String> = Vec::new();
    let mut problems: Vec<Problem> = Vec::new();
    for (at, error) in found {
        let problem = repeated_at(lines, &repeated, at).filter(|_| is_repetition(error));
        let problem =
            problem.unwrap_or_else(|| Problem::new(lines.place(at), "", syntax(lines, at, error)));
        if !twice.iter().any(|table| problem.setting.starts_with(table)) {
            if LISTS.contains(&problem.setting.as_str()) {
                twice.push(format!("{}.", problem.setting));
            }
            problems.push(problem);
        }
    }
    let unclosed = |open: UnclosedBracket| Problem::new(lines.place(open.at), "", open.text);
    problems.extend(open.map(unclosed));
    problems
}

fn other_language(lines: &Lines<'_>, found: &[(usize, &toml::de::Error)]) -> Option<Problem> {
    let (at, _) = found.first()?;
    let line = lines.line(*at);
    // One such line alone is a slip, and not another file, but for a whole block. An inline table has no semicolon.
    let is_block = line.ends_with('}') && (line.contains(';') || line.starts_with('{'));
    let is_file = found.len() > 1 || is_block;
    let language = foreign::language(line, lines.text).filter(|_| is_file)?;
    let line = if line::is_shown(line) { format!(" ({line:?})") } else { String::new() };
    let text = format!(
        "this looks like {}{line}, and Anteroom reads TOML: begin with \
         origin = \"http://127.0.0.1:3000\", and see {}",
        language.name, language.page
    );
    Some(Problem::new(lines.place(*at), "", text))
}

fn is_repetition(error: &toml::de::Error) -> bool {
    error.message() == "duplicate key"
}

/// What to say of the key or the table at an offset, if it is not the first of its name.
fn repeated_at(
    lines: &Lines<'_>,
    repeated: &HashMap<usize, RepeatedKey>,
    at: usize,
) -> Option<Problem> {
    let RepeatedKey { path, first: first_at, is_table } = repeated.get(&at)?;
    let (here, first) = (lines.place(at), lines.place(*first_at));
    let is_value = !lines.line(*first_at).starts_with('[');
    let text = if !is_table {
        format!("is already set at {first}; remove one of the two")
    } else if is_value && !path.contains('.') {
        let key = line::main_key(path);
        format!("has a value at {first} already; write it as {key} = … in a table of its own")
    } else if LISTS.contains(&path.as_str()) {
        format!("this table begins at {first} already; write [[{path}]] at both places")
    } else {
        format!("this table begins at {first} already; put all its keys there")
    };
    Some(Problem::new(here, path, text))
}

fn syntax(lines: &Lines<'_>, at: usize, error: &toml::de::Error) -> String {
    let said = error.message().replace('\n', "; ");
    let text = line::advice(lines.line(at), &said).unwrap_or(said);
    format!("not TOML: {text}")
}
