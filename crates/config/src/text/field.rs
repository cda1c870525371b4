//! Names of header fields.

use ::http::HeaderName;

use anteroom_http::forwarded;

/// The name of a field that may be part of the page key.
pub(crate) fn key_header(text: &str) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    if is_reserved(name.as_str()) || forwarded::is_reserved(name.as_str()) {
        return Err("another field: this one is removed, rewritten or never shared".into());
    }
    if forwarded::is_detour(name.as_str()) {
        return Err("another field: an app may take this one for the path or the host".into());
    }
    Ok(name)
}

/// The name of a field that a fill sends without making it part of the page key.
pub(crate) fn send_header(text: &str) -> Result<HeaderName, String> {
    let name = key_header(text)?;
    if forwarded::is_other_method(name.as_str()) {
        return Err("another field: an app may take this one for the method".into());
    }
    Ok(name)
}

/// The name of the field that carries the visitor's identity to the origin.
pub(crate) fn identity_header(text: &str) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    let taken = is_reserved(name.as_str()) || STANDARD_FIELDS.contains(&name.as_str());
    if taken {
        return Err("a field of your own: this one already has a meaning".into());
    }
    Ok(name)
}

/// The name of a field for a receiver of traces, which the proxy does not set itself.
pub(crate) fn receiver_header(text: &str) -> Result<HeaderName, String> {
    let name = field_name(text)?;
    let is_key = name == ::http::header::AUTHORIZATION;
    let is_taken = is_reserved(name.as_str()) || STANDARD_FIELDS.contains(&name.as_str());
    if is_taken && !is_key {
        return Err("another field: the proxy sets this one, or it is not for receivers".into());
    }
    Ok(name)
}

fn field_name(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| r#"the name of a field such as "X-Anteroom-User""#.into())
}

/// Hop-by-hop fields (RFC 9110 §7.6.1), fields that identify the client, and fields that the proxy sets.
fn is_reserved(name: &str) -> bool {
    const PREFIXES: [&str; 4] = ["anteroom-", "x-forwarded-", "proxy-", "if-"];
    const NAMES: [&str; 19] = [
        "authorization",
        "cdn-loop",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy",
        "range",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-anteroom-session",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Request fields with a meaning of their own, which the identity would replace.
const STANDARD_FIELDS: [&str; 18] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "cache-control",
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "date",
    "from",
    "max-forwards",
    "origin",
    "pragma",
    "referer",
    "traceparent",
    "tracestate",
    "user-agent",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_takes_no_name_that_means_something_else() {
        assert!(identity_header("X-Remote-User").is_ok());
        for bad in ["Host", "cookie", "Connection", "Via", "X-Forwarded-For", "Accept", "a b", ""] {
            assert!(identity_header(bad).is_err(), "{bad}");
        }
    }
}
