//! Fields that hold for one hop: the connection-specific ones (RFC 9110 §7.6.1), and those that frame a
//! message (RFC 9112 §6).
//!
//! The fields for the next hop are built elsewhere, after these are removed.

use ::http::header::{
    self, CONNECTION, CONTENT_LENGTH, HeaderName, MAX_FORWARDS, TE, TRANSFER_ENCODING,
};
use ::http::{HeaderMap, HeaderValue, Method};

use super::list::{divide, members, trim};
use super::remove::remove_fields;

/// Removes the fields that hold for one connection only: `Connection`, the fields that it names, and those
/// that RFC 9110 §7.6.1 lists. `Trailer` is removed too; code that forwards trailers saves it first.
/// End-to-end fields stay even if `Connection` names them.
///
/// `Proxy-Authenticate` and `Proxy-Authorization` stay (RFC 9110 §11.7: a proxy may relay them);
/// [`strip_for_storing`] removes them as well.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        for name in connection_options(headers) {
            headers.remove(name);
        }
    }
    remove_fields(headers, is_hop_by_hop);
}

/// Whether a field holds for one connection only, whatever `Connection` names.
#[must_use]
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    // The list of RFC 9110 §7.6.1, and two fields without a current specification.
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "http2-settings"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Removes the fields that must not be stored with a response: those that [`strip_hop_by_hop`] removes, and
/// the proxy authentication fields (RFC 9111 §3.1).
pub fn strip_for_storing(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in &PROXY_LOGIN {
        headers.remove(name);
    }
}

/// Whether `Connection` lists `option`, given in lower case (`close`, `upgrade`).
#[must_use]
pub fn connection_names(headers: &HeaderMap, option: &str) -> bool {
    members(headers, &CONNECTION).any(|member| member.eq_ignore_ascii_case(option.as_bytes()))
}

/// Whether the client accepts trailers: `TE` has the member `trailers` (RFC 9110 §10.1.4).
#[must_use]
pub fn te_trailers(headers: &HeaderMap) -> bool {
    members(headers, &TE)
        .any(|member| trim(divide(member, b';').0).eq_ignore_ascii_case(b"trailers"))
}

/// The hops left to a TRACE or OPTIONS request (RFC 9110 §7.6.2); `None` without a valid `Max-Forwards`.
#[must_use]
pub fn hops_left(method: &Method, headers: &HeaderMap) -> Option<u64> {
    if !matches!(*method, Method::TRACE | Method::OPTIONS) {
        return None;
    }
    let digits = trim(only_line(headers, &MAX_FORWARDS).ok().flatten()?);
    // `parse` accepts a sign, which RFC 9110 does not allow.
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    text.parse().ok()
}

/// Decrements the `Max-Forwards` of a TRACE or OPTIONS request.
pub fn count_down(method: &Method, headers: &mut HeaderMap) {
    if let Some(left) = hops_left(method, headers) {
        headers.insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
    }
}

/// The transfer coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEncoding {
    /// No transfer coding: the length or the end of the connection ends the body.
    None,
    /// The chunked transfer coding.
    Chunked,
}

/// The framing is ambiguous: two parsers could read it differently, which allows request smuggling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message's framing is ambiguous")]
pub struct BadFraming;

/// The transfer coding of a message. `Transfer-Encoding` must be absent, or a single line with only
/// `chunked`: parsers disagree about other codings, lists and repetitions (RFC 9112 §6.1, §11.2).
///
/// # Errors
/// [`BadFraming`] for anything else.
pub fn transfer_encoding(headers: &HeaderMap) -> Result<TransferEncoding, BadFraming> {
    match only_line(headers, &TRANSFER_ENCODING)? {
        None => Ok(TransferEncoding::None),
        Some(line) if trim(line).eq_ignore_ascii_case(b"chunked") => Ok(TransferEncoding::Chunked),
        Some(_) => Err(BadFraming),
    }
}

