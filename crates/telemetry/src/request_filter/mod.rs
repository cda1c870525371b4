//! Which requests a watcher wants: `reason = unknown-cookie and ms > 200`.
//!
//! Pure. A text is read once, with bounds on its length and its depth, and then asked of each request.

mod field;
mod parse;
mod token;

use std::ops::Range;

pub use field::Field;

use super::request_feed::RequestEvent;
use field::FieldValue;

/// The longest filter, in bytes.
pub const FILTER_MAX: usize = 1_024;

/// A condition on requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFilter(Condition);

impl RequestFilter {
    /// Reads a filter.
    ///
    /// # Errors
    /// What is wrong, where, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > FILTER_MAX {
            let why = format!("the filter is longer than {FILTER_MAX} bytes");
            return Err(FilterError { text: String::new(), at: 0..0, why });
        }
        parse::parse(text).map(Self)
    }

    /// Whether the request is wanted.
    #[must_use]
    pub fn matches(&self, event: &RequestEvent) -> bool {
        self.0.holds(event)
    }
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
    Contains,
}

impl Comparison {
    const ALL: [Self; 7] = [
        Self::Equal,
        Self::Unequal,
        Self::Less,
        Self::AtMost,
        Self::More,
        Self::AtLeast,
        Self::Contains,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::More => ">",
            Self::AtLeast => ">=",
            Self::Contains => "~",
        }
    }

    fn of_texts(self, found: &str, wanted: &str) -> bool {
        match self {
            Self::Unequal => found != wanted,
            Self::Contains => found.contains(wanted),
            _ => found == wanted,
        }
    }

    #[expect(clippy::float_cmp, reason = "statuses and bytes are whole numbers")]
    fn of_numbers(self, found: f64, wanted: f64) -> bool {
        match self {
            Self::Equal | Self::Contains => found == wanted,
            Self::Unequal => found != wanted,
            Self::Less => found < wanted,
            Self::AtMost => found <= wanted,
            Self::More => found > wanted,
            Self::AtLeast => found >= wanted,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    /// `hit` stands for all results that are hits.
    Hit,
    Aborted,
    Text(Field, Comparison, String),
    Number(Field, Comparison, f64),
}

impl Condition {
    fn holds(&self, event: &RequestEvent) -> bool {
        match self {
            Self::Any(conditions) => conditions.iter().any(|one| one.holds(event)),
            Self::All(conditions) => conditions.iter().all(|one| one.holds(event)),
            Self::Not(condition) => !condition.holds(event),
            Self::Hit => event.record.outcome.is_hit(),
            Self::Aborted => event.record.aborted,
            Self::Text(field, comparison, wanted) => match field.of(event) {
                FieldValue::Text(found) => comparison.of_texts(found, wanted),
                _ => *comparison == Comparison::Unequal,
            },
            Self::Number(field, comparison, wanted) => match field.of(event) {
                FieldValue::Number(found) => comparison.of_numbers(found, *wanted),
                _ => *comparison == Comparison::Unequal,
            },
        }
    }
}

/// What is wrong with a filter. It is told with the place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    at: Range<usize>,
    why: String,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)?;
        if self.text.is_empty() {
            return Ok(());
        }
        // One character for each, so that the mark stands below its place.
        let shown = |c: char| if c.is_control() { '?' } else { c };
        let text: String = self.text.chars().map(shown).collect();
        let width = |range: Range<usize>| self.text.get(range).unwrap_or_default().chars().count();
        let (before, marked) = (width(0..self.at.start), width(self.at.clone()).max(1));
        write!(f, "\n  {text}\n  {}{}", " ".repeat(before), "^".repeat(marked))
    }
}

impl std::error::Error for FilterError {}

#[cfg(test)]
mod tests;
