//! The site that a request is for: `Host` and the authority of the target (RFC 9110 §7.2, RFC 9112 §3.2).
//!
//! Which sites are served is decided elsewhere.

use std::borrow::Cow;
use std::net::Ipv6Addr;
use std::sync::Arc;

use ::http::header::HOST;
use ::http::{HeaderMap, Uri};

/// The longest host name, in bytes (RFC 1035 §2.3.4, plus a final dot).
const NAME_MAX: usize = 254;

/// The scheme of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Clear text.
    #[default]
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// `http` or `https`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Parses a scheme, in any case.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        match text {
            _ if text.eq_ignore_ascii_case(b"http") => Some(Self::Http),
            _ if text.eq_ignore_ascii_case(b"https") => Some(Self::Https),
            _ => None,
        }
    }

    /// The default port of the scheme (RFC 9110 §4.2).
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A valid `host[:port]`, in lower case and without the final dot that marks a name as complete (RFC 3986 §3.2.2):
/// `shop.example.` is the site `shop.example`.
///
/// Host names have the form that DNS and certificates use: letters, digits, `-`, `.`, `_` and `~`. RFC 3986
/// §3.2.2 also allows `,`, `;`, `'` and percent-encoding, but a name with these could add a member to the
/// list fields in which the host is forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    text: Arc<str>,
    /// The length of the part of `text` before the port's colon, in bytes.
    name_length: usize,
    port: Option<u16>,
}

impl Host {
    /// Parses `text` as `uri-host [ ":" port ]`.
    ///
    /// # Errors
    /// [`BadHost::Malformed`] for user information, an empty name or port, a port over 65535, or brackets
    /// around anything but an IPv6 address.
    pub fn parse(text: &[u8]) -> Result<Self, BadHost> {
        let text = std::str::from_utf8(text).map_err(|_| BadHost::Malformed)?;
        let name_length = match text.find(']') {
            Some(at) => at + 1,
            None => text.find(':').unwrap_or(text.len()),
        };
        let (name, rest) = text.split_at(name_length);
        if !is_name(name) {
            return Err(BadHost::Malformed);
        }
        let port = port(rest)?;
        let name = name.strip_suffix('.').unwrap_or(name);
        let text = format!("{name}{rest}").to_ascii_lowercase().into();
        Ok(Self { text, name_length: name.len(), port })
    }

    /// The whole `host[:port]`, as the client sent it but in lower case and without a final dot.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host without its port; an IPv6 address keeps its brackets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text[..self.name_length]
    }

    /// The port, if the client sent one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// `host[:port]` without a default port, so that `a.test` and `a.test:80` are one site over http (RFC
    /// 9110 §4.2.3).
    #[must_use]
    pub fn normalised(&self, scheme: Scheme) -> Cow<'_, str> {
        match self.port {
            None => Cow::Borrowed(self.as_str()),
            Some(port) if port == scheme.default_port() => Cow::Borrowed(self.name()),
            // Formatting the number drops leading zeros.
            Some(port) => Cow::Owned(format!("{}:{port}", self.name())),
        }
    }
}

/// Remembers the last `Host` of a connection. PERF: nearly all requests on a connection have the same.
#[derive(Debug, Default)]
pub struct HostMemo(Option<(Box<[u8]>, Host)>);

impl HostMemo {
    /// The site that a request is for, as by [`site`].
    ///
    /// # Errors
    /// Each case of [`BadHost`].
    pub fn site(&mut self, uri: &Uri, headers: &HeaderMap) -> Result<Host, BadHost> {
        let mut lines = headers.get_all(HOST).iter();
        let (Some(line), None, None) = (lines.next(), lines.next(), uri.authority()) else {
            return site(uri, headers);
        };
        if let Some((last, host)) = &self.0
            && **last == *line.as_bytes()
        {
            return Ok(host.clone());
        }
        let host = Host::parse(line.as_bytes())?;
        self.0 = Some((line.as_bytes().into(), host.clone()));
        Ok(host)
    }
}

