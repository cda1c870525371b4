//! The shapes of values, as JSON Schema (draft-07).
//!
//! Each shape has a `title`, which says in words what is expected. Alternatives are `anyOf`: editors choose
//! wrong branches of `oneOf`.

use serde_json::{Value as Json, json};

/// A text, with words for what it has to be.
pub(super) fn text(title: &str) -> Json {
    json!({ "type": "string", "title": title })
}

/// A text that this regular expression matches.
pub(super) fn pattern(title: &str, pattern: &str) -> Json {
    json!({ "type": "string", "title": title, "pattern": pattern })
}

/// `true` or `false`.
pub(super) fn flag() -> Json {
    json!({ "type": "boolean", "title": "`true` or `false`" })
}

/// A whole number within bounds.
pub(super) fn count(min: u64, max: u64) -> Json {
    let title = format!("a number from {min} to {max}");
    json!({ "type": "integer", "title": title, "minimum": min, "maximum": max })
}

/// A number from 0 to 1.
pub(super) fn fraction() -> Json {
    json!({ "type": "number", "title": "a number from 0 to 1", "minimum": 0, "maximum": 1 })
}

/// One of these texts.
pub(super) fn words(words: &[&str]) -> Json {
    let quoted: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
    json!({ "enum": words, "title": quoted.join(", ") })
}

/// A value, or a list of such values.
pub(super) fn list(item: &Json, max: usize) -> Json {
    let title = format!("a list: {}", title(item));
    let list = json!({ "type": "array", "items": item, "maxItems": max });
    json!({ "anyOf": [item, list], "title": title })
}

/// One of several shapes.
pub(super) fn any_of(shapes: &[Json]) -> Json {
    let titles: Vec<&str> = shapes.iter().map(title).collect();
    json!({ "title": titles.join(", or "), "anyOf": shapes })
}

/// A table with these keys.
pub(super) fn table<const N: usize>(title: &str, keys: [(&str, Json); N]) -> Json {
    let keys: serde_json::Map<String, Json> =
        keys.into_iter().map(|(name, shape)| (name.to_owned(), shape)).collect();
    json!({ "type": "object", "title": title, "properties": keys, "additionalProperties": false })
}

/// A table whose names the operator chooses.
pub(super) fn named(title: &str, item: &Json) -> Json {
    json!({ "type": "object", "title": title, "additionalProperties": item })
}

/// The words for a shape.
pub(super) fn title(shape: &Json) -> &str {
    shape["title"].as_str().unwrap_or_default()
}
