//! Paths as operators see them: without query values, session ids, and what `[log] redact_paths` hides.

use std::borrow::Cow;

use anteroom_http::path::{PathPattern, decoded};
use anteroom_http::query::path_without_session_id;

/// The longest name of a query parameter that is shown, in bytes.
const NAME_MAX: usize = 48;
/// The most parameters that are shown.
const NAMES_MAX: usize = 8;

/// What of a path is shown.
#[derive(Clone, Debug, Default)]
pub struct ShownPaths {
    /// Paths whose wildcards are hidden.
    pub redact: Vec<PathPattern>,
}

impl ShownPaths {
    /// A path without session ids, and without what is hidden.
    #[must_use]
    pub fn path<'p>(&'p self, path: &'p str) -> Cow<'p, str> {
        let hidden = (!self.redact.is_empty()).then(|| {
            let decoded = decoded(path);
            let path = decoded.as_deref().unwrap_or(path);
            self.redact.iter().find(|pattern| pattern.matches(path).is_some())
        });
        match hidden.flatten() {
            // The pattern itself stands for the path: it has wildcards where there were values.
            Some(pattern) => Cow::Borrowed(pattern.as_str()),
            None => path_without_session_id(path),
        }
    }
}

/// The names of the parameters of a query, each once, without their values.
#[must_use]
pub fn parameter_names(query: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for part in query.unwrap_or_default().split('&') {
        // Without `=` a part may be a value: an id, or a session.
        let Some((name, _)) = part.split_once('=') else { continue };
        let name = &name[..name.floor_char_boundary(NAME_MAX)];
        if names.len() < NAMES_MAX && !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_told_by_name_once_each() {
        let query = "q=secret&page=2&q=other&deadbeef&=x";
        assert_eq!(parameter_names(Some(query)), ["q", "page"]);
        assert!(parameter_names(None).is_empty());
        let many: String = (0..100).map(|n| format!("n{n}=1&")).collect();
        assert_eq!(parameter_names(Some(&many)).len(), NAMES_MAX);
    }

    #[test]
    fn hidden_paths_are_told_by_their_pattern() {
        let redact = vec![PathPattern::parse("/user/*/**").unwrap()];
        let shown = ShownPaths { redact };
        assert_eq!(shown.path("/user/alice/mail"), "/user/*/**");
        assert_eq!(shown.path("/a;jsessionid=1F"), "/a;-");
    }
}