/// The length of the body in bytes: `Content-Length` must be absent, or a single line of digits (RFC 9110
/// §8.6).
///
/// # Errors
/// [`BadFraming`] for lists, repetitions, signs, or values over 64 bits.
pub fn content_length(headers: &HeaderMap) -> Result<Option<u64>, BadFraming> {
    let Some(line) = only_line(headers, &CONTENT_LENGTH)? else {
        return Ok(None);
    };
    let digits = trim(line);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(BadFraming);
    }
    let length = digits
        .iter()
        .try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    length.map(Some).ok_or(BadFraming)
}

fn only_line<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h [u8]>, BadFraming> {
    let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    match (lines.next(), lines.next()) {
        (first, None) => Ok(first),
        (_, Some(_)) => Err(BadFraming),
    }
}

/// The fields that `Connection` names, and that hold for one connection only, but for [`is_hop_by_hop`].
pub fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    members(headers, &CONNECTION)
        // The usual options, which are the names of no other fields.
        .filter(|member| !USUAL_OPTIONS.iter().any(|usual| member.eq_ignore_ascii_case(usual)))
        .filter_map(|member| HeaderName::from_bytes(member).ok())
        .filter(|name| !END_TO_END.contains(name))
        .collect()
}

const USUAL_OPTIONS: [&[u8]; 3] = [b"close", b"keep-alive", b"upgrade"];

static PROXY_LOGIN: [HeaderName; 3] = [
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
];

