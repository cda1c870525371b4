//! Texts with the path of a file in them.

use std::path::PathBuf;

use serde_json::Value as Json;

use crate::form::{Faults, Form, Text};
use crate::node::Node;
use crate::plan::TlsConfig;
use crate::{file, text};

/// The path of a file.
pub(super) fn path() -> PathText<Text<PathBuf>> {
    let form = Text { parse: text::file, show: |path| path.to_string_lossy().into_owned() };
    PathText { prefix: "", word: None, form }
}

/// A text that is a path, or ends with one. A relative path in a file starts at the folder of that file.
#[derive(Debug)]
pub(super) struct PathText<F> {
    /// What precedes the path, such as `unix:`.
    pub(super) prefix: &'static str,
    /// A text that is no path.
    pub(super) word: Option<&'static str>,
    pub(super) form: F,
}

impl<T, F: Form<T>> Form<T> for PathText<F> {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<T> {
        let text = node.as_text().filter(|text| Some(*text) != self.word);
        match text
            .and_then(|text| text.strip_prefix(self.prefix))
            .filter(|path| text::is_path(path))
        {
            Some(path) => {
                let path = file::path_at(&node.location, path);
                let text = format!("{}{}", self.prefix, path.to_string_lossy());
                self.form.read(&Node::text(node.location.clone(), text), faults)
            }
            None => self.form.read(node, faults),
        }
    }

    fn write(&self, value: &T) -> Option<String> {
        self.form.write(value)
    }

    fn shape(&self) -> Json {
        self.form.shape()
    }
}

/// A pattern of certificate files, as [`PathText`], or the word for certificates that the proxy orders.
#[derive(Debug)]
pub(super) struct CertificatePattern;

impl Form<String> for CertificatePattern {
    fn read(&self, node: &Node, faults: &mut Faults<'_>) -> Option<String> {
        if node.as_text() == Some(TlsConfig::AUTO) {
            return Some(TlsConfig::AUTO.to_owned());
        }
        let pattern = PATTERN.read(node, faults)?;
        let is_word = !pattern.contains(['/', '.', '*', '?', '[']);
        if is_word && !file::path_at(&node.location, &pattern).exists() {
            let found = node.shown();
            let why = format!("found {found}, and no file has that name; did you mean \"auto\"?");
            return faults.add(node, why);
        }
        Some(file::pattern_at(&node.location, &pattern))
    }

    fn write(&self, pattern: &String) -> Option<String> {
        PATTERN.write(pattern)
    }

    fn shape(&self) -> Json {
        PATTERN.shape()
    }
}

const PATTERN: Text<String> = Text { parse: text::file_pattern, show: String::clone };