/// Why the site of a request is unknown or ambiguous. All cases lead to a 400 (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// No `Host` line.
    #[error("no Host field")]
    Missing,
    /// More than one `Host` line.
    #[error("several Host fields")]
    Several,
    /// The value is not a valid `host[:port]`.
    #[error("the Host field is malformed")]
    Malformed,
    /// The target names a site other than `Host` does.
    #[error("the Host field and the request's target name different sites")]
    Contradiction,
}

/// The site that a request is for. Exactly one `Host` line is required; admission makes an exception for HTTP/1.0.
/// The authority of an absolute-form target takes precedence (RFC 9112 §3.2.2) and must be equal to the line, because
/// the origin may use either.
///
/// # Errors
/// Each case of [`BadHost`].
pub fn site(uri: &Uri, headers: &HeaderMap) -> Result<Host, BadHost> {
    let mut lines = headers.get_all(HOST).iter();
    let (line, second) = (lines.next().ok_or(BadHost::Missing)?, lines.next());
    if second.is_some() {
        return Err(BadHost::Several);
    }
    let host = Host::parse(line.as_bytes())?;
    let Some(authority) = uri.authority() else {
        return Ok(host);
    };
    let target = Host::parse(authority.as_str().as_bytes())?;
    let scheme = uri.scheme_str().and_then(|scheme| Scheme::parse(scheme.as_bytes()));
    let scheme = scheme.unwrap_or(Scheme::Http);
    if target.normalised(scheme) != host.normalised(scheme) {
        return Err(BadHost::Contradiction);
    }
    Ok(target)
}

fn is_name(name: &str) -> bool {
    if let Some(address) = name.strip_prefix('[') {
        return address
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
    // DNS has no name with an empty label or of dots only, and such a name could break out of a file path
    // that an origin builds from it.
    let labels = !name.starts_with('.') && !name.contains("..");
    (1..=NAME_MAX).contains(&name.len()) && letters && labels
}

fn port(rest: &str) -> Result<Option<u16>, BadHost> {
    if rest.is_empty() {
        return Ok(None);
    }
    let digits = rest.strip_prefix(':').ok_or(BadHost::Malformed)?;
    // `u16::from_str` accepts a sign.
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BadHost::Malformed);
    }
    digits.parse().map(Some).map_err(|_| BadHost::Malformed)
}

#[cfg(test)]
mod tests {
    use ::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn with_hosts(hosts: &[&str]) -> HeaderMap {
        hosts.iter().map(|host| (HOST, HeaderValue::from_str(host).unwrap())).collect()
    }

