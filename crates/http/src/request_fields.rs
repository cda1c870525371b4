//! Request fields by what they say of the visitor: those on which no page depends, and those that name the visitor.

use std::borrow::Cow;

use ::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DNT, EXPECT, HOST,
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, PRAGMA, RANGE,
    REFERER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, UPGRADE_INSECURE_REQUESTS, VIA,
};
use ::http::{HeaderMap, HeaderName};

use super::pattern::Pattern;

/// Fields of HTTP that a page does not depend on: conditions and ranges, which the cache evaluates itself, fields about
/// the connection and the way, and fields that browsers add to every request. `Content-Type` describes a body, and a request with
/// a body is not for the cache.
static OF_HTTP: [HeaderName; 22] = [
    ACCEPT_ENCODING,
    CACHE_CONTROL,
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    DNT,
    EXPECT,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    PRAGMA,
    RANGE,
    REFERER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    UPGRADE_INSECURE_REQUESTS,
    VIA,
];

/// Fields by which browsers, networks in front of a site and tracing name one request. Those that describe the visitor
/// (`CF-IPCountry`, `CloudFront-Viewer-*`, `CF-Device-Type`) are not among them: pages differ by these.
const OF_ONE_REQUEST: [&str; 15] = [
    // RFC 9218 §4; Fetch Metadata; Global Privacy Control; the older name of `Sec-Purpose`.
    "priority",
    "sec-gpc",
    "sec-purpose",
    "purpose",
    // RFC 8586.
    "cdn-loop",
    // Cloudflare HTTP headers.
    "cf-ray",
    "cf-ew-via",
    "cf-worker",
    // AWS Elastic Load Balancing, Request tracing.
    "x-amzn-trace-id",
    // Google Cloud Trace.
    "x-cloud-trace-context",
    // W3C Trace Context, W3C Baggage.
    "traceparent",
    "tracestate",
    "baggage",
    // Sentry's distributed tracing.
    "sentry-trace",
    // OpenZipkin B3 propagation, in one field.
    "b3",
];

/// Whether no page depends on a field, so that a fetch for the cache may leave it out.
#[must_use]
pub fn is_neutral(name: &HeaderName) -> bool {
    let text = name.as_str();
    OF_HTTP.contains(name)
        || OF_ONE_REQUEST.contains(&text)
        || text.starts_with("sec-fetch-")
        || text.starts_with("x-b3-")
}

/// Fields by which clients, and proxies in front that log visitors in, name the sender of a request.
const IDENTITY: [&str; 26] = [
    // Keys and tokens of APIs; GitLab's private token; RFC 9449; RFC 9421.
    "x-api-key",
    "api-key",
    "x-auth-token",
    "x-access-token",
    "private-token",
    "dpop",
    "signature",
    // Authelia, Authentik, Apache's mod_auth modules, Traefik's and Caddy's forward-auth, oauth2-proxy.
    "remote-user",
    "remote-email",
    "remote-groups",
    "x-remote-user",
    "x-forwarded-user",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-access-token",
    "x-auth-request-*",
    "x-authentik-*",
    // Cloudflare Access.
    "cf-access-*",
    // AWS Application Load Balancer, authentication.
    "x-amzn-oidc-*",
    // Google Cloud Identity-Aware Proxy.
    "x-goog-authenticated-user-*",
    "x-goog-iap-jwt-assertion",
    // Azure App Service, authentication.
    "x-ms-client-principal*",
    "x-ms-token-*",
    // Tailscale Serve; Pomerium.
    "tailscale-user-*",
    "x-pomerium-*",
];

/// The fields that name the sender of a request: names, and patterns of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityHeaders {
    patterns: Vec<Pattern>,
    /// PERF: how the names begin, a bit each: nearly no other field begins like one of them.
    beginnings: [u64; 4],
}

impl Default for IdentityHeaders {
    fn default() -> Self {
        let parsed = IDENTITY.iter().filter_map(|name| Pattern::parse(name).ok());
        Self::new(parsed.collect())
    }
}

impl IdentityHeaders {
    /// Those with these names, which are in lower case and have `-` where there may be `_`.
    #[must_use]
    pub fn new(patterns: Vec<Pattern>) -> Self {
        let mut beginnings = [0; 4];
        for pattern in &patterns {
            let begins = match pattern {
                Pattern::Exact(name) => name.as_bytes(),
                Pattern::Affix { prefix, .. } if prefix.len() >= BEGINNING => prefix.as_bytes(),
                Pattern::Affix { .. } => {
                    beginnings = [u64::MAX; 4];
                    break;
                }
            };
            for spelling in spellings(begins) {
                let (word, bit) = place(&spelling);
                beginnings[word] |= bit;
            }
        }
        Self { patterns, beginnings }
    }

