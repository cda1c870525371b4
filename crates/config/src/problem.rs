//! Problems of a configuration, and their places.
//!
//! They are found by the reader, the forms and the checks.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a setting was written. The order is that of the report: the file by line, then the environment,
/// then the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SettingLocation {
    /// Nowhere: a missing setting, without a file.
    Nowhere,
    /// In the configuration file as a whole: a missing setting.
    File(Arc<Path>),
    /// On this line of the configuration file, counted from 1.
    Line(Arc<Path>, usize),
    /// In the environment variable of this name.
    Variable(String),
    /// At this flag of the command line.
    Flag(&'static str),
}

impl SettingLocation {
    /// The file that contains the setting.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Line(path, _) => Some(path),
            Self::Nowhere | Self::Variable(_) | Self::Flag(_) => None,
        }
    }
}

impl fmt::Display for SettingLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => Ok(()),
            Self::File(path) => path.display().fmt(f),
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A problem that makes a configuration unusable. `Display` prints it on one line:
/// `proxy.toml:12: [cache] default_tll: unknown key; did you mean default_ttl?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the setting was written.
    pub location: SettingLocation,
    /// The path of the setting, such as `cache.default_ttl` or `route[2].match.path`; empty if the problem
    /// belongs to no setting, such as an unreadable file.
    pub setting: String,
    /// What was found, and what was expected.
    pub text: String,
}

impl Problem {
    pub(super) fn new(place: SettingLocation, setting: &str, text: impl Into<String>) -> Self {
        Self { location: place, setting: setting.to_owned(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.location != SettingLocation::Nowhere {
            write!(f, "{}: ", self.location)?;
        }
        match label(&self.setting) {
            label if label.is_empty() => f.write_str(&self.text),
            label => write!(f, "{label}: {}", self.text),
        }
    }
}

impl std::error::Error for Problem {}

/// Something that an operator should know about a valid configuration. Printed like a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is.
    pub problem: Problem,
    /// Whether `anteroom check` fails because of it. A running proxy continues, because stopping would not
    /// help; a new deployment should not start like this.
    pub fails_check: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

/// The setting at `path` as a file would have it: `[cache] default_ttl`, `[[route]] match.path`.
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
