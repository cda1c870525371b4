//! A text that is never shown: passwords, tokens, keys.
//!
//! The forms read secrets from files and variables.

use std::fmt;
use std::path::{Path, PathBuf};

/// A secret. `Debug` and `Display` show its source, never its value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    from: SecretSource,
}

/// The source of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// The configuration itself.
    Plain,
    /// `{ file = "…" }`
    File(PathBuf),
    /// `{ env = "…" }`
    Env(String),
}

impl Secret {
    /// A secret from the configuration, or from a caller.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), from: SecretSource::Plain }
    }

    /// A secret read from the file at `path`.
    #[must_use]
    pub fn from_file(text: impl Into<String>, path: &Path) -> Self {
        Self { text: text.into(), from: SecretSource::File(path.to_owned()) }
    }

    /// A secret read from the environment variable `name`.
    #[must_use]
    pub fn from_env(text: impl Into<String>, name: &str) -> Self {
        Self { text: text.into(), from: SecretSource::Env(name.to_owned()) }
    }

    /// The secret itself. Keep it out of logs, errors and responses.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Its source.
    #[must_use]
    pub fn source(&self) -> &SecretSource {
        &self.from
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            SecretSource::Plain => f.write_str("hidden"),
            SecretSource::File(path) => write!(f, "hidden, from the file {}", path.display()),
            SecretSource::Env(name) => write!(f, "hidden, from the variable {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_itself() {
        for secret in [
            Secret::new("hunter2"),
            Secret::from_file("hunter2", Path::new("/run/secret")),
            Secret::from_env("hunter2", "TOKEN"),
        ] {
            assert!(!format!("{secret} {secret:?}").contains("hunter2"));
            assert_eq!(secret.expose(), "hunter2");
        }
    }
}
