//! What is wrong with a configuration, and where it says so.
//!
//! How problems are found is the business of the reader, the forms and the checks.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a setting was said. Ordered as problems are told: the file by line, then the
/// environment, then the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nowhere: a setting that is missing where there is no file.
    Nowhere,
    /// In the configuration file as a whole: a setting that is missing.
    File(Arc<Path>),
    /// On a line, counted from 1, of the configuration file.
    Line(Arc<Path>, usize),
    /// In the environment variable of this name.
    Variable(String),
    /// Behind this flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => Ok(()),
            Self::File(path) => write!(f, "{}: ", path.display()),
            Self::Line(path, line) => write!(f, "{}:{line}: ", path.display()),
            Self::Variable(name) => write!(f, "{name}: "),
            Self::Flag(flag) => write!(f, "{flag}: "),
        }
    }
}

/// One thing that keeps a configuration from being used. `Display` tells it on one line:
/// `proxy.toml:12: [cache] default_tll: unknown key; did you mean default_ttl?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said.
    pub place: Place,
    /// The path of the setting, such as `cache.default_ttl` or `route[2].match.path`; empty
    /// where the problem has none, such as in a file that cannot be read.
    pub setting: String,
    /// What was found, and what was expected.
    pub text: String,
}

impl Problem {
    pub(super) fn new(place: Place, setting: &str, text: impl Into<String>) -> Self {
        Self { place, setting: setting.to_owned(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match label(&self.setting) {
            label if label.is_empty() => write!(f, "{}{}", self.place, self.text),
            label => write!(f, "{}{label}: {}", self.place, self.text),
        }
    }
}

impl std::error::Error for Problem {}

/// Something that an operator should know of a configuration that can be used. Told like a
/// [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is.
    pub problem: Problem,
    /// Whether `anteroom check` fails for it. What runs already goes on with it, for stopping would help
    /// nobody; but nobody would put it there anew.
    pub fails_check: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

/// The setting at `path` as it stands in a file: `[cache] default_ttl`, `[[route]] match.path`.
fn label(path: &str) -> String {
    let bracketed = |head: &str| head.split_once('[').map(|(list, _)| format!("[[{list}]]"));
    match path.split_once('.') {
        Some((head, key)) => {
            let section = bracketed(head).unwrap_or_else(|| format!("[{head}]"));
            format!("{section} {key}")
        }
        None => bracketed(path).unwrap_or_else(|| path.to_owned()),
    }
}