/// SECURITY: fields that stay even when `Connection` names them. Removing them could turn a private page into
/// a shared one, drop a login, or change where a message ends. RFC 9110 §7.6.1 forbids naming a field that
/// is meant for all recipients.
static END_TO_END: [HeaderName; 38] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::ACCEPT_LANGUAGE,
    header::AGE,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    HeaderName::from_static("cdn-cache-control"),
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::DATE,
    header::ETAG,
    header::EXPECT,
    header::EXPIRES,
    header::FORWARDED,
    header::HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LAST_MODIFIED,
    header::LOCATION,
    header::ORIGIN,
    header::PRAGMA,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::RANGE,
    header::REFERER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    header::VARY,
    header::VIA,
    header::WWW_AUTHENTICATE,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| {
                (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn left(lines: &[(&str, &str)]) -> Vec<String> {
        let mut headers = headers(lines);
        strip_hop_by_hop(&mut headers);
        let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[test]
    fn hops_are_counted_down_where_they_count() {
        for (method, line, expected) in [
            (Method::OPTIONS, "5", Some(5)),
            (Method::TRACE, "0", Some(0)),
            (Method::OPTIONS, "-1", None),
            (Method::OPTIONS, "+1", None),
            (Method::OPTIONS, "1, 2", None),
            (Method::OPTIONS, "", None),
            (Method::GET, "5", None),
        ] {
            let mut fields = headers(&[("max-forwards", line)]);
            assert_eq!(hops_left(&method, &fields), expected, "{method} {line}");
            count_down(&method, &mut fields);
            let left =
                expected.map_or_else(|| line.to_owned(), |n| n.saturating_sub(1).to_string());
            assert_eq!(fields.get(MAX_FORWARDS).unwrap(), left.as_str());
        }
    }

    #[test]
    fn fields_of_the_connection_go() {
        for lines in [
            &[("connection", "close")][..],
            &[("connection", "x-private"), ("x-private", "1")],
            &[("connection", "X-Private , keep-alive"), ("x-private", "1"), ("keep-alive", "9")],
            &[("connection", "x-a"), ("connection", "x-b"), ("x-a", "1"), ("x-b", "2")],
            &[("keep-alive", "timeout=5")],
            &[("proxy-connection", "keep-alive")],
            &[("te", "trailers")],
            &[("trailer", "x-sum")],
            &[("transfer-encoding", "chunked")],
            &[("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAoAAAAAIAAAAA")],
            &[("connection", "x-twice"), ("x-twice", "1"), ("x-twice", "2")],
        ] {
            assert!(left(lines).is_empty(), "{lines:?} left {:?}", left(lines));
        }
    }

    #[test]
    fn end_to_end_fields_stay_even_when_connection_names_them() {
        for name in [
            "host",
            "content-length",
            "cookie",
            "authorization",
            "cache-control",
            "via",
            "set-cookie",
            "vary",
            "etag",
            "content-type",
            "location",
            "proxy-authorization",
        ] {
            assert_eq!(left(&[("connection", name), (name, "1")]), [name]);
        }
        assert_eq!(left(&[("x-other", "1"), ("connection", "no such, \"name\"")]), ["x-other"]);
    }

    #[test]
    fn a_proxy_s_log_in_is_relayed_but_not_stored() {
        let lines = [("proxy-authenticate", "Basic"), ("proxy-authentication-info", "x")];
        assert_eq!(left(&lines), ["proxy-authenticate", "proxy-authentication-info"]);
        let mut stored = headers(&lines);
        strip_for_storing(&mut stored);
        assert!(stored.is_empty());
    }

    #[test]
    fn only_one_plain_chunked_is_a_transfer_coding() {
        for (values, expected) in [
            (&[][..], Ok(TransferEncoding::None)),
            (&["chunked"], Ok(TransferEncoding::Chunked)),
            (&["Chunked"], Ok(TransferEncoding::Chunked)),
            (&[" chunked\t"], Ok(TransferEncoding::Chunked)),
            (&[""], Err(BadFraming)),
            (&["identity"], Err(BadFraming)),
            (&["gzip, chunked"], Err(BadFraming)),
            (&[",chunked"], Err(BadFraming)),
            (&["chunked,"], Err(BadFraming)),
            (&["chunked, chunked"], Err(BadFraming)),
            (&["chunked", "chunked"], Err(BadFraming)),
            (&["chunked", ""], Err(BadFraming)),
            (&["xchunked"], Err(BadFraming)),
            (&["chunked;q=1"], Err(BadFraming)),
            (&["\"chunked\""], Err(BadFraming)),
        ] {
            let lines: Vec<_> = values.iter().map(|v| ("transfer-encoding", *v)).collect();
            assert_eq!(transfer_encoding(&headers(&lines)), expected, "{values:?}");
        }
    }

    #[test]
    fn only_one_line_of_digits_is_a_length() {
        for (values, expected) in [
            (&[][..], Ok(None)),
            (&["0"], Ok(Some(0))),
            (&["0012"], Ok(Some(12))),
            (&[" 12 "], Ok(Some(12))),
            (&["18446744073709551615"], Ok(Some(u64::MAX))),
            (&["18446744073709551616"], Err(BadFraming)),
            (&[""], Err(BadFraming)),
            (&["5, 5"], Err(BadFraming)),
            (&["5", "5"], Err(BadFraming)),
            (&["+5"], Err(BadFraming)),
            (&["-5"], Err(BadFraming)),
            (&["0x5"], Err(BadFraming)),
            (&["5 5"], Err(BadFraming)),
            (&["5_0"], Err(BadFraming)),
        ] {
            let lines: Vec<_> = values.iter().map(|v| ("content-length", *v)).collect();
            assert_eq!(content_length(&headers(&lines)), expected, "{values:?}");
        }
    }

    #[test]
    fn trailers_are_taken_where_te_says_so() {
        for (value, expected) in [
            ("trailers", true),
            ("Trailers", true),
            ("gzip;q=0.5, trailers", true),
            ("trailers;q=0.5", true),
            ("", false),
            ("gzip", false),
            ("xtrailers", false),
        ] {
            assert_eq!(te_trailers(&headers(&[("te", value)])), expected, "{value}");
        }
        assert!(!te_trailers(&HeaderMap::new()));
    }

    #[test]
    fn connection_options_are_compared_case_blind() {
        let both = headers(&[("connection", "Keep-Alive, UPGRADE")]);
        assert!(connection_names(&both, "upgrade"));
        assert!(!connection_names(&both, "close"));
    }

    proptest! {
        #[test]
        fn no_connection_line_takes_the_host(line in "[ -~]{0,40}") {
            let mut any = headers(&[("host", "a.test"), ("connection", &line)]);
            strip_hop_by_hop(&mut any);
            prop_assert_eq!(any.len(), 1);
        }
    }
}