    #[test]
    fn the_memo_answers_as_if_it_remembered_nothing() {
        let mut memo = HostMemo::default();
        let steps: [(&str, &[&str]); 9] = [
            ("/", &["a.test"]),
            ("/", &["a.test"]),
            ("/", &["A.test"]),
            ("/", &["b.test:80"]),
            ("/", &[]),
            ("/", &["b.test:80", "b.test:80"]),
            ("http://a.test/", &["b.test:80"]),
            ("http://b.test/", &["b.test:80"]),
            ("/", &["b..test"]),
        ];
        for (uri, lines) in steps {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(HOST, line.parse().unwrap());
            }
            let uri = uri.parse().unwrap();
            assert_eq!(memo.site(&uri, &headers), site(&uri, &headers), "{uri} {lines:?}");
        }
    }

    #[test]
    fn hosts_are_read() {
        for (text, name, port) in [
            ("a", "a", None),
            ("Shop.Example", "shop.example", None),
            ("shop.example.", "shop.example", None),
            ("Shop.example.:8080", "shop.example", Some(8080)),
            ("shop.example:8080", "shop.example", Some(8080)),
            ("shop.example:080", "shop.example", Some(80)),
            ("shop.example:0", "shop.example", Some(0)),
            ("shop.example:65535", "shop.example", Some(65535)),
            ("my_host-1~", "my_host-1~", None),
            ("127.0.0.1:80", "127.0.0.1", Some(80)),
            ("[::1]", "[::1]", None),
            ("[2001:DB8::1]:443", "[2001:db8::1]", Some(443)),
            ("[::ffff:1.2.3.4]", "[::ffff:1.2.3.4]", None),
        ] {
            let host = Host::parse(text.as_bytes()).unwrap();
            assert_eq!((host.name(), host.port()), (name, port), "{text}");
            let whole = text.to_ascii_lowercase().replace("example.:", "example:");
            assert_eq!(host.as_str(), whole.trim_end_matches('.'));
        }
    }

    #[test]
    fn invalid_hosts_are_rejected() {
        let long = "a".repeat(NAME_MAX + 1);
        for text in [
            "",
            " ",
            ":",
            ":80",
            "a:",
            "a:x",
            "a:65536",
            "a:99999999999",
            "a:+80",
            "a:-1",
            "a:80:80",
            "a b",
            " a",
            "a ",
            "a\t",
            "user@a",
            "user:pass@a",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a,b",
            "a;b",
            "a'b",
            "a\"b",
            "a%41",
            "a%",
            "..",
            ".",
            ".a",
            "a..b",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::1]:",
            "[::1]80",
            "[v1.x]",
            "[fe80::1%25eth0]",
            "[1.2.3.4]",
            "[:::1]",
            "x[::1]",
            "[[::1]]",
            "ü",
            "a\u{0}b",
            "http://a",
            long.as_str(),
        ] {
            assert_eq!(Host::parse(text.as_bytes()), Err(BadHost::Malformed), "{text:?}");
        }
        assert_eq!(Host::parse(b"\xff"), Err(BadHost::Malformed));
    }

    #[test]
    fn the_default_port_makes_no_other_site() {
        for (text, http, https) in [
            ("a.test", "a.test", "a.test"),
            ("a.test:80", "a.test", "a.test:80"),
            ("a.test:443", "a.test:443", "a.test"),
            ("a.test:0443", "a.test:443", "a.test"),
            ("a.test:8080", "a.test:8080", "a.test:8080"),
            ("[::1]:80", "[::1]", "[::1]:80"),
        ] {
            let host = Host::parse(text.as_bytes()).unwrap();
            assert_eq!(host.normalised(Scheme::Http), http);
            assert_eq!(host.normalised(Scheme::Https), https);
        }
    }

    #[test]
    fn a_request_is_for_one_site_or_refused() {
        for (target, hosts, expected) in [
            ("/", &["a.test"][..], Ok("a.test")),
            ("/", &["A.Test:8080"], Ok("a.test:8080")),
            ("*", &["a.test"], Ok("a.test")),
            ("/", &[], Err(BadHost::Missing)),
            ("/", &[""], Err(BadHost::Malformed)),
            ("/", &["a.test", "a.test"], Err(BadHost::Several)),
            ("/", &["a.test", "b.test"], Err(BadHost::Several)),
            ("/", &["a.test, b.test"], Err(BadHost::Malformed)),
            ("http://a.test/", &["a.test"], Ok("a.test")),
            ("http://a.test/", &["A.TEST"], Ok("a.test")),
            ("http://a.test:80/", &["a.test"], Ok("a.test:80")),
            ("http://a.test/", &["a.test:80"], Ok("a.test")),
            ("http://a.test/", &["a.test:81"], Err(BadHost::Contradiction)),
            ("http://a.test/", &["b.test"], Err(BadHost::Contradiction)),
            ("http://a.test/", &[], Err(BadHost::Missing)),
            ("http://user@a.test/", &["a.test"], Err(BadHost::Malformed)),
        ] {
            let uri: Uri = target.parse().unwrap();
            let found = site(&uri, &with_hosts(hosts));
            assert_eq!(found.as_ref().map(Host::as_str), expected.as_deref(), "{target} {hosts:?}");
        }
    }

    #[test]
    fn schemes_are_case_blind() {
        assert_eq!(Scheme::parse(b"HTTPS"), Some(Scheme::Https));
        assert_eq!(Scheme::parse(b"http"), Some(Scheme::Http));
        assert_eq!(Scheme::parse(b"https "), None);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it_and_what_is_read_is_read_again(
            text in proptest::collection::vec(any::<u8>(), 0..32),
        ) {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(host.as_str().as_bytes()), Ok(host));
            }
        }

        #[test]
        fn printable_text_never_breaks_it(text in "[a-z0-9:.\\[\\]@%]{0,24}") {
            let _ = Host::parse(text.as_bytes());
        }
    }
}
