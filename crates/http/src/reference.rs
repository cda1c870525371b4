//! References to other resources, as in `Location` (RFC 3986 §4.1), and their resolution (§5.2).

use super::host::{Host, Scheme};

/// Resolves `reference` against `base`. Returns its `scheme://authority` or `//authority`, if it has one, and
/// the target. Fragments are dropped.
#[must_use]
pub fn resolve<'r>(base: &str, reference: &'r str) -> (Option<&'r str>, String) {
    let reference = reference.split('#').next().unwrap_or_default();
    let (place, rest) = divide(reference);
    let (path, query) = split_query(rest);
    let (base_path, base_query) = split_query(base);
    let (path, query) = match path {
        "" if place.is_none() => (base_path.to_owned(), query.or(base_query)),
        "" => ("/".to_owned(), query),
        path if path.starts_with('/') => (without_dots(path), query),
        path => {
            let folder = base_path.rfind('/').map_or("/", |end| &base_path[..=end]);
            (without_dots(&format!("{folder}{path}")), query)
        }
    };
    let target = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
    (place, target)
}

/// The scheme, the host and the target of an absolute http or https URL.
#[must_use]
pub fn absolute(url: &str) -> Option<(Scheme, Host, String)> {
    let (place, target) = resolve("/", url);
    let (scheme, authority) = place?.split_once("://")?;
    let scheme = Scheme::parse(scheme.as_bytes())?;
    Some((scheme, Host::parse(authority.as_bytes()).ok()?, target))
}

/// Splits a reference into `scheme://authority` or `//authority`, and the rest.
fn divide(reference: &str) -> (Option<&str>, &str) {
    let scheme = reference.find([':', '/', '?']).filter(|at| reference[*at..].starts_with(':'));
    let behind = scheme.map_or(0, |at| at + 1);
    if let Some(authority) = reference[behind..].strip_prefix("//") {
        let end = authority.find(['/', '?']).unwrap_or(authority.len());
        return reference
            .split_at_checked(behind + 2 + end)
            .map_or((None, ""), |(place, rest)| (Some(place), rest));
    }
    // A scheme without an authority (`mailto:`) is never a target of this proxy.
    scheme.map_or((None, reference), |_| (Some(reference), ""))
}

fn split_query(target: &str) -> (&str, Option<&str>) {
    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)))
}

/// Removes dot segments (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3986 §5.4, and what browsers make of unusual references.
    #[test]
    fn references_are_resolved_as_the_rfc_shows() {
        for (reference, place, target) in [
            ("g", None, "/b/c/g"),
            ("./g", None, "/b/c/g"),
            ("g/", None, "/b/c/g/"),
            ("/g", None, "/g"),
            ("//g", Some("//g"), "/"),
            ("?y", None, "/b/c/d;p?y"),
            ("g?y#s", None, "/b/c/g?y"),
            ("#s", None, "/b/c/d;p?q"),
            ("", None, "/b/c/d;p?q"),
            (".", None, "/b/c/"),
            ("..", None, "/b/"),
            ("../g", None, "/b/g"),
            ("../../g", None, "/g"),
            ("../../../../g", None, "/g"),
            ("/./g", None, "/g"),
            ("g..", None, "/b/c/g.."),
            ("./g/.", None, "/b/c/g/"),
            ("g;x=1/../y", None, "/b/c/y"),
            ("g?y/../x", None, "/b/c/g?y/../x"),
            ("http://h:1/a/../x?y", Some("http://h:1"), "/x?y"),
            ("HTTP://h", Some("HTTP://h"), "/"),
            ("http://h?y", Some("http://h"), "/?y"),
            ("mailto:a@b", Some("mailto:a@b"), "/"),
            ("a/b:c", None, "/b/c/a/b:c"),
        ] {
            assert_eq!(resolve("/b/c/d;p?q", reference), (place, target.to_owned()), "{reference}");
        }
    }
}
