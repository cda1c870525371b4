//! Paths and their patterns.

use ::http::uri::PathAndQuery;
use anteroom_http::lenient;
use anteroom_http::path::{self, PathPattern, PurgePath};

use super::TEXT_MAX;

/// The pattern of a path.
pub(crate) fn path_pattern(text: &str) -> Result<PathPattern, String> {
    if !text.starts_with('/') || text.len() > TEXT_MAX {
        return Err("a path that begins with /".into());
    }
    if !text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#')) {
        return Err("a path as in a URL, without query".into());
    }
    PathPattern::parse(text).map_err(|why| why.to_string())
}

/// The pattern of a path, or `~` and a regular expression.
pub(crate) fn route_path(text: &str) -> Result<PathPattern, String> {
    if let Some(meant) = meant_route_path(text) {
        return Err(meant);
    }
    if !text.starts_with('~') {
        let expected = |why| format!("{why}, or ~ and a regular expression such as \"~^/[0-9]+$\"");
        return path_pattern(text)
            .map_err(|why| if text.starts_with('/') { why } else { expected(why) });
    }
    if text.len() > TEXT_MAX {
        return Err(format!("at most {TEXT_MAX} bytes"));
    }
    PathPattern::parse_expression(text).map_err(|why| format!("~ and a regular expression ({why})"))
}

/// What was probably meant by a path in the notation of another proxy: `= /a`, `~* \.jpg$`, `^/a`, `*.jpg`, `a/b`.
fn meant_route_path(text: &str) -> Option<String> {
    let expression = |options: &str, text: &str| {
        let written = format!("~{options}{text}");
        let is_plain = !written.contains(|c: char| c.is_control() || c == '\'');
        let is_short = written.len() <= TEXT_MAX;
        let is_valid = is_short && is_plain && PathPattern::parse_expression(&written).is_ok();
        is_valid.then(|| format!("'{written}'"))
    };
    let path = |text: String| path_pattern(&text).is_ok().then(|| format!("\"{text}\""));
    if let Some(rest) = text.strip_prefix("~*") {
        return expression("(?i)", rest.trim_start());
    }
    if let Some(rest) = text.strip_prefix("~ ") {
        return expression("", rest.trim_start());
    }
    if let Some(rest) = text.strip_prefix("= ").or_else(|| text.strip_prefix("^~ ")) {
        return path(rest.trim_start().to_owned());
    }
    if text.starts_with('^') {
        return expression("", text);
    }
    if text.starts_with("*.") {
        return path(format!("/**/{text}"));
    }
    let is_relative = text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.contains('/');
    if is_relative && !text.contains("://") { path(format!("/{text}")) } else { None }
}

/// Whole segments at the beginning of a path.
pub(crate) fn path_prefix(text: &str) -> Result<String, String> {
    let is_path =
        text.starts_with('/') && text.len() > 1 && !text.ends_with('/') && !path::is_odd(text);
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && !b"?#%*{};".contains(&b));
    if is_path && is_plain && text.len() <= TEXT_MAX {
        return Ok(text.to_owned());
    }
    Err("a path such as \"/shop\", without a / at its end".into())
}

/// A path to purge, or with `/**` a path and everything below it.
pub(crate) fn branch(text: &str) -> Result<PurgePath, String> {
    let branch = PurgePath::parse(text).filter(|_| text.len() <= TEXT_MAX);
    branch.ok_or_else(|| r#"a path such as "/", or "/feed/**" for all paths below it"#.into())
}

/// The target of a row at the origin, with `{row}` in it once.
pub(crate) fn rows_path(text: &str) -> Result<String, String> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    let rest = text.replacen("{row}", "", 1);
    let once = rest.len() < text.len() && !rest.contains(['{', '}']);
    let rooted = text.starts_with('/') && !text.starts_with("//") && text.len() <= TEXT_MAX;
    if printable && once && rooted {
        return Ok(text.to_owned());
    }
    Err(r#"a path with {row} in it once, such as "/api/inventory/{row}""#.into())
}

/// The target of a fragment's content: a path of the site, with an optional query, outside `/_anteroom/`.
pub(crate) fn hole_path(text: &str) -> Result<String, String> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    let rooted = text.starts_with('/') && !text.starts_with("//") && text.len() <= TEXT_MAX;
    let path = text.split('?').next().unwrap_or_default();
    let is_ours = lenient::may_begin_with(path, "_anteroom");
    if printable && rooted && !is_ours && text.parse::<PathAndQuery>().is_ok() {
        return Ok(text.to_owned());
    }
    Err(r#"a path such as "/partials/cart", and none under /_anteroom/"#.into())
}

/// The target of a health check.
pub(crate) fn health_path(text: &str) -> Result<String, String> {
    let printable = text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if printable && text.starts_with('/') && !text.starts_with("//") && text.len() <= TEXT_MAX {
        return Ok(text.to_owned());
    }
    Err(r#"a path such as "/healthz""#.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_pattern_is_a_path_as_it_stands_in_a_url() {
        for good in ["/", "/a/*/b", "/**", "/a/**", "/item/{item}", "/a/*.css", "/a%20b/"] {
            assert_eq!(path_pattern(good).unwrap().as_str(), good);
        }
        for bad in ["", "a", "/**/a/**", "/{id}", "/{item}/{item}", "/a?b", "/a#b", "/a b", "/ä"] {
            assert!(path_pattern(bad).is_err(), "{bad}");
        }
    }
}
