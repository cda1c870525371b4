//! Protocol upgrades (RFC 9110 §7.8) and the WebSocket handshake (RFC 6455).
//!
//! Determines what a request asks for and what a response agreed to; performs no I/O.

use ::http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use ::http::{HeaderMap, HeaderValue};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1_smol::Sha1;

use super::hop;
use super::list::{divide, members, only_line, trim};

/// The GUID that a server appends to the key before it hashes it (RFC 6455 §1.3).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// SECURITY: prefixes of protocols that carry HTTP. Over an upgraded connection a client could request pages
/// from the origin past the proxy, with an identity of its own choice. They are never passed on (h2c
/// smuggling, including the drafts' `h2c-14`; `tls` is from RFC 2817).
const CARRY_HTTP: [&[u8]; 4] = [b"h2", b"h3", b"http", b"tls"];

/// A protocol that replaces HTTP on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeProtocol(HeaderValue);

impl UpgradeProtocol {
    /// The WebSocket protocol.
    #[must_use]
    pub fn websocket() -> Self {
        Self(HeaderValue::from_static("websocket"))
    }

    /// The protocol that a request asks for, among those that may be passed on: WebSocket if it is listed,
    /// else the first.
    #[must_use]
    pub fn from_request(headers: &HeaderMap) -> Option<Self> {
        if !hop::connection_names(headers, "upgrade") {
            return None;
        }
        let mut first = None;
        for member in members(headers, &UPGRADE).filter(|member| may_pass(member)) {
            let protocol = HeaderValue::from_bytes(member).ok().map(Self);
            if protocol.as_ref().is_some_and(Self::is_websocket) {
                return protocol;
            }
            first = first.or(protocol);
        }
        first
    }

    /// Whether the protocol is WebSocket.
    #[must_use]
    pub fn is_websocket(&self) -> bool {
        self.0.as_bytes().eq_ignore_ascii_case(b"websocket")
    }

    /// Sets the `Upgrade` and `Connection` fields for this protocol.
    pub fn put(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, self.0.clone());
    }

    /// Whether a 101 response agrees on exactly this protocol, and its fields match the request's.
    #[must_use]
    pub fn is_agreed(&self, request: &HeaderMap, response: &HeaderMap) -> bool {
        let mut named = members(response, &UPGRADE);
        let is_this = named.next().is_some_and(|name| name.eq_ignore_ascii_case(self.0.as_bytes()))
            && named.next().is_none();
        is_this
            && hop::connection_names(response, "upgrade")
            && (!self.is_websocket() || is_accepted(request, response))
    }
}

/// A WebSocket key made of 16 random bytes (RFC 6455 §4.1).
#[must_use]
pub fn websocket_key(chance: u128) -> HeaderValue {
    let key = BASE64_STANDARD.encode(chance.to_be_bytes());
    HeaderValue::try_from(key).expect("base64 is visible ASCII")
}

/// Whether a member of `Upgrade` may be passed on: `name` or `name/version`, and not a protocol that carries
/// HTTP.
fn may_pass(member: &[u8]) -> bool {
    let (name, version) = divide(member, b'/');
    let is_token = |text: &[u8]| !text.is_empty() && text.iter().all(|byte| is_tchar(*byte));
    is_token(name)
        && version.is_none_or(is_token)
        && !CARRY_HTTP.iter().any(|http| begins(name, http))
}

fn begins(name: &[u8], start: &[u8]) -> bool {
    name.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// Whether a byte is allowed in a token (RFC 9110 §5.6.2).
fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether `Sec-WebSocket-Accept` proves that the server has read this request's key (RFC 6455 §4.2.2).
fn is_accepted(request: &HeaderMap, response: &HeaderMap) -> bool {
    let key = only_line(request, &SEC_WEBSOCKET_KEY);
    let accept = only_line(response, &SEC_WEBSOCKET_ACCEPT);
    match (key, accept) {
        (Some(key), Some(accept)) => trim(accept) == accept_of(trim(key)).as_bytes(),
        _ => false,
    }
}

fn accept_of(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(WEBSOCKET_GUID);
    BASE64_STANDARD.encode(hash.digest().bytes())
}

#[cfg(test)]
mod tests {
    use ::http::HeaderName;

    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap())
        };
        lines.iter().map(pair).collect()
    }

    fn asked(lines: &[(&str, &str)]) -> Option<String> {
        UpgradeProtocol::from_request(&headers(lines))
            .map(|name| name.0.to_str().unwrap().to_owned())
    }

    #[test]
    fn one_protocol_is_asked_for_and_none_that_carries_http() {
        for (upgrade, expected) in [
            ("websocket", Some("websocket")),
            ("WebSocket", Some("WebSocket")),
            ("x-chat/2, websocket", Some("websocket")),
            ("x-chat/2, y", Some("x-chat/2")),
            ("h2c", None),
            ("H2C", None),
            ("h2c, x-chat", Some("x-chat")),
            ("h2c-14, H2C-17/1, h2-14, h3-29, HTTP2, https/1.1, TLS-1.3", None),
            ("HTTP/2.0, TLS/1.0, https, h2, h3", None),
            ("", None),
            ("two words", None),
            ("/1", None),
            ("x/", None),
            ("x/1/2", None),
            ("\"websocket\"", None),
        ] {
            let lines = [("connection", "keep-alive, Upgrade"), ("upgrade", upgrade)];
            assert_eq!(asked(&lines).as_deref(), expected, "{upgrade:?}");
        }
        assert_eq!(asked(&[("upgrade", "websocket")]), None, "Connection has to name it");
        assert_eq!(asked(&[("connection", "upgrade")]), None);
    }

    #[test]
    fn only_what_was_asked_for_is_agreed_on() {
        let chat = UpgradeProtocol(HeaderValue::from_static("x-chat/2"));
        for (connection, upgrade, expected) in [
            ("upgrade", "x-chat/2", true),
            ("Upgrade, keep-alive", "X-Chat/2", true),
            ("upgrade", "x-chat", false),
            ("upgrade", "x-chat/2, y", false),
            ("upgrade", "websocket", false),
            ("close", "x-chat/2", false),
            ("upgrade", "", false),
        ] {
            let answer = headers(&[("connection", connection), ("upgrade", upgrade)]);
            let found = chat.is_agreed(&HeaderMap::new(), &answer);
            assert_eq!(found, expected, "{connection:?} {upgrade:?}");
        }
    }

    #[test]
    fn a_websocket_is_agreed_on_by_its_key() {
        // The example of RFC 6455 §1.3.
        let (key, accept) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let answer = |accept: &[&str]| {
            let mut lines = vec![("connection", "upgrade"), ("upgrade", "websocket")];
            lines.extend(accept.iter().map(|accept| ("sec-websocket-accept", *accept)));
            headers(&lines)
        };
        let request = headers(&[("sec-websocket-key", key)]);
        for (accepts, expected) in [
            (&[accept][..], true),
            (&[], false),
            (&["x"], false),
            (&[accept, accept], false),
            (&["S3PPLMBITXAQ9KYGZZHZRBK+XOO="], false),
        ] {
            let found = UpgradeProtocol::websocket().is_agreed(&request, &answer(accepts));
            assert_eq!(found, expected, "{accepts:?}");
        }
        for keys in [&[][..], &[("sec-websocket-key", key), ("sec-websocket-key", key)]] {
            assert!(!UpgradeProtocol::websocket().is_agreed(&headers(keys), &answer(&[accept])));
        }
    }
}
