//! What an action is done to, as the audit log tells it.

use serde_json::{Map, Value};

/// The longest subject, in bytes.
const SUBJECT_MAX: usize = 512;
/// The key of a command whose value is a user's name.
const USER: &str = "user";
/// Stands for a name.
const HIDDEN: &str = "(hidden)";

/// The subject of an action.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AuditSubject {
    /// For the audit log itself.
    pub(super) full: String,
    /// For the log of the process: without names of users, and without queries.
    pub(super) public: String,
}

impl AuditSubject {
    /// A subject without secrets.
    pub(super) fn plain(text: String) -> Self {
        Self { public: text.clone(), full: text }
    }

    /// What a command names by these of its keys. Others may hold secrets, such as the cookies of `explain`.
    pub(super) fn of_command(keys: &[&str], command: &[u8]) -> Self {
        if keys.is_empty() {
            return Self::default();
        }
        let Ok(command) = serde_json::from_slice::<Map<String, Value>>(command) else {
            return Self::default();
        };
        let (mut full, mut public) = (BoundedText::default(), BoundedText::default());
        for key in keys {
            let Some(value) = command.get(*key) else { continue };
            let values = words(value);
            if values.is_empty() {
                continue;
            }
            full.push_part(key);
            public.push_part(key);
            for value in values {
                // A flag that is set is told by its name.
                if value == "true" {
                    continue;
                }
                full.push_word(&value);
                let path = value.split_once('?').map_or(value.as_str(), |(path, _)| path);
                public.push_word(if *key == USER { HIDDEN } else { path });
            }
        }
        Self { full: full.text, public: public.text }
    }
}

/// A value as words: none for what is not set.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Null | Value::Bool(false) => Vec::new(),
        Value::Bool(true) => vec!["true".to_owned()],
        Value::Number(number) => vec![number.to_string()],
        Value::String(text) => vec![text.clone()],
        // Further ones would not fit.
        Value::Array(values) => values.iter().take(SUBJECT_MAX).flat_map(words).collect(),
        Value::Object(_) => vec!["…".to_owned()],
    }
}

/// A text that ends with `…` where it would be too long.
#[derive(Default)]
struct BoundedText {
    text: String,
    is_full: bool,
}

impl BoundedText {
    fn push_part(&mut self, part: &str) {
        self.push(if self.text.is_empty() { "" } else { "; " }, part);
    }

    fn push_word(&mut self, word: &str) {
        self.push(" ", word);
    }

    fn push(&mut self, between: &str, word: &str) {
        const MORE: &str = "…";
        if self.is_full {
            return;
        }
        self.text.push_str(between);
        let room = (SUBJECT_MAX - MORE.len()).saturating_sub(self.text.len());
        if word.len() <= room {
            return self.text.push_str(word);
        }
        self.text.push_str(&word[..word.floor_char_boundary(room)]);
        self.text.push_str(MORE);
        self.is_full = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_keys_are_told_and_no_others() {
        let command = br#"{"urls":["http://a.test/p?t=secret","/b"],"tags":[],"hard":true,"all":false,"cookies":["s=1"]}"#;
        let subject = AuditSubject::of_command(&["urls", "tags", "all", "hard"], command);
        assert_eq!(subject.full, "urls http://a.test/p?t=secret /b; hard");
        assert_eq!(subject.public, "urls http://a.test/p /b; hard");
        let subject = AuditSubject::of_command(&["id", "user"], br#"{"user":"ann","id":null}"#);
        assert_eq!((subject.full.as_str(), subject.public.as_str()), ("user ann", "user (hidden)"));
        for bad in [&b""[..], b"[]", b"{"] {
            assert_eq!(AuditSubject::of_command(&["id"], bad), AuditSubject::default());
        }
        assert_eq!(AuditSubject::of_command(&[], command), AuditSubject::default());
    }

    #[test]
    fn a_long_subject_is_cut_at_a_character() {
        for length in [500, 504, 505, 506, 507, 508, 600] {
            let long = "ä".repeat(length);
            let command = format!("{{\"url\":\"{long}\",\"all\":true}}");
            let AuditSubject { full, .. } =
                AuditSubject::of_command(&["url", "all"], command.as_bytes());
            assert!(full.len() <= SUBJECT_MAX && full.ends_with('…'), "{length}: {}", full.len());
        }
        let many = vec!["/a"; 100_000];
        let command = serde_json::json!({ "urls": many }).to_string();
        let AuditSubject { full, .. } = AuditSubject::of_command(&["urls"], command.as_bytes());
        assert!(full.len() <= SUBJECT_MAX && full.ends_with('…'));
    }
}
