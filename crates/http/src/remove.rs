//! Removal of fields by their names.

use ::http::{HeaderMap, HeaderName};

/// Removes all fields that `is_unwanted` names.
///
/// PERF: names are compared. A `HeaderMap` hashes each name that it is asked for, which takes longer than a look at
/// the names of a whole message, and most messages have none of the unwanted fields.
pub fn remove_fields(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    while let Some(name) = headers.keys().find(|name| is_unwanted(name)).cloned() {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    #[test]
    fn all_lines_of_the_unwanted_fields_go_and_no_other() {
        let mut headers = HeaderMap::new();
        for name in ["a", "b", "a", "c", "b", "via"] {
            headers.append(name, HeaderValue::from_static("1"));
        }
        remove_fields(&mut headers, |name| name == "a" || name == "b");
        let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(
            (names.len(), headers.contains_key("c"), headers.contains_key("via")),
            (2, true, true)
        );
    }
}