    /// The names and patterns.
    #[must_use]
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The fields of a request that are among them.
    pub fn of<'h>(&self, headers: &'h HeaderMap) -> impl Iterator<Item = &'h HeaderName> {
        headers.keys().filter(|name| self.has(name.as_str()))
    }

    /// Whether a name is among them. CGI and WSGI cannot distinguish `_` from `-`.
    fn has(&self, name: &str) -> bool {
        let (word, bit) = place(name.as_bytes());
        if self.beginnings[word] & bit == 0 {
            return false;
        }
        let name = match name.contains('_') {
            true => Cow::Owned(name.replace('_', "-")),
            false => Cow::Borrowed(name),
        };
        self.patterns.iter().any(|pattern| pattern.matches(name.as_bytes()))
    }
}

/// How many bytes of a name are looked at first.
const BEGINNING: usize = 4;

/// The beginning of a name with `_` for some of its `-`, in every way.
fn spellings(name: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    for byte in name.iter().take(BEGINNING) {
        let others = all.clone();
        all.iter_mut().for_each(|spelling: &mut Vec<u8>| spelling.push(*byte));
        if *byte == b'-' {
            all.extend(others.into_iter().map(|other| [&*other, b"_"].concat()));
        }
    }
    all
}

/// The beginning of a name as one of 256 bits: a word and a bit in it.
fn place(name: &[u8]) -> (usize, u64) {
    let beginning = match name {
        [first, second, third, fourth, ..] => {
            u32::from_le_bytes([*first, *second, *third, *fourth])
        }
        short => short.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
    };
    // With this factor no field that browsers send shares a bit with a listed one.
    let hash = beginning.wrapping_mul(0x27D4_EB2F);
    ((hash >> 30) as usize, 1 << (hash >> 24 & 63))
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;

    use super::*;

    fn found(identity: &IdentityHeaders, name: &'static str) -> bool {
        let value = HeaderValue::from_static("1");
        identity.of(&HeaderMap::from_iter([(HeaderName::from_static(name), value)])).count() == 1
    }

    #[test]
    fn what_browsers_send_is_told_by_its_beginning() {
        let usual = IdentityHeaders::default();
        for name in ["accept", "cookie", "host", "sec-fetch-mode", "sec-ch-ua", "user-agent", "dnt"]
        {
            let (word, bit) = place(name.as_bytes());
            assert_eq!(usual.beginnings[word] & bit, 0, "{name}");
        }
    }

    #[test]
    fn fields_that_say_who_sends_a_request_are_found() {
        let usual = IdentityHeaders::default();
        assert_eq!(usual.patterns().len(), IDENTITY.len(), "each can be parsed");
        for (name, expected) in [
            ("x-api-key", true),
            ("dpop", true),
            ("x-auth-request-email", true),
            ("cf-access-jwt-assertion", true),
            ("x-amzn-oidc-data", true),
            ("x-ms-client-principal", true),
            ("x-ms-client-principal-name", true),
            ("x-goog-iap-jwt-assertion", true),
            ("remote-user", true),
            ("x_api_key", true),
            ("x_auth-request_user", true),
            ("x-api-keys", false),
            ("x-amzn-trace-id", false),
            ("cf-ray", false),
            ("accept", false),
            ("a", false),
        ] {
            assert_eq!(found(&usual, name), expected, "{name}");
        }
        let own = ["x-tenant", "*-badge"].map(|name| Pattern::parse(name).unwrap());
        let own = IdentityHeaders::new(own.to_vec());
        for (name, expected) in [("x-tenant", true), ("my-badge", true), ("x-api-key", false)] {
            assert_eq!(found(&own, name), expected, "{name}");
        }
        assert!(!found(&IdentityHeaders::new(Vec::new()), "x-api-key"));
    }

    #[test]
    fn fields_that_name_one_request_are_neutral_and_those_of_the_visitor_are_not() {
        for (name, expected) in [
            ("cdn-loop", true),
            ("cf-ray", true),
            ("x-amzn-trace-id", true),
            ("x-cloud-trace-context", true),
            ("tracestate", true),
            ("baggage", true),
            ("sentry-trace", true),
            ("b3", true),
            ("x-b3-traceid", true),
            ("purpose", true),
            ("range", true),
            ("content-type", true),
            ("sec-fetch-mode", true),
            ("cf-ipcountry", false),
            ("cf-device-type", false),
            ("cloudfront-viewer-country", false),
            ("x-amzn-oidc-data", false),
            ("x-anything", false),
            ("cookie", false),
            ("authorization", false),
            ("accept-language", false),
        ] {
            assert_eq!(is_neutral(&HeaderName::from_static(name)), expected, "{name}");
        }
    }
}
