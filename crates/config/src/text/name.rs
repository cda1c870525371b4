//! Names and patterns: cookies, parameters, methods, routes.

use ::http::Method;
use anteroom_http::ident::Row;
use anteroom_http::pattern::Pattern;
use anteroom_policy::admin::TOKEN_NAME_MAX;
use anteroom_policy::route::QueryValue;
use anteroom_policy::row_schedule::{AllowedPurge, RowIds};

use super::{NAME_MAX, TEXT_MAX};

/// The longest query of `[[rows]]`, in bytes.
const QUERY_MAX: usize = 16 << 10;
/// The most bytes of a channel's name: `NAMEDATALEN - 1` of PostgreSQL.
const CHANNEL_MAX: usize = 63;
/// The longest name of `[[rows]]`, in bytes.
const ROWS_NAME_MAX: usize = 32;

/// A cookie's name (RFC 6265 §4.1.1: a token).
pub(crate) fn cookie_name(text: &str) -> Result<String, String> {
    if is_token(text) && !text.contains('*') {
        return Ok(text.to_owned());
    }
    Err("the name of a cookie".into())
}

/// The name of a service in traces.
pub(crate) fn service_name(text: &str) -> Result<String, String> {
    let is_name = (1..=NAME_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    is_name.then(|| text.to_owned()).ok_or_else(|| format!("a name of at most {NAME_MAX} bytes"))
}

/// A cookie's name, or a pattern with one `*`.
pub(crate) fn cookie_pattern(text: &str) -> Result<Pattern, String> {
    let expected = r#"the name of a cookie, or a pattern such as "*_session""#;
    if let Some(meant) = without_anchors(text) {
        return Err(format!("\"{meant}\": a regular expression is not read here"));
    }
    if !is_token(text) || text.contains('|') {
        return Err(expected.into());
    }
    pattern(text)
}

/// The pattern that stands for a regular expression such as `^wordpress_logged_in_`.
fn without_anchors(text: &str) -> Option<String> {
    let begun = text.strip_prefix('^');
    let ended = begun.unwrap_or(text).strip_suffix('$');
    let inner = ended.or(begun)?;
    let inner = inner.trim_end_matches(".*");
    let is_name = !inner.is_empty()
        && inner.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let star = if ended.is_none() { "*" } else { "" };
    is_name.then(|| format!("{inner}{star}"))
}

/// As [`cookie_pattern`], or `*` for all cookies.
pub(crate) fn any_cookie(text: &str) -> Result<Pattern, String> {
    match text {
        "*" => Pattern::parse(text).map_err(|error| error.to_string()),
        _ => cookie_pattern(text),
    }
}

/// A text, or a pattern with one `*`.
pub(crate) fn pattern_of_values(text: &str) -> Result<Pattern, String> {
    pattern(text)
}

/// The name of a form field.
pub(crate) fn form_field(text: &str) -> Result<String, String> {
    if (1..=TEXT_MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Ok(text.to_owned());
    }
    Err("the name of a field in a form".into())
}

/// The name of a query parameter as in a URL, or a pattern with one `*`.
pub(crate) fn query_pattern(text: &str) -> Result<Pattern, String> {
    if !is_query_name(text) {
        return Err(r#"the name of a query parameter, or a pattern such as "utm_*""#.into());
    }
    pattern(text)
}

/// The name of a request field in any case, or a pattern of such names.
pub(crate) fn field_pattern(text: &str) -> Result<Pattern, String> {
    if !is_token(text) || text.contains('|') {
        return Err(
            r#"the name of a request field, or a pattern such as "x-auth-request-*""#.into()
        );
    }
    // CGI and WSGI cannot distinguish `_` from `-`.
    pattern(&text.to_ascii_lowercase().replace('_', "-"))
}

/// As [`query_pattern`]; `*` matches all.
pub(crate) fn any_query(text: &str) -> Result<Pattern, String> {
    match text {
        "*" => Pattern::parse(text).map_err(|why| why.to_string()),
        text => query_pattern(text),
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    if text == "*" {
        return Err("a pattern with one * at most, and something beside it".into());
    }
    Pattern::parse(text).map_err(|why| why.to_string())
}

/// The name of a query parameter in a condition.
pub(crate) fn query_name(text: &str) -> Result<(), String> {
    let fits = is_query_name(text) && !text.contains('*');
    fits.then_some(()).ok_or_else(|| "the name of a query parameter".into())
}

/// The value of a query parameter in a condition: a literal, or `{item}`.
pub(crate) fn query_value(text: &str) -> Result<String, String> {
    if text != "{item}" && text.contains(['{', '}']) {
        return Err("a literal value, or \"{item}\"".into());
    }
    if text.len() > TEXT_MAX || text.chars().any(char::is_control) {
        return Err(format!("a printable text of at most {TEXT_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// The value of a query parameter in a route's condition.
pub(crate) fn query_condition(text: &str) -> Result<QueryValue, String> {
    match text {
        "{item}" => Ok(QueryValue::Item),
        text => query_value(text).map(QueryValue::Exactly),
    }
}

/// The text that [`query_condition`] reads back.
pub(crate) fn show_query_condition(value: &QueryValue) -> String {
    match value {
        QueryValue::Item => "{item}".to_owned(),
        QueryValue::Exactly(text) => text.clone(),
    }
}

fn is_query_name(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'&' | b'=' | b'#' | b'?');
    (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// A method as in a request: a token (RFC 9110 §9.1), in upper case.
pub(crate) fn method(text: &str) -> Result<Method, String> {
    let expected = || r#"a method such as "GET", and not CONNECT"#.to_owned();
    if text == "CONNECT" || !is_token(text) {
        return Err(expected());
    }
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Err(format!("{upper:?}: methods are case-sensitive"));
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| expected())
}

/// The name of a route.
pub(crate) fn route_name(text: &str) -> Result<String, String> {
    if !(1..=NAME_MAX).contains(&text.len()) || text.chars().any(char::is_control) {
        return Err(format!("a printable name of 1 to {NAME_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// The name of `[[rows]]`, which is part of keys in the store.
pub(crate) fn rows_name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if !(1..=ROWS_NAME_MAX).contains(&text.len()) || !text.bytes().all(fits) {
        return Err(format!("a name of 1 to {ROWS_NAME_MAX} letters, digits, \"-\" or \"_\""));
    }
    Ok(text.to_owned())
}

/// The name of an operator's token.
pub(crate) fn admin_token_name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.@".contains(&b);
    if !(1..=TOKEN_NAME_MAX).contains(&text.len()) || !text.bytes().all(fits) {
        let why = format!("a name of 1 to {TOKEN_NAME_MAX} letters, digits, or any of - _ . @");
        return Err(why);
    }
    match text {
        "admin" => Err("another name: this is the one of [admin] token".to_owned()),
        "socket" => Err("another name: this is the one of commands over the socket".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// The name of the app that a route uses.
pub(crate) fn origin_reference(text: &str) -> Result<String, String> {
    if text.contains(['/', ':', '.']) {
        return Err(
            "the name of an app, such as \"blog\", whose url is in [origins.blog]".to_owned()
        );
    }
    rows_name(text)
}

/// The name of a database that rows come from.
pub(crate) fn database_reference(text: &str) -> Result<String, String> {
    if text.contains(['/', ':', '.']) {
        return Err(
            "the name of a database, such as \"shop\", whose url is in [databases.shop]".to_owned()
        );
    }
    rows_name(text)
}

/// The name of a column.
pub(crate) fn column_name(text: &str) -> Result<String, String> {
    if !(1..=NAME_MAX).contains(&text.len()) || text.chars().any(char::is_control) {
        return Err(format!("the name of a column, of 1 to {NAME_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// SQL that reads a row.
pub(crate) fn rows_query(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.len() > QUERY_MAX || text.contains('\0') {
        return Err(format!("an SQL query of at most {QUERY_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// Ids of rows: one, or a range of numbers.
pub(crate) fn row_ids(text: &str) -> Result<RowIds, String> {
    let ids = RowIds::parse(text).filter(|_| Row::new(text).is_some());
    ids.ok_or_else(|| "the id of a row, or a range such as \"1..1000\"".to_owned())
}

/// A channel of PostgreSQL. The server cuts longer names off.
pub(crate) fn channel(text: &str) -> Result<String, String> {
    if !(1..=CHANNEL_MAX).contains(&text.len()) || text.chars().any(char::is_control) {
        return Err(format!("the name of a channel, of 1 to {CHANNEL_MAX} bytes"));
    }
    Ok(text.to_owned())
}

/// Tags or paths that a database may purge.
pub(crate) fn allowed_purge(text: &str) -> Result<AllowedPurge, String> {
    let purge = AllowedPurge::parse(text);
    purge.ok_or_else(|| "\"tag:news\", \"tag:item-*\", \"url:/news\" or \"url:/shop/*\"".to_owned())
}

/// The name of a further origin. The first one is called `origin`, like its table.
pub(crate) fn origin_name(text: &str) -> Result<String, String> {
    match text {
        "origin" => Err("another name: this is the one of [origin]".to_owned()),
        text => rows_name(text),
    }
}

/// The prefix of every key in the store.
pub(crate) fn key_prefix(text: &str) -> Result<String, String> {
    if text.len() > NAME_MAX || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("at most {NAME_MAX} bytes of visible ASCII"));
    }
    Ok(text.to_owned())
}

/// Whether the text is a token (RFC 9110 §5.6.2), as methods and cookie names are.
fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_pattern_has_one_star_with_something_beside_it() {
        for good in ["login", "*_session", "a_*_a"] {
            assert_eq!(cookie_pattern(good).unwrap().to_string(), good);
        }
        for bad in ["", "*", "**", "a*b*", "a b", "a=b", "a;b", "ä", "a|b", "^a", "a$"] {
            assert!(cookie_pattern(bad).is_err(), "{bad}");
        }
        for (expression, meant) in [
            ("^wordpress_logged_in_", Some("wordpress_logged_in_*")),
            ("^PHPSESSID$", Some("PHPSESSID")),
            ("^sess.*", Some("sess*")),
            ("^(a|b)$", None),
            ("sess.*", None),
        ] {
            assert_eq!(without_anchors(expression).as_deref(), meant, "{expression}");
        }
    }
}
