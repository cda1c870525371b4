//! The path that the origin gets in place of the client's.

use std::borrow::Cow;

use anteroom_http::path::decoded;

/// `strip_prefix` and `add_prefix`: a change of the path in requests to the origin. Routes, keys, purges and logs
/// use the client's path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The whole segments that are cut from the beginning, such as `/shop`.
    pub strip_prefix: Option<String>,
    /// What is put before the rest, such as `/app`.
    pub add_prefix: Option<String>,
}

impl Rewrite {
    /// Whether every path stays as it is.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.strip_prefix.is_none() && self.add_prefix.is_none()
    }

    /// The path for the origin. A path that does not begin with the segments to cut keeps them. The bytes of the
    /// rest stay as they came.
    #[must_use]
    pub fn path<'p>(&self, path: &'p str) -> Cow<'p, str> {
        // `OPTIONS *` has no path.
        if self.is_none() || !path.starts_with('/') {
            return Cow::Borrowed(path);
        }
        let rest = self.strip_prefix.as_deref().and_then(|prefix| without_prefix(path, prefix));
        let rest = rest.unwrap_or(path);
        match (&self.add_prefix, rest) {
            (None, "") => Cow::Borrowed("/"),
            (None, rest) => Cow::Borrowed(rest),
            (Some(prefix), rest) => Cow::Owned(format!("{prefix}{rest}")),
        }
    }
}

/// The rest of a raw path behind the segments of `prefix`, which are compared after decoding: the route was chosen
/// by the decoded path.
fn without_prefix<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let segments = prefix.matches('/').count();
    let end = path.match_indices('/').map(|(at, _)| at).nth(segments).unwrap_or(path.len());
    let (head, rest) = path.split_at(end);
    (decoded(head).as_deref() == Some(prefix)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(strip: Option<&str>, add: Option<&str>) -> Rewrite {
        Rewrite { strip_prefix: strip.map(str::to_owned), add_prefix: add.map(str::to_owned) }
    }

    #[test]
    fn whole_segments_are_cut_and_put_before() {
        for (strip, add, path, expected) in [
            (None, None, "/a/b", "/a/b"),
            (Some("/shop"), None, "/shop/a%20b", "/a%20b"),
            (Some("/shop"), None, "/sh%6Fp/a", "/a"),
            (Some("/shop"), None, "/shop", "/"),
            (Some("/shop"), None, "/shop/", "/"),
            (Some("/shop"), None, "/shopping/a", "/shopping/a"),
            (Some("/shop"), None, "/a/shop/b", "/a/shop/b"),
            (Some("/a/b"), None, "/a/b/c/d", "/c/d"),
            (None, Some("/app"), "/a", "/app/a"),
            (None, Some("/app"), "/", "/app/"),
            (Some("/shop"), Some("/app"), "/shop/a", "/app/a"),
            (Some("/shop"), Some("/app"), "/shop", "/app"),
            (Some("/shop"), Some("/app"), "*", "*"),
        ] {
            assert_eq!(rewrite(strip, add).path(path), expected, "{strip:?} {add:?} {path}");
        }
    }
}
