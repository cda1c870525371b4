//! Values as JSON, for the databases that make none themselves.
//!
//! What other readers of JSON would round becomes text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The integers that every reader of JSON takes exactly: up to 2^53 - 1.
const EXACT_MAX: i128 = (1 << 53) - 1;

/// An object, in the order of its columns.
#[derive(Debug, Default)]
pub(super) struct JsonObject(String);

impl JsonObject {
    /// Adds a column; `value` is JSON.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&text(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    pub(super) fn done(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

pub(super) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(super) fn integer(number: i128) -> String {
    match (-EXACT_MAX..=EXACT_MAX).contains(&number) {
        true => number.to_string(),
        false => format!("\"{number}\""),
    }
}

/// JSON has no infinity and no NaN: these are null.
pub(super) fn float(number: f64) -> String {
    serde_json::Value::from(number).to_string()
}

/// With the digits that a `FLOAT` has.
#[cfg(feature = "mysql")]
pub(super) fn short_float(number: f32) -> String {
    number.to_string().parse().map_or_else(|_| "null".to_owned(), float)
}

/// The text of a value: that of a string, else the JSON itself.
pub(super) fn as_text(value: &str) -> String {
    serde_json::from_str(value).unwrap_or_else(|_| value.to_owned())
}

pub(super) fn base64(bytes: &[u8]) -> String {
    format!("\"{}\"", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_rounded_is_text() {
        assert_eq!(integer(EXACT_MAX), "9007199254740991");
        assert_eq!(integer(EXACT_MAX + 1), "\"9007199254740992\"");
        assert_eq!(integer(-EXACT_MAX - 1), "\"-9007199254740992\"");
        assert_eq!([float(0.1), float(f64::INFINITY), float(f64::NAN)], ["0.1", "null", "null"]);
    }

    #[test]
    fn an_object_has_its_columns_in_order() {
        let mut object = JsonObject::default();
        object.add("b\"", &text("\n'"));
        object.add("a", &base64(b"\xff\x00"));
        assert_eq!(object.done(), r#"{"b\"":"\n'","a":"/wA="}"#);
        assert_eq!(JsonObject::default().done(), "{}");
    }
}
