//! Gives HTTP/2 requests the shape of HTTP/1.1 requests (RFC 9113 §8), so that later code need not know the
//! version.
//!
//! Malformed requests (pseudo-header fields missing or repeated, upper-case names, connection-specific
//! fields, wrong lengths) are rejected earlier: the library resets their stream.

use ::http::header::{COOKIE, HOST};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue};

use super::host::Scheme;

/// Why an HTTP/2 request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRequest {
    /// A field's value begins or ends with a space (RFC 9113 §8.2.1).
    #[error("a field begins or ends with a space")]
    Padded,
    /// `:scheme` differs from the connection's scheme (RFC 9110 §7.4).
    #[error("the request is for another scheme than the connection's")]
    Scheme,
    /// The authority is not a valid field value.
    #[error("the authority is malformed")]
    Authority,
}

/// Normalises a request's head: one `Cookie` line, and the authority as `Host`. An existing `Host` stays as
/// it is and must agree with the authority (`host::site` checks that). `own` is the scheme of the visitor's
/// connection, where it is known: `:scheme` must then be equal. Otherwise `:scheme` is ignored.
///
/// # Errors
/// Each case of [`MalformedRequest`].
pub fn normalise(head: &mut Parts, own: Option<Scheme>) -> Result<(), MalformedRequest> {
    if head.headers.values().any(is_padded) {
        return Err(MalformedRequest::Padded);
    }
    if let (Some(own), Some(said)) = (own, head.uri.scheme_str())
        && Scheme::parse(said.as_bytes()) != Some(own)
    {
        return Err(MalformedRequest::Scheme);
    }
    join_cookies(&mut head.headers);
    if let Some(authority) = head.uri.authority()
        && !head.headers.contains_key(HOST)
    {
        let host =
            HeaderValue::from_str(authority.as_str()).map_err(|_| MalformedRequest::Authority)?;
        head.headers.insert(HOST, host);
    }
    Ok(())
}

fn is_padded(value: &HeaderValue) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.as_bytes().first()) || is_space(value.as_bytes().last())
}

/// Joins the `Cookie` lines into one (RFC 9113 §8.2.3): HTTP/2 may send one cookie per line, while HTTP/1.1
/// origins expect a single line.
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    if lines.by_ref().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Valid values joined by `; ` are a valid value.
    if let Ok(mut joined) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        joined.set_sensitive(true);
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use ::http::Request;

    use super::*;

    fn head(uri: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn lines<'h>(head: &'h Parts, name: &str) -> Vec<&'h str> {
        head.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn crumbs_are_one_cookie_line() {
        for (crumbs, joined) in [
            (&[][..], &[][..]),
            (&["a=1"], &["a=1"]),
            (&["a=1", "b=2"], &["a=1; b=2"]),
            (&["a=1; b=2", "c=3", ""], &["a=1; b=2; c=3; "]),
        ] {
            let fields: Vec<_> = crumbs.iter().map(|event| ("cookie", *event)).collect();
            let mut head = head("http://shop.test/", &fields);
            normalise(&mut head, Some(Scheme::Http)).unwrap();
            assert_eq!(lines(&head, "cookie"), joined);
        }
    }

    #[test]
    fn the_authority_is_the_host_where_there_is_none() {
        for (uri, host, expected) in [
            ("http://shop.test/a", None, &["shop.test"][..]),
            ("http://shop.test:81/a", None, &["shop.test:81"]),
            ("http://shop.test/a", Some("other.test"), &["other.test"]),
            ("/a", Some("shop.test"), &["shop.test"]),
            ("/a", None, &[]),
        ] {
            let fields: Vec<_> = host.iter().map(|host| ("host", *host)).collect();
            let mut head = head(uri, &fields);
            normalise(&mut head, Some(Scheme::Http)).unwrap();
            assert_eq!(lines(&head, "host"), expected, "{uri} {host:?}");
        }
    }

    #[test]
    fn the_scheme_is_the_connection_s_own() {
        for (uri, own, expected) in [
            ("http://a.test/", Some(Scheme::Http), Ok(())),
            ("https://a.test/", Some(Scheme::Https), Ok(())),
            ("https://a.test/", Some(Scheme::Http), Err(MalformedRequest::Scheme)),
            ("http://a.test/", Some(Scheme::Https), Err(MalformedRequest::Scheme)),
            ("ftp://a.test/", Some(Scheme::Http), Err(MalformedRequest::Scheme)),
            ("https://a.test/", None, Ok(())),
            ("/", Some(Scheme::Http), Ok(())),
        ] {
            assert_eq!(normalise(&mut head(uri, &[]), own), expected, "{uri} {own:?}");
        }
    }

    #[test]
    fn spaces_around_a_value_are_refused() {
        for value in [" a", "a ", "\ta", "a\t", " "] {
            let mut head = head("http://a.test/", &[("x-a", value)]);
            assert_eq!(normalise(&mut head, None), Err(MalformedRequest::Padded), "{value:?}");
        }
        normalise(&mut head("http://a.test/", &[("x-a", "a b"), ("x-b", "")]), None).unwrap();
    }
}
