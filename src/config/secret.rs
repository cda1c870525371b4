//! A text that never shows itself: passwords, tokens, keys.
//!
//! Where secrets are read from files and variables is the business of the forms.

use std::fmt;
use std::path::{Path, PathBuf};

/// A secret. `Debug` and `Display` tell where it came from, never what it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    from: SecretSource,
}

/// Where a secret was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// It stood in the configuration itself.
    Plain,
    /// `{ file = "…" }`
    File(PathBuf),
    /// `{ env = "…" }`
    Env(String),
}

impl Secret {
    /// A secret that stood in the configuration, or that a caller holds.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), from: SecretSource::Plain }
    }

    /// A secret that was read from the file at `path`.
    #[must_use]
    pub fn from_file(text: impl Into<String>, path: &Path) -> Self {
        Self { text: text.into(), from: SecretSource::File(path.to_owned()) }
    }

    /// A secret that was read from the environment variable `name`.
    #[must_use]
    pub fn from_env(text: impl Into<String>, name: &str) -> Self {
        Self { text: text.into(), from: SecretSource::Env(name.to_owned()) }
    }

    /// The secret itself. Keep it out of logs, errors and answers.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Where it was found.
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
